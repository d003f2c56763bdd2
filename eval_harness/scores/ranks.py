"""Correct the p-values of all pairs of models, and derive the ranks that each model may hold."""

from dataclasses import dataclass

import numpy as np

from eval_harness.scores.clustered import Bools, Floats, Ints


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
        p: Uncorrected p-values (M, M) of `comparisons.compare_pairwise`.
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
