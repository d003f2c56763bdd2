"""GMAI-MMBench: how it is asked and scored (Chen et al., NeurIPS 2024)."""

from __future__ import annotations

from eval_harness.benchmarks.gmai_mmbench.prompts import DEFAULTS, PROMPTS
from eval_harness.benchmarks.spec import EvalSpec, MetricInfo

_METRICS = {
    "accuracy": MetricInfo("Accuracy", "Single-choice questions answered correctly (micro average)."),
    "accuracy_macro_task": MetricInfo("Accuracy, mean over tasks", "Mean of the accuracies of the clinical tasks."),
    "mcq_accuracy": MetricInfo("Multiple choice: accuracy", "Right picks of the picks made."),
    "mcq_recall": MetricInfo("Multiple choice: recall", "Right picks of the true options."),
}

SPEC = EvalSpec(
    headline="accuracy",
    metrics=_METRICS,
    prompts=PROMPTS,
    default_prompts=DEFAULTS,
    max_tokens=1024,
    hidden_split="test",
    hidden_metrics={"accuracy": "single", "mcq_accuracy": "multiple"},
)
