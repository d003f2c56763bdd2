"""HALT-MedVQA: accuracy in the scenarios FAKE, NONE, SWAP, and how many responses name no option (paper Table 1).

The paper's n (542, 817) are the last indices of its files, which hold 543 and 818 questions; its accuracies fit the latter.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.schema import SCENARIOS
from eval_harness.scores.grading import Graded, make_units

FORMAT = "halt-medvqa"


def units(graded: Graded) -> pd.DataFrame:
    """One row per question. `average` is the mean over scenarios (each weighs the same); `<scenario>_irrelevant` is a count.

    Irrelevant here is what the paper calls so: a response came and names no option (ours tells a refusal apart; it counts too).
    A count is sum(numerator); its denominators are 1 and only say how many questions it is of.
    """
    if "scenario" not in graded.questions.columns:
        raise BadInput("questions: the column scenario is missing, which the format halt-medvqa needs.")
    scenario = graded.questions["scenario"]
    right = graded.right.mean(axis=1)
    unread = (graded.irrelevant | graded.refused).mean(axis=1)
    present = [name for name in SCENARIOS if (scenario == name).any()]
    frames = []
    for name in SCENARIOS:
        rows = np.flatnonzero((scenario == name).to_numpy())
        weight = 1.0 / max(len(rows), 1)
        frames.append(make_units(FORMAT, graded, name, rows, right[rows], 1.0, graded.guess[rows]))
        frames.append(
            make_units(FORMAT, graded, "average", rows, right[rows] * weight, weight, graded.guess[rows] * weight)
        )
        frames.append(make_units(FORMAT, graded, f"{name}_irrelevant", rows, unread[rows]))
        frames.append(make_units(FORMAT, graded, "average_irrelevant", rows, unread[rows] / max(len(present), 1)))
    return pd.concat(frames, ignore_index=True)
