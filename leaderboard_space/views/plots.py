"""Scatter plots of results as inline SVG: MediConfusion's accuracy against confusion, ProbMed's with against without adversarial
questions, and the score of every benchmark by the models' size and release.

Every point says its numbers in its title, and the same numbers stand in the tables. Names stand where there is room; which points have
none, and which models have no point, stands below. Each plot is drawn for wide and for narrow screens, and can be saved with its citation
in it (`assets/plots.js`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from dataset_builders.lexical_tree import UNLABELLED
from eval_harness.records.result import Score
from leaderboard_space import sentences
from leaderboard_space.benchmarks import spec
from leaderboard_space.data.model_names import identity
from leaderboard_space.data.ranks.groups import display_names
from leaderboard_space.data.ranks.standings import Row, info_of
from leaderboard_space.data.tree import Tree, TreePath, cells_in
from leaderboard_space.html import count, plural, prose, score_text, text
from leaderboard_space.views.parts import look

Known = Callable[[str], dict[str, Score]]
"""Metric -> (entry key -> score)."""
FEWEST = 3
"""Points of which a plot is made."""
WIDE, NARROW, HEIGHT = 900.0, 400.0, 440.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 26.0, 12.0, 50.0
LETTER = 6.3
"""Width of a letter of a name."""
ADVERSARIAL = ("condition", "position", "organ", "modality")
"""Aspects that papers and we score with and without adversarial questions, the most telling first. Abnormality has none, and `overall`
mixes both: the two overalls do not compare."""


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
        low, high, at = (math.log(max(v, 1e-9)) if self.log else v for v in (self.low, self.high, value))
        return min(max((at - low) / (high - low), 0.0), 1.0)


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


def plot(family: str, rows: Sequence[Row], known: Known, metric: str, where: str = "", about: str = "") -> str:
    """The plot of a benchmark's own, or nothing where it has none or too little is known. `metric`: the score of the table; `where`: a
    sentence on what it is about; `about`: what a saved plot says below."""
    kind = spec(family).plot
    if kind == "scatter":
        said = (
            "x axis: set accuracy. y axis: confusion, how often both images of a pair got the same answer. A model that distinguishes "
            "the images is at the lower right; one that does not look at them is at the upper left."
        )
        pair = ("set_accuracy", "confusion")
        return _of_two(rows, known, pair, ("confusion", "Correct, or the same answer twice?"), f"{said} {where}", about)
    for aspect in sorted(ADVERSARIAL, key=lambda name: name != metric) if kind == "slopes" else ():
        label = sentences.in_running_text(info_of(aspect).label)
        said = (
            f"x axis: {label} without adversarial questions; y axis: with them. A model that looks at the image is on the line; one that "
            "says yes to everything falls below it."
        )
        title = f"The effect of adversarial questions: {label}"
        pair = (f"{aspect}_without_adversarial", aspect)
        if drawn := _of_two(rows, known, pair, ("slopes", title), f"{said} {where}", f"{about} {where}".strip()):
            return drawn
    return ""


def by_size(rows: Sequence[Row], metric: str, family: str, stated: str, about: str = "") -> str:
    """Scores by the number of parameters, where it is stated. `stated`: what the chart is of."""
    sized = {row.entry.key: row.entry.result.model.parameters for row in rows}
    known = {key: size / 1e9 for key, size in sized.items() if size}
    return _against(
        rows,
        known,
        metric,
        family,
        ("size", "by size", "Parameters (billions)"),
        f"{stated}{_without(rows, known, 'size')}",
        about,
    )


def by_date(rows: Sequence[Row], metric: str, family: str, stated: str, about: str = "") -> str:
    """Scores by the month in which the model was released, where it is known: are newer models better?"""
    known = {}
    for row in rows:
        said = identity(row.entry.result.model.name).released or ""
        if re.fullmatch(r"\d{4}-\d\d.*", said):
            known[row.entry.key] = int(said[:4]) + (int(said[5:7]) - 1) / 12
    said = f"{stated}{_without(rows, known, 'release date')}"
    return _against(rows, known, metric, family, ("date", "by release date", "First released"), said, about)


def _without(rows: Sequence[Row], known: Mapping[str, float], what: str) -> str:
    """Which models a plot leaves out, since something is not known of them."""
    names = {row.entry.result.model.name for row in rows if not row.is_baseline and row.score.value is not None}
    left = names - {row.entry.result.model.name for row in rows if row.entry.key in known}
    return f" Not shown, no {what} known: {sentences.listed(sorted(left, key=str.lower))}." if left else ""


def image_types(tree: Tree, branches: Sequence[TreePath]) -> list[TreePath]:
    """The branches of ProbMed's image types within a selection, the largest first, as the tree draws them."""
    labels = [node.label for node in dict(tree.facets).get("image_type", ()) if node.label != UNLABELLED]
    inside = cells_in(branches, {"image_type": dict.fromkeys(labels)})
    return [("image_type", label) for label in labels if not branches or ("image_type", label) in inside]


