"""Compare scores without their answers, as if they came from independent samples.

The models of a paper answered the same questions, so most true p-values are smaller than these. See
also: comparing models whose answers are known (`comparisons.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from eval_harness.records.result import Score
from eval_harness.scores.clustered import NORMAL_QUANTILE, Floats

UNPAIRED_METHOD = "unpaired: from the two numbers alone"
"""Name of the test and interval of an unpaired difference, as shown to users."""


def compute_unpaired_differences(scores: Sequence[Score], are_counts: bool = False) -> tuple[Floats, Floats, Floats]:
    """Compute 95 % intervals and p-values of the differences of all pairs of M scores.

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
