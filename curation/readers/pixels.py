"""Grey values of scanners as 8-bit pictures: windows for CT, percentiles for what has no scale; masks; and DICOM files as they are meant to
be seen: rescale, VOI or a window, MONOCHROME1, orientation, square pixels.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from curation.images.image_index import rescale_to_uint8
from curation.readers.dataset import WINDOWS, SourceDataset, WindowName
from dataset_builders.terms import find_ct_window

PERCENTILES = (0.5, 99.5)

MODALITY_NAMES = {
    "CR": "X-ray", "DX": "X-ray", "RG": "X-ray", "CT": "CT", "MR": "MRI", "MG": "Mammography", "US": "UltraSound", "XA": "Angiography",
    "PT": "PET", "NM": "Nuclear Medicine", "OP": "Fundus Photography", "OPT": "OCT", "ES": "Endoscopy", "SM": "Histopathology",
}  # fmt: skip
"""DICOM's modality -> the name used in questions, as the official lexical tree writes it where it has one."""


class Skipped(Exception):
    """Raised by a reader for one picture or volume that cannot be used; the message is the reason. It names no file, quotes no cell."""


def error_cause(error: Exception) -> str:
    """Description of a library's error without its message, which may contain the file name and so the patient's name."""
    return error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__


def to_grey(values: np.ndarray, window: tuple[float, float] | None = None) -> np.ndarray:
    """Values of any shape -> uint8: the window (centre, width) from black to white, by DICOM PS3.3 C.11.2.1.3.2 (linear exact);
    without one, from the 0.5th to the 99.5th percentile of the finite values."""
    if window is not None:
        return rescale_to_uint8(values, window[0] - window[1] / 2, window[0] + window[1] / 2)
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.zeros(values.shape, np.uint8)
    low, high = np.percentile(finite, PERCENTILES)
    return rescale_to_uint8(values, low, high) if high > low else rescale_to_uint8(values, finite.min(), finite.max())


def to_rgb(grey: np.ndarray) -> np.ndarray:
    """(height, width) uint8 -> (height, width, 3)."""
    return np.repeat(grey[..., None], 3, axis=2)


def display_window(label: str, given: WindowName | tuple[float, float] | None) -> tuple[float, float]:
    """The window in which a label is shown on CT: the dataset's own, or by what the label names (`terms.csv`)."""
    if isinstance(given, str):
        return WINDOWS[given]
    return given if given is not None else WINDOWS[cast(WindowName, find_ct_window(label))]


def resize_plane(
    plane: np.ndarray, height: int, width: int, how: Image.Resampling = Image.Resampling.BILINEAR
) -> np.ndarray:
    """A picture, or a mask (booleans, by the nearest pixel), of another size."""
    if plane.shape[:2] == (height, width):
        return plane
    return np.asarray(
        Image.fromarray(plane).resize((width, height), Image.Resampling.NEAREST if plane.dtype == bool else how)
    )


def resample_square(plane: np.ndarray, spacing: tuple[float, float]) -> np.ndarray:
    """A (height, width) plane whose pixels are `spacing` (row, column) mm apart, resampled to square pixels of the finer spacing."""
    rows, columns = spacing
    if not (np.isfinite(spacing).all() and min(spacing) > 0) or abs(rows / columns - 1) < 0.01:
        return plane
    fine = min(rows, columns)
    return resize_plane(
        plane, max(1, round(plane.shape[0] * rows / fine)), max(1, round(plane.shape[1] * columns / fine))
    )


# Masks as text (COCO's run-length encoding)


def encode_mask(mask: np.ndarray) -> dict[str, Any]:
    """(height, width) of booleans -> COCO RLE with a text."""
    from pycocotools import mask as coco

    rle = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": [int(side) for side in rle["size"]], "counts": rle["counts"].decode("ascii")}


# DICOM


