"""A scatter plot as SVG: every point with its name, its interval, and the levels of chance.

See also: which plots there are (`plots.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leaderboard_space.html import text

Boxes = NDArray[np.float64]
"""Left, top, right, bottom (N, 4), in the units of the drawing."""
LEFT, RIGHT, TOP, BOTTOM = 62.0, 26.0, 12.0, 50.0
LETTER = 6.3
"""Width of a letter of a name."""
SPOTS = [(0, 0.0)] + [
    (radius, 2 * math.pi * turn / 16) for radius in (12, 24, 38, 54, 72, 92, 114, 140) for turn in range(16)
]
"""Where a name may stand from its point: how far off, at which angle; in the order in which they are tried."""
ACROSS = np.array([(10 + radius) * math.cos(angle) for radius, angle in SPOTS])
DOWN = np.array([(6 + radius) * math.sin(angle) for radius, angle in SPOTS])
TO_THE_RIGHT = np.array([math.cos(angle) >= -0.01 for _, angle in SPOTS])
MOST_NAMES = 14
"""Points that are named, those highest up and a few of the lowest; the others say their names when pointed at."""


@dataclass(frozen=True)
class Frame:
    """The size of a drawing, by the class of the screens that it is shown on (`assets/plots.css`)."""

    name: str
    width: float
    height: float

    def across(self, x: Scale, value: float) -> float:
        return LEFT + x.part(value) * (self.width - RIGHT - LEFT)

    def up(self, y: Scale, value: float) -> float:
        return self.height - BOTTOM - y.part(value) * (self.height - BOTTOM - TOP)


FRAMES = (Frame("wide", 960.0, 460.0), Frame("slim", 380.0, 520.0))


@dataclass(frozen=True)
class Scale:
    """An axis: what it says, its ends, its ticks (value, text), and whether it is logarithmic."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def part(self, value: float) -> float:
        """Where a value lies, 0 to 1."""
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, max(value, 1e-9)))
        return (
            min(max((at - low) / (high - low), 0.0), 1.0)
            if self.log
            else min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)
        )


@dataclass(frozen=True)
class Point:
    """A result. `said`: its numbers in words; `low`, `high`: its interval along y; `look`: its classes (kind and verdict)."""

    x: float
    y: float
    name: str
    said: str
    look: str
    low: float | None = None
    high: float | None = None


def percent_scale(label: str, values: Sequence[float]) -> Scale:
    """An axis in percent that holds the values, with round ends and some five ticks."""
    low, high = min(values, default=0.0), max(values, default=100.0)
    step = next(step for step in (1.0, 2.0, 5.0, 10.0, 20.0) if (high - low) / step <= 8 or step == 20.0)
    start, end = max(math.floor(low / step) * step, 0.0), min(math.ceil(high / step) * step, 100.0)
    end = end if end > start else start + step
    ticks = tuple((at, f"{at:g}") for at in (start + step * i for i in range(round((end - start) / step) + 1)))
    return Scale(label, start, end, ticks)


def log_scale(label: str, values: Sequence[float]) -> Scale:
    """A logarithmic axis, with ticks at 1, 2 and 5 times the powers of ten, and between them where these are few."""
    low, high = min(values) / 1.25, max(values) * 1.25
    steps = [m * 10.0**e for e in range(-3, 16) for m in (1, 1.5, 2, 3, 4, 5, 7)]
    ticks = tuple((at, f"{at:,g}") for at in steps if low <= at <= high)
    if len(ticks) > 8:
        ticks = tuple((at, said) for at, said in ticks if said.replace(",", "").strip("0.") in ("1", "2", "5"))
    return Scale(label, low, high, ticks, log=True)


def date_scale(label: str, values: Sequence[float]) -> Scale:
    """An axis of years, with a tick at the beginning of each."""
    low, high = math.floor(min(values)), math.ceil(max(values) + 1e-6)
    return Scale(label, low, high, tuple((float(year), str(year)) for year in range(low, high + 1)))


def svg(points: Sequence[Point], x: Scale, y: Scale, said: str, guess: tuple[float | None, float | None]) -> str:
    """The plot, drawn once for wide and once for narrow screens. `said`: what it shows, for who cannot see it; `guess`: levels of chance
    across and up, None where there is none."""
    return "".join(_svg(frame, points, x, y, said, guess) for frame in FRAMES)


