"""Measure how much of a score comes from the image: the same questions with the image, and with another, a blank, or none (the arms).

See also: differences of two runs (`comparisons.py`), what an arm shows (`runs/images.py`), in words (docs/sight.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import optimize, special

from eval_harness.scores.clustered import CONFIDENCE_LEVEL
from eval_harness.scores.comparisons import Moments, compare_pairwise, compute_moments, standard_error
from eval_harness.scores.outcome_matrix import OutcomeMatrix, pack_outcomes

SIGHT_METHOD = "Student's t, design effect of shared images; ratio: Fieller 1954"
TAIL = (1 - CONFIDENCE_LEVEL) / 2
FARTHEST = 1e3
"""Shares above which an end of an interval is not looked for."""


@dataclass(frozen=True, slots=True)
class Arm:
    """The score without the right image, and score(real) - score(arm) with its 95 % interval, in percentage points; p two-sided, under
    5 % exactly where the interval excludes 0."""

    score: float
    difference: float
    low: float
    high: float
    p: float


@dataclass(frozen=True, slots=True)
class Sight:
    """The part of a score that needs the image, in percent points.

    `value` is the smallest of the differences between `score` and the `arms`, that to `best_arm`, with its 95 % interval `low` to `high`.
    `sees`: every difference is significantly above 0, each at 5 % (an intersection-union test needs no correction: Berger 1982,
    Technometrics 24); so it is exactly where `low` is above 0. `share`: percent of the score that the best arm keeps, with its interval,
    which is missing where `score` is not significantly above 0, as is the share of a score of 0. `n`: units.
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
        """True if the score shows that the model uses the image."""
        return self.low > 0


def compute_sight(real: pd.DataFrame, arms: Mapping[str, pd.DataFrame], metric: str) -> Sight:
    """`sight_of` the units (`derive.scoring.units`) of a run and its arms. Raises BadInput if they did not answer the same questions."""
    return compute_sight_of_outcomes(pack_outcomes({"real": real, **arms}, metric))


def compute_sight_of_outcomes(outcomes: OutcomeMatrix, with_share: bool = True) -> Sight:
    """Compare the first of several runs with the others, its K arms; without the share where it is not wanted.

    The smallest of K differences is below its lower end only where the smallest true one is below its own, so that 2.5 % a side need no
    correction; it is above the smallest upper end where any of them is above its own, so that each has 2.5 % / K (Bonferroni). For the
    share, which is the largest of K ratios, it is the other way round.

    The interval of a ratio is Fieller's (1954, J. Royal Statistical Society B 16): the shares s for which the paired test (`pairwise`) of
    score(arm) - s score(real) does not reject 0, so that it excludes 100 % exactly where the arm differs significantly.
    """
    arms = outcomes.models[1:]
    found, pairs = compute_moments(outcomes), compare_pairwise(outcomes)
    compared = {
        name: Arm(
            float(pairs.value[k]),
            float(pairs.difference[0, k]),
            float(pairs.low[0, k]),
            float(pairs.high[0, k]),
            float(pairs.p[0, k]),
        )
        for k, name in enumerate(arms, 1)
    }
    best = min(compared, key=lambda name: compared[name].difference)
    corrected = TAIL / len(arms)
    lows = [_share_end(found, k, corrected, upper=False) for k in range(1, len(arms) + 1)] if with_share else []
    highs = [_share_end(found, k, TAIL, upper=True) for k in range(1, len(arms) + 1)] if with_share else []
    score, bounded = float(pairs.value[0]), with_share and all(end is not None for end in highs)
    return Sight(
        metric=outcomes.metric,
        score=score,
        arms=compared,
        best_arm=best,
        value=compared[best].difference,
        low=min(arm.low for arm in compared.values()),
        high=min(_upper_end(found, k, corrected) for k in range(1, len(arms) + 1)),
        share=100 * compared[best].score / score if with_share and score > 0 else None,
        share_low=max(end or 0.0 for end in lows) if bounded else None,
        share_high=max(end or 0.0 for end in highs) if bounded else None,
        n=int((outcomes.denominator > 0).any(axis=0).sum()),
    )


def _error(found: Moments, arm: int, share: float) -> float:
    """The standard error of score(arm) - share x score(real)."""
    sums = [
        np.maximum(each[arm, arm] - 2 * share * each[0, arm] + share * share * each[0, 0], 0.0)
        for each in found.products
    ]
    return float(standard_error(sums, found.unit[0, arm], found.sizes))


def _quantile(found: Moments, arm: int, tail: float) -> float:
    """Student's quantile that leaves this tail; infinite without a degree of freedom."""
    df = float(found.df[0, arm])
    return float(special.stdtrit(df, 1 - tail)) if df > 1e-9 else np.inf


def _upper_end(found: Moments, arm: int, tail: float) -> float:
    """The upper end of score(real) - score(arm), in percent points."""
    difference = float(found.share[0] - found.share[arm])
    return 100 * min(difference + _quantile(found, arm, tail) * _error(found, arm, 1.0), 1.0)


def _share_end(found: Moments, arm: int, tail: float, upper: bool) -> float | None:
    """An end of the interval of score(arm) / score(real) in percent, at least 0; None where there is none, or above FARTHEST."""
    quantile, (real, without) = _quantile(found, arm, tail), (float(found.share[each]) for each in (0, arm))
    if real <= 0 or not np.isfinite(quantile):
        return None

    def outside(share: float) -> float:
        return abs(without - share * real) - quantile * _error(found, arm, share)

    inside = without / real
    if not upper:
        return 100 * optimize.brentq(outside, 0.0, inside) if inside > 0 and outside(0.0) > 0 else 0.0
    step = 0.1
    while outside(inside + step) <= 0:
        step *= 2
        if step > FARTHEST:
            return None
    return 100 * optimize.brentq(outside, inside, inside + step)
