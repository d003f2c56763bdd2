"""Blind baseline: how well a benchmark's questions can be answered without the images.

A language model is sent the text of the questions, with the prompts, reader and scores of the
evaluation harness.

The two questions of a MediConfusion pair have the same text. A model that always gives the same
answer to the same text therefore gets no pair right, but half of the questions, and a confusion of
100 %. One that answers at random gets a quarter of the pairs right. Higher scores mean that
something other than the image gives answers away.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from curation.writing.asking import AskSettings, Writer, ask_once
from dataset_builders.case_groups import connected_components
from eval_harness.benchmarks import eval_spec, get_prompt
from eval_harness.derive.metrics import compute_scores
from eval_harness.derive.reading import read_responses


@dataclass(frozen=True)
class BlindModel:
    """A model's scores without images.

    Attributes:
        scores: metric -> value, low, high (95%), n, n_cases, chance, verdict.
        statuses: status -> number of responses; a question without an answer counts as wrong.
    """

    model: str
    prompt: str
    temperature: float
    scores: dict[str, dict[str, Any]]
    statuses: dict[str, int]


def score_blind(family: str, questions: pd.DataFrame, model: Writer, journal: Path, asking: AskSettings) -> BlindModel:
    """Have a model answer questions without their images, and score the answers.

    Replies are journalled as they arrive, so a repeated call only repeats requests that failed.

    Args:
        family: benchmark family, which determines prompt, reader and scores.
        questions: rows as in `questions_text`.
        model: the language model.
        journal: file of its replies.
        asking: settings of its requests.

    Returns:
        The scores and the statuses of the responses.
    """
    templates = {kind: get_prompt(family, None, str(kind), "mc") for kind in questions["question_type"].unique()}
    prompts: dict[str, str] = {}
    for row in questions.to_dict("records"):
        text = templates[row["question_type"]].render(row["question"], row["options"])
        # The key covers all that determines the reply, so that a changed prompt is sent again.
        key = json.dumps(
            [model.name, asking.temperature, row["question_id"], text],
            ensure_ascii=False,
        )
        prompts[key] = text

    # As in the harness, only servers get a system message.
    system = eval_spec(family).system if getattr(model, "uses_http", False) else None
    replies = ask_once(model, prompts, asking, journal, "asking without images", system)
    answers = pd.DataFrame(
        [(json.loads(key)[2], 0, reply["reply"], reply["status"]) for key, reply in replies.items()],
        columns=["question_id", "sample", "response", "status"],
    )
    scored = compute_scores(family, questions, read_responses(answers, questions, family))
    return BlindModel(
        model.name,
        ", ".join(sorted({template.name for template in templates.values()})),
        asking.temperature,
        {metric: metric_score.model_dump() for metric, metric_score in scored.scores.items()},
        scored.statuses,
    )


# Text alone: the number of questions answered correctly by choosing the option that is most often
# correct in the rest of the set.

FOLD_COUNT = 10
SIGNIFICANCE_LEVEL, MIN_MARGIN = 0.05, 0.05
"""Text gives answers away if the accuracy from text alone exceeds chance by 5 percentage points and
a one-sided exact test is significant.
"""


@dataclass(frozen=True)
class TextAlone:
    """Number of questions that are answered correctly from the text alone, compared with chance.

    Attributes:
        questions: number of questions.
        correct: expected number of correct answers (a tie of k options counts as 1/k).
        chance: expected number of correct answers by uniform guessing.
        p: probability of at least `correct` correct answers by chance.
    """

    questions: int
    correct: float
    chance: float
    p: float

    @property
    def is_large(self) -> bool:
        """Return True if the margin over chance is large enough to matter."""
        return self.correct - self.chance >= MIN_MARGIN * self.questions

    @property
    def gives_away(self) -> bool:
        """Return True if the margin over chance is large and significant."""
        return self.p <= SIGNIFICANCE_LEVEL and self.is_large

    def __str__(self) -> str:
        return f"{self.correct:.0f} of {self.questions} correct without the image, {self.chance:.0f} expected by chance"


def measure_text_alone(
    options: Sequence[Sequence[str]],
    correct_indices: Sequence[int],
    fold_keys: Sequence[Iterable[Hashable]],
) -> TextAlone:
    """Answer questions with the option that is most often correct in the other folds.

    Args:
        options: options of each question.
        correct_indices: index of each question's correct option.
        fold_keys: keys of each question (image, patient ...); questions that share a key are in
            one fold.

    Returns:
        The number of correct answers, compared with chance.
    """
    option_names = [
        [" ".join(option.casefold().split()) for option in question_options] for question_options in options
    ]
    components = connected_components(range(len(option_names)), lambda index: fold_keys[index])
    components.sort(
        key=lambda component: hashlib.sha256(f"fold {min(component)}".encode()).digest(),
    )
    chance = sum(1 / len(names) for names in option_names)
    correct_counts = Counter(names[index] for names, index in zip(option_names, correct_indices, strict=True))
    offered_counts = Counter(name for names in option_names for name in names)
    correct = 0.0
    for number in range(FOLD_COUNT):
        fold = [index for component in components[number::FOLD_COUNT] for index in component]
        fold_correct = Counter(option_names[index][correct_indices[index]] for index in fold)
        fold_offered = Counter(name for index in fold for name in option_names[index])
        for index in fold:
            # How often the option is correct when offered in the other folds, shrunk towards
            # chance.
            rates = [
                (correct_counts[name] - fold_correct[name] + chance / len(option_names))
                / (offered_counts[name] - fold_offered[name] + 1)
                for name in option_names[index]
            ]
            best = [k for k, rate in enumerate(rates) if rate >= max(rates) - 1e-12]
            correct += (correct_indices[index] in best) / len(best)
    return compare_with_chance(correct, options)


def compare_with_chance(correct: float, options: Sequence[Sequence[str]]) -> TextAlone:
    """Compare a number of correct answers with uniform guessing (exact Poisson binomial test).

    Args:
        correct: number of correct answers; a tie counts fractionally.
        options: options of each question.
    """
    from scipy.stats import poisson_binom

    chances = [1 / len(question_options) for question_options in options]
    # A fractional count is rounded down, which keeps the test conservative.
    p = float(poisson_binom.sf(int(correct + 1e-9) - 1, chances))
    return TextAlone(len(chances), correct, sum(chances), min(1.0, p))
