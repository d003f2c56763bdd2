"""Check a dataset's annotations for contradictions; shared by all readers.

A broken file is skipped (`Skipped`). An entry that contradicts its image, its class list or itself
(`Contradiction`) casts doubt on the whole dataset: whatever shifted its class number or box has
probably shifted others, too, without causing a contradiction. One such entry is therefore enough to
refuse the whole dataset (`refuse_contradictions`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from yaml import YAMLError

from curation.readers.pixels import Skipped
from dataset_builders.errors import BadInput, Problems

BoxXYWH = tuple[float, float, float, float]
"""(x, y, width, height) in pixels."""
EDGE_PX, EDGE_SHARE, AREA_SHARE = 2, 0.05, 0.25
"""Tolerances between a stated box or area and the mask's own: annotation tools round, differ on
whether a box includes its last pixel, and approximate outlines by polygons.
"""


class Contradiction(Skipped):
    """Raised for an entry that contradicts the rest of its dataset; the message is the reason."""


class NoClassNames(BadInput):
    """Raised if a dataset's class numbers have no names."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Something that a reader could not use."""

    dataset: str
    subject: str
    """File or entry, as shown to the curator."""
    reason: str
    is_contradiction: bool = False

    @property
    def kind(self) -> str:
        """Return the reason without its details."""
        return self.reason.split(" (", maxsplit=1)[0]


def count_skip_reasons(skips: list[Skip]) -> Counter[tuple[str, str]]:
    """Count each (dataset, kind of reason). The result names no files, so it can be published."""
    return Counter((skip.dataset, skip.kind) for skip in skips)


def skip_from_error(dataset: str, subject: str, error: Skipped) -> Skip:
    """Return the `Skip` for an error that a reader raised."""
    return Skip(dataset, subject, str(error), isinstance(error, Contradiction))


def refuse_contradictions(skips: Iterable[Skip]) -> None:
    """Raise BadInput if any entry contradicts its dataset; the message lists the first ones."""
    problems = Problems()
    for skip in skips:
        if skip.is_contradiction:
            problems.add(f"dataset {skip.dataset}", skip.subject, skip.reason)
    problems.check(
        "An error in one entry may affect all of them: correct the files. Once you have checked "
        "them, "
        "--skip-contradictions omits these entries and uses the others."
    )


ClassNames = tuple[dict[Any, str], tuple[Path, ...]]
"""Class number -> name, and the files that define it."""


def read_class_names(
    location: str,
    files: Iterable[Path],
    read_list: Callable[[Path], Iterable[tuple[Any, Any]] | None],
    expected_form: str,
    remedy: str,
) -> ClassNames:
    """Read the class names of a dataset, if all of its class lists agree.

    Args:
        location: prefix of error messages.
        files: candidate class lists.
        read_list: returns the (number, name) pairs of a file, or None if the file is about
            something else. Any parsing error that it raises means that the file is malformed.
        expected_form: description of a valid list, for error messages.
        remedy: end of error messages.

    Returns:
        Number -> name, and the files that define it.

    Raises:
        NoClassNames: there is no class list.
        BadInput: a list is malformed, names a class twice or not at all, or two lists differ.
    """
    lists: dict[Path, dict[Any, str]] = {}
    for path in sorted(set(files)):
        try:
            pairs = [(number, str(name).strip()) for number, name in read_list(path) or ()]
        except (YAMLError, TypeError, KeyError, AttributeError, ValueError):
            raise BadInput(f"{location}: {path} is not {expected_form}. {remedy}") from None
        for number, name in pairs:
            names = lists.setdefault(path, {})
            if not name:
                raise BadInput(f"{location}: {path} has no name for class {number} (blank lines count). {remedy}")
            if names.setdefault(number, name) != name:
                raise BadInput(
                    f"{location}: {path} has two names for class {number}, {names[number]!r} and {name!r}. {remedy}"
                )

    if not lists:
        raise NoClassNames(f"{location}: has no class names ({expected_form}). {remedy}")
    # A list that merely has more classes counts as different, too: the annotations may refer to
    # either list.
    if len({frozenset((number, name.casefold()) for number, name in names.items()) for names in lists.values()}) > 1:
        raise BadInput(f"{location}: {', '.join(map(str, lists))} number the classes differently. {remedy}")
    return next(iter(lists.values())), tuple(lists)


