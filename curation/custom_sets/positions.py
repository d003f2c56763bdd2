"""Positions of findings: which position rules another one out, by the `position` rows of the vocabulary; and those from boxes in pixels
(ProbMed's positional module, section 3.3), with what each box touches.

See also: what is asked of them (`probing.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pandas as pd
from PIL import Image

from curation.custom_sets.probe_table import Probed, paired
from curation.images.image_table import need_columns, read_any
from dataset_builders.errors import BadInput
from dataset_builders.label_reading import key_of
from dataset_builders.terms import folded, singular, terms

SIDE, NAMED = "side", "part of the brain"
"""The axis of left and right, and that of parts which exclude one another by name."""
EXTENT, FRAME, SIDED = "extent", "frame", "name"
"""Rows of words for everywhere, for the picture's own sides, and for organs of which a side is a name (the liver's left lobe)."""


@cache
def _axes() -> dict[str, dict[str, str]]:
    """Axis -> word -> position."""
    found: dict[str, dict[str, str]] = {}
    for term in terms("position"):
        for axis in term.parents:
            found.setdefault(axis, {}).update(dict.fromkeys(term.names, term.concept))
    return found


@cache
def excludes_position(there: str, candidate: str) -> bool:
    """True where what lies at `there` does not lie at `candidate`: left and right, upper and lower ...; both in the same frame (the image's
    or the patient's sides), neither everywhere."""
    axes = _axes()
    first, second = set(folded(there).split()), set(folded(candidate).split())
    if (first | second) & axes[EXTENT].keys() or bool(first & axes[FRAME].keys()) != bool(second & axes[FRAME].keys()):
        return False
    part = _part(first)
    is_same_part = part == _part(second)
    middle = {word for word, position in axes["height"].items() if position == "middle"}
    for name, axis in axes.items():
        if name in (EXTENT, FRAME, SIDED):
            continue
        here, asks = {axis[word] for word in first & axis.keys()}, {axis[word] for word in second & axis.keys()}
        # Between left and right there is a middle, too, where nothing is said that it is the middle of.
        if len(here) != 1 or len(asks) != 1 or here == asks or (not part and (first | second) & middle & axis.keys()):
            continue
        if is_same_part or name == NAMED or (name == SIDE and not (first | second) & axes[SIDED].keys()):
            return True
    return False


def _part(words: set[str]) -> set[str]:
    """What a position is a part of: a lobe, a zone, a quadrant. The lower lobe of a lung reaches into its middle zone."""
    said = {word for axis in _axes().values() for word in axis} - _axes()[SIDED].keys()
    small = set(re.findall(r"\w+", "a an the of in and with to at is side sided region area portion part"))
    return {singular(word) for word in words - said - small}


# Boxes

HEIGHTS, SIDES = ("upper", "middle", "lower"), ("left", "right")
PARTS = tuple(f"{height} {side} part of the image" for height in HEIGHTS for side in SIDES)
MOSTLY = 0.6
"""Share of a finding's boxes that has to lie in one part for the finding to be said to lie there."""
Box = tuple[float, float, float, float]


@dataclass
class BoxCounts:
    """What became of the boxes: `used`, `across` (over several parts, so that no position is asked), `other_images` (not in the table),
    `unmatched`: box row -> why, of boxes whose image is in the table and whose finding its row does not name."""

    used: int = 0
    across: int = 0
    other_images: int = 0
    unmatched: dict[int, str] = field(default_factory=dict)


def with_positions(probed: Sequence[Probed], boxes: Path, images: Path) -> tuple[list[Probed], BoxCounts]:
    """Positions of findings from their boxes (image, finding, x, y, width, height). ChestX-ray14's BBox_List_2017.csv is read as it comes.

    A finding lies where at least 60 % of its boxes lie; where they lie across parts it has no position. A box belongs to the finding of
    its image that means the same (its file says Infiltrate, its table Infiltration).
    Raises BadInput for rows that are no boxes, and boxes that leave their image.
    """
    table = _read(boxes)
    files = paired(list(dict.fromkeys(table["image"])), [image.image for image in probed])
    rows_of: dict[str, list[int]] = {}
    counts = BoxCounts()
    for row, name in enumerate(table["image"]):
        if name in files:
            rows_of.setdefault(files[name], []).append(row)
        else:
            counts.other_images += 1
    placed = [
        _placed(image, rows_of[image.image], table, images, boxes, counts) if image.image in rows_of else image
        for image in probed
    ]
    return placed, counts


def _read(boxes: Path) -> pd.DataFrame:
    raw = read_any(boxes)
    if list(raw.columns[:2]) == ["Image Index", "Finding Label"]:
        raw = raw.iloc[:, :6].set_axis(["image", "finding", "x", "y", "width", "height"], axis=1)
    remedy = "Boxes have image, finding, x, y, width, height (in pixels)."
    need_columns(raw, boxes, ("image", "finding", "x", "y", "width", "height"), remedy)
    numbers = raw[["x", "y", "width", "height"]].apply(pd.to_numeric, errors="coerce")
    bad = numbers.isna().any(axis=1) | (numbers[["width", "height"]] <= 0).any(axis=1)
    if bad.any():
        raise BadInput(
            f"{boxes}: row {int(bad.to_numpy().argmax()) + 1} has a box that is not four numbers, or is empty."
        )
    names = raw[["image", "finding"]].map(lambda value: str(value).strip())
    return names.join(numbers)


def _placed(
    image: Probed, rows: list[int], table: pd.DataFrame, images: Path, boxes: Path, counts: BoxCounts
) -> Probed:
    with Image.open(images / image.image) as opened:
        size = opened.size
    found: dict[int, list[Box]] = {}
    for row in rows:
        x, y, width, height = (float(str(table.at[row, name])) for name in ("x", "y", "width", "height"))
        if x < -1 or y < -1 or x + width > size[0] + 1 or y + height > size[1] + 1:
            raise BadInput(
                f"{boxes}: row {row + 1} has a box that leaves its image of {size[0]} x {size[1]} pixels. "
                "Give boxes in the pixels of the images as they are."
            )
        finding = str(table.at[row, "finding"]).strip()
        key = key_of(finding, image.place)
        at = next((k for k, each in enumerate(image.findings) if key_of(each.text, image.place) == key), None)
        if at is None:
            counts.unmatched[row + 1] = (
                f"{finding!r} is no finding of its image ({'; '.join(each.text for each in image.findings) or 'none'})"
            )
        else:
            found.setdefault(at, []).append((x, y, width, height))
    findings = list(image.findings)
    for at, of_finding in found.items():
        position = position_of(of_finding, size)
        counts.used += len(of_finding) if position else 0
        counts.across += 0 if position else len(of_finding)
        touched = frozenset(part for box in of_finding for part, share in shares(box, size).items() if share > 0)
        findings[at] = replace(findings[at], position=findings[at].position or position, touched=touched)
    return replace(image, findings=tuple(findings))


def position_of(boxes: Sequence[Box], size: tuple[int, int]) -> str:
    """The part of an image of `size` (width, height) that at least 60 % of each box lie in, "" where there is none: upper, middle or lower
    third, left or right half *of the image* (a radiograph's left is the patient's right).

    >>> position_of([(700, 100, 100, 100)], (1024, 1024))
    'upper right part of the image'
    """
    parts: Counter[str] = Counter()
    for box in boxes:
        part, share = max(shares(box, size).items(), key=lambda item: item[1])
        parts[part if share >= MOSTLY else ""] += 1
    return next(iter(parts)) if len(parts) == 1 else ""


def shares(box: Box, size: tuple[int, int]) -> dict[str, float]:
    """Part of the image -> share of the box (x, y, width, height) that lies in it."""
    x, y, width, height = box

    def overlap(start: float, end: float, low: float, high: float) -> float:
        return max(0.0, min(end, high) - max(start, low))

    found = {}
    for row, level in enumerate(HEIGHTS):
        tall = overlap(y, y + height, size[1] * row / 3, size[1] * (row + 1) / 3)
        for column, side in enumerate(SIDES):
            wide = overlap(x, x + width, size[0] * column / 2, size[0] * (column + 1) / 2)
            found[f"{level} {side} part of the image"] = tall * wide / (width * height)
    return found
