"""Estimate how much of a hidden key can be learned from scores alone.

    python benchmarks/submissions/hidden_test_climbing.py

The simulated user submits random answers many times. Each option of a question is then weighted by
the scores of the submissions that chose it, and the option with the largest weight is taken.
A user who is undecided between some options gains the most; where a model is sure of its answer,
such scores do not change it.
"""

import numpy as np

QUESTIONS = 21_281
"""Number of single-choice questions in GMAI-MMBench's test split."""


def climb_accuracy(scorings: int, options: int, decimals: int | None, seed: int) -> float:
    """Return the accuracy in percent after this many scorings.

    The user starts undecided between `options` options per question; scores are rounded to
    `decimals` (None: exact).
    """
    draw = np.random.default_rng(seed)
    key = draw.integers(0, options, QUESTIONS)
    weights = np.zeros((QUESTIONS, options))
    everywhere = np.arange(QUESTIONS)
    for _ in range(scorings):
        answers = draw.integers(0, options, QUESTIONS)
        score = 100 * float((answers == key).mean())
        printed_score = score if decimals is None else round(score, decimals)
        # Scores above the expected one vote for the chosen options, scores below it against them.
        weights[everywhere, answers] += printed_score - 100 / options
    return 100 * float((weights.argmax(axis=1) == key).mean())


def main() -> None:
    print("undecided between | scorings | accuracy after, one decimal | exact score | guessing")
    for options in (4, 2):
        for scorings in (60, 730, 7300):
            # Many scorings take long, and their result varies little.
            tries = range(3 if scorings > 1000 else 10)
            accuracies = [
                np.mean([climb_accuracy(scorings, options, decimals, seed) for seed in tries]) for decimals in (1, None)
            ]
            print(
                f"{options:17} | {scorings:8,} | {accuracies[0]:27.1f} | {accuracies[1]:11.1f} | {100 / options:8.1f}"
            )


if __name__ == "__main__":
    main()