def _of_two(
    rows: Sequence[Row], known: Known, pair: tuple[str, str], named: tuple[str, str], said: str, about: str
) -> str:
    """One score (across) against another (up). `named`: the plot's name and title."""
    across, up = known(pair[0]), known(pair[1])
    labels = [info_of(metric).label for metric in pair]
    points, names = [], display_names([row.entry for row in rows])
    for row in rows:
        a, b = across.get(row.entry.key), up.get(row.entry.key)
        if a is None or b is None or a.value is None or b.value is None:
            continue
        name = names[row.entry.key]
        told = f"{name}: {sentences.in_running_text(labels[0])} {score_text(a.value)}, "
        told += f"{sentences.in_running_text(labels[1])} {score_text(b.value)}"
        verdict = (b if pair[1] in ADVERSARIAL else a).verdict
        points.append(Point(a.value, b.value, name, told, look(row.entry.result.model.kind, verdict)))
    if not points:
        return ""
    levels = _level(across), _level(up)
    ends = [[*(p.x for p in points), *(levels[0] or ())], [*(p.y for p in points), *(levels[1] or ())]]
    if pair[1] in ADVERSARIAL:  # both axes are alike: on the diagonal nothing falls
        ends = [[*ends[0], *ends[1]]] * 2
    x, y = (_percent_scale(f"{label} (%)", held) for label, held in zip(labels, ends, strict=True))
    return _frame(named, said, points, x, y, levels, about)


def _against(
    rows: Sequence[Row],
    known: Mapping[str, float],
    metric: str,
    family: str,
    axis: tuple[str, str, str],
    said: str,
    about: str,
) -> str:
    """The table's scores (up) against a number of each result (across). `axis`: the plot's name, its title after the score's name, and what
    stands under it."""
    info, (name, title, under) = info_of(metric, family), axis
    points, scores, names = [], {}, display_names([row.entry for row in rows])
    for row in rows:
        score, value = row.score, known.get(row.entry.key, 0)
        if info.unit != "percent" or score.value is None or value <= 0 or row.is_baseline:
            continue
        who = names[row.entry.key]
        at = f"{value:,.1f}" if name == "size" else f"{int(value)}-{round(12 * (value % 1)) + 1:02}"
        told = f"{who}: {sentences.in_running_text(info.label)} {score_text(score.value)}, {at}"
        style = look(row.entry.result.model.kind, score.verdict)
        points.append(Point(value, score.value, who, told, style, score.low, score.high))
        scores[row.entry.key] = score
    if len(points) < FEWEST:
        return ""
    level = _level(scores)
    ends = [*(end for p in points for end in (p.y, p.low, p.high)), *(level or ())]
    x = (_date_scale if name == "date" else _log_scale)(under, [point.x for point in points])
    if any(point.low is not None for point in points):
        said += " Bars are 95% intervals."
    y = _percent_scale(f"{info.label} (%)", ends)
    return _frame((name, f"{info.label} {title}"), said, points, x, y, (None, level), about)


