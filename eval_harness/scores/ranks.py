"""Significant differences between many models and the ranks that each may hold, from the p-values of all pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def holm(p: Floats) -> Floats:
    """Holm's correction (1979) of the p-values of a symmetric (M, M) table: one family of M (M - 1) / 2 comparisons."""
    upper = np.triu_indices(len(p), 1)
    table = np.ones_like(p)
    table[upper] = holm_adjusted(p[upper])
    return np.minimum(table, table.T)


def holm_adjusted(p: Floats) -> Floats:
    """Holm's adjusted p-values (1979) of one family of tests, (K,) -> (K,)."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p)))), 1.0)
    return adjusted


@dataclass(frozen=True, slots=True)
class RankRanges:
    """The order of M models as far as it is certain; all arrays in their order.

    `apart` (M, M): two models differ significantly, corrected for all pairs (Holm 1979): if all models are equal, any two of them do in at
    most 5 % of draws.
    `may_lead` (M,): the model may be the best. Excluded is one that another, ahead of it, beats with one-sided p under 5 % / (M - 1), that
    is two-sided p under 10 % / (M - 1), and never p >= 5 %: the comparison with the best (Hsu 1984; here with Bonferroni's correction, so
    that it holds for any dependence). The best model, or of equally good ones any designated one, is wrongly excluded in at most 5 % of
    draws; that some of many equally good ones is excluded is more frequent.
    `first`, `last` (M,): the ranks a model may hold. `first` is 1 + the models that are significantly better, at least 2 where it may
    not lead, so that exactly those share rank 1 who may be the best; `last` is M - the models that are significantly worse. `first` is
    the rank that is shown.

    Whether two models differ significantly stands in `apart` alone: two models whose ranks overlap may differ (each may be tied with
    models in between), and two that do not may hold different first ranks.
    """

    first: Ints
    last: Ints
    apart: NDArray[np.bool_]
    may_lead: NDArray[np.bool_]


def rank_ranges(value: Floats, p: Floats, higher_is_better: bool = True, level: float = 0.05) -> RankRanges:
    """The ranks that M models may hold, from their values (M,), no NaN, and the uncorrected p-values (M, M) of `pairwise`."""
    models = len(value)
    apart = holm(p) < level
    ahead = value[None, :] > value[:, None] if higher_is_better else value[None, :] < value[:, None]
    beaten = ahead & (apart | (p < min(level, 2 * level / max(models - 1, 1))))
    may_lead = np.logical_not(beaten.any(axis=1))
    first = 1 + (apart & ahead).sum(axis=1)
    return RankRanges(np.maximum(first, 2 - may_lead), models - (apart & ahead.T).sum(axis=1), apart, may_lead)
