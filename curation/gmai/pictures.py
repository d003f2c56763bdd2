"""What a reader gives: pictures with their targets, and what it had to skip.

A target is a raw label with its geometry: none (a class of the whole image), a box, or a mask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

Kind = Literal["class", "box", "mask"]
Box = tuple[float, float, float, float]
"""x, y, width, height in pixels."""


@dataclass(frozen=True, slots=True)
class Target:
    """One label on one picture. mask: (height, width) of booleans."""

    label: str
    kind: Kind = "class"
    box: Box | None = None
    mask: np.ndarray | None = None

    @property
    def area(self) -> float:
        """Pixels of the target; 0 for a class."""
        if self.mask is not None:
            return float(np.count_nonzero(self.mask))
        return self.box[2] * self.box[3] if self.box is not None else 0.0


@dataclass(slots=True)
class Picture:
    """One 2D picture in RGB with everything that is labelled on it."""

    key: str
    """Where it comes from, below the dataset's path: for the curator's list, never for the benchmark."""
    pixels: np.ndarray
    """(height, width, 3) uint8"""
    targets: list[Target]
    also: list[Target] = field(default_factory=list)
    """What else is labelled on it and not asked about here."""
    unsure: set[str] = field(default_factory=set)
    """Raw labels of which the source does not say whether they are on the picture: never options beside it."""
    patient: str | None = None
    study: str | None = None
    modality: str | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    """age, sex, site as the source gives them."""
    tags: dict[str, str] = field(default_factory=dict)
    """task, department, granularity, where the source is itself a benchmark."""

    @property
    def present(self) -> set[str]:
        """All raw labels known to be on the picture."""
        return {target.label for target in (*self.targets, *self.also)}


@dataclass(frozen=True, slots=True)
class Skip:
    """Something that could not be used: what, why."""

    dataset: str
    what: str
    reason: str

    @property
    def kind(self) -> str:
        """The reason without its details."""
        return self.reason.split(" (", maxsplit=1)[0]


class Skipped(Exception):
    """Raised by a reader for one picture or volume that cannot be used; the message is the reason. It names no file, quotes no cell."""


def cause(error: Exception) -> str:
    """What a library's error says, without its message, which may name the file: a file may be called like its patient."""
    return error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__


def reasons(skips: list[Skip]) -> Counter[tuple[str, str]]:
    """How often each (dataset, kind of reason) occurs: no file is named, so that it can be published."""
    return Counter((skip.dataset, skip.kind) for skip in skips)


@dataclass(slots=True)
class Unit:
    """A piece of a dataset that is read and journalled at once: an image, a volume, a series."""

    key: str
    files: list[Path]
    """Their size and time of change decide whether it has to be read again."""
    load: Callable[[Unit], list[Picture]]
    """Reads it; raises Skipped."""
    skips: list[Skip] = field(default_factory=list)
    """What `load` left out of this unit while it used the rest."""
