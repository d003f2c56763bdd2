"""Read the table that a ProbMed-style set is made from: what each image shows, and what it says is absent.

Positions come from the table or from boxes in pixels (ProbMed's positional module, section 3.3); which position rules another one out is in
the `position` rows of the vocabulary. Labels that are no plain positive finding ("Pneumonia?", "no effusion", "clear lungs") are skipped,
counted and listed.

See also: what a label says (`dataset_builders/label_reading.py`), the questions (`probing.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from curation.images.image_table import cell_text, read_dataframe, require_columns
from curation.images.pairing import pair_names
from dataset_builders.errors import BadInput, Problems
from dataset_builders.label_reading import ParsedLabel, find_cues, label_key, parse_finding
from dataset_builders.source_files import is_safe_relative_path
from dataset_builders.terms import (
    UNKNOWN_CONTEXT,
    ImageContext,
    ancestors,
    cannot_show,
    load_terms,
    normalize_term,
    parse_image_context,
    singular,
    terms_by_name,
)

NORMAL_CELLS = ("no finding", "no findings", "normal")
"""Cells that say that an image is normal."""
NON_NAME_CHARACTER = re.compile(r"[^\w\s\-–,.()/&'’]")
TABLE_REMEDY = (
    "The table has the columns image, organ, modality, findings (separated by ; or |, `No Finding` for a normal image, blank where nothing "
    "is known), and perhaps positions (as many as findings; blank where unknown) and absent (findings that are not there)."
)
OTHER_COLUMNS = ("caption", "group", "license", "source", "reviewed")
"""Columns that other commands read or write."""


@dataclass(frozen=True)
class Finding:
    """A finding that an image shows, as the table says it. `touched`: the parts of the image that its boxes touch."""

    label: ParsedLabel
    position: str = ""
    touched: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        return self.label.text


@dataclass(frozen=True)
class ProbedImage:
    """A table's statements about an image. `is_normal`: stated normal; `place`: body region and modality, as far as known."""

    image: str
    organ: str
    modality: str
    findings: tuple[Finding, ...] = ()
    absent: tuple[ParsedLabel, ...] = ()
    is_normal: bool = False
    place: ImageContext = UNKNOWN_CONTEXT

    @cached_property
    def image_type(self) -> str:
        """ORGAN_MODALITY as ProbMed writes it: chest_xray."""
        return f"{re.sub(r'[^a-z0-9]+', '-', self.organ.lower()).strip('-')}_{re.sub(r'[^a-z0-9]+', '', self.modality.lower())}"


@dataclass
class ProbeTable:
    """A table as read. `skipped`: (label, why) -> how often it was not used; `unused`: columns that nothing reads."""

    images: list[ProbedImage]
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)
    unused: list[str] = field(default_factory=list)


def labels_may_coincide(one: ParsedLabel, other: ParsedLabel) -> bool:
    """True where one label may mean what the other does, or a part or kind of it; labels of different sides do not."""
    if one.side and other.side and one.side != other.side and "bilateral" not in (one.side, other.side):
        return False
    if one.term and other.term:
        first, second = ({term.concept, *ancestors("finding", term.concept)} for term in (one.term, other.term))
        if one.term.concept in second or other.term.concept in first:
            return True
    words, others = (set(map(singular, normalize_term(label.text).split())) for label in (one, other))
    return words <= others or others <= words


