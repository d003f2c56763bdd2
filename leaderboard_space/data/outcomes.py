"""Align the scored units of a section's runs, and score all runs on a selection of units at once.

A vectorised version of the statistics in `eval_harness.scores`, so that ticking a branch takes
milliseconds; a test compares the two. See also: which runs belong together (`sections.py`),
the tree of branches (`tree.py`), drawing (`views/`).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dataset_builders.errors import BadInput
from dataset_builders.facets import positions_by_labels
from dataset_builders.fingerprints import fingerprint_questions
from eval_harness.derive.derivation import UNIT_ID_COLUMNS, UNIT_NUMBER_COLUMNS
from eval_harness.derive.metrics import BALANCED_METRICS, METRICS
from eval_harness.derive.run_files import read_question_file
from eval_harness.records.result import Score
from eval_harness.scores import intervals
from eval_harness.scores.comparisons import OutcomeMatrix, compare_pairwise
from eval_harness.scores.grading import apply_nonresponse, decisive_nonresponse, numerator_if_lost_right
from eval_harness.scores.intervals import INTERVAL_METHOD, clustered_intervals
from leaderboard_space.benchmarks import board_spec
from leaderboard_space.data.cache import COMPUTING, cached

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

EMPTY_SCORE = Score(value=None, n=0, n_cases=0)
"""The score if no unit counts."""


@dataclass(frozen=True)
class MetricUnits:
    """One metric of R runs over the same U units, sorted by cluster.

    Arrays of shape (R, U); all but `top` have shape (1, U) if the runs share them:
    - `top`: numerators.
    - `base`: denominators.
    - `expected`: numerators that guessing would get; NaN if chance is unknown.
    - `count`: what a unit adds to n.
    - `ends`: five arrays, the response outcomes (`grading.RESPONSE_COUNT_COLUMNS`).
    - `unsettled`: `grading.UNSETTLED_COLUMN`; None if no response is lost.

    Arrays of shape (U,):
    - `case`, `cluster`: numbers of the unit's case and cluster.
    - `balanced`: number of the unit's group, if the metric is a mean over equally weighted groups.

    `keeps_value` (R,) marks the runs that keep their score even if most responses are
    non-responses. `is_count`: the value is a sum, not a share.
    """

    top: Floats
    base: Floats
    expected: Floats
    count: Ints
    ends: tuple[NDArray[Any], ...]
    case: Ints
    cluster: Ints
    keeps_value: Bools
    is_count: bool = False
    balanced: Ints | None = None
    unsettled: Floats | None = None

    def part(self, rows: Ints | None = None, runs: Ints | None = None) -> "MetricUnits":
        """Select units and runs, with the weights rebalanced.

        Args:
            rows: Unit positions in ascending order, possibly repeated; None for all.
            runs: Run positions; None for all.
        """
        at = slice(None) if rows is None else rows

        def some(values: NDArray[Any]) -> NDArray[Any]:
            return (values if runs is None or len(values) == 1 else values[runs])[:, at]

        top, base, expected = some(self.top), some(self.base), some(self.expected)
        balanced = self.balanced
        if rows is not None and self.balanced is not None:
            balanced = self.balanced[rows]
            if self.is_count:  # a mean of counts over groups: rescale it to the groups that remain
                top = top * (np.unique(self.balanced).size / max(np.unique(balanced).size, 1))
            else:
                even = even_weights(balanced, base)
                top, base, expected = top * even, base * even, expected * even
        return replace(
            self,
            top=top,
            base=base,
            expected=expected,
            count=some(self.count),
            ends=tuple(map(some, self.ends)),
            case=self.case[at],
            cluster=self.cluster[at],
            balanced=balanced,
            keeps_value=self.keeps_value if runs is None else self.keeps_value[runs],
            unsettled=None if self.unsettled is None else some(self.unsettled),
        )

    def run(self, run: int) -> tuple[Floats, Floats]:
        """Return the (U,) numerators and denominators of one run."""
        return self.top[run], self.base[run if len(self.base) > 1 else 0]

    def shares(self) -> Floats:
        """Compute the (R,) shares from 0 to 1; NaN if nothing counts or most responses are
        non-responses.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = self.top.sum(axis=1) / np.broadcast_to(self.base.sum(axis=1), len(self.top))
        are_silent = 2 * self.ended[:, 1:].sum(axis=1) > self.ended[:, 0]
        return np.where(self.keeps_value | ~are_silent, shares, np.nan)

    @cached_property
    def ended(self) -> Ints:
        """(R, 5) counts of response outcomes per run (`grading.RESPONSE_COUNT_COLUMNS`)."""
        sums = [counts.sum(axis=1, dtype=np.int64) for counts in self.ends]
        return np.stack([np.broadcast_to(counts, len(self.top)) for counts in sums], axis=1)

    @cached_property
    def starts(self) -> Ints:
        """Position of each cluster's first unit."""
        return np.flatnonzero(np.r_[True, np.diff(self.cluster) != 0][: self.cluster.size])


