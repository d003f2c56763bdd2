"""The variance of a ratio over clusters, for few and unequal clusters. What intervals and differences stand on.

Not here: turning it into an interval (`statistics.py`, `comparisons.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spread:
    """`variance` of the ratio, Satterthwaite's degrees of freedom `df` of that estimate, `size`: units per cluster as they weigh."""

    variance: float
    df: float
    size: float


def numbered(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The labels (U,) as numbers 0, 1, 2 ... without gaps. (For small labels faster than sorting them, as np.unique does.)"""
    if not len(labels) or labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() > 4 * len(labels) + 1000:
        found: NDArray[np.int64] = np.unique(labels, return_inverse=True)[1].astype(np.int64)
        return found
    there = np.zeros(int(labels.max()) + 1, np.int64)
    there[labels] = 1
    counted: NDArray[np.int64] = (np.cumsum(there) - 1)[labels]
    return counted


def ratio_spread(residual: Floats, base: Floats, index: NDArray[np.int64]) -> Spread:
    """Cluster-robust variance of sum(numerator) / sum(base), from residual = numerator - ratio x base, per unit (U,), base > 0.

    CR2 (Bell & McCaffrey 2002: each cluster's residual sum is divided by the root of 1 - its share), then freed of its bias, and given
    degrees of freedom, under the correlation within clusters that the data themselves show. `index` (U,) numbers at least two clusters.
    """
    total = float(base.sum())
    weight, squares = np.bincount(index, base), np.bincount(index, base * base)
    h = np.minimum(weight / total, 1 - 1e-9)  # a cluster that is all but everything
    size = float((weight * weight).sum() / squares.sum())
    sums = np.bincount(index, residual)
    variance = float((sums * sums / (1 - h)).sum()) / total**2
    alone = float((residual * residual).sum()) / total**2
    rho = min(max((variance / alone - 1) / (size - 1), 0.0), 1.0) if size > 1 and alone > 0 else 0.0
    bias, df = under_correlation(h, squares * (1 - rho) + weight * weight * rho)
    return Spread(variance / bias, df, size)


def under_correlation(h: Floats, v: Floats) -> tuple[float, float]:
    """Bias (expected / true) of the CR2 variance of a mean, and Satterthwaite's degrees of freedom.

    h (G,): the clusters' shares of the whole; v (G,): variances of the clusters' sums, up to a factor. Equal clusters give (1, G - 1).
    The covariances of the residual sums are v_g [g=k] - h_k v_g - h_g v_k + h_g h_k V; their squares are summed in closed form.
    """
    whole = float(v.sum())
    a = 1 / (1 - h)
    p, q, r = float((a * h * h).sum()), float((a * v * v).sum()), float((a * h * v).sum())
    crossed = 2 * h * v - h * h * whole
    own = a * (v - crossed)
    squares = 2 * p * q + 2 * r * r - 4 * whole * r * p + whole * whole * p * p
    squares += float((own * own).sum() - (a * a * crossed * crossed).sum())
    expected = float(own.sum())
    return max(expected / whole, 1e-9), max(1.0, expected * expected / max(squares, 1e-300))
