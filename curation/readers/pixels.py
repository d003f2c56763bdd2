"""Render scanner values as 8-bit pictures.

CT values are mapped by a window in HU, values without a physical scale by percentiles. DICOM files
are rendered as a viewer shows them: rescale, VOI LUT or window, MONOCHROME1, orientation, square
pixels.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from curation.images.image_index import rescale_to_uint8
from curation.readers.dataset import WINDOWS, WindowName
from dataset_builders.terms import find_ct_window

PERCENTILES = (0.5, 99.5)

DICOM_MODALITY_NAMES = {
    "CR": "X-ray", "DX": "X-ray", "RG": "X-ray", "CT": "CT", "MR": "MRI", "MG": "Mammography", "US": "UltraSound", "XA": "Angiography",
    "PT": "PET", "NM": "Nuclear Medicine", "OP": "Fundus Photography", "OPT": "OCT", "ES": "Endoscopy", "SM": "Histopathology",
}  # fmt: skip
"""DICOM Modality -> name used in questions, in the spelling of the official lexical tree where it
has the name.
"""


class Skipped(Exception):
    """Raised by a reader for a picture or volume that it cannot use.

    The message is the reason; it never contains a file name or a cell (these may name the patient).
    """


def error_cause(error: Exception) -> str:
    """Describe a library's error without its message, which may contain the patient's name."""
    return error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__


def to_grey(values: np.ndarray, window: tuple[float, float] | None = None) -> np.ndarray:
    """Map values to uint8.

    Args:
        values: values of any shape.
        window: (centre, width) from black to white, DICOM PS3.3 C.11.2.1.3.2 (linear exact); None:
            from the 0.5th to the 99.5th percentile of the finite values.

    Returns:
        uint8 array of the same shape.
    """
    if window is not None:
        return rescale_to_uint8(values, window[0] - window[1] / 2, window[0] + window[1] / 2)
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.zeros(values.shape, np.uint8)

    # Percentiles coincide if almost all values are equal; then the full range is used.
    low, high = np.percentile(finite, PERCENTILES)
    return rescale_to_uint8(values, low, high) if high > low else rescale_to_uint8(values, finite.min(), finite.max())


def to_rgb(grey: np.ndarray) -> np.ndarray:
    """Repeat (height, width) uint8 into three channels."""
    return np.repeat(grey[..., None], 3, axis=2)


def display_window(label: str, configured: WindowName | tuple[float, float] | None) -> tuple[float, float]:
    """Return the CT window for a label.

    Args:
        label: raw label, for which `terms.csv` gives the window.
        configured: the dataset's own window, which takes precedence.

    Returns:
        (centre, width) in HU.
    """
    if isinstance(configured, str):
        return WINDOWS[configured]
    return configured if configured is not None else WINDOWS[cast(WindowName, find_ct_window(label))]


def resize_plane(
    plane: np.ndarray,
    height: int,
    width: int,
    resampling: Image.Resampling = Image.Resampling.BILINEAR,
) -> np.ndarray:
    """Resize a picture or a bool mask to (height, width); masks always by nearest neighbour."""
    if plane.shape[:2] == (height, width):
        return plane
    return np.asarray(
        Image.fromarray(plane).resize((width, height), Image.Resampling.NEAREST if plane.dtype == bool else resampling)
    )


def resample_square(plane: np.ndarray, spacing: tuple[float, float]) -> np.ndarray:
    """Resample a plane to square pixels, whose side is the smaller of the two spacings.

    Args:
        plane: (height, width) picture or mask.
        spacing: (row, column) spacing in mm; invalid or nearly equal values leave the plane
            unchanged.
    """
    rows, columns = spacing
    if not (np.isfinite(spacing).all() and min(spacing) > 0) or abs(rows / columns - 1) < 0.01:
        return plane

    fine = min(rows, columns)
    return resize_plane(
        plane,
        max(1, round(plane.shape[0] * rows / fine)),
        max(1, round(plane.shape[1] * columns / fine)),
    )


# Masks as COCO run-length encoding


def encode_mask(mask: np.ndarray) -> dict[str, Any]:
    """Encode a (height, width) bool mask as COCO RLE with `counts` as a string."""
    from pycocotools import mask as coco

    rle = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": [int(side) for side in rle["size"]], "counts": rle["counts"].decode("ascii")}


# DICOM


@contextmanager
def skip_on_error(reason: str) -> Iterator[None]:
    """Raise Skipped with this reason if a library raises inside the block.

    Libraries raise errors of many types for damaged files, and pydicom does so even when a value is
    accessed. Warnings are silenced: old files cause many, and the readers themselves count what
    they skip or ignore.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (Skipped, ImportError):  # a missing package is not a damaged file
            raise
        except Exception as error:
            raise Skipped(f"{reason} ({error_cause(error)})") from None