def score_runs(units: MetricUnits, higher_is_better: bool | None = True) -> list[Score]:
    """Score every run on all of `units`, as `derive.metrics.summarise_units` does.

    Args:
        units: The units.
        higher_is_better: Direction of the metric; None for metrics without one, which get no
            verdict.

    Returns:
        One score per run, in percent unless the metric is a count; EMPTY_SCORE if no unit counts.
    """
    scores = _score_units(units, higher_is_better)
    # A verdict stands only if it would be the same with all lost responses counted as correct.
    best = scores
    if units.unsettled is not None:
        best = _score_units(
            replace(units, top=numerator_if_lost_right(units.top, units.base, units.unsettled)), higher_is_better
        )
    for run, (score, best_score) in enumerate(zip(scores, best, strict=True)):
        silent = decisive_nonresponse(units.ended[run], score.verdict == best_score.verdict)
        scores[run] = apply_nonresponse(score, silent, bool(units.keeps_value[run]))
    return scores


def _score_units(units: MetricUnits, higher_is_better: bool | None) -> list[Score]:
    runs = units.top.shape[0]
    counted = units.base > 0
    if not counted.any():
        return [EMPTY_SCORE] * runs
    n = np.broadcast_to((counted * units.count).sum(axis=1), runs)
    n_cases = np.broadcast_to(_count_distinct(counted, units.case), runs)
    top = units.top.sum(axis=1)
    if units.is_count:
        return [
            Score(value=float(_rounded(top[run])), n=int(n[run]), n_cases=int(n_cases[run]))
            if n[run]
            else EMPTY_SCORE  # a count over no units is undefined, not 0
            for run in range(runs)
        ]
    total = np.broadcast_to(units.base.sum(axis=1), runs)
    # Runs without a counted unit give NaN and become EMPTY_SCORE below.
    with np.errstate(invalid="ignore", divide="ignore"):
        share = top / total
        chance = np.broadcast_to(_chance_sums(units, counted), runs) / total
    numbers = np.stack([share, *_intervals(units, counted)])
    numbers[:3] *= 100
    levels = [level if math.isfinite(level) else None for level in _rounded(100 * chance).tolist()]
    return [
        Score(
            value=value,
            low=low,
            high=high,
            n=size,
            n_cases=cases,
            n_effective=n_effective,
            chance=level,
            verdict=intervals.verdict_against_chance(low, high, n_effective, level, higher_is_better),
            interval_method=INTERVAL_METHOD,
        )
        if denominator > 0
        else EMPTY_SCORE
        for (value, low, high, n_effective), level, size, cases, denominator in zip(
            _rounded(numbers).T.tolist(), levels, n.tolist(), n_cases.tolist(), total.tolist(), strict=True
        )
    ]


def _count_distinct(counted: Bools, case: Ints) -> Ints:
    """Count distinct cases among the counted units, per row (1 or R rows)."""
    return np.array([np.count_nonzero(np.bincount(case[row])) if row.any() else 0 for row in counted])


def _chance_sums(units: MetricUnits, counted: Bools) -> Floats:
    """Sum the expected numerators of a guesser, per row (1 or R rows); NaN if any is unknown."""
    has_chance = np.isfinite(units.expected) | ~counted
    return np.where(has_chance.all(axis=1), np.where(counted & has_chance, units.expected, 0.0).sum(axis=1), np.nan)


def even_weights(group: Ints, base: Floats) -> Floats:
    """Compute (1, U) or (R, U) factors that scale each group's denominators to a sum of 1."""
    sums = np.stack([np.bincount(group, row) for row in base])
    with np.errstate(divide="ignore"):
        return np.where(sums > 0, 1 / sums, 0.0)[:, group]


