"""Output of a reader: pictures with their labels, and what it had to skip.

A reader of 2D pictures says what a source annotates (`Annotation`); which picture that belongs to is decided here, by
`images/pairing.py` alone, for all readers. A target is a raw label with its geometry: none (a class of the whole image), a box, or a mask.

See also: the table of readers (`registry.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from curation.images.image_index import decode_rgb, list_files
from curation.images.pairing import pair_names
from curation.readers.consistency import BoxXYWH, Skip
from curation.readers.dataset import SourceDataset
from curation.readers.pixels import Skipped, error_cause, read_frame
from dataset_builders.images.lookup import IMAGE_SUFFIXES, ImageError
from eval_harness.records.names import replace_surrogates

DICOM_SUFFIXES = (".dcm", ".dicom", ".ima")
EXIF_ROTATED = "is turned by its EXIF orientation: whether boxes and masks count turned pixels is not known"


@dataclass(frozen=True, slots=True)
class PictureLabel:
    """One label on one picture: of a mask (height, width) of booleans, a box, or the whole picture."""

    label: str
    box: BoxXYWH | None = None
    mask: np.ndarray | None = None

    @property
    def kind(self) -> Literal["class", "box", "mask"]:
        return "mask" if self.mask is not None else "box" if self.box is not None else "class"

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
    """Source file, below the dataset's path: for the curator's list, never for the benchmark."""
    pixels: np.ndarray
    """(height, width, 3) uint8"""
    targets: list[PictureLabel]
    also: list[PictureLabel] = field(default_factory=list)
    """Further labels on it that are not asked about here."""
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


@dataclass(slots=True)
class Unit:
    """A piece of a dataset that is read and journalled at once: an image, a volume, a series."""

    key: str
    files: list[Path]
    """Their size and time of change decide whether it has to be read again."""
    load: Callable[[Unit], list[Picture]]
    """Reads it; raises Skipped."""
    skips: list[str] = field(default_factory=list)
    """Why `load` left something out of this unit while it used the rest."""


Targets = Callable[[tuple[int, int]], list[PictureLabel]]
"""(height, width) of an image -> its targets. Raises Skipped."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """A source's annotations of one image or volume, before it is opened."""

    image: str
    """The source's reference to the image: its path, or its name."""
    files: tuple[Path, ...]
    targets: Targets
    facts: Mapping[str, str | None] = field(default_factory=dict)
    """patient, age, sex, site"""
    unsure: frozenset[str] = frozenset()
    load: Callable[[Path, Annotation, SourceDataset, Unit], list[Picture]] = field(
        default_factory=lambda: load_picture, repr=False
    )
    """Reads the image with its targets; raises Skipped."""


def unusable_targets(reason: str | Skipped) -> Targets:
    """The `targets` of an annotation that cannot be used, but whose name is taken."""

    def targets(shape: tuple[int, int]) -> list[PictureLabel]:
        raise Skipped(reason) if isinstance(reason, str) else reason

    return targets


class DatasetFiles:
    """The files of a dataset from one walk: `all` below its path, `marks` below its annotations, where these lie apart; `skips`: what can
    be no file of a set (broken links, devices)."""

    def __init__(self, dataset: SourceDataset) -> None:
        self.skips: list[Skip] = []
        self.folder = dataset.annotations or dataset.path
        self.all = self._below(dataset.path, dataset.name)
        self.marks = self.all if self.folder == dataset.path else self._below(self.folder, dataset.name)

    def _below(self, folder: Path, dataset: str) -> list[Path]:
        if folder.is_file():
            return [folder]
        names = {name: (folder / name).is_file() and replace_surrogates(name) == name for name in list_files(folder)}
        why = "is no regular file, or its name is no text"
        self.skips += [Skip(dataset, replace_surrogates(name), why) for name, is_good in names.items() if not is_good]
        return [folder / name for name, is_good in names.items() if is_good]

    @cached_property
    def pictures(self) -> list[Path]:
        return list(filter(is_picture, self.all))

    @cached_property
    def volumes(self) -> list[Path]:
        return list(filter(is_volume, self.all))


