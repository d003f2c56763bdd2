"""Differences between scores of which only the numbers are known: their 95 % intervals and the test that reads them, as if independent.

Models of one paper answered the same questions: the true p-values are mostly smaller. See also: models whose answers are known
(`comparisons.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from eval_harness.records.result import Score
from eval_harness.scores.clustered import NORMAL_QUANTILE, Floats

UNPAIRED_METHOD = "unpaired: of the two numbers alone"


def compute_unpaired_differences(scores: Sequence[Score], are_counts: bool = False) -> tuple[Floats, Floats, Floats]:
    """95 % intervals of all differences (row - column) in points, and uncorrected two-sided p-values, (M, M) each: p is under 5 % exactly
    where the interval excludes 0. Not a number, and p = 1, where the number of cases is not known.

    Agresti & Caffo 2000: one hit and one miss are added to each score's `n_effective` (`n_cases` where it has none) outcomes, so that 0 and
    100 % are not taken for certain. `are_counts`: the values are so many of n, not percent; their intervals are of the shares.
    """
    known = [score.value is not None and score.n_cases > 0 for score in scores]
    of = [score.n if are_counts else 100 for score in scores]
    size = np.array([score.n_effective or score.n_cases for score in scores], dtype=float)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        value = np.array([score.value or 0.0 for score in scores]) / np.array(of, dtype=float)
        share = np.where(known, np.clip((value * size + 1) / (size + 2), 0, 1), np.nan)
        variance = share * (1 - share) / (size + 2)
        difference = share[:, None] - share[None, :]
        error = np.sqrt(variance[:, None] + variance[None, :])
        p = 2 * special.ndtr(-np.abs(difference) / error)
        half = NORMAL_QUANTILE * error
    low, high = np.maximum(difference - half, -1.0), np.minimum(difference + half, 1.0)
    return 100 * low, 100 * high, np.where(np.isfinite(p), p, 1.0)


def compute_unpaired_difference(one: Score, other: Score) -> tuple[float, float, float]:
    """The same of two percentages: the interval's ends, and the p-value."""
    low, high, p = compute_unpaired_differences([one, other])
    return float(low[0, 1]), float(high[0, 1]), float(p[0, 1])
