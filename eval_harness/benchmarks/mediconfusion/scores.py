"""MediConfusion: set accuracy, individual accuracy, confusion, invalid (ICLR text, section 3.3; Tables 1 and 2).

See also: aggregates over several runs (`store/aggregate.py`), the free-form judge (`judge.py`).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from eval_harness.scores.grading import Floats, Graded, make_units

FORMAT = "mediconfusion"


def units(graded: Graded) -> pd.DataFrame:
    """One row per pair (set_accuracy, confusion) and per question (individual_accuracy, invalid).

    `category` is a list: a question carries the labels of its image, a pair those of both images one after the other, so that
    `units.explode("category")` counts image labels as Table 2 does (a pair whose two images are both Cerebral counts twice).

    `confusion` is taken over the pairs with two valid answers, as the paper says; where no pair has, it is undefined (the authors'
    code prints 0). Its chance is the probability that two independent guesses agree.
    """
    questions = np.arange(len(graded.questions))
    order = np.argsort(graded.case, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(graded.case[order]) != 0]) if len(order) else np.zeros(0, np.int64)
    size = np.diff(np.r_[starts, len(order)])
    first = order[starts]
    guess = graded.guess[order]

    def over_pair(values: np.ndarray, reduce: np.ufunc) -> np.ndarray:
        return reduce.reduceat(values[order], starts, axis=0) if len(starts) else values[:0]

    both_right = over_pair(graded.right, np.logical_and)
    both_valid = over_pair(graded.answered, np.logical_and)
    lowest, highest = over_pair(graded.first, np.minimum), over_pair(graded.first, np.maximum)
    same = both_valid & (lowest == highest) & (size > 1)[:, None]
    countable = both_valid & (size > 1)[:, None]
    hit_by_guess = np.multiply.reduceat(guess, starts) if len(starts) else guess
    labels = [
        list(cell) if cell is not None else []
        for cell in graded.questions.get("categories", pd.Series([[]] * len(questions)))
    ]
    pair_labels = [
        [label for row in order[start : start + length].tolist() for label in labels[row]]
        for start, length in zip(starts.tolist(), size.tolist(), strict=True)
    ]
    ends = over_pair(graded.ends, np.add)
    pair_ids = graded.columns["case_id"][first]
    agree = np.array([_agree(graded.k[order[s : s + n]]) for s, n in zip(starts, size, strict=True)], dtype=float)

    def pairs(metric: str, numerator: Floats, denominator: Floats | float, chance: Floats) -> pd.DataFrame:
        return make_units(
            FORMAT, graded, metric, first, numerator, denominator, chance, pair_ids,
            facets={"category": pair_labels}, ends=ends,
        )  # fmt: skip

    def each(metric: str, numerator: Floats, chance: Floats | float) -> pd.DataFrame:
        return make_units(FORMAT, graded, metric, questions, numerator, 1.0, chance, facets={"category": labels})

    valid_share = countable.mean(axis=1)
    return pd.concat(
        [
            pairs("set_accuracy", both_right.mean(axis=1), 1.0, hit_by_guess),
            each("individual_accuracy", graded.right.mean(axis=1), graded.guess),
            pairs("confusion", same.mean(axis=1), valid_share, agree * valid_share),
            each("invalid", (~graded.answered).mean(axis=1), np.nan),
        ],
        ignore_index=True,
    )


def _agree(options: np.ndarray) -> float:
    """Probability that independent uniform guesses at questions with these numbers of options all name the same position."""
    return float(options.min() / np.prod(options.astype(float)))
