"""ProbMed's probing of VQA-RAD: how it is asked and scored (Yan et al., 2024, section 4.1.1, Table 3)."""

from __future__ import annotations

from eval_harness.benchmarks.probmed import SPEC as PROBMED
from eval_harness.benchmarks.prompt import OPEN, bare_question
from eval_harness.benchmarks.spec import EvalSpec, MetricInfo

SPEC = EvalSpec(
    headline="accuracy",
    metrics={
        "accuracy": MetricInfo("Accuracy with adversarial", "Pairs with both questions right (ProbMed Table 3)."),
        "accuracy_without_adversarial": MetricInfo(
            "Accuracy, no adversarial", "Pairs with the original question right (ProbMed Table 3)."
        ),
    },
    prompts=(bare_question("probmed-vqa-rad", "ProbMed: the question as it stands", ("mc", "gd", *OPEN)),),
    default_prompts={"mc": "question", **dict.fromkeys(OPEN, "question")},
    system=PROBMED.system,
)
