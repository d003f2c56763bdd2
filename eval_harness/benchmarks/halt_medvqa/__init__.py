"""HALT-MedVQA: how it is asked and scored (Wu et al., 2024)."""

from __future__ import annotations

from dataset_builders.schema import SCENARIOS
from eval_harness.benchmarks.halt_medvqa.prompts import PROMPTS
from eval_harness.benchmarks.prompt import OPEN
from eval_harness.benchmarks.spec import EvalSpec, MetricInfo


def _halt() -> dict[str, MetricInfo]:
    labels = {"fake": "FAKE", "none": "NONE", "swap": "SWAP"}
    metrics = {name: MetricInfo(labels[name], f"Accuracy in the scenario {labels[name]}.") for name in SCENARIOS}
    metrics["average"] = MetricInfo("Average", "Mean of the accuracies of the three scenarios.")
    for name in SCENARIOS:
        metrics[f"{name}_irrelevant"] = MetricInfo(
            f"{labels[name]}: irrelevant", "Responses that name no option (a count).", False, "count", of_ends=True
        )
    metrics["average_irrelevant"] = MetricInfo(
        "Average: irrelevant", "Mean of the three counts.", False, "count", of_ends=True
    )
    return metrics


SPEC = EvalSpec(
    headline="average",
    metrics=_halt(),
    prompts=PROMPTS,
    default_prompts={"mc": "L+D0", **dict.fromkeys(OPEN, "question")},
    # One token at temperature 0 (appendix A, "Experiment Configuration").
    max_tokens=1,
)
