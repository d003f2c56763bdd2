"""Compare models on the same questions: paired tests, ranks, and the agreement of people.

Two models are compared, or all pairs of many at once: differences, 95 % intervals and p-values.
Scores whose answers are not known are compared as if they came from independent samples
(`compute_unpaired_differences`). From the p-values of all pairs, corrected for multiple
comparisons, follow the ranks that each model may hold.

See also: design effects (`intervals.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from dataset_builders.errors import BadInput
from eval_harness.records.result import Score
from eval_harness.scores.intervals import (
    NORMAL_QUANTILE,
    Bools,
    ClusterSizes,
    Floats,
    Ints,
    design_effect,
    student_quantile,
)

PAIRED_METHOD = "Student's t, design effect of shared images"
"""Name of the test and interval of a paired difference, as shown to users."""

UNPAIRED_METHOD = "unpaired: from the two numbers alone"
"""Name of the test and interval of an unpaired difference, as shown to users."""
MIN_DIFFERING_UNITS = 1e-9
"""Fewer differing units than this are floating-point noise, and count as none."""


@dataclass(frozen=True)
class OutcomeMatrix:
    """Scores of M models on the same U units, packed once for many comparisons.

    Attributes:
        models: Names of the models.
        metric: Name of the metric.
        numerator: What each unit scores (M, U), float32.
        denominator: What each unit could score (M, U), float32.
        cluster: Cluster number of each unit (U,), ascending.
        units: Ids of the units (U,).
        paired: Whether all models have the same denominators.
    """

    models: tuple[str, ...]
    metric: str
    numerator: NDArray[np.float32]
    denominator: NDArray[np.float32]
    cluster: Ints
    units: NDArray[np.object_]
    paired: bool


def pack_outcomes(units: Mapping[str, pd.DataFrame], metric: str) -> OutcomeMatrix:
    """Pack the units of several models for one metric.

    Args:
        units: Model name -> its scoring units (`derive.metrics.compute_units`).
        metric: Name of the metric.

    Raises:
        BadInput: A unit that occurs twice, or models that did not answer the same questions.
    """
    frames = {name: frame[frame["metric"].to_numpy() == metric] for name, frame in units.items()}
    first_name, first_frame = next(iter(frames.items()))
    ids = pd.Index(first_frame["unit"].to_numpy(dtype=object))
    if not ids.is_unique:
        raise BadInput(f"{first_name}: {metric} counts a unit twice, so it cannot be compared. Choose another metric.")
    # Sorted by cluster once, so that sums over clusters are cheap afterwards.
    order = np.argsort(first_frame["cluster"].to_numpy(), kind="stable")
    numerators, denominators = [], []
    for name, frame in frames.items():
        own_ids = pd.Index(frame["unit"].to_numpy(dtype=object))
        if len(own_ids) != len(ids) or not own_ids.is_unique or not ids.isin(own_ids).all():
            raise BadInput(
                f"{name} and {first_name} did not answer the same questions, so {metric} cannot be compared."
            )
        positions = own_ids.get_indexer(ids)[order]
        numerators.append(frame["numerator"].to_numpy(np.float32)[positions])
        denominators.append(frame["denominator"].to_numpy(np.float32)[positions])
    denominator = np.stack(denominators)
    return OutcomeMatrix(
        tuple(frames),
        metric,
        np.stack(numerators),
        denominator,
        first_frame["cluster"].to_numpy(np.int64)[order],
        ids.to_numpy(dtype=object)[order],
        bool(np.all(denominator == denominator[0])),
    )


@dataclass(frozen=True, slots=True)
class PairwiseComparisons:
    """All pairwise comparisons of M models, in percent.

    Attributes:
        models: Names of the models.
        value: Scores (M,).
        difference: Score of the row minus score of the column (M, M), percentage points.
        low: Lower ends of the 95 % intervals (M, M).
        high: Upper ends (M, M).
        p: Uncorrected two-sided p-values (M, M); below 5 % if and only if the interval excludes 0.
    """

    models: tuple[str, ...]
    value: Floats
    difference: Floats
    low: Floats
    high: Floats
    p: Floats


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Paired comparison of two models on the same questions.

    Attributes:
        difference: Score of a minus score of b, percentage points.
        low: Lower end of the 95 % interval.
        high: Upper end.
        p: Two-sided p-value; below 5 % if and only if the interval excludes 0.
        only_a: Number of units on which a scores more than b.
        only_b: Number of units on which b scores more than a.
        n: Number of units with a denominator above 0 for either model.
        method: Name of the test.
    """

    difference: float
    low: float
    high: float
    p: float
    only_a: int
    only_b: int
    n: int
    method: str = PAIRED_METHOD


