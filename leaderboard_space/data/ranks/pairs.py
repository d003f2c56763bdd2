"""p-values of the differences between results: paired where the answers of both are known, else from their numbers alone.

The statistics are those of `eval_harness.scores`. See also: which ranks follow (`standings.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from eval_harness.records.result import Score
from eval_harness.scores.comparing import comparisons, ranks
from eval_harness.scores.intervals import NORMAL
from eval_harness.scores.outcomes import Outcomes
from leaderboard_space.data.ranks.ranking import Floats, MetricUnits


def p_values(units: MetricUnits) -> tuple[Floats, Floats]:
    """Uncorrected p-values (R, R) of "these two runs do as well on these questions": the test of `comparisons.pairwise`, and
    `ranks.pooled_p_values`."""
    runs = units.top.shape[0]
    top = units.per_cluster(np.ascontiguousarray(units.top, dtype=np.float32))
    base = units.per_cluster(units.base.astype(np.float32))
    outcomes = Outcomes(
        models=tuple(str(run) for run in range(runs)),
        metric="",
        numerator=top,
        denominator=np.broadcast_to(base, top.shape),
        cluster=np.arange(top.shape[1]),
        units=np.empty(0, dtype=object),
        paired=units.base.shape[0] == 1 or bool(np.all(units.base == units.base[0])),
    )
    return comparisons.pairwise(outcomes).p, ranks.pooled_p_values(outcomes)


def unpaired_p_values(scores: Sequence[Score], are_counts: bool = False) -> Floats:
    """The same for scores of which only the number of cases is known, taken as independent. `are_counts`: the values are so many of n,
    not percent.

    Each share is pulled in by one hit and one miss (Agresti & Caffo 2000), so that 0 and 100 % are not taken for certain; where its
    interval is wider than that, as cases share images, the interval's width counts. Models of one paper answered the same questions: the
    true p-values are mostly smaller.
    """
    share, variance = _independent(scores, are_counts)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        z = np.abs(share[:, None] - share[None, :]) / np.sqrt(variance[:, None] + variance[None, :])
    return np.where(np.isfinite(z), 2 * special.ndtr(-np.nan_to_num(z)), 1.0)


def unpaired_difference(one: Score, other: Score) -> tuple[float, float, float]:
    """The 95 % interval of the difference of two percentages in points, and its p-value, as `unpaired_p_values` has it: the interval
    leaves out 0 exactly where p is under 0.05. Not a number where a count of cases is not known."""
    share, variance = _independent([one, other], False)
    spread = float(np.sqrt(variance.sum()))
    middle = float(share[0] - share[1])
    if not np.isfinite(spread) or spread <= 0 or min(one.n_cases, other.n_cases) <= 0:
        return float("nan"), float("nan"), 1.0
    p = float(2 * special.ndtr(-abs(middle) / spread))
    low, high = np.clip([middle - NORMAL * spread, middle + NORMAL * spread], -1, 1)  # no difference is larger
    return 100 * float(low), 100 * float(high), p


def _independent(scores: Sequence[Score], are_counts: bool) -> tuple[Floats, Floats]:
    """Shares, each pulled in by one hit and one miss, and their variances."""
    size = np.array([score.n_cases for score in scores], dtype=float)
    value = np.array([np.nan if score.value is None else score.value for score in scores], dtype=float)
    width = np.array([_width(score) for score in scores], dtype=float)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        value = value / np.array([score.n if are_counts else 100 for score in scores], dtype=float)
        share = np.clip((value * size + 1) / (size + 2), 0, 1)
        variance = np.maximum(share * (1 - share) / (size + 2), np.square(width / (2 * NORMAL)))
    return share, variance


def _width(score: Score) -> float:
    """The width of a score's interval, as a share; 0 where it has none."""
    return 0.0 if score.low is None or score.high is None else (score.high - score.low) / 100
