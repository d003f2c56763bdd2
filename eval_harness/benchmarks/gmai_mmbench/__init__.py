"""GMAI-MMBench: how it is asked and scored (Chen et al., NeurIPS 2024)."""

from __future__ import annotations

from eval_harness.benchmarks.prompt import OPEN, Prompt, bare_question, lettered
from eval_harness.benchmarks.spec import EvalSpec, MetricInfo

_DOT_LINES = lettered(". ", "\n")

_METRICS = {
    "accuracy": MetricInfo("Accuracy", "Single-choice questions answered correctly (micro average)."),
    "accuracy_macro_task": MetricInfo("Accuracy, mean over tasks", "Mean of the accuracies of the clinical tasks."),
    "mcq_accuracy": MetricInfo("Multiple choice: accuracy", "Right picks of the picks made."),
    "mcq_recall": MetricInfo("Multiple choice: recall", "Right picks of the true options."),
}

_PROMPTS = (
    Prompt(
        "single",
        "gmai-mmbench",
        "Question: {question}\nOptions:\n{options}\nPlease select the correct answer from the options above.",
        _DOT_LINES,
        "GMAI-MMBench Table 8, single choice",
    ),
    Prompt(
        "multiple",
        "gmai-mmbench",
        "Question: {question}\nOptions:\n{options}\nPlease select all correct answers from the options above. "
        "Note that there is more than one correct answer.\n"
        "Please output the answer options directly, separated by commas. For example: A,B",
        _DOT_LINES,
        "GMAI-MMBench Table 8, multiple choice",
    ),
    bare_question("gmai-mmbench", "the question as it stands; not a protocol of the paper"),
)

SPEC = EvalSpec(
    headline="accuracy",
    metrics=_METRICS,
    prompts=_PROMPTS,
    default_prompts={"mc": "single", "multiple": "multiple", **dict.fromkeys(OPEN, "question")},
    max_tokens=1024,
    hidden_split="test",
    hidden_metrics={"accuracy": "single", "mcq_accuracy": "multiple"},
)
