"""Read the table behind a ProbMed-style set: what each image shows and what is absent from it.

Positions come from the table or from boxes in pixels (ProbMed's positional module, section 3.3).
The `position` rows of the vocabulary define which positions exclude each other. Labels that are not
plain positive findings ("Pneumonia?", "no effusion", "clear lungs") are skipped, counted and
listed.

See also: parsing labels (`dataset_builders/label_reading.py`), the questions (`probing.py`).
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from curation.custom_sets.custom_questions import first_reason, labels_may_coincide, parse_rows
from curation.images.image_table import cell_text, read_dataframe, require_columns
from curation.images.pairing import pair_names
from dataset_builders.errors import BadInput
from dataset_builders.label_reading import ParsedLabel, find_cues, label_key, parse_finding
from dataset_builders.source_files import is_safe_relative_path
from dataset_builders.terms import (
    UNKNOWN_CONTEXT,
    ImageContext,
    cannot_show,
    load_terms,
    normalize_term,
    parse_image_context,
    singular,
    terms_by_name,
)

NORMAL_CELLS = ("no finding", "no findings", "normal")
"""Cells of the findings column that mark a normal image."""
NON_NAME_CHARACTER = re.compile(r"[^\w\s\-–,.()/&'’]")
TABLE_REMEDY = (
    "The table has the columns image, organ, modality, findings (separated by ; or |, `No Finding` "
    "for a normal image, "
    "blank if unknown), and optionally positions (as many as findings; blank if unknown) and "
    "absent (findings that are "
    "not there)."
)
OTHER_COLUMNS = ("caption", "group", "license", "source", "reviewed")
"""Columns that other commands read or write, and this one ignores."""


@dataclass(frozen=True)
class Finding:
    """A finding that an image shows, according to the table.

    Attributes:
        label: the parsed label.
        position: the position as text; "" if unknown.
        touched: parts of the image (`IMAGE_PARTS`) that the finding's boxes touch.
    """

    label: ParsedLabel
    position: str = ""
    touched: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """Return the label in the table's spelling."""
        return self.label.text


@dataclass(frozen=True)
class ProbedImage:
    """A table's statements about one image.

    Attributes:
        absent: findings that the table marks as absent.
        is_normal: whether the table marks the image as normal.
        place: body region and modality, as far as known.
    """

    image: str
    organ: str
    modality: str
    findings: tuple[Finding, ...] = ()
    absent: tuple[ParsedLabel, ...] = ()
    is_normal: bool = False
    place: ImageContext = UNKNOWN_CONTEXT

    @cached_property
    def image_type(self) -> str:
        """Return ORGAN_MODALITY in ProbMed's spelling: chest_xray."""
        return (
            f"{re.sub(r'[^a-z0-9]+', '-', self.organ.lower()).strip('-')}"
            f"_{re.sub(r'[^a-z0-9]+', '', self.modality.lower())}"
        )


@dataclass
class ProbeTable:
    """A parsed table.

    Attributes:
        skipped: (label, reason) -> how often it was skipped.
        unused: columns that nothing reads.
    """

    images: list[ProbedImage]
    skipped: Counter[tuple[str, str]]
    unused: list[str]