def read_probe_table(
    path: Path,
    image_column: str = "image",
    findings_column: str = "findings",
    organ: str | None = None,
    modality: str | None = None,
) -> ProbeTable:
    """The images of a table; `organ` and `modality` stand for all of them where given. Raises BadInput for a missing column, listing every
    bad row, and where a table that a model read out of captions has rows that have not been reviewed.
    """
    raw = read_dataframe(path)
    needed = {
        image_column,
        findings_column,
        *(() if organ else ("organ",)),
        *(() if modality else ("modality",)),
    }
    require_columns(raw, path, sorted(needed), TABLE_REMEDY)
    unused = [str(name) for name in raw.columns if name not in {*needed, "positions", "absent", *OTHER_COLUMNS}]
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
        image = cell_text(row[image_column])
        probed = ProbedImage(image, organ or cell_text(row["organ"]), modality or cell_text(row["modality"]))
        wrong = _row_problem(probed, seen)
        if wrong is None:
            probed = replace(probed, place=parse_image_context([probed.organ], probed.modality))
            labels, positions = _split_cell(row[findings_column]), _split_cell(row.get("positions"), blanks=True)
            probed, wrong = _add_findings(probed, labels, positions, read.skipped)
        if wrong is None:
            seen.add(image)
            read.images.append(_add_absent(probed, _split_cell(row.get("absent")), read.skipped))
        else:
            problems.add(str(path), f"row {number}", wrong)
    problems.check(TABLE_REMEDY)
    if not read.images:
        raise BadInput(f"{path}: holds no images. {TABLE_REMEDY}")
    return read


def _split_cell(value: Any, blanks: bool = False) -> tuple[str, ...]:
    is_list = pd.api.types.is_list_like(value) and not isinstance(value, dict)
    parts = map(cell_text, value) if is_list else re.split(r"[;|]", cell_text(value))
    texts = [" ".join(part.split()) for part in parts]
    return tuple(texts) if blanks and any(texts) else tuple(text for text in texts if text)


def _row_problem(probed: ProbedImage, seen: set[str]) -> str | None:
    if not probed.image or not probed.organ or not probed.modality:
        return "has no image, organ or modality"
    if not is_safe_relative_path(probed.image):
        return f"the image name {probed.image!r} leaves its folder"
    if probed.image in seen:
        return f"image {probed.image!r} has a row already"
    if not normalize_term(probed.organ) or not re.search(r"[a-z0-9]", probed.image_type.split("_")[1]):
        return "has an organ or modality without letters"
    for text in (probed.organ, probed.modality):
        if _is_doubtful(text):
            return f"{text!r} is no plain organ or modality"
    return None


def _is_doubtful(text: str) -> bool:
    return bool(NON_NAME_CHARACTER.search(text)) or any(
        kind in ("negated", "uncertain", "not current") for kind, _ in find_cues(text)
    )


def _add_findings(
    probed: ProbedImage, labels: Sequence[str], positions: Sequence[str], skipped: Counter[tuple[str, str]]
) -> tuple[ProbedImage, str | None]:
    """The image with its findings that can be read, and what is wrong with the row."""
    is_normal = [label.casefold() in NORMAL_CELLS for label in labels]
    if len(labels) == 1 and is_normal[0]:
        return replace(probed, is_normal=True), "is normal and has a position" if positions else None
    if positions and len(positions) != len(labels):
        return probed, f"has {len(labels)} findings and {len(positions)} positions"
    found: dict[str, Finding] = {}
    for at, text in enumerate(labels):
        label = parse_finding(text, probed.place)
        if not label.problem and label.term and cannot_show(probed.place, label.term):
            label = replace(label, problem=f"cannot be on an image of the {probed.organ}")
            probed = replace(probed, place=UNKNOWN_CONTEXT)  # one of the two is wrong, so neither rules anything out
        if label.problem:
            skipped[text, label.problem] += 1
            continue
        position = positions[at] if positions else ""
        if _is_doubtful(position):
            skipped[position, "is no plain position"] += 1
            position = ""
        key = label_key(text, probed.place)
        if key in found and found[key].position != position:
            position = ""  # in two places
        found[key] = Finding(found[key].label if key in found else label, position)
    if found and any(is_normal):
        return probed, "is normal and has findings"
    return replace(probed, findings=tuple(found.values())), None


def _add_absent(probed: ProbedImage, labels: Sequence[str], skipped: Counter[tuple[str, str]]) -> ProbedImage:
    absent: dict[str, ParsedLabel] = {}
    for text in labels:
        label = parse_finding(text, probed.place)
        problem = label.problem
        if not problem and any(labels_may_coincide(label, finding.label) for finding in probed.findings):
            problem = "is absent, and a finding of its row may be the same or a kind of it"
        if problem:
            skipped[text, problem] += 1
        else:
            absent[label_key(text, probed.place)] = label
    return replace(probed, absent=tuple(absent.values()))


