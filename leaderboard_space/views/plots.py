"""Plots for looking rather than reading: ProbMed's fall when adversarial questions join, MediConfusion's accuracy against confusion, and
of every benchmark the score by the models' size, release and tokens.

Inline SVG; every mark says its numbers in its title, and the same numbers stand in the tables. Each is saved as SVG or PNG with its
citation in it (`assets/plots.js`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from leaderboard_space import sentences
from leaderboard_space.benchmarks import spec
from leaderboard_space.data.facets import Path, cells_in
from leaderboard_space.data.identity import identity
from leaderboard_space.data.ranks.groups import display_names
from leaderboard_space.data.ranks.standings import Row, info_of, with_interval
from leaderboard_space.data.tree import UNLABELLED, Tree
from leaderboard_space.html import count, percent, plural, prose, score_text, text
from leaderboard_space.views.parts import look
from leaderboard_space.views.scatter import Point, date_scale, log_scale, percent_scale, svg
from leaderboard_space.views.slopes import Known, level_of, slopes

FEWEST = 3
"""Points of which a plot is made."""


def plot(family: str, rows: Sequence[Row], known: Known, where: str = "", about: str = "") -> str:
    """The plot of a benchmark, or nothing where it has none or too little is known. `where`: a sentence on what it is about; `about`: what
    a saved plot says below."""
    kind = spec(family).plot
    if kind == "slopes":
        return _slopes(rows, known, where, about)
    if kind == "scatter":
        return _confusion(rows, known, where, about)
    return ""


def by_size(rows: Sequence[Row], metric: str, family: str, stated: str, about: str = "") -> str:
    """Scores by the number of parameters, where it is stated. `stated`: what the chart is of."""
    sized = {row.entry.key: row.entry.result.model.parameters for row in rows}
    known = {key: size / 1e9 for key, size in sized.items() if size}
    missing = len({row.entry.result.model.name for row in rows if not sized[row.entry.key] and not row.is_baseline})
    left = f" {plural(missing, 'model')} {'states' if missing == 1 else 'state'} no size." if missing else ""
    return _against(rows, known, metric, family, ("size", "by size", "Parameters (billions)"), f"{stated}{left}", about)


def by_date(rows: Sequence[Row], metric: str, family: str, stated: str, about: str = "") -> str:
    """Scores by the month in which the model was released, where it is known: are newer models better?"""
    known = {}
    for row in rows:
        said = identity(row.entry.result.model.name).released or ""
        if re.fullmatch(r"\d{4}-\d\d.*", said):
            known[row.entry.key] = int(said[:4]) + (int(said[5:7]) - 1) / 12
    return _against(rows, known, metric, family, ("date", "by release date", "First released"), stated, about)


def by_cost(
    rows: Sequence[Row], tokens: Mapping[str, float], metric: str, family: str, stated: str, about: str = ""
) -> str:
    """Scores by what answering cost: tokens per question, of the runs that recorded them. `tokens`: by entry key."""
    axis = ("cost", "by cost", "Input and output tokens per question")
    return _against(rows, tokens, metric, family, axis, stated, about)


def image_types(tree: Tree, branches: Sequence[Path]) -> list[Path]:
    """The branches of ProbMed's image types within a selection, the largest first (as the tree lists them)."""
    labels = [path[1] for path in tree.rows if path[0] == "image_type" and path[1] != UNLABELLED]
    inside = cells_in(branches, {"image_type": dict.fromkeys(labels)})
    return [("image_type", label) for label in labels if not branches or ("image_type", label) in inside]


def frame(name: str, title: str, said: str, drawn: str, about: str) -> str:
    """A plot with its heading and what saves it."""
    return (
        f'<section class="plot" data-plot="{name}" data-title="{text(title)}" data-about="{text(about, 1000)}"><div class="bar-head">'
        f'<h3>{prose(title)}</h3>{saves(name)}</div><p class="sub">{prose(said, 600)}</p>'
        f'<div class="plots"><figure tabindex="0" aria-label="{text(title)}">{drawn}</figure></div></section>'
    )


