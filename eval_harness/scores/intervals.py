"""95 % intervals of shares over clusters of questions: what scores, breakdowns and the board show.

See also: differences between models (`comparisons.py`), the test against chance (`statistics.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from eval_harness.scores.clustered import PRIOR_CORRELATION, Clusters, numbered, steadied, under_correlation

Floats = NDArray[np.float64]

LEVEL = 0.95
NORMAL = float(special.ndtri(0.5 + LEVEL / 2))
CLUSTERED = "Wilson at the effective sample size"
"""The name of the method that `clustered_intervals` follows, as `interval_method` of a score says it."""
RARE = 0.035
"""One-sided level of the second limit in `wilson`: with it the interval of n >= 8 independent outcomes covers at least 93.3 % for every
share (exact sums over the binomial pmf; a test repeats them)."""
ROUNDING = 1e-12
"""How far from none or all a share may lie that is none or all: sums of weights such as 1/23 are not exact."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval as fractions. `n_effective`: independent observations it is worth, `df`: degrees of freedom of that."""

    low: float
    high: float
    n_effective: float
    df: float
    method: str


def wilson(share: float | Floats, n: float | Floats, critical: float | Floats = NORMAL) -> tuple[Floats, Floats]:
    """Wilson's score interval (1927) of shares (R,) in 0..1, each seen in n independent observations, made safe for rare outcomes.

    Wilson's limit towards the nearer end lies too far in where a handful of outcomes was seen (it covers 84 % at worst): it is moved
    to the one-sided limit of Clopper and Pearson at the level RARE where that lies further out, as Brown, Cai and DasGupta (2001,
    section 4.1.1) do with Poisson's at 5 %. `critical`: Student's quantile instead of the normal one; n shrinks by its square for that
    other limit (Korn & Graubard 1998).
    """
    c2 = np.square(critical)
    centre = (share + c2 / (2 * n)) / (1 + c2 / n)
    half = critical / (1 + c2 / n) * np.sqrt(np.maximum(share * (1 - share), 0.0) / n + c2 / (4 * n * n))
    worth = n * NORMAL**2 / c2
    hits, misses = share * worth, (1 - share) * worth
    with np.errstate(invalid="ignore"):
        rare_hits = np.where(hits > 0, special.betaincinv(hits, misses + 1, RARE), 0.0)
        rare_misses = np.where(misses > 0, special.betaincinv(hits + 1, misses, 1 - RARE), 1.0)
    low = np.minimum(np.minimum(centre - half, rare_hits), share)
    high = np.maximum(np.maximum(centre + half, rare_misses), share)
    return np.maximum(low, 0.0), np.minimum(high, 1.0)


def clustered_interval(numerator: ArrayLike, denominator: ArrayLike, cluster: ArrayLike) -> Interval | None:
    """`clustered_intervals` of one run: sum(numerator) / sum(denominator) over units (U,) in clusters (U,); None where nothing counts."""
    top, base = np.asarray(numerator, dtype=float), np.asarray(denominator, dtype=float)
    used = base > 0
    if not used.any():
        return None
    top, base, index = top[used], base[used], numbered(np.asarray(cluster)[used])
    sums = np.bincount(index, top)[None, :]
    weight, squares = (np.bincount(index, values).astype(float) for values in (base, base * base))
    low, high, n, df = clustered_intervals(
        sums, np.array([(top * top).sum()]), np.array([(top * base).sum()]), weight, squares, _plain(top, base)
    )
    return Interval(float(low[0]), float(high[0]), float(n[0]), float(df[0]), CLUSTERED)


def _plain(top: Floats, base: Floats) -> bool:
    """Whether every unit is one outcome of the same weight, all or nothing."""
    return bool(np.all(base == base[0])) and bool(np.all((top == 0) | (top == base)))


