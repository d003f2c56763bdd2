"""Plots for looking rather than reading: ProbMed's fall when adversarial questions join, MediConfusion's accuracy against confusion.

Inline SVG; every mark says its numbers in its title, and the same numbers stand in the table below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eval_harness.results import Score
from leaderboard_space.benchmarks import spec
from leaderboard_space.data.standings import Row, info_of
from leaderboard_space.data.tree import UNLABELLED, Path, Tree, organ_and_modality
from leaderboard_space.html import number, text

Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in the units of the drawing."""
Known = Callable[[str], dict[str, Score]]
"""Metric -> (entry key -> score)."""

ASPECTS = ("modality", "organ", "condition", "position")
"""Aspects that papers and we score with and without adversarial questions. Abnormality has none, and `overall` mixes both: the two
overalls do not compare, so they are never drawn as one slope."""


def plot(format: str, rows: Sequence[Row], known: Known, where: str = "") -> str:
    """The plot of a benchmark, or nothing where it has none or too little is known. `where`: a sentence on what it is about."""
    kind = spec(format).plot
    if kind == "slopes":
        return _slopes(rows, known, where)
    if kind == "scatter":
        return _scatter(rows, known)
    return ""


def image_types(tree: Tree, branches: Sequence[Path]) -> list[Path]:
    """The branches of ProbMed's image types within a selection, the largest first (as the tree lists them)."""
    found = [path for path in tree.rows if path[0] == "image_type" and path[1] != UNLABELLED]

    def within(path: Path) -> bool:
        place = organ_and_modality(path[1])
        return any(
            path == branch or (branch[0] == "organ" and place[: len(branch) - 1] == branch[1:]) for branch in branches
        )

    return [path for path in found if not branches or within(path)]


def _slopes(rows: Sequence[Row], known: Known, where: str) -> str:
    panels, dashes = "", False
    for aspect in ASPECTS:
        plain, full = known(f"{aspect}_without_adversarial"), known(aspect)
        lines = ""
        for row in rows:
            a, b = plain.get(row.entry.key), full.get(row.entry.key)
            if a is None or b is None or a.value is None or b.value is None:
                continue
            said = f"{row.entry.result.model.name}: {number(a.value)} without, {number(b.value)} with adversarial questions"
            lines += (
                f'<g class="k-{_kind(row)}"><title>{text(said, 200)}</title><line x1="24" x2="136" y1="{_y(a.value)}" y2="{_y(b.value)}"/>'
                f'<circle cx="24" cy="{_y(a.value)}" r="4"/><circle cx="136" cy="{_y(b.value)}" r="4"/></g>'
            )
        if not lines:
            continue
        chance = "".join(
            f'<line class="guess" x1="{x - 12}" x2="{x + 12}" y1="{_y(level)}" y2="{_y(level)}"/>'
            for x, level in ((24, _chance(plain)), (136, _chance(full)))
            if level is not None
        )
        dashes = dashes or bool(chance)
        name = info_of(aspect).label
        panels += (
            f'<figure><figcaption>{text(name)} (%)</figcaption><svg viewBox="-8 0 168 190" role="img" '
            f'aria-label="{text(name)}: accuracy without and with adversarial questions, one line per result">{_axis(160)}{chance}{lines}'
            '<text x="24" y="186" class="mid">without</text><text x="136" y="186" class="mid">with</text></svg></figure>'
        )
    if not panels:
        return ""
    return (
        '<h3>What adversarial questions do</h3><p class="sub">Accuracy without, then with the questions about what is not there. '
        "A model that sees keeps its height; one that says yes to everything falls."
        f"{' Short dashes are chance, where it is known.' if dashes else ''}{' ' if where else ''}{text(where, 300)}</p>"
        f'<div class="plots">{panels}</div>'
    )