def saves(name: str) -> str:
    """What saves a plot as a picture."""
    buttons = "".join(
        f'<button type="button" class="link" data-act="{form}" data-of="plot-{name}">{form.upper()}</button>'
        for form in ("svg", "png")
    )
    return f'<details class="save" data-keep="plot-{name}"><summary>Save plot</summary><span>{buttons}</span></details>'


def _slopes(rows: Sequence[Row], known: Known, where: str, about: str) -> str:
    drawn = slopes(rows, known)
    said = (
        "Accuracy without, then with adversarial questions. A model that looks at the image stays level; one that says yes to "
        f"everything falls.{' Short dashes are chance, where it is known.' if 'guess' in drawn else ''} {where}"
    )
    return (
        frame("slopes", "The effect of adversarial questions", said, drawn, f"{about} {where}".strip()) if drawn else ""
    )


def _confusion(rows: Sequence[Row], known: Known, where: str, about: str) -> str:
    accuracy, confusion = known("set_accuracy"), known("confusion")
    points, names = [], display_names([row.entry for row in rows])
    for row in rows:
        a, c = accuracy.get(row.entry.key), confusion.get(row.entry.key)
        if a is None or c is None or a.value is None or c.value is None:
            continue
        name = names[row.entry.key]
        said = f"{name}: set accuracy {percent(a.value)}, confusion {percent(c.value)}"
        points.append(Point(a.value, c.value, name, said, look(row.entry.result.model.kind, a.verdict)))
    if not points:
        return ""
    side, level = level_of(accuracy), level_of(confusion)
    x = percent_scale("Set accuracy (%)", [*(p.x for p in points), *([side] if side is not None else [])])
    y = percent_scale("Confusion (%)", [*(p.y for p in points), *([level] if level is not None else [])])
    said = (
        "x axis: set accuracy. y axis: confusion, how often both images of a pair got the same answer. A model that distinguishes "
        "the images is at the lower right; one that does not look at them is at the upper left."
        f"{' Dashed lines are chance.' if side is not None or level is not None else ''} {where}"
    )
    drawn = svg(points, x, y, "Confusion against set accuracy, one point per result", (side, level))
    return frame("confusion", "Correct, or the same answer twice?", said, drawn, about)


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
    info, (name, title, across) = info_of(metric, family), axis
    points, scores, names = [], {}, display_names([row.entry for row in rows])
    for row in rows:
        score = with_interval(row.score, metric)
        if info.unit != "percent" or score.value is None or known.get(row.entry.key, 0) <= 0 or row.is_baseline:
            continue
        who, value = names[row.entry.key], known[row.entry.key]
        shown = {"size": f"{value:,.1f}", "date": f"{int(value)}-{round(12 * (value % 1)) + 1:02}"}.get(
            name, count(round(value))
        )
        tip = f"{who}: {sentences.in_running_text(info.label)} {score_text(score.value, info.unit)}, {shown}"
        style = look(row.entry.result.model.kind, score.verdict)
        points.append(Point(value, score.value, who, tip, style, score.low, score.high))
        scores[row.entry.key] = score
    if len(points) < FEWEST:
        return ""
    level = level_of(scores)
    ends = [v for p in points for v in (p.y, p.low, p.high) if v is not None]
    y = percent_scale(f"{info.label} (%)", [*ends, *([level] if level is not None else [])])
    x = (date_scale if name == "date" else log_scale)(across, [point.x for point in points])
    full = f"{info.label} {title}"
    if any(point.low is not None for point in points):
        said += " Bars are 95% intervals."
    if level is not None:
        said += " Dashed: guessing."
    return frame(name, full, said, svg(points, x, y, f"{full}, one point per result", (None, level)), about)
