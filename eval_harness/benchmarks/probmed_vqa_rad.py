"""ProbMed's probing of VQA-RAD: prompts and reading of ProbMed, scored by pairs.

Yan et al., 2024, section 4.1.1, Table 3.
"""

from __future__ import annotations

import pandas as pd

from eval_harness.benchmarks.probmed import (
    PROBMED_DEFAULT_PROMPTS,
    PROBMED_PROMPTS,
    PROBMED_SYSTEM_MESSAGE,
    read_official,
)
from eval_harness.benchmarks.spec import EvalSpec, MetricInfo
from eval_harness.scores.grading import Graded
from eval_harness.scores.pairs import pair_units


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
