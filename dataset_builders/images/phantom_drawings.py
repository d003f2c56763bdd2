"""Draw phantoms: pictures with outlines of anatomy (a Shepp-Logan style head, a chest ...) and
known lesions.

No medical image is involved. Equal arguments give equal bytes. See also: the questions about them
(`benchmarks/*/phantoms.py`).
"""

import io
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIZE_PX = 256
"""Side length in pixels."""

Canvas = NDArray[np.float64]
"""Brightness from 0 to 1, shape (SIZE_PX, SIZE_PX) or (SIZE_PX, SIZE_PX, 3)."""

_AXIS = np.linspace(-1, 1, SIZE_PX)
X, Y = np.meshgrid(_AXIS, _AXIS)
"""Coordinates: x from -1 (left edge of the picture) to 1, y from -1 (top) to 1 (bottom)."""


@dataclass(frozen=True)
class Lesion:
    """A round spot.

    `side` is left or right *in the picture*, `level` upper or lower, `size` small or large, `tone`
    bright or dark.
    """

    side: str = "left"
    level: str = "upper"
    size: str = "small"
    tone: str = "bright"

    @property
    def words(self) -> str:
        """The lesion in words, such as "small bright spot"."""
        return f"{self.size} {self.tone} spot"


@dataclass(frozen=True)
class Drawing:
    """What to draw: an organ in a modality, with lesions.

    `variant` selects an anatomical detail (wide, narrow, ...).
    """

    organ: str
    modality: str
    lesions: tuple[Lesion, ...] = ()
    variant: str = ""
    number: int = 0
    """Number of cells, vertebrae ... in pictures for counting."""


def _ellipse(cx: float, cy: float, rx: float, ry: float, turn: float = 0.0) -> Canvas:
    """Return the soft mask (0 to 1) of an ellipse; radii in picture coordinates, `turn` in
    degrees.
    """
    # Rotate the coordinates into the ellipse's axes.
    a = np.deg2rad(turn)
    u, v = (X - cx) * np.cos(a) + (Y - cy) * np.sin(a), (Y - cy) * np.cos(a) - (X - cx) * np.sin(a)
    away = np.sqrt((u / rx) ** 2 + (v / ry) ** 2)
    mask: Canvas = np.clip((1 - away) * min(rx, ry) * SIZE_PX / 3 + 0.5, 0, 1)
    return mask


def _paint(canvas: Canvas, mask: Canvas, value: float) -> Canvas:
    return canvas * (1 - mask) + value * mask


def _draw(background: float, *layers: tuple[Canvas, float]) -> Canvas:
    """Paint layers (mask, brightness), the lowest first."""
    canvas = np.full((SIZE_PX, SIZE_PX), background)
    for mask, value in layers:
        canvas = _paint(canvas, mask, value)
    return canvas


def _head(drawing: Drawing) -> Canvas:
    """Draw skull, brain and two ventricles after Shepp and Logan.

    CT has a bright skull; MRI has a dark one and a bright scalp.
    """
    scalp, skull, brain = (0.95, 0.95, 0.38) if drawing.modality == "ct" else (0.75, 0.08, 0.5)
    width = {"wide": 0.17, "narrow": 0.05}.get(drawing.variant, 0.09)
    return _draw(
        0.02,
        (_ellipse(0, 0, 0.72, 0.92), scalp),
        (_ellipse(0, 0, 0.68, 0.87), skull),
        (_ellipse(0, 0, 0.63, 0.82), brain),
        *((0.25 * _ellipse(0, 0, 0.6, 0.012, angle), 0.3) for angle in range(0, 180, 20)),
        *((_ellipse(side * 0.2, -0.05, width, 0.33, -14 * side), 0.12) for side in (-1, 1)),
        (_ellipse(0, 0, 0.012, 0.78), 0.7),
    )


def _chest(drawing: Drawing) -> Canvas:
    """Draw body outline, lungs, heart, spine and ribs (X-ray), or a cross-section (CT)."""
    if drawing.modality == "ct":
        return _draw(
            0.02,
            (_ellipse(0, 0.05, 0.92, 0.7), 0.55),
            *((_ellipse(side * 0.42, 0.0, 0.36, 0.52), 0.1) for side in (-1, 1)),
            (_ellipse(0.1, -0.08, 0.2, 0.25), 0.62),
            (_ellipse(0, 0.55, 0.1, 0.1), 0.95),
        )

    lungs: list[tuple[Canvas, float]] = []
    for side in (-1, 1):
        lungs.append((_ellipse(side * 0.4, 0.05, 0.3, 0.68, -6 * side), 0.14))
        for rib in range(7):
            arc = (np.abs(Y + 0.55 - rib * 0.19 - 0.5 * (np.abs(X) - 0.4) ** 2) < 0.022).astype(np.float64)
            lungs.append((0.5 * arc * (side * X > 0.08) * (np.abs(X) < 0.72), 0.7))

    heart_width = {"wide": 0.42, "narrow": 0.2}.get(drawing.variant, 0.26)
    return _draw(
        0.04,
        (_ellipse(0, 0.25, 0.88, 1.15), 0.6),
        *lungs,
        (_ellipse(0.12, 0.35, heart_width, 0.3), 0.72),
        (0.8 * _ellipse(0, 0.1, 0.07, 1.1), 0.85),
    )


def _abdomen(drawing: Drawing) -> Canvas:
    return _draw(
        0.02,
        (_ellipse(0, 0, 0.92, 0.72), 0.42),
        (_ellipse(-0.4, -0.1, 0.42, 0.45, 12), 0.58),
        (_ellipse(0.48, 0.02, 0.22, 0.3), 0.52),
        (_ellipse(-0.33, 0.4, 0.13, 0.17), 0.66),
        (_ellipse(0.33, 0.4, 0.13, 0.17), 0.66),
        (_ellipse(0, 0.45, 0.12, 0.12), 0.95),
    )


