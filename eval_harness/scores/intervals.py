"""95 % intervals of shares over clusters of questions, and the test that reads them: for measured scores, printed ones, every cell.

See also: design effects (`clustered.py`), differences between models (`comparisons.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from eval_harness.records.result import MIN_INDEPENDENT_CASES, Verdict
from eval_harness.scores.clustered import (
    CONFIDENCE_LEVEL,
    NORMAL_QUANTILE,
    ClusterSizes,
    Floats,
    design_effect,
    min_design_effect,
    renumber_labels,
    student_quantile,
)

INTERVAL_METHOD = "Clopper-Pearson at the effective sample size"
"""`interval_method` of every score that has an interval."""
ROUNDING = 1e-12
"""How far from 0 a number may lie that is 0: sums of weights such as 1/23 are not exact."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval as fractions, and how many independent outcomes would give it."""

    low: float
    high: float
    n_effective: float


def clopper_pearson(share: Floats, n: Floats) -> tuple[Floats, Floats]:
    """The 95 % interval (Clopper & Pearson 1934) of shares in 0..1, each seen in n independent outcomes; n need not be whole (Korn &
    Graubard 1998)."""
    hits, misses, tail = share * n, (1 - share) * n, (1 - CONFIDENCE_LEVEL) / 2
    low = np.where(hits > 0, special.betaincinv(np.maximum(hits, ROUNDING), misses + 1, tail), 0.0)
    high = np.where(misses > 0, special.betaincinv(hits + 1, np.maximum(misses, ROUNDING), 1 - tail), 1.0)
    return np.minimum(low, share), np.maximum(high, share)


def verdict_against_chance(
    low: float, high: float, n_effective: float, chance: float | None, higher_is_better: bool | None = True
) -> Verdict | None:
    """`better` or `worse` than chance where the 95 % interval excludes it; None where chance is not known, neither end is good, or fewer
    than FEWEST independent cases are behind it.

    The word judges the responder, not the number: a confusion above chance is `worse` (`higher_is_better` False).
    """
    if chance is None or higher_is_better is None or n_effective < MIN_INDEPENDENT_CASES:
        return None
    if low <= chance <= high:
        return "no different"
    return "better" if (low > chance) == higher_is_better else "worse"


def effective_sample_size(n: Floats, effect: Floats, sizes: ClusterSizes) -> Floats:
    """How many independent outcomes n units in clusters are worth: n / design effect x (1.96 / t)^2, t Student's quantile for one degree
    of freedom less than there are effective clusters (Korn & Graubard 1998); at least as many as if outcomes within clusters were
    identical."""
    if sizes.clusters >= sizes.units:
        return n
    return np.maximum(
        n / effect * (NORMAL_QUANTILE / student_quantile(sizes.effective_clusters - 1)) ** 2,
        n / sizes.max_design_effect,
    )


def printed_interval(value: float, n_cases: int, sharing: tuple[float, float] = (1.0, 1.0)) -> Interval:
    """The interval of a printed percentage of which only the number of cases is known: that of the same score measured, with the least
    design effect, since no answers show how they cluster.

    `sharing`: how many cases share images, (a) on average over the clusters, U / G, and (b) over the cases, sum m^2 / sum m. With (1, 1)
    nothing is known of shared images: the true interval is wider where cases share images.
    """
    share = np.array(min(max(value / 100, 0.0), 1.0))
    sizes = ClusterSizes(n_cases, n_cases / sharing[0], n_cases * sharing[1])
    n = np.array(float(n_cases))
    n = effective_sample_size(n, min_design_effect(np.minimum(share, 1 - share) * n, sizes), sizes)
    low, high = clopper_pearson(share, n)
    return Interval(float(low), float(high), float(n))


def clustered_interval(numerator: ArrayLike, denominator: ArrayLike, cluster: ArrayLike) -> Interval | None:
    """`clustered_intervals` of one run: sum(numerator) / sum(denominator) over units (U,) in clusters (U,); None where nothing counts."""
    top, base = np.asarray(numerator, dtype=float), np.asarray(denominator, dtype=float)
    used = base > 0
    if not used.any():
        return None
    top, base, index = top[used], base[used], renumber_labels(np.asarray(cluster)[used])
    low, high, n = clustered_intervals(
        np.bincount(index, top)[None, :],
        np.array([(top * top).sum()]),
        np.array([(top * base).sum()]),
        np.bincount(index, base).astype(float),
        float((base * base).sum()),
        np.bincount(index),
    )
    return Interval(float(low[0]), float(high[0]), float(n[0]))


def clustered_intervals(
    sums: NDArray[np.generic],
    squared: Floats,
    crossed: Floats,
    weight: Floats,
    squares: float,
    sizes: NDArray[np.generic],
) -> tuple[Floats, Floats, Floats]:
    """95 % intervals of R shares sum(numerator) / sum(base) over the same U units, all base > 0, in the same G clusters.

    `sums` (R, G): numerators per cluster; `weight` (G,): bases per cluster; `sizes` (G,): units per cluster; `squared`, `crossed` (R,):
    sums of numerator^2 and numerator x base over units; `squares`: the sum of base^2. Gives low, high, effective sample
    size (R,).

    Clopper and Pearson's interval at the effective sample size (Korn & Graubard 1998; Dean & Pagano 2015 compare such intervals): p (1 - p)
    / V independent units if the numerators are the outcomes' means over samples or are weighted, `effective_size` of these in clusters.
    """
    total = float(weight.sum())
    hits = sums.sum(axis=1, dtype=np.float64)
    share = np.clip(hits / total, 0.0, 1.0)
    share = np.where(np.abs(share - np.rint(share)) < ROUNDING, np.rint(share), share)
    layout = ClusterSizes.from_sizes(sizes)
    single = share * (1 - share)
    plain = total * total / squares  # as many equally weighted 0/1 outcomes (Kish 1965)
    independent = squared - 2 * share * crossed + share**2 * squares
    independent = np.where(independent > ROUNDING * squares, independent, 0.0)
    # One 0/1 outcome more keeps the variance of units that happen to be equal above 0; of 0/1 outcomes it changes nothing.
    variance = (independent / squares * plain + single) / (plain + 1)
    n = np.divide(single, variance, out=np.ones_like(single), where=single > ROUNDING) * plain
    if layout.clusters < layout.units:
        residual = np.square(sums - share[:, None] * weight)
        between = residual @ (1 / np.asarray(sizes, dtype=float))
        effect = design_effect(independent, between, residual.sum(axis=1), np.minimum(share, 1 - share) * n, layout)
        n = effective_sample_size(n, effect, layout)
    return (*clopper_pearson(share, n), n)
