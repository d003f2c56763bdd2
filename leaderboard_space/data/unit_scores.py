"""Scores of all runs of a section on a selection of units at once.

The statistics are those of `eval_harness.scores`; here only what they cost is cut, so that ticking a branch takes milliseconds (a test
holds the two together). See also: units (`outcomes.py`), drawing (`views/`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_harness.records.result import Score
from eval_harness.scores import intervals
from eval_harness.scores.comparisons import compare_pairwise
from eval_harness.scores.intervals import INTERVAL_METHOD, clustered_intervals
from eval_harness.scores.nonresponse import apply_nonresponse, decisive_nonresponse, numerator_if_lost_right
from eval_harness.scores.outcome_matrix import OutcomeMatrix

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

EMPTY_SCORE = Score(value=None, n=0, n_cases=0)
"""The score if no unit counts."""


@dataclass(frozen=True)
class MetricUnits:
    """One metric of R runs over the same U units, sorted by cluster.

    `top` is (R, U); `base`, `expected`, `count` and the five `ends` are too, or (1, U) where all runs share them: numerator, denominator,
    the numerator a guesser would get (NaN: no chance known), what a unit adds to n, how the responses behind it ended
    (`nonresponse.COUNTS`). `case`, `cluster` are (U,). `shown` (R,): which runs show a score although most say nothing. `is_count`: the
    value is a sum, not a share. `balanced` (U,): the groups that weigh the same, of a metric that is a mean over groups. `unsettled` (R, U)
    or (1, U): `nonresponse.UNSETTLED`; None where no response is lost.
    """

    top: Floats
    base: Floats
    expected: Floats
    count: Ints
    ends: tuple[NDArray[Any], ...]
    case: Ints
    cluster: Ints
    shown: Bools
    is_count: bool = False
    balanced: Ints | None = None
    unsettled: Floats | None = None

    def part(self, rows: Ints | None = None, runs: Ints | None = None) -> MetricUnits:
        """The units at `rows` (ascending; a unit may come twice; None for all) of some runs (None for all), weights balanced anew."""

        def some(values: NDArray[Any]) -> NDArray[Any]:
            values = values if runs is None or len(values) == 1 else values[runs]
            return values if rows is None else values[:, rows]

        top = self.top if runs is None else self.top[runs]
        top, base, expected = top if rows is None else top[:, rows], some(self.base), some(self.expected)
        case, cluster, balanced = self.case, self.cluster, self.balanced
        if rows is not None:
            case, cluster = case[rows], cluster[rows]
        if rows is not None and self.balanced is not None:
            balanced = self.balanced[rows]
            if self.is_count:  # a mean of counts: over the groups that are still there
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
            case=case,
            cluster=cluster,
            balanced=balanced,
            shown=self.shown if runs is None else self.shown[runs],
            unsettled=None if self.unsettled is None else some(self.unsettled),
        )

    def run(self, run: int) -> tuple[Floats, Floats]:
        """Numerators and denominators (U,) of one run."""
        return self.top[run], self.base[run if len(self.base) > 1 else 0]

    def shares(self) -> Floats:
        """Numerators over denominators (R,), NaN where nothing is counted or most responses say nothing."""
        with np.errstate(invalid="ignore", divide="ignore"):
            found = self.top.sum(axis=1) / np.broadcast_to(self.base.sum(axis=1), len(self.top))
        return np.where(self.shown | ~self.are_silent, found, np.nan)

    @cached_property
    def ended(self) -> Ints:
        """How the responses of each run ended: sums of `nonresponse.COUNTS` (R, 5)."""
        sums = [each.sum(axis=1, dtype=np.int64) for each in self.ends]
        return np.stack([np.broadcast_to(each, len(self.top)) for each in sums], axis=1)

    @property
    def are_silent(self) -> Bools:
        """Mask of the runs (R,) most of whose responses say nothing."""
        return np.asarray(2 * self.ended[:, 1:].sum(axis=1) > self.ended[:, 0])

    @cached_property
    def starts(self) -> Ints:
        """Index of each cluster's first unit."""
        return np.flatnonzero(np.r_[True, np.diff(self.cluster) != 0][: self.cluster.size])


def score_runs(units: MetricUnits, higher_is_better: bool | None = True) -> list[Score]:
    """The score of every run on all of `units`, as `derive.summary.summarise_units` gives it.

    `higher_is_better` None: neither end is good, so no verdict.
    """
    found = _score_units(units, higher_is_better)
    best = found
    if units.unsettled is not None:
        best = _score_units(
            replace(units, top=numerator_if_lost_right(units.top, units.base, units.unsettled)), higher_is_better
        )
    for run, (score, other) in enumerate(zip(found, best, strict=True)):
        silent = decisive_nonresponse(units.ended[run], score.verdict == other.verdict)
        found[run] = apply_nonresponse(score, silent, bool(units.shown[run]))
    return found


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
            else EMPTY_SCORE  # none of nothing is no count
            for run in range(runs)
        ]
    total = np.broadcast_to(units.base.sum(axis=1), runs)
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
            n_effective=worth,
            chance=level,
            verdict=intervals.verdict_against_chance(low, high, worth, level, higher_is_better),
            interval_method=INTERVAL_METHOD,
        )
        if of > 0
        else EMPTY_SCORE
        for (value, low, high, worth), level, size, cases, of in zip(
            _rounded(numbers).T.tolist(), levels, n.tolist(), n_cases.tolist(), total.tolist(), strict=True
        )
    ]


def _count_distinct(counted: Bools, case: Ints) -> Ints:
    """Number of distinct cases among the counted units, per row (1 or R rows)."""
    return np.array([np.count_nonzero(np.bincount(case[row])) if row.any() else 0 for row in counted])


def _chance_sums(units: MetricUnits, counted: Bools) -> Floats:
    """Sum of a guesser's numerators, per row (1 or R rows); NaN if any is unknown."""
    known = np.isfinite(units.expected) | ~counted
    return np.where(known.all(axis=1), np.where(counted & known, units.expected, 0.0).sum(axis=1), np.nan)


def even_weights(group: Ints, base: Floats) -> Floats:
    """Factors (1, U) or (R, U) that make the denominators of every group present add up to 1."""
    sums = np.stack([np.bincount(group, row) for row in base])
    with np.errstate(divide="ignore"):
        return np.where(sums > 0, 1 / sums, 0.0)[:, group]


def _intervals(units: MetricUnits, counted: Bools) -> tuple[Floats, Floats, Floats]:
    """95 % intervals of all runs as shares, and their effective sample sizes; NaN where nothing is counted."""
    top, starts = units.top, units.starts
    if len(units.base) == 1 and counted.all():
        base = units.base[0]
        sums, weight = np.add.reduceat(top, starts, axis=1), np.add.reduceat(base, starts)
        sizes = np.diff(np.r_[starts, base.size])
        return clustered_intervals(sums, np.square(top).sum(axis=1), top @ base, weight, float(base @ base), sizes)
    found = np.full((3, len(top)), np.nan)
    for run in range(len(top)):
        one = intervals.clustered_interval(*units.run(run), units.cluster)
        if one is not None:
            found[:, run] = one.low, one.high, one.n_effective
    return found[0], found[1], found[2]


def _rounded(values: Floats) -> Floats:
    """Ten decimals, as the scores of a result file."""
    return np.round(values, 10) + 0.0


def pairwise_p_values(units: MetricUnits) -> Floats:
    """Uncorrected p-values (R, R) of "these two runs do as well on these questions": the test of `comparisons.compare_pairwise`."""
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
