"""Collect every model's score on every benchmark, as the first screen shows them. No number is
averaged over benchmarks, and no column mixes two question sets.

The mark of a cell shows the test of the leaderboard row to which the cell links, and the first
sentence counts these marks, so overview and leaderboard agree. See also: drawing
(`views/overview.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eval_harness.records.result import Result, Score
from leaderboard_space import headlines
from leaderboard_space.benchmarks import BENCHMARK_LABELS, board_spec
from leaderboard_space.data.ranks.groups import preference_key
from leaderboard_space.data.ranks.standings import Row, Standings
from leaderboard_space.data.store.sections import Section, Snapshot
from leaderboard_space.headlines import TrustCounts


@dataclass(frozen=True)
class BenchmarkColumn:
    """A benchmark with the question set and the metric of its column.

    Args:
        family: Key of the benchmark.
        label: Its name.
        task: What models are asked to do, in words.
        section: The question set.
        metric: The headline metric.
        chance: What guessing gets, in percent; None if it differs by model or is not known.
        is_random_run: True if every test is against the paper's random run, and `chance` is its
            score.
    """

    family: str
    label: str
    task: str
    section: Section
    metric: str
    chance: float | None
    is_random_run: bool


@dataclass(frozen=True)
class ScoreCell:
    """A model's score in a benchmark, taken from the row that represents the model there.

    `results` is the model's number of results in the benchmark.
    """

    row: Row
    results: int

    @property
    def score(self) -> Score:
        return self.row.score


@dataclass(frozen=True)
class ModelRow:
    """A model with its scores.

    Args:
        name: Name of the model.
        kind: proprietary, open, medical; None if not stated.
        parameters: Number of parameters; None if not stated.
        date: Day of its newest result here, YYYY-MM-DD.
        cells: Benchmark -> score.
        elsewhere: Benchmark -> other question sets that the model has results on.
    """

    name: str
    kind: str | None
    parameters: int | None
    date: str
    cells: dict[str, ScoreCell] = field(default_factory=dict)
    elsewhere: dict[str, list[Section]] = field(default_factory=dict)


@dataclass(frozen=True)
class Overview:
    """The matrix of models and benchmarks.

    Args:
        columns: Benchmarks, the one with most models first.
        rows: Models, those with most benchmarks first.
        finding: The numbers of the first sentence; None if no model is tested against guessing.
        other_sets: Question sets without a column, each with the number of the store's own results
            on it.
    """

    columns: list[BenchmarkColumn]
    rows: list[ModelRow]
    finding: TrustCounts | None
    other_sets: list[tuple[Section, int]] = field(default_factory=list)

    @property
    def tested(self) -> int:
        """Number of scores that are tested against guessing."""
        return sum(cell.score.verdict is not None for row in self.rows for cell in row.cells.values())


def overview(sets: Sequence[tuple[Section, Standings]], snapshot: Snapshot) -> Overview:
    """Build the matrix. If a model has several rows in a benchmark, `groups.preference_key` chooses
    the one that represents it.

    Args:
        sets: One question set of each benchmark with its standings (one row per model and account).
        snapshot: All results of the board.
    """
    columns: list[BenchmarkColumn] = []
    cells: dict[str, dict[str, ScoreCell]] = {}
    results: dict[str, list[Result]] = {}
    for section, standings in sorted(sets, key=lambda item: -len(by_model(item[1]))):
        family, rows_of = section.family, by_model(standings)
        columns.append(_column(section, standings.metric, [rows[0] for rows in rows_of.values()]))
        for name, rows in rows_of.items():
            results.setdefault(name, []).extend(row.entry.result for row in rows)
            cells.setdefault(name, {})[family] = ScoreCell(rows[0], len(rows))

    in_columns = {column.section for column in columns}
    other_sets = [section for section in snapshot.all_sections if section not in in_columns]
    # Sets are never merged: results on other sets only get a mark that links to them.
    elsewhere: dict[str, dict[str, list[Section]]] = {}
    for section in other_sets:
        for name in {entry.result.model.name for entry in section.entries}:
            elsewhere.setdefault(name, {}).setdefault(section.family, []).append(section)

    models = [
        ModelRow(
            name,
            next((result.model.kind for result in results[name] if result.model.kind), None),
            next(
                (result.model.parameters for result in results[name] if result.model.parameters),
                None,
            ),
            max(result.created_at for result in results[name])[:10],
            model_cells,
            elsewhere.get(name, {}),
        )
        for name, model_cells in cells.items()
    ]
    # Models with most benchmarks first, so that the first rows are full.
    models.sort(key=lambda row: _order(row, columns[0].family))
    own_results = [(section, sum(entry.folder is not None for entry in section.entries)) for section in other_sets]
    return Overview(
        columns,
        models,
        _finding(columns, models),
        [(section, n) for section, n in own_results if n],
    )


def _column(section: Section, metric: str, rows: Sequence[Row]) -> BenchmarkColumn:
    """Build the column of a question set from the rows that represent its models."""
    family, tested = section.family, [row for row in rows if row.score.verdict is not None]
    # Exact chance and a random run are never mixed in one column's head.
    is_random_run = bool(tested) and all(row.run is not None for row in tested)
    chances = [row.score.chance for row in tested if is_random_run or not row.run]
    levels = {round(chance, 6) for chance in chances if chance is not None}
    chance = levels.pop() if len(levels) == 1 else None
    return BenchmarkColumn(
        family, BENCHMARK_LABELS[family], board_spec(family).task, section, metric, chance, is_random_run
    )


def by_model(standings: Standings) -> dict[str, list[Row]]:
    """Return model -> its rows, the one that represents it first."""
    rows: dict[str, list[Row]] = {}
    for row in sorted(standings.models, key=lambda row: preference_key(row.entry)):
        rows.setdefault(row.entry.result.model.name, []).append(row)
    return rows


def _order(row: ModelRow, first_family: str) -> tuple[int, bool, float, str]:
    """Return the sort key of a row: most benchmarks, then the score in the first, then the name."""
    cell = row.cells.get(first_family)
    return -len(row.cells), cell is None, -((cell and cell.score.value) or 0.0), row.name.lower()


def _finding(columns: list[BenchmarkColumn], rows: list[ModelRow]) -> TrustCounts | None:
    """Choose the numbers of the board's first sentence.

    They are those of the benchmark, among those with exact chance, in which the smallest share of
    models beats guessing.
    """
    findings: list[TrustCounts] = []
    for column in columns:
        # A random run is only a sample, so the first sentence uses benchmarks with exact chance.
        cells = [row.cells[column.family] for row in rows if column.family in row.cells and not column.is_random_run]
        verdicts = [cell.score.verdict for cell in cells if cell.score.verdict is not None]
        if verdicts:
            guess = headlines.chance_name(column.family, column.metric)
            better, worse = verdicts.count("better"), verdicts.count("worse")
            findings.append(TrustCounts(column.task, len(verdicts), better, worse, guess))
    # The smallest share; of equal ones, the benchmark with most models.
    return min(findings, key=lambda trust: (trust.better / trust.models, -trust.models), default=None)