def read_probe_table(
    path: Path,
    image_column: str = "image",
    findings_column: str = "findings",
    organ: str | None = None,
    modality: str | None = None,
) -> ProbeTable:
    """Read a table of images and their findings.

    Args:
        path: the table.
        image_column: column with the images' file names.
        findings_column: column with the findings, separated by ; or |.
        organ: organ of all images, instead of a column.
        modality: modality of all images, instead of a column.

    Returns:
        The images, skipped labels and unused columns.

    Raises:
        BadInput: a column is missing, rows are invalid (the message lists them), or rows that a
            model extracted from captions have not been reviewed.
    """
    table = read_dataframe(path)
    required = {
        image_column,
        findings_column,
        *(() if organ else ("organ",)),
        *(() if modality else ("modality",)),
    }
    require_columns(table, path, sorted(required), TABLE_REMEDY)
    unused = [str(name) for name in table.columns if name not in {*required, "positions", "absent", *OTHER_COLUMNS}]

    # `reviewed` marks a table that `medprobe curate captions` wrote; other tables need no review.
    unreviewed = sum(not cell_text(cell) for cell in table.get("reviewed", ()))
    if unreviewed:
        raise BadInput(
            f"{path}: {unreviewed} of {len(table)} rows are not reviewed. Model output is not "
            "ground truth: check these rows against the images and enter your name in the column "
            "`reviewed`, or delete them."
        )

    skipped: Counter[tuple[str, str]] = Counter()
    seen_images: set[str] = set()

    def parse_row(row: dict[str, Any]) -> ProbedImage | str:
        probed = ProbedImage(
            cell_text(row[image_column]), organ or cell_text(row["organ"]), modality or cell_text(row["modality"])
        )
        if problem := _row_problem(probed, seen_images):
            return problem
        probed = replace(probed, place=parse_image_context([probed.organ], probed.modality))
        labels, positions = _split_cell(row[findings_column]), _split_cell(row.get("positions"), blanks=True)
        labelled = _add_findings(probed, labels, positions, skipped)
        if isinstance(labelled, str):
            return labelled
        seen_images.add(probed.image)
        return _add_absent(labelled, _split_cell(row.get("absent")), skipped)

    return ProbeTable(parse_rows(table, path, parse_row, "images", TABLE_REMEDY), skipped, unused)


def _split_cell(cell: Any, blanks: bool = False) -> tuple[str, ...]:
    """Split a cell at ; and |; a list is returned as it is.

    `blanks` keeps empty parts, unless all parts are empty.
    """
    is_list = pd.api.types.is_list_like(cell) and not isinstance(cell, dict)
    parts = map(cell_text, cell) if is_list else re.split(r"[;|]", cell_text(cell))
    texts = [" ".join(part.split()) for part in parts]
    return tuple(texts) if blanks and any(texts) else tuple(text for text in texts if text)


def _row_problem(probed: ProbedImage, seen_images: set[str]) -> str:
    """Return what is wrong with a row's image, organ or modality; "" if they are valid."""
    has_letters = normalize_term(probed.organ) and re.search(r"[a-z0-9]", probed.image_type.split("_")[1])
    return first_reason(
        (not (probed.image and probed.organ and probed.modality), "has no image, organ or modality"),
        (not is_safe_relative_path(probed.image), f"the image name {probed.image!r} leaves its folder"),
        (probed.image in seen_images, f"image {probed.image!r} already has a row"),
        (not has_letters, "has an organ or modality without letters"),
        *(
            (_is_doubtful(text), f"{text!r} is not a plain organ or modality name")
            for text in (probed.organ, probed.modality)
        ),
    )


def _is_doubtful(text: str) -> bool:
    """Return True if a text has unusual characters, or is negated, uncertain or about the past."""
    return bool(NON_NAME_CHARACTER.search(text)) or any(
        kind in ("negated", "uncertain", "not current") for kind, _ in find_cues(text)
    )


def _add_findings(
    probed: ProbedImage,
    labels: Sequence[str],
    positions: Sequence[str],
    skipped: Counter[tuple[str, str]],
) -> ProbedImage | str:
    """Return the image with its findings, or what is wrong with the row."""
    is_normal = [label.casefold() in NORMAL_CELLS for label in labels]
    if len(labels) == 1 and is_normal[0]:
        return "is normal and has a position" if positions else replace(probed, is_normal=True)
    if positions and len(positions) != len(labels):
        return f"has {len(labels)} findings and {len(positions)} positions"

    findings: dict[str, Finding] = {}
    for index, text in enumerate(labels):
        label = parse_finding(text, probed.place)
        if not label.problem and label.term and cannot_show(probed.place, label.term):
            label = replace(label, problem=f"cannot be on an image of the {probed.organ}")
            probed = replace(
                probed, place=UNKNOWN_CONTEXT
            )  # either organ or finding is wrong, so no conclusions are drawn from them
        if label.problem:
            skipped[text, label.problem] += 1
            continue
        position = positions[index] if positions else ""
        if _is_doubtful(position):
            skipped[position, "is not a plain position"] += 1
            position = ""
        key = label_key(text, probed.place)
        if key in findings and findings[key].position != position:
            position = ""  # given twice, at two positions
        findings[key] = Finding(findings[key].label if key in findings else label, position)
    if findings and any(is_normal):
        return "is normal and has findings"
    return replace(probed, findings=tuple(findings.values()))