def _frame(
    named: tuple[str, str],
    said: str,
    points: Sequence[Point],
    x: Scale,
    y: Scale,
    guess: tuple[Level, Level],
    about: str,
) -> str:
    """A plot for wide and for narrow screens, with its heading, what it says of itself, and the buttons that save it. `named`: its name and
    title."""
    name, title = named
    figures, unnamed = "", list[str]()
    for kind, width in (("narrow", NARROW), ("wide", WIDE)):
        names = _names(points, x, y, width)
        unnamed = [point.said for at, point in enumerate(points) if at not in names]
        rest = "; ".join(text(said, 300) for said in unnamed)
        summary = f"{count(len(unnamed))} of {plural(len(points), 'point')} without a name in the plot"
        figures = (
            f'<figure class="plots {kind}" aria-label="{text(title)}">{svg(points, x, y, guess, names, width)}'
            f"{f'<details><summary>{summary}</summary>{rest}</details>' if unnamed else ''}</figure>"
        ) + figures
    drawn = [level for level in guess if level is not None]
    said = said.strip() + (" Dashed: guessing." if any(low == high for low, high in drawn) else "")
    said += f" Band: {sentences.RANDOM_RUN}, a sample of guessing." if any(low < high for low, high in drawn) else ""
    about += f" Without a name in the plot: {'; '.join(unnamed)}." if unnamed else ""
    save = "".join(
        f'<button type="button" class="link" data-act="{form}" data-of="plot-{name}">Save as {form.upper()}</button>'
        for form in ("svg", "png")
    )
    return (
        f'<section class="plot" data-plot="{name}" data-title="{text(title)}" data-about="{text(about, 6000)}"><div class="bar-head">'
        f"<h3>{prose(title)}</h3>{save}</div>"
        f'<p class="sub">{prose(said, 2000)}</p>{figures}</section>'
    )


Level = tuple[float, float] | None
"""The ends of a level of guessing: equal where it is exact, an interval where it is a random run."""


def _level(scores: Mapping[str, Score]) -> Level:
    """The chance of a column, where all rows agree on it."""
    known = [score for score in scores.values() if score.chance is not None]
    found = {score.chance_interval or (round(score.chance or 0.0, 6),) * 2 for score in known}
    return found.pop() if len(found) == 1 else None


def _percent_scale(label: str, values: Sequence[float | None]) -> Scale:
    """An axis in percent that holds the values, with round ends and some five ticks."""
    known = [value for value in values if value is not None]
    low, high = min(known), max(known)
    step = next(step for step in (1.0, 2.0, 5.0, 10.0, 20.0) if (high - low) / step <= 8 or step == 20.0)
    start, end = max(math.floor(low / step) * step, 0.0), min(math.ceil(high / step) * step, 100.0)
    end = end if end > start else start + step
    ticks = tuple((at, f"{at:g}") for at in (start + step * i for i in range(round((end - start) / step) + 1)))
    return Scale(label, start, end, ticks)


def _log_scale(label: str, values: Sequence[float]) -> Scale:
    """A logarithmic axis, with ticks between the powers of ten."""
    low, high = min(values) / 1.25, max(values) * 1.25
    steps = [m * 10.0**e for e in range(-3, 16) for m in (1, 1.5, 2, 3, 5, 7)]
    return Scale(label, low, high, tuple((at, f"{at:,g}") for at in steps if low <= at <= high), log=True)


def _date_scale(label: str, values: Sequence[float]) -> Scale:
    """An axis of years, with a tick at the beginning of each."""
    low, high = math.floor(min(values)), math.ceil(max(values) + 1e-6)
    return Scale(label, low, high, tuple((float(year), str(year)) for year in range(low, high + 1)))


def _across(x: Scale, value: float, width: float) -> float:
    return LEFT + x.part(value) * (width - RIGHT - LEFT)


def _up(y: Scale, value: float) -> float:
    return HEIGHT - BOTTOM - y.part(value) * (HEIGHT - BOTTOM - TOP)


