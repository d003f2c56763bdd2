"""Scores of all runs of a section on a selection of units at once.

The statistics are those of `eval_harness.scores`; here only what they cost is cut, so that ticking a branch takes milliseconds (a test
holds the two together). See also: their differences (`pairs.py`), units (`outcomes.py`), drawing (`views/`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from eval_harness.records.result import Score, Verdict
from eval_harness.scores import intervals, statistics
from eval_harness.scores.intervals import CLUSTERED, LEVEL, clustered_intervals

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

ALPHA = 1 - LEVEL
EXACT_UP_TO = 2000
"""Trials up to which a verdict is always taken from the exact distribution of a guesser's hits. Beyond, a normal z over 3 or under 1.5
decides (Berry-Esseen: with so many trials the exact p-value is then under, or over, 0.05), and the exact distribution the rest."""


NOTHING = Score(value=None, n=0, n_cases=0)
"""The score where nothing counts."""
_SCORES: TypeAdapter[list[Score]] = TypeAdapter(list[Score])
"""Makes hundreds of scores at once, which takes half as long as one by one."""
LARGEST_BYTE = 255
MOST_KINDS = 300
"""Kinds of clusters up to which their clusters are counted instead of listed."""
BLOCK = 2_000_000
"""Numbers that an interval's sums hold at a time."""


