"""Power and error rate of ranks: simulated models, and what any test of the scores' difference could do.

PYTHONPATH=. python benchmarks/leaderboard_space/ranks_simulation.py [--draws 400] [--models 60] [--seed 1]
    [--layout MediConfusion] [--random 0]     (about 1 minute; --random: how many random cells are drawn instead)

Outcomes of a model are correlated within components (ICC, by the mechanism `coin` of interval_coverage.py), and between models by a shared
difficulty of each unit with the same mechanism (`shared`). `known` is told the true variance and uses Dunnett's critical value, which no
test of the scores' difference can beat.
"""

from __future__ import annotations

import argparse
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.scoring.interval_coverage import MECHANISMS, MEDICONFUSION, other_layout, random_layout
from benchmarks.scoring.interval_coverage import hits as hits_per_cluster
from eval_harness.scores.comparisons import pairwise
from eval_harness.scores.outcomes import OutcomeMatrix
from eval_harness.scores.ranks import RankRanges, rank_ranges

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LAYOUTS = {
    "MediConfusion": MEDICONFUSION,
    "300 x 1": np.full(300, 1),
    "1000 x 1": np.full(1000, 1),
    "100 x 9": np.full(100, 9),
    "600 x 9": np.full(600, 9),
}
"""Components by name: MediConfusion's pairs, images with one question (GMAI-MMBench, HALT-MedVQA), and with several (ProbMed)."""
LARGE = 18
"""Units from which a component is large, in draws of models that are equal on the whole and not by size."""


def outcomes(rng: np.random.Generator, shares: Floats, sizes: Ints, icc: float, shared: float) -> Floats:
    """Hits (M, U) of models with the true shares (M,) or (M, U), units in the order of their components."""
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    models, units = len(shares), len(cluster)
    own, coin = rng.random((models, units)), rng.random((models, len(sizes)))
    level = np.where(rng.random((models, units)) < np.sqrt(icc), coin[:, cluster], own)
    level = np.where(rng.random((models, units)) < np.sqrt(shared), rng.random(units), level)
    hits: Floats = (level < shares.reshape(models, -1)).astype(float)
    return hits


def ranks_of(hits: Floats, sizes: Ints) -> RankRanges:
    """The ranks of models from their hits (M, U)."""
    units, top = np.arange(hits.shape[1]), hits.astype(np.float32)
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    names = tuple(str(number) for number in range(len(hits)))
    pairs = pairwise(OutcomeMatrix(names, "m", top, np.ones_like(top), cluster, units.astype(object), True))
    return rank_ranges(pairs.value, pairs.p)


def led(models: int) -> Floats:
    """The true shares: one model at .6, the others at .2."""
    return np.r_[0.6, np.full(models - 1, 0.2)]


def leader(draws: int, models: int, seed: int, icc: float, shared: float, sizes: Ints = MEDICONFUSION) -> float:
    """Share of draws in which at most 3 share rank 1, one model being at .6 and the others at .2."""
    rng = np.random.default_rng([seed, 1])
    found = [ranks_of(outcomes(rng, led(models), sizes, icc, shared), sizes) for _ in range(draws)]
    return float(np.mean([one.may_lead.sum() <= 3 for one in found]))


def leader_known(draws: int, models: int, seed: int, icc: float, sizes: Ints) -> float:
    """The same by a test that knows the true variance (shared difficulty 0)."""
    rng = np.random.default_rng([seed, 1])
    spread = led(models) * (1 - led(models)) * (sizes * (1 + icc * (sizes - 1))).sum()
    error, critical = np.sqrt(spread[0] + spread[1:]), dunnett(models - 1)
    found = []
    for _ in range(draws):
        hits = outcomes(rng, led(models), sizes, icc, 0.0).sum(axis=1)
        found.append(((hits[0] - hits[1:]) / error > critical).sum() >= models - 3)
    return float(np.mean(found))


def equals(
    draws: int, models: int, shares: Floats, seed: int, icc: float, shared: float, sizes: Ints = MEDICONFUSION
) -> tuple[float, float, float]:
    """Of equal models: the share of draws in which the first, a designated best, is excluded from rank 1, in which any is, and in which any
    two differ significantly."""
    rng = np.random.default_rng([seed, 2])
    found = [ranks_of(outcomes(rng, shares, sizes, icc, shared), sizes) for _ in range(draws)]
    return (
        float(np.mean([~one.may_lead[0] for one in found])),
        float(np.mean([not one.may_lead.all() for one in found])),
        float(np.mean([one.apart.any() for one in found])),
    )


@cache
def dunnett(rivals: int) -> float:
    """The one-sided 5 % point of the largest of so many normal differences from one and the same model."""
    rng = np.random.default_rng(0)
    highest = stats.norm.ppf(rng.random(200_000) ** (1 / rivals))
    return float(np.quantile((highest - rng.standard_normal(highest.size)) / np.sqrt(2), 0.95))