def _intervals(units: MetricUnits, counted: Bools) -> tuple[Floats, Floats, Floats]:
    """Compute (low, high, effective sample size) of all runs, as shares; NaN if nothing counts."""
    top, starts = units.top, units.starts
    # Fast path: all runs share the denominators, so one pass scores them together.
    if len(units.base) == 1 and counted.all():
        base = units.base[0]
        sums, weight = np.add.reduceat(top, starts, axis=1), np.add.reduceat(base, starts)
        sizes = np.diff(np.r_[starts, base.size])
        return clustered_intervals(sums, np.square(top).sum(axis=1), top @ base, weight, float(base @ base), sizes)
    bounds = np.full((3, len(top)), np.nan)
    for run in range(len(top)):
        interval = intervals.clustered_interval(*units.run(run), units.cluster)
        if interval is not None:
            bounds[:, run] = interval.low, interval.high, interval.n_effective
    return bounds[0], bounds[1], bounds[2]


def _rounded(values: Floats) -> Floats:
    """Round to ten decimals, as in result files; adding 0.0 turns -0.0 into 0.0."""
    return np.round(values, 10) + 0.0


def pairwise_p_values(units: MetricUnits) -> Floats:
    """Test all pairs of runs for equal performance (`comparisons.compare_pairwise`).

    Returns:
        (R, R) uncorrected p-values.
    """
    runs = units.top.shape[0]
    outcomes = OutcomeMatrix(
        models=tuple(str(run) for run in range(runs)),
        metric="",
        numerator=np.ascontiguousarray(units.top, dtype=np.float32),
        denominator=np.broadcast_to(units.base.astype(np.float32), units.top.shape),
        cluster=units.cluster,
        units=np.empty(0, dtype=object),
        paired=len(units.base) == 1,
    )
    return compare_pairwise(outcomes).p


@dataclass(frozen=True)
class UnitIndex:
    """Positions of each unit's question (-1 for units of a whole case) and case."""

    question: Ints
    case: Ints


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The scored units of runs on the same questions: per metric, an array of runs x units.

    `runs` are the entry keys in row order.
    """

    family: str
    questions: pd.DataFrame
    runs: list[str]
    metrics: dict[str, MetricUnits]
    unit_index: dict[str, UnitIndex]
    case_of_question: Ints

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Entry key -> row of its run."""
        return {key: at for at, key in enumerate(self.runs)}

    @cached(COMPUTING)
    def rows_by_label(self, facet: str) -> dict[str, Ints]:
        """Map a facet's labels to question positions; empty without such a facet."""
        return {label: at for (label,), at in positions_by_labels(self.questions, (facet,)).items()}

    def rows(self, metric: str, selected: Bools | None) -> Ints | None:
        """Select the units that count for a selection of questions.

        Args:
            metric: The metric.
            selected: (Q,) mask of questions; None for all.

        Returns:
            Unit positions in ascending order, repeated as often as they count; None for all units.
        """
        if selected is None:
            return None
        index = self.unit_index[metric]
        per_case = np.bincount(self.case_of_question, selected, minlength=int(self.case_of_question.max(initial=0)) + 1)
        of_case = per_case[index.case].astype(np.int64)
        # A pair of MediConfusion counts once per selected question, other cases once.
        if not board_spec(self.family).per_image:
            of_case = np.minimum(of_case, 1)
        # A unit of one question counts once if the question is selected, a unit of a case as above.
        times = np.where(index.question >= 0, selected[index.question].astype(np.int64), of_case)
        return np.repeat(np.arange(times.size), times)


def read_questions(path: Path, expected: str) -> pd.DataFrame:
    """Read a questions file.

    Args:
        path: The Parquet file.
        expected: The fingerprint that its questions must have.

    Returns:
        The questions; list columns contain Python lists.

    Raises:
        BadInput: If the file is missing, unreadable, or contains questions with another
            fingerprint.
    """
    try:
        frame = read_question_file(path)
        is_named = fingerprint_questions(frame) == expected
    except FileNotFoundError:
        raise BadInput(f"{path.name}: the questions are not in the store.") from None
    except Exception as error:  # a damaged file must not stop the board, whatever is wrong with it
        raise BadInput(f"{path.name}: the questions cannot be read ({type(error).__name__}: {error}).") from None
    if not is_named:
        raise BadInput(f"{path.name}: its questions do not match its name (different fingerprint).")
    return frame


NumberArray = NDArray[Any]