def parse_box(values: Any, shape: tuple[int, ...]) -> BoxXYWH:
    """Parse and check the four values of a box.

    Args:
        values: x, y, width, height, as numbers or strings.
        shape: (height, width, ...) of the image.

    Returns:
        (x, y, width, height) in pixels.

    Raises:
        Skipped: not four finite numbers.
        Contradiction: no area, or more than a pixel outside the image (scaling images rounds
            boxes).
    """
    try:
        x, y, width, height = (float(value) for value in values)
    except (TypeError, ValueError):
        raise Skipped("a box is not four numbers") from None

    if not np.isfinite((x, y, width, height)).all():
        raise Skipped("a box is not four numbers")

    if width <= 0 or height <= 0:
        raise Contradiction("a box has no area")

    if x < -1 or y < -1 or x + width > shape[1] + 1 or y + height > shape[0] + 1:
        raise Contradiction(f"a box lies outside its image of {shape[1]} x {shape[0]} pixels")
    return x, y, width, height


def check_size(height: float | None, width: float | None, shape: tuple[int, int]) -> None:
    """Raise Contradiction if an annotation states another image size; 0 and None mean unstated."""
    if any(stated and stated != side for stated, side in zip((height, width), shape, strict=True)):
        raise Contradiction(size_mismatch("its annotation", (int(height or 0), int(width or 0)), shape))


def size_mismatch(subject: str, shape: tuple[int, ...], image_shape: tuple[int, ...]) -> str:
    """Return the reason for a size that differs from the image's; shapes are (height, width)."""
    return f"{subject} differs in size from its image ({shape[1]} x {shape[0]} and {image_shape[1]} x {image_shape[0]})"


def check_mask(mask: np.ndarray, segmentation: Any, bbox: Sequence[float] | None, area: float | None) -> None:
    """Check an entry's own bbox and area against its mask; 0 and None mean unstated.

    A mismatch usually means that the mask is inverted, stored row by row, or has x and y swapped;
    wrong boxes are rarer. The extent of a polygon is that of its corners, since the tip of a thin
    polygon covers no pixel.

    Args:
        mask: (height, width) bool.
        segmentation: COCO segmentation that the mask was decoded from.
        bbox: x, y, width, height in pixels.
        area: stated area in pixels.

    Raises:
        Contradiction: the bbox or the area does not match the mask.
    """
    if not mask.any():
        return  # smaller than a pixel: not a target

    if isinstance(segmentation, dict):
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        corners = np.array([[columns[0], rows[0]], [columns[-1] + 1, rows[-1] + 1]], float)
    else:
        corners = np.concatenate(segmentation).reshape(-1, 2)
    bounds = np.concatenate([corners.min(0), corners.max(0)])

    candidate_areas = [float(np.count_nonzero(mask))]
    if bbox and any(bbox):
        x, y, width, height = bbox
        if np.abs(np.array([x, y, x + width, y + height]) - bounds).max() > EDGE_PX + EDGE_SHARE * max(width, height):
            raise Contradiction("a mask does not match its own bbox")
        candidate_areas.append(width * height)  # some programs state the box's area
    if (
        area
        and min(abs(area - pixels) for pixels in candidate_areas) > AREA_SHARE * area + (bounds[2:] - bounds[:2]).sum()
    ):
        raise Contradiction("a mask does not match its own area")


def check_area(box: BoxXYWH, area: float | None) -> None:
    """Check an entry's stated area against its box.

    Raises Contradiction if the area fits the four numbers read as two corners, or exceeds the box's
    area. A smaller area is valid: it may be that of a mask that is not in the file.
    """
    x, y, width, height = box

    corner_area = (width - x) * (height - y)
    matches_corners = width > x and height > y and np.isclose(area or 0, corner_area, rtol=1e-3)
    exceeds_box = (area or 0) > width * height * (1 + AREA_SHARE) + width + height
    if exceeds_box or (matches_corners and not np.isclose(area or 0, width * height, rtol=1e-3)):
        raise Contradiction("a box does not match its own area (boxes are x, y, width, height)")
