"""HALT-MedVQA: how it is asked and scored (Wu et al., 2024)."""

from __future__ import annotations

from dataset_builders.schema import SCENARIOS
from eval_harness.benchmarks.halt_medvqa.prompts import PROMPTS
from eval_harness.benchmarks.prompt import OPEN
from eval_harness.benchmarks.spec import EvalSpec, MetricInfo
from eval_harness.records.result import Images


def _halt() -> dict[str, MetricInfo]:
    asked = {
        "fake": ("Nonsense question", "picks “I do not know”"),
        "none": ("Correct option removed", "picks “None of the above”"),
        "swap": ("Wrong image", "picks “I do not know”"),
    }
    arms: dict[str, tuple[tuple[Images, ...], str]] = {
        "fake": ((), "the question makes no sense with any image"),
        "none": (("withheld", "blank"), "“None of the above” stays right with another image"),
        "swap": ((), "the benchmark itself shows a wrong image"),
    }
    metrics = {
        name: MetricInfo(
            f"{asked[name][0]}: {asked[name][1]}",
            "Right answers, in questions of this kind.",
            arms=arms[name][0],
            no_arm=arms[name][1],
        )
        for name in SCENARIOS
    }
    metrics["average"] = MetricInfo(
        "Mean of the three scenarios",
        "Hides a scenario in which a model nearly always fails.",
        arms=(),
        no_arm="in two of its three scenarios the image is not meant to matter",
    )
    for name in SCENARIOS:
        metrics[f"{name}_irrelevant"] = MetricInfo(
            f"{asked[name][0]}: unreadable", "Responses that name no option (a count).", False, "count", of_ends=True
        )
    metrics["average_irrelevant"] = MetricInfo(
        "Unreadable, mean of the three", "Mean of the three counts.", False, "count", of_ends=True
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
