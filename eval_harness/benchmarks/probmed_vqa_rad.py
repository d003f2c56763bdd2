"""ProbMed's probing of VQA-RAD: asked and read as ProbMed, scored by pairs (Yan et al., 2024, section 4.1.1, Table 3)."""

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
    """Two rows per pair: `accuracy` (both right; chance 1/4) and `accuracy_without_adversarial` (the true question right; chance 1/2).

    Raises BadInput if the columns `pair_id` or `adversarial` are missing.
    """
    found = pair_units(graded)
    return found.assign(metric=found["metric"].replace("accuracy_with_adversarial", "accuracy"))


SPEC = EvalSpec(
    units=units,
    read_official=read_official,
    headline="accuracy",
    metrics={
        "accuracy": MetricInfo("Accuracy with adversarial", "Pairs with both questions right (ProbMed Table 3)."),
        "accuracy_without_adversarial": MetricInfo(
            "Accuracy, no adversarial", "Pairs with the original question right (ProbMed Table 3)."
        ),
    },
    prompts=PROBMED_PROMPTS,
    default_prompts=PROBMED_DEFAULT_PROMPTS,
    system=PROBMED_SYSTEM_MESSAGE,
)
