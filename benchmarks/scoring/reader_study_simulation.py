"""Simulate how many pairs a reader must answer to be told from a model.

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/scoring/reader_study_simulation.py
        [--draws 2000] [--reader 80] [--seed 1]      (about 2 minutes)

A reader and models answer the same pairs of MediConfusion, of which some share images. Pairs differ
in difficulty: reader and model find the same pairs hard (correlation `SHARED` on the latent scale
of a probit model, half of it common to pairs that share images). A study asks n of the 176 pairs,
drawn at random. The difference is tested as by `medprobe compare`.
"""

import argparse

import numpy as np
from scipy.special import ndtri

from benchmarks.scoring.interval_coverage import MEDICONFUSION
from eval_harness.scores.comparisons import OutcomeMatrix, compare_pairwise

SIZES = (20, 40, 88, 176)
"""Pairs of a study; 176 are all of MediConfusion."""
GAPS = np.arange(0, 62, 2)
"""Percentage points by which the simulated models are lower than the reader."""
SHARED = 0.4
"""Correlation of what a reader and a model find hard."""
POWER = 0.8


def draw_outcomes(rng: np.random.Generator, pairs: int, shares: np.ndarray) -> OutcomeMatrix:
    """Draw the answers of a reader and of models to the same pairs.

    Args:
        rng: random generator.
        pairs: number of pairs that are asked.
        shares: probability of each responder (M,) to answer a pair correctly.
    """
    cluster = np.repeat(np.arange(len(MEDICONFUSION)), MEDICONFUSION)
    cluster = np.sort(rng.choice(cluster, pairs, replace=False))
    difficulty = (rng.normal(size=len(MEDICONFUSION))[cluster] + rng.normal(size=pairs)) / np.sqrt(2)
    individual = rng.normal(size=(len(shares), pairs))
    latent = ndtri(shares)[:, None] + np.sqrt(SHARED) * difficulty + np.sqrt(1 - SHARED) * individual
    names, units = tuple(map(str, range(len(shares)))), np.arange(pairs).astype(object)
    correct = (latent > 0).astype(np.float32)
    return OutcomeMatrix(names, "set_accuracy", correct, np.ones_like(correct), cluster, units, True)


def main() -> None:
    """Print a row for each number of pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--reader", type=float, default=80.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    shares = np.maximum(arguments.reader - np.r_[0, GAPS], 2) / 100
    columns = [int(np.flatnonzero(gap == GAPS)[0]) for gap in (0, 10, 20, 30, 40)]
    print("pairs | half width at 20 points | found: 0, 10, 20, 30, 40 points | least difference found in 80 %")
    for pairs in SIZES:
        rng = np.random.default_rng([arguments.seed, pairs])
        n_significant = np.zeros(len(GAPS))
        half_width = 0.0
        for _ in range(arguments.draws):
            tests = compare_pairwise(draw_outcomes(rng, pairs, shares))
            n_significant += tests.p[0, 1:] < 0.05
            half_width += (tests.high[0, 1:] - tests.low[0, 1:])[columns[2]] / 2
        power = n_significant / arguments.draws
        enough = np.flatnonzero(power >= POWER)
        smallest_gap = f"{GAPS[enough[0]]}" if len(enough) else f"over {GAPS[-1]}"
        rates = ", ".join(f"{100 * power[at]:.1f} %" for at in columns)
        print(f"{pairs} | {half_width / arguments.draws:.0f} | {rates} | {smallest_gap}", flush=True)


if __name__ == "__main__":
    main()
