"""The difference between models on the same questions: its 95 % interval and the test that reads it, for two models or all pairs at once.

See also: the packed outcomes (`outcomes.py`), design effects (`clustered.py`), what follows for the order of many models (`ranks.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from eval_harness.scores.clustered import ClusterSizes, Floats, design_effect, student_quantile
from eval_harness.scores.outcome_matrix import OutcomeMatrix, pack_outcomes

PAIRED_METHOD = "Student's t, design effect of shared images"
"""How a difference of two models on the same questions is tested, and its interval found."""

ROUNDING = 1e-9
"""Differing units, fewer than which are none."""


@dataclass(frozen=True, slots=True)
class PairwiseComparisons:
    """All comparisons of M models, in percent: `value` (M,), `difference` (M, M) = value of row - value of column, its 95 % interval `low`,
    `high` (M, M), and the uncorrected two-sided p-value `p` (M, M), which is under 5 % exactly where the interval excludes 0."""

    models: tuple[str, ...]
    value: Floats
    difference: Floats
    low: Floats
    high: Floats
    p: Floats


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Two models on the same questions. Percent points; `n`: units that count in either of them; `only_a`, `only_b`: on how many one of
    them scored more; p two-sided, under 5 % exactly where the interval excludes 0."""

    difference: float
    low: float
    high: float
    p: float
    only_a: int
    only_b: int
    n: int
    method: str = PAIRED_METHOD


def compare_pairwise(outcomes: OutcomeMatrix) -> PairwiseComparisons:
    """Compare every two models: Student's t for the mean of the units' differences, with the design effect of clustered questions.

    A unit's difference is u = z_a - z_b, z = (numerator - share x denominator) / sum(denominator): of the same denominators the difference
    of the outcomes less its mean, else the linearised ratio. The variance of the difference of shares is (sum u^2 + e^2) x
    `clustered.design_effect` of u, with h = sum u^2 / e^2 units in which the two differ. e^2 is what one differing unit more would add
    (1 / U^2; Agresti & Min 2005 add as much to a table of pairs), so that equal answers are not taken for certain. Student's t has one
    degree of freedom less than there are effective clusters (`ClusterSizes.effective_clusters`, here by weight) of the model with fewer.

    Every pair is compared as by itself, whatever the other models are.
    """
    found = compute_moments(outcomes)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = standard_error([_of_differences(each) for each in found.products], found.unit, found.sizes)
        difference = found.share[:, None] - found.share[None, :]
        p = np.where(found.df > 1e-9, 2 * special.stdtr(found.df, -np.abs(difference) / error), 1.0)
        half = np.where(found.df > 1e-9, student_quantile(found.df) * error, 2.0)
    return PairwiseComparisons(
        outcomes.models,
        100 * found.share,
        100 * difference,
        100 * np.maximum(difference - half, -1.0),
        100 * np.minimum(difference + half, 1.0),
        np.where(np.isfinite(p), p, 1.0),
    )


def _of_differences(products: Floats) -> Floats:
    """From (M, M) sums of products of two models each, the sums of the squares of their differences."""
    own = np.diag(products)
    return np.maximum(own[:, None] + own[None, :] - 2 * products, 0.0)


@dataclass(frozen=True, slots=True)
class Moments:
    """Scores of M models on the same units, in the form that the variance of any difference between them needs.

    `share` (M,): fractions; `products`: three (M, M) sums of products of z: over units, over clusters divided by their sizes, and over
    clusters (see `clustered.design_effect`); `unit`, `df` (M, M): e^2 and Student's degrees of freedom of every pair (see `pairwise`).
    """

    share: Floats
    products: tuple[Floats, Floats, Floats]
    unit: Floats
    df: Floats
    sizes: ClusterSizes


def compute_moments(outcomes: OutcomeMatrix) -> Moments:
    """The moments of M models' linearised scores."""
    models, base = len(outcomes.models), outcomes.denominator[: 1 if outcomes.paired else None].astype(np.float64)
    total = base.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = outcomes.numerator.sum(axis=1, dtype=np.float64) / total
        influence = share[:, None] * base  # of hundreds of models gigabytes, if each step made a table of its own
        np.subtract(outcomes.numerator, influence, out=influence)
        influence /= total[:, None]
        one = np.broadcast_to(np.square(base).sum(axis=1) / np.square(total), models)
    starts = np.flatnonzero(np.r_[True, np.diff(outcomes.cluster) != 0])
    size = np.diff(np.r_[starts, len(outcomes.cluster)])
    sizes = ClusterSizes.from_sizes(size)
    products = influence @ influence.T
    between = sums = products
    if sizes.clusters < sizes.units:
        totals = np.add.reduceat(influence, starts, axis=1)
        scaled = totals / np.sqrt(size)
        between, sums = scaled @ scaled.T, totals @ totals.T
    weight = np.add.reduceat(base, starts, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        clusters = np.broadcast_to(np.square(total) / np.square(weight).sum(axis=1), models)
    return Moments(
        share,
        (products, between, sums),
        (one[:, None] ** 2 + one[None, :] ** 2) / 2,
        np.minimum(clusters[:, None], clusters[None, :]) - 1.0,
        sizes,
    )


def standard_error(sums: Sequence[Floats], unit: Floats, sizes: ClusterSizes) -> Floats:
    """The standard error of sums of z, from three `sums` of their squares (as `Moments.products`) and e^2 (see `pairwise`)."""
    squares = np.where(sums[0] > ROUNDING * unit, sums[0], 0.0)
    effect = design_effect(squares, sums[1], sums[2], squares / unit, sizes)
    return np.sqrt((squares + unit) * effect)


def paired_test(units_a: pd.DataFrame, units_b: pd.DataFrame, metric: str) -> PairedTest:
    """Compare two models on one metric (`pairwise`): the difference with its 95 % interval, and the p-value, in percent points.

    Raises BadInput if the two did not answer the same questions.
    """
    outcomes = pack_outcomes({"a": units_a, "b": units_b}, metric)
    pairs = compare_pairwise(outcomes)
    won = outcomes.numerator[0] - outcomes.numerator[1]
    return PairedTest(
        float(pairs.difference[0, 1]),
        float(pairs.low[0, 1]),
        float(pairs.high[0, 1]),
        float(pairs.p[0, 1]),
        only_a=int((won > 0).sum()),
        only_b=int((won < 0).sum()),
        n=int((outcomes.denominator > 0).any(axis=0).sum()),
    )
