"""Draw what stands beside a leaderboard and is never ranked: people on the questions that models
answered too, and numbers that other sources report.

Reported numbers are rows of `published/reported.csv`, without answers that could be scored again.
They never become results, so nothing can rank, average, plot or join them with the numbers of the
board. See also: published answers that were scored again (`data/published_results.py`).
"""

from contextlib import suppress
from functools import cache
from typing import NamedTuple

from dataset_builders.errors import BadInput
from eval_harness.derive.run_files import read_readings
from eval_harness.store.comparison import Side
from eval_harness.store.reader_study import ModelContrast, ReaderGroup, study_readers
from leaderboard_space.benchmarks import board_spec, method_name, metric_info
from leaderboard_space.data.board import Board
from leaderboard_space.data.cache import READING, cached
from leaderboard_space.data.published_results import CsvRow, read_table, sources
from leaderboard_space.data.sections import (
    RANKED_GROUPS,
    Section,
    Snapshot,
    preference_key,
    ranking_group,
    row_owner,
)
from leaderboard_space.data.tree import display_label
from leaderboard_space.export import Table
from leaderboard_space.html import count, number, plural, score_text, text
from leaderboard_space.sentences import format_difference_interval
from leaderboard_space.views.parts import save_menu
from leaderboard_space.views.tables.table import Column, column, name_column, scrollable, table

NOT_STATED = "not stated"
GROUP_COLUMNS = ("split", "model", "metric", "facet", "facet_value")
"""Rows of a benchmark that are equal in these columns stand side by side."""


@cache
def reported_groups(family: str) -> tuple[tuple[CsvRow, ...], ...]:
    """Return what other sources report on a benchmark: the rows of each model, split and score.

    Args:
        family: Key of the benchmark.

    Returns:
        One tuple of rows per group, in the order of the table. Each row has the columns of
        `reported.csv` and those of its source (`sources.csv`).
    """
    groups: dict[tuple[str, ...], list[CsvRow]] = {}
    for row in read_table("reported"):
        if row["benchmark"] == family:
            # The row's own date and id take precedence over those of the source.
            groups.setdefault(tuple(row[name] for name in GROUP_COLUMNS), []).append(sources()[row["source"]] | row)
    return tuple(map(tuple, groups.values()))


def reported_table(family: str) -> Table:
    """Convert what other sources report on a benchmark to plain rows, of kind `reported`."""
    return [
        {"kind": "reported", **row, "value": float(row["value"]), "n": int(row["n"]) if row["n"] else None}
        for group in reported_groups(family)
        for row in group
    ]


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
        """Draw the points between the lowest and the highest value of a group."""
        values = [float(row["value"]) for row in line.group or ()]
        return spanning(line, "td", number(max(values) - min(values)) if values[1:] else "")

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


READERS_NOTE = "People answer under a pseudonym: no one can verify who, and with what help. They are not ranked."


@cached(READING)
def reader_groups(board: Board, snapshot: Snapshot, section: Section) -> list[ReaderGroup]:
    """Compare people with models, on the questions of a section or a part of the same benchmark.

    Args:
        board: The board.
        snapshot: Its current snapshot.
        section: The section, which is one of the snapshot's.

    Returns:
        The groups of readers; empty without any.
    """
    sections = [part for part in snapshot.sections[section.family] if _source(part) == _source(section)]
    if not any(entry.result.model.kind == "human" for part in sections for entry in part.entries):
        return []
    sides: dict[tuple[object, ...], Side] = {}
    for part in sections:
        for entry in sorted(part.entries, key=preference_key):
            # A person may have read several parts; of a model, one result is enough.
            identity = (row_owner(entry), part.key if entry.result.model.kind == "human" else "")
            if entry.derived is None or ranking_group(entry) not in RANKED_GROUPS or identity in sides:
                continue
            with suppress(BadInput, OSError, ValueError):
                questions = board.questions(part.fingerprint or "")
                sides[identity] = Side(entry.key, entry.result, read_readings(entry.derived), questions)
    return study_readers(list(sides.values()))


def _source(section: Section) -> tuple[str, str, bool]:
    """What the questions of readers and models have in common; drawn images never mix with real."""
    return section.benchmark, section.split, section.kind == "phantom"


def readers_part(groups: list[ReaderGroup]) -> str:
    """Draw the readers, what they have in common, and a row for each reader and model, as HTML."""
    if not groups:
        return ""
    case = board_spec(groups[0].family).case
    lines = [READERS_NOTE, *(" ".join(group.sentences(case, with_models=False)) for group in groups)]
    columns: list[Column[ModelContrast]] = [
        name_column("Reader", lambda row: text(row.reader, 100)),
        column("Model", lambda row: text(row.model, 100)),
        column(f"{case.capitalize()}s", lambda row: str(row.n), kind="num"),
        column("Reader (%)", lambda row: score_text(row.reader_value, "percent"), kind="num"),
        column("Model (%)", lambda row: score_text(row.model_value, "percent"), kind="num"),
        column(
            "Model minus reader (points, 95% interval)",
            lambda row: f"<b>{number(-row.lower)}</b> ({format_difference_interval(-row.high, -row.low)})",
            kind="num",
        ),
    ]
    contrasts: list[ModelContrast] = [contrast for group in groups for contrast in group.contrasts]
    title = "Readers and models on the same questions"
    rows = scrollable(table("readers", title, columns, [("", contrasts)], "plain")) if contrasts else ""
    paragraphs = "".join(f'<p class="sub">{text(line, 2000)}</p>' for line in lines)
    return f'<div class="bar-head"><h3>{title}</h3></div>{paragraphs}{rows}'
