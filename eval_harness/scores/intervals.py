"""Compute 95 % intervals of clustered proportions, and the verdicts against chance based on them.

Clusters of questions on the same images inflate variances by a design effect, which is computed
here for intervals of proportions and for differences between models. The intervals are used for
measured scores, published scores and every cell of a breakdown. docs/statistics.md gives the
reasons and the coverage simulations.

See also: differences between models (`comparisons.py`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from eval_harness.records.result import MIN_INDEPENDENT_CASES, Score, Verdict

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


INTERVAL_METHOD = "Clopper-Pearson at the effective sample size"
"""`interval_method` of every score with an interval."""
ZERO_TOLERANCE = 1e-12
"""Numbers closer to 0 than this are taken as 0: sums of weights such as 1/23 are not exact."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval as fractions, and the effective sample size that it is based on."""

    low: float
    high: float
    n_effective: float


def clopper_pearson(share: Floats, n: Floats) -> tuple[Floats, Floats]:
    """Compute Clopper-Pearson intervals (1934) at fractional sample sizes (Korn & Graubard 1998).

    Args:
        share: Proportions in 0..1; any shape.
        n: Numbers of independent outcomes, not necessarily whole; same shape.

    Returns:
        Lower and upper ends of the 95 % intervals, as fractions.
    """
    hits, misses, tail = share * n, (1 - share) * n, (1 - CONFIDENCE_LEVEL) / 2
    low = np.where(hits > 0, special.betaincinv(np.maximum(hits, ZERO_TOLERANCE), misses + 1, tail), 0.0)
    high = np.where(misses > 0, special.betaincinv(hits + 1, np.maximum(misses, ZERO_TOLERANCE), 1 - tail), 1.0)
    return np.minimum(low, share), np.maximum(high, share)


def verdict_against_chance(
    low: float,
    high: float,
    n_effective: float,
    chance: float | None,
    higher_is_better: bool | None = True,
) -> Verdict | None:
    """Judge a score against chance by its 95 % interval.

    The verdict is about the responder, not the number: a confusion rate above chance is `worse`.

    Args:
        low: Lower end of the interval, percent.
        high: Upper end, percent.
        n_effective: Effective sample size.
        chance: Expected score of guessing, percent; None if unknown.
        higher_is_better: Direction of the metric; None if neither high nor low is better.

    Returns:
        `better`, `worse` or `no different`; None if chance or the metric's direction is unknown, or
        if the effective sample size is below MIN_INDEPENDENT_CASES.
    """
    if chance is None or higher_is_better is None or n_effective < MIN_INDEPENDENT_CASES:
        return None
    if low <= chance <= high:
        return "no different"
    return "better" if (low > chance) == higher_is_better else "worse"


def effective_sample_size(n: Floats, design: Floats, sizes: ClusterSizes) -> Floats:
    """Compute the effective sample size of clustered units (Korn & Graubard 1998).

    It is n / design effect x (1.96 / t)^2, where t is Student's quantile with as many degrees of
    freedom as effective clusters, minus 1. It is never below the effective size of outcomes that
    are identical within clusters.

    Args:
        n: Numbers of units; any shape.
        design: Design effects; same shape.
        sizes: Sizes of the clusters.
    """
    # Every cluster is a single unit, so there is no design effect.
    if sizes.clusters >= sizes.units:
        return n
    return np.maximum(
        n / design * (NORMAL_QUANTILE / student_quantile(sizes.effective_clusters - 1)) ** 2,
        n / sizes.max_design_effect,
    )


def printed_interval(value: float, n_cases: int, sharing: tuple[float, float] = (1.0, 1.0)) -> Interval:
    """Compute the interval of a published percentage from its number of cases alone.

    It is the interval that a measured score of this value would have with the minimum design
    effect: without the answers there is no telling how they cluster.

    Args:
        value: The published score, percent.
        n_cases: Number of cases behind it.
        sharing: Mean cluster size, averaged over clusters (U / G) and over cases (sum m^2 / sum m).
            With (1, 1) cases are taken as independent; if some share images, the true interval is
            wider.
    """
    # Rounding can put a published percentage slightly outside 0 to 100.
    share = np.array(min(max(value / 100, 0.0), 1.0))
    sizes = ClusterSizes(n_cases, n_cases / sharing[0], n_cases * sharing[1])
    n = np.array(float(n_cases))
    # The bound depends on the number of hits or misses, whichever is smaller.
    n = effective_sample_size(n, min_design_effect(np.minimum(share, 1 - share) * n, sizes), sizes)
    low, high = clopper_pearson(share, n)
    return Interval(float(low), float(high), float(n))


def clustered_interval(numerator: ArrayLike, denominator: ArrayLike, cluster: ArrayLike) -> Interval | None:
    """Compute the interval of one run's score; see `clustered_intervals`.

    Args:
        numerator: What each unit scores (U,).
        denominator: What each unit could score (U,); units with 0 are left out.
        cluster: Cluster number of each unit (U,).

    Returns:
        The interval of sum(numerator) / sum(denominator), or None if every denominator is 0.
    """
    numerators, denominators = (
        np.asarray(numerator, dtype=float),
        np.asarray(denominator, dtype=float),
    )
    counts = denominators > 0
    if not counts.any():
        return None
    numerators, denominators, cluster_index = (
        numerators[counts],
        denominators[counts],
        np.unique(np.asarray(cluster)[counts], return_inverse=True)[1],
    )
    low, high, n = clustered_intervals(
        np.bincount(cluster_index, numerators)[None, :],
        np.array([(numerators * numerators).sum()]),
        np.array([(numerators * denominators).sum()]),
        np.bincount(cluster_index, denominators).astype(float),
        float((denominators * denominators).sum()),
        np.bincount(cluster_index),
    )
    return Interval(float(low[0]), float(high[0]), float(n[0]))


