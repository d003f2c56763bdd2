"""Make the pictures of an exam: all square, of one size and one file length, with a black frame.

Both pictures of a pair go through one path, so that neither border nor size nor compression tells
the answer: square crop, resampling, the change that the question is about, then the frame.

See also: which slices (`series.py`), which changes (`exam_tasks.py`).
"""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from curation.exam.series import SourceSlice, open_folder
from curation.readers.pictures import is_volume
from curation.readers.pixels import Skipped, read_frame, resample_square, to_grey
from curation.readers.volumes import read_oriented

SIZE_PX, FRAME_PX = 256, 8
"""Side of a picture, and width of its black frame."""
MIN_CROP = 0.9
"""Smallest part of a slice's square that a picture shows, as a share of its side."""
MIN_GREY_LEVELS, MAX_FLAT_SHARE = 32, 0.8
"""Minimum number of grey levels (empty slices have fewer), and maximum share of pixels that equal
their left neighbours (label maps have more)."""
MARKER_RADIUS_PX, RIM_PX = 6, 3
DISTANCES_PX = np.hypot(*np.mgrid[-12:13, -12:13])
"""Distances from the centre of a marker."""
BLUR_RADIUS_PX, NOISE_LEVELS = 2.5, 25.0
"""Strength of the changes: a Gaussian's standard deviation in pixels, and in grey levels of 255."""


def render_slice(source: SourceSlice) -> np.ndarray:
    """Render the central square of a slice in radiological view.

    CT is shown in the soft tissue window, other DICOM images in their own, NIfTI from the 0.5th to
    the 99.5th percentile.

    Returns:
        Square uint8 array, large enough for `crop_square` not to enlarge it.

    Raises:
        Skipped: it cannot be decoded, is in colour, is empty, or is a label map.
    """
    if is_volume(source.path):
        values, _, spacing = _read_volume(source.path, source.plane)
        grey = resample_square(to_grey(values[source.index]), spacing)
    else:
        window = "soft tissue" if source.modality == "CT" else None
        dataset = open_folder(source.path.parent).model_copy(update={"window": window})
        pixels, _ = read_frame(source.path, dataset, [])
        if np.ptp(pixels, axis=2).any():
            raise Skipped("is in colour")
        grey = pixels[..., 0]
    is_flat = (grey[:, 1:] == grey[:, :-1])[grey[:, 1:] > 0]
    if len(np.unique(grey)) < MIN_GREY_LEVELS or is_flat.mean() > MAX_FLAT_SHARE:
        raise Skipped("is empty or a label map")
    side = min(grey.shape)
    corner = ((grey.shape[1] - side) / 2, (grey.shape[0] - side) / 2)
    return _resize(grey, round(SIZE_PX / MIN_CROP), (*corner, corner[0] + side, corner[1] + side))


@lru_cache(maxsize=2)
def _read_volume(path: Path, plane: str) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
    return read_oriented(path, plane)


def crop_square(square: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Cut a random smaller square out of a square and resample it to `SIZE_PX`.

    Args:
        square: from `render_slice`.
        rng: draws size and place; equal states cut equal squares.
    """
    side = rng.uniform(MIN_CROP, 1) * len(square)
    corner = rng.uniform(0, len(square) - side, 2)
    return _resize(square, SIZE_PX, (*corner, *(corner + side)))


def _resize(grey: np.ndarray, size_px: int, box: tuple[float, float, float, float]) -> np.ndarray:
    """Resample the part of a picture in a box (left, top, right, bottom) to a square."""
    return np.array(Image.fromarray(grey).resize((size_px, size_px), Image.Resampling.BILINEAR, box))


def encode_framed(picture: np.ndarray) -> bytes:
    """Encode a picture with its frame as an uncompressed PNG: every file has the same length."""
    framed = np.zeros_like(picture)
    inner = slice(FRAME_PX, -FRAME_PX)
    framed[inner, inner] = picture[inner, inner]
    buffer = io.BytesIO()
    Image.fromarray(framed).save(buffer, "PNG", compress_level=0)
    return buffer.getvalue()


def mark(picture: np.ndarray, place: tuple[int, int], is_ring: bool = False) -> np.ndarray:
    """Draw a white disc with a black rim, or only a white rim inside a black one.

    Args:
        picture: (height, width) uint8.
        place: (x, y) of the centre in pixels, at least 12 pixels from the edges.
        is_ring: leave the pixels inside as they are.
    """
    marked = picture.copy()
    patch = _patch(marked, place)
    patch[(DISTANCES_PX > MARKER_RADIUS_PX) & (DISTANCES_PX <= MARKER_RADIUS_PX + 2 * RIM_PX)] = 0
    inner_px = MARKER_RADIUS_PX if is_ring else -1
    patch[(inner_px < DISTANCES_PX) & (DISTANCES_PX <= MARKER_RADIUS_PX + RIM_PX)] = 255
    return marked


def inside_ring(picture: np.ndarray, place: tuple[int, int]) -> np.ndarray:
    """Return the grey values inside a ring at (x, y)."""
    values: np.ndarray = _patch(picture, place)[DISTANCES_PX <= MARKER_RADIUS_PX]
    return values


def _patch(picture: np.ndarray, place: tuple[int, int]) -> np.ndarray:
    """Return a view of the pixels that `DISTANCES_PX` are the distances of from (x, y)."""
    (x, y), reach = place, len(DISTANCES_PX) // 2
    return picture[y - reach : y + reach + 1, x - reach : x + reach + 1]


def add_noise(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add Gaussian noise of `NOISE_LEVELS`."""
    noisy = picture + rng.normal(0, NOISE_LEVELS, picture.shape)
    return noisy.round().clip(0, 255).astype(np.uint8)


def blur(picture: np.ndarray, radius_px: float = BLUR_RADIUS_PX) -> np.ndarray:
    """Blur with a Gaussian."""
    return np.asarray(Image.fromarray(picture).filter(ImageFilter.GaussianBlur(radius_px)))


def roughness(picture: np.ndarray) -> float:
    """Return the mean difference in grey levels between a picture and its slightly blurred copy."""
    return float(np.abs(picture.astype(float) - blur(picture, 1)).mean())
