"""Draw the board's tables from columns given as data: rows of a name, a score, its interval and the
sign of its test.

Every page's table is drawn by `table`. Also here: sortable column heads, the chart of one score,
and cells that link.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from eval_harness.records.result import Score, Verdict
from leaderboard_space import sentences
from leaderboard_space.html import interval, number, score_text, text
from leaderboard_space.views.parts import MODEL_KIND_TITLES, save_menu

RowT = TypeVar("RowT")

TONE_CLASSES: dict[Verdict | None, str] = {
    "better": "better",
    "worse": "worse",
    "no different": "same",
    None: "untested",
}
"""Verdict -> the CSS class that colours a mark."""
VERDICT_TOOLTIPS: dict[Verdict | None, str] = {
    "better": "better than guessing",
    "no different": "not significantly different from guessing",
    "worse": "worse than guessing",
    None: "not tested against guessing",
}
"""Verdict -> its description in a tooltip."""

Axis = tuple[float, float]
"""The ends of a chart, in the score's unit."""
PERCENT_AXIS: Axis = (0.0, 100.0)
NARROW_BAR = 5.0
"""Width in percent of the axis below which an interval would be hidden by its dot. A fine line
marks the score instead.
"""


@dataclass(frozen=True)
class Column(Generic[RowT]):
    """A column of a table.

    Args:
        title: Text of the head; a column without `title` and `under` has an empty head.
        cell: Draws a row's cell: an element `td`, or `th` for the row's name; "" if another cell of
            the row spans this one.
        key: Name by which an address sorts the column; without one it cannot be sorted.
        kind: CSS classes of the head.
        hint: Tooltip of the head.
        under: HTML below the title.
    """

    title: str
    cell: Callable[[RowT], str]
    key: str = ""
    kind: str = ""
    hint: str = ""
    under: str = ""

    @property
    def head(self) -> str:
        """The column's head as HTML: a button if the column can be sorted."""
        title, sort = text(self.title, 80 if self.key else 120), ""
        if self.key:
            hint = f' title="{text(self.hint)}"' if self.hint else ""
            title = f'<button type="button" class="sorts"{hint}><span>{title}</span></button>'
            sort = f' data-sort="{text(self.key, 200)}"'
        # An empty th is an accessibility error.
        is_empty = not self.title and not self.under
        return "<td></td>" if is_empty else f'<th scope="col" class="{self.kind}"{sort}>{title}{self.under}</th>'


def column(
    title: str,
    content: Callable[[RowT], str],
    key: str = "",
    kind: str = "",
    hint: str = "",
    value: Callable[[RowT], float | None] | None = None,
    tooltip: Callable[[RowT], str] = lambda row: "",
) -> Column[RowT]:
    """Build a column whose cells all have the same form.

    Args:
        title: Text of the head.
        content: HTML of a row's cell.
        key: Name by which an address sorts the column.
        kind: CSS classes of head and cells.
        hint: Tooltip of the head.
        value: The number that a cell is sorted by; without it cells are sorted by their text.
        tooltip: Tooltip of a cell; "" for none.
    """

    def cell(row: RowT) -> str:
        title = f' title="{text(hint, 400)}"' if (hint := tooltip(row)) else ""
        opening = f'<td class="{kind}"' if kind else "<td"
        return f"{opening}{title}{sort_attribute(value(row)) if value else ''}>{content(row)}</td>"

    return Column(title, cell, key, kind, hint)


def name_column(title: str, content: Callable[[RowT], str], key: str = "") -> Column[RowT]:
    """Build the column that names the rows. `content` returns the HTML of a name."""
    return Column(title, lambda row: f'<th scope="row">{content(row)}</th>', key)


def html_columns(titles: Sequence[str], name_at: int = 0, number_at: int = -1) -> list[Column[Sequence[str]]]:
    """Build the columns of a table whose rows are sequences of HTML.

    Args:
        titles: The heads.
        name_at: Position of the row's name; -1 for none.
        number_at: Position of the column that is aligned as numbers; -1 for none.
    """

    def html_column(at: int) -> Column[Sequence[str]]:
        kind = "num" if at == number_at else ""
        return (
            column(titles[at], lambda row: row[at], kind=kind)
            if at != name_at
            else name_column(titles[at], lambda row: row[at])
        )

    return [html_column(at) for at in range(len(titles))]