def _spine(drawing: Drawing) -> Canvas:
    """Draw a column of vertebrae, straight or bent."""
    bend, number = 0.3 if drawing.variant == "bent" else 0.0, drawing.number or 7
    vertebrae: list[tuple[Canvas, float]] = []
    for level in range(number):
        y = -0.82 + level * 1.64 / max(number - 1, 1)
        x = float(bend * np.cos(y * 1.6))
        vertebrae += [(_ellipse(x, y, 0.2, 0.085), 0.88), (_ellipse(x + 0.27, y, 0.09, 0.03), 0.7)]
    return _draw(0.05, (_ellipse(0, 0, 0.75, 1.3), 0.35), *vertebrae)


def _fundus(drawing: Drawing) -> Canvas:
    """Draw a colour retina: disc with a cup, vessels. `variant` wide: a large cup."""
    shade = _ellipse(0, 0, 0.95, 0.95)
    disc = _ellipse(0.45, 0, 0.17, 0.2)
    cup = _ellipse(0.45, 0, *((0.13, 0.155) if drawing.variant == "wide" else (0.05, 0.06)))
    layers = []
    for base, bright, centre, vessel in (
        (0.75, 0.98, 1.0, 0.5),
        (0.33, 0.8, 0.95, 0.1),
        (0.16, 0.45, 0.8, 0.08),
    ):
        layer = _draw(0.02, (shade, base))
        for bow in (-0.9, -0.45, 0.45, 0.9):
            line = np.abs(Y - bow * np.sqrt(np.clip(0.45 - X, 0, None)) * 0.6) < 0.012 + 0.004 * abs(bow)
            layer = _paint(layer, 0.8 * line * (X < 0.45) * shade, vessel)
        layers.append(_paint(_paint(layer, disc, bright), cup, centre))

    return np.stack(layers, axis=-1)


def _cells(drawing: Drawing) -> Canvas:
    """Draw stained cells on a light background: `number` of them, round or long."""
    rng = np.random.Generator(np.random.PCG64(drawing.number * 7 + len(drawing.variant)))

    # A grid of 16 places keeps cells from overlapping, so that they can be counted.
    positions = [(x, y) for y in (-0.66, -0.22, 0.22, 0.66) for x in (-0.66, -0.22, 0.22, 0.66)]
    order = rng.permutation(len(positions))[: drawing.number]
    layers = [np.full((SIZE_PX, SIZE_PX), value) for value in (0.95, 0.88, 0.93)]
    for index in order.tolist():
        x = positions[index][0] + rng.uniform(-0.05, 0.05)
        y = positions[index][1] + rng.uniform(-0.05, 0.05)
        radii = (0.17, 0.07) if drawing.variant == "long" else (0.14, 0.14)
        body, core = _ellipse(x, y, *radii, 35), _ellipse(x, y, radii[0] / 2, radii[1] / 2, 35)
        for layer, (skin, heart) in enumerate(((0.85, 0.35), (0.62, 0.2), (0.8, 0.55))):
            layers[layer] = _paint(_paint(layers[layer], body, skin), core, heart)

    return np.stack(layers, axis=-1)


_ORGAN_PAINTERS: dict[str, Callable[[Drawing], Canvas]] = {
    "brain": _head,
    "chest": _chest,
    "abdomen": _abdomen,
    "spine": _spine,
    "retina": _fundus,
    "cells": _cells,
}
_LESION_OFFSETS = {
    "brain": (0.34, 0.45),
    "chest": (0.42, 0.3),
    "abdomen": (0.42, 0.28),
    "spine": (0.45, 0.5),
    "retina": (0.4, 0.45),
}
"""Distance of lesions from the centre, horizontally and vertically."""


@cache  # benchmarks share pictures, and a process may build several; the cache takes a few megabytes
def draw_phantom(drawing: Drawing, encoding: str = "PNG") -> bytes:
    """Render a drawing.

    Args:
        drawing: what to draw.
        encoding: "PNG" or "JPEG".

    Returns:
        The content of the image file.
    """
    canvas = _ORGAN_PAINTERS[drawing.organ](drawing)
    across, along = _LESION_OFFSETS.get(drawing.organ, (0.4, 0.4))
    for lesion in drawing.lesions:
        radius = 0.07 if lesion.size == "small" else 0.17
        mask = _ellipse(
            across * (-1 if lesion.side == "left" else 1),
            along * (-1 if lesion.level == "upper" else 1),
            radius,
            radius,
        )
        mask = mask if canvas.ndim == 2 else mask[..., None]
        canvas = _paint(canvas, mask, 1.0 if lesion.tone == "bright" else 0.0)

    # Noise depends on the drawing only, so that bytes are reproducible.
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(repr(drawing).encode())))
    canvas = np.clip(
        canvas + rng.normal(0, 0.012, (SIZE_PX, SIZE_PX) if canvas.ndim == 2 else (SIZE_PX, SIZE_PX, 1)),
        0,
        1,
    )
    picture = Image.fromarray((canvas * 255).round().astype(np.uint8))
    stream = io.BytesIO()
    picture.save(
        stream,
        format=encoding,
        **({"quality": 85} if encoding == "JPEG" else {"compress_level": 6}),
    )
    return stream.getvalue()


def one_lesion(organ: str, modality: str, **lesion: str) -> Drawing:
    """Return a drawing with one lesion.

    Args:
        organ: what to draw.
        modality: how to draw it.
        lesion: fields of `Lesion`; the others keep their defaults.
    """
    return Drawing(organ, modality, (Lesion(**lesion),))
