"""Simulate error rate and precision of the part of a score that comes from the image.

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/scoring/sight_simulation.py [--draws 400]
        [--seed 1]      (about 15 minutes)

A responder knows the answer to a question from its image with probability `sight` (with probability
sqrt(ICC), it does so for all questions on an image or for none), and from its text with probability
`prior`; otherwise it guesses. Without the right image only the text is left. The answer from the
text is the same in every run, except for a share `noise` of questions that are answered again.

A unit is correct if all its questions are. A responder that `declines` answers no question without
an image or with a blank one, as a model should; then only the run with swapped images can show what
the text is worth. Results are compared with their expectation, computed from many more draws.
"""

import argparse
import zlib
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.scoring.interval_coverage import MEDICONFUSION
from eval_harness.records.result import ARMS
from eval_harness.store.sight import Sight, compute_sight

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Layout:
    """Units of a benchmark.

    Attributes:
        cluster: Image cluster of each unit (U,).
        questions: Number of questions that must be correct for each unit (U,).
        guess: Probability of guessing one question right.
    """

    cluster: Ints
    questions: Ints
    guess: float


def layouts() -> dict[str, Layout]:
    """Return the layouts of the benchmarks' headline metrics, by name.

    HALT-MedVQA is represented by its questions without the correct option. ProbMed has 6,303 images
    and
    57,132 questions: two each on modality and organ and one on abnormality per image. How the other
    25,617 are distributed over the images is assumed: one or four on condition, and four or five on
    position for half of the images.
    """
    images = np.arange(6303)
    half = images[::2]
    aspects = (
        (images, 2), (images, 2), (images, 1), (half, 4), (images[1::2], 1), (half[: len(half) // 5 * 4], 3),
    )  # fmt: skip
    probmed = [np.concatenate(parts) for parts in zip(*((on, np.full(len(on), m)) for on, m in aspects), strict=True)]
    single = {"GMAI-MMBench (validation)": 4550, "HALT-MedVQA (NONE)": 1000}
    return {
        "MediConfusion": Layout(np.repeat(np.arange(60), MEDICONFUSION), np.full(176, 2), 0.5),
        "ProbMed": Layout(probmed[0], probmed[1], 0.5),
        **{name: Layout(np.arange(n), np.ones(n, np.int64), 0.25) for name, n in single.items()},
        "ProbMed on VQA-RAD": Layout(np.arange(118), np.full(118, 2), 0.5),
    }


@dataclass(frozen=True)
class Responder:
    """How a simulated model answers; see the module's docstring."""

    sight: float
    prior: float
    noise: float = 0.1
    icc: float = 0.3
    declines: bool = False


def simulate_runs(rng: np.random.Generator, layout: Layout, responder: Responder) -> dict[str, Bools]:
    """Draw which units (U,) are correct, in the run with the right images and in each arm."""
    unit = np.repeat(np.arange(len(layout.cluster)), layout.questions)
    cluster, n = layout.cluster[unit], len(unit)
    starts = np.flatnonzero(np.diff(unit, prepend=-1))

    def from_text() -> Bools:
        return (rng.random(n) < responder.prior) | (rng.random(n) < layout.guess)

    coin = rng.random(int(layout.cluster.max()) + 1) < responder.sight
    image_correct = np.where(rng.random(n) < np.sqrt(responder.icc), coin[cluster], rng.random(n) < responder.sight)
    text_correct = from_text()
    outcomes_by_run = {}
    for name in ("real", *ARMS):
        is_correct = np.where(rng.random(n) < responder.noise, from_text(), text_correct)
        is_correct = is_correct | image_correct if name == "real" else is_correct
        outcomes_by_run[name] = np.logical_and.reduceat(is_correct, starts) & ~(responder.declines and name in ARMS[:2])
    return outcomes_by_run


def measure_sight(layout: Layout, outcomes_by_run: dict[str, Bools]) -> Sight:
    """Compute the sight from these runs as the board does."""
    units = np.arange(len(layout.cluster)).astype(str).astype(object)
    frames = {
        name: pd.DataFrame(
            {
                "metric": "m",
                "unit": units,
                "cluster": layout.cluster,
                "numerator": right.astype(float),
                "denominator": 1.0,
            }
        )
        for name, right in outcomes_by_run.items()
    }
    return compute_sight(frames.pop("real"), frames, "m")


def expected_sight(layout: Layout, responder: Responder, seed: int) -> tuple[float, float]:
    """Return the expected points that need the image, and the expected percentage that does not."""
    times = max(40, 400_000 // len(layout.cluster))
    rng, wide = np.random.default_rng([seed, 9]), layout
    score = dict.fromkeys(("real", *ARMS), 0.0)
    for _ in range(times):
        for name, right in simulate_runs(rng, wide, responder).items():
            score[name] += float(right.mean()) / times
    # The best arm is the comparison; a responder that declines scores nothing in the other arms.
    best = score["swapped"] if responder.declines else float(np.mean([score[arm] for arm in ARMS]))
    return 100 * (score["real"] - best), 100 * best / score["real"]


def find_sight(layout: Layout, points: float, prior: float) -> float:
    """Find the `sight` at which a responder of this prior owes `points` of its score to images."""
    low, high = 0.0, 1.0
    # Bisect: the points grow with `sight`.
    for _ in range(12):
        middle = (low + high) / 2
        mean_points = expected_sight(layout, Responder(middle, prior), 3)[0]
        low, high = (middle, high) if mean_points < points else (low, middle)
    return (low + high) / 2


@dataclass(frozen=True)
class Cell:
    """Rates over all draws for one layout and responder."""

    layout: str
    responder: Responder
    points: float
    share: float
    sees: float
    covers: float
    share_covers: float
    width: float


def simulate_cell(name: str, layout: Layout, responder: Responder, draws: int, seed: int) -> Cell:
    """Compute the rates over all draws.

    The share has no interval in some draws; its coverage is computed from the others.
    """
    rng = np.random.default_rng([seed, zlib.crc32(f"{name} {responder}".encode())])
    points, share = expected_sight(layout, responder, seed) if responder.sight else (0.0, 100.0)
    simulated = [measure_sight(layout, simulate_runs(rng, layout, responder)) for _ in range(draws)]
    covers = [run.low <= points <= run.high for run in simulated]
    bounded = [run for run in simulated if run.share_low is not None and run.share_high is not None]
    shares = [run.share_low <= share <= run.share_high for run in bounded]  # type: ignore[operator]
    width = float(np.mean([run.high - run.low for run in simulated]))
    return Cell(
        name, responder, points, share, float(np.mean([run.sees for run in simulated])), float(np.mean(covers)),
        float(np.mean(shares)) if shares else float("nan"), width,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| layout | responder | needs the image for | said to see | interval covers | share covers | mean width |")
    print("|---|---|---|---|---|---|---|")
    for name, layout in layouts().items():
        draws = options.draws if len(layout.cluster) < 10_000 else options.draws // 4
        cases = [
            Responder(0.0, prior, noise, declines=declines)
            for prior in (0.1, 0.6)
            for noise in (0.1, 1.0)
            for declines in (False, True)
        ]
        for points in (5.0, 10.0, 20.0):
            cases += [
                Responder(find_sight(layout, points, prior), prior, declines=declines)
                for prior in (0.1, 0.5)
                for declines in (False, True)
            ]
        for responder in cases:
            rates = simulate_cell(name, layout, responder, draws, options.seed)
            kind = f"prior {responder.prior}, noise {responder.noise}" + (", declines" if responder.declines else "")
            print(
                f"| {name} | {kind} | {rates.points:.1f} | {100 * rates.sees:.1f} | "
                f"{100 * rates.covers:.1f} | {100 * rates.share_covers:.1f} | {rates.width:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
