"""Score pairs of a true question and its adversarial counterpart (ProbMed section 4, Table 3)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.scores.grading import Graded, make_units


def pair_units(graded: Graded) -> pd.DataFrame:
    """Build two units per pair of a true question and its adversarial counterpart.

    They are the metrics of ProbMed's Table 3: for `accuracy_without_adversarial` the true question
    must be right, for `accuracy_with_adversarial` both. Chance is 1/2 and 1/4 for yes/no questions.
    A pair that lacks one of its two questions is left out.

    Args:
        graded: Graded answers; questions with the columns `pair_id` (which names the units) and
            `adversarial`.

    Raises:
        BadInput: A column is missing, or a pair has two questions of one kind.
    """
    for column in ("pair_id", "adversarial"):
        if column not in graded.questions.columns:
            raise BadInput(f"questions: adversarial pairs need the column {column}, which is missing.")
    adversarial = graded.questions["adversarial"].to_numpy(dtype=bool)
    rows = pd.Series(np.arange(len(adversarial)), index=graded.questions["pair_id"].to_numpy(dtype=object))
    # Questions outside any pair have no pair_id.
    rows = rows[rows.index.notna()]
    true_questions, counterpart = rows[~adversarial[rows]], rows[adversarial[rows]]
    for half, kind in ((true_questions, "true"), (counterpart, "adversarial")):
        if not half.index.is_unique:
            pair_id = half.index[half.index.duplicated()][0]
            raise BadInput(f"questions: pair {pair_id!r} has several {kind} questions. Give it one of each kind.")
    pairs = true_questions.index[true_questions.index.isin(counterpart.index)]
    true_row, counterpart_row = (
        true_questions.loc[pairs].to_numpy(np.int64),
        counterpart.loc[pairs].to_numpy(np.int64),
    )
    hit, both_hit = graded.right[true_row], graded.right[true_row] & graded.right[counterpart_row]
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
                    both_hit,
                    chance * graded.guess[counterpart_row],
                    graded.ends_over(
                        np.stack([true_row, counterpart_row], axis=1).ravel(),
                        np.arange(len(pairs)) * 2,
                    ),
                ),
            )
        ],
        ignore_index=True,
    )
