"""Draw what other sources report on a benchmark, apart from the board's own results."""

from __future__ import annotations

from typing import NamedTuple

from leaderboard_space.data.published_results import CsvRow
from leaderboard_space.data.ranks.standings import method_name, metric_info
from leaderboard_space.data.reported_results import NOT_STATED, reported_groups, spread
from leaderboard_space.data.tree import display_label
from leaderboard_space.html import count, number, plural, text
from leaderboard_space.views.parts import save_menu
from leaderboard_space.views.tables.table import Column, column, scrollable, table


class ReportedLine(NamedTuple):
    """A reported number, and the group whose cells its row draws; None below the group's first."""

    row: CsvRow
    group: tuple[CsvRow, ...] | None


def reported_parts(family: str) -> tuple[str, str]:
    """Draw what other sources report on a benchmark.

    Args:
        family: Key of the benchmark.

    Returns:
        The sentence with which a chart leaves these numbers out, with a leading space, and the
        closed section (HTML) that lists them; both "" if no source reports any.
    """
    groups = reported_groups(family)
    if not groups:
        return "", ""
    lines = [ReportedLine(row, None if at else group) for group in groups for at, row in enumerate(group)]
    n_sources = len({line.row["source"] for line in lines})
    title = f"Reported elsewhere: {plural(len(lines), 'number')} from {plural(n_sources, 'source')}"
    about = (
        "Others print these numbers without answers that could be scored again. They are never ranked, averaged, "
        "plotted or joined with the results above. Values of one model, split and score stand side by side, with the "
        "points between the lowest and the highest."
    )
    table_html = scrollable(table("reported", title, _columns(family), [("", lines)], "plain left reported"))
    models = len({line.row["model"] for line in lines})
    left_out = f" Not shown: numbers that other sources report on {plural(models, 'model')}; they are listed below."
    section = (
        f'<details class="reported" data-keep="reported"><summary>{text(title)}</summary>'
        f'<p class="fine">{text(about, 400)} {save_menu("reported")}</p>{table_html}</details>'
    )
    return left_out, section


def _columns(family: str) -> list[Column[ReportedLine]]:
    def spanning(line: ReportedLine, tag: str, content: str) -> str:
        """Draw a cell beside all rows of its group."""
        return f'<{tag} rowspan="{len(line.group)}">{content}</{tag[:2]}>' if line.group else ""

    def name(line: ReportedLine) -> str:
        row = line.row
        label = f", {display_label(row['facet'], row['facet_value'])}" if row["facet"] else ""
        score = f"{metric_info(row['metric'], family).label}{label} · {row['split']}"
        return spanning(line, 'th scope="row"', f"<bdi>{text(row['model'])}</bdi> <small>{text(score)}</small>")

    def spread_of_group(line: ReportedLine) -> str:
        return spanning(line, "td", number(spread(line.group)) if line.group and line.group[1:] else "")

    def source(line: ReportedLine) -> str:
        row = line.row
        link = f'<a href="{text(row["link"], 200)}" rel="noopener">{text(row["title"])}</a>'
        note = f'<small class="note">{text(row["note"], 400)}</small>' if row["note"] else ""
        return f"{link} <small>{text(row['place'])}, grade {text(row['grade'])}</small>{note}"

    def harness(line: ReportedLine) -> str:
        parts = dict.fromkeys((method_name(line.row["method"]), line.row["harness"]))
        return text("; ".join(parts), 200)

    return [
        Column("Model and score", name),
        Column("Spread", spread_of_group),
        column("%", lambda line: f"<b>{text(line.row['value'])}</b>", kind="num"),
        column("Method and harness", harness),
        column("n", lambda line: count(int(line.row["n"])) if line.row["n"] else NOT_STATED),
        column("Run by", lambda line: text(line.row["run_by"])),
        column("Trained on its sources", lambda line: text(line.row["trained_on_sources"])),
        column("Date", lambda line: text(line.row["date"]), kind="date"),
        column("Source", source),
    ]
