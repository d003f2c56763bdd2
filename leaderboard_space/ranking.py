"""Scores of all runs of a section on a selection of units at once, and the places they may hold.

The statistics are those of `eval_harness.scores`; here only what they cost is cut, so that ticking a branch takes milliseconds (a test
holds the two together). Not here: reading the store (`sections.py`), units (`outcomes.py`), drawing (`views/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from eval_harness.results import Score, Verdict
from eval_harness.scores import statistics
from eval_harness.scores.statistics import CLUSTERED, LEVEL

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

ALPHA = 1 - LEVEL
EXACT_UP_TO = 2000
"""Trials up to which a verdict is always taken from the exact law of a guesser's hits. Beyond, a normal z over 3 or under 1.5
decides (Berry-Esseen: with so many trials the exact p-value is then surely under, or over, 0.05), and the exact law the rest."""


@dataclass(frozen=True)
class MetricUnits:
    """One metric of R runs over the same U units, sorted by cluster.

    `top` is (R, U); `base`, `expected`, `count` are too, or (1, U) where all runs share them: numerator, denominator, the numerator
    a guesser would get (NaN: no chance known), and what a unit adds to n. `case`, `cluster` are (U,). `balanced` (U,) numbers the
    groups that weigh the same whatever their size (None where units keep their weight). `is_count`: the value is a sum, not a share.
    """

    top: Floats
    base: Floats
    expected: Floats
    count: Ints
    case: Ints
    cluster: Ints
    balanced: Ints | None = None
    is_count: bool = False

    def part(self, rows: Ints | None) -> MetricUnits:
        """The units at `rows` (ascending; a unit may come twice), weights balanced anew; None for all of them."""
        if rows is None:
            return self
        top, base, expected = self.top[:, rows], self.base[:, rows], self.expected[:, rows]
        if self.balanced is not None:
            even = _even_weights(self.balanced[rows], base)
            top, base, expected = top * even, base * even, expected * even
        return MetricUnits(
            top, base, expected, self.count[:, rows], self.case[rows], self.cluster[rows], None, self.is_count
        )


def scores_of(units: MetricUnits, judged: bool = True) -> list[Score]:
    """The score of every run on all of `units`, as `eval_harness.scores.summarise` gives it. `judged` False: no verdicts."""
    runs = units.top.shape[0]
    counted = units.base > 0
    n = np.broadcast_to((counted * units.count).sum(axis=1), runs)
    n_cases = np.broadcast_to(_distinct(counted, units.case), runs)
    top = units.top.sum(axis=1)
    if units.is_count:
        return [Score(value=_round(top[run]), n=int(n[run]), n_cases=int(n_cases[run])) for run in range(runs)]
    total = np.broadcast_to(units.base.sum(axis=1), runs)
    known = np.isfinite(units.expected) | ~counted
    expected = np.where(counted & known, units.expected, 0.0).sum(axis=1)
    expected = np.broadcast_to(np.where(known.all(axis=1), expected, np.nan), runs)
    found: list[Score] = []
    known_p: dict[bytes, float] = {}
    simple = _simple(units)
    for run in range(runs):
        if total[run] <= 0:
            found.append(Score(value=None, n=0, n_cases=0))
            continue
        share = float(top[run] / total[run])
        chance = float(expected[run] / total[run])
        if simple:
            low, high = statistics.wilson(min(max(share, 0.0), 1.0), units.cluster.size)
        else:
            interval = statistics.clustered_interval(units.top[run], _row(units.base, run), units.cluster)
            assert interval is not None
            low, high = interval.low, interval.high
        verdict: Verdict | None = None
        if judged and np.isfinite(chance):
            verdict = _verdict(units, run, chance, low, high, known_p)
        found.append(
            Score(
                value=_round(100 * share),
                low=_round(100 * low),
                high=_round(100 * high),
                n=int(n[run]),
                n_cases=int(n_cases[run]),
                chance=_round(100 * chance) if np.isfinite(chance) else None,
                verdict=verdict,
                interval_method=CLUSTERED,
            )
        )
    return found


def p_values(units: MetricUnits) -> Floats:
    """Uncorrected p-values (R, R) of "these two runs do as well on these questions", paired."""
    runs, size = units.top.shape
    base = np.broadcast_to(units.base, (runs, size)).astype(np.float32)
    outcomes = statistics.Outcomes(
        models=tuple(str(run) for run in range(runs)),
        metric="",
        numerator=units.top.astype(np.float32),
        denominator=base,
        cluster=units.cluster,
        units=np.empty(0, dtype=object),
        paired=units.base.shape[0] == 1 or bool(np.all(units.base == units.base[0])),
    )
    return np.asarray(statistics.pairwise(outcomes).p, dtype=float)


def unpaired_p_values(scores: Sequence[Score]) -> Floats:
    """The same for scores of which only the number of cases is known, taken as independent.

    Each share is pulled in by two hits and two misses (Agresti & Caffo 2000 add them over the two samples), so that 0 and 100 % are not
    taken for certain. Models of one paper answered the same questions: the true p-values are mostly smaller.
    """
    size = np.array([score.n_cases for score in scores], dtype=float)
    value = np.array([np.nan if score.value is None else score.value / 100 for score in scores], dtype=float)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.clip((value * size + 1) / (size + 2), 0, 1)
        variance = share * (1 - share) / (size + 2)
        z = np.abs(share[:, None] - share[None, :]) / np.sqrt(variance[:, None] + variance[None, :])
    return np.where(np.isfinite(z), 2 * stats.norm.sf(np.nan_to_num(z)), 1.0)


def places(value: Floats, p: Floats, higher_is_better: bool) -> tuple[Ints, Ints]:
    """First and last place each model may hold: 1 + models significantly better, M - models significantly worse (Holm over all
    pairs). Models whose places overlap are tied; the first number is the rank. `value` (M,) has no NaN, `p` is (M, M).
    """
    surely = statistics.holm(p) < ALPHA
    ahead = value[None, :] > value[:, None] if higher_is_better else value[None, :] < value[:, None]
    behind = ahead.T
    return 1 + (surely & ahead).sum(axis=1), len(value) - (surely & behind).sum(axis=1)


def _row(values: NDArray, run: int) -> NDArray:
    return values[run if values.shape[0] > 1 else 0]


def _distinct(counted: Bools, case: Ints) -> Ints:
    """Number of distinct cases among the counted units, per row (1 or R rows)."""
    if counted.all():
        return np.array([len(np.unique(case))] * counted.shape[0])
    return np.array([len(np.unique(case[row])) for row in counted])


def _simple(units: MetricUnits) -> bool:
    """Whether every unit is one 0/1 outcome in a cluster of its own: the clustered interval is then Wilson's."""
    return (
        units.base.shape[0] == 1
        and units.cluster.size > 1
        and bool(np.all(units.base == 1))
        and bool(np.all(units.cluster[1:] != units.cluster[:-1]))
        and bool(np.all((units.top == 0) | (units.top == 1)))
    )


