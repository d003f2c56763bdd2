"""GMAI-MMBench: single-choice accuracy, multiple-choice accuracy and recall (paper section 3.4 and appendix D.2; Tables 2, 3, 5).

The paper calls its overall a macro average, but its numbers are the micro average (GPT-4o, test, Table 10:
53.96, where the mean of its 18 task accuracies is 49.40);
`accuracy` is the micro average and `accuracy_macro_task` what the text says.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from eval_harness.scores.grading import Graded, make_units

FORMAT = "gmai-mmbench"


def units(graded: Graded) -> pd.DataFrame:
    """One row per question. Multiple choice: right picks / picks made, right picks / true options, summed over questions.

    Chance of a guesser that takes any non-empty set of options with equal probability: a pick is right with probability
    true / options; an option is picked with probability 2^(k-1) / (2^k - 1).
    """
    single, multiple = np.flatnonzero(~graded.multiple), np.flatnonzero(graded.multiple)
    right = graded.right.mean(axis=1)
    frames = [make_units(FORMAT, graded, "accuracy", single, right[single], 1.0, graded.guess[single])]
    if "task" in graded.questions.columns:
        task = graded.questions["task"].iloc[single]
        labelled = single[task.notna().to_numpy()]
        names = graded.questions["task"].iloc[labelled]
        weight = 1.0 / names.map(names.value_counts()).to_numpy(float)
        frames.append(
            make_units(
                FORMAT,
                graded,
                "accuracy_macro_task",
                labelled,
                right[labelled] * weight,
                weight,
                graded.guess[labelled] * weight,
            )
        )
    hits, picks = graded.right_picks.mean(axis=1)[multiple], graded.picks.mean(axis=1)[multiple]
    true, k = graded.true[multiple].astype(float), graded.k[multiple].astype(float)
    picked_by_guess = 2.0 ** (k - 1) / (2.0**k - 1)
    made, there = np.rint(picks).astype(np.int64), graded.true[multiple]
    frames.append(make_units(FORMAT, graded, "mcq_accuracy", multiple, hits, picks, picks * true / k, count=made))
    frames.append(make_units(FORMAT, graded, "mcq_recall", multiple, hits, true, true * picked_by_guess, count=there))
    return pd.concat(frames, ignore_index=True)