UNUSABLE_HEADER = "its header has unusable values"


def read_dicom_header(path: Path, ignored: list[str] | None = None) -> Any:
    """Read a DICOM file without its pixel data, and repair its header.

    Args:
        path: the file, with or without a preamble.
        ignored: collects a message per ignored attribute, without duplicates.

    Returns:
        The pydicom Dataset.

    Raises:
        Skipped: not a DICOM file.
    """
    import pydicom

    with skip_on_error("not a DICOM file"):
        data = pydicom.dcmread(path, defer_size=4096, force=True)  # old files have no preamble
        if "SOPClassUID" not in data and "Modality" not in data:
            raise Skipped("not a DICOM file")
        if "TransferSyntaxUID" not in data.file_meta:
            data.file_meta.TransferSyntaxUID = pydicom.uid.ImplicitVRLittleEndian  # default without file meta

        names = _repair_header(data)

    if ignored is not None:
        ignored += [message for name in names if (message := IGNORED_ELEMENT.format(name)) not in ignored]
    return data


IGNORED_ELEMENT = "its header has an invalid {}, which is ignored"


def _repair_header(data: Any) -> list[str]:
    """Replace invalid attributes by their defaults, in place, as viewers do.

    Every library and code path then sees the same header. Returns the keywords that were replaced.
    """
    bits_allocated, bits_stored = ((*_element_numbers(data, name), 0)[0] for name in ("BitsAllocated", "BitsStored"))
    bits_stored = bits_stored if 0 < bits_stored <= bits_allocated else bits_allocated

    # Attribute -> number of values, their check, and the default that replaces invalid ones.
    rules: dict[str, tuple[int, Callable[[np.ndarray], Any], Any]] = {
        "RescaleSlope": (1, np.all, 1),
        "RescaleIntercept": (1, np.isfinite, 0),
        "PixelSpacing": (2, lambda spacing: min(spacing) > 0, None),
        "ImagerPixelSpacing": (2, lambda spacing: min(spacing) > 0, None),
        "ImageOrientationPatient": (
            6,
            lambda axes: np.linalg.norm(np.cross(axes[:3], axes[3:])) > 0.5,
            None,
        ),
        "PixelRepresentation": (1, lambda number: number in (0, 1), 0),
        "SamplesPerPixel": (1, lambda number: number > 0, 1),
        "BitsStored": (1, lambda bits: bits == bits_stored, int(bits_stored)),
        "HighBit": (1, lambda bit: bits_stored - 1 <= bit < bits_allocated, int(bits_stored) - 1),
    }

    repaired = []
    for name, (count, is_valid, default) in rules.items():
        numbers = np.array(_element_numbers(data, name))
        if name in data and not (numbers.size == count and is_valid(numbers)):
            repaired.append(name)
            setattr(data, name, default)
    # INVERSE means the same as MONOCHROME1: the rest of the code only checks
    # PhotometricInterpretation.

    if data.get("PresentationLUTShape") == "INVERSE":
        data.PhotometricInterpretation = "MONOCHROME1"
    return repaired


def _element_numbers(data: Any, name: str) -> list[float]:
    """Return the numbers of an attribute; [] if it is absent, blank or not all finite numbers."""
    try:
        numbers = np.atleast_1d(np.asarray(data.get(name), np.float64))  # None becomes NaN
    except (TypeError, ValueError):
        return []
    return numbers.tolist() if np.isfinite(numbers).all() else []


