"""Estimate how much of a hidden key can be learned from its scores alone.

Files are answered at random, each question's options weighted by the scores of the files that chose
them, and the best option is taken. A user who cannot decide between some options gains the most
from this; where a model is sure of its answer, such scores do not change it.

    python benchmarks/submissions/hidden_test_climbing.py
"""

from __future__ import annotations

import numpy as np

QUESTIONS = 21_281
"""Single-choice questions of GMAI-MMBench's test."""


def climb_accuracy(scorings: int, options: int, decimals: int | None, seed: int) -> float:
    """Return the accuracy (percent) after this many scorings, starting undecided between `options`
    options per question.
    """
    draw = np.random.default_rng(seed)
    key = draw.integers(0, options, QUESTIONS)
    weights = np.zeros((QUESTIONS, options))
    everywhere = np.arange(QUESTIONS)
    for _ in range(scorings):
        answers = draw.integers(0, options, QUESTIONS)
        score = 100 * float((answers == key).mean())
        printed_score = score if decimals is None else round(score, decimals)
        weights[everywhere, answers] += printed_score - 100 / options
    return 100 * float((weights.argmax(axis=1) == key).mean())


def main() -> None:
    print("undecided between | scorings | accuracy after, one decimal | exact score | guessing")
    for options in (4, 2):
        for scorings in (60, 730, 7300):
            tries = range(3 if scorings > 1000 else 10)
            accuracies = [
                np.mean([climb_accuracy(scorings, options, decimals, seed) for seed in tries]) for decimals in (1, None)
            ]
            print(
                f"{options:17} | {scorings:8,} | {accuracies[0]:27.1f} | {accuracies[1]:11.1f} | {100 / options:8.1f}"
            )


if __name__ == "__main__":
    main()
