"""Burns a target into a copy of its picture: a box, a translucent mask, or a contour, never over what it marks.

The contour and the box are drawn outside the target; a mask is translucent, at most half.
"""

from __future__ import annotations

import numpy as np
from PIL import ImageColor

from curation.gmai.sources import Overlay


def burn_box(pixels: np.ndarray, box: tuple[float, float, float, float], overlay: Overlay) -> np.ndarray:
    """A copy with a frame around x, y, width, height; where the box ends at the picture's edge, the frame is drawn on the edge."""
    height, width = pixels.shape[:2]
    left, top = int(np.floor(box[0])), int(np.floor(box[1]))
    right, bottom = int(np.ceil(box[0] + box[2])), int(np.ceil(box[1] + box[3]))
    inner = np.zeros((height, width), bool)
    inner[max(top, 1) : min(bottom, height - 1), max(left, 1) : min(right, width - 1)] = True
    outer = np.zeros((height, width), bool)
    by = overlay.width
    outer[max(top - by, 0) : min(bottom + by, height), max(left - by, 0) : min(right + by, width)] = True
    return _paint(pixels, outer & ~inner, overlay, 1.0)


def burn_mask(pixels: np.ndarray, mask: np.ndarray, overlay: Overlay) -> np.ndarray:
    """A copy with the mask's pixels tinted."""
    return _paint(pixels, mask, overlay, overlay.opacity)


def burn_contour(pixels: np.ndarray, mask: np.ndarray, overlay: Overlay) -> np.ndarray:
    """A copy with a line around the mask (around each of its pieces and holes)."""
    return _paint(pixels, contour_of(mask, overlay.width), overlay, 1.0)


def contour_of(mask: np.ndarray, width: int) -> np.ndarray:
    """(height, width): pixels outside the mask within `width` of it (4-neighbours)."""
    from scipy.ndimage import binary_dilation

    grown: np.ndarray = binary_dilation(mask, iterations=width)
    return grown & ~mask


def _paint(pixels: np.ndarray, where: np.ndarray, overlay: Overlay, opacity: float) -> np.ndarray:
    colour = np.array(ImageColor.getrgb(overlay.color)[:3], float)
    painted = pixels.copy()
    painted[where] = (painted[where] * (1 - opacity) + colour * opacity).round().astype(np.uint8)
    return painted
