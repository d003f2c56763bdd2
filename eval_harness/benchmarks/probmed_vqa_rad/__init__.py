"""ProbMed's probing of VQA-RAD: how it is asked and scored (Yan et al., 2024, section 4.1.1, Table 3)."""

from __future__ import annotations

from eval_harness.benchmarks.probmed_vqa_rad.prompts import DEFAULTS, PROMPTS, SYSTEM
from eval_harness.benchmarks.spec import EvalSpec, MetricInfo

SPEC = EvalSpec(
    headline="accuracy",
    metrics={
        "accuracy": MetricInfo("Accuracy with adversarial", "Pairs with both questions right (ProbMed Table 3)."),
        "accuracy_without_adversarial": MetricInfo(
            "Accuracy, no adversarial", "Pairs with the original question right (ProbMed Table 3)."
        ),
    },
    prompts=PROMPTS,
    default_prompts=DEFAULTS,
    system=SYSTEM,
)
