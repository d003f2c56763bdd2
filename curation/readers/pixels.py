"""Grey values of scanners as 8-bit pictures: windows for CT, percentiles for what has no scale; masks; and DICOM files as they are meant to
be seen: rescale, VOI or a window, MONOCHROME1, orientation, square pixels.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from curation.images.image_index import stretched
from curation.readers.dataset import WINDOWS, SourceDataset, WindowName
from dataset_builders.terms import window_of

PERCENTILES = (0.5, 99.5)

MODALITY = {
    "CR": "X-ray", "DX": "X-ray", "RG": "X-ray", "CT": "CT", "MR": "MRI", "MG": "Mammography", "US": "UltraSound", "XA": "Angiography",
    "PT": "PET", "NM": "Nuclear Medicine", "OP": "Fundus Photography", "OPT": "OCT", "ES": "Endoscopy", "SM": "Histopathology",
}  # fmt: skip
"""DICOM's modality -> the name used in questions, as the official lexical tree writes it where it has one."""


class Skipped(Exception):
    """Raised by a reader for one picture or volume that cannot be used; the message is the reason. It names no file, quotes no cell."""


def cause(error: Exception) -> str:
    """Description of a library's error without its message, which may contain the file name and so the patient's name."""
    return error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__


def to_grey(values: np.ndarray, window: tuple[float, float] | None = None) -> np.ndarray:
    """Values of any shape -> uint8: the window (centre, width) from black to white, by DICOM PS3.3 C.11.2.1.3.2 (linear exact);
    without one, from the 0.5th to the 99.5th percentile of the finite values."""
    if window is not None:
        return stretched(values, window[0] - window[1] / 2, window[0] + window[1] / 2)
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.zeros(values.shape, np.uint8)
    low, high = np.percentile(finite, PERCENTILES)
    return stretched(values, low, high) if high > low else stretched(values, finite.min(), finite.max())


def to_rgb(grey: np.ndarray) -> np.ndarray:
    """(height, width) uint8 -> (height, width, 3)."""
    return np.repeat(grey[..., None], 3, axis=2)


def window_for(label: str, given: WindowName | tuple[float, float] | None) -> tuple[float, float]:
    """The window in which a label is shown on CT: the dataset's own, or by what the label names (`terms.csv`)."""
    if isinstance(given, str):
        return WINDOWS[given]
    return given if given is not None else WINDOWS[cast(WindowName, window_of(label))]


def resized(
    plane: np.ndarray, height: int, width: int, how: Image.Resampling = Image.Resampling.BILINEAR
) -> np.ndarray:
    """A picture, or a mask (booleans, by the nearest pixel), of another size."""
    if plane.shape[:2] == (height, width):
        return plane
    return np.asarray(
        Image.fromarray(plane).resize((width, height), Image.Resampling.NEAREST if plane.dtype == bool else how)
    )


def square_pixels(plane: np.ndarray, spacing: tuple[float, float]) -> np.ndarray:
    """A (height, width) plane whose pixels are `spacing` (row, column) mm apart, resampled to square pixels of the finer spacing."""
    rows, columns = spacing
    if not (np.isfinite(spacing).all() and min(spacing) > 0) or abs(rows / columns - 1) < 0.01:
        return plane
    fine = min(rows, columns)
    return resized(plane, max(1, round(plane.shape[0] * rows / fine)), max(1, round(plane.shape[1] * columns / fine)))


# Masks as text (COCO's run-length encoding)


def encode_mask(mask: np.ndarray) -> dict[str, Any]:
    """(height, width) of booleans -> COCO RLE with a text."""
    from pycocotools import mask as coco

    rle = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": [int(side) for side in rle["size"]], "counts": rle["counts"].decode("ascii")}


def decode_mask(rle: dict[str, Any]) -> np.ndarray:
    """The mask of a COCO RLE."""
    from pycocotools import mask as coco

    decoded: np.ndarray = coco.decode({"size": rle["size"], "counts": rle["counts"].encode("ascii")}).astype(bool)
    return decoded


# DICOM