@contextmanager
def skip_on_error(reason: str) -> Iterator[None]:
    """Raise Skipped with this reason where a library raises, as they do in many kinds on damaged files: pydicom also when a value is used.
    It warns of every odd value in old files, too; what matters is counted by us."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (Skipped, ImportError):  # a package that is missing is no damaged file
            raise
        except Exception as error:
            raise Skipped(f"{reason} ({error_cause(error)})") from None


UNUSABLE_HEADER = "its header has values that cannot be used"


def read_header(path: Path, ignored: list[str] | None = None) -> Any:
    """The data set of a file, its pixels not yet read, without the values that a header cannot mean.

    Args:
        path: the file, with or without a preamble.
        ignored: takes what is ignored, in words.

    Raises:
        Skipped: the file is no DICOM.
    """
    import pydicom

    with skip_on_error("is no DICOM file"):
        data = pydicom.dcmread(path, defer_size=4096, force=True)  # old files have no preamble
        if "SOPClassUID" not in data and "Modality" not in data:
            raise Skipped("is no DICOM file")
        if "TransferSyntaxUID" not in data.file_meta:
            data.file_meta.TransferSyntaxUID = pydicom.uid.ImplicitVRLittleEndian  # the default of such files
        names = _repair_header(data)
    if ignored is not None:
        ignored += [why for name in names if (why := IGNORED_ELEMENT.format(name)) not in ignored]
    return data


IGNORED_ELEMENT = "what its header says of {} cannot be meant and is ignored"


def _repair_header(data: Any) -> list[str]:
    """Take out of a header, in place, what it cannot mean, as viewers do; returns the keywords. So every library and every route reads
    the same header."""
    allocated, stored = ((*_element_numbers(data, name), 0)[0] for name in ("BitsAllocated", "BitsStored"))
    stored = stored if 0 < stored <= allocated else allocated
    rules: dict[str, tuple[int, Callable[[np.ndarray], Any], Any]] = {
        "RescaleSlope": (1, np.all, 1),
        "RescaleIntercept": (1, np.isfinite, 0),
        "PixelSpacing": (2, lambda spacing: min(spacing) > 0, None),
        "ImagerPixelSpacing": (2, lambda spacing: min(spacing) > 0, None),
        "ImageOrientationPatient": (6, lambda axes: np.linalg.norm(np.cross(axes[:3], axes[3:])) > 0.5, None),
        "PixelRepresentation": (1, lambda number: number in (0, 1), 0),
        "SamplesPerPixel": (1, lambda number: number > 0, 1),
        "BitsStored": (1, lambda bits: bits == stored, int(stored)),
        "HighBit": (1, lambda bit: stored - 1 <= bit < allocated, int(stored) - 1),
    }
    wrong = []
    for name, (count, is_meant, default) in rules.items():
        numbers = np.array(_element_numbers(data, name))
        if name in data and not (numbers.size == count and is_meant(numbers)):
            wrong.append(name)
            setattr(data, name, default)
    # MONOCHROME1 demands INVERSE, which inverts whatever else: one element says it from here on.
    if data.get("PresentationLUTShape") == "INVERSE":
        data.PhotometricInterpretation = "MONOCHROME1"
    return wrong


def _element_numbers(data: Any, name: str) -> list[float]:
    """The finite numbers of an element; none where it is absent, blank or holds something else."""
    try:
        numbers = np.atleast_1d(np.asarray(data.get(name), np.float64))  # None becomes NaN
    except (TypeError, ValueError):
        return []
    return numbers.tolist() if np.isfinite(numbers).all() else []


def header_facts(data: Any) -> dict[str, str]:
    """Header values that are kept: patient, study, age, sex, modality; nothing else leaves the header."""
    found = {
        "patient": str(data.get("PatientID", "") or ""),
        "study": str(data.get("StudyInstanceUID", "") or ""),
        "age": str(data.get("PatientAge", "") or ""),
        "sex": str(data.get("PatientSex", "") or ""),
        "modality": MODALITY_NAMES.get(str(data.get("Modality", "")), str(data.get("Modality", "") or "")),
    }
    return {name: value for name, value in found.items() if value}


def read_frame(path: Path, dataset: SourceDataset, ignored: list[str]) -> tuple[np.ndarray, dict[str, str]]:
    """(height, width, 3) uint8 of a file with one frame, and what it says of itself: upright with square pixels, or as its pixels are
    stored, where boxes and masks count these. `ignored` takes what its header cannot mean. Raises Skipped."""
    data = read_header(path, ignored)
    with skip_on_error(UNUSABLE_HEADER):
        refuse_burned_in(data)
        grey = render_frame(data, None if dataset.window is None else display_window("", dataset.window), ignored)
        orientation = data.get("ImageOrientationPatient")
        if not dataset.is_drawn_on:
            spacing = data.get("PixelSpacing") or data.get("ImagerPixelSpacing") or (1, 1)
            grey = resample_square(grey, (float(spacing[0]), float(spacing[1])))
            grey = grey if orientation is None else orient_upright(grey, np.asarray(orientation, np.float64))
        said = header_facts(data)
    if dataset.modality:
        said["modality"] = dataset.modality
    return np.ascontiguousarray(grey if grey.ndim == 3 else to_rgb(grey)), said


def refuse_burned_in(data: Any) -> None:
    """Raise Skipped for a picture whose header says that a name may be written into its pixels."""
    if str(data.get("BurnedInAnnotation", "")).upper() == "YES":
        raise Skipped("has text burned into its pixels (BurnedInAnnotation)")


def render_frame(data: Any, window: tuple[float, float] | None, ignored: list[str]) -> np.ndarray:
    """The picture of a data set with one frame, as its pixels are stored: the one way from DICOM to grey values.

    Args:
        data: from `header`.
        window: centre and width; default: the file's VOI, a soft tissue window for CT, or percentiles.
        ignored: takes what of the file's VOI is ignored.

    Returns:
        uint8, (height, width) in which white is high, or (height, width, 3).

    Raises:
        Skipped: it holds no single frame that can be decoded.
    """
    from pydicom.pixels import apply_modality_lut

    if "Rows" not in data or not any(name in data for name in ("PixelData", "FloatPixelData", "DoubleFloatPixelData")):
        raise Skipped(f"a DICOM file without pixels ({data.get('Modality', 'no modality')})")
    if int(data.get("NumberOfFrames", 1) or 1) > 1:
        raise Skipped("has several frames")
    kind = str(data.get("PhotometricInterpretation", ""))
    if kind == "PALETTE COLOR":
        raise Skipped("is a palette picture")
    with skip_on_error("its pixels cannot be decoded"):
        stored = _stored_values(data, ignored)
        if int(data.get("SamplesPerPixel", 1)) > 1:
            if stored.dtype != np.uint8 or stored.ndim != 3:
                raise Skipped("is a colour picture of more than 8 bits")
            return stored
        values = apply_modality_lut(stored, data)
        grey = _apply_voi(values, data, ignored) if window is None else to_grey(values, window)
    return 255 - grey if kind == "MONOCHROME1" else grey


def _stored_values(data: Any, ignored: list[str]) -> np.ndarray:
    """The stored values, in RGB where they are colours. Bits that hold no value (overlays) are cleared, and values whose highest bit lies
    above `BitsStored` moved down, unless they lie low in spite of the header."""
    from pydicom.pixels import pixel_array

    above = data.HighBit + 1 - data.BitsStored if "HighBit" in data else 0
    if not above or data.file_meta.TransferSyntaxUID.is_encapsulated:
        array: np.ndarray = pixel_array(data)
        return array
    stored, data.BitsStored = data.BitsStored, data.HighBit + 1
    array = pixel_array(data)
    data.BitsStored, data.HighBit = stored, stored - 1
    lies_low = bool(np.abs(array.astype(np.int64)).max() < 2**stored and (array & (2**above - 1)).any())
    ignored += [IGNORED_ELEMENT.format("HighBit")] * lies_low
    return array if lies_low else array >> above


def _apply_voi(values: np.ndarray, data: Any, ignored: list[str]) -> np.ndarray:
    """uint8 by the file's VOI: its lookup table, else the first of its windows that shows anything; else as `frame` says."""
    from pydicom.pixels import apply_voi

    if tables := data.get("VOILUTSequence"):
        try:
            looked_up = apply_voi(values.round().astype(np.int64), data).astype(np.float64)
            return (looked_up * 255 / (2 ** int(tables[0].LUTDescriptor[2]) - 1)).clip(0, 255).round().astype(np.uint8)
        except Exception:  # many kinds, by what is wrong with it
            ignored.append(IGNORED_ELEMENT.format("VOILUTSequence"))
    function = str(data.get("VOILUTFunction", ""))
    windows = list(zip(_element_numbers(data, "WindowCenter"), _element_numbers(data, "WindowWidth"), strict=False))
    is_blank = not windows and ("WindowCenter" in data or "WindowWidth" in data)
    for centre, width in windows or [(0.0, 0.0)] * is_blank:
        if function == "LINEAR_EXACT" or width < 1:  # black where the width is not above 0
            grey = to_grey(values, (centre, width))
        elif function == "SIGMOID":
            grey = (255 / (1 + np.exp(np.clip(-4 * (values - centre) / width, -500, 500)))).round().astype(np.uint8)
        else:  # PS3.3 C.11.2.1.2.1; a width of 1 parts the values in two
            grey = to_grey(values, (centre - 0.5, max(width - 1, 1e-6)))
        if np.ptp(grey) or (width > 0 and not np.ptp(values)):
            return grey
        ignored += [IGNORED_ELEMENT.format("WindowCenter")] * (IGNORED_ELEMENT.format("WindowCenter") not in ignored)
    return to_grey(values, display_window("", None) if data.get("Modality") == "CT" else None)


