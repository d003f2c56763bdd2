"""Pairs of a true question and its adversarial counterpart (ProbMed section 4, Table 3)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.scores.grading import Graded, make_units


def pair_units(graded: Graded) -> pd.DataFrame:
    """Two rows per pair of a true question and its adversarial counterpart (Table 3): `accuracy_without_adversarial` counts the true
    question alone, `accuracy_with_adversarial` both. Pairs that lack either question are left out.

    Pairs are identified by `pair_id` (columns `pair_id`, `adversarial`; units are named by it). Chance is 1/2 and 1/4 for yes/no questions.
    Raises BadInput if either column is missing.
    """
    for column in ("pair_id", "adversarial"):
        if column not in graded.questions.columns:
            raise BadInput(f"questions: the column {column} is missing, which adversarial pairs need.")
    adversarial = graded.questions["adversarial"].to_numpy(dtype=bool)
    rows = pd.Series(np.arange(len(adversarial)), index=graded.questions["pair_id"].to_numpy(dtype=object))
    rows = rows[rows.index.notna()]
    truth, counterpart = rows[~adversarial[rows]], rows[adversarial[rows]]
    for half in (truth, counterpart):
        if not half.index.is_unique:
            raise BadInput(f"questions: pair {half.index[half.index.duplicated()][0]!r} holds more than two questions.")
    pairs = truth.index[truth.index.isin(counterpart.index)]
    true_row, other = truth.loc[pairs].to_numpy(np.int64), counterpart.loc[pairs].to_numpy(np.int64)
    hit, both = graded.right[true_row], graded.right[true_row] & graded.right[other]
    chance = graded.guess[true_row]
    names = pairs.to_numpy(dtype=object)
    return pd.concat(
        [
            make_units(graded, name, true_row, share.mean(axis=1), 1.0, guess, names, ends=ends)
            for name, share, guess, ends in (
                (
                    "accuracy_without_adversarial",
                    hit,
                    chance,
                    (graded.ends[true_row], graded.lost[true_row].mean(axis=1)),
                ),
                (
                    "accuracy_with_adversarial",
                    both,
                    chance * graded.guess[other],
                    graded.ends_over(np.stack([true_row, other], axis=1).ravel(), np.arange(len(pairs)) * 2),
                ),
            )
        ],
        ignore_index=True,
    )
