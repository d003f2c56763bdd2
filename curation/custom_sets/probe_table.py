"""Reads the table that a ProbMed-style set is made of: what each image shows, and what it says is absent.

Labels that are no plain positive finding ("Pneumonia?", "no effusion", "clear lungs") are skipped, counted and listed.
See also: what a label says (`dataset_builders/label_reading.py`), the questions (`probing.py`).
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from curation.images.image_table import cell_text, need_columns, read_any
from curation.images.pairing import pair
from dataset_builders.errors import BadInput, Problems
from dataset_builders.label_reading import Label, cues_in, key_of, read_finding
from dataset_builders.source_files import stays_inside
from dataset_builders.terms import NOWHERE, Place, ancestors, cannot_show, folded, place_of, singular

NORMAL = ("no finding", "no findings", "normal", "none")
"""Cells that say that an image is normal; inside a list of findings they say nothing."""
REMEDY = (
    "The table has the columns image, organ, modality, findings (separated by ; or |, `No Finding` for a normal image, blank where nothing "
    "is known), and perhaps positions (as many as findings; blank where unknown) and absent (findings that are not there)."
)
OWN = ("caption", "group", "license", "source", "reviewed")
"""Columns that other commands read or write."""


@dataclass(frozen=True)
class Finding:
    """A finding that an image shows, as the table says it. `touched`: the parts of the image that its boxes touch."""

    label: Label
    position: str = ""
    touched: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        return self.label.text


@dataclass(frozen=True)
class Probed:
    """What a table says of an image. `is_normal`: it says so; `place`: where it was taken, as far as the vocabulary knows."""

    image: str
    organ: str
    modality: str
    findings: tuple[Finding, ...] = ()
    absent: tuple[Label, ...] = ()
    is_normal: bool = False
    place: Place = NOWHERE

    @cached_property
    def image_type(self) -> str:
        """ORGAN_MODALITY as ProbMed writes it: chest_xray."""
        return f"{re.sub(r'[^a-z0-9]+', '-', self.organ.lower()).strip('-')}_{re.sub(r'[^a-z0-9]+', '', self.modality.lower())}"


@dataclass
class ProbeTable:
    """A table as read. `skipped`: (label, why) -> how often it was not used; `unused`: columns that nothing reads."""

    images: list[Probed]
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)
    unused: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ProbeColumns:
    """Which column holds what."""

    image: str = "image"
    organ: str = "organ"
    modality: str = "modality"
    findings: str = "findings"
    positions: str = "positions"
    absent: str = "absent"


def may_be_one(one: Label, other: Label) -> bool:
    """True where one label may mean what the other does, or a part or kind of it; labels of different sides do not."""
    if one.side and other.side and one.side != other.side and "bilateral" not in (one.side, other.side):
        return False
    if one.term and other.term:
        first, second = ({term.concept, *ancestors("finding", term.concept)} for term in (one.term, other.term))
        if one.term.concept in second or other.term.concept in first:
            return True
    words, others = (set(map(singular, folded(label.text).split())) for label in (one, other))
    return words <= others or others <= words


def read_probed(
    path: Path,
    columns: ProbeColumns,
    organ: str | None = None,
    modality: str | None = None,
    also_read: Sequence[str] = OWN,
) -> ProbeTable:
    """The images of a table; `organ` and `modality` stand for all of them where given. Raises BadInput for a missing or misspelt column,
    listing every bad row, and where a table that a model read out of captions has rows that have not been reviewed.

    also_read: columns that the caller reads, so that they are not among the unused ones.
    """
    raw = read_any(path)
    needed = {
        columns.image,
        columns.findings,
        *(() if organ else (columns.organ,)),
        *(() if modality else (columns.modality,)),
    }
    need_columns(raw, path, sorted(needed), REMEDY)
    unused = _unused(raw, path, {*needed, columns.positions, columns.absent, *also_read})
    if "reviewed" in raw.columns:  # `medprobe curate captions` wrote it
        open_rows = sum(not cell_text(row.get("reviewed")) for row in raw.to_dict("records"))
        if open_rows:
            raise BadInput(
                f"{path}: {open_rows} of {len(raw)} rows are not reviewed. A model's reading is no truth: check them against their images "
                "and put your name into the column `reviewed`, or delete the rows."
            )
    problems = Problems()
    read = ProbeTable([], unused=unused)
    seen: set[str] = set()
    for number, row in enumerate(raw.to_dict("records"), 1):
        image = cell_text(row[columns.image])
        probed = Probed(image, organ or cell_text(row[columns.organ]), modality or cell_text(row[columns.modality]))
        wrong = _wrong(probed, seen)
        if wrong is None:
            probed = replace(probed, place=place_of([probed.organ], probed.modality))
            labels, positions = _list(row[columns.findings]), _list(row.get(columns.positions), blanks=True)
            probed, wrong = _with_findings(probed, labels, positions, read.skipped)
        if wrong is None:
            seen.add(image)
            read.images.append(_with_absent(probed, _list(row.get(columns.absent)), read.skipped))
        else:
            problems.add(str(path), f"row {number}", wrong)
    problems.check(REMEDY)
    if not read.images:
        raise BadInput(f"{path}: holds no images. {REMEDY}")
    return read


def _unused(raw: pd.DataFrame, path: Path, known: set[str]) -> list[str]:
    """The columns that nothing reads. Raises BadInput for one whose name is nearly that of a column that is not there."""
    unused = [str(name) for name in raw.columns if name not in known]
    missing = sorted(name for name in known if name not in raw.columns)
    for name in unused:
        close = difflib.get_close_matches(name.strip().lower(), missing, 1, 0.8)
        if close:
            raise BadInput(f"{path}: has a column {name!r}. Is it {close[0]!r}? Rename or remove it.")
    return unused


def _list(value: Any, blanks: bool = False) -> tuple[str, ...]:
    parts = [str(part) for part in value] if isinstance(value, (list, tuple)) else re.split(r"[;|]", cell_text(value))
    texts = [" ".join(part.split()) for part in parts]
    return tuple(texts) if blanks and any(texts) else tuple(text for text in texts if text)


def _wrong(probed: Probed, seen: set[str]) -> str | None:
    if not probed.image or not probed.organ or not probed.modality:
        return "has no image, organ or modality"
    if not stays_inside(probed.image):
        return f"the image name {probed.image!r} leaves its folder"
    if probed.image in seen:
        return f"image {probed.image!r} has a row already"
    if not folded(probed.organ) or not re.search(r"[a-z0-9]", probed.image_type.split("_")[1]):
        return "has an organ or modality without letters"
    for text in (probed.organ, probed.modality):
        if _is_doubtful(text):
            return f"{text!r} is no plain organ or modality"
    return None


def _is_doubtful(text: str) -> bool:
    return "?" in text or any(kind in ("negated", "uncertain", "not current") for kind, _ in cues_in(text))


def _with_findings(
    probed: Probed, labels: Sequence[str], positions: Sequence[str], skipped: Counter[tuple[str, str]]
) -> tuple[Probed, str | None]:
    """The image with its findings that can be read, and what is wrong with the row."""
    is_normal = [label.casefold() in NORMAL for label in labels]
    if len(labels) == 1 and is_normal[0]:
        return replace(probed, is_normal=True), "is normal and has a position" if positions else None
    if positions and len(positions) != len(labels):
        return probed, f"has {len(labels)} findings and {len(positions)} positions"
    found: dict[str, Finding] = {}
    for at, text in enumerate(labels):
        label = read_finding(text, probed.place)
        if not label.problem and label.term and cannot_show(probed.place, label.term):
            label = replace(label, problem=f"cannot be on an image of the {probed.organ}")
            probed = replace(probed, place=NOWHERE)  # one of the two is wrong, so neither rules anything out
        if label.problem:
            skipped[text, label.problem] += 1
            continue
        position = positions[at] if positions else ""
        if _is_doubtful(position):
            skipped[position, "is no plain position"] += 1
            position = ""
        key = key_of(text, probed.place)
        if key in found and found[key].position != position:
            position = ""  # in two places
        found[key] = Finding(found[key].label if key in found else label, position)
    if found and any(is_normal):
        return probed, "is normal and has findings"
    return replace(probed, findings=tuple(found.values())), None


def _with_absent(probed: Probed, labels: Sequence[str], skipped: Counter[tuple[str, str]]) -> Probed:
    absent: dict[str, Label] = {}
    for text in labels:
        label = read_finding(text, probed.place)
        problem = label.problem
        if not problem and any(may_be_one(label, finding.label) for finding in probed.findings):
            problem = "is absent, and a finding of its row may be the same or a kind of it"
        if problem:
            skipped[text, problem] += 1
        else:
            absent[key_of(text, probed.place)] = label
    return replace(probed, absent=tuple(absent.values()))


def with_files(probed: Sequence[Probed], names: Sequence[str], path: Path) -> list[Probed]:
    """The same images under the path of their file. Raises BadInput where a row's image is not among the files, or not only there."""
    files = paired([image.image for image in probed], names)
    bad = [image.image for image in probed if image.image not in files]
    if bad:
        raise BadInput(
            f"{path}: image {bad[0]!r} and {len(bad) - 1} more are no files of the folder, or have a name that several files or rows have. "
            "Name images by their path below it, and leave out rows without an image."
        )
    return [replace(image, image=files[image.image]) for image in probed]


def paired(names: Sequence[str], files: Sequence[str]) -> dict[str, str]:
    """Name -> file, of the names that belong to one."""
    found = pair(list(names), list(files)).found
    return {name: files[at] for name, at in zip(names, found, strict=True) if at is not None}
