"""Design effects: how much clusters of questions on the same images widen an interval. Intervals and differences both use it.

See also: intervals of shares (`intervals.py`), differences between models (`comparisons.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

CONFIDENCE_LEVEL = 0.95
NORMAL_QUANTILE = float(special.ndtri(0.5 + CONFIDENCE_LEVEL / 2))


@dataclass(frozen=True, slots=True)
class ClusterSizes:
    """U `units` in G `clusters`; `squares`: the sum of the squared sizes of the clusters, in units."""

    units: float
    clusters: float
    squares: float

    @classmethod
    def from_sizes(cls, sizes: NDArray[np.generic]) -> ClusterSizes:
        """From the sizes (G,) of the clusters."""
        each = np.asarray(sizes, dtype=float)
        return cls(float(each.sum()), float(each.size), float(each @ each))

    @property
    def max_design_effect(self) -> float:
        """The design effect of outcomes that are identical within clusters (Kish 1965): sum of squares / sum."""
        return self.squares / self.units

    @property
    def effective_clusters(self) -> float:
        """As how many clusters of equal size they count (Carter, Schnepel & Steigerwald 2017): U^2 / sum of squares."""
        return self.units / self.max_design_effect


def renumber_labels(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The labels (U,) as numbers 0, 1, 2 ... without gaps. (For small labels faster than sorting them, as np.unique does.)"""
    if not len(labels) or labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() > 4 * len(labels) + 1000:
        found: NDArray[np.int64] = np.unique(labels, return_inverse=True)[1].astype(np.int64)
        return found
    there = np.zeros(int(labels.max()) + 1, np.int64)
    there[labels] = 1
    counted: NDArray[np.int64] = (np.cumsum(there) - 1)[labels]
    return counted


def intracluster_correlation(squares: Floats, between: Floats, sizes: ClusterSizes) -> Floats:
    """The analysis-of-variance estimate of the correlation within clusters (Donner 1986, equation 3), at least 0 and at most 1."""
    if sizes.clusters >= sizes.units or sizes.clusters < 2:
        return np.zeros(np.shape(squares))
    between = np.minimum(between, squares)
    within = (squares - between) / (sizes.units - sizes.clusters)
    among = between / (sizes.clusters - 1)
    size = (sizes.units - sizes.max_design_effect) / (sizes.clusters - 1)
    total = among + (size - 1) * within
    return np.clip(np.divide(among - within, total, out=np.zeros_like(total), where=total > 0), 0.0, 1.0)


def design_effect(squares: Floats, between: Floats, sums: Floats, rarer: Floats, sizes: ClusterSizes) -> Floats:
    """The variance of a mean over clusters, divided by that over as many independent units. The largest of

    - 1 + (sum m^2 / sum m - 1) x `intracluster_correlation` (Kish 1965), which takes all clusters for equally correlated;
    - the linearised variance (Kish & Frankel 1974), `sums` / `squares`, which sees that a single large cluster is unlike the rest;
    - 1 + (U / G - 1) / h, where h = `rarer` outcomes of the rarer kind were seen: one or a few of them do not show how they cluster.

    `squares`: sum of the squared residuals of the units; `sums`, `between`: sum over clusters of (sum of residuals)^2, and of
    (sum of residuals)^2 / size; any shape.
    """
    correlated = 1 + (sizes.max_design_effect - 1) * intracluster_correlation(squares, between, sizes)
    linearised = np.divide(sums, squares, out=np.ones_like(squares), where=squares > 0)
    return np.maximum(np.maximum(correlated, linearised), min_design_effect(rarer, sizes))


def min_design_effect(rarer: Floats, sizes: ClusterSizes) -> Floats:
    """The least `design_effect`, after `rarer` outcomes of the rarer kind."""
    return 1 + (sizes.units / sizes.clusters - 1) / np.maximum(rarer, 1)


def student_quantile(df: Floats | float) -> Floats:
    """Student's two-sided 95 % quantile; infinite without a degree of freedom."""
    quantile = special.stdtrit(np.asarray(df, dtype=float), 0.5 + CONFIDENCE_LEVEL / 2)
    return np.where(np.isfinite(quantile), quantile, np.inf).astype(np.float64)
