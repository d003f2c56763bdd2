"""ProbMed's slopes: accuracy without and with adversarial questions, a panel per aspect, every line named at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eval_harness.results import Score
from leaderboard_space.data.ranks.groups import called
from leaderboard_space.data.ranks.standings import Row, info_of
from leaderboard_space.html import number, text
from leaderboard_space.views.charts.scatter import shape
from leaderboard_space.views.parts import look

Known = Callable[[str], dict[str, Score]]
"""Metric -> (entry key -> score)."""
ASPECTS = ("modality", "organ", "condition", "position")
"""Aspects that papers and we score with and without adversarial questions. Abnormality has none, and `overall` mixes both: the two
overalls do not compare, so they are never drawn as one slope."""
PANEL, HEIGHT, TOP, BOTTOM = 480.0, 370.0, 30.0, 26.0
FROM, TO = 40.0, 260.0
"""Where a panel's lines begin and end."""
LINE = 13.0
MOST_NAMES = 24


def slopes(rows: Sequence[Row], known: Known) -> str:
    """The panels as one SVG, two in a row; nothing where no aspect is known both ways."""
    panels = [panel for aspect in ASPECTS if (panel := _panel(rows, known, aspect))]
    if not panels:
        return ""
    drawn = "".join(
        f'<g transform="translate({PANEL * (at % 2):g} {(HEIGHT + 24) * (at // 2):g})">{panel}</g>'
        for at, panel in enumerate(panels)
    )
    width, height = PANEL * min(len(panels), 2), (HEIGHT + 24) * ((len(panels) + 1) // 2)
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="Accuracy without and with adversarial questions, one line per result">{drawn}</svg>'
    )


def _panel(rows: Sequence[Row], known: Known, aspect: str) -> str:
    plain, full = known(f"{aspect}_without_adversarial"), known(aspect)
    ends: list[tuple[float, str, str]] = []
    lines, names = "", called([row.entry for row in rows])
    for row in rows:
        a, b = plain.get(row.entry.key), full.get(row.entry.key)
        if a is None or b is None or a.value is None or b.value is None:
            continue
        name, kind = names[row.entry.key], look(row.entry.result.model.kind, b.verdict)
        said = f"{name}: {number(a.value)} without, {number(b.value)} with adversarial questions"
        lines += (
            f'<g class="{kind}"><title>{text(said, 200)}</title><line class="slope" x1="{FROM:g}" x2="{TO:g}" y1="{_y(a.value)}" '
            f'y2="{_y(b.value)}"/>{shape(kind, FROM, _y(a.value), 4)}{shape(kind, TO, _y(b.value), 4)}</g>'
        )
        ends.append((_y(b.value), name, number(b.value)))
    if not lines:
        return ""
    grid = "".join(
        f'<line class="grid" x1="{FROM - 8:g}" x2="{TO + 8:g}" y1="{_y(at)}" y2="{_y(at)}"/>'
        f'<text class="end" x="{FROM - 12:g}" y="{_y(at) + 4}">{at}</text>'
        for at in (0, 25, 50, 75, 100)
    )
    chance = "".join(
        f'<line class="guess" x1="{x - 12:g}" x2="{x + 12:g}" y1="{_y(level)}" y2="{_y(level)}"/>'
        for x, level in ((FROM, level_of(plain)), (TO, level_of(full)))
        if level is not None
    )
    return (
        f'<text class="head" x="{FROM - 12:g}" y="14">{text(info_of(aspect).label)} (%)</text>{grid}{chance}{lines}{_names(ends)}'
        f'<text class="mid" x="{FROM:g}" y="{HEIGHT - 8:g}">without</text><text class="mid" x="{TO:g}" y="{HEIGHT - 8:g}">with</text>'
    )


def _names(ends: list[tuple[float, str, str]]) -> str:
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
        f'<line class="lead" x1="{TO + 6:g}" x2="{TO + 16:g}" y1="{y:.1f}" y2="{at:.1f}"/>'
        f'<text class="name" x="{TO + 19:g}" y="{at + 4:.1f}">{value} {text(name, 34)}</text>'
        for (y, name, value), at in zip(ends, heights, strict=True)
    )


def level_of(scores: dict[str, Score]) -> float | None:
    """The chance of a column, where all rows agree on it."""
    found = {round(score.chance, 6) for score in scores.values() if score.chance is not None}
    return found.pop() if len(found) == 1 else None


def _y(value: float) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(max(value, 0.0), 100.0) / 100), 1)
