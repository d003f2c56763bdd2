"""Reads the table that a ProbMed-style set is made of: what each image shows, in the words of its source.

See also: the questions (`probing.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from curation.images.image_table import cell_text, need_columns, read_any
from dataset_builders.errors import BadInput
from dataset_builders.sources.files import stays_inside
from dataset_builders.sources.problems import Problems

NORMAL = ("no finding", "no findings", "normal", "none")


REMEDY = (
    "The table has the columns image, organ, modality, and perhaps findings (separated by ; or |, `No Finding` for a normal image) and "
    "positions (as many as findings; blank where unknown)."
)


@dataclass(frozen=True)
class Probed:
    """What a table says of an image. `findings` None: nothing is known of them; (): the image is normal. `positions`: one text per
    finding, "" where unknown."""

    image: str
    organ: str
    modality: str
    findings: tuple[str, ...] | None
    positions: tuple[str, ...]
    touched: tuple[frozenset[str], ...] = ()
    """Per finding the parts of the image that its boxes touch; empty where there are no boxes."""
    absent: tuple[str, ...] | None = None
    """Findings that the table says are not there; None: all that it does not name are not there."""

    @property
    def image_type(self) -> str:
        """ORGAN_MODALITY as ProbMed writes it: chest_xray."""
        return f"{re.sub(r'[^a-z0-9]+', '-', self.organ.lower()).strip('-')}_{re.sub(r'[^a-z0-9]+', '', self.modality.lower())}"


@dataclass(frozen=True)
class ProbeColumns:
    """Which column holds what."""

    image: str = "image"
    organ: str = "organ"
    modality: str = "modality"
    findings: str = "findings"
    positions: str = "positions"
    absent: str = "absent"


def read_probed(
    path: Path, columns: ProbeColumns, organ: str | None = None, modality: str | None = None, partial: bool = False
) -> list[Probed]:
    """The images of a table; `organ` and `modality` stand for all of them where given. Raises BadInput listing every bad row, and where a
    table that a model read out of captions has rows that nobody reviewed.

    `partial`: not every finding is named; then only those that the column `absent` names are not there (in a normal image: all).
    """
    raw = read_any(path)
    needed = {columns.image, *(() if organ else (columns.organ,)), *(() if modality else (columns.modality,))}
    need_columns(raw, path, sorted(needed), REMEDY)
    if "reviewed" in raw.columns:  # `medprobe curate captions` wrote it
        open_rows = sum(not cell_text(row.get("reviewed")) for row in raw.to_dict("records"))
        if open_rows:
            raise BadInput(
                f"{path}: {open_rows} of {len(raw)} rows are not reviewed. A model's reading is no truth: check them against their images "
                "and put your name into the column `reviewed`, or delete the rows."
            )
    problems = Problems()
    found: dict[str, Probed] = {}
    for number, row in enumerate(raw.to_dict("records"), 1):
        image = cell_text(row.get(columns.image))
        findings = _list(row, columns.findings)
        normal = len(findings) == 1 and findings[0].casefold() in NORMAL
        positions = () if normal else _list(row, columns.positions, blanks=True)
        probed = Probed(
            image,
            organ or cell_text(row.get(columns.organ)),
            modality or cell_text(row.get(columns.modality)),
            None if not findings else () if normal else findings,
            positions or ("",) * (0 if normal else len(findings)),
            absent=_list(row, columns.absent) if partial and not normal else None,
        )
        wrong = _wrong(probed, found)
        if wrong:
            problems.add(str(path), f"row {number}", wrong)
        else:
            found[image] = probed
    problems.check(REMEDY)
    if not found:
        raise BadInput(f"{path}: holds no images. {REMEDY}")
    return list(found.values())


def _list(row: Any, column: str, blanks: bool = False) -> tuple[str, ...]:
    value = row.get(column)
    parts = (
        [str(part) for part in value]
        if isinstance(value, (list, tuple))
        else re.split(r"[;|]", cell_text(row.get(column)))
    )
    texts = [" ".join(part.split()) for part in parts]
    return tuple(texts) if blanks and any(texts) else tuple(text for text in texts if text)


def _wrong(probed: Probed, found: dict[str, Probed]) -> str | None:
    if not probed.image or not probed.organ or not probed.modality:
        return "has no image, organ or modality"
    if not stays_inside(probed.image):
        return f"the image name {probed.image!r} leaves its folder"
    if probed.image in found:
        return f"image {probed.image!r} has a row already"
    if probed.findings and any(text.casefold() in NORMAL for text in probed.findings):
        return "is normal and has findings"
    if probed.findings and len({text.casefold() for text in probed.findings}) < len(probed.findings):
        return "names a finding twice"
    if len(probed.positions) != len(probed.findings or ()):
        return f"has {len(probed.findings or ())} findings and {len(probed.positions)} positions"
    if not re.search(r"[a-z0-9]", probed.organ.lower()) or not re.search(r"[a-z0-9]", probed.modality.lower()):
        return "has an organ or modality without letters"
    return None


def with_files(probed: Sequence[Probed], names: Sequence[str], path: Path) -> list[Probed]:
    """The same images under the path of their file; a row names its image by path, file name, or file name without extension.

    Raises BadInput where a row's image is not among the files, or fits several.
    """
    by_name: dict[str, set[str]] = {}
    for name in names:
        for key in {name, PurePosixPath(name).name, PurePosixPath(name).stem}:
            by_name.setdefault(key, set()).add(name)
    fits = [{image.image} & set(names) or by_name.get(image.image, set()) for image in probed]
    bad = [(image.image, len(found)) for image, found in zip(probed, fits, strict=True) if len(found) != 1]
    if bad:
        name, count = bad[0]
        raise BadInput(
            f"{path}: image {name!r} and {len(bad) - 1} more {'are no files' if not count else 'fit several files'} of the folder. "
            "Name images by their path below it, and leave out rows without an image."
        )
    return [replace(image, image=next(iter(found))) for image, found in zip(probed, fits, strict=True)]
