"""Compute design effects, by which clusters of questions on the same images inflate variances.

Used for intervals of proportions (`intervals.py`) and for differences between models
(`comparisons.py`). docs/statistics.md gives the reasons and the coverage simulations.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

CONFIDENCE_LEVEL = 0.95
NORMAL_QUANTILE = float(special.ndtri(0.5 + CONFIDENCE_LEVEL / 2))
"""Quantile of the standard normal distribution for a two-sided interval (1.96)."""


@dataclass(frozen=True, slots=True)
class ClusterSizes:
    """Sizes of the clusters that scoring units fall into.

    Attributes:
        units: Number of units U.
        clusters: Number of clusters G.
        squares: Sum of the squared cluster sizes, in units^2.
    """

    units: float
    clusters: float
    squares: float

    @classmethod
    def from_sizes(cls, sizes: NDArray[np.generic]) -> "ClusterSizes":
        """Summarise an array (G,) of cluster sizes, in units."""
        sizes_float = np.asarray(sizes, dtype=float)
        return cls(float(sizes_float.sum()), float(sizes_float.size), float(sizes_float @ sizes_float))

    @property
    def max_design_effect(self) -> float:
        """Design effect of outcomes identical within clusters: sum m^2 / sum m (Kish 1965)."""
        return self.squares / self.units

    @property
    def effective_clusters(self) -> float:
        """Effective number of equal-sized clusters: U^2 / sum m^2.

        Carter, Schnepel & Steigerwald 2017.
        """
        return self.units / self.max_design_effect


def intracluster_correlation(squared_residuals: Floats, between: Floats, sizes: ClusterSizes) -> Floats:
    """Estimate the intracluster correlation by analysis of variance (Donner 1986, equation 3).

    Args:
        squared_residuals: Sums over units of squared residuals; any shape.
        between: Sums over clusters of (sum of residuals)^2 / cluster size; same shape.
        sizes: Sizes of the clusters.

    Returns:
        Correlations clipped to 0..1; 0 if all units are independent or there is one cluster.
    """
    if sizes.clusters >= sizes.units or sizes.clusters < 2:
        return np.zeros(np.shape(squared_residuals))
    # Rounding can make the between-cluster sum exceed the total.
    between = np.minimum(between, squared_residuals)
    within_mean_square = (squared_residuals - between) / (sizes.units - sizes.clusters)
    between_mean_square = between / (sizes.clusters - 1)
    mean_cluster_size = (sizes.units - sizes.max_design_effect) / (sizes.clusters - 1)
    total = between_mean_square + (mean_cluster_size - 1) * within_mean_square
    return np.clip(
        np.divide(
            between_mean_square - within_mean_square,
            total,
            out=np.zeros_like(total),
            where=total > 0,
        ),
        0.0,
        1.0,
    )


def design_effect(
    squared_residuals: Floats,
    between: Floats,
    cluster_sums: Floats,
    rarer_outcomes: Floats,
    sizes: ClusterSizes,
) -> Floats:
    """Compute the design effect: the variance of a mean of clustered over independent units.

    It is the largest of three estimates:

    - 1 + (sum m^2 / sum m - 1) x intracluster correlation (Kish 1965), which assumes that all
      clusters are equally correlated;
    - the linearised variance (Kish & Frankel 1974), `cluster_sums` / `squared_residuals`, which
      captures a single large cluster that differs from the rest;
    - `min_design_effect`, since a few outcomes of the rarer kind cannot show how they cluster.

    Args:
        squared_residuals: Sums over units of squared residuals; any shape.
        between: Sums over clusters of (sum of residuals)^2 / cluster size; same shape.
        cluster_sums: Sums over clusters of (sum of residuals)^2; same shape.
        rarer_outcomes: Number h of outcomes of the rarer kind; same shape.
        sizes: Sizes of the clusters.

    Returns:
        Design effects of the same shape, at least 1.
    """
    # Each estimate is blind to one kind of clustering: take the largest.
    correlated = 1 + (sizes.max_design_effect - 1) * intracluster_correlation(squared_residuals, between, sizes)
    linearised = np.divide(
        cluster_sums,
        squared_residuals,
        out=np.ones_like(squared_residuals),
        where=squared_residuals > 0,
    )
    return np.maximum(np.maximum(correlated, linearised), min_design_effect(rarer_outcomes, sizes))


def min_design_effect(rarer_outcomes: Floats, sizes: ClusterSizes) -> Floats:
    """Compute the lower bound of the design effect, 1 + (U / G - 1) / h.

    Args:
        rarer_outcomes: Number h of outcomes of the rarer kind (hits or misses).
        sizes: Sizes of the clusters.
    """
    return 1 + (sizes.units / sizes.clusters - 1) / np.maximum(rarer_outcomes, 1)


def student_quantile(df: Floats | float) -> Floats:
    """Return Student's t quantile of the two-sided 95 % interval.

    Args:
        df: Degrees of freedom; may be fractional.

    Returns:
        Quantiles of the same shape; infinite where there are no degrees of freedom.
    """
    # stdtrit gives NaN for df <= 0: no information about the variance.
    quantile = special.stdtrit(np.asarray(df, dtype=float), 0.5 + CONFIDENCE_LEVEL / 2)
    return np.where(np.isfinite(quantile), quantile, np.inf).astype(np.float64)