def _svg(
    frame: Frame, points: Sequence[Point], x: Scale, y: Scale, said: str, guess: tuple[float | None, float | None]
) -> str:
    positions = [(frame.across(x, point.x), frame.up(y, point.y)) for point in points]
    marks, names = "", dict[int, str]()
    height = sorted(range(len(points)), key=lambda at: -points[at].y)
    named = set(height if len(height) <= MOST_NAMES else height[: MOST_NAMES - 4] + height[-4:])
    order = sorted(range(len(points)), key=lambda at: -len(points[at].name))
    taken: Boxes = np.array(
        [
            (
                px - 6,
                frame.up(y, p.high if p.high is not None else p.y) - 6,
                px + 6,
                frame.up(y, p.low if p.low is not None else p.y) + 6,
            )
            for p, (px, _) in zip(points, positions, strict=True)
        ]
    )
    for at in order:
        if at in named:
            names[at], taken = written(frame, points[at].name, *positions[at], taken)
    for at, (point, (px, py)) in enumerate(zip(points, positions, strict=True)):
        bar = ""
        if point.low is not None and point.high is not None:
            low, high = frame.up(y, point.low), frame.up(y, point.high)
            bar = f'<line class="bar" x1="{px:.1f}" x2="{px:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
        marks += f'<g class="{point.look}"><title>{text(point.said, 300)}</title>{bar}{shape(point.look, px, py)}{names.get(at, "")}</g>'
    middle = (TOP + frame.height - BOTTOM) / 2
    return (
        f'<svg class="{frame.name}" viewBox="0 0 {frame.width:g} {frame.height:g}" role="img" aria-label="{text(said, 300)}">'
        f"{_grid(frame, x, y)}{_levels(frame, x, y, guess)}{marks}"
        f'<text class="mid" x="{(LEFT + frame.width - RIGHT) / 2:g}" y="{frame.height - 8:g}">{text(x.label)}</text>'
        f'<text class="mid" x="16" y="{middle:g}" transform="rotate(-90 16 {middle:g})">{text(y.label)}</text></svg>'
    )


def _grid(frame: Frame, x: Scale, y: Scale) -> str:
    """Lines across and the ticks of both axes; of ticks that would touch, the first."""
    drawn = "".join(
        f'<line class="grid" x1="{LEFT:g}" x2="{frame.width - RIGHT:g}" y1="{frame.up(y, at):.1f}" y2="{frame.up(y, at):.1f}"/>'
        f'<text class="end" x="{LEFT - 8:g}" y="{frame.up(y, at) + 4:.1f}">{tick}</text>'
        for at, tick in y.ticks
    )
    free = 0.0
    for value, tick in x.ticks:
        at, half = frame.across(x, value), LETTER * len(tick) / 2
        if at - half >= free:
            drawn += f'<text class="mid" x="{at:.1f}" y="{frame.height - BOTTOM + 18:g}">{tick}</text>'
            free = at + half + LETTER
    return drawn


def _levels(frame: Frame, x: Scale, y: Scale, guess: tuple[float | None, float | None]) -> str:
    """What guessing gets, as lines."""
    lines = ""
    if guess[0] is not None and x.low <= guess[0] <= x.high:
        at = frame.across(x, guess[0])
        lines += f'<line class="guess" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP:g}" y2="{frame.height - BOTTOM:g}"/>'
    if guess[1] is not None and y.low <= guess[1] <= y.high:
        at = frame.up(y, guess[1])
        lines += f'<line class="guess" x1="{LEFT:g}" x2="{frame.width - RIGHT:g}" y1="{at:.1f}" y2="{at:.1f}"/>'
    return lines


def shape(look: str, x: float, y: float, size: float = 5.0) -> str:
    """A result's mark by its kind, as everywhere on the board: proprietary filled, open hollow, medical a square, a baseline a diamond."""
    if "k-medical" in look:
        return f'<rect class="pt" x="{x - size + 0.5:.1f}" y="{y - size + 0.5:.1f}" width="{2 * size - 1:g}" height="{2 * size - 1:g}"/>'
    if "k-baseline" in look:
        end = size + 1
        return f'<path class="pt" d="M{x:.1f} {y - end:.1f}l{end:g} {end:g}l{-end:g} {end:g}l{-end:g} {-end:g}z"/>'
    return f'<circle class="pt" cx="{x:.1f}" cy="{y:.1f}" r="{size:g}"/>'


def written(frame: Frame, name: str, x: float, y: float, taken: Boxes) -> tuple[str, Boxes]:
    """A name near its point where it covers neither a name, nor a point, nor the edge: beside it, else further off with a line to it;
    nothing where there is no room at all. With it `taken` (N, 4), to which the box of the name is added."""
    shown = name if len(name) <= 40 else name[:39] + "…"
    width = LETTER * len(shown) + 2
    across, middle = x + ACROSS, y + DOWN
    start = np.where(TO_THE_RIGHT, across, across - width)
    boxes = np.stack([start, middle - 7, start + width, middle + 7], axis=1)
    left, top, right, bottom = boxes.T
    free = (left > LEFT + 2) & (right < frame.width - 2) & (top > TOP - 6) & (bottom < frame.height - BOTTOM + 2)
    left, top, right, bottom = (side[:, None] for side in (left, top, right, bottom))
    free &= ((left > taken[:, 2]) | (right < taken[:, 0]) | (top > taken[:, 3]) | (bottom < taken[:, 1])).all(axis=1)
    at = int(free.argmax())
    if not free[at]:
        return "", taken
    begin, ny, leader = float(start[at]), float(middle[at]), ""
    if at:  # not beside its point
        end = begin - 2 if begin >= x else begin + width + 2 if begin + width <= x else begin + width / 2
        leader = f'<line class="lead" x1="{x:.1f}" y1="{y:.1f}" x2="{end:.1f}" y2="{ny:.1f}"/>'
    drawn = f'{leader}<text class="name" x="{begin + 1:.1f}" y="{ny + 4:.1f}">{text(shown)}</text>'
    return drawn, np.vstack([taken, boxes[at]])