def table(
    name: str,
    label: str,
    columns: Sequence[Column[RowT]],
    groups: Sequence[tuple[str, Sequence[RowT]]],
    kind: str = "plain",
    marks: Callable[[RowT], str] = lambda row: "",
    pinned: Sequence[RowT] = (),
) -> str:
    """Draw a table as HTML.

    Args:
        name: Name in addresses and of the saved file; "" if the table is neither sorted nor saved.
        label: What screen readers announce.
        columns: The columns, from the left.
        groups: Heading (HTML, or "" for none) and rows of each part; parts without rows are left
            out.
        kind: CSS classes of the table.
        marks: The attributes of a row's element `tr`, with a leading space.
        pinned: Rows that stay at the top when the table is sorted.
    """

    def body(heading: str, rows: Sequence[RowT], attribute: str = "") -> str:
        headed = f'<tr class="group"><th colspan="4" scope="rowgroup">{heading}</th></tr>' if heading else ""
        lines = (f"<tr{marks(row)}>{''.join(column.cell(row) for column in columns)}</tr>" for row in rows)
        return f"<tbody{attribute}>{headed}{''.join(lines)}</tbody>" if rows else ""

    # The page's script leaves a body with `data-fixed` in place.
    pinned_body = body("", pinned, " data-fixed")
    bodies = "".join(body(heading, rows) for heading, rows in groups)
    heads = "".join(column.head for column in columns) if any(column.title for column in columns) else ""
    return (
        f'<table class="{kind}"{f" data-table={chr(34)}{name}{chr(34)}" if name else ""} aria-label="{text(label, 300)}">'
        f"{f'<thead><tr>{heads}</tr></thead>' if heads else ''}{pinned_body}{bodies}</table>"
    )


def scrollable(table_html: str) -> str:
    """Wrap a table so that it scrolls sideways if it is too wide."""
    return f'<div class="scroll">{table_html}</div>'


def titled_table(
    title: str,
    name: str,
    columns: Sequence[Column[RowT]],
    rows: Sequence[RowT],
    kind: str = "plain",
) -> str:
    """Draw a table under its title, with the buttons that save it.

    Args:
        title: The title.
        name: Name in addresses and of the saved file.
        columns: The columns, from the left.
        rows: The rows.
        kind: CSS classes of the table.
    """
    table_html = scrollable(table(name, f"Table of {name}", columns, [("", rows)], kind))
    return f'<div class="bar-head"><h3>{text(title)}</h3>{save_menu(name)}</div>{table_html}'


def mark_classes(kind: str | None, verdict: Verdict | None) -> str:
    """Return the CSS classes of a result's mark.

    On every page its shape shows the kind of model, its colour the verdict.

    Args:
        kind: Kind of model; None if not stated.
        verdict: Test against guessing; None if not tested.
    """
    return f"k-{kind if kind in MODEL_KIND_TITLES else 'unstated'} v-{TONE_CLASSES[verdict]}"


def sort_attribute(value: float | None) -> str:
    """Return the attribute with the unrounded number that a cell is sorted by; empty if none."""
    return f' data-v="{value!r}"' if value is not None and math.isfinite(value) else ' data-v=""'


def score_tooltip(score: Score) -> str:
    """Describe what a score is based on and what guessing gets, for its tooltip."""
    chance = f", chance {number(score.chance)}" if score.chance is not None else ""
    run = " (a random run, {} to {})".format(*map(number, score.chance_interval)) if score.chance_interval else ""
    return f"{sentences.format_basis(score)}{chance}{run}"


def few_class(score: Score) -> str:
    """Return the class that greys a score of too few cases, with a leading space."""
    return " few" if score.n_cases < sentences.MIN_CASES or score.is_small else ""


def fit_axis(scores: Iterable[Score], unit: str = "percent") -> Axis:
    """Choose an axis that covers every score, interval and level of chance, with round ends.

    The ends are tens for percentages; counts run from 0 to 1, 2 or 5 times a power of ten.

    Args:
        scores: The scores.
        unit: Their unit, as `MetricInfo.unit`.
    """
    ends = [
        value
        for score in scores
        for value in (
            score.value,
            score.low,
            score.high,
            score.chance,
            *(score.chance_interval or ()),
        )
        if value is not None and math.isfinite(value)
    ]
    lowest, highest = min(ends, default=0.0), max(ends, default=0.0)
    if unit != "percent":
        # Counts: 1, 2 or 5 times a power of ten.
        power = 10 ** math.floor(math.log10(max(highest, 1.0)))
        return 0.0, next(step * power for step in (1.0, 2.0, 5.0, 10.0) if highest <= step * power)
    end = min(max(math.ceil(highest / 10 - 1e-9) * 10.0, 10.0), 100.0)
    start = max(math.floor(lowest / 10 + 1e-9) * 10.0, 0.0)
    return (start if end - start >= 10 else 0.0), end


