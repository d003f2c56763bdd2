"""The units of all runs of a section as they are kept: a byte for each run and unit, so that hundreds of models fit in memory.

What a selection needs is made into numbers when it is asked for (`StoredUnits.part`). See also: where units come from (`outcomes.py`),
what is computed of them (`scoring.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leaderboard_space.data.units.scoring import LARGEST_BYTE, Floats, Ints, MetricUnits, are_silent, even_weights

NOT_COUNTED = -1.0
Column = NDArray[Any]
"""Bytes where all its numbers are small whole ones, else floats; of numerators also booleans: whether it is the denominator, or 0."""


@dataclass(frozen=True)
class Columns:
    """The numbers of one metric of one run (U,). `chance` per unit of denominator; None where it is that of the other runs. `ends`: how
    the responses ended (`nonresponse.COUNTS`).

    Of R runs: `top` (R, U), the runs of a unit side by side in memory; the others too, or (1, U) where all runs share them."""

    top: Column
    base: Column
    chance: Floats | None
    count: Column
    ends: tuple[Column, ...]


def compact(values: Column) -> Column:
    """The same numbers in bytes, where they are small and whole."""
    if values.dtype == np.uint8:
        return values.copy()  # a part of a file's column would keep the whole of it in memory
    small = values.size > 0 and bool(np.all((values >= 0) & (values <= LARGEST_BYTE) & (values == np.floor(values))))
    return values.astype(np.uint8) if small else values


def compact_run(
    top: Column, base: Column, expected: Column, count: Column, ends: Sequence[Column], chance: Floats
) -> Columns:
    """A run's numbers in the least space. `chance` (U,): what a guesser gets per unit of denominator (NaN: not known), NOT_COUNTED for
    units that no run has counted so far; those that this run counts are filled in."""
    counted = base > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        own = np.where(counted, expected / base, NOT_COUNTED)
    new = counted & (chance == NOT_COUNTED)
    chance[new] = own[new]
    other = counted & (own != chance) & ~(np.isnan(own) & np.isnan(chance))
    agrees = np.allclose(own[other], chance[other], rtol=1e-12, atol=0)
    is_binary = bool(np.all((top == 0) | (top == base)))
    return Columns(
        (top != 0) if is_binary else compact(top),
        compact(base),
        None if agrees else own,
        compact(count),
        tuple(map(compact, ends)),
    )


@dataclass(frozen=True)
class StoredUnits:
    """One metric of R runs over the same U units, sorted by cluster. `shown` (R,): which runs show a score although most of their responses
    say nothing. The rest as in `MetricUnits`."""

    columns: Columns
    case: Ints
    cluster: Ints
    shown: NDArray[np.bool_]
    balanced: Ints | None
    is_count: bool

    def part(self, rows: Ints | None = None, runs: Ints | None = None) -> MetricUnits:
        """The units at `rows` (ascending; a unit may come twice; None for all) of some runs (None for all) as numbers, weights balanced
        anew."""
        held = self.columns
        assert held.chance is not None
        top, base, chance, count = (
            _at(values, rows, runs) for values in (held.top, held.base, held.chance, held.count)
        )
        base = base.astype(np.float64)
        with np.errstate(invalid="ignore"):
            expected = np.where(base > 0, base * chance, 0.0)
        is_binary = top.dtype == bool
        if is_binary and bool(np.all(base == 1)):
            top = top.view(np.uint8)
        elif is_binary:
            top = top * base
        else:
            top = top.astype(np.float64)
        case, cluster, balanced = self.case, self.cluster, self.balanced
        if rows is not None:
            case, cluster = case[rows], cluster[rows]
            if balanced is not None and self.is_count:  # a mean of counts: over the groups that are still there
                top = top * (np.unique(balanced).size / max(np.unique(balanced[rows]).size, 1))
            elif balanced is not None:
                even = even_weights(balanced[rows], base)
                top, base, expected = top * even, base * even, expected * even
        shown = self.shown if runs is None else self.shown[runs]
        return MetricUnits(
            top,
            base,
            expected,
            count.astype(np.int64),
            case,
            cluster,
            self.ends(rows, runs),
            shown,
            self.is_count,
            is_binary,
        )

    def ends(self, rows: Ints | None = None, runs: Ints | None = None) -> Ints:
        """How the responses behind the units at `rows` ended: sums of `nonresponse.COUNTS` (R, 5)."""
        number = len(self.columns.top) if runs is None else len(runs)
        sums = [_at(each, rows, runs).sum(axis=1, dtype=np.int64) for each in self.columns.ends]
        return np.stack([np.broadcast_to(each, number) for each in sums], axis=1)

    def shares(self, rows: Ints | None, ends: Ints | None = None) -> Floats:
        """Numerators over denominators (R,) of the units at `rows` (None: all), NaN where nothing is counted or most responses say nothing;
        nothing else of a score. `ends`: how these ended, where that is known."""
        top, base = _at(self.columns.top, rows, None), _at(self.columns.base, rows, None)
        top = (top * base if top.dtype == bool else top).sum(axis=1, dtype=np.float64)
        base = base.sum(axis=1, dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.asarray(top / np.broadcast_to(base, top.size))
        return np.where(self.shown | ~are_silent(self.ends(rows) if ends is None else ends), found, np.nan)

    def run(self, run: int) -> tuple[Floats, Floats]:
        """Numerators and denominators (U,) of one run."""
        held = self.columns
        base, top = held.base[run if len(held.base) > 1 else 0].astype(np.float64), held.top[run]
        return (top * base if top.dtype == bool else top.astype(np.float64)), base


def stack(runs: Sequence[Columns], chance: Floats) -> Columns:
    """The runs of a section as one. `chance` (U,): of the units of which no run says otherwise."""
    tops: list[Column] = [run.top for run in runs]
    if len({top.dtype for top in tops}) > 1:
        tops = [run.top * run.base if run.top.dtype == bool else run.top for run in runs]
    own = all(run.chance is None for run in runs)
    return Columns(
        np.stack(tops, axis=1).T,
        _stacked([run.base for run in runs]),
        chance[None, :] if own else np.stack([chance if run.chance is None else run.chance for run in runs]),
        _stacked([run.count for run in runs]),
        tuple(_stacked(ends) for ends in zip(*(run.ends for run in runs), strict=True)),
    )


def apart(of: Columns, runs: int) -> list[Columns]:
    """The runs again, each a view of the whole."""
    assert of.chance is not None

    def mine(values: Column, run: int) -> Column:
        return values[run if len(values) > 1 else 0]

    return [
        Columns(
            of.top[run],
            mine(of.base, run),
            of.chance[run] if len(of.chance) > 1 else None,
            mine(of.count, run),
            tuple(mine(each, run) for each in of.ends),
        )
        for run in range(runs)
    ]


def _stacked(rows: Sequence[Column]) -> Column:
    """(R, U), the runs of a unit side by side in memory (`_at` would copy all of it else), or (1, U) where all rows are the same."""
    if all(row is rows[0] or np.array_equal(rows[0], row, equal_nan=True) for row in rows[1:]):
        return rows[0][None, :]
    return np.stack(rows, axis=1).T


def _at(values: Column, rows: Ints | None, runs: Ints | None) -> Column:
    by_unit = (
        values.T if rows is None else values.T.take(rows, axis=0)
    )  # few units of all runs are quick to read, not all of a few runs
    return (by_unit if runs is None or len(values) == 1 else by_unit[:, runs]).T
