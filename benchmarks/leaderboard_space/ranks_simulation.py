"""Simulate power and error rate of ranks, and the bound for any test of score differences.

    PYTHONPATH=. python benchmarks/leaderboard_space/ranks_simulation.py
        [--draws 400] [--models 60] [--seed 1]      (about 1 minute)

The layout is that of MediConfusion's pairs. Outcomes of a model are correlated within components
(ICC, mechanism `coin` of interval_coverage.py), and between models by a difficulty of each unit
that all models share (`shared`, same mechanism). `known` is a test that is given the true variance
and uses Dunnett's critical value; no test of score differences can do better.
"""

import argparse
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.scoring.interval_coverage import MEDICONFUSION
from eval_harness.scores.comparisons import OutcomeMatrix, RankRanges, compare_pairwise, compute_rank_ranges

Floats = NDArray[np.float64]
COMPONENT = np.repeat(np.arange(len(MEDICONFUSION)), MEDICONFUSION)
LARGE = 18
"""Number of units from which a component counts as large in `unlike_by_size`."""


def outcomes(rng: np.random.Generator, shares: Floats, icc: float, shared: float) -> Floats:
    """Draw the hits (M, U) of models whose true shares are (M,) or (M, U).

    The units are in the order of their components.
    """
    models, units = len(shares), len(COMPONENT)
    uniform, coin = rng.random((models, units)), rng.random((models, len(MEDICONFUSION)))
    # A unit copies its component's coin with probability sqrt(ICC); two units of a component then
    # have correlation ICC.
    level = np.where(rng.random((models, units)) < np.sqrt(icc), coin[:, COMPONENT], uniform)
    level = np.where(rng.random((models, units)) < np.sqrt(shared), rng.random(units), level)
    hits: Floats = (level < shares.reshape(models, -1)).astype(float)
    return hits


def ranks_of(hits: Floats) -> RankRanges:
    """Compute the ranks of models from their hits (M, U), as the board does."""
    units, top = np.arange(hits.shape[1]), hits.astype(np.float32)
    names = tuple(str(number) for number in range(len(hits)))
    pairs = compare_pairwise(OutcomeMatrix(names, "m", top, np.ones_like(top), COMPONENT, units.astype(object), True))
    return compute_rank_ranges(pairs.value, pairs.p)


def led(models: int) -> Floats:
    """Return the true shares with one leader: .6 for the first model, .2 for the others."""
    return np.r_[0.6, np.full(models - 1, 0.2)]


def leader(draws: int, models: int, seed: int, icc: float, shared: float) -> float:
    """Return the share of draws in which at most 3 models have rank 1, with one leader (`led`)."""
    rng = np.random.default_rng([seed, 1])
    rankings = [ranks_of(outcomes(rng, led(models), icc, shared)) for _ in range(draws)]
    return float(np.mean([(ranking.best_rank == 1).sum() <= 3 for ranking in rankings]))


def leader_known(draws: int, models: int, seed: int, icc: float) -> float:
    """Return the same share for a test that knows the true variance (shared difficulty 0)."""
    rng = np.random.default_rng([seed, 1])
    # Variance of a model's number of hits: p (1 - p) times the sum of m (1 + ICC (m - 1)) over the
    # components of m units.
    spread = led(models) * (1 - led(models)) * (MEDICONFUSION * (1 + icc * (MEDICONFUSION - 1))).sum()
    error, critical = np.sqrt(spread[0] + spread[1:]), dunnett(models - 1)
    first_ranks = []
    for _ in range(draws):
        hits = outcomes(rng, led(models), icc, 0.0).sum(axis=1)
        first_ranks.append(((hits[0] - hits[1:]) / error > critical).sum() >= models - 3)
    return float(np.mean(first_ranks))


def equals(draws: int, shares: Floats, seed: int, icc: float, shared: float) -> tuple[float, float, float]:
    """Measure the errors of ranks for models with equal true scores.

    Returns:
        Shares of draws in which the first model (a designated best) is excluded from rank 1, in
        which any model is, and in which two models differ significantly although neither has the
        highest score.
    """
    rng = np.random.default_rng([seed, 2])
    hits = [outcomes(rng, shares, icc, shared) for _ in range(draws)]
    rankings, not_leading = (
        [ranks_of(sample) for sample in hits],
        [sample.sum(axis=1) < sample.sum(axis=1).max() for sample in hits],
    )
    return (
        float(np.mean([ranking.best_rank[0] > 1 for ranking in rankings])),
        float(np.mean([(ranking.best_rank > 1).any() for ranking in rankings])),
        float(
            np.mean(
                [
                    ranking.differs[np.ix_(not_top, not_top)].any()
                    for ranking, not_top in zip(rankings, not_leading, strict=True)
                ]
            )
        ),
    )


@cache
def dunnett(rivals: int) -> float:
    """Return the one-sided 5 % critical value for comparing one model with `rivals` others.

    It is the 95 % quantile of the largest of the standardized differences, which are correlated
    because they all involve the same model.
    """
    rng = np.random.default_rng(0)
    # The maximum of k uniform variables is distributed as U ** (1 / k).
    highest = stats.norm.ppf(rng.random(200_000) ** (1 / rivals))
    return float(np.quantile((highest - rng.standard_normal(highest.size)) / np.sqrt(2), 0.95))


def unlike_by_size(models: int, up: float) -> Floats:
    """Return true shares (M, U) of models that are equal overall but not by component size.

    All shares are 0.5, except that the first model's are higher by `up` in large components and
    lower in the others, with the same mean.
    """
    large = (MEDICONFUSION >= LARGE)[COMPONENT]
    shares = np.full((models, large.size), 0.5)
    shares[0] += np.where(large, up, -up * large.sum() / (~large).sum())
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draws, models, seed = options.draws, options.models, options.seed
    print(f"MediConfusion: {models} models, {draws} draws, seed {seed}; percent of draws\n")
    print(
        "| ICC | shared | .6 among .2: at most 3 share rank 1 (`known`) | equal at .2 (.5): "
        "designated best excluded | any excluded | "
        "any two below the highest differ | equal overall, unlike by size: designated best "
        "excluded |"
    )
    print("|---" * 7 + "|")
    for icc, shared in ((0.0, 0.0), (0.0, 0.3), (0.1, 0.0), (0.2, 0.0), (0.3, 0.0)):
        low, middle = (equals(draws, np.full(models, share), seed, icc, shared) for share in (0.2, 0.5))
        texts = [f"{100 * a:.1f} ({100 * b:.1f})" for a, b in zip(low, middle, strict=True)]
        power = f"{100 * leader(draws, models, seed, icc, shared):.1f}"
        known_share = "" if shared else f" ({100 * leader_known(draws, models, seed, icc):.1f})"
        unlike = equals(draws, unlike_by_size(models, 0.2), seed, icc, shared)[0]
        print(f"| {icc} | {shared} | {power}{known_share} | {' | '.join(texts)} | {100 * unlike:.1f} |", flush=True)


if __name__ == "__main__":
    main()
