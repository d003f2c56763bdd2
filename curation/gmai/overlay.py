"""Masks as text (COCO's run-length encoding) and as pixels, scaled with their picture; and what burns a target into a copy of its picture:
a box, a translucent mask, or a contour, never over what it marks.

The contour and the box are drawn outside the target; a mask is translucent, at most half.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageColor

from curation.gmai.sources import BOX, CONTOUR, MASK, Overlay
from curation.images.burned_in_text import Box as Text
from curation.images.burned_in_text import mask as blacked_out
from dataset_builders.images.lookup import as_png


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


def fit(side: int, pixels: np.ndarray) -> float:
    """The factor that brings the longer side of a picture down to `side`; 1 where it is shorter."""
    return min(1.0, side / max(pixels.shape[:2]))


def scale_pixels(pixels: np.ndarray, factor: float) -> np.ndarray:
    """A picture scaled down by `factor`."""
    if factor == 1.0:
        return pixels
    size = (max(1, round(pixels.shape[1] * factor)), max(1, round(pixels.shape[0] * factor)))
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS))


def scale_mask(mask: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """A mask scaled to (height, width)."""
    if mask.shape == shape:
        return mask
    image = Image.fromarray(mask.astype(np.uint8) * 255)
    return np.asarray(image.resize((shape[1], shape[0]), Image.Resampling.NEAREST)) > 127


def shown_png(
    picture: str, mask: dict[str, Any] | None, folder: Path, granularity: str, box: Any, overlay: Overlay, black: Sequence[Text] = ()
) -> bytes:  # fmt: skip
    """The PNG that a question shows: picture `picture` of `folder`, `black` regions blacked out, with the target burned into a copy."""
    with Image.open(folder / f"{picture}.png") as image:
        pixels = np.asarray(blacked_out(image.convert("RGB"), black))
    return as_png(Image.fromarray(burn(pixels, granularity, box, None if mask is None else decode_mask(mask), overlay)))


def burn(pixels: np.ndarray, granularity: str, box: Any, mask: np.ndarray | None, overlay: Overlay) -> np.ndarray:
    """A copy as a question of this granularity shows it: a frame around the box x, y, width, height (on the picture's edge where the box
    ends there), the mask's pixels tinted, or a line around each of its pieces and holes. Else the pixels themselves."""
    if granularity == BOX and box is not None:
        return _paint(pixels, frame_of(box, (pixels.shape[0], pixels.shape[1]), overlay.width), overlay, 1.0)
    if granularity == MASK and mask is not None:
        return _paint(pixels, mask, overlay, overlay.opacity)
    if granularity == CONTOUR and mask is not None:
        return _paint(pixels, contour_of(mask, overlay.width), overlay, 1.0)
    return pixels


def frame_of(box: Any, shape: tuple[int, int], width: int) -> np.ndarray:
    """(height, width): pixels outside a box within `width` of it, and its outermost ones at the picture's edge."""
    left, top = int(np.floor(box[0])), int(np.floor(box[1]))
    right, bottom = int(np.ceil(box[0] + box[2])), int(np.ceil(box[1] + box[3]))
    inner, outer = np.zeros(shape, bool), np.zeros(shape, bool)
    inner[max(top, 1) : min(bottom, shape[0] - 1), max(left, 1) : min(right, shape[1] - 1)] = True
    outer[max(top - width, 0) : min(bottom + width, shape[0]), max(left - width, 0) : min(right + width, shape[1])] = (
        True
    )
    return outer & ~inner


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