def is_picture(path: Path) -> bool:
    """True if a file is called like a picture, or is DICOM without a suffix."""
    return path.suffix.lower() in (*IMAGE_SUFFIXES, *DICOM_SUFFIXES) or (not path.suffix and is_dicom(path))


def is_volume(path: Path) -> bool:
    """True if a file is called like a NIfTI volume."""
    return path.name.lower().endswith((".nii.gz", ".nii"))


def relative_name(path: Path, root: Path) -> str:
    """Name of a file in the curator's list: its path below a root."""
    return path.relative_to(root).as_posix() if path != root and path.is_relative_to(root) else path.name


AnnotatedImages = list[tuple[Annotation, Path]]


def pair_annotations(
    annotations: Sequence[Annotation], images: Sequence[Path], called: Sequence[str], dataset: SourceDataset
) -> tuple[AnnotatedImages, list[Skip], list[Path]]:
    """(each annotation with its image, annotations without one, images without an annotation). called: what the images are called."""
    found = pair_names([each.image for each in annotations], called, dataset.path)
    skips = [Skip(dataset.name, each.image, why) for each, why in zip(annotations, found.reasons, strict=True) if why]
    pairs = [(each, images[at]) for each, at in zip(annotations, found.found, strict=True) if at is not None]
    used = {at for at in found.found if at is not None}
    return pairs, skips, [path for at, path in enumerate(images) if at not in used]


def load_picture(path: Path, annotation: Annotation, dataset: SourceDataset, unit: Unit) -> list[Picture]:
    """The picture of a file with its targets. What the source says of its patient comes before what a DICOM header says. Raises Skipped
    where the file is no complete picture, or has no target."""
    facts: dict[str, str] = {}
    try:
        if path.suffix.lower() not in IMAGE_SUFFIXES and is_dicom(path):
            pixels, facts = read_frame(path, dataset, unit.skips)
        else:
            data = path.read_bytes()
            pixels = np.asarray(decode_rgb(data))
            if dataset.is_drawn_on and is_exif_rotated(data):
                raise Skipped(EXIF_ROTATED)
    except ImageError as error:
        raise Skipped(str(error)) from None
    except OSError as error:
        raise Skipped(f"cannot be read ({error_cause(error)})") from None
    targets = annotation.targets((pixels.shape[0], pixels.shape[1]))
    if not targets:
        raise Skipped("has no label")
    name = relative_name(path, dataset.path)
    given = {field: value for field, value in annotation.facts.items() if value}
    patient = given.get("patient") or patient_from_name(name, dataset) or facts.get("patient")
    facts |= given
    attributes = {field: value for field, value in facts.items() if field in ("age", "sex", "site")}
    unsure = set(annotation.unsure)
    return [Picture(name, pixels, targets, [], unsure, patient, facts.get("study"), facts.get("modality"), attributes)]


def is_exif_rotated(data: bytes) -> bool:
    """True if a readable picture is shown turned or mirrored by its EXIF orientation."""
    with Image.open(BytesIO(data)) as image:
        return image.getexif().get(0x0112, 1) != 1


def is_dicom(path: Path) -> bool:
    """True if a file is DICOM, whatever it is called. Old ones have no preamble, so that only their name tells."""
    try:
        with path.open("rb") as file:
            return file.read(132)[128:] == b"DICM" or path.suffix.lower() in DICOM_SUFFIXES
    except OSError:
        return False


def patient_from_name(path: str, dataset: SourceDataset) -> str | None:
    """The patient that a file's name gives, by the dataset's pattern, or the table that `deidentify` wrote."""
    found = re.search(dataset.patient, path) if dataset.patient else None
    return found.group(1) if found else dataset.groups.get(path)
