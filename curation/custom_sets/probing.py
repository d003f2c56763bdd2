"""Makes a ProbMed-style set from a table of one's own images: yes/no questions from modality to position, each with an adversarial
counterpart (ProbMed, section 3).

Every question whose answer is yes has a counterpart that names something the image does not show: another modality, another organ, a
finding or a position that other images of the same organ and modality have, drawn evenly. The wording is ours; what is asked, and
how questions are named (`qa_type`), is the paper's. Only what the table says is asked about: a blank cell says nothing, `No Finding`
(or normal, none) says that the image is normal.

See also: asking a language model for findings (the paper had GPT-4 read captions); positions are the table's, or come from boxes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd
from PIL import Image

from curation.custom_sets.custom_questions import shuffled
from curation.images.image_table import read_any
from dataset_builders.errors import BadInput
from dataset_builders.sources.files import stays_inside
from dataset_builders.sources.problems import Problems

NORMAL = ("no finding", "no findings", "normal", "none")
MODALITIES, ORGANS = ("X-ray", "CT", "MRI"), ("abdomen", "brain", "chest", "spine")
"""ProbMed's own, for tables that know a single modality or organ."""
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


def read_probed(
    path: Path, columns: ProbeColumns, organ: str | None = None, modality: str | None = None
) -> list[Probed]:
    """The images of a table; `organ` and `modality` stand for all of them where given. Raises BadInput listing every bad row."""
    raw = read_any(path)
    needed = {columns.image, *(() if organ else (columns.organ,)), *(() if modality else (columns.modality,))}
    for column in sorted(needed):
        if column not in raw.columns:
            raise BadInput(f"{path}: has no column {column!r} (it has {', '.join(map(str, raw.columns))}). {REMEDY}")
    problems = Problems()
    found: dict[str, Probed] = {}
    for number, row in enumerate(raw.to_dict("records"), 1):
        image = _cell(row, columns.image)
        findings = _list(row, columns.findings)
        normal = len(findings) == 1 and findings[0].casefold() in NORMAL
        positions = () if normal else _list(row, columns.positions, blanks=True)
        probed = Probed(
            image,
            organ or _cell(row, columns.organ),
            modality or _cell(row, columns.modality),
            None if not findings else () if normal else findings,
            positions or ("",) * (0 if normal else len(findings)),
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


def _cell(row: Any, column: str) -> str:
    value = row.get(column)
    return "" if value is None or (not isinstance(value, (list, tuple)) and pd.isna(value)) else str(value).strip()


def _list(row: Any, column: str, blanks: bool = False) -> tuple[str, ...]:
    value = row.get(column)
    parts = [str(part) for part in value] if isinstance(value, (list, tuple)) else re.split(r"[;|]", _cell(row, column))
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


def with_positions(probed: Sequence[Probed], boxes: Path, images: Path) -> list[Probed]:
    """Positions of findings from their boxes (image, finding, x, y, width, height), where a finding has one box, or all of its boxes
    lie in the same place. ChestX-ray14's BBox_List_2017.csv is read as it comes."""
    raw = read_any(boxes)
    if list(raw.columns[:2]) == ["Image Index", "Finding Label"]:
        raw = raw.iloc[:, :6].set_axis(["image", "finding", "x", "y", "width", "height"], axis=1)
    missing = [name for name in ("image", "finding", "x", "y", "width", "height") if name not in raw.columns]
    if missing:
        raise BadInput(
            f"{boxes}: has no column {missing[0]!r}. Boxes have image, finding, x, y, width, height (in pixels)."
        )
    numbers = raw[["x", "y", "width", "height"]].apply(pd.to_numeric, errors="coerce")
    if numbers.isna().any(axis=None):
        raise BadInput(
            f"{boxes}: row {int(numbers.isna().any(axis=1).to_numpy().argmax()) + 1} has a box that is not four numbers."
        )
    found: dict[tuple[str, str], list[tuple[float, float, float, float]]] = {}
    for image, finding, box in zip(raw["image"], raw["finding"], numbers.to_numpy().tolist(), strict=True):
        found.setdefault((str(image).strip(), str(finding).strip().casefold()), []).append(tuple(box))
    placed = []
    for image in probed:
        names = {image.image, PurePosixPath(image.image).name, PurePosixPath(image.image).stem}
        places = [
            [b for n in names for b in found.get((n, finding.casefold()), [])] for finding in image.findings or ()
        ]
        if any(places):
            with Image.open(images / image.image) as opened:
                size = opened.size
            texts = [{position_of(box, size) for box in boxed} for boxed in places]
            positions = tuple(
                old or (next(iter(text)) if len(text) == 1 else "")
                for old, text in zip(image.positions, texts, strict=True)
            )
            image = replace(image, positions=positions)
        placed.append(image)
    return placed


def position_of(box: tuple[float, float, float, float], size: tuple[int, int]) -> str:
    """Where a box (x, y, width, height in pixels) lies in an image of `size` (width, height), by its centre: upper, middle or lower
    third, left or right half *of the image* (a radiograph's left is the patient's right).

    >>> position_of((700, 100, 100, 100), (1024, 1024))
    'upper right part of the image'
    """
    x, y = (box[0] + box[2] / 2) / size[0], (box[1] + box[3] / 2) / size[1]
    return (
        f"{('upper', 'middle', 'lower')[min(2, max(0, int(3 * y)))]} {'left' if x < 0.5 else 'right'} part of the image"
    )


def probe(images: Sequence[Probed], seed: int = 0) -> tuple[list[dict[str, str]], dict[str, int]]:
    """The rows of probmed.json, and how many counterparts could not be made (`without_<aspect>`; their pairs are left out).

    Per image: `modality_gt/_hallu`, `body_part_gt/_hallu`, `abnormality`, `entity_gt_k/_hallu_k` per finding (a normal image: one
    `entity_hallu`), `grounding_gt_k/_hallu_k` per finding with a position.
    """
    draw = _Draw(images, seed)
    rows = [
        {
            "id": image.image,
            "image": image.image,
            "image_type": image.image_type,
            "qa_type": kind,
            "question": question,
            "answer": answer,
        }
        for image in images
        for kind, question, answer in _asked(image, draw)
    ]
    return rows, dict(draw.left_out)


Asked = Iterator[tuple[str, str, str]]
"""qa_type, question, answer."""


def _asked(image: Probed, draw: _Draw) -> Asked:
    kind = image.image_type
    yield from draw.pair(image, "modality", "", "Was this image made by {}?", image.modality, draw.modalities)
    yield from draw.pair(image, "body_part", "", "Does this image show the {}?", image.organ, draw.organs)
    if image.findings is None:
        return
    yield "abnormality", "Is anything in this image abnormal?", "yes" if image.findings else "no"
    shown = {finding.casefold() for finding in image.findings}
    absent = [finding for finding in draw.findings[kind] if finding.casefold() not in shown]
    asks = "Does this image show {}?"
    if not image.findings:
        false = draw.another(absent, "", f"{image.image} entity")
        if false is None:
            draw.left_out["without_entity"] += 1
        else:
            yield "entity_hallu", asks.format(false), "no"
    for place, (finding, position) in enumerate(zip(image.findings, image.positions, strict=True)):
        yield from draw.pair(image, "entity", f"_{place}", asks, finding, absent)
        if position:
            where = "Is the {} located here: {{}}?".format(finding.replace("{", "{{").replace("}", "}}"))
            yield from draw.pair(image, "grounding", f"_{place}", where, position, draw.positions[kind])


class _Draw:
    """The candidates of a table (section 3.3: by organ and modality), each drawn about as often as any other."""

    def __init__(self, images: Sequence[Probed], seed: int) -> None:
        self.seed = seed
        self.used: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.modalities = _distinct([image.modality for image in images], MODALITIES)
        self.organs = _distinct([image.organ for image in images], ORGANS)
        kinds = {image.image_type for image in images}
        of_kind = {kind: [image for image in images if image.image_type == kind] for kind in kinds}
        self.findings = {k: _distinct([f for i in of_kind[k] for f in i.findings or ()]) for k in kinds}
        self.positions = {k: _distinct([p for i in of_kind[k] for p in i.positions if p]) for k in kinds}

    def pair(self, image: Probed, kind: str, place: str, template: str, true: str, candidates: Sequence[str]) -> Asked:
        """A question that is true and its adversarial counterpart; neither where there is no candidate."""
        false = self.another(candidates, true, f"{image.image} {kind}{place}")
        if false is None:
            self.left_out[f"without_{kind}"] += 1
            return
        yield f"{kind}_gt{place}", template.format(true), "yes"
        yield f"{kind}_hallu{place}", template.format(false), "no"

    def another(self, candidates: Sequence[str], true: str, key: str) -> str | None:
        """A candidate other than `true`, of the least used; the same for the same key and seed."""
        folded = true.casefold()
        fitting = [text for text in candidates if text.casefold() != folded]
        if not fitting:
            return None
        least = min(self.used[text] for text in fitting)
        rare = [text for text in fitting if self.used[text] == least]
        chosen = rare[shuffled(key, self.seed) % len(rare)]
        self.used[chosen] += 1
        return chosen


def _distinct(texts: Sequence[str], otherwise: Sequence[str] = ()) -> list[str]:
    """The different texts (in any case of letters), sorted; with fewer than two, those of `otherwise` too."""
    found = {text.casefold(): text for text in texts}
    if len(found) < 2:
        found = {text.casefold(): text for text in otherwise} | found
    return [found[key] for key in sorted(found)]
