"""MediConfusion: how it is asked and scored (Sepehri et al., ICLR 2025)."""

from __future__ import annotations

from eval_harness.benchmarks.mediconfusion.prompts import DEFAULTS, PROMPTS
from eval_harness.benchmarks.spec import EvalSpec, MetricInfo

_METRICS = {
    "set_accuracy": MetricInfo("Set accuracy", "Pairs with both images answered correctly."),
    "individual_accuracy": MetricInfo("Individual accuracy", "Questions answered correctly."),
    "confusion": MetricInfo(
        "Confusion", "Pairs with the same option chosen for both images, of the pairs with two valid answers.", False
    ),
    "invalid": MetricInfo("Invalid", "Questions without a valid answer.", False, of_ends=True),
}

SPEC = EvalSpec(
    headline="set_accuracy",
    metrics=_METRICS,
    prompts=PROMPTS,
    default_prompts=DEFAULTS,
    # The authors' prompt file, `init_prompts: default` (used by `configs/Models/gpt/vanilla.json`).
    system="You are a helpful assitant expert in medical domain.",
    judged_free_form=True,
)