def compare_pairwise(outcomes: OutcomeMatrix) -> PairwiseComparisons:
    """Compare every pair of models with a cluster-robust paired t test.

    A unit's difference is u = z_a - z_b with z = (numerator - share x denominator) /
    sum(denominator). If the models have equal denominators, u is the centred difference of the
    outcomes; otherwise it is that of the linearised ratios.

    The variance of the difference of shares is (sum u^2 + e^2) x D. D is the
    `intervals.design_effect` of u, with h = sum u^2 / e^2 differing units. e^2 is the contribution
    of one more differing unit (1 / U^2, as Agresti & Min 2005 add to a table of pairs); it keeps
    the variance of identical answers above 0. The degrees of freedom of Student's t are the
    effective number of clusters minus 1 (`ClusterSizes.effective_clusters`, here weighted by the
    denominators), for whichever of the two models has fewer.

    The result for a pair does not depend on which other models are compared.

    Args:
        outcomes: Outcomes of M models on the same U units.

    Returns:
        All pairs, without correction for multiple comparisons (see `correct_for_ranks`).
    """
    moments = compute_moments(outcomes)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = standard_error(
            [_of_differences(products) for products in moments.products],
            moments.unit_variance,
            moments.sizes,
        )
        difference = moments.share[:, None] - moments.share[None, :]
        # With a single effective cluster nothing can be tested: p = 1 and the widest interval.
        p = np.where(moments.df > 1e-9, 2 * special.stdtr(moments.df, -np.abs(difference) / error), 1.0)
        half_width = np.where(moments.df > 1e-9, student_quantile(moments.df) * error, 2.0)
    return PairwiseComparisons(
        outcomes.models,
        100 * moments.share,
        100 * difference,
        100 * np.maximum(difference - half_width, -1.0),
        100 * np.minimum(difference + half_width, 1.0),
        np.where(np.isfinite(p), p, 1.0),
    )


def _of_differences(products: Floats) -> Floats:
    """Turn sums of products (M, M) into sums of squared differences: a^2 + b^2 - 2ab."""
    squares = np.diag(products)
    return np.maximum(squares[:, None] + squares[None, :] - 2 * products, 0.0)


@dataclass(frozen=True, slots=True)
class Moments:
    """First and second moments of M models' scores.

    They suffice for the variance of any linear combination of two scores.

    Attributes:
        share: Scores as fractions (M,).
        products: Three (M, M) sums of products of z (see `compare_pairwise`): over units, over
            clusters divided by cluster size, and over clusters.
        unit_variance: e^2 of every pair (M, M).
        df: Student's degrees of freedom of every pair (M, M).
        sizes: Sizes of the clusters.
    """

    share: Floats
    products: tuple[Floats, Floats, Floats]
    unit_variance: Floats
    df: Floats
    sizes: ClusterSizes