def _even_weights(group: Ints, base: Floats) -> Floats:
    """Factors (1, U) or (R, U) that make the denominators of every group present add up to 1."""
    codes = np.unique(group, return_inverse=True)[1]
    sums = np.stack([np.bincount(codes, row) for row in base])
    with np.errstate(divide="ignore"):
        return np.where(sums > 0, 1 / sums, 0.0)[:, codes]


def _verdict(
    units: MetricUnits, run: int, chance: float, low: float, high: float, known_p: dict[bytes, float]
) -> Verdict:
    """`statistics.verdict`, without the exact law of a guesser's hits where it cannot change the verdict (see EXACT_UP_TO)."""
    if low <= chance <= high:
        return "no different"
    used = _row(units.base, run) > 0
    top, base, mean = units.top[run][used], _row(units.base, run)[used], _row(units.expected, run)[used]
    side: Verdict = "better" if low > chance else "worse"
    if top.size <= EXACT_UP_TO:
        key = top.tobytes() + mean.tobytes()
        if key not in known_p:
            known_p[key] = statistics.chance_p_value(top, base, mean)
        return side if known_p[key] < ALPHA else "no different"
    probability = np.clip(mean / base, 0.0, 1.0)
    spread = float(np.sqrt((base * base * probability * (1 - probability)).sum()))
    z = abs(float(top.sum()) - float(mean.sum())) / spread if spread else np.inf
    if spread > 12 and not 1.5 <= z <= 3:
        return side if z > 3 else "no different"
    return side if statistics.chance_p_value(top, base, mean) < ALPHA else "no different"


def _round(value: float) -> float:
    """Ten decimals, as the scores of a result file."""
    return round(float(value), 10) + 0.0