def clustered_intervals(
    sums: NDArray[Any],
    squared: Floats,
    crossed: Floats,
    weight: Floats,
    squares: Floats,
    plain: bool,
    times: Floats | None = None,
) -> tuple[Floats, Floats, Floats, Floats]:
    """95 % intervals of R shares sum(numerator) / sum(base) over the same U units, all base > 0, in the same G clusters.

    `sums` (R, G): numerators per cluster; `weight`, `squares` (G,): sums of base and base^2; `squared`, `crossed` (R,): sums of
    numerator^2 and numerator x base over units; `plain`: every unit has the same base, and is a hit or none. `times` (R, G): how many
    clusters of a run are as the column says, where alike ones are counted instead of listed; `sums` is (1, G) then.
    Gives low, high, effective sample size and degrees of freedom, each (R,).

    Wilson's interval (`wilson`) at the effective sample size p (1 - p) / V with Student's t, V the cluster-robust variance of the ratio
    (Korn & Graubard 1998; Dean & Pagano 2015 compare such intervals), V = CR2 (`clustered.under_correlation`), or that of one
    correlation in all clusters (`clustered.steadied`), whichever makes the interval wider. With no hit, or nothing but hits, the effective
    sample size is that of the assumed correlation. Where every cluster is one outcome this is `wilson` itself.
    """
    many = np.ones(weight.size) if times is None else times[0]  # a run's hits differ, not how large its clusters are
    total, clusters, runs = float(weight @ many), float(many.sum()), len(crossed)
    hits = sums.sum(axis=1, dtype=np.float64) if times is None else times @ sums[0]
    share = np.clip(hits / total, 0.0, 1.0)
    share = np.where(np.abs(share - np.rint(share)) < ROUNDING, np.rint(share), share)
    if clusters == 1:
        one = np.ones(runs)
        return (*wilson(share, 1.0), one, one)
    n = total * total / float(squares @ many)
    if plain and n < clusters + 0.5:
        return (*wilson(share, clusters), np.full(runs, float(clusters)), np.full(runs, math.inf))
    size = max(float((weight * weight) @ many / (squares @ many)), 1.0)
    residual = np.square(sums - share[:, None] * weight)
    seen = residual if times is None else residual * times
    variance = (seen @ (1 / (1 - np.minimum(weight / total, 1 - 1e-9)))) / total**2
    independent = np.maximum(squared - 2 * share * crossed + share**2 * (squares @ many), 0.0) / total**2
    kinds, many = _kinds(weight, squares, many)
    one = share * (1 - share) / n  # the variance of n independent outcomes
    # Units that all have one share between none and all (the same few of their samples) vary by rounding alone.
    mixed = (share > 0) & (share < 1) & (independent > ROUNDING * one)
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = np.where(mixed & (size > 1), np.clip((variance / independent - 1) / (size - 1), 0.0, 1.0), 0.0)
        spread = kinds[1] * (1 - rho[:, None]) + kinds[0] ** 2 * rho[:, None]
        bias, satterthwaite = under_correlation(kinds[0] / total, spread, many)
        rarer = np.where((share <= 0.5 + ROUNDING)[:, None], sums, weight - sums)
        alike = Clusters(weight, squares, residual, rarer, times)
        variance, df = steadied(variance / bias, satterthwaite, independent, one, alike)
        worth = np.where(mixed, share * (1 - share) / variance, n / (1 + PRIOR_CORRELATION * (size - 1)))
    df = np.where(mixed, df, math.inf)
    critical = np.where(mixed, special.stdtrit(np.where(mixed, df, 1.0), 0.5 + LEVEL / 2), NORMAL)
    return (*wilson(share, worth, critical), worth, df)


def _kinds(weight: Floats, squares: Floats, times: Floats) -> tuple[Floats, Floats]:
    """The different clusters: their weight and squares (2, K), and how many there are of each (K,)."""
    kinds, kind = np.unique(np.stack([weight, squares]), axis=1, return_inverse=True)
    return kinds, np.bincount(kind.ravel(), times).astype(float)
