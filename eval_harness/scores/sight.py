"""Measure how much of a score comes from the image, from runs with and without the right image.

The same questions are asked with the right image and in up to three arms, which show another image,
a blank one, or none. See also: differences of two runs (`comparisons.py`), which images an arm
shows (`runs/requests.py`), docs/sight.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import optimize, special

from eval_harness.scores.comparisons import (
    Moments,
    compare_pairwise,
    compute_moments,
    pack_outcomes,
    standard_error,
)
from eval_harness.scores.intervals import CONFIDENCE_LEVEL

TAIL_PROBABILITY = (1 - CONFIDENCE_LEVEL) / 2
MAX_SHARE = 1e3
"""The search for the upper end of the share's interval stops at this ratio."""


@dataclass(frozen=True, slots=True)
class Arm:
    """Comparison of a run's score with that of one arm, in percent and percentage points.

    Attributes:
        score: Score without the right image.
        difference: score(real) - score(arm).
        low: Lower end of the 95 % interval of the difference.
        high: Upper end.
        p: Two-sided p-value; it is below 5 % if and only if the interval excludes 0.
    """

    score: float
    difference: float
    low: float
    high: float
    p: float


@dataclass(frozen=True, slots=True)
class Sight:
    """How much of a score is lost without the right image.

    Attributes:
        metric: Name of the metric.
        score: Score with the right images, percent.
        arms: Arm -> its comparison with the score.
        best_arm: The arm with the smallest difference.
        value: That smallest difference, percentage points.
        low: Lower end of its 95 % interval.
        high: Upper end.
        share: Score of the best arm as a percentage of the score; None if the score is 0.
        share_low: Lower end of the share's interval; None if the score is not significantly above
            0.
        share_high: Upper end, likewise.
        n: Number of units.
    """

    metric: str
    score: float
    arms: Mapping[str, Arm]
    best_arm: str
    value: float
    low: float
    high: float
    share: float | None
    share_low: float | None
    share_high: float | None
    n: int

    @property
    def sees(self) -> bool:
        """True if every arm scores significantly less than the run, each tested at 5 %.

        This is the case if and only if `low` is above 0. It is an intersection-union test, which
        needs no correction for the number of arms (Berger 1982, Technometrics 24).
        """
        return self.low > 0


def compute_sight(real: pd.DataFrame, arms: Mapping[str, pd.DataFrame], metric: str, with_share: bool = True) -> Sight:
    """Compare a run with its K arms on one metric.

    `value` is the smallest of K differences. The lower end of its interval is the smallest of the
    arms' lower ends. The lower end is too high only if that of the arm with the smallest true
    difference is, so a tail of 2.5 % needs no correction. The upper end is the smallest of the
    arms' upper ends. That is too low as soon as one of them is, so each has a tail of 2.5 % / K
    (Bonferroni). `share` is the largest of K ratios, so its lower end is the corrected one.

    The interval of a ratio is Fieller's (1954, J. Royal Statistical Society B 16): it contains the
    shares s for which the paired test of score(arm) - s x score(real) does not reject 0. It
    excludes 100 % if and only if the arm differs significantly.

    Args:
        real: Scoring units of the run with the right images (`derive.metrics.compute_units`).
        arms: Arm -> scoring units of its run.
        metric: Name of the metric.
        with_share: Whether to compute the share and its interval.

    Raises:
        BadInput: The runs did not answer the same questions.
    """
    outcomes = pack_outcomes({"real": real, **arms}, metric)
    moments, pairs = compute_moments(outcomes), compare_pairwise(outcomes)
    arm_results = {
        name: Arm(
            float(pairs.value[k]),
            float(pairs.difference[0, k]),
            float(pairs.low[0, k]),
            float(pairs.high[0, k]),
            float(pairs.p[0, k]),
        )
        for k, name in enumerate(arms, 1)
    }
    best_arm = min(arm_results, key=lambda name: arm_results[name].difference)
    # Bonferroni over the arms; the docstring explains which ends need it.
    tail_per_arm = TAIL_PROBABILITY / len(arms)
    lows = [_share_end(moments, k, tail_per_arm, upper=False) for k in range(1, len(arms) + 1)] if with_share else []
    highs = (
        [_share_end(moments, k, TAIL_PROBABILITY, upper=True) for k in range(1, len(arms) + 1)] if with_share else []
    )
    score, has_interval = (
        float(pairs.value[0]),
        with_share and all(end is not None for end in highs),
    )
    return Sight(
        metric=metric,
        score=score,
        arms=arm_results,
        best_arm=best_arm,
        value=arm_results[best_arm].difference,
        low=min(arm.low for arm in arm_results.values()),
        high=min(_upper_end(moments, k, tail_per_arm) for k in range(1, len(arms) + 1)),
        share=100 * arm_results[best_arm].score / score if with_share and score > 0 else None,
        share_low=max(end or 0.0 for end in lows) if has_interval else None,
        share_high=max(end or 0.0 for end in highs) if has_interval else None,
        n=int((outcomes.denominator > 0).any(axis=0).sum()),
    )


def _error(moments: Moments, arm: int, share: float) -> float:
    """Return the standard error of score(arm) - share x score(real), as a fraction."""
    sums = [
        np.maximum(products[arm, arm] - 2 * share * products[0, arm] + share * share * products[0, 0], 0.0)
        for products in moments.products
    ]
    return float(standard_error(sums, moments.unit_variance[0, arm], moments.sizes))


def _quantile(moments: Moments, arm: int, tail: float) -> float:
    """Return Student's quantile for this upper tail; infinite with no degrees of freedom."""
    df = float(moments.df[0, arm])
    return float(special.stdtrit(df, 1 - tail)) if df > 1e-9 else np.inf


def _upper_end(moments: Moments, arm: int, tail: float) -> float:
    """Return the upper end of score(real) - score(arm), in percentage points."""
    difference = float(moments.share[0] - moments.share[arm])
    return 100 * min(difference + _quantile(moments, arm, tail) * _error(moments, arm, 1.0), 1.0)


def _share_end(moments: Moments, arm: int, tail: float, upper: bool) -> float | None:
    """Return an end of the interval of score(arm) / score(real) in percent, at least 0.

    None if the ratio is unbounded or the end lies above MAX_SHARE.
    """
    quantile, (real, without_image) = (
        _quantile(moments, arm, tail),
        (float(moments.share[model]) for model in (0, arm)),
    )
    # A ratio to a score of 0 has no interval.
    if real <= 0 or not np.isfinite(quantile):
        return None

    def excess(share: float) -> float:
        return abs(without_image - share * real) - quantile * _error(moments, arm, share)

    point_estimate = without_image / real
    if not upper:
        return 100 * optimize.brentq(excess, 0.0, point_estimate) if point_estimate > 0 and excess(0.0) > 0 else 0.0
    step = 0.1
    # The interval contains the point estimate: search outwards for a sign change.
    while excess(point_estimate + step) <= 0:
        step *= 2
        if step > MAX_SHARE:
            return None
    return 100 * optimize.brentq(excess, point_estimate, point_estimate + step)
