"""Files that hold one picture each, which annotation belongs to which of them, and what every reader checks of its annotations."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from curation.gmai.pictures import Box, Picture, Skip, Skipped, Target, cause
from curation.gmai.pixels import read_frame
from curation.gmai.sources import Dataset
from curation.images.image_index import open_rgb
from curation.images.pairing import pair
from dataset_builders.images.lookup import SUFFIXES, ImageError
from eval_harness.records.names import storable

DICOM = (".dcm", ".dicom", ".ima")
VOLUMES = (".nii", ".nii.gz", ".nrrd", ".mha", ".mhd")
NO_PICTURES = {"", ".txt", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".md", ".pdf", ".html", ".names"}
"""Suffixes of what lies beside pictures as a matter of course."""


def files_below(folder: Path, dataset: Dataset, where: str = "") -> tuple[list[Path], list[Skip]]:
    """All files below a folder, sorted, and what can be no file of a set: broken links, devices, names that are no text. Hidden ones are
    left out, links to folders are not followed. A file is a folder of itself."""
    if folder.is_file():
        return [folder], []
    found, skips = [], []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(name for name in names if not name.startswith(".")):
            path = Path(root, name)
            below = path.relative_to(folder).as_posix()
            if storable(below) != below:
                skips.append(Skip(dataset.name, storable(below), "its name is no text"))
            elif not path.is_file():
                why = "is a link that leads nowhere" if path.is_symlink() else "is no regular file"
                skips.append(Skip(dataset.name, below, why))
            else:
                found.append(path)
    return sorted(found), skips


def pictures_below(dataset: Dataset) -> tuple[list[Path], list[Skip]]:
    """The pictures below a dataset's path, and the other files that may have been meant as pictures."""
    files, skips = files_below(dataset.path, dataset)
    pictures = []
    for path in files:
        if path.suffix.lower() in SUFFIXES or path.suffix.lower() in DICOM:
            pictures.append(path)
        elif path.name.lower().endswith(VOLUMES):
            skips.append(Skip(dataset.name, below(path, dataset.path), "is a volume: read it with the reader nifti"))
        elif path.suffix.lower() not in NO_PICTURES:
            skips.append(Skip(dataset.name, below(path, dataset.path), "is no picture"))
    return pictures, skips


def below(path: Path, root: Path) -> str:
    """What a file is called in the curator's list: its path below a root."""
    return path.relative_to(root).as_posix() if path != root and path.is_relative_to(root) else path.name


@dataclass(frozen=True, slots=True)
class Paired:
    """Annotations and images of a dataset, put together by `pairing.pair`."""

    images: list[Path | None]
    """of each annotation, in their order"""
    skips: list[Skip]
    """annotations without an image"""
    alone: list[Path]
    """images without an annotation"""
    by_path: bool


def paired(
    names: Sequence[str],
    images: Sequence[Path],
    dataset: Dataset,
    suffix: bool = False,
    called: Sequence[str] | None = None,
) -> Paired:
    """names: what annotations are called, or call their images. called: what the images are called, where that is not their path."""
    found = pair(names, called or [below(path, dataset.path) for path in images], dataset.path, suffix)
    skips = [Skip(dataset.name, name, why) for name, why in zip(names, found.reasons, strict=True) if why]
    used = {at for at in found.found if at is not None}
    alone = [path for at, path in enumerate(images) if at not in used]
    return Paired([None if at is None else images[at] for at in found.found], skips, alone, found.by_path)


def is_dicom(path: Path) -> bool:
    """Whether a file is DICOM, whatever it is called. Old ones have no preamble, so that only their name tells."""
    with path.open("rb") as file:
        return file.read(132)[128:] == b"DICM" or path.suffix.lower() in DICOM


def open_picture(
    path: Path, dataset: Dataset, label: str = "", stored: bool = False
) -> tuple[np.ndarray, dict[str, str]]:
    """(height, width, 3) uint8 of one file, and what it says of itself (patient, study, age, sex, modality; only DICOM does). stored: DICOM
    as its pixels are stored, which boxes and masks of other formats count.

    Raises Skipped where the file is no complete picture.
    """
    if path.suffix.lower() in DICOM:
        return read_frame(path, dataset, label, stored)
    try:
        return np.asarray(open_rgb(path.read_bytes())), {}
    except ImageError as error:
        raise Skipped(str(error)) from None
    except OSError as error:
        raise Skipped(f"cannot be read ({cause(error)})") from None


def patient_of(path: str, dataset: Dataset) -> str | None:
    """The patient that a file's name gives, by the dataset's pattern."""
    found = re.search(dataset.patient, path) if dataset.patient else None
    return found.group(1) if found else None


def picture_of(
    path: Path,
    dataset: Dataset,
    pixels: np.ndarray,
    targets: list[Target],
    said: dict[str, str],
    given: Mapping[str, str | None] | None = None,
    unsure: set[str] | None = None,
) -> Picture:
    """A picture with what its file says of itself (`said`) and what the source gives besides (`given`: patient, study, age, sex, site),
    which comes first; a patient may also be in the file's name."""
    name = below(path, dataset.path)
    listed = {field: value for field, value in (given or {}).items() if value}
    facts = said | listed
    patient = listed.get("patient") or patient_of(name, dataset) or said.get("patient")
    facts.pop("patient", None)
    return Picture(
        name,
        pixels,
        targets,
        unsure=unsure or set(),
        patient=patient,
        study=facts.pop("study", None),
        modality=facts.pop("modality", None),
        attributes=facts,
    )


def box_of(values: Any, shape: tuple[int, ...]) -> Box:
    """x, y, width, height of four values. Raises Skipped where they are no numbers, no area, or leave their image by over a pixel (boxes
    are rounded when images are scaled)."""
    try:
        x, y, width, height = (float(value) for value in values)
    except (TypeError, ValueError):
        raise Skipped("a box is no four numbers") from None
    if not np.isfinite((x, y, width, height)).all() or width <= 0 or height <= 0:
        raise Skipped("a box has no area")
    if x < -1 or y < -1 or x + width > shape[1] + 1 or y + height > shape[0] + 1:
        raise Skipped(f"a box lies outside its image of {shape[1]} x {shape[0]} pixels")
    return x, y, width, height


def size_mismatch(what: str, shape: tuple[int, ...], image: tuple[int, ...]) -> str:
    """The reason where an annotation does not fit its image."""
    return f"{what} has another size than its image ({shape[1]} x {shape[0]} and {image[1]} x {image[0]})"
