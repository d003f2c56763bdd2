"""Every model on every benchmark: what the first screen shows. No number is an average over benchmarks, and no column holds two sets.

A mark is the test of the row that it leads to, whose interval is drawn, and the first sentence counts these marks: overview and benchmark
say the same. See also: drawing (`views/overview.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eval_harness.records.result import Result, Score
from leaderboard_space import headlines
from leaderboard_space.benchmarks import LABELS, spec
from leaderboard_space.data.ranks.groups import order_of
from leaderboard_space.data.ranks.standings import Row, Standings
from leaderboard_space.data.store.sections import Section, Snapshot
from leaderboard_space.headlines import Trust


@dataclass(frozen=True)
class Column:
    """One benchmark: its section and headline metric. `chance`: what guessing gets; `drawn`: every test is against the paper's random
    run, and `chance` is that."""

    family: str
    label: str
    task: str
    section: Section
    metric: str
    chance: float | None
    drawn: bool


@dataclass(frozen=True)
class ScoreCell:
    """A model's score in one benchmark, that of the row that stands for it, one of `results`."""

    row: Row
    results: int

    @property
    def score(self) -> Score:
        return self.row.score


@dataclass(frozen=True)
class ModelRow:
    """One model. `date`: that of its newest result here, YYYY-MM-DD. `elsewhere`: benchmark -> other sets that it has results on."""

    name: str
    kind: str | None
    parameters: int | None
    date: str
    cells: dict[str, ScoreCell] = field(default_factory=dict)
    elsewhere: dict[str, list[Section]] = field(default_factory=dict)


@dataclass(frozen=True)
class Overview:
    """The matrix, the benchmark that knows most models first. `apart`: sets that are no column, with how many results the store has of
    each."""

    columns: list[Column]
    lines: list[ModelRow]
    finding: Trust | None
    apart: list[tuple[Section, int]] = field(default_factory=list)

    @property
    def tested(self) -> int:
        """How many of its scores are tested against guessing."""
        return sum(cell.score.verdict is not None for line in self.lines for cell in line.cells.values())


def overview(sets: Sequence[tuple[Section, Standings]], snapshot: Snapshot) -> Overview:
    """The matrix from the standings of one set of each benchmark (one row per model and account).

    Where a model has several rows, the one that stands for it is chosen as among its own results (`groups.order_of`).
    """
    columns: list[Column] = []
    cells: dict[str, dict[str, ScoreCell]] = {}
    models: dict[str, list[Result]] = {}
    for section, standings in sorted(sets, key=lambda one: -len(by_model(one[1]))):
        chosen = by_model(standings)
        tested = [rows[0] for rows in chosen.values() if rows[0].score.verdict is not None]
        drawn = bool(tested) and all(row.run is not None for row in tested)
        levels = {
            round(row.score.chance, 6) for row in tested if row.score.chance is not None and (drawn or not row.run)
        }
        chance = next(iter(levels)) if len(levels) == 1 else None
        family = section.family
        columns.append(Column(family, LABELS[family], spec(family).task, section, standings.metric, chance, drawn))
        for name, rows in chosen.items():
            models.setdefault(name, []).extend(row.entry.result for row in rows)
            cells.setdefault(name, {})[family] = ScoreCell(rows[0], len(rows))
    in_columns = {column.section for column in columns}
    others = [section for section in snapshot.all_sections if section not in in_columns]
    elsewhere: dict[str, dict[str, list[Section]]] = {}
    for section in others:
        for name in {entry.result.model.name for entry in section.entries}:
            elsewhere.setdefault(name, {}).setdefault(section.family, []).append(section)
    lines = [
        ModelRow(
            name,
            next((result.model.kind for result in models[name] if result.model.kind), None),
            next((result.model.parameters for result in models[name] if result.model.parameters), None),
            max(result.created_at for result in models[name])[:10],
            cells[name],
            elsewhere.get(name, {}),
        )
        for name in cells
    ]
    first = columns[0].family if columns else ""
    lines.sort(key=lambda line: (-len(line.cells), *_order(line.cells.get(first)), line.name.lower()))
    measured = [(one, sum(entry.folder is not None for entry in one.entries)) for one in others]
    return Overview(columns, lines, _finding(columns, lines), [(one, n) for one, n in measured if n])


def by_model(standings: Standings) -> dict[str, list[Row]]:
    """Model -> its rows, the one that stands for it first."""
    rows: dict[str, list[Row]] = {}
    for row in sorted(standings.models, key=lambda row: order_of(row.entry)):
        rows.setdefault(row.entry.result.model.name, []).append(row)
    return rows


def _order(cell: ScoreCell | None) -> tuple[bool, float]:
    return (True, 0.0) if cell is None else (False, -(cell.score.value or 0.0))


def _finding(columns: list[Column], lines: list[ModelRow]) -> Trust | None:
    """The numbers of the one sentence: of the benchmark with exact chance in which the fewest models are better than guessing."""
    found: list[tuple[float, int, Trust]] = []
    for column in columns:
        if column.drawn:
            continue
        marks = [line.cells[column.family].score.verdict for line in lines if column.family in line.cells]
        marks = [mark for mark in marks if mark is not None]
        if marks:
            better, worse = marks.count("better"), marks.count("worse")
            guess = headlines.guessing(column.family, column.metric)
            trust = Trust(column.task, len(marks), better, worse, guess)
            found.append((better / len(marks), -len(marks), trust))
    return min(found, key=lambda item: item[:2])[2] if found else None
