"""Every model on every benchmark: what the first screen shows. No number is an average over benchmarks.

A mark is the test of the row that it leads to, whose interval is drawn, and the first sentence counts these marks: overview and benchmark
say the same. See also: drawing (`views/overview.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dataset_builders.benchmarks import BENCHMARKS
from eval_harness.records.result import Model, Score
from leaderboard_space import headlines
from leaderboard_space.benchmarks import LABELS, spec
from leaderboard_space.data.ranks.groups import order_of
from leaderboard_space.data.ranks.standings import Row, Standings
from leaderboard_space.data.store.sections import Section
from leaderboard_space.headlines import Trust

OFFICIAL = ("complete", "unconfirmed")
"""Kinds of sets whose results stand in the matrix: the official questions."""


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
    """One model. `date`: that of its newest result here, YYYY-MM-DD."""

    name: str
    kind: str | None
    parameters: int | None
    date: str
    cells: dict[str, ScoreCell] = field(default_factory=dict)


@dataclass(frozen=True)
class Overview:
    """The matrix."""

    columns: list[Column]
    lines: list[ModelRow]
    finding: Trust | None

    @property
    def tested(self) -> int:
        """How many of its scores are tested against guessing."""
        return sum(cell.score.verdict is not None for line in self.lines for cell in line.cells.values())


def overview(found: dict[str, list[tuple[Section, Standings]]]) -> Overview:
    """The matrix from the standings of each benchmark's official sets, the complete one first (one row per model and account).

    Where a model has several rows, the one that stands for it is chosen as among its own results (`groups.order_of`).
    """
    columns: list[Column] = []
    held: dict[str, dict[str, ScoreCell]] = {}
    models: dict[str, list[Model]] = {}
    dates: dict[str, list[str]] = {}
    for family in BENCHMARKS:
        sets = [(section, standings) for section, standings in found.get(family, []) if section.kind in OFFICIAL]
        if not sets:
            continue
        section, standings = sets[0]
        chosen: dict[str, list[Row]] = {}
        for _, one in sets:
            here: dict[str, list[Row]] = {}
            for row in sorted(one.models, key=lambda row: order_of(row.entry)):
                here.setdefault(row.entry.result.model.name, []).append(row)
            chosen = here | chosen  # an earlier set's rows stand
        first = [rows[0] for rows in chosen.values()]
        tested = [row for row in first if row.score.verdict is not None]
        drawn = bool(tested) and all(row.run is not None for row in tested)
        levels = {
            round(row.score.chance, 6) for row in tested if row.score.chance is not None and (drawn or not row.run)
        }
        chance = next(iter(levels)) if len(levels) == 1 else None
        columns.append(Column(family, LABELS[family], spec(family).task, section, standings.metric, chance, drawn))
        for name, rows in chosen.items():
            result = rows[0].entry.result
            models.setdefault(name, []).append(result.model)
            dates.setdefault(name, []).append(max(row.entry.result.created_at for row in rows)[:10])
            held.setdefault(name, {})[family] = ScoreCell(rows[0], len(rows))
    lines = [
        ModelRow(
            name,
            next((model.kind for model in models[name] if model.kind), None),
            next((model.parameters for model in models[name] if model.parameters), None),
            max(dates[name]),
            held[name],
        )
        for name in held
    ]
    lines.sort(key=lambda line: (-len(line.cells), _kind_order(line), line.name.lower()))
    return Overview(columns, lines, _finding(columns, lines))


def _kind_order(line: ModelRow) -> int:
    return {"proprietary": 0, "medical": 1, "open": 2}.get(line.kind or "", 3)


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


def selected(found: Overview, kind: str = "") -> list[ModelRow]:
    """The lines of a kind of model, best in the first benchmark first, those without a result in it last."""
    lines = [line for line in found.lines if not kind or line.kind == kind]
    first = found.columns[0].family if found.columns else ""
    there = [line for line in lines if first in line.cells]
    there.sort(key=lambda line: -(line.cells[first].score.value or 0.0))
    return there + [line for line in lines if first not in line.cells]