def read_outcomes(
    family: str, questions: pd.DataFrame, paths: Mapping[str, Path], official: Collection[str] = ()
) -> tuple[Outcomes | None, dict[str, str]]:
    """Read and align the units of runs.

    Args:
        family: The benchmark.
        questions: The questions that all runs answered.
        paths: Entry key -> units file (`derive/run_files.py`).
        official: Keys of the entries that were read by the benchmark authors' own reader.

    Returns:
        The aligned units, None if no file could be read; and entry key -> problem.
    """
    shared_units: pa.Table | None = None
    columns: dict[str, list[NumberArray]] = {name: [] for name in UNIT_NUMBER_COLUMNS}
    runs, problems = list[str](), dict[str, str]()
    for key, path in paths.items():
        try:
            run_units, numbers = _read_units(path)
            if shared_units is not None and not run_units.equals(shared_units):
                raise BadInput("it was scored on different units than the others.")
        except BadInput as error:
            problems[key] = str(error)
            continue
        # The first readable run defines the units; later ones must match it.
        shared_units = run_units if shared_units is None else shared_units
        runs.append(key)
        for name, rows in columns.items():
            is_shared = rows and np.array_equal(rows[0], numbers[name], equal_nan=True)
            rows.append(rows[0] if is_shared else numbers[name])  # most runs have most columns in common
    return (
        _align_runs(family, questions, runs, shared_units, columns, official) if shared_units is not None else None
    ), problems


def _read_units(path: Path) -> tuple[pa.Table, dict[str, NumberArray]]:
    """Read a run's units: identifying columns and numbers.

    Raises BadInput if the file cannot be read.
    """
    try:
        table = pq.read_table(path)
        table.select(UNIT_ID_COLUMNS)
        numbers = {name: table[name].to_numpy() for name in UNIT_NUMBER_COLUMNS}
        return table.drop_columns(list(UNIT_NUMBER_COLUMNS)), numbers
    except FileNotFoundError:
        raise BadInput("the scores derived from its answers are not in the store.") from None
    except Exception as error:  # a damaged file must not stop the board, whatever is wrong with it
        raise BadInput(f"its units cannot be read ({type(error).__name__}).") from None


def _align_runs(
    family: str,
    questions: pd.DataFrame,
    runs: list[str],
    unit_names: pa.Table,
    columns: Mapping[str, Sequence[NumberArray]],
    official: Collection[str],
) -> Outcomes:
    """Stack runs with the same units, per metric."""
    table = unit_names.to_pandas()
    codes, metric_names = pd.factorize(table["metric"])
    # Units are sorted by metric, so the units of a metric are one slice.
    bounds = np.searchsorted(codes, np.arange(len(metric_names) + 1)).tolist()
    case_codes, case_names = pd.factorize(questions["case_id"])
    question_index, case_index = pd.Index(questions["question_id"]), pd.Index(case_names)
    by_official = np.array([run in official for run in runs], dtype=bool)
    metrics: dict[str, MetricUnits] = {}
    unit_index: dict[str, UnitIndex] = {}
    for at, name in enumerate(map(str, metric_names)):
        rows = slice(bounds[at], bounds[at + 1])
        part, facet = table.iloc[rows], BALANCED_METRICS.get(name)
        top, base, expected, count, *ends, unsettled = (
            _stack_rows([run[rows] for run in columns[column]]) for column in UNIT_NUMBER_COLUMNS
        )
        metrics[name] = MetricUnits(
            np.broadcast_to(top, (len(runs), top.shape[1])).astype(float),
            base.astype(float),
            expected.astype(float),
            count.astype(np.int64),
            tuple(counts.astype(np.int32) for counts in ends),
            case=pd.factorize(part["case_id"])[0].astype(np.int64),
            cluster=part["cluster"].to_numpy(np.int64),
            keeps_value=by_official | (name in METRICS and METRICS[name].of_ends),
            unsettled=unsettled if unsettled.any() else None,
            balanced=pd.factorize(part[facet])[0].astype(np.int64) if facet in part.columns else None,
            is_count=name in METRICS and METRICS[name].unit == "count",
        )
        unit_index[name] = UnitIndex(
            question=question_index.get_indexer(pd.Index(part["unit"])).astype(np.int64),
            case=case_index.get_indexer(pd.Index(part["case_id"])).astype(np.int64),
        )
    return Outcomes(family, questions, runs, metrics, unit_index, case_codes.astype(np.int64))


def _stack_rows(rows: Sequence[NumberArray]) -> NumberArray:
    """Stack rows into an array of shape (R, U), or (1, U) if all rows are equal."""
    # Shared columns are stored once: 60 runs of 26,000 questions fit in memory.
    if all(np.array_equal(rows[0], row, equal_nan=True) for row in rows[1:]):
        return rows[0][None, :]
    return np.stack(rows)