def _add_absent(
    probed: ProbedImage,
    labels: Sequence[str],
    skipped: Counter[tuple[str, str]],
) -> ProbedImage:
    """Return the image with its absent findings.

    Absent findings that may mean the same as a present one are skipped.
    """
    absent: dict[str, ParsedLabel] = {}
    for text in labels:
        label = parse_finding(text, probed.place)
        problem = label.problem
        if not problem and any(labels_may_coincide(label, finding.label) for finding in probed.findings):
            problem = "is listed as absent, but a finding in its row may be the same or a kind of it"
        if problem:
            skipped[text, problem] += 1
        else:
            absent[label_key(text, probed.place)] = label
    return replace(probed, absent=tuple(absent.values()))


def resolve_image_files(
    probed: Sequence[ProbedImage],
    names: Sequence[str],
    path: Path,
) -> list[ProbedImage]:
    """Replace the images' names by the paths of their files.

    Args:
        probed: images of the table.
        names: paths of the files in the folder of images.
        path: the table, for errors.

    Returns:
        The same images, in the same order.

    Raises:
        BadInput: an image is not among the files, or its name is ambiguous.
    """
    files = match_files([image.image for image in probed], names)
    unmatched = [image.image for image in probed if image.image not in files]
    if unmatched:
        raise BadInput(
            f"{path}: image {unmatched[0]!r} and {len(unmatched) - 1} more are not in the folder, "
            "or their name is "
            "not unique. Name images by their path below the folder, and leave out rows without an "
            "image."
        )
    return [replace(image, image=files[image.image]) for image in probed]


def match_files(names: Sequence[str], files: Sequence[str]) -> dict[str, str]:
    """Map names to files; names that do not match exactly one file are left out.

    Args:
        names: names from a table.
        files: paths below the folder of images.
    """
    indices, _ = pair_names(list(names), list(files))
    return {name: files[index] for name, index in zip(names, indices, strict=True) if index is not None}


EXTENT_AXIS, NON_DIRECTION_AXES = "extent", ("extent", "frame", "name", "division")
"""Axes are groups of position words in the vocabulary. The words of "extent" mean everywhere (such
as "diffuse"). The words of the second tuple's axes do not state a direction: they name an extent,
the image itself ("frame"), an organ with a side in its name, or a division of an organ.
"""
STOP_WORDS = frozenset(
    re.findall(r"\w+", "a an the of in and with to at is side sided region area portion part"),
)


@cache
def _position_axes() -> dict[str, dict[str, str]]:
    """Axis -> word -> position."""
    axes: dict[str, dict[str, str]] = {}
    for term in load_terms("position"):
        for axis in term.parents:
            axes.setdefault(axis, {}).update(dict.fromkeys(term.names, term.concept))
    return axes


