"""ProbMed's Table 3: a pair counts when its true question is right ("without"), or both of its questions are ("with adversarial")."""

from __future__ import annotations

import pandas as pd

from eval_harness.scores.grading import Graded
from eval_harness.scores.pairs import pair_units


def units(graded: Graded) -> pd.DataFrame:
    """Two rows per pair: `accuracy` (both right; chance 1/4) and `accuracy_without_adversarial` (the true question right; chance 1/2).

    Raises BadInput where the columns `pair_id` or `adversarial` are missing.
    """
    found = pair_units("probmed-vqa-rad", graded)
    return found.assign(metric=found["metric"].replace("accuracy_with_adversarial", "accuracy"))
