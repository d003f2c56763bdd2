"""Output of the readers: pictures with labels, and what was skipped; checks of annotations.

A reader of 2D images only yields what a source annotates (`Annotation`); only `images/pairing.py`
decides which image an annotation belongs to. A target is a raw label with its geometry: none (a
class of the whole image), a box, or a mask.

A broken file is skipped (`Skipped`). An entry that contradicts its image, its class list or itself
(`Contradiction`) casts doubt on the whole dataset: whatever shifted its class number or box has
probably shifted others, too, without causing a contradiction. One such entry is therefore enough to
refuse the whole dataset (`refuse_contradictions`).

See also: the table of readers (`units.py`).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from yaml import YAMLError

from curation.images.image_index import decode_rgb, list_files
from curation.images.pairing import pair_names
from curation.readers.dataset import SourceDataset
from curation.readers.pixels import Skipped, display_window, error_cause, read_frame
from dataset_builders.errors import BadInput, Problems, replace_surrogates
from dataset_builders.images.lookup import IMAGE_SUFFIXES, ImageError

DICOM_SUFFIXES = (".dcm", ".dicom", ".ima")

EXIF_ROTATED = "has an EXIF rotation: boxes and masks may refer to either orientation"

BoxXYWH = tuple[float, float, float, float]
"""(x, y, width, height) in pixels."""


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


class Contradiction(Skipped):
    """Raised for an entry that contradicts the rest of its dataset; the message is the reason."""


class NoClassNames(BadInput):
    """Raised if a dataset's class numbers have no names."""


def skip_from_error(dataset: str, subject: str, error: Skipped) -> Skip:
    """Return the `Skip` for an error that a reader raised."""
    return Skip(dataset, subject, str(error), isinstance(error, Contradiction))


def count_skip_reasons(skips: list[Skip]) -> Counter[tuple[str, str]]:
    """Count each (dataset, kind of reason). The result names no files, so it can be published."""
    return Counter((skip.dataset, skip.kind) for skip in skips)


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


def is_dicom(path: Path) -> bool:
    """Return True if a file has a DICOM preamble or suffix (old files have no preamble)."""
    try:
        with path.open("rb") as file:
            return file.read(132)[128:] == b"DICM" or path.suffix.lower() in DICOM_SUFFIXES
    except OSError:
        return False


def is_exif_rotated(data: bytes) -> bool:
    """Return True if the EXIF orientation of an image rotates or mirrors it."""
    with Image.open(BytesIO(data)) as image:
        return image.getexif().get(0x0112, 1) != 1


def relative_name(path: Path, root: Path) -> str:
    """Return a file's path relative to a root; its name if it is not below the root."""
    return path.relative_to(root).as_posix() if path != root and path.is_relative_to(root) else path.name


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
    indices, reasons = pair_names([annotation.image for annotation in annotations], image_names, dataset.path)

    skips = [
        Skip(dataset.name, annotation.image, reason)
        for annotation, reason in zip(annotations, reasons, strict=True)
        if reason
    ]
    pairs = [
        (annotation, images[index]) for annotation, index in zip(annotations, indices, strict=True) if index is not None
    ]
    paired_indices = set(indices)
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


def patient_from_name(path: str, dataset: SourceDataset) -> str | None:
    """Return the patient of an image path, by the dataset's pattern or `deidentify`'s table."""
    match = re.search(dataset.patient, path) if dataset.patient else None
    return match.group(1) if match else dataset.groups.get(path)


def merge_facts(*sources: Mapping[str, str | None]) -> dict[str, str]:
    """Merge facts of which later ones take precedence, unless they are blank."""
    return {name: value for source in sources for name, value in source.items() if value}


# Checks of annotations against their images and against themselves


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


EDGE_PX, EDGE_SHARE, AREA_SHARE = 2, 0.05, 0.25
"""Tolerances between a stated box or area and the mask's own: annotation tools round, differ on
whether a box includes its last pixel, and approximate outlines by polygons.
"""


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