@contextmanager
def reading(reason: str) -> Iterator[None]:
    """Raise Skipped with this reason where a library raises, as they do in many kinds on damaged files: pydicom also when a value is used.
    It warns of every odd value in old files, too; what matters is counted by us."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (Skipped, ImportError):  # a package that is missing is no damaged file
            raise
        except Exception as error:
            raise Skipped(f"{reason} ({cause(error)})") from None


USED = "its header has values that cannot be used"


def header(path: Path) -> Any:
    """The data set of a file, its pixels not yet read. Raises Skipped where the file is no DICOM."""
    import pydicom

    with reading("is no DICOM file"):
        data = pydicom.dcmread(path, defer_size=4096, force=True)  # old files have no preamble
        if "SOPClassUID" not in data and "Modality" not in data:
            raise Skipped("is no DICOM file")
        if "TransferSyntaxUID" not in data.file_meta:
            data.file_meta.TransferSyntaxUID = pydicom.uid.ImplicitVRLittleEndian  # the default of such files
    return data


def about(data: Any) -> dict[str, str]:
    """Header values that are kept: patient, study, age, sex, modality; nothing else leaves the header."""
    found = {
        "patient": str(data.get("PatientID", "") or ""),
        "study": str(data.get("StudyInstanceUID", "") or ""),
        "age": str(data.get("PatientAge", "") or ""),
        "sex": str(data.get("PatientSex", "") or ""),
        "modality": MODALITY.get(str(data.get("Modality", "")), str(data.get("Modality", "") or "")),
    }
    return {name: value for name, value in found.items() if value}


def read_frame(path: Path, dataset: SourceDataset) -> tuple[np.ndarray, dict[str, str]]:
    """(height, width, 3) uint8 of a file with one frame, and what it says of itself: upright with square pixels, or as its pixels are
    stored, where boxes and masks count these. Raises Skipped."""
    data = header(path)
    with reading(USED):
        refuse_burned_in(data)
        if "Rows" not in data or not any(
            each in data for each in ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
        ):
            raise Skipped(f"a DICOM file without pixels ({data.get('Modality', 'no modality')})")
        if int(data.get("NumberOfFrames", 1) or 1) > 1:
            raise Skipped("has several frames")
        is_ct = data.get("Modality") == "CT" and not _has_voi(data)
        grey = shown(data, window_for("", dataset.window) if is_ct or dataset.window is not None else None)
        orientation = data.get("ImageOrientationPatient")
        if not dataset.is_drawn_on:
            spacing = data.get("PixelSpacing") or data.get("ImagerPixelSpacing") or (1, 1)
            grey = square_pixels(grey, (float(spacing[0]), float(spacing[1])))
            grey = grey if orientation is None else upright(grey, np.asarray(orientation, np.float64))
        said = about(data)
    if dataset.modality:
        said["modality"] = dataset.modality
    return np.ascontiguousarray(grey if grey.ndim == 3 else to_rgb(grey)), said


def refuse_burned_in(data: Any) -> None:
    """Raise Skipped for a picture whose header says that a name may be written into its pixels."""
    if str(data.get("BurnedInAnnotation", "")).upper() == "YES":
        raise Skipped("has text burned into its pixels (BurnedInAnnotation)")


def _has_voi(data: Any) -> bool:
    return "WindowCenter" in data or "VOILUTSequence" in data


def values(data: Any, after_modality: bool = True) -> np.ndarray:
    """The stored values, in RGB where they are colours; after the modality LUT Hounsfield units for CT. Raises Skipped."""
    from pydicom.pixels import apply_modality_lut, pixel_array

    with reading("its pixels cannot be decoded"):
        stored = pixel_array(data)
        made: np.ndarray = apply_modality_lut(stored, data) if after_modality else stored
    return made


def shown(data: Any, window: tuple[float, float] | None) -> np.ndarray:
    """uint8 of a grey or colour frame: under `window`, else the file's VOI (highdicom's), else percentiles; white is always high."""
    import highdicom

    kind = str(data.get("PhotometricInterpretation", ""))
    if int(data.get("SamplesPerPixel", 1)) > 1:
        colours = values(data, after_modality=False)
        if colours.dtype != np.uint8 or colours.ndim != 3:
            raise Skipped("is a colour picture of more than 8 bits")
        return colours
    if kind == "PALETTE COLOR":
        raise Skipped("is a palette picture")
    if window is None and _has_voi(data):
        with reading("its pixels cannot be decoded"):
            image = highdicom.Image.from_dataset(data)
            grey = image.get_frame(1, apply_voi_transform=True, voi_output_range=(0, 255))
        return np.asarray(grey.round(), np.uint8)
    grey = to_grey(values(data), window)
    return 255 - grey if kind == "MONOCHROME1" else grey


VIEWS = {"sagittal": "RIP", "coronal": "AIL", "axial": "SPL"}
"""Plane -> where its slices, rows and columns run as radiologists see it: the patient's left (or the back) at the right, the head (or the
front) at the top."""


def upright(picture: np.ndarray, orientation: np.ndarray) -> np.ndarray:
    """(height, width, ...) turned and mirrored as radiologists see it; an oblique plane counts as the nearest of the three. orientation:
    direction of a row, then of a column, in LPS."""
    from nibabel import orientations as untyped

    orientations: Any = untyped
    row, column = orientation[:3], orientation[3:]
    affine = np.eye(4)
    affine[:3, :3] = np.stack([np.cross(row, column), column, row], axis=1) * [[-1], [-1], [1]]
    view = list(VIEWS.values())[int(orientations.io_orientation(affine)[0, 0])]
    turned: np.ndarray = orientations.apply_orientation(picture[None], turn_to(view, affine))
    return turned[0]


def turn_to(view: str, affine: np.ndarray) -> np.ndarray:
    """The turn, as nibabel applies it, of an array in this affine to a view."""
    from nibabel import orientations as untyped

    orientations: Any = untyped
    turn: np.ndarray = orientations.ornt_transform(orientations.io_orientation(affine), orientations.axcodes2ornt(view))
    return turn
