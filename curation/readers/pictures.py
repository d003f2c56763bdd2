"""Output of the readers: pictures with labels, and what was skipped.

A reader of 2D images only yields what a source annotates (`Annotation`); only `images/pairing.py`
decides which image an annotation belongs to. A target is a raw label with its geometry: none (a
class of the whole image), a box, or a mask.

See also: the registry of readers (`registry.py`).
"""

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
from curation.readers.pixels import Skipped, display_window, error_cause, read_frame
from dataset_builders.errors import replace_surrogates
from dataset_builders.images.lookup import IMAGE_SUFFIXES, ImageError

DICOM_SUFFIXES = (".dcm", ".dicom", ".ima")
EXIF_ROTATED = "has an EXIF rotation: boxes and masks may refer to either orientation"


@dataclass(frozen=True, slots=True)
class PictureLabel:
    """One label on one picture: a mask of (height, width) bool, a box, or the whole picture."""

    label: str
    box: BoxXYWH | None = None
    mask: np.ndarray | None = None

    @property
    def kind(self) -> Literal["class", "box", "mask"]:
        return "mask" if self.mask is not None else "box" if self.box is not None else "class"

    @property
    def area(self) -> float:
        """Return the target's area in pixels; 0 for a class."""
        if self.mask is not None:
            return float(np.count_nonzero(self.mask))
        return self.box[2] * self.box[3] if self.box is not None else 0.0


@dataclass(slots=True)
class Picture:
    """One 2D RGB picture with everything that is labelled on it."""

    key: str
    """Source file relative to the dataset's path; shown to the curator, never published."""
    pixels: np.ndarray
    """(height, width, 3) uint8"""
    targets: list[PictureLabel]
    also: list[PictureLabel] = field(default_factory=list)
    """Further labels on the picture that no question asks about."""
    unsure: set[str] = field(default_factory=set)
    """Raw labels whose presence is unknown; never offered as wrong options."""
    facts: dict[str, str] = field(default_factory=dict)
    """patient, study, age, sex, site, modality, where the source or a DICOM header states them."""

    @property
    def present(self) -> set[str]:
        """Return all raw labels known to be on the picture."""
        return {target.label for target in (*self.targets, *self.also)}


@dataclass(slots=True)
class Unit:
    """A piece of a dataset that is read and journalled as one: an image, a volume, a series."""

    key: str
    files: list[Path]
    """A change of their sizes or modification times means that the unit is read again."""
    load: "Callable[[Unit], list[Picture]]"
    """Loads the pictures; raises Skipped."""
    skips: list[str] = field(default_factory=list)
    """Why `load` skipped parts of the unit while using the rest."""


Targets = Callable[[tuple[int, int]], list[PictureLabel]]
"""Returns an image's targets, given its (height, width). Raises Skipped."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """A source's annotation of one image or volume, before the image is opened."""

    image: str
    """The source's reference to the image: a path or a name."""
    files: tuple[Path, ...]
    targets: Targets
    facts: Mapping[str, str | None] = field(default_factory=dict)
    """patient, age, sex, site"""
    unsure: frozenset[str] = frozenset()
    load: "Callable[[Path, Annotation, SourceDataset, Unit], list[Picture]]" = field(
        default_factory=lambda: load_picture, repr=False
    )
    """Loads the image with its targets; raises Skipped."""


def unusable_targets(reason: str | Skipped) -> Targets:
    """Return a `Targets` function that raises Skipped, for an unusable annotation.

    Such an annotation still takes part in the pairing, so that no other one gets its image."""

    def targets(shape: tuple[int, int]) -> list[PictureLabel]:
        raise Skipped(reason) if isinstance(reason, str) else reason

    return targets


class DatasetFiles:
    """The files of a dataset, listed once.

    `all_files` are below its path, `annotation_files` below its annotations if these are elsewhere.
    `skips` lists paths that cannot be data (broken links, devices, names that are not UTF-8).
    """

    def __init__(self, dataset: SourceDataset) -> None:
        self.skips: list[Skip] = []
        self.annotation_root = dataset.annotations or dataset.path
        self.all_files = self._below(dataset.path, dataset.name)
        self.annotation_files = (
            self.all_files if self.annotation_root == dataset.path else self._below(self.annotation_root, dataset.name)
        )

    def _below(self, folder: Path, dataset: str) -> list[Path]:
        if folder.is_file():
            return [folder]

        names = {name: (folder / name).is_file() and replace_surrogates(name) == name for name in list_files(folder)}
        reason = "not a regular file, or its name is not valid UTF-8"
        self.skips += [
            Skip(dataset, replace_surrogates(name), reason) for name, is_good in names.items() if not is_good
        ]
        return [folder / name for name, is_good in names.items() if is_good]

    @cached_property
    def pictures(self) -> list[Path]:
        return list(filter(is_picture, self.all_files))

    @cached_property
    def volumes(self) -> list[Path]:
        return list(filter(is_volume, self.all_files))