@dataclass(frozen=True)
class MetricUnits:
    """One metric of R runs over the same U units, sorted by cluster.

    `top` is (R, U); `base`, `expected`, `count` are too, or (1, U) where all runs share them: numerator, denominator, the numerator
    a guesser would get (NaN: no chance known), and what a unit adds to n. `case`, `cluster` are (U,). `is_count`: the value is a sum,
    not a share. `binary`: every numerator is 0 or its denominator; where that is 1, `top` are bytes, quickest with the runs of a unit side
    by side. See also: how they are kept (`stored_units.py`).
    """

    top: NDArray[Any]
    base: Floats
    expected: Floats
    count: Ints
    case: Ints
    cluster: Ints
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
    runs = units.top.shape[0]
    counted = units.base > 0
    if not counted.any():
        return [NOTHING] * runs
    n = np.broadcast_to((counted * units.count).sum(axis=1), runs)
    n_cases = np.broadcast_to(_distinct(counted, units.case), runs)
    top = _hits(units.top.T) if units.top.dtype == np.uint8 else units.top.sum(axis=1, dtype=np.float64)
    if units.is_count:
        return [
            Score(value=_round(top[run]), n=int(n[run]), n_cases=int(n_cases[run]))
            if n[run]
            else NOTHING  # none of nothing is no count
            for run in range(runs)
        ]
    total = np.broadcast_to(units.base.sum(axis=1), runs)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = top / total
        chance = np.broadcast_to(_chance(units, counted), runs) / total
    low, high = _intervals(units, counted, top)
    verdicts: list[Verdict | None] = [None] * runs
    if higher_is_better is not None:
        verdicts = _verdicts(units, counted, top, chance, low, high, higher_is_better)
    return _SCORES.validate_python(
        [
            {
                "value": _round(value),
                "low": _round(left),
                "high": _round(right),
                "n": size,
                "n_cases": cases,
                "chance": _round(level) if math.isfinite(level) else None,
                "verdict": verdict,
                "interval_method": CLUSTERED,
            }
            if of > 0
            else NOTHING
            for value, left, right, level, size, cases, of, verdict in zip(
                *(np.broadcast_to(100 * shares, runs).tolist() for shares in (share, low, high, chance)),
                *(numbers.tolist() for numbers in (n, n_cases, total)),
                verdicts,
                strict=True,
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


def _hits(hits: NDArray[Any]) -> Floats:
    """How many of the units (U, R), each a hit or none, every run hits."""
    hits = hits.view(np.uint8)
    blocks = len(hits) // LARGEST_BYTE
    in_blocks = hits[: blocks * LARGEST_BYTE].reshape(blocks, LARGEST_BYTE, hits.shape[1]).sum(axis=1, dtype=np.uint8)
    rest = hits[blocks * LARGEST_BYTE :]
    return np.asarray(in_blocks.sum(axis=0, dtype=np.float64) + rest.sum(axis=0, dtype=np.float64))


def _counted_clusters(units: MetricUnits, total: Floats) -> tuple[Floats, Floats, Floats] | None:
    """Of units that are a hit or none: the kinds of clusters by their size (K,) and how many of it are hits (K,), and how many clusters of
    each kind every run has (R, K). None where there are so many kinds that counting saves nothing. `total`: hits of each run (R,)."""
    sizes = np.diff(np.r_[units.starts, units.cluster.size])
    different, many = np.unique(sizes, return_counts=True)
    if different[-1] > LARGEST_BYTE or int(different.sum()) > MOST_KINDS:
        return None
    weight = np.repeat(different, different + 1)
    hits = np.concatenate([np.arange(size + 1) for size in different])
    times = np.zeros((len(units.top), weight.size))
    by_unit, alone = units.top.T, total
    for size, clusters in zip(different, many, strict=True):
        if size == 1:  # what the others do not explain
            continue
        first = units.starts[sizes == size]
        found = by_unit.take(first, axis=0)
        for at in range(1, size):
            found += by_unit.take(first + at, axis=0)
        columns = np.flatnonzero(weight == size)
        for column in columns[1:]:
            times[:, column] = _hits(found == hits[column])
        times[:, columns[0]] = clusters - times[:, columns[1:]].sum(axis=1)
        alone = alone - times[:, columns] @ hits[columns]
    if different[0] == 1:
        times[:, 0], times[:, 1] = many[0] - alone, alone
    return weight.astype(float), hits.astype(float), times


def _intervals(units: MetricUnits, counted: Bools, total: Floats) -> tuple[Floats, Floats]:
    """95 % intervals of all runs as shares; NaN where nothing is counted. `total`: the sums of their numerators (R,)."""
    runs = len(units.top)
    if units.top.dtype == np.uint8 and counted.all() and (kinds := _counted_clusters(units, total)) is not None:
        weight, hits, times = kinds
        return clustered_intervals(hits[None, :], total, total, weight, weight, True, times)[:2]
    if units.top.dtype == np.uint8:
        units = replace(units, top=np.ascontiguousarray(units.top, dtype=np.float32))
    if units.base.shape[0] == 1 and units.base.size and counted.all():
        base = units.base[0]
        squares = base * base
        crossed = units.top @ base.astype(units.top.dtype)
        squared = (
            crossed if units.binary and bool(np.all(base == 1)) else np.square(units.top).sum(axis=1, dtype=np.float64)
        )
        weight, per_cluster = units.per_cluster(units.base)[0], units.per_cluster(squares[None, :])[0]
        even = bool(np.all(base == base[0]))
        # Each run by itself, as in its result: that another run has several samples says nothing about this one.
        plain = np.full(runs, even and units.binary)
        if even and not units.binary:
            plain = ((units.top == 0) | (units.top == base)).all(axis=1)
        low, high = np.empty(runs), np.empty(runs)
        block = max(1, BLOCK // base.size)  # some runs at a time: hundreds of them times all units would take gigabytes
        for is_plain in (True, False):
            alike = np.flatnonzero(plain == is_plain)
            for some in (alike[at : at + block] for at in range(0, alike.size, block)):
                low[some], high[some] = clustered_intervals(
                    units.per_cluster(units.top[some]),
                    squared[some],
                    crossed[some].astype(float),
                    weight,
                    per_cluster,
                    is_plain,
                )[:2]
        return low, high
    low, high = np.full(runs, np.nan), np.full(runs, np.nan)
    for run in range(runs):
        found = intervals.clustered_interval(units.top[run].astype(float), _row(units.base, run), units.cluster)
        if found is not None:
            low[run], high[run] = found.low, found.high
    return low, high


def _verdicts(
    units: MetricUnits, counted: Bools, top: Floats, chance: Floats, low: Floats, high: Floats, up: bool
) -> list[Verdict | None]:
    """`statistics.verdict` for all runs, without the exact distribution of a guesser's hits where it cannot change the verdict.

    `up`: higher is better. The verdict judges the responder, not the number."""
    verdicts: list[Verdict | None] = [None] * top.size
    tested = np.isfinite(chance) & np.isfinite(low)
    outside = tested & ~((low <= chance) & (chance <= high))
    p = np.ones(top.size)
    shared = units.base.shape[0] == 1 and units.expected.shape[0] == 1
    runs = np.flatnonzero(outside)
    together: Sequence[Ints] = [runs] if shared and runs.size else [runs[at : at + 1] for at in range(runs.size)]
    for some in together:
        used = _row(counted, some[0])
        p[some] = _chance_p_values(units, some, used, top[some])
    for run in np.flatnonzero(tested):
        if p[run] >= ALPHA:
            verdicts[run] = "no different"
        else:
            verdicts[run] = "better" if (low[run] > chance[run]) == up else "worse"
    return verdicts


def _chance_p_values(units: MetricUnits, runs: Ints, used: Bools, top: Floats) -> Floats:
    """`statistics.chance_p_value` of runs that share their denominators and what a guesser gets; of what a normal z decides, 0 or 1."""
    base, mean = _row(units.base, runs[0])[used], _row(units.expected, runs[0])[used]
    probability = np.clip(mean / base, 0.0, 1.0)
    spread = float(np.sqrt((base * base * probability * (1 - probability)).sum()))
    p = np.ones(runs.size)
    left = np.arange(runs.size)
    if base.size > EXACT_UP_TO and spread > 12:
        z = np.abs(top - float(mean.sum())) / spread
        p[z > 3] = 0.0
        left = np.flatnonzero((z >= 1.5) & (z <= 3))
    if left.size and units.binary and bool(np.all(base == 1)):
        pmf = statistics.poisson_binomial(probability)
        rare = np.sort(pmf)
        highest = pmf[np.rint(top[left]).astype(np.int64)] * (1 + 1e-7)
        p[left] = np.cumsum(rare)[np.searchsorted(rare, highest, side="right") - 1]
    else:
        p[left] = [statistics.chance_p_value(units.top[runs[at]][used].astype(float), base, mean) for at in left]
    return p


def _round(value: float) -> float:
    """Ten decimals, as the scores of a result file."""
    return round(float(value), 10) + 0.0
