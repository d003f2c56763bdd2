"""The clustered intervals of `eval_harness.scores.statistics`, for many runs over the same units at once.

The same formulas, term by term (a test compares them on wild input); what is shared between runs is computed once, and clusters of
the same weight are counted instead of listed. Not here: runs whose denominators differ; they go through the original.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from eval_harness.scores.statistics import LEVEL, RHO_AT_THE_EDGE

Floats = NDArray[np.float64]

NORMAL = float(stats.norm.ppf(0.5 + LEVEL / 2))


def wilson(share: Floats, n: Floats | float, critical: Floats | float = NORMAL) -> tuple[Floats, Floats]:
    """Wilson's interval of shares (R,) in 0..1, each seen in n independent observations."""
    c2 = np.square(critical)
    centre = (share + c2 / (2 * n)) / (1 + c2 / n)
    half = critical / (1 + c2 / n) * np.sqrt(np.maximum(share * (1 - share), 0.0) / n + c2 / (4 * n * n))
    return np.maximum(0.0, np.minimum(centre - half, share)), np.minimum(1.0, np.maximum(centre + half, share))


def clustered_intervals(
    share: Floats,
    sums: Floats,
    squared: Floats,
    crossed: Floats,
    base: Floats,
    weight: Floats,
    squares: Floats,
    binary: bool,
) -> tuple[Floats, Floats]:
    """95 % intervals (R,), (R,) of `share` (R,) for runs that share the denominators `base` (U,), all > 0.

    `weight`, `squares` (G,): sums of base and base^2 per cluster. `sums` (R, G): numerators per cluster. `squared`, `crossed` (R,): sums of
    numerator^2 and numerator x base over units. `binary`: every numerator is 0 or its denominator.
    """
    share = np.clip(share, 0.0, 1.0)
    total = base.sum()
    if weight.size == 1:
        return wilson(share, 1.0)
    if weight.size == base.size and binary and bool(np.all(base == base[0])):
        return wilson(share, float(base.size))
    n_plain = total * total / (base * base).sum()
    size = (weight * weight).sum() / squares.sum()
    kinds, kind, m = _kinds(weight, squares, bool(np.all(base == 1)))
    h = kinds[0] / total
    member = np.zeros((kind.size, m.size), dtype=sums.dtype)
    member[np.arange(kind.size), kind] = 1
    # Sums of small whole numbers are exact in float32 as well.
    first, second = (sums @ member).astype(float), (np.square(sums) @ member).astype(float)
    residual = second - 2 * share[:, None] * kinds[0] * first + np.square(share)[:, None] * kinds[0] ** 2 * m
    variance = np.maximum(residual, 0.0) @ (1 / (1 - h)) / total**2
    alone = (squared - 2 * share * crossed + share**2 * squares.sum()) / total**2
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = np.clip((variance / alone - 1) / (size - 1), 0.0, 1.0) if size > 1 else np.zeros_like(share)
        rho = np.where(alone > 0, rho, 0.0)
        bias, df = _under_correlation(h, m, kinds, rho)
        deff = variance / bias * n_plain / (share * (1 - share))
        deff = np.maximum(deff, (df * deff + 2) / (df + 2))
    deff = np.where((share > 0) & (share < 1), deff, 1 + RHO_AT_THE_EDGE * max(size - 1, 0.0))
    return wilson(share, n_plain / deff, stats.t.ppf(0.5 + LEVEL / 2, df))


def _kinds(weight: Floats, squares: Floats, ones: bool) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Clusters of the same weight and squares: (2, K) what these are, (G,) which one each cluster is, (K,) how many there are."""
    if ones:  # the weight of a cluster is the number of its units
        number = weight.astype(np.int64)
        many = np.bincount(number)
        there = np.flatnonzero(many)
        return np.stack([there, there]).astype(float), np.searchsorted(there, number), many[there].astype(float)
    kinds, kind, many = np.unique(np.stack([weight, squares]), axis=1, return_inverse=True, return_counts=True)
    return kinds, kind.ravel(), many.astype(float)


def _under_correlation(h: Floats, m: Floats, kinds: Floats, rho: Floats) -> tuple[Floats, Floats]:
    """`clustered.under_correlation` for the correlations `rho` (R,): bias and degrees of freedom (R,), (R,).

    `m` (K,) clusters of each kind; `kinds` (2, K): the sums of base and of base^2 in a cluster of that kind; `h` (K,) its share.
    """
    v = kinds[1] * (1 - rho[:, None]) + kinds[0] ** 2 * rho[:, None]
    whole = (v * m).sum(axis=1)
    a = 1 / (1 - h)
    p, q, r = (m * a * h * h).sum(), (m * a * v * v).sum(axis=1), (m * a * h * v).sum(axis=1)
    crossed = 2 * h * v - h * h * whole[:, None]
    own = a * (v - crossed)
    spread = 2 * p * q + 2 * r * r - 4 * whole * r * p + whole * whole * p * p
    spread += (m * own * own).sum(axis=1) - (m * a * a * crossed * crossed).sum(axis=1)
    expected = (m * own).sum(axis=1)
    return np.maximum(expected / whole, 1e-9), np.maximum(1.0, expected**2 / np.maximum(spread, 1e-300))
