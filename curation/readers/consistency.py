"""Consistency of what a dataset states: one check for all readers.

A broken file is left out (`Skipped`). An entry that contradicts its image, its list of classes or itself (`Contradiction`) speaks
against the whole dataset: whatever shifted its number or its box shifted those of the others, too, where nothing shows it. So one such
entry refuses the dataset (`refuse_contradictions`).
"""

from __future__ import annotations

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
"""x, y, width, height in pixels."""
EDGE_PX, EDGE_SHARE, AREA_SHARE = 2, 0.05, 0.25
"""How far a stated box and area may be from the mask's own: programs round, count pixels or corners, and outline polygons."""


class Contradiction(Skipped):
    """Raised for an entry that contradicts what its dataset states elsewhere; the message is the reason."""


class NoClassNames(BadInput):
    """Raised if nothing says what the numbers of a dataset's classes mean."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Something that could not be used: what, why, and whether it contradicts its dataset."""

    dataset: str
    what: str
    reason: str
    is_contradiction: bool = False

    @property
    def kind(self) -> str:
        """The reason without its details."""
        return self.reason.split(" (", maxsplit=1)[0]


def count_skip_reasons(skips: list[Skip]) -> Counter[tuple[str, str]]:
    """How often each (dataset, kind of reason) occurs: no file is named, so that it can be published."""
    return Counter((skip.dataset, skip.kind) for skip in skips)


def skip_from_error(dataset: str, what: str, error: Skipped) -> Skip:
    """The entry of the list for what a reader could not use."""
    return Skip(dataset, what, str(error), isinstance(error, Contradiction))


def refuse_contradictions(skips: Iterable[Skip]) -> None:
    """Raise BadInput that lists the entries (a bounded number) that contradict their dataset, if there are any."""
    problems = Problems()
    for skip in skips:
        if skip.is_contradiction:
            problems.add(f"dataset {skip.dataset}", skip.what, skip.reason)
    problems.check(
        "What contradicts itself in one entry may be wrong in all of them: correct the files. After a look at them, "
        "--skip-contradictions leaves out these entries and uses the others."
    )


ClassNames = tuple[dict[Any, str], tuple[Path, ...]]
"""Number -> name of each class, and the files that say it."""


def read_class_names(
    where: str, files: Iterable[Path], read: Callable[[Path], Iterable[tuple[Any, Any]] | None], form: str, remedy: str
) -> ClassNames:
    """The names of classes by their numbers, if all lists of a dataset say the same.

    Args:
        where: begins the message of an error.
        files: that may be such lists.
        read: gives the (number, name) of each class in a file; None for a file about something else. Whatever it raises is a file of
            another form.
        form: of such files, for the message.
        remedy: ends the message.

    Raises:
        NoNames: there is no list.
        BadInput: a file has another form, a list gives a number two names or none, or two lists differ.
    """
    lists: dict[Path, dict[Any, str]] = {}
    for path in sorted(set(files)):
        try:
            pairs = [(number, str(name).strip()) for number, name in read(path) or ()]
        except (YAMLError, TypeError, KeyError, AttributeError, ValueError):
            raise BadInput(f"{where}: {path} is not {form}. {remedy}") from None
        for number, name in pairs:
            names = lists.setdefault(path, {})
            if not name:
                raise BadInput(f"{where}: {path} gives class {number} no name (a blank line counts, too). {remedy}")
            if names.setdefault(number, name) != name:
                raise BadInput(f"{where}: {path} gives {number} two names, {names[number]!r} and {name!r}. {remedy}")
    if not lists:
        raise NoClassNames(f"{where}: nothing says what its classes are called ({form}). {remedy}")
    # Lists of which one is longer differ, too: nothing says which of them the numbers were written by.
    if len({frozenset((number, name.casefold()) for number, name in names.items()) for names in lists.values()}) > 1:
        raise BadInput(f"{where}: {', '.join(map(str, lists))} number the classes differently. {remedy}")
    return next(iter(lists.values())), tuple(lists)


def parse_box(values: Any, shape: tuple[int, ...]) -> BoxXYWH:
    """x, y, width, height of four values. Raises Skipped for what is no numbers, Contradiction for a box that has no area or leaves its
    image by over a pixel (boxes are rounded when images are scaled)."""
    try:
        x, y, width, height = (float(value) for value in values)
    except (TypeError, ValueError):
        raise Skipped("a box is no four numbers") from None
    if not np.isfinite((x, y, width, height)).all():
        raise Skipped("a box is no four numbers")
    if width <= 0 or height <= 0:
        raise Contradiction("a box has no area")
    if x < -1 or y < -1 or x + width > shape[1] + 1 or y + height > shape[0] + 1:
        raise Contradiction(f"a box lies outside its image of {shape[1]} x {shape[0]} pixels")
    return x, y, width, height


def check_size(height: float | None, width: float | None, shape: tuple[int, int]) -> None:
    """Raise Contradiction if an annotation states another size than its image has; 0 and None state none."""
    if any(stated and stated != side for stated, side in zip((height, width), shape, strict=True)):
        raise Contradiction(size_mismatch("its annotation", (int(height or 0), int(width or 0)), shape))


def size_mismatch(what: str, shape: tuple[int, ...], image: tuple[int, ...]) -> str:
    """The reason where an annotation does not fit its image."""
    return f"{what} has another size than its image ({shape[1]} x {shape[0]} and {image[1]} x {image[0]})"


def check_mask(mask: np.ndarray, segmentation: Any, bbox: Sequence[float] | None, area: float | None) -> None:
    """Raise Contradiction if an entry's own box or area is not that of its mask. 0 and None state nothing.

    Masks are inverted, written by rows, or have x and y exchanged more often than an entry's box is wrong. Of polygons the corners count:
    the tip of a thin one fills no pixel.
    """
    if not mask.any():
        return  # smaller than a pixel: it is no target
    if isinstance(segmentation, dict):
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        corners = np.array([[columns[0], rows[0]], [columns[-1] + 1, rows[-1] + 1]], float)
    else:
        corners = np.concatenate(segmentation).reshape(-1, 2)
    edges = np.concatenate([corners.min(0), corners.max(0)])
    possible_areas = [float(np.count_nonzero(mask))]
    if bbox and any(bbox):
        x, y, width, height = bbox
        if np.abs(np.array([x, y, x + width, y + height]) - edges).max() > EDGE_PX + EDGE_SHARE * max(width, height):
            raise Contradiction("a mask lies elsewhere than its own bbox")
        possible_areas.append(width * height)  # some programs state the area of the box
    if (
        area
        and min(abs(area - pixels) for pixels in possible_areas) > AREA_SHARE * area + (edges[2:] - edges[:2]).sum()
    ):
        raise Contradiction("a mask has another area than its own entry states")


def check_area(box: BoxXYWH, area: float | None) -> None:
    """Raise Contradiction if the area that an entry states is that of its numbers read as two corners, or more than its box has. A mask
    that is not in the file may have less."""
    x, y, width, height = box
    corners = (width - x) * (height - y)
    is_of_corners = width > x and height > y and np.isclose(area or 0, corners, rtol=1e-3)
    is_more = (area or 0) > width * height * (1 + AREA_SHARE) + width + height
    if is_more or (is_of_corners and not np.isclose(area or 0, width * height, rtol=1e-3)):
        raise Contradiction("a box has another area than its own entry states (x, y, width, height are read)")
