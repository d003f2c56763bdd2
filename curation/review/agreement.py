"""Agreement between reviewers: Krippendorff's alpha (ordinal) on scores, weighted kappa of each two, Gwet's AC1 on keep
or reject.

AC1 stands beside kappa because kappa says little where nearly everything is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Agreement:
    """None where it cannot be computed: fewer than two reviewers on the same problems, or no variation at all."""

    reviewers: int
    problems_shared: int
    alpha: float | None
    kappas: dict[str, float]
    ac1: float | None


def agreement(scores: pd.DataFrame) -> Agreement:
    """scores: rows of reviewer, problem, pair_id, score, keeps (as `ReviewLog.scores`)."""
    import krippendorff

    table = scores.pivot(index="problem", columns="reviewer", values="score") if len(scores) else pd.DataFrame()
    shared = int((table.notna().sum(axis=1) > 1).sum()) if len(table) else 0
    if not shared:
        return Agreement(table.shape[1], 0, None, {}, None)
    seen = table.to_numpy(float)
    varied = len(np.unique(seen[~np.isnan(seen)])) > 1
    alpha = float(krippendorff.alpha(reliability_data=seen.T, level_of_measurement="ordinal")) if varied else None
    kappas = {}
    for first, second in combinations(table.columns, 2):
        both = table[[first, second]].dropna()
        kappa = _weighted_kappa(both[first].to_numpy(int), both[second].to_numpy(int))
        if kappa is not None:
            kappas[f"{first} / {second}"] = kappa
    kept = scores.drop_duplicates(["reviewer", "pair_id"]).pivot(index="pair_id", columns="reviewer", values="keeps")
    return Agreement(table.shape[1], shared, alpha, kappas, gwet_ac1(kept.to_numpy(dtype=object)))


def _weighted_kappa(first: np.ndarray, second: np.ndarray) -> float | None:
    """Cohen's kappa with quadratic weights over the scores 1-10; None where it is not defined."""
    from statsmodels.stats.inter_rater import cohens_kappa

    if len(first) < 2 or (len(np.unique(first)) == 1 and len(np.unique(second)) == 1):
        return None
    counts = np.zeros((10, 10))
    np.add.at(counts, (first - 1, second - 1), 1)
    return float(cohens_kappa(counts, wt="quadratic", return_results=False))


def gwet_ac1(ratings: np.ndarray) -> float | None:
    """Gwet's AC1 (2008) for two categories and any number of raters. ratings: (items, raters) of True, False, or
    missing (None, NaN).

    AC1 = (pa - pe) / (1 - pe); pa: share of agreeing pairs of raters, averaged over items with two or more; pe = 2 p (1
    - p), p = mean share of True.
    """
    known = ~pd.isna(ratings)
    yes = np.where(known, ratings, False).astype(bool).sum(1)
    raters = known.sum(1)
    two = raters > 1
    if not two.any():
        return None
    n, k = raters[two], yes[two]
    observed = ((k * (k - 1) + (n - k) * (n - k - 1)) / (n * (n - 1))).mean()
    share = (yes[raters > 0] / raters[raters > 0]).mean()
    expected = 2 * share * (1 - share)
    return float((observed - expected) / (1 - expected))