def is_picture(path: Path) -> bool:
    """Return True if a file has a picture suffix, or is DICOM without a suffix."""
    return path.suffix.lower() in (*IMAGE_SUFFIXES, *DICOM_SUFFIXES) or (not path.suffix and is_dicom(path))


def is_volume(path: Path) -> bool:
    """Return True if the file name has a NIfTI suffix."""
    return path.name.lower().endswith((".nii.gz", ".nii"))


def relative_name(path: Path, root: Path) -> str:
    """Return a file's path relative to a root; its name if it is not below the root."""
    return path.relative_to(root).as_posix() if path != root and path.is_relative_to(root) else path.name


def merge_facts(*sources: Mapping[str, str | None]) -> dict[str, str]:
    """Merge facts of which later ones take precedence, unless they are blank."""
    return {name: value for source in sources for name, value in source.items() if value}


AnnotatedImages = list[tuple[Annotation, Path]]


def pair_annotations(
    annotations: Sequence[Annotation],
    images: Sequence[Path],
    image_names: Sequence[str],
    dataset: SourceDataset,
) -> tuple[AnnotatedImages, list[Skip], list[Path]]:
    """Pair annotations with images by name (`images/pairing.py`).

    Args:
        annotations: annotations of a dataset.
        images: paths of its images.
        image_names: names by which the images are compared, in the same order.
        dataset: the dataset.

    Returns:
        Annotations with their images, annotations without one, images without an annotation.
    """
    pairing = pair_names([annotation.image for annotation in annotations], image_names, dataset.path)

    skips = [
        Skip(dataset.name, annotation.image, reason)
        for annotation, reason in zip(annotations, pairing.reasons, strict=True)
        if reason
    ]
    pairs = [
        (annotation, images[index])
        for annotation, index in zip(annotations, pairing.image_indices, strict=True)
        if index is not None
    ]
    paired_indices = {index for index in pairing.image_indices if index is not None}
    return pairs, skips, [path for index, path in enumerate(images) if index not in paired_indices]


def load_picture(path: Path, annotation: Annotation, dataset: SourceDataset, unit: Unit) -> list[Picture]:
    """Load a 2D image with its targets.

    What the source states about the patient takes precedence over the DICOM header.

    Args:
        path: image file.
        annotation: its annotation.
        dataset: its dataset.
        unit: records values of the header that were ignored.

    Raises:
        Skipped: the file is not a complete picture, or has no target.
    """
    header: dict[str, str] = {}
    try:
        if path.suffix.lower() not in IMAGE_SUFFIXES and is_dicom(path):
            window = None if dataset.window is None else display_window("", dataset.window)
            pixels, header = read_frame(path, window, unit.skips, as_stored=dataset.is_drawn_on)
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
    facts = merge_facts(header, {"patient": patient_from_name(name, dataset)}, annotation.facts)
    return [Picture(name, pixels, targets, unsure=set(annotation.unsure), facts=facts)]


def is_exif_rotated(data: bytes) -> bool:
    """Return True if the EXIF orientation of an image rotates or mirrors it."""
    with Image.open(BytesIO(data)) as image:
        return image.getexif().get(0x0112, 1) != 1


def is_dicom(path: Path) -> bool:
    """Return True if a file has a DICOM preamble or suffix (old files have no preamble)."""
    try:
        with path.open("rb") as file:
            return file.read(132)[128:] == b"DICM" or path.suffix.lower() in DICOM_SUFFIXES
    except OSError:
        return False


def patient_from_name(path: str, dataset: SourceDataset) -> str | None:
    """Return the patient of an image path, by the dataset's pattern or `deidentify`'s table."""
    match = re.search(dataset.patient, path) if dataset.patient else None
    return match.group(1) if match else dataset.groups.get(path)