def header_facts(data: Any) -> dict[str, str]:
    """Return patient, study, age, sex and modality, each "" if the header does not state it.

    No other header value is used.
    """
    modality = str(data.get("Modality", "") or "")
    return {
        "patient": str(data.get("PatientID", "") or ""),
        "study": str(data.get("StudyInstanceUID", "") or ""),
        "age": str(data.get("PatientAge", "") or ""),
        "sex": str(data.get("PatientSex", "") or ""),
        "modality": DICOM_MODALITY_NAMES.get(modality, modality),
    }


def read_frame(
    path: Path, window: tuple[float, float] | None, ignored: list[str], as_stored: bool = False
) -> tuple[np.ndarray, dict[str, str]]:
    """Render a single-frame DICOM file, upright and with square pixels.

    Args:
        path: the file.
        window: see `render_frame`.
        ignored: collects a message per ignored attribute.
        as_stored: keep the stored pixels, which boxes and masks refer to.

    Returns:
        (height, width, 3) uint8, and the header's facts (`header_facts`).

    Raises:
        Skipped: not a usable single-frame picture.
    """
    data = read_dicom_header(path, ignored)
    with skip_on_error(UNUSABLE_HEADER):
        refuse_burned_in(data)
        grey = render_frame(data, window, ignored)
        if not as_stored:
            spacing = data.get("PixelSpacing") or data.get("ImagerPixelSpacing") or (1, 1)
            orientation = data.get("ImageOrientationPatient")
            grey = resample_square(grey, (float(spacing[0]), float(spacing[1])))
            grey = grey if orientation is None else orient_upright(grey, np.asarray(orientation, np.float64))
        facts = header_facts(data)
    return np.ascontiguousarray(grey if grey.ndim == 3 else to_rgb(grey)), facts


def refuse_burned_in(data: Any) -> None:
    """Raise Skipped if the header declares burned-in annotation, which may be a name."""
    if str(data.get("BurnedInAnnotation", "")).upper() == "YES":
        raise Skipped("has text burned into its pixels (BurnedInAnnotation)")


def render_frame(data: Any, window: tuple[float, float] | None, ignored: list[str]) -> np.ndarray:
    """Render a single-frame dataset in its stored orientation.

    All conversion from DICOM to grey values happens here, so that every reader gets the same
    picture.

    Args:
        data: from `read_dicom_header`.
        window: (centre, width); None: the file's own VOI LUT or window; without one, soft tissue
            for CT and percentiles otherwise.
        ignored: collects a message per ignored attribute of the VOI.

    Returns:
        (height, width) uint8 in which white is 255, or (height, width, 3) for colour.

    Raises:
        Skipped: the file does not have exactly one frame, or it cannot be decoded.
    """
    from pydicom.pixels import apply_modality_lut

    if "Rows" not in data or not any(name in data for name in ("PixelData", "FloatPixelData", "DoubleFloatPixelData")):
        raise Skipped(f"has no pixel data ({data.get('Modality', 'no modality')})")
    if int(data.get("NumberOfFrames", 1) or 1) > 1:
        raise Skipped("has several frames")

    kind = str(data.get("PhotometricInterpretation", ""))
    if kind == "PALETTE COLOR":
        raise Skipped("has palette colours")

    with skip_on_error("its pixels cannot be decoded"):
        stored = _stored_values(data, ignored)
        if int(data.get("SamplesPerPixel", 1)) > 1:
            if stored.dtype != np.uint8 or stored.ndim != 3:
                raise Skipped("has colours of more than 8 bits")
            return stored
        values = apply_modality_lut(stored, data)
        grey = _apply_voi(values, data, ignored) if window is None else to_grey(values, window)
    return 255 - grey if kind == "MONOCHROME1" else grey


