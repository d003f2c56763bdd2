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
from pydantic import TypeAdapter

from eval_harness.records.result import Score
from eval_harness.scores import intervals
from eval_harness.scores.comparing.comparisons import pairwise
from eval_harness.scores.intervals import METHOD, clustered_intervals
from eval_harness.scores.nonresponse import nonresponse, withheld
from eval_harness.scores.outcomes import OutcomeMatrix

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NOTHING = Score(value=None, n=0, n_cases=0)
"""The score where nothing counts."""
_SCORES: TypeAdapter[list[Score]] = TypeAdapter(list[Score])
"""Makes hundreds of scores at once, which takes half as long as one by one."""
LARGEST_BYTE = 255
BLOCK = 2_000_000
"""Numbers that an interval's sums hold at a time."""


@dataclass(frozen=True)
class MetricUnits:
    """One metric of R runs over the same U units, sorted by cluster.

    `top` is (R, U); `base`, `expected`, `count` are too, or (1, U) where all runs share them: numerator, denominator, the numerator
    a guesser would get (NaN: no chance known), and what a unit adds to n. `case`, `cluster` are (U,). `is_count`: the value is a sum,
    not a share. `ends` (R, 5): how the responses ended (`nonresponse.COUNTS`); `shown` (R,): which runs show a score although most say
    nothing. `binary`: every numerator is 0 or its denominator; where that is 1, `top` are bytes, quickest with the runs of a unit side
    by side. See also: how they are kept (`stored_units.py`).
    """

    top: NDArray[Any]
    base: Floats
    expected: Floats
    count: Ints
    case: Ints
    cluster: Ints
    ends: Ints
    shown: Bools
    is_count: bool = False
    binary: bool = False

    def of(self, runs: Ints) -> MetricUnits:
        """The same units for some of the runs."""
        if np.array_equal(runs, np.arange(self.top.shape[0])):
            return self

        def some(values: NDArray[Any]) -> NDArray[Any]:
            return values[runs] if values.shape[0] > 1 else values

        return MetricUnits(
            self.top[runs],
            some(self.base),
            some(self.expected),
            some(self.count),
            self.case,
            self.cluster,
            self.ends[runs],
            self.shown[runs],
            self.is_count,
            self.binary,
        )

    @cached_property
    def starts(self) -> Ints:
        """Where each cluster begins among the units."""
        return (
            np.flatnonzero(np.r_[True, self.cluster[1:] != self.cluster[:-1]])
            if self.cluster.size
            else np.zeros(0, np.int64)
        )

    def per_cluster(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sums of `values` (., U), no bytes, over each cluster: (., G)."""
        return values if self.starts.size == self.cluster.size else np.add.reduceat(values, self.starts, axis=1)


def scores_of(units: MetricUnits, higher_is_better: bool | None = True) -> list[Score]:
    """The score of every run on all of `units`, as `eval_harness.scores.summarise` gives it.

    `higher_is_better` None: neither end is good, so no verdict.
    """
    found = _scores(units, higher_is_better)
    for run in np.flatnonzero(are_silent(units.ends)):
        found[run] = withheld(found[run], nonresponse(units.ends[run]), bool(units.shown[run]))
    return found


def are_silent(ends: Ints) -> Bools:
    """For which runs most responses say nothing. `ends` (R, 5): how they ended (`nonresponse.COUNTS`)."""
    return np.asarray(2 * ends[:, 1:].sum(axis=1) > ends[:, 0])


def _scores(units: MetricUnits, higher_is_better: bool | None) -> list[Score]:
    runs = units.top.shape[0]
    counted = units.base > 0
    if not counted.any():
        return [NOTHING] * runs
    n = np.broadcast_to((counted * units.count).sum(axis=1), runs)
    n_cases = np.broadcast_to(_distinct(counted, units.case), runs)
    top = units.top.sum(axis=1, dtype=np.float64)
    if units.is_count:
        return [
            Score(value=float(_rounded(top[run])), n=int(n[run]), n_cases=int(n_cases[run]))
            if n[run]
            else NOTHING  # none of nothing is no count
            for run in range(runs)
        ]
    total = np.broadcast_to(units.base.sum(axis=1), runs)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = top / total
        chance = np.broadcast_to(_chance(units, counted), runs) / total
    numbers = np.stack([share, *_intervals(units, counted)])
    numbers[:3] *= 100
    levels = [level if math.isfinite(level) else None for level in _rounded(100 * chance).tolist()]
    return _SCORES.validate_python(
        [
            {
                "value": value,
                "low": low,
                "high": high,
                "n": size,
                "n_cases": cases,
                "n_effective": worth,
                "chance": level,
                "verdict": intervals.verdict(low, high, level, higher_is_better),
                "interval_method": METHOD,
            }
            if of > 0
            else NOTHING
            for (value, low, high, worth), level, size, cases, of in zip(
                _rounded(numbers).T.tolist(), levels, n.tolist(), n_cases.tolist(), total.tolist(), strict=True
            )
        ]
    )


def _row(values: NDArray[Any], run: int) -> NDArray[Any]:
    return values[run if values.shape[0] > 1 else 0]


def _distinct(counted: Bools, case: Ints) -> Ints:
    """Number of distinct cases among the counted units, per row (1 or R rows)."""
    return np.array([np.count_nonzero(np.bincount(case[row])) if row.any() else 0 for row in counted])


def _chance(units: MetricUnits, counted: Bools) -> Floats:
    """What a guesser's numerators add up to, per row (1 or R rows); NaN where any is unknown."""
    known = np.isfinite(units.expected) | ~counted
    return np.where(known.all(axis=1), np.where(counted & known, units.expected, 0.0).sum(axis=1), np.nan)


def even_weights(group: Ints, base: Floats) -> Floats:
    """Factors (1, U) or (R, U) that make the denominators of every group present add up to 1."""
    sums = np.stack([np.bincount(group, row) for row in base])
    with np.errstate(divide="ignore"):
        return np.where(sums > 0, 1 / sums, 0.0)[:, group]


def _intervals(units: MetricUnits, counted: Bools) -> tuple[Floats, Floats, Floats]:
    """95 % intervals of all runs as shares, and their effective sample sizes; NaN where nothing is counted."""
    runs = len(units.top)
    if units.top.dtype == np.uint8:
        units = replace(units, top=np.ascontiguousarray(units.top, dtype=np.float32))
    found = np.full((3, runs), np.nan)
    if units.base.shape[0] == 1 and units.base.size and counted.all():
        base = units.base[0]
        crossed = (units.top @ base.astype(units.top.dtype)).astype(float)
        sizes, weight = np.diff(np.r_[units.starts, units.cluster.size]), units.per_cluster(units.base)[0]
        block = max(1, BLOCK // base.size)  # some runs at a time: hundreds of them times all units would take gigabytes
        for at in range(0, runs, block):
            some = units.top[at : at + block]
            squared = np.square(some).sum(axis=1, dtype=np.float64)
            found[:, at : at + block] = clustered_intervals(
                units.per_cluster(some), squared, crossed[at : at + block], weight, float(base @ base), sizes
            )
        return found[0], found[1], found[2]
    for run in range(runs):
        one = intervals.clustered_interval(units.top[run].astype(float), _row(units.base, run), units.cluster)
        if one is not None:
            found[:, run] = one.low, one.high, one.n_effective
    return found[0], found[1], found[2]


def _rounded(values: Floats) -> Floats:
    """Ten decimals, as the scores of a result file."""
    return np.round(values, 10) + 0.0


def p_values(units: MetricUnits) -> Floats:
    """Uncorrected p-values (R, R) of "these two runs do as well on these questions": the test of `comparisons.pairwise`."""
    runs = units.top.shape[0]
    outcomes = OutcomeMatrix(
        models=tuple(str(run) for run in range(runs)),
        metric="",
        numerator=np.ascontiguousarray(units.top, dtype=np.float32),
        denominator=np.broadcast_to(units.base.astype(np.float32), units.top.shape),
        cluster=units.cluster,
        units=np.empty(0, dtype=object),
        paired=units.base.shape[0] == 1 or bool(np.all(units.base == units.base[0])),
    )
    return pairwise(outcomes).p