def resolve_image_files(probed: Sequence[ProbedImage], names: Sequence[str], path: Path) -> list[ProbedImage]:
    """The same images under the path of their file. Raises BadInput if a row's image is not among the files, or not only there."""
    files = match_files([image.image for image in probed], names)
    bad = [image.image for image in probed if image.image not in files]
    if bad:
        raise BadInput(
            f"{path}: image {bad[0]!r} and {len(bad) - 1} more are no files of the folder, or have a name that several files or rows have. "
            "Name images by their path below it, and leave out rows without an image."
        )
    return [replace(image, image=files[image.image]) for image in probed]


def match_files(names: Sequence[str], files: Sequence[str]) -> dict[str, str]:
    """Name -> file, of the names that belong to one."""
    found = pair_names(list(names), list(files)).image_indices
    return {name: files[at] for name, at in zip(names, found, strict=True) if at is not None}


EXTENT_AXIS, NON_DIRECTION_AXES = "extent", ("extent", "frame", "name", "division")
"""Axes of words that say everywhere, and those whose words are no directions: the picture, organs of which a side is a name, divisions."""
STOP_WORDS = frozenset(re.findall(r"\w+", "a an the of in and with to at is side sided region area portion part"))


@cache
def _position_axes() -> dict[str, dict[str, str]]:
    """Axis -> word -> position."""
    found: dict[str, dict[str, str]] = {}
    for term in load_terms("position"):
        for axis in term.parents:
            found.setdefault(axis, {}).update(dict.fromkeys(term.names, term.concept))
    return found


@cache
def excludes_position(there: str, candidate: str) -> bool:
    """True where what lies at `there` does not lie at `candidate`: they read the same but for words of one direction (left and right, upper
    and lower ...), neither is everywhere, and nothing is said that is no place ("mostly left", "crossing to the right")."""
    axes = _position_axes()
    first, second = set(normalize_term(there).split()), set(normalize_term(candidate).split())
    directions = {word for name, axis in axes.items() if name not in NON_DIRECTION_AXES for word in axis}
    part, other = ({singular(word) for word in words - directions - STOP_WORDS} for words in (first, second))
    if part != other or not all(map(_is_place_word, first | second)) or (first | second) & axes[EXTENT_AXIS].keys():
        return False
    # Between left and right there is a middle, too, where nothing is said that it is the middle of.
    if not part and any(axes["height"].get(word) == "middle" for word in first | second):
        return False
    for name, axis in axes.items():
        here, asks = {axis[word] for word in first & axis.keys()}, {axis[word] for word in second & axis.keys()}
        if name not in NON_DIRECTION_AXES and len(here) == len(asks) == 1 and here != asks:
            return True
    return False


def _is_place_word(word: str) -> bool:
    named = terms_by_name("organ", "region", "site")
    return (
        word in STOP_WORDS
        or any(word in axis for axis in _position_axes().values())
        or word in named
        or singular(word) in named
    )


# Boxes

IMAGE_HEIGHTS, IMAGE_SIDES = ("upper", "middle", "lower"), ("left", "right")
IMAGE_PARTS = tuple(f"{height} {side} part of the image" for height in IMAGE_HEIGHTS for side in IMAGE_SIDES)
MIN_BOX_SHARE = 0.6
"""Share of a finding's boxes that has to lie in one part for the finding to be said to lie there."""
Box = tuple[float, float, float, float]


