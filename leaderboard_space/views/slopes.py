"""ProbMed's slopes: accuracy without and with adversarial questions, a panel per aspect, every line named at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eval_harness.records.result import Score
from leaderboard_space.data.ranks.groups import display_names
from leaderboard_space.data.ranks.standings import Row, info_of
from leaderboard_space.html import percent, text
from leaderboard_space.views.parts import look
from leaderboard_space.views.scatter import shape

Known = Callable[[str], dict[str, Score]]
"""Metric -> (entry key -> score)."""
ASPECTS = ("modality", "organ", "condition", "position")
"""Aspects that papers and we score with and without adversarial questions. Abnormality has none, and `overall` mixes both: the two
overalls do not compare, so they are never drawn as one slope."""
HEIGHT, TOP, BOTTOM = 370.0, 30.0, 26.0
FROM = 40.0
"""Where a panel's lines begin."""
LINE = 13.0
MOST_NAMES = 24


@dataclass(frozen=True)
class PanelLayout:
    """How the panels are drawn on the screens of a class (`assets/plots.css`): how many in a row, how wide each is, where its lines end,
    and how many letters of a name are shown."""

    name: str
    columns: int
    panel: float
    to: float
    letters: int


LAYOUTS = (PanelLayout("wide", 2, 480.0, 260.0, 34), PanelLayout("slim", 1, 380.0, 200.0, 25))


def slopes(rows: Sequence[Row], known: Known) -> str:
    """The panels as one SVG for wide and one for narrow screens; nothing where no aspect is known both ways."""
    return "".join(_svg(layout, rows, known) for layout in LAYOUTS)


def _svg(layout: PanelLayout, rows: Sequence[Row], known: Known) -> str:
    panels = [panel for aspect in ASPECTS if (panel := _panel(layout, rows, known, aspect))]
    if not panels:
        return ""
    drawn = "".join(
        f'<g transform="translate({layout.panel * (at % layout.columns):g} {(HEIGHT + 24) * (at // layout.columns):g})">{panel}</g>'
        for at, panel in enumerate(panels)
    )
    width, height = layout.panel * min(len(panels), layout.columns), (HEIGHT + 24) * -(-len(panels) // layout.columns)
    return (
        f'<svg class="{layout.name}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="Accuracy without and with adversarial questions, one line per result">{drawn}</svg>'
    )


def _panel(layout: PanelLayout, rows: Sequence[Row], known: Known, aspect: str) -> str:
    plain, full = known(f"{aspect}_without_adversarial"), known(aspect)
    ends: list[tuple[float, str, str]] = []
    to = layout.to
    lines, names = "", display_names([row.entry for row in rows])
    for row in rows:
        a, b = plain.get(row.entry.key), full.get(row.entry.key)
        if a is None or b is None or a.value is None or b.value is None:
            continue
        name, kind = names[row.entry.key], look(row.entry.result.model.kind, b.verdict)
        said = f"{name}: {percent(a.value)} without, {percent(b.value)} with adversarial questions"
        lines += (
            f'<g class="{kind}"><title>{text(said, 200)}</title><line class="slope" x1="{FROM:g}" x2="{to:g}" y1="{_y(a.value)}" '
            f'y2="{_y(b.value)}"/>{shape(kind, FROM, _y(a.value), 4)}{shape(kind, to, _y(b.value), 4)}</g>'
        )
        ends.append((_y(b.value), name, percent(b.value)))
    if not lines:
        return ""
    grid = "".join(
        f'<line class="grid" x1="{FROM - 8:g}" x2="{to + 8:g}" y1="{_y(at)}" y2="{_y(at)}"/>'
        f'<text class="end" x="{FROM - 12:g}" y="{_y(at) + 4}">{at}</text>'
        for at in (0, 25, 50, 75, 100)
    )
    chance = "".join(
        f'<line class="guess" x1="{x - 12:g}" x2="{x + 12:g}" y1="{_y(level)}" y2="{_y(level)}"/>'
        for x, level in ((FROM, level_of(plain)), (to, level_of(full)))
        if level is not None
    )
    return (
        f'<text class="head" x="{FROM - 12:g}" y="14">{text(info_of(aspect).label)} (%)</text>{grid}{chance}{lines}{_names(layout, ends)}'
        f'<text class="mid" x="{FROM:g}" y="{HEIGHT - 8:g}">without</text><text class="mid" x="{to:g}" y="{HEIGHT - 8:g}">with</text>'
    )


def _names(layout: PanelLayout, ends: list[tuple[float, str, str]]) -> str:
    """The names at the ends of the lines, moved apart so that none covers another; of very many, those of the highest and the lowest."""
    ends = sorted(ends)
    if len(ends) > MOST_NAMES:
        ends = ends[: MOST_NAMES // 2] + ends[-MOST_NAMES // 2 :]
    heights: list[float] = []
    for y, _, _ in ends:
        heights.append(max(y, heights[-1] + LINE if heights else TOP))
    low = HEIGHT - BOTTOM + 2
    for at in range(len(heights) - 1, -1, -1):  # what was pushed out below moves the others up
        low = min(heights[at], low)
        heights[at] = low
        low -= LINE
    return "".join(
        f'<line class="lead" x1="{layout.to + 6:g}" x2="{layout.to + 16:g}" y1="{y:.1f}" y2="{at:.1f}"/>'
        f'<text class="name" x="{layout.to + 19:g}" y="{at + 4:.1f}">{text(value)} {text(name, layout.letters)}</text>'
        for (y, name, value), at in zip(ends, heights, strict=True)
    )


def level_of(scores: dict[str, Score]) -> float | None:
    """The chance of a column, where all rows agree on it."""
    found = {round(score.chance, 6) for score in scores.values() if score.chance is not None}
    return found.pop() if len(found) == 1 else None


def _y(value: float) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(max(value, 0.0), 100.0) / 100), 1)
