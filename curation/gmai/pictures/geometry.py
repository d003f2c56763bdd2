"""Masks as text (COCO's run-length encoding) and as pixels, scaled with their picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image


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
