"""Significant differences between many models and the ranks that each may hold, from the p-values of all pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def holm_adjust_pairs(p: Floats) -> Floats:
    """Holm's correction (1979) of the p-values of a symmetric (M, M) table: one family of M (M - 1) / 2 comparisons."""
    upper = np.triu_indices(len(p), 1)
    table = np.ones_like(p)
    table[upper] = holm_adjust(p[upper])
    return np.minimum(table, table.T)


def holm_adjust(p: Floats) -> Floats:
    """Holm's adjusted p-values (1979) of one family of tests, (K,) -> (K,)."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p)))), 1.0)
    return adjusted


@dataclass(frozen=True, slots=True)
class RankRanges:
    """The order of M models as far as it is certain; all arrays in their order.

    `corrected` (M, M): the p-values of all pairs, corrected as `corrected_for_ranks` does; two models differ significantly (`apart`) where
    it is under 5 %.
    `first`, `last` (M,): the ranks a model may hold. `first` is 1 + the models that are significantly better, so that rank 1 is shared by
    all that none beats; `last` is M - the models that are significantly worse. `first` is the rank that is shown.

    Ranks follow from the pairs alone, so that neither contradicts the other. Two models whose ranks overlap may still differ (each may be
    tied with models in between).
    """

    best_rank: Ints
    worst_rank: Ints
    corrected: Floats
    level: float

    @property
    def differs(self) -> NDArray[np.bool_]:
        """Which two models differ significantly (M, M)."""
        return self.corrected < self.level


def correct_for_ranks(value: Floats, p: Floats, higher_is_better: bool = True) -> Floats:
    """The p-values (M, M) of all pairs, corrected for how many there are.

    Two models are compared as two of M (M - 1) / 2 pairs (`holm`): if all models are equal, any two of them differ in at most 5 % of draws.
    A model is compared with the best one, or one of several with its score, as one of M - 1, one-sided: two-sided p x (M - 1) / 2, never
    less than p. This is the comparison with the best (Hsu 1984; here with Bonferroni's correction, so that it holds for any dependence):
    the best model, or of equally good ones any designated one, is wrongly beaten in at most 5 % of draws; that some of many equally good
    ones is beaten is more frequent.
    """
    best = value == (value.max(initial=-np.inf) if higher_is_better else value.min(initial=np.inf))
    with_best = np.where(best[:, None] != best[None, :], np.minimum(p * max((len(value) - 1) / 2, 1.0), 1.0), 1.0)
    return np.minimum(holm_adjust_pairs(p), with_best)


def compute_rank_ranges(value: Floats, p: Floats, higher_is_better: bool = True, level: float = 0.05) -> RankRanges:
    """The ranks that M models may hold, from their values (M,), no NaN, and the uncorrected p-values (M, M) of `pairwise`."""
    corrected = correct_for_ranks(value, p, higher_is_better)
    apart = corrected < level
    ahead = value[None, :] > value[:, None] if higher_is_better else value[None, :] < value[:, None]
    return RankRanges(1 + (apart & ahead).sum(axis=1), len(value) - (apart & ahead.T).sum(axis=1), corrected, level)