@cache
def excludes_position(position: str, candidate: str) -> bool:
    """Return True if something at `position` cannot lie at `candidate`.

    It cannot if three conditions hold: the two texts differ only in words of one direction (left
    and right, upper and lower ...), neither means everywhere, and both consist of place words only
    (unlike "mostly left" or "crossing to the right").

    Args:
        position: position of a finding.
        candidate: position that a question could ask about.
    """
    axes = _position_axes()
    words, candidate_words = set(normalize_term(position).split()), set(normalize_term(candidate).split())
    directions = {word for name, axis in axes.items() if name not in NON_DIRECTION_AXES for word in axis}
    part, candidate_part = (
        {singular(word) for word in text_words - directions - STOP_WORDS} for text_words in (words, candidate_words)
    )
    all_words = words | candidate_words
    if part != candidate_part or not all(map(_is_place_word, all_words)) or all_words & axes[EXTENT_AXIS].keys():
        return False
    # "middle" without a part of the body may also mean the middle between left and right.
    if not part and any(axes["height"].get(word) == "middle" for word in all_words):
        return False
    for name, axis in axes.items():
        levels, candidate_levels = (
            {axis[word] for word in text_words & axis.keys()} for text_words in (words, candidate_words)
        )
        if name not in NON_DIRECTION_AXES and len(levels) == len(candidate_levels) == 1 and levels != candidate_levels:
            return True
    return False


def _is_place_word(word: str) -> bool:
    """Return True if a word is a stop word, a position, or names an organ, region or site."""
    places = terms_by_name("organ", "region", "site")
    return (
        word in STOP_WORDS
        or any(word in axis for axis in _position_axes().values())
        or word in places
        or singular(word) in places
    )


# Boxes

IMAGE_HEIGHTS, IMAGE_SIDES = ("upper", "middle", "lower"), ("left", "right")
IMAGE_PARTS = tuple(f"{height} {side} part of the image" for height in IMAGE_HEIGHTS for side in IMAGE_SIDES)
MIN_BOX_SHARE = 0.6
"""Minimum share of a box's area in a part of the image for the box to count as lying in that part.
"""
Box = tuple[float, float, float, float]


def add_box_positions(
    probed: Sequence[ProbedImage], boxes: Path, images: Path
) -> tuple[list[ProbedImage], Counter[str]]:
    """Add positions to findings from their boxes.

    A finding lies in a part of the image if at least 60 % of the area of each of its boxes does. If
    there is no such part, it has no position. A box is matched with the finding of its image that
    has the same meaning (ChestX-ray14's boxes say Infiltrate, its table says Infiltration).

    Args:
        probed: images of the table.
        boxes: table with image, finding, x, y, width, height (pixels), or ChestX-ray14's
            BBox_List_2017.csv as published.
        images: folder of the images.

    Returns:
        The images with positions, and the number of boxes by outcome: `used`, `across_parts` (the
            finding has no position), `of_other_images` (the image is not in the table), `unmatched`
            (the image's row does not have the finding).

    Raises:
        BadInput: rows are not boxes, or a box leaves its image.
    """
    table = _read_boxes(boxes)
    files = match_files(list(dict.fromkeys(table["image"])), [image.image for image in probed])
    table["file"] = table["image"].map(files)
    image_boxes = {str(file): rows for file, rows in table.groupby("file")}
    counts = Counter(used=0, across_parts=0, of_other_images=int(table["file"].isna().sum()), unmatched=0)
    placed = [
        _place_findings(image, image_boxes[image.image], images, boxes, counts) if image.image in image_boxes else image
        for image in probed
    ]
    return placed, counts


def _read_boxes(boxes: Path) -> pd.DataFrame:
    """Read a table of boxes: image, finding (text) and x, y, width, height (numbers)."""
    table = read_dataframe(boxes)
    # ChestX-ray14's header splits `Bbox [x,y,w,h]` over four columns.
    if list(table.columns[:2]) == ["Image Index", "Finding Label"]:
        table = table.iloc[:, :6].set_axis(
            ["image", "finding", "x", "y", "width", "height"],
            axis=1,
        )
    remedy = "Boxes have image, finding, x, y, width, height (in pixels)."
    require_columns(table, boxes, ("image", "finding", "x", "y", "width", "height"), remedy)
    numbers = table[["x", "y", "width", "height"]].apply(pd.to_numeric, errors="coerce")
    is_bad = numbers.isna().any(axis=1) | (numbers[["width", "height"]] <= 0).any(axis=1)
    if is_bad.any():
        raise BadInput(
            f"{boxes}: row {int(is_bad.to_numpy().argmax()) + 1} has a box that is not four numbers, or is empty."
        )
    names = table[["image", "finding"]].map(lambda cell: str(cell).strip())
    return names.join(numbers)