def _scatter(rows: Sequence[Row], known: Known) -> str:
    accuracy, confusion = known("set_accuracy"), known("confusion")
    points = []
    for row in rows:
        a, c = accuracy.get(row.entry.key), confusion.get(row.entry.key)
        if a is not None and c is not None and a.value is not None and c.value is not None:
            points.append((_clip(a.value), _clip(c.value), row))
    if not points:
        return ""
    right = next(end for end in (50, 100) if max(x for x, _, _ in points) <= end)

    def across(value: float) -> float:
        return round(40 + 360 * value / right, 1)

    marks = ""
    taken: list[Box] = [_box(across(x), _y(y) + 3, 10, "mid") for x, y, _ in points]
    for x, y, row in sorted(points, key=lambda point: -point[0]):
        name = row.entry.result.model.name
        said = f"{name}: set accuracy {number(x)}, confusion {number(y)}"
        label = _written(text(name, 24), min(len(name), 24), across(x), _y(y), taken)
        marks += f'<g class="k-{_kind(row)}"><title>{text(said, 200)}</title><circle cx="{across(x)}" cy="{_y(y)}" r="4.5"/>{label}</g>'
    ticks = "".join(f'<text x="{across(at)}" y="184" class="mid">{at}</text>' for at in range(0, right + 1, right // 5))
    level, side = _chance(confusion), _chance(accuracy)
    chance = f'<line class="guess" x1="40" x2="400" y1="{_y(level)}" y2="{_y(level)}"/>' if level is not None else ""
    if side is not None and side <= right:
        chance += f'<line class="guess" x1="{across(side)}" x2="{across(side)}" y1="{_y(0)}" y2="{_y(100)}"/>'
    return (
        '<div class="bar-head"><h3>Right, or merely the same twice?</h3></div><p class="sub">Across: set accuracy. Up: confusion, how '
        "often one answer was given for both images of a pair. A model that tells the images apart stands at the lower right; the upper "
        f"left does not look.{' Dashed lines are chance.' if chance else ''} "
        "A dot without a name tells it when pointed at; the table has them all.</p>"
        '<div class="plots wide"><figure tabindex="0" aria-label="Plot"><svg viewBox="-8 -6 456 212" role="img" '
        f'aria-label="Confusion against set accuracy, one dot per result">{_axis(400, 40)}{ticks}{chance}{marks}'
        '<text x="220" y="200" class="mid">Set accuracy (%)</text>'
        '<text x="4" y="90" class="mid" transform="rotate(-90 4 90)">Confusion (%)</text></svg></figure></div>'
    )


def _box(x: float, baseline: float, width: float, anchor: str) -> Box:
    start = {"start": x, "mid": x - width / 2, "end": x - width}[anchor]
    return (start, baseline - 8, start + width, baseline + 2)


def _written(name: str, letters: int, x: float, y: float, taken: list[Box]) -> str:
    """A name beside its dot, on the first side where it covers neither another name, nor a dot, nor the edge; nothing where there is none.

    The place is added to `taken`."""
    for dx, dy, anchor in (
        (8, 3, "start"),
        (-8, 3, "end"),
        (0, -8, "mid"),
        (0, 15, "mid"),
        (7, -6, "start"),
        (7, 12, "start"),
    ):
        left, top, right, bottom = box = _box(x + dx, y + dy, 5.2 * letters, anchor)
        clear = all(left > other[2] or right < other[0] or top > other[3] or bottom < other[1] for other in taken)
        if clear and left > 42 and right < 446 and top > -6 and bottom < 176:
            taken.append(box)
            return f'<text x="{x + dx:.1f}" y="{y + dy:.1f}" class="name {anchor}">{name}</text>'
    return ""


def _axis(width: int, left: int = 16) -> str:
    return "".join(
        f'<line class="grid" x1="{left}" x2="{width}" y1="{_y(at)}" y2="{_y(at)}"/>'
        f'<text x="{left - 4}" y="{_y(at) + 3}" class="end">{at}</text>'
        for at in (0, 50, 100)
    )


def _y(value: float) -> float:
    return round(170 - 1.6 * _clip(value), 1)


def _clip(value: float) -> float:
    return min(max(value, 0.0), 100.0)


def _chance(scores: dict[str, Score]) -> float | None:
    """The chance of a column, where all rows agree on it."""
    found = {round(score.chance, 6) for score in scores.values() if score.chance is not None}
    return found.pop() if len(found) == 1 else None


def _kind(row: Row) -> str:
    return row.entry.result.model.kind or "unstated"
