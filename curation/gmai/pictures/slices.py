"""Which slices of a volume become pictures: at most k per label, those with the largest target (SA-Med2D-20M's protocol takes all
three axes; here one plane, in the orientation in which it is read)."""

from __future__ import annotations

import numpy as np
from PIL import Image


def largest_slices(areas: np.ndarray, k: int, least: float) -> list[int]:
    """Indices of at most k slices with the largest areas of one label, ascending; none under `least` pixels. areas: (n_slices,)"""
    order = np.lexsort((np.arange(len(areas)), -areas))
    return sorted(int(at) for at in order[:k] if areas[at] > 0 and areas[at] >= least)


def square_pixels(plane: np.ndarray, spacing: tuple[float, float], nearest: bool) -> np.ndarray:
    """A (height, width) plane whose pixels are `spacing` (row, column) mm apart, resampled to square pixels of the finer spacing."""
    rows, columns = spacing
    if not (np.isfinite(spacing).all() and min(spacing) > 0) or abs(rows / columns - 1) < 0.01:
        return plane
    fine = min(rows, columns)
    size = (max(1, round(plane.shape[1] * columns / fine)), max(1, round(plane.shape[0] * rows / fine)))
    if plane.dtype == bool:
        image = Image.fromarray(plane.astype(np.uint8) * 255)
        return np.asarray(image.resize(size, Image.Resampling.NEAREST)) > 127
    image = Image.fromarray(plane)
    return np.asarray(image.resize(size, Image.Resampling.NEAREST if nearest else Image.Resampling.BILINEAR))
