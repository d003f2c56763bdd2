"""Draw scatter plots of results as inline SVG: MediConfusion's accuracy against confusion,
ProbMed's scores with adversarial questions against those without, and the score of every benchmark
by the models' size and release date.

Every point has its numbers in its title, and the tables have the same numbers. Names are drawn
where there is room; the text below a plot lists points without a name, and models without a point.
Each plot is drawn for wide and for narrow screens, and can be saved with its citation
(`assets/plots.js`).
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from dataset_builders.facets import UNLABELLED
from eval_harness.records.result import Score
from leaderboard_space import sentences
from leaderboard_space.benchmarks import board_spec, metric_info
from leaderboard_space.data.sections import Row, display_names, model_metadata
from leaderboard_space.data.tree import Tree, TreePath, selection_cells
from leaderboard_space.html import count, plural, prose, score_text, text
from leaderboard_space.views.tables.table import mark_classes

ScoresOf = Callable[[str], dict[str, Score]]
"""Metric -> entry key -> score."""
Level = tuple[float, float] | None
"""What guessing gets, as (low, high): equal if chance is exact, an interval if it is a random run;
None if it is not known or differs between rows."""
MIN_POINTS = 3
"""Minimum number of points of a plot by size or date."""
WIDE, NARROW, HEIGHT = 900.0, 400.0, 440.0
"""Width of the two drawings and their height, in pixels."""
LEFT, RIGHT, TOP, BOTTOM = 62.0, 26.0, 12.0, 50.0
"""Margins around the axes, in pixels."""
LETTER_WIDTH = 6.3
"""Width of a letter of a name, in pixels."""
ADVERSARIAL = ("condition", "position", "organ", "modality")
"""Aspects that are scored with and without adversarial questions, the most informative first.