PLANE_AXCODES = {"sagittal": "RIP", "coronal": "AIL", "axial": "SPL"}
"""Plane -> where its slices, rows and columns run as radiologists see it: the patient's left (or the back) at the right, the head (or the
front) at the top."""


def orient_upright(picture: np.ndarray, orientation: np.ndarray) -> np.ndarray:
    """(height, width, ...) turned and mirrored as radiologists see it; an oblique plane counts as the nearest of the three. orientation:
    direction of a row, then of a column, in LPS."""
    from nibabel import orientations as untyped

    orientations: Any = untyped
    row, column = orientation[:3], orientation[3:]
    affine = np.eye(4)
    affine[:3, :3] = np.stack([np.cross(row, column), column, row], axis=1) * [[-1], [-1], [1]]
    view = list(PLANE_AXCODES.values())[int(orientations.io_orientation(affine)[0, 0])]
    turned: np.ndarray = orientations.apply_orientation(picture[None], orientation_transform(view, affine))
    return turned[0]


def orientation_transform(view: str, affine: np.ndarray) -> np.ndarray:
    """The turn, as nibabel applies it, of an array in this affine to a view."""
    from nibabel import orientations as untyped

    orientations: Any = untyped
    turn: np.ndarray = orientations.ornt_transform(orientations.io_orientation(affine), orientations.axcodes2ornt(view))
    return turn