def unlike_by_size(models: int, sizes: Ints, up: float) -> Floats:
    """True shares (M, U): all .5 on the whole, the first model's by `up` higher in large components and lower in the others."""
    large = np.repeat(sizes >= LARGE, sizes)
    shares = np.full((models, large.size), 0.5)
    shares[0] += np.where(large, up, -up * large.sum() / max((~large).sum(), 1))
    return shares


def left_out(draws: int, seed: int) -> tuple[str, float]:
    """A random cell: 2 to 60 models that are equal on the whole, and how often (share of draws) the first one is excluded from rank 1.
    Equal in every component, or the first, or all, better in some components and worse in the others."""
    rng = np.random.default_rng([seed, 4])
    kind = str(rng.choice(("equal", "the first by size", "the first by component", "all by size")))
    name, sizes = (random_layout if rng.random() < 0.6 else other_layout)(rng)
    models, share = int(np.exp(rng.uniform(np.log(2), np.log(61)))), float(rng.uniform(0.1, 0.9))
    icc, mechanism = (0.0 if rng.random() < 0.15 else float(rng.uniform(0.02, 0.6))), str(rng.choice(MECHANISMS))
    logs = np.log(sizes)
    large = sizes >= np.quantile(sizes, rng.uniform(0.3, 0.99)) if "size" in kind else rng.random(len(sizes)) < 0.5
    slope = {"all by size": logs, "equal": np.zeros(len(sizes))}.get(kind, large.astype(float))
    slope = slope - (slope * sizes).sum() / sizes.sum()
    slope *= 0.9 * min(share, 1 - share) / max(np.abs(slope).max(), 1e-9)
    factor = rng.uniform(-1, 1, models) * (np.arange(models) == 0 if kind.startswith("the first") else 1)
    shares = share + factor[:, None] * slope
    sums = np.stack([hits_per_cluster(rng, sizes, one, icc, mechanism, draws) for one in shares], axis=1)
    missed = np.mean([not ranks_of(spread_out(rng, one, sizes), sizes).may_lead[0] for one in sums])
    return f"{kind}, {models} models at {share:.2f}, ICC {icc:.2f} ({mechanism}), {name}", float(missed)


def spread_out(rng: np.random.Generator, sums: Ints, sizes: Ints) -> Floats:
    """Hits (M, U) from hits per component (M, G), on any units of it."""
    cluster, start = np.repeat(np.arange(len(sizes)), sizes), np.cumsum(sizes) - sizes
    order = np.argsort(cluster + rng.random((len(sums), cluster.size)), axis=1)
    hits: Floats = (order - start[cluster] < sums[:, cluster]).astype(float)
    return hits


def print_random(cells: int, draws: int, seed: int) -> None:
    """How often the designated best is excluded over random cells, and the worst of them."""
    found = sorted((left_out(draws, seed + number) for number in range(cells)), key=lambda cell: -cell[1])
    allowed = 0.05 + 2 * np.sqrt(0.05 * 0.95 / draws)
    missed = np.array([one for _, one in found])
    print(
        f"excluded in {100 * missed.mean():.1f} % of draws on average, {100 * missed.max():.1f} % at most; "
        f"over {100 * allowed:.1f} % in {(missed > allowed).sum()} of {cells} cells ({draws} draws each)"
    )
    for text, one in found[:8]:
        print(f"    {100 * one:.1f} % {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layout", choices=[*LAYOUTS], default="MediConfusion")
    parser.add_argument("--random", type=int, default=0)
    options = parser.parse_args()
    if options.random:
        print_random(options.random, options.draws, options.seed)
        return
    draws, models, seed, sizes = options.draws, options.models, options.seed, LAYOUTS[options.layout]
    print(f"{options.layout}: {models} models, {draws} draws, seed {seed}; percent of draws\n")
    print(
        "| ICC | shared | .6 among .2: at most 3 share rank 1 (`known`) | equal at .2 (.5): designated best excluded | any excluded | "
        "any two differ | equal on the whole, unlike by size: designated best excluded |"
    )
    print("|---" * 7 + "|")
    for icc, shared in ((0.0, 0.0), (0.0, 0.3), (0.1, 0.0), (0.2, 0.0), (0.3, 0.0)):
        low, middle = (equals(draws, models, np.full(models, share), seed, icc, shared, sizes) for share in (0.2, 0.5))
        texts = [f"{100 * a:.1f} ({100 * b:.1f})" for a, b in zip(low, middle, strict=True)]
        power = f"{100 * leader(draws, models, seed, icc, shared, sizes):.1f}"
        known = "" if shared else f" ({100 * leader_known(draws, models, seed, icc, sizes):.1f})"
        unlike = equals(draws, models, unlike_by_size(models, sizes, 0.2), seed, icc, shared, sizes)[0]
        print(f"| {icc} | {shared} | {power}{known} | {' | '.join(texts)} | {100 * unlike:.1f} |", flush=True)


if __name__ == "__main__":
    main()
