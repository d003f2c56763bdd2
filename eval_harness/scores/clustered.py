"""The variance of a ratio over clusters, for few and unequal clusters. What intervals and differences stand on.

See also: turning it into an interval (`intervals.py`, `comparisons.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


PRIOR_CORRELATION = 0.7
"""Correlation within clusters that is assumed as far as the data do not show it."""
PRIOR_DF = 7.0
"""What this assumption weighs, in degrees of freedom. Both numbers were chosen with `benchmarks/scoring/interval_coverage.py`."""


@dataclass(frozen=True, slots=True)
class Spread:
    """`variance` of the ratio, and the degrees of freedom `df` for Student's t."""

    variance: float
    df: float


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

    CR2 (Bell & McCaffrey 2002: each cluster's residual sum is divided by the root of 1 - its share), then freed of its bias under the
    correlation within clusters that the data themselves show, and made safe for rare outcomes (`steadied`). `index` (U,) numbers at
    least two clusters.
    """
    total = float(base.sum())
    weight, squares = (np.bincount(index, values).astype(float) for values in (base, base * base))
    h = np.minimum(weight / total, 1 - 1e-9)  # a cluster that is all but everything
    size = max(float((weight * weight).sum() / squares.sum()), 1.0)
    sums = np.square(np.bincount(index, residual))
    variance = np.array([float((sums / (1 - h)).sum()) / total**2])
    independent = np.array([float((residual * residual).sum()) / total**2])
    seen = independent > 0
    rho = np.clip((variance / np.where(seen, independent, 1.0) - 1) / max(size - 1, 1e-9), 0.0, 1.0) * seen
    v = (squares * (1 - rho) + weight * weight * rho)[None, :]
    bias, satterthwaite = under_correlation(h, v, np.ones(len(h)))
    worth = worth_of(sums[None, :], v, np.ones(len(h))) * seen
    variance, df = steadied(variance / bias, independent, size, worth, satterthwaite)
    return Spread(float(variance[0]), float(df[0]))


def worth_of(squares: Floats, v: Floats, many: Floats, seen: Floats | None = None) -> Floats:
    """Degrees of freedom (R,) that a variance is worth which is a sum of squared residual sums (R, G): 2 / its relative variance.
    `seen` (R, G): each of them times how many clusters have it, where alike ones are counted instead of listed.

    From the fourth powers of the residual sums, less what differs between clusters anyway (`v` (R, K), the variances expected of
    clusters of each kind, `many` (K,) of them): about twice the number of clusters that hold the rarer outcome. (O'Neill 2014 has the
    formula for independent units.)
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        seen = squares if seen is None else seen
        relative = (squares * seen).sum(axis=1) / np.square(seen.sum(axis=1)) - (v**2 @ many) / np.square(v @ many)
        return np.where(relative > 0, 2 / relative, 1e9)


def steadied(
    variance: Floats, independent: Floats, size: float, worth: Floats, satterthwaite: Floats
) -> tuple[Floats, Floats]:
    """A cluster-robust variance (R,) pulled up as far as the data cannot show how outcomes go together, and its degrees of freedom.

    Where hits (or misses) are rare, the variance hangs on a few clusters, and with no cluster full of hits in sight it is far too small.
    It becomes (worth x variance + PRIOR_DF x assumed) / (worth + PRIOR_DF) where that is more; `assumed` is `independent` (the variance if
    units were independent) times the design effect at the correlation PRIOR_CORRELATION, in clusters of `size` units. Student's t has
    worth + PRIOR_DF degrees of freedom, at most Satterthwaite's (those of clusters whose sums are normal).
    """
    assumed = independent * (1 + PRIOR_CORRELATION * (size - 1))
    pulled = np.maximum(variance, (worth * variance + PRIOR_DF * assumed) / (worth + PRIOR_DF))
    return pulled, np.minimum(satterthwaite, worth + PRIOR_DF)


def under_correlation(h: Floats, v: Floats, many: Floats) -> tuple[Floats, Floats]:
    """Bias (expected / true) of the CR2 variance of a mean, and Satterthwaite's degrees of freedom: (R,), (R,).

    `h` (K,): the share of the whole that a cluster of each kind has; `many` (K,): how many clusters there are of each kind; `v` (R, K):
    variances of the clusters' sums, up to a factor, in R cases. Equal clusters give (1, G - 1).
    The covariances of the residual sums are v_g [g=k] - h_k v_g - h_g v_k + h_g h_k V; their squares are summed in closed form.
    """
    h = np.minimum(h, 1 - 1e-9)  # a cluster that is all but everything
    whole = v @ many
    a = 1 / (1 - h)
    p, q, r = float((many * a * h * h).sum()), (v * v) @ (many * a), v @ (many * a * h)
    crossed = 2 * h * v - h * h * whole[:, None]
    own = a * (v - crossed)
    squares = 2 * p * q + 2 * r * r - 4 * whole * r * p + whole * whole * p * p
    squares += (own * own - np.square(a * crossed)) @ many
    expected = own @ many
    bias = np.maximum(expected / whole, 1e-9)
    return bias, np.maximum(1.0, expected * expected / np.maximum(squares, 1e-300))