def score_ratio(
    numerator: Floats,
    denominator: Floats,
    cluster: ArrayLike,
    n: int,
    n_cases: int,
    chance: float | None = None,
    higher_is_better: bool | None = None,
) -> Score:
    """Compute a percentage with its interval, and its verdict against chance.

    Args:
        numerator: What each unit scores (U,).
        denominator: What each unit could score (U,).
        cluster: Cluster number of each unit (U,).
        n: Number that is shown as the score's n.
        n_cases: Number of cases.
        chance: Expected score of guessing, percent; None if unknown.
        higher_is_better: Direction of the metric; None if neither high nor low is better.

    Returns:
        The score; without a value if every denominator is 0.
    """
    interval = clustered_interval(numerator, denominator, cluster)
    if interval is None:
        return Score(value=None, n=0, n_cases=0)
    low, high, n_effective = map(round_number, (100 * interval.low, 100 * interval.high, interval.n_effective))
    return Score(
        value=round_number(100 * float(numerator.sum()) / float(denominator.sum())),
        low=low,
        high=high,
        n=n,
        n_cases=n_cases,
        n_effective=n_effective,
        chance=chance,
        verdict=verdict_against_chance(low, high, n_effective, chance, higher_is_better),
        interval_method=INTERVAL_METHOD,
    )


def round_number(value: float) -> float:
    """Round to ten decimals: more than any use needs, and independent of the order of summation."""
    # Adding 0.0 turns -0.0 into 0.0.
    return round(value, 10) + 0.0


def clustered_intervals(
    cluster_numerators: NDArray[np.generic],
    numerator_squares: Floats,
    cross_products: Floats,
    cluster_denominators: Floats,
    denominator_squares: float,
    cluster_unit_counts: NDArray[np.generic],
) -> tuple[Floats, Floats, Floats]:
    """Compute 95 % intervals of R ratios over the same U units in the same G clusters.

    These are Clopper-Pearson intervals at the effective sample size (Korn & Graubard 1998; Dean &
    Pagano 2015 compare such intervals). Weighted units and means over samples first count as
    n = p (1 - p) / V independent outcomes, where V is the variance of the ratio p without
    clustering; `effective_sample_size` then reduces n for clustering.

    Args:
        cluster_numerators: Sums of numerators per cluster (R, G).
        numerator_squares: Sums of numerator^2 over units (R,).
        cross_products: Sums of numerator x denominator over units (R,).
        cluster_denominators: Sums of denominators per cluster (G,); all units have a denominator >
            0.
        denominator_squares: Sum of denominator^2 over units.
        cluster_unit_counts: Units per cluster (G,).

    Returns:
        Lower end, upper end (fractions) and effective sample size, (R,) each.
    """
    total_denominator = float(cluster_denominators.sum())
    hits = cluster_numerators.sum(axis=1, dtype=np.float64)
    share = np.clip(hits / total_denominator, 0.0, 1.0)
    # Snap to 0 and 1: only these two have one-sided intervals.
    share = np.where(np.abs(share - np.rint(share)) < ZERO_TOLERANCE, np.rint(share), share)
    cluster_sizes = ClusterSizes.from_sizes(cluster_unit_counts)
    bernoulli_variance = share * (1 - share)
    # The number of equally weighted outcomes with the same variance (Kish 1965).
    kish_size = total_denominator * total_denominator / denominator_squares
    residual_squares = numerator_squares - 2 * share * cross_products + share**2 * denominator_squares
    # Residual sum of squares of the linearised ratio, without rounding noise.
    residual_squares = np.where(residual_squares > ZERO_TOLERANCE * denominator_squares, residual_squares, 0.0)
    # Adding one 0/1 outcome keeps the variance above 0 if all units happen to score the same. For
    # units that are 0/1 outcomes themselves it changes nothing.
    variance = (residual_squares / denominator_squares * kish_size + bernoulli_variance) / (kish_size + 1)
    n = (
        np.divide(
            bernoulli_variance,
            variance,
            out=np.ones_like(bernoulli_variance),
            where=bernoulli_variance > ZERO_TOLERANCE,
        )
        * kish_size
    )
    if cluster_sizes.clusters < cluster_sizes.units:
        squared_residuals = np.square(cluster_numerators - share[:, None] * cluster_denominators)
        between = squared_residuals @ (1 / np.asarray(cluster_unit_counts, dtype=float))
        design = design_effect(
            residual_squares,
            between,
            squared_residuals.sum(axis=1),
            np.minimum(share, 1 - share) * n,
            cluster_sizes,
        )
        n = effective_sample_size(n, design, cluster_sizes)
    return (*clopper_pearson(share, n), n)