def _place_findings(
    image: ProbedImage, rows: pd.DataFrame, images: Path, boxes: Path, counts: Counter[str]
) -> ProbedImage:
    """Return an image whose findings have the positions of their boxes.

    `rows` are the image's rows in the table of boxes.
    """
    with Image.open(images / image.image) as opened:
        size = opened.size
    keys = [label_key(finding.text, image.place) for finding in image.findings]
    finding_boxes: dict[int, list[Box]] = {}
    for number, finding, x, y, width, height in rows[["finding", "x", "y", "width", "height"]].itertuples():
        # Published boxes are rounded, so they may exceed the image by one pixel.
        if x < -1 or y < -1 or x + width > size[0] + 1 or y + height > size[1] + 1:
            raise BadInput(
                f"{boxes}: row {number + 1} has a box that leaves its image of {size[0]} x {size[1]} "
                "pixels. Give boxes in the pixels of the images as they are."
            )
        key = label_key(finding, image.place)
        if key in keys:
            finding_boxes.setdefault(keys.index(key), []).append((x, y, width, height))
        else:
            counts["unmatched"] += 1

    findings = list(image.findings)
    for index, its_boxes in finding_boxes.items():
        position = box_position(its_boxes, size)
        counts["used" if position else "across_parts"] += len(its_boxes)
        touched = frozenset(part for box in its_boxes for part, share in part_shares(box, size).items() if share > 0)
        findings[index] = replace(
            findings[index],
            position=findings[index].position or position,
            touched=touched,
        )
    return replace(image, findings=tuple(findings))


def box_position(boxes: Sequence[Box], size: tuple[int, int]) -> str:
    """Return the part of an image that contains at least 60 % of each box.

    The parts are the upper, middle and lower thirds of the left and right halves *of the image* (on
    a radiograph, the image's left is the patient's right).

    Args:
        boxes: (x, y, width, height) in pixels.
        size: (width, height) of the image in pixels.

    Returns:
        One of `IMAGE_PARTS`, or "" if there is no such part.

    >>> box_position([(700, 100, 100, 100)], (1024, 1024))
    'upper right part of the image'
    >>> box_position([(400, 300, 300, 400)], (1024, 1024))  # across the middle
    ''
    >>> box_position([(0, 0, 10, 10), (600, 0, 10, 10)], (1024, 1024))  # boxes in two parts
    ''
    """
    parts: Counter[str] = Counter()
    for box in boxes:
        part, share = max(part_shares(box, size).items(), key=lambda pair: pair[1])
        parts[part if share >= MIN_BOX_SHARE else ""] += 1
    return next(iter(parts)) if len(parts) == 1 else ""


def part_shares(box: Box, size: tuple[int, int]) -> dict[str, float]:
    """Compute the share of a box's area in each part of the image.

    Args:
        box: (x, y, width, height) in pixels.
        size: (width, height) of the image in pixels.

    Returns:
        Part of `IMAGE_PARTS` -> share, from 0 to 1.
    """
    x, y, width, height = box

    def overlap(start: float, end: float, low: float, high: float) -> float:
        return max(0.0, min(end, high) - max(start, low))

    shares = {}
    # Thirds of the height, halves of the width.
    for row, level in enumerate(IMAGE_HEIGHTS):
        overlap_height = overlap(y, y + height, size[1] * row / 3, size[1] * (row + 1) / 3)
        for column, side in enumerate(IMAGE_SIDES):
            overlap_width = overlap(x, x + width, size[0] * column / 2, size[0] * (column + 1) / 2)
            shares[f"{level} {side} part of the image"] = overlap_height * overlap_width / (width * height)
    return shares