Abnormality has no adversarial questions, so `overall` with and without them cannot be compared.
"""


@dataclass(frozen=True)
class Scale:
    """An axis.

    Args:
        label: Its title.
        low: Value at its start.
        high: Value at its end.
        ticks: Value and text of each tick.
        log: True if it is logarithmic.
    """

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def part(self, value: float) -> float:
        """Return the position of a value on the axis, from 0 to 1."""
        low, high, at = (math.log(max(v, 1e-9)) if self.log else v for v in (self.low, self.high, value))
        return min(max((at - low) / (high - low), 0.0), 1.0)


@dataclass(frozen=True)
class Point:
    """A result in a plot.

    Args:
        x: Value on the x axis.
        y: Value on the y axis.
        name: Name of the result.
        title: Its numbers in words.
        look: CSS classes, by kind of model and verdict.
        low: Lower end of the interval along y; None if not drawn.
        high: Upper end.
    """

    x: float
    y: float
    name: str
    title: str
    look: str
    low: float | None = None
    high: float | None = None


def plot(
    family: str,
    rows: Sequence[Row],
    scores_of: ScoresOf,
    metric: str,
    questions: str = "",
    about: str = "",
) -> str:
    """Draw the plot that only this benchmark has; "" if it has none, or too little is known.

    Args:
        family: Key of the benchmark.
        rows: Rows of the table.
        scores_of: Scores of these rows by metric.
        metric: Score of the table.
        questions: A sentence on the plotted questions.
        about: The text below a saved plot.
    """
    kind = board_spec(family).plot
    if kind == "scatter":
        caption = (
            "x axis: set accuracy. y axis: confusion, how often both images of a pair got the same answer. A model that distinguishes "
            "the images is at the lower right; one that does not look at them is at the upper left."
        )
        title = ("confusion", "Correct, or the same answer twice?")
        return _of_two(rows, scores_of, ("set_accuracy", "confusion"), title, f"{caption} {questions}", about)
    for aspect in sorted(ADVERSARIAL, key=lambda name: name != metric) if kind == "slopes" else ():
        label = sentences.uncapitalize(metric_info(aspect).label)
        caption = (
            f"x axis: {label} without adversarial questions; y axis: with them. A model that looks at the image is on the line; one that "
            "says yes to everything falls below it."
        )
        title = ("slopes", f"The effect of adversarial questions: {label}")
        pair, note = (f"{aspect}_without_adversarial", aspect), f"{about} {questions}".strip()
        if svg_plot := _of_two(rows, scores_of, pair, title, f"{caption} {questions}", note):
            return svg_plot
    return ""


def by_size(rows: Sequence[Row], metric: str, family: str, subject: str, about: str = "") -> str:
    """Draw scores by the number of parameters, of models that state it.

    Args:
        rows: Rows of the table.
        metric: Their score.
        family: Key of the benchmark.
        subject: A sentence on what the plot shows.
        about: The text below a saved plot.
    """
    models = {row.entry.key: row.entry.result.model for row in rows}
    sizes = {key: model.parameters / 1e9 for key, model in models.items() if model.parameters}
    axis = ("size", "by size", "Parameters (billions)")
    return _against(rows, sizes, metric, family, axis, f"{subject}{_missing(rows, sizes, 'size')}", about)


def by_date(rows: Sequence[Row], metric: str, family: str, subject: str, about: str = "") -> str:
    """Draw scores by release month, for models with a known one.

    The parameters are those of `by_size`.
    """
    dates = {row.entry.key: model_metadata(row.entry.result.model.name).facts.get("released", "") for row in rows}
    valid_dates = {key: date for key, date in dates.items() if re.fullmatch(r"\d{4}-\d\d.*", date)}
    years = {key: int(date[:4]) + (int(date[5:7]) - 1) / 12 for key, date in valid_dates.items()}
    axis = ("date", "by release date", "First released")
    return _against(
        rows,
        years,
        metric,
        family,
        axis,
        f"{subject}{_missing(rows, years, 'release date')}",
        about,
    )


def _missing(rows: Sequence[Row], values: Mapping[str, float], property_name: str) -> str:
    """Name the models that a plot leaves out, in a sentence.

    `values`: entry key -> value on the x axis; `property_name`: what that value is.
    """
    scored = {row.entry.result.model.name for row in rows if not row.is_reference and row.score.value is not None}
    missing = scored - {row.entry.result.model.name for row in rows if row.entry.key in values}
    return (
        f" Not shown, no {property_name} known: {sentences.join_names(sorted(missing, key=str.lower))}."
        if missing
        else ""
    )


def image_types(tree: Tree, branches: Sequence[TreePath]) -> list[TreePath]:
    """List the branches of ProbMed's image types within a selection.

    They are in the order of the tree, the largest first.
    """
    labels = [node.label for node in dict(tree.facets).get("image_type", ()) if node.label != UNLABELLED]
    inside = selection_cells(branches, {"image_type": dict.fromkeys(labels)})
    return [("image_type", label) for label in labels if not branches or ("image_type", label) in inside]


def _of_two(
    rows: Sequence[Row],
    scores_of: ScoresOf,
    pair: tuple[str, str],
    title: tuple[str, str],
    caption: str,
    about: str,
) -> str:
    """Draw one score against another.

    Args:
        rows: Rows of the table.
        scores_of: Scores of these rows by metric.
        pair: The metrics on the x and y axes.
        title: Name and title of the plot.
        caption: The text above it.
        about: The text below a saved plot.
    """
    across, up = map(scores_of, pair)
    labels = [metric_info(metric).label for metric in pair]
    points, names = list[Point](), display_names([row.entry for row in rows])
    for row in (row for row in rows if row.entry.key in across and row.entry.key in up):
        name, x, y = names[row.entry.key], across[row.entry.key], up[row.entry.key]
        if x.value is not None and y.value is not None:
            values = zip(map(sentences.uncapitalize, labels), (x.value, y.value), strict=True)
            numbers = ", ".join(f"{label} {score_text(value)}" for label, value in values)
            style = mark_classes(row.entry.result.model.kind, (y if pair[1] in ADVERSARIAL else x).verdict)
            points.append(Point(x.value, y.value, name, f"{name}: {numbers}", style))
    if not points:
        return ""
    levels = _level(across), _level(up)
    ends = [
        [*(p.x for p in points), *(levels[0] or ())],
        [*(p.y for p in points), *(levels[1] or ())],
    ]
    # Give both axes the same range, so that on the diagonal adversarial questions change nothing.
    if pair[1] in ADVERSARIAL:
        ends = [[*ends[0], *ends[1]]] * 2
    x_scale, y_scale = (_percent_scale(f"{label} (%)", of_axis) for label, of_axis in zip(labels, ends, strict=True))
    return _frame(title, caption, points, x_scale, y_scale, levels, about)


def _against(
    rows: Sequence[Row],
    values: Mapping[str, float],
    metric: str,
    family: str,
    axis: tuple[str, str, str],
    caption: str,
    about: str,
) -> str:
    """Draw the table's scores against a property of the models.

    Args:
        rows: Rows of the table.
        values: Entry key -> the property, positive.
        metric: Score of the table.
        family: Key of the benchmark.
        axis: Name of the plot, end of its title, and title of the x axis.
        caption: The text above it.
        about: The text below a saved plot.
    """
    info, (name, title, axis_title) = metric_info(metric, family), axis
    # Baselines have neither size nor release date.
    plotted_rows = [
        row for row in rows if values.get(row.entry.key, 0) > 0 and row.score.value is not None and not row.is_reference
    ]
    if len(plotted_rows) < MIN_POINTS or info.unit != "percent":
        return ""
    names, points = display_names([row.entry for row in rows]), list[Point]()
    for row in plotted_rows:
        x, y, model_name = values[row.entry.key], row.score.value or 0.0, names[row.entry.key]
        # Dates are years, with the month as a fraction.
        at = f"{x:,.1f}" if name == "size" else f"{int(x)}-{round(12 * (x % 1)) + 1:02}"
        numbers = f"{model_name}: {sentences.uncapitalize(info.label)} {score_text(y)}, {at}"
        style = mark_classes(row.entry.result.model.kind, row.score.verdict)
        points.append(Point(x, y, model_name, numbers, style, row.score.low, row.score.high))
    level = _level({row.entry.key: row.score for row in plotted_rows})
    ends = [*(end for p in points for end in (p.y, p.low, p.high)), *(level or ())]
    x_scale = (_date_scale if name == "date" else _log_scale)(axis_title, [point.x for point in points])
    bars = " Bars are 95% intervals." if any(point.low is not None for point in points) else ""
    y_scale = _percent_scale(f"{info.label} (%)", ends)
    return _frame(
        (name, f"{info.label} {title}"),
        f"{caption}{bars}",
        points,
        x_scale,
        y_scale,
        (None, level),
        about,
    )


def _frame(
    title: tuple[str, str],
    caption: str,
    points: Sequence[Point],
    x: Scale,
    y: Scale,
    chance: tuple[Level, Level],
    about: str,
) -> str:
    """Draw a plot for wide and for narrow screens, with title, caption and save buttons.

    Args:
        title: Name and title.
        caption: The text above it.
        points: The results.
        x: The x axis.
        y: The y axis.
        chance: What guessing gets on the x and y axes.
        about: The text below a saved plot.
    """
    figures, unnamed = list[str](), list[str]()
    for kind, width in (("wide", WIDE), ("narrow", NARROW)):
        names = _names(points, x, y, width)
        unnamed_here = [point.title for at, point in enumerate(points) if at not in names]
        summary = f"{count(len(unnamed_here))} of {plural(len(points), 'point')} without a name in the plot"
        listing = f"<details><summary>{summary}</summary>{'; '.join(text(title_text, 300) for title_text in unnamed_here)}</details>"
        figures.append(
            f'<figure class="plots {kind}" aria-label="{text(title[1])}">{svg(points, x, y, chance, names, width)}'
            f"{listing if unnamed_here else ''}</figure>"
        )
        unnamed = unnamed_here if kind == "wide" else unnamed  # the wide drawing is the one that is saved
    levels = [level for level in chance if level is not None]
    line = " Dashed: guessing." if any(low == high for low, high in levels) else ""
    band = f" Band: {sentences.RANDOM_RUN}, a sample of guessing." if any(low < high for low, high in levels) else ""
    about += f" Without a name in the plot: {'; '.join(unnamed)}." if unnamed else ""
    save = "".join(
        f'<button type="button" class="link" data-act="{form}" data-of="plot-{title[0]}">Save as {form.upper()}</button>'
        for form in ("svg", "png")
    )
    return (
        f'<section class="plot" data-plot="{title[0]}" data-title="{text(title[1])}" data-about="{text(about, 6000)}">'
        f'<div class="bar-head"><h3>{prose(title[1])}</h3>{save}</div>'
        f'<p class="sub">{prose(f"{caption.strip()}{line}{band}", 2000)}</p>{"".join(figures)}</section>'
    )


def _level(scores: Mapping[str, Score]) -> Level:
    """Return what guessing gets, if all scores agree on it; else None."""
    scored = [score for score in scores.values() if score.chance is not None]
    levels = {score.chance_interval or (round(score.chance or 0.0, 6),) * 2 for score in scored}
    return levels.pop() if len(levels) == 1 else None


def _percent_scale(label: str, values: Sequence[float | None]) -> Scale:
    """Build an axis in percent that covers the values, with round ends and about five ticks."""
    known_values = [value for value in values if value is not None]
    low, high = min(known_values), max(known_values)
    # The smallest step that needs at most eight intervals.
    step = next(step for step in (1.0, 2.0, 5.0, 10.0, 20.0) if (high - low) / step <= 8 or step == 20.0)
    start, end = max(math.floor(low / step) * step, 0.0), min(math.ceil(high / step) * step, 100.0)
    end = end if end > start else start + step
    ticks = tuple((at, f"{at:g}") for at in (start + step * i for i in range(round((end - start) / step) + 1)))
    return Scale(label, start, end, ticks)


def _log_scale(label: str, values: Sequence[float]) -> Scale:
    """Build a logarithmic axis, with ticks between the powers of ten."""
    # A margin keeps the marks off the edges.
    low, high = min(values) / 1.25, max(values) * 1.25
    steps = [m * 10.0**e for e in range(-3, 16) for m in (1, 1.5, 2, 3, 5, 7)]
    return Scale(label, low, high, tuple((at, f"{at:,g}") for at in steps if low <= at <= high), log=True)


def _date_scale(label: str, values: Sequence[float]) -> Scale:
    """Build an axis of years, with a tick at the start of each."""
    low, high = math.floor(min(values)), math.ceil(max(values) + 1e-6)
    return Scale(label, low, high, tuple((float(year), str(year)) for year in range(low, high + 1)))


def _across(x: Scale, value: float, width: float) -> float:
    return LEFT + x.part(value) * (width - RIGHT - LEFT)


def _up(y: Scale, value: float) -> float:
    return HEIGHT - BOTTOM - y.part(value) * (HEIGHT - BOTTOM - TOP)


def svg(
    points: Sequence[Point],
    x: Scale,
    y: Scale,
    chance: tuple[Level, Level],
    names: Mapping[int, str],
    width: float,
) -> str:
    """Draw a plot. If both axes are alike, a diagonal shows where both values are equal.

    Args:
        points: The results.
        x: The x axis.
        y: The y axis.
        chance: What guessing gets on the x and y axes.
        names: Position of a point -> its name (SVG).
        width: Width in pixels.
    """
    marks, levels, right, floor = "", "", width - RIGHT, HEIGHT - BOTTOM
    for at, point in enumerate(points):
        px, bar = _across(x, point.x, width), ""
        if point.low is not None and point.high is not None:
            bar = _line("bar", px, _up(y, point.low), px, _up(y, point.high))
        mark = _shape(point.look, px, _up(y, point.y))
        marks += f'<g class="{point.look}"><title>{text(point.title, 300)}</title>{bar}{mark}{names.get(at, "")}</g>'
    if chance[0] is not None:
        levels += _area(_across(x, chance[0][0], width), TOP, _across(x, chance[0][1], width), floor)
    if chance[1] is not None:
        levels += _area(LEFT, _up(y, chance[1][1]), right, _up(y, chance[1][0]))
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


def _area(x1: float, y1: float, x2: float, y2: float) -> str:
    """Draw what guessing gets: a line if it is exact, a band if it is an interval."""
    if x1 == x2 or y1 == y2:
        return _line("guess", x1, y1, x2, y2)
    return f'<rect class="band" x="{x1:.1f}" y="{y1:.1f}" width="{x2 - x1:.1f}" height="{y2 - y1:.1f}"/>'


def _grid(x: Scale, y: Scale, width: float) -> str:
    """Draw horizontal grid lines and the ticks of both axes, skipping ticks that would overlap."""
    ticks = "".join(
        f"{_line('grid', LEFT, _up(y, at), width - RIGHT, _up(y, at))}"
        f'<text class="end" x="{LEFT - 8:g}" y="{_up(y, at) + 4:.1f}">{tick}</text>'
        for at, tick in y.ticks
    )
    free_from = 0.0  # pixels from the left
    for value, tick in x.ticks:
        at, half = _across(x, value, width), LETTER_WIDTH * len(tick) / 2
        if at - half >= free_from:
            ticks += f'<text class="mid" x="{at:.1f}" y="{HEIGHT - BOTTOM + 18:g}">{tick}</text>'
            free_from = at + half + LETTER_WIDTH
    return ticks


def _shape(kind: str, x: float, y: float) -> str:
    """Draw the mark of a result; its shape shows the kind of model, as everywhere on the board.

    Proprietary models are filled, open ones hollow, medical ones square; baselines are diamonds,
    people triangles.
    """
    if "k-medical" in kind:
        return f'<rect class="pt" x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9"/>'
    if "k-human" in kind:
        return f'<path class="pt" d="M{x:.1f} {y - 6:.1f}l6 11h-12z"/>'
    if "k-baseline" in kind:
        return f'<path class="pt" d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z"/>'
    return f'<circle class="pt" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'


def _names(points: Sequence[Point], x: Scale, y: Scale, width: float) -> dict[int, str]:
    """Place names beside their points, the highest points first.

    A name is placed only where it covers no other name, no point and no edge.

    Returns:
        Position of a point -> its name (SVG), of the points that have room for it.
    """
    centres = [(_across(x, point.x, width), _up(y, point.y)) for point in points]
    # Every point blocks the space that its mark covers.
    boxes = [(px - 6, py - 6, px + 6, py + 6) for px, py in centres]  # left, top, right, bottom
    names: dict[int, str] = {}
    # The best models get their names first.
    for at in sorted(range(len(points)), key=lambda at: -points[at].y):
        (px, py), name = centres[at], points[at].name
        name = name if len(name) <= 40 else name[:39] + "…"
        width_px = LETTER_WIDTH * len(name)
        sides = (("name", px + 8, px + 8), ("name end", px - 8, px - 8 - width_px))
        for (kind, anchor, start), down in product(sides, (0.0, -12.0, 12.0)):
            box = (start, py + down - 7, start + width_px, py + down + 7)
            is_inside = box[0] > LEFT and box[2] < width and box[1] > 0 and box[3] < HEIGHT - BOTTOM
            if is_inside and not any(_overlap(box, obstacle) for obstacle in boxes):
                boxes.append(box)
                names[at] = f'<text class="{kind}" x="{anchor:.1f}" y="{py + down + 4:.1f}">{text(name)}</text>'
                break
    return names


def _overlap(box: tuple[float, ...], obstacle: tuple[float, ...]) -> bool:
    """Return True if two boxes (left, top, right, bottom) touch."""
    return box[0] <= obstacle[2] and box[2] >= obstacle[0] and box[1] <= obstacle[3] and box[3] >= obstacle[1]
