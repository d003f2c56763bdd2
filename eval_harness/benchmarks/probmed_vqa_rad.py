"""ProbMed's probing of VQA-RAD: prompts and reading of ProbMed, scored by pairs.

Yan et al., 2024, section 4.1.1, Table 3.
"""

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.benchmarks.probmed import (
    PROBMED_DEFAULT_PROMPTS,
    PROBMED_PROMPTS,
    PROBMED_SYSTEM_MESSAGE,
    read_official,
)
from eval_harness.benchmarks.spec import EvalSpec, MetricInfo
from eval_harness.scores.grading import Graded, RowGroups, check_columns, make_units


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
    check_columns(graded.questions, ["pair_id", "adversarial"], purpose=", which adversarial pairs need")
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
    names, halves = pairs.to_numpy(dtype=object), (true_questions.loc[pairs], counterpart.loc[pairs])
    both = RowGroups(np.stack(halves, axis=1).ravel().astype(np.int64), np.arange(len(pairs)) * 2)
    true_rows = both.first_rows
    hit, guess = graded.right[true_rows].mean(axis=1), graded.guess[true_rows]
    both_hit = both.reduce(np.logical_and, graded.right).mean(axis=1)
    both_guess = both.reduce(np.multiply, graded.guess)
    return pd.concat(
        [
            make_units(graded, "accuracy_without_adversarial", true_rows, hit, 1.0, guess, names),
            make_units(
                graded,
                "accuracy_with_adversarial",
                true_rows,
                both_hit,
                1.0,
                both_guess,
                names,
                ends=graded.ends_over(both),
            ),
        ],
        ignore_index=True,
    )


def units(graded: Graded) -> pd.DataFrame:
    """Build two units per pair of a question and its adversarial counterpart.

    `accuracy` requires both to be answered correctly (chance 1/4); `accuracy_without_adversarial`
    counts only the original question (chance 1/2).

    Args:
        graded: Graded answers; questions with the columns `pair_id` and `adversarial`.

    Raises:
        BadInput: If a column is missing.
    """
    pair_table = pair_units(graded)
    return pair_table.assign(metric=pair_table["metric"].replace("accuracy_with_adversarial", "accuracy"))


SPEC = EvalSpec(
    units=units,
    read_official=read_official,
    headline="accuracy",
    metrics={
        "accuracy": MetricInfo("Accuracy with adversarial", "Pairs with both questions correct (ProbMed Table 3)."),
        "accuracy_without_adversarial": MetricInfo(
            "Accuracy, no adversarial",
            "Pairs with the original question correct (ProbMed Table 3).",
        ),
    },
    prompts=PROBMED_PROMPTS,
    default_prompts=PROBMED_DEFAULT_PROMPTS,
    system=PROBMED_SYSTEM_MESSAGE,
)