def draw_chart(score: Score, axis: Axis, hollow: float | None = None) -> str:
    """Draw interval, score and chance on an axis.

    Screen readers skip the chart, since the numbers are beside it.

    Args:
        score: Chance is drawn as a line, or as a band if it is a random run with an interval of its
            own.
        axis: The ends of the axis.
        hollow: A second value to compare the score with, drawn as a hollow mark.
    """

    def at(value: float) -> float:
        """Return the position of a value, in percent of the axis."""
        return min(max(100 * (value - axis[0]) / (axis[1] - axis[0]), 0.0), 100.0)

    marks = (
        ("band", score.chance_interval or (None,)),
        ("chance", (score.chance,)),
        ("bar", (score.low, score.high)),
        ("rest", (hollow,)),
        ("pt", (score.value,)),
    )
    mark_html, narrow = "", ""
    for kind, ends in marks:
        spots = [at(end) for end in ends if end is not None and math.isfinite(end)]
        if len(spots) == len(ends):
            width = f";width:{spots[-1] - spots[0]:.2f}%" if len(ends) > 1 else ""
            mark_html += f'<i class="{kind}" style="left:{spots[0]:.2f}%{width}"></i>'
            # An interval narrower than the dot would be invisible.
            narrow = " narrow" if kind == "bar" and spots[-1] - spots[0] < NARROW_BAR else narrow
    return f'<span class="track{narrow}" aria-hidden="true">{mark_html}</span>'


def score_column_group(
    score_of: Callable[[RowT], Score | None],
    titles: tuple[str, str, str] = ("", "", ""),
    unit_of: Callable[[RowT], str] = lambda row: "percent",
    sign_of: Callable[[Score], str] = lambda score: "",
    tooltip_of: Callable[[Score], str] = lambda score: "",
    why_of: Callable[[RowT], str] = lambda row: "",
) -> list[Column[RowT]]:
    """Build the columns of a score: value, chart on an axis from 0 to 100, and 95 % interval.

    Args:
        score_of: A row's score; None draws `why_of` across the three columns.
        titles: The heads.
        unit_of: Unit of a row's score, as `MetricInfo.unit`.
        sign_of: HTML after the value, such as the sign of its test.
        tooltip_of: Tooltip of the value.
        why_of: Why a row has no score (HTML).
    """

    def cell(
        draw: Callable[[RowT, Score], str], draw_missing: Callable[[RowT], str] = lambda row: ""
    ) -> Callable[[RowT], str]:
        return lambda row: draw_missing(row) if (score := score_of(row)) is None else draw(row, score)

    def value(row: RowT, score: Score) -> str:
        title = f' title="{text(tooltip, 200)}"' if (tooltip := tooltip_of(score)) else ""
        return f'<td class="num"{title}><b>{score_text(score.value, unit_of(row))}</b>{sign_of(score)}</td>'

    values = cell(value, lambda row: f'<td colspan="3">{why_of(row)}</td>')
    chart = cell(lambda row, score: f'<td class="chart">{draw_chart(score, PERCENT_AXIS)}</td>')
    ends = cell(lambda row, score: f'<td class="num">{interval(score)}</td>')
    return [
        Column(titles[0], values, kind="num"),
        Column(titles[1], chart),
        Column(titles[2], ends, kind="num"),
    ]


def matrix_cell(
    title: str,
    score: Score | None,
    address: str = "",
    about: Sequence[str] = (),
    is_muted: bool = False,
    suffix: str = "",
) -> str:
    """Draw a cell of a table of models as a link: number, sign, interval and dot.

    The axis runs from 0 to 100; a dash is drawn if there is no score.

    Args:
        title: Title of the column, which narrow screens show in the cell.
        score: The score, in percent.
        address: Where the cell leads.
        about: What else the tooltip says.
        is_muted: Draw the cell in grey and without a sign, since the score ranks no model.
        suffix: HTML after the link.
    """
    if score is None:
        return f'<td class="none" data-b="{text(title)}" data-v="">–{suffix}</td>'
    # A score whose answer is the label itself ranks no model, so it has no sign.
    tone, sign = ("muted", "") if is_muted else (f"v-{TONE_CLASSES[score.verdict]}", sentences.verdict_sign(score))
    basis = text(
        ", ".join(
            [
                *([] if is_muted else [VERDICT_TOOLTIPS[score.verdict]]),
                sentences.format_basis(score),
                *about,
            ]
        ),
        300,
    )
    return (
        f'<td class="{tone}{few_class(score)}" data-b="{text(title)}" title="{basis}"{sort_attribute(score.value)}>'
        f'<a class="c" href="{address}"><b>{score_text(score.value)}</b><span class="mark" aria-hidden="true">{sign}</span>'
        f'<span class="hear"> {basis}</span>{draw_chart(score, PERCENT_AXIS)}</a>{suffix}</td>'
    )
