"""GMAI-MMBench: prompts, reading and scores (Chen et al., NeurIPS 2024).

Templates of Table 8; single-choice accuracy, multiple-choice accuracy and recall (section 3.4 and
appendix D.2; Tables 2, 3, 5). The paper calls its overall score a macro average, but its numbers
are micro averages (GPT-4o, test, Table 10: 53.96, whereas the mean of its 18 task accuracies is
49.40). Here `accuracy` is the micro average, and `accuracy_macro_task` the macro average that the
text describes.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dataset_builders.schema import LETTERS
from eval_harness.benchmarks.spec import (
    DOT_LINES,
    OPEN_ENDED_METHODS,
    EvalSpec,
    MetricInfo,
    Prompt,
    bare_question_prompt,
)
from eval_harness.reader import Reading, official_reading
from eval_harness.scores.grading import Graded, make_units

# VLMEvalKit replaces these characters by spaces before it looks for letters.
_BLANKED = str.maketrans(".()[],:;!*#{}", " " * 13)
# VLMEvalKit's list of refusals, verbatim.
_REJECTS = (
    "Sorry, I can't help with images of people yet.",
    "I can't process this file.",
    "I'm sorry, but without the image provided",
    "Cannot determine the answer",
)


def read_official(response: str, options: Sequence[str], question_type: str) -> Reading:
    """Read a response as VLMEvalKit did at the time of the paper.

    The code is `can_infer` of commit c6bdffd3 (2024-03); its rules of 2025-08 and 2026-06 give
    other scores (`docs/harnesses.md`). For a single choice it reads one option letter between
    spaces, or else one option text anywhere in the response, regardless of length. For a multiple
    choice (the paper asks for "A,B") it reads every option letter between commas or spaces.

    Defects: the article "A" is option A; "Option (B)" beside another letter reads nothing; an
    option text inside a longer word counts. VLMEvalKit's users give unread answers to a judge, or
    count them as chance; here they stay irrelevant.

    Args:
        response: The model's response.
        options: Option texts in the order shown.
        question_type: `single` or `multiple`.
    """
    if "Failed to obtain answer via API" in response:
        return official_reading((), "official: error text")
    if any(reject in response for reject in _REJECTS):
        return Reading((), "refused", "official: refusal")
    words = response.translate(_BLANKED).split()
    positions = tuple(index for index in range(len(options)) if LETTERS[index] in words)
    if question_type == "multiple":
        return official_reading(positions, "official: letters")
    if len(positions) == 1:
        return official_reading(positions, "official: letter between blanks")
    if not positions and "Z" in words:  # VLMEvalKit's letter for "none of them"
        return official_reading((), "official: no option")
    # No single letter: fall back to option texts.
    lowered = response.lower()
    positions = tuple(index for index, option in enumerate(options) if option.lower() in lowered)
    if len(positions) == 1:
        return official_reading(positions, "official: option text")
    return official_reading((), "official: no option")


def units(graded: Graded) -> pd.DataFrame:
    """Build one unit per question.

    For multiple choice, accuracy is correct picks / picks made and recall is correct picks /
    correct options, each summed over questions. Chance is that of a guesser that takes any
    non-empty set of k
    options with equal probability: a pick is correct with probability (correct options) / k, and an
    option is picked with probability 2^(k-1) / (2^k - 1).

    Args:
        graded: Graded answers.

    Returns:
        Units of all metrics (`grading.make_units`).
    """
    single, multiple = np.flatnonzero(~graded.multiple), np.flatnonzero(graded.multiple)
    right = graded.right.mean(axis=1)
    frames = [make_units(graded, "accuracy", single, right[single], 1.0, graded.guess[single])]
    if "task" in graded.questions.columns:
        task = graded.questions["task"].iloc[single]
        labelled = single[task.notna().to_numpy()]
        task_names = graded.questions["task"].iloc[labelled]
        # All tasks have the same weight, however many questions they have.
        weight = 1.0 / task_names.map(task_names.value_counts()).to_numpy(float)
        hits, guesses = right[labelled] * weight, graded.guess[labelled] * weight
        frames.append(make_units(graded, "accuracy_macro_task", labelled, hits, weight, guesses))
    hits, picks = graded.right_picks.mean(axis=1)[multiple], graded.picks.mean(axis=1)[multiple]
    n_true, n_options = graded.true[multiple].astype(float), graded.k[multiple].astype(float)
    # Half of all subsets contain a given option; the empty one is excluded.
    picked_by_guess = 2.0 ** (n_options - 1) / (2.0**n_options - 1)
    picks_made, true_count = np.rint(picks).astype(np.int64), graded.true[multiple]
    frames.append(
        make_units(
            graded,
            "mcq_accuracy",
            multiple,
            hits,
            picks,
            picks * n_true / n_options,
            count=picks_made,
        )
    )
    frames.append(make_units(graded, "mcq_recall", multiple, hits, n_true, n_true * picked_by_guess, count=true_count))
    return pd.concat(frames, ignore_index=True)


SPEC = EvalSpec(
    units=units,
    read_official=read_official,
    headline="accuracy",
    metrics={
        "accuracy": MetricInfo("Accuracy", "Single-choice questions answered correctly (micro average)."),
        "accuracy_macro_task": MetricInfo("Accuracy, mean over tasks", "Mean of the accuracies of the clinical tasks."),
        "mcq_accuracy": MetricInfo("Multiple choice: accuracy", "Correct picks among all picks."),
        "mcq_recall": MetricInfo("Multiple choice: recall", "Correct picks among all correct options."),
    },
    prompts=(
        Prompt(
            "single",
            "Question: {question}\nOptions:\n{options}\nPlease select the correct answer from the options above.",
            "GMAI-MMBench Table 8, single choice",
            DOT_LINES,
        ),
        Prompt(
            "multiple",
            "Question: {question}\nOptions:\n{options}\nPlease select all correct answers from the options above. "
            "Note that there is more than one correct answer.\n"
            "Please output the answer options directly, separated by commas. For example: A,B",
            "GMAI-MMBench Table 8, multiple choice",
            DOT_LINES,
        ),
        bare_question_prompt("the question as it stands; not a protocol of the paper"),
    ),
    default_prompts={
        "mc": "single",
        "multiple": "multiple",
        **dict.fromkeys(OPEN_ENDED_METHODS, "question"),
    },
    max_tokens=1024,
    hidden_split="test",
    hidden_metrics={"accuracy": "single", "mcq_accuracy": "multiple"},
)
