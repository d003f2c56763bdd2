"""Whether places separate what can be separated, and no more: models drawn over MediConfusion's 176 pairs in 60 components.

PYTHONPATH=. python benchmarks/leaderboard_space/places_simulation.py [--draws 400] [--models 60] [--seed 1]     (about 2 minutes)

Outcomes of a model are correlated within components (ICC, by the mechanism `coin` of interval_coverage.py), and between models by a shared
difficulty of each pair with the same mechanism (`shared`).
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from benchmarks.scoring.interval_coverage import MEDICONFUSION
from eval_harness.scores.comparing.comparisons import pairwise
from eval_harness.scores.comparing.ranks import Places, places
from eval_harness.scores.outcomes import Outcomes

CLUSTER = np.repeat(np.arange(len(MEDICONFUSION)), MEDICONFUSION)


def draw(rng: np.random.Generator, shares: NDArray[np.float64], icc: float, shared: float) -> Places:
    """The places of models with these true shares, in one draw."""
    models, units = len(shares), len(CLUSTER)
    own, coin = rng.random((models, units)), rng.random((models, len(MEDICONFUSION)))
    level = np.where(rng.random((models, units)) < np.sqrt(icc), coin[:, CLUSTER], own)
    level = np.where(rng.random((models, units)) < np.sqrt(shared), rng.random(units), level)
    hits = (level < shares[:, None]).astype(np.float32)
    names = tuple(str(number) for number in range(models))
    pairs = pairwise(Outcomes(names, "m", hits, np.ones_like(hits), CLUSTER, np.arange(units).astype(object), True))
    return places(pairs.value, pairs.p)


def leader(draws: int, models: int, seed: int, icc: float, shared: float) -> float:
    """Share of draws in which at most 3 share place 1, one model being at .6 and the others at .2."""
    rng = np.random.default_rng([seed, 1])
    shares = np.r_[0.6, np.full(models - 1, 0.2)]
    return float(np.mean([draw(rng, shares, icc, shared).may_lead.sum() <= 3 for _ in range(draws)]))


def equals(draws: int, models: int, share: float, seed: int, icc: float, shared: float) -> tuple[float, float]:
    """Of equal models: the share of draws in which a designated best is left out of place 1, and in which any two are told apart."""
    rng = np.random.default_rng([seed, 2])
    found = [draw(rng, np.full(models, share), icc, shared) for _ in range(draws)]
    return float(np.mean([~one.may_lead[0] for one in found])), float(np.mean([one.apart.any() for one in found]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draws, models, seed = options.draws, options.models, options.seed
    print(f"{models} models, {draws} draws, seed {seed}; percent of draws\n")
    print(
        "| ICC | shared | .6 among .2: at most 3 share place 1 | equal at .2 (.5): designated best left out | any two told apart |"
    )
    print("|---|---|---|---|---|")
    for icc, shared in ((0.0, 0.0), (0.0, 0.3), (0.1, 0.0), (0.3, 0.0)):
        missed, apart = zip(*(equals(draws, models, share, seed, icc, shared) for share in (0.2, 0.5)), strict=True)
        texts = [f"{100 * a:.1f} ({100 * b:.1f})" for a, b in (missed, apart)]
        print(f"| {icc} | {shared} | {100 * leader(draws, models, seed, icc, shared):.1f} | {texts[0]} | {texts[1]} |")


if __name__ == "__main__":
    main()