def add_box_positions(
    probed: Sequence[ProbedImage], boxes: Path, images: Path
) -> tuple[list[ProbedImage], Counter[str]]:
    """Positions of findings from their boxes (image, finding, x, y, width, height), and what became of the boxes: `used`, `across_parts`
    (no position is asked), `of_other_images` (not in the table), `unmatched` (the row of their image does not name the finding).
    ChestX-ray14's BBox_List_2017.csv is read as it comes.

    A finding lies where at least 60 % of its boxes lie; where they lie across parts it has no position. A box belongs to the finding of
    its image that means the same (its file says Infiltrate, its table Infiltration).
    Raises BadInput for rows that are no boxes, and boxes that leave their image.
    """
    table = _read_boxes(boxes)
    files = match_files(list(dict.fromkeys(table["image"])), [image.image for image in probed])
    rows_of: dict[str, list[int]] = {}
    counts = Counter(used=0, across_parts=0, of_other_images=0, unmatched=0)
    for row, name in enumerate(table["image"]):
        if name in files:
            rows_of.setdefault(files[name], []).append(row)
        else:
            counts["of_other_images"] += 1
    placed = [
        _place_findings(image, rows_of[image.image], table, images, boxes, counts) if image.image in rows_of else image
        for image in probed
    ]
    return placed, counts


def _read_boxes(boxes: Path) -> pd.DataFrame:
    raw = read_dataframe(boxes)
    if list(raw.columns[:2]) == ["Image Index", "Finding Label"]:
        raw = raw.iloc[:, :6].set_axis(["image", "finding", "x", "y", "width", "height"], axis=1)
    remedy = "Boxes have image, finding, x, y, width, height (in pixels)."
    require_columns(raw, boxes, ("image", "finding", "x", "y", "width", "height"), remedy)
    numbers = raw[["x", "y", "width", "height"]].apply(pd.to_numeric, errors="coerce")
    bad = numbers.isna().any(axis=1) | (numbers[["width", "height"]] <= 0).any(axis=1)
    if bad.any():
        raise BadInput(
            f"{boxes}: row {int(bad.to_numpy().argmax()) + 1} has a box that is not four numbers, or is empty."
        )
    names = raw[["image", "finding"]].map(lambda value: str(value).strip())
    return names.join(numbers)


def _place_findings(
    image: ProbedImage, rows: list[int], table: pd.DataFrame, images: Path, boxes: Path, counts: Counter[str]
) -> ProbedImage:
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
        key = label_key(str(table.at[row, "finding"]), image.place)
        at = next((k for k, each in enumerate(image.findings) if label_key(each.text, image.place) == key), None)
        if at is None:
            counts["unmatched"] += 1
        else:
            found.setdefault(at, []).append((x, y, width, height))
    findings = list(image.findings)
    for at, of_finding in found.items():
        position = box_position(of_finding, size)
        counts["used" if position else "across_parts"] += len(of_finding)
        touched = frozenset(part for box in of_finding for part, share in part_shares(box, size).items() if share > 0)
        findings[at] = replace(findings[at], position=findings[at].position or position, touched=touched)
    return replace(image, findings=tuple(findings))


def box_position(boxes: Sequence[Box], size: tuple[int, int]) -> str:
    """The part of an image of `size` (width, height) that at least 60 % of each box lie in, "" where there is none: upper, middle or lower
    third, left or right half *of the image* (a radiograph's left is the patient's right).

    >>> position_of([(700, 100, 100, 100)], (1024, 1024))
    'upper right part of the image'
    >>> position_of([(400, 300, 300, 400)], (1024, 1024)), position_of([(0, 0, 10, 10), (600, 0, 10, 10)], (1024, 1024))
    ('', '')
    """
    parts: Counter[str] = Counter()
    for box in boxes:
        part, share = max(part_shares(box, size).items(), key=lambda item: item[1])
        parts[part if share >= MIN_BOX_SHARE else ""] += 1
    return next(iter(parts)) if len(parts) == 1 else ""


def part_shares(box: Box, size: tuple[int, int]) -> dict[str, float]:
    """Part of the image -> share of the box (x, y, width, height) that lies in it."""
    x, y, width, height = box

    def overlap(start: float, end: float, low: float, high: float) -> float:
        return max(0.0, min(end, high) - max(start, low))

    found = {}
    for row, level in enumerate(IMAGE_HEIGHTS):
        tall = overlap(y, y + height, size[1] * row / 3, size[1] * (row + 1) / 3)
        for column, side in enumerate(IMAGE_SIDES):
            wide = overlap(x, x + width, size[0] * column / 2, size[0] * (column + 1) / 2)
            found[f"{level} {side} part of the image"] = tall * wide / (width * height)
    return found