def _stored_values(data: Any, ignored: list[str]) -> np.ndarray:
    """Return the stored values; RGB for colours.

    Unused bits (overlays) are cleared. If the header says that the values are not in the low bits
    (HighBit), they are shifted down, unless the pixels show that they are in the low bits after
    all.
    """
    from pydicom.pixels import pixel_array

    shift = data.HighBit + 1 - data.BitsStored if "HighBit" in data else 0
    if not shift or data.file_meta.TransferSyntaxUID.is_encapsulated:
        return pixel_array(data)

    # pydicom clears the bits above BitsStored, so BitsStored includes all bits up to HighBit while
    # decoding.
    bits_stored, data.BitsStored = data.BitsStored, data.HighBit + 1
    array = pixel_array(data)
    data.BitsStored, data.HighBit = bits_stored, bits_stored - 1

    lies_low = bool(np.abs(array.astype(np.int64)).max() < 2**bits_stored and (array & (2**shift - 1)).any())
    ignored += [IGNORED_ELEMENT.format("HighBit")] * lies_low
    return array if lies_low else array >> shift


def _apply_voi(values: np.ndarray, data: Any, ignored: list[str]) -> np.ndarray:
    """Map values to uint8 by the file's VOI LUT, else by its first window that shows any contrast.

    If it has neither, a soft tissue window is used for CT, and percentiles for everything else.
    """
    from pydicom.pixels import apply_voi

    if tables := data.get("VOILUTSequence"):
        try:
            looked_up = apply_voi(values.round().astype(np.int64), data).astype(np.float64)
            return (looked_up * 255 / (2 ** int(tables[0].LUTDescriptor[2]) - 1)).clip(0, 255).round().astype(np.uint8)
        except Exception:  # pydicom raises many types for a malformed LUT
            ignored.append(IGNORED_ELEMENT.format("VOILUTSequence"))

    function = str(data.get("VOILUTFunction", ""))
    centres_and_widths = (_element_numbers(data, name) for name in ("WindowCenter", "WindowWidth"))
    windows = list(zip(*centres_and_widths, strict=False))
    is_blank = not windows and ("WindowCenter" in data or "WindowWidth" in data)

    # Some files list unusable windows first, so try each until one shows contrast.
    for centre, width in windows or [(0.0, 0.0)] * is_blank:
        if function == "LINEAR_EXACT" or width < 1:  # all black if the width is 0 or less
            grey = to_grey(values, (centre, width))
        elif function == "SIGMOID":
            grey = (255 / (1 + np.exp(np.clip(-4 * (values - centre) / width, -500, 500)))).round().astype(np.uint8)
        else:  # PS3.3 C.11.2.1.2.1; a width of 1 is a threshold
            grey = to_grey(values, (centre - 0.5, max(width - 1, 1e-6)))
        if np.ptp(grey) or (width > 0 and not np.ptp(values)):
            return grey
        ignored += [IGNORED_ELEMENT.format("WindowCenter")] * (IGNORED_ELEMENT.format("WindowCenter") not in ignored)
    return to_grey(values, display_window("", None) if data.get("Modality") == "CT" else None)


PLANE_AXCODES = {"sagittal": "RIP", "coronal": "AIL", "axial": "SPL"}
"""Plane -> nibabel axis codes of its slices, rows and columns in radiological view: patient left
(or posterior) on the right, head (or anterior) at the top.
"""


def orient_upright(picture: np.ndarray, orientation: np.ndarray) -> np.ndarray:
    """Flip and rotate a plane to radiological view.

    An oblique plane is treated as the nearest of axial, coronal and sagittal.

    Args:
        picture: (height, width, ...).
        orientation: ImageOrientationPatient: directions of the rows and the columns in LPS
            coordinates.

    Returns:
        The reoriented picture.
    """
    from nibabel.orientations import apply_orientation, io_orientation

    row, column = orientation[:3], orientation[3:]

    # DICOM is LPS, nibabel RAS: the first two axes are negated.
    affine = np.eye(4)
    affine[:3, :3] = np.stack([np.cross(row, column), column, row], axis=1) * [[-1], [-1], [1]]

    view = list(PLANE_AXCODES.values())[int(io_orientation(affine)[0, 0])]
    return apply_orientation(picture[None], orientation_transform(view, affine))[0]


def orientation_transform(view: str, affine: np.ndarray) -> np.ndarray:
    """Return nibabel's orientation transform from the axes of an affine to these axis codes."""
    from nibabel.orientations import axcodes2ornt, io_orientation, ornt_transform

    return ornt_transform(io_orientation(affine), axcodes2ornt(view))
