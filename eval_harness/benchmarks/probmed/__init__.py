"""ProbMed: how it is asked and scored (Yan et al., 2024)."""

from __future__ import annotations

from dataset_builders.schema import ASPECTS
from eval_harness.benchmarks.probmed.prompts import DEFAULTS, PROMPTS, SYSTEM
from eval_harness.benchmarks.spec import EvalSpec, MetricInfo
from eval_harness.records.result import ARMS

_ASPECT_LABELS = {
    "modality": "Modality",
    "organ": "Organ",
    "abnormality": "Abnormality",
    "condition": "Condition",
    "position": "Position",
}


def _probmed() -> dict[str, MetricInfo]:
    metrics: dict[str, MetricInfo] = {}
    for aspect in ASPECTS:
        label = _ASPECT_LABELS[aspect]
        alike = aspect in ("modality", "organ")  # of the image that the arm `swapped` shows, as of the right one
        arms, why = (ARMS[:2], "the image shown instead has the same modality and organ") if alike else (ARMS, "")
        weighted = " Image types are weighted as in the paper's scorer." if aspect in ("condition", "position") else ""
        metrics[aspect] = MetricInfo(
            label, f"Images with every question on {aspect} answered correctly.{weighted}", arms=arms, no_arm=why
        )
        if aspect != "abnormality":
            metrics[f"{aspect}_without_adversarial"] = MetricInfo(
                f"{label}, no adversarial",
                f"The same without the adversarial questions.{weighted}",
                arms=arms,
                no_arm=why,
            )
    metrics["overall"] = MetricInfo("Overall accuracy", "All five aspects together, weighted as in the paper's scorer.")
    metrics["overall_without_adversarial"] = MetricInfo(
        "Overall accuracy, no adversarial",
        "Four aspects (abnormality has no adversarial questions) without the adversarial questions. Never to be set against `overall`.",
    )
    for name in ("condition", "position", "overall"):
        for base in (name, f"{name}_without_adversarial"):
            metrics[f"{base}_reweighted"] = MetricInfo(
                f"{metrics[base].label} (reweighted)", f"As `{base}`, divided by the images that have such questions."
            )
    return metrics


_PROBMED_ERRORS = {
    "accuracy_given_earlier": MetricInfo(
        "Accuracy given earlier steps",
        "Of the images with every earlier step of the diagnosis right, those with this one right.",
    ),
    "denies_truth": MetricInfo("Denies the truth", "Errors that answer no where the finding is there.", False),
    "accepts_hallucination": MetricInfo(
        "Accepts a hallucination", "Errors that answer yes to an invented finding.", False
    ),
    "wrong_answer": MetricInfo("Wrong answer", "Errors on abnormality that are a wrong answer.", False),
}

SPEC = EvalSpec(
    headline="overall",
    metrics={**_probmed(), **_PROBMED_ERRORS},
    prompts=PROMPTS,
    default_prompts=DEFAULTS,
    system=SYSTEM,
)
