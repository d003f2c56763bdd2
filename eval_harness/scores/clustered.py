"""The variance of a ratio over clusters, for few and unequal clusters. What intervals and differences stand on.

See also: turning it into an interval (`intervals.py`, `comparisons.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]


PRIOR_CORRELATION = 0.7
"""Correlation within clusters that is assumed as far as the data do not show it."""
PRIOR_DF = 7.0
"""What this assumption weighs, in degrees of freedom."""
CLEAR = 0.25
"""The share of a cluster from which the rarer outcome counts as fully seen in it: a single one among many does not show whether the
cluster's outcomes go together. All three numbers were chosen with `benchmarks/scoring/interval_coverage.py`."""


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
    _, kind, often = np.unique(np.round(residual / base, 9), return_inverse=True, return_counts=True)
    rarer = np.bincount(index, base * (kind != often.argmax())).astype(float)
    clusters = Clusters(weight, squares, sums[None, :], rarer[None, :])
    variance, df = steadied(variance / bias, satterthwaite, independent, independent, clusters)
    return Spread(float(variance[0]), float(df[0]))


@dataclass(frozen=True, slots=True)
class Clusters:
    """What G clusters show of their outcomes in R runs: `weight`, `squares` (G,) are sums of base and base^2 over a cluster's units,
    `residual` (R, G) squared sums of residuals, `rarer` (R, G) the part of `weight` that has not the most common outcome. `times` (R, G):
    how many clusters of a run are as the column says, where alike ones are counted instead of listed."""

    weight: Floats
    squares: Floats
    residual: Floats
    rarer: Floats
    times: Floats | None = None

    def sums(self, values: Floats, factor: Floats) -> Floats:
        """`values` (R, G) times `factor` (G,), summed over the clusters of each run: (R,)."""
        return (values if self.times is None else values * self.times) @ factor

    def total(self, values: Floats) -> float:
        """`values` (G,), which follow from the size of a cluster, summed over the clusters: the same in every run."""
        return float(values.sum() if self.times is None else values @ self.times[0])


def steadied(
    variance: Floats, satterthwaite: Floats, independent: Floats, most: Floats, clusters: Clusters
) -> tuple[Floats, Floats]:
    """Variance and degrees of freedom (R,) for Student's t: the cluster-robust ones, or those of one correlation in all clusters,
    whichever makes the wider interval.

    The cluster-robust `variance` hangs on the few clusters that are large, or hold the rarer outcome: where these happen to look alike,
    it is far too small. What all clusters of several units show together is steadier. Their correlation is the mean of (squared residual
    sum / that of one outcome throughout, less what independent units give), a cluster of m units weighing 1 - 1 / m, and is worth 2
    degrees of freedom for every such cluster in which the rarer outcome is seen (fully from a share of CLEAR). With PRIOR_DF more of
    PRIOR_CORRELATION, it makes the design effect on `independent`, the variance if units were independent; that in turn is taken for
    `most`, its largest value for such a share, as far as few clusters show it.
    """
    weight, squares = clusters.weight, clusters.squares
    total, of_squares, full = clusters.total(weight), clusters.total(squares), weight * weight
    alone = np.minimum(np.divide(squares, full, out=np.ones_like(full), where=full > 0), 1.0)  # 1 / m
    together = np.where(alone < 1 - 1e-9, 1 - alone, 0.0)
    several = clusters.total(together)
    counted = together > 0
    per_full = np.divide(1.0, full, out=np.zeros_like(full), where=counted & (full > 1e-300))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        alike = clusters.sums(clusters.residual, per_full) / (independent * total**2 / of_squares)
        shown = np.clip(np.nan_to_num((alike - clusters.total(alone * counted)) / several), 0.0, 1.0)
    seen = np.minimum(clusters.rarer * (1 / np.maximum(CLEAR * weight, 1e-300)), 1.0)
    worth = 2 * clusters.sums(seen, np.ones_like(weight))
    worth_alike = 2 * clusters.sums(seen, together) * (several / max(clusters.total(together * together), 1e-300))
    rho = (worth_alike * shown + PRIOR_DF * PRIOR_CORRELATION) / (worth_alike + PRIOR_DF)
    of_units = (worth * independent + PRIOR_DF * most) / (worth + PRIOR_DF)
    size = max(clusters.total(full) / of_squares, 1.0)
    common, df = of_units * (1 + rho * (size - 1)), worth + PRIOR_DF
    robust_df = np.minimum(satterthwaite, df)
    wider = np.square(special.stdtrit(df, 0.975)) * common > np.square(special.stdtrit(robust_df, 0.975)) * variance
    return np.where(wider, common, variance), np.where(wider, df, robust_df)


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
