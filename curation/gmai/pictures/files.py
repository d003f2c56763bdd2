"""Files that hold one picture each, as every 2D reader takes them: raster images, and DICOM files of one frame."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from curation.gmai.pictures.targets import Picture, Skip, Skipped, Target, cause
from curation.gmai.sources import Dataset
from curation.images.image_index import open_rgb
from dataset_builders.images.lookup import SUFFIXES, ImageError

DICOM = (".dcm", ".dicom", ".ima")
VOLUMES = (".nii", ".nii.gz", ".nrrd", ".mha", ".mhd")
NO_PICTURES = {"", ".txt", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".md", ".pdf", ".html", ".names"}
"""Suffixes of what lies beside pictures as a matter of course."""


def files_below(folder: Path) -> list[Path]:
    """All files below a folder, sorted; hidden ones left out, links to folders not followed."""
    found = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(root, name) for name in names if not name.startswith(".")]
    return sorted(found)


def is_picture(path: Path) -> bool:
    """Whether a file is called like a picture that `open_picture` reads."""
    return path.suffix.lower() in SUFFIXES or path.suffix.lower() in DICOM


def pictures_below(dataset: Dataset) -> tuple[list[Path], list[Skip]]:
    """The pictures below a dataset's path, and the other files that may have been meant as pictures."""
    pictures, skips = [], []
    for path in files_below(dataset.path):
        if is_picture(path):
            pictures.append(path)
        elif path.name.lower().endswith(VOLUMES):
            skips.append(Skip(dataset.name, relative(path, dataset), "is a volume: read it with the reader nifti"))
        elif path.suffix.lower() not in NO_PICTURES:
            skips.append(Skip(dataset.name, relative(path, dataset), "is no picture"))
    return pictures, skips


def relative(path: Path, dataset: Dataset) -> str:
    """What a file is called in the curator's list: its path below the dataset's."""
    return path.relative_to(dataset.path).as_posix() if path.is_relative_to(dataset.path) else path.name


def is_dicom(path: Path) -> bool:
    """Whether a file is DICOM, whatever it is called. Old ones have no preamble, so that only their name tells."""
    with path.open("rb") as file:
        return file.read(132)[128:] == b"DICM" or path.suffix.lower() in DICOM


def open_picture(path: Path, dataset: Dataset, label: str = "") -> tuple[np.ndarray, dict[str, str]]:
    """(height, width, 3) uint8 of one file, and what it says of itself (patient, study, age, sex, modality; only DICOM does).

    Raises Skipped where the file is no complete picture.
    """
    if path.suffix.lower() in DICOM:
        from curation.gmai.pictures.dicom_pixels import read_frame

        return read_frame(path, dataset, label)
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
) -> Picture:
    """A picture with what its file says of itself (`said`) and what the source gives besides (`given`: patient, study, age, sex, site),
    which comes first; a patient may also be in the file's name."""
    name = relative(path, dataset)
    listed = {field: value for field, value in (given or {}).items() if value}
    facts = said | listed
    patient = listed.get("patient") or patient_of(name, dataset) or said.get("patient")
    facts.pop("patient", None)
    return Picture(
        name,
        pixels,
        targets,
        patient=patient,
        study=facts.pop("study", None),
        modality=facts.pop("modality", None),
        attributes=facts,
    )


class Names:
    """Files by the name under which a table calls them: path below the dataset, file name, or name without suffix."""

    def __init__(self, dataset: Dataset, paths: list[Path]) -> None:
        self._paths: dict[str, Path | None] = {}
        for path in paths:
            for name in dict.fromkeys((relative(path, dataset), path.name, path.stem)):
                self._paths[name] = None if name in self._paths else path

    def find(self, name: str) -> Path:
        """The file of this name. Raises Skipped where there is none, or several."""
        plain = name.replace("\\", "/").removeprefix("./")
        if plain not in self._paths and "/" in plain and plain.rsplit("/", 1)[1] in self._paths:
            plain = plain.rsplit("/", 1)[1]
        if plain not in self._paths:
            raise Skipped("its image is missing")
        path = self._paths[plain]
        if path is None:
            raise Skipped("several images have this name: name it by its path")
        return path


def size_mismatch(what: str, shape: tuple[int, ...], image: tuple[int, ...]) -> str:
    """The reason where an annotation does not fit its image."""
    return f"{what} has another size than its image ({shape[1]} x {shape[0]} and {image[1]} x {image[0]})"
