"""What every metric means, in words: label, description, direction, unit. The formulas are in the benchmark modules beside this one."""

from __future__ import annotations

from dataclasses import dataclass

from dataset_builders.schema import ASPECTS, LETTERS, SCENARIOS


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """How a metric is shown. `higher_is_better` None: neither end is good (position bias). `unit`: `percent` or `count`."""

    label: str
    description: str
    higher_is_better: bool | None = True
    unit: str = "percent"


HEADLINE: dict[str, str] = {
    "mediconfusion": "set_accuracy",
    "probmed": "overall",
    "gmai-mmbench": "accuracy",
    "halt-medvqa": "average",
}
"""The metric a benchmark is sorted by, per format."""

_EVERYWHERE = {
    "irrelevant": MetricInfo(
        "Irrelevant", "Responses in which no option could be read, of all responses asked for.", False
    ),
    "refused": MetricInfo("Refused", "Responses that decline to answer, of all responses asked for.", False),
    "abstained": MetricInfo(
        "Abstained",
        "Responses that arrived whole and choose no option (irrelevant or refused), of all responses asked for.",
        None,
    ),
    "answered_accuracy": MetricInfo(
        "Accuracy where answered",
        "Questions answered correctly, of those for which an option was chosen: an abstention is neither right nor wrong.",
    ),
}

_MEDICONFUSION = {
    "set_accuracy": MetricInfo("Set accuracy", "Pairs with both images answered correctly."),
    "individual_accuracy": MetricInfo("Individual accuracy", "Questions answered correctly."),
    "confusion": MetricInfo(
        "Confusion", "Pairs with the same option chosen for both images, of the pairs with two valid answers.", False
    ),
    "invalid": MetricInfo("Invalid", "Questions without a valid answer.", False),
}

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
        weighted = " Image types are weighted as in the paper's scorer." if aspect in ("condition", "position") else ""
        metrics[aspect] = MetricInfo(label, f"Images with every question on {aspect} answered correctly.{weighted}")
        if aspect != "abnormality":
            metrics[f"{aspect}_without_adversarial"] = MetricInfo(
                f"{label}, no adversarial", f"The same without the adversarial questions.{weighted}"
            )
    metrics["overall"] = MetricInfo("Overall", "All five aspects together, weighted as in the paper's scorer.")
    metrics["overall_without_adversarial"] = MetricInfo(
        "Overall, no adversarial",
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

_PAIRS = {
    "accuracy_without_adversarial": MetricInfo(
        "Accuracy, no adversarial", "Pairs with the original question right (ProbMed Table 3)."
    ),
    "accuracy_with_adversarial": MetricInfo(
        "Accuracy with adversarial", "Pairs with both questions right (ProbMed Table 3)."
    ),
}

_GMAI = {
    "accuracy": MetricInfo("Accuracy", "Single-choice questions answered correctly (micro average)."),
    "accuracy_macro_task": MetricInfo("Accuracy, mean over tasks", "Mean of the accuracies of the clinical tasks."),
    "mcq_accuracy": MetricInfo("Multiple choice: accuracy", "Right picks of the picks made."),
    "mcq_recall": MetricInfo("Multiple choice: recall", "Right picks of the true options."),
}


def _halt() -> dict[str, MetricInfo]:
    labels = {"fake": "FAKE", "none": "NONE", "swap": "SWAP"}
    metrics = {name: MetricInfo(labels[name], f"Accuracy in the scenario {labels[name]}.") for name in SCENARIOS}
    metrics["average"] = MetricInfo("Average", "Mean of the accuracies of the three scenarios.")
    for name in SCENARIOS:
        metrics[f"{name}_irrelevant"] = MetricInfo(
            f"{labels[name]}: irrelevant", "Responses that name no option (a count).", False, "count"
        )
    metrics["average_irrelevant"] = MetricInfo("Average: irrelevant", "Mean of the three counts.", False, "count")
    return metrics


_SHARES = {
    f"share_{letter}": MetricInfo(f"Share of {letter}", f"Answers that choose {letter}, of the answers read.", None)
    for letter in LETTERS
} | {
    "share_yes": MetricInfo("Share of yes", "Answers that say yes, of the answers read.", None),
    "share_no": MetricInfo("Share of no", "Answers that say no, of the answers read.", None),
}

METRICS: dict[str, MetricInfo] = {
    **_MEDICONFUSION,
    **_probmed(),
    **_PROBMED_ERRORS,
    **_PAIRS,
    **_GMAI,
    **_halt(),
    **_EVERYWHERE,
    **_SHARES,
}
"""Every metric by name."""
