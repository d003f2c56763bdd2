"""Correct the p-values of all pairs of models, and derive significant differences and possible
ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
    # Step-down: adjusted p-values must not decrease along the order of p.
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p)))), 1.0)
    return adjusted


@dataclass(frozen=True, slots=True)
class RankRanges:
    """The ranks that M models may hold, as far as the data decide; arrays in the models' order.

    The ranks follow from the pairs alone, so the two never contradict each other. Two models with
    overlapping ranks may still differ significantly (each may be tied with models in between).

    Attributes:
        best_rank: 1 + the number of models that are significantly better (M,). Rank 1 is thus
            shared by all models that none beats. This is the rank that is shown.
        worst_rank: M - the number of models that are significantly worse (M,).
        corrected: Corrected p-values of all pairs (M, M), see `correct_for_ranks`.
        level: Significance level.
    """

    best_rank: Ints
    worst_rank: Ints
    corrected: Floats
    level: float

    @property
    def differs(self) -> NDArray[np.bool_]:
        """Mask (M, M) of the pairs that differ significantly."""
        return self.corrected < self.level


def correct_for_ranks(value: Floats, p: Floats, higher_is_better: bool = True) -> Floats:
    """Correct the p-values of all pairs of M models for multiple comparisons.

    Any pair is one of M (M - 1) / 2 pairs (`holm_adjust_pairs`): if all models are equal, any two
    of them differ in at most 5 % of draws. A comparison with the best model, or with one of several
    of the same score, is one of M - 1, one-sided: two-sided p x (M - 1) / 2, never less than p.
    This is the comparison with the best (Hsu 1984; here with Bonferroni's correction, valid under
    any dependence). The best model, or a designated one of equally good models, is wrongly beaten
    in at most 5 % of draws; that one of many equally good models is beaten is more frequent.

    Args:
        value: Scores (M,).
        p: Uncorrected two-sided p-values (M, M).
        higher_is_better: Direction of the metric.

    Returns:
        Corrected p-values (M, M): the smaller of the two corrections.
    """
    is_best = value == (value.max(initial=-np.inf) if higher_is_better else value.min(initial=np.inf))
    # One-sided against the best of M models, Bonferroni-corrected.
    with_best = np.where(
        is_best[:, None] != is_best[None, :],
        np.minimum(p * max((len(value) - 1) / 2, 1.0), 1.0),
        1.0,
    )
    return np.minimum(holm_adjust_pairs(p), with_best)


def compute_rank_ranges(value: Floats, p: Floats, higher_is_better: bool = True, level: float = 0.05) -> RankRanges:
    """Compute the ranks that M models may hold.

    Args:
        value: Scores (M,), without NaN.
        p: Uncorrected p-values (M, M) of `comparisons.compare_pairwise`.
        higher_is_better: Direction of the metric.
        level: Significance level.
    """
    corrected = correct_for_ranks(value, p, higher_is_better)
    differs = corrected < level
    is_ahead = value[None, :] > value[:, None] if higher_is_better else value[None, :] < value[:, None]
    return RankRanges(
        1 + (differs & is_ahead).sum(axis=1),
        len(value) - (differs & is_ahead.T).sum(axis=1),
        corrected,
        level,
    )