def svg(
    points: Sequence[Point], x: Scale, y: Scale, guess: tuple[Level, Level], names: Mapping[int, str], width: float
) -> str:
    """The plot. `guess`: levels of chance across and up, None where there is none; `names`: the names beside points. Of two axes that are
    alike a line shows where both are equal."""
    marks, right, floor = "", width - RIGHT, HEIGHT - BOTTOM
    for at, point in enumerate(points):
        px, bar = _across(x, point.x, width), ""
        if point.low is not None and point.high is not None:
            bar = _line("bar", px, _up(y, point.low), px, _up(y, point.high))
        mark = _shape(point.look, px, _up(y, point.y))
        marks += f'<g class="{point.look}"><title>{text(point.said, 300)}</title>{bar}{mark}{names.get(at, "")}</g>'
    levels = ""
    if guess[0] is not None:
        levels += _area(_across(x, guess[0][0], width), TOP, _across(x, guess[0][1], width), floor)
    if guess[1] is not None:
        levels += _area(LEFT, _up(y, guess[1][1]), right, _up(y, guess[1][0]))
    if (x.low, x.high, x.log) == (y.low, y.high, y.log):
        levels += _line("grid", LEFT, floor, right, TOP)
    middle = (TOP + floor) / 2
    return (
        f'<svg viewBox="0 0 {width:g} {HEIGHT:g}" role="img" aria-label="{text(y.label)} and {text(x.label)}, one point per result">'
        f"{_grid(x, y, width)}{levels}{marks}"
        f'<text class="mid" x="{(LEFT + right) / 2:g}" y="{HEIGHT - 8:g}">{text(x.label)}</text>'
        f'<text class="mid" x="16" y="{middle:g}" transform="rotate(-90 16 {middle:g})">{text(y.label)}</text></svg>'
    )


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _area(left: float, top: float, right: float, bottom: float) -> str:
    """A level of guessing: a line, or a band."""
    if left == right or top == bottom:
        return _line("guess", left, top, right, bottom)
    return f'<rect class="band" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}"/>'


def _grid(x: Scale, y: Scale, width: float) -> str:
    """Lines across and the ticks of both axes; of ticks that would touch, the first."""
    drawn = "".join(
        f"{_line('grid', LEFT, _up(y, at), width - RIGHT, _up(y, at))}"
        f'<text class="end" x="{LEFT - 8:g}" y="{_up(y, at) + 4:.1f}">{tick}</text>'
        for at, tick in y.ticks
    )
    free = 0.0
    for value, tick in x.ticks:
        at, half = _across(x, value, width), LETTER * len(tick) / 2
        if at - half >= free:
            drawn += f'<text class="mid" x="{at:.1f}" y="{HEIGHT - BOTTOM + 18:g}">{tick}</text>'
            free = at + half + LETTER
    return drawn


def _shape(kind: str, x: float, y: float) -> str:
    """A result's mark by its kind, as everywhere on the board: proprietary filled, open hollow, medical a square, a baseline a diamond."""
    if "k-medical" in kind:
        return f'<rect class="pt" x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9"/>'
    if "k-baseline" in kind:
        return f'<path class="pt" d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z"/>'
    return f'<circle class="pt" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'


def _names(points: Sequence[Point], x: Scale, y: Scale, width: float) -> dict[int, str]:
    """The names beside their points, of the highest first, where they cover neither a name, nor a point, nor the edge."""
    taken, found = [], {}  # boxes: left, top, right, bottom
    for point in points:
        px, py = _across(x, point.x, width), _up(y, point.y)
        taken.append((px - 6, py - 6, px + 6, py + 6))
    for at in sorted(range(len(points)), key=lambda at: -points[at].y):
        px, py = _across(x, points[at].x, width), _up(y, points[at].y)
        shown = points[at].name if len(points[at].name) <= 40 else points[at].name[:39] + "…"
        size = LETTER * len(shown)
        sides = (("name", px + 8, px + 8), ("name end", px - 8, px - 8 - size))
        for (kind, end, start), down in product(sides, (0.0, -12.0, 12.0)):
            box = (start, py + down - 7, start + size, py + down + 7)
            inside = box[0] > LEFT and box[2] < width and box[1] > 0 and box[3] < HEIGHT - BOTTOM
            if inside and all(
                box[0] > other[2] or box[2] < other[0] or box[1] > other[3] or box[3] < other[1] for other in taken
            ):
                taken.append(box)
                found[at] = f'<text class="{kind}" x="{end:.1f}" y="{py + down + 4:.1f}">{text(shown)}</text>'
                break
    return found