def compute_moments(outcomes: OutcomeMatrix) -> Moments:
    """Compute the moments of M models' linearised scores.

    Args:
        outcomes: Outcomes of M models on the same U units.
    """
    n_models, denominator = (
        len(outcomes.models),
        outcomes.denominator[: 1 if outcomes.paired else None].astype(np.float64),
    )
    total_weight = denominator.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = outcomes.numerator.sum(axis=1, dtype=np.float64) / total_weight
        influence = share[:, None] * denominator  # in place: for hundreds of models each copy takes gigabytes
        np.subtract(outcomes.numerator, influence, out=influence)
        influence /= total_weight[:, None]
        unit_variance = np.broadcast_to(np.square(denominator).sum(axis=1) / np.square(total_weight), n_models)
    # Units are sorted by cluster, so a cluster's sum is taken over consecutive units.
    starts = np.flatnonzero(np.r_[True, np.diff(outcomes.cluster) != 0])
    cluster_sizes = np.diff(np.r_[starts, len(outcomes.cluster)])
    sizes = ClusterSizes.from_sizes(cluster_sizes)
    products = influence @ influence.T
    between = sums = products
    if sizes.clusters < sizes.units:
        cluster_totals = np.add.reduceat(influence, starts, axis=1)
        # Dividing by sqrt(size) here gives products over clusters divided by their size.
        scaled = cluster_totals / np.sqrt(cluster_sizes)
        between, sums = scaled @ scaled.T, cluster_totals @ cluster_totals.T
    cluster_weights = np.add.reduceat(denominator, starts, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        effective_clusters = np.broadcast_to(np.square(total_weight) / np.square(cluster_weights).sum(axis=1), n_models)
    return Moments(
        share,
        (products, between, sums),
        (unit_variance[:, None] ** 2 + unit_variance[None, :] ** 2) / 2,
        np.minimum(effective_clusters[:, None], effective_clusters[None, :]) - 1.0,
        sizes,
    )


def standard_error(sums: Sequence[Floats], unit_variance: Floats, sizes: ClusterSizes) -> Floats:
    """Compute the cluster-robust standard error of a difference.

    Args:
        sums: Sums of squares of z over units, over clusters divided by size, and over clusters (see
            `Moments.products`).
        unit_variance: e^2, the contribution of one more differing unit (see `compare_pairwise`).
        sizes: Sizes of the clusters.

    Returns:
        Standard errors as fractions, of the shape of the sums.
    """
    # A tiny fraction of a differing unit is rounding noise, not a difference.
    squares = np.where(sums[0] > MIN_DIFFERING_UNITS * unit_variance, sums[0], 0.0)
    design = design_effect(squares, sums[1], sums[2], squares / unit_variance, sizes)
    return np.sqrt((squares + unit_variance) * design)


def paired_test(units_a: pd.DataFrame, units_b: pd.DataFrame, metric: str) -> PairedTest:
    """Compare two models on one metric with the test of `compare_pairwise`.

    Args:
        units_a: Scoring units of the first model (`derive.metrics.compute_units`).
        units_b: Scoring units of the second model.
        metric: Name of the metric.

    Returns:
        The difference in percentage points, its 95 % interval and p-value.

    Raises:
        BadInput: The two models did not answer the same questions.
    """
    outcomes = pack_outcomes({"a": units_a, "b": units_b}, metric)
    pairs = compare_pairwise(outcomes)
    # For the reader only: the test does not use how many units favour either model.
    score_difference = outcomes.numerator[0] - outcomes.numerator[1]
    return PairedTest(
        float(pairs.difference[0, 1]),
        float(pairs.low[0, 1]),
        float(pairs.high[0, 1]),
        float(pairs.p[0, 1]),
        only_a=int((score_difference > 0).sum()),
        only_b=int((score_difference < 0).sum()),
        n=int((outcomes.denominator > 0).any(axis=0).sum()),
    )


def compute_unpaired_differences(scores: Sequence[Score], are_counts: bool = False) -> tuple[Floats, Floats, Floats]:
    """Compute 95 % intervals and p-values of the differences of all pairs of M scores.

    The models of a paper answered the same questions, so most true p-values are smaller than these.
    The method is that of Agresti & Caffo 2000. Each score counts as `n_effective` outcomes
    (`n_cases` if that is unknown), to which one hit and one miss are added: they keep the variance
    of 0 and 100 % above 0.

    Args:
        scores: M scores.
        are_counts: True if the values are counts out of n instead of percentages; the differences
            are still those of percentages.

    Returns:
        Lower ends, upper ends (percentage points, row minus column) and uncorrected two-sided
        p-values, (M, M) each; p is below 5 % if and only if the interval excludes 0. NaN and p = 1
        where the number of cases is unknown.
    """
    is_known = [score.value is not None and score.n_cases > 0 for score in scores]
    scale = [score.n if are_counts else 100 for score in scores]
    n = np.array([score.n_effective or score.n_cases for score in scores], dtype=float)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # Invalid sizes give NaN here and p = 1 below; they never raise.
        fraction = np.array([score.value or 0.0 for score in scores]) / np.array(scale, dtype=float)
        share = np.where(is_known, np.clip((fraction * n + 1) / (n + 2), 0, 1), np.nan)
        variance = share * (1 - share) / (n + 2)
        difference = share[:, None] - share[None, :]
        error = np.sqrt(variance[:, None] + variance[None, :])
        p = 2 * special.ndtr(-np.abs(difference) / error)
        half_width = NORMAL_QUANTILE * error
    low, high = np.maximum(difference - half_width, -1.0), np.minimum(difference + half_width, 1.0)
    return 100 * low, 100 * high, np.where(np.isfinite(p), p, 1.0)


def compute_unpaired_difference(score_a: Score, score_b: Score) -> tuple[float, float, float]:
    """Compare two percentages as if they came from independent samples.

    Returns:
        Lower end, upper end (percentage points, a minus b) and two-sided p-value.
    """
    low, high, p = compute_unpaired_differences([score_a, score_b])
    return float(low[0, 1]), float(high[0, 1]), float(p[0, 1])


def holm_adjust_pairs(p: Floats) -> Floats:
    """Apply Holm's correction (1979) to a symmetric (M, M) table of p-values."""
    upper = np.triu_indices(len(p), 1)
    table = np.ones_like(p)
    table[upper] = holm_adjust(p[upper])
    return np.minimum(table, table.T)


def holm_adjust(p: Floats) -> Floats:
    """Compute Holm's adjusted p-values (1979) of one family of tests, (K,) -> (K,)."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    # Holm's is a step-down procedure: a larger p must not get a smaller adjusted value.
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p)))), 1.0)
    return adjusted


@dataclass(frozen=True, slots=True)
class RankRanges:
    """The lowest and highest rank that each of M models may hold, in the models' order.

    Ranks are derived from the pairwise tests alone, so the two never contradict each other. Two
    models whose ranges overlap may still differ significantly: both may be tied with models in
    between.

    Attributes:
        best_rank: 1 + the number of models that are significantly better (M,). All models that no
            other beats thus share rank 1. This is the rank that is displayed.
        worst_rank: M - the number of models that are significantly worse (M,).
        corrected: Corrected p-values of all pairs (M, M), see `correct_for_ranks`.
        differs: Whether a pair differs significantly (M, M): `corrected` is below 5 %.
    """

    best_rank: Ints
    worst_rank: Ints
    corrected: Floats
    differs: Bools


def correct_for_ranks(value: Floats, p: Floats, higher_is_better: bool = True) -> Floats:
    """Correct the p-values of all pairs of M models for multiple comparisons.

    There are two corrections, and each pair gets the one with the smaller p-value:

    - Holm's, over all M (M - 1) / 2 pairs (`holm_adjust_pairs`). If all models are equally good,
      any of them differ significantly in at most 5 % of samples.
    - For a pair with the highest-scoring model (or one of several), Bonferroni's over M - 1
      one-sided comparisons: the two-sided p x (M - 1) / 2, never less than p. This is a comparison
      with the best (Hsu 1984), here valid under any dependence. The truly best model is wrongly
      beaten in at most 5 % of samples. If several models are equally good, this holds for each one
      alone; the probability that any of them is beaten is higher.

    Args:
        value: Scores (M,).
        p: Uncorrected two-sided p-values (M, M).
        higher_is_better: Direction of the metric.

    Returns:
        Corrected p-values (M, M).
    """
    is_best = value == (value.max(initial=-np.inf) if higher_is_better else value.min(initial=np.inf))
    # Half of the two-sided p is the one-sided p; Bonferroni multiplies it by M - 1.
    with_best = np.where(
        is_best[:, None] != is_best[None, :],
        np.minimum(p * max((len(value) - 1) / 2, 1.0), 1.0),
        1.0,
    )
    return np.minimum(holm_adjust_pairs(p), with_best)


def compute_rank_ranges(value: Floats, p: Floats, higher_is_better: bool = True) -> RankRanges:
    """Compute the ranks that M models may hold.

    Args:
        value: Scores (M,), without NaN.
        p: Uncorrected p-values (M, M) of `compare_pairwise`.
        higher_is_better: Direction of the metric.
    """
    corrected = correct_for_ranks(value, p, higher_is_better)
    differs = corrected < 0.05
    is_ahead = value[None, :] > value[:, None] if higher_is_better else value[None, :] < value[:, None]
    return RankRanges(
        1 + (differs & is_ahead).sum(axis=1),
        len(value) - (differs & is_ahead.T).sum(axis=1),
        corrected,
        differs,
    )


def krippendorff_alpha(ratings: NDArray[np.float64], level: Literal["nominal", "ordinal"]) -> float | None:
    """Compute Krippendorff's alpha.

    Args:
        ratings: shape (raters, items); NaN where a rater did not rate.
        level: level of measurement.

    Returns:
        At most 1; None if disagreement was impossible, because no item has two ratings or all
        ratings of such items are equal.
    """
    import krippendorff

    is_rated = ~np.isnan(ratings)
    is_shared = is_rated & (is_rated.sum(axis=0) > 1)
    if len(np.unique(ratings[is_shared])) < 2:
        return None
    return float(krippendorff.alpha(reliability_data=ratings, level_of_measurement=level))
