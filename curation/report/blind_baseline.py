"""Blind baseline: how well a benchmark's questions can be answered without the images.

A language model is asked the questions as text alone, with the harness's own prompt, reader and
scores.

The two questions of a MediConfusion pair have the same text. A model that always answers the same
text alike gets no pair, half of the questions and 100% confusion; one that answers at random gets
a quarter of the pairs. More of either means that something other than the image gives answers
away.
"""

from __future__ import annotations

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
from eval_harness.benchmarks import eval_spec
from eval_harness.derive.reading import read_responses
from eval_harness.derive.scoring import compute_scores
from eval_harness.prompts import get_prompt


@dataclass(frozen=True)
class BlindModel:
    """A model's scores without images.

    Attributes:
        scores: metric -> value, low, high (95%), n, n_cases, chance, verdict.
        statuses: status of a response -> count; a question without an answer counts as wrong.
    """

    model: str
    prompt: str
    temperature: float
    scores: dict[str, dict[str, Any]]
    statuses: dict[str, int]


@dataclass(frozen=True)
class BlindAsking:
    """A language model to ask without images, the journal of its replies, and how it is asked."""

    model: Writer
    journal: Path
    asking: AskSettings


def score_blind(family: str, questions: pd.DataFrame, blind: BlindAsking) -> BlindModel:
    """Ask a model questions without their images, and score its answers.

    Replies go to the journal as they arrive: repeating the call asks only failed questions again.

    Args:
        family: benchmark family, which decides prompt, reader and scores.
        questions: rows as `questions_text` has them.
        blind: the model.

    Returns:
        The scores and the statuses of the responses.
    """
    model, asking = blind.model, blind.asking
    templates = {kind: get_prompt(family, None, str(kind), "mc") for kind in questions["question_type"].unique()}
    question_ids: dict[str, str] = {}
    prompts: dict[str, str] = {}
    for row in questions.to_dict("records"):
        text = templates[row["question_type"]].render(row["question"], row["options"])
        # The key covers all that determines the reply: a changed prompt is asked again.
        key = json.dumps(
            [model.name, asking.temperature, row["question_id"], text],
            ensure_ascii=False,
        )
        question_ids[key], prompts[key] = row["question_id"], text

    # The harness, too, sends a system message to servers only.
    system = eval_spec(family).system if getattr(model, "is_api", False) else None
    replies = list(ask_once(model, prompts, asking, blind.journal, "asking without images", system).values())
    answers = pd.DataFrame(
        [(question_ids[reply["id"]], 0, reply["reply"], reply["status"]) for reply in replies],
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


# What the text of questions gives away: how many are answered correctly with the option that is
# most
# often correct in the rest of the set.

FOLD_COUNT = 10
SIGNIFICANCE_LEVEL, MIN_MARGIN = 0.05, 0.05
"""The text gives answers away if it beats chance by 5 points and a one-sided exact test is
significant."""


@dataclass(frozen=True)
class TextAlone:
    """How many questions are answered correctly from the text alone.

    Attributes:
        questions: number of questions.
        correct: expected number of correct answers (a tie of k options counts 1/k).
        chance: expected number for a uniform guess.
        p: probability of at least `correct` correct answers by chance.
    """

    questions: int
    correct: float
    chance: float
    p: float

    @property
    def is_large(self) -> bool:
        """Whether the margin over chance is large enough to matter."""
        return self.correct - self.chance >= MIN_MARGIN * self.questions

    @property
    def gives_away(self) -> bool:
        """Whether the text gives answers away: a large and significant margin over chance."""
        return self.p <= SIGNIFICANCE_LEVEL and self.is_large

    def __str__(self) -> str:
        return f"{self.correct:.0f} of {self.questions} right without the image, where {self.chance:.0f} are by chance"


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
            # Share of the other folds in which the option was correct, shrunk towards chance.
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
        correct: number of correct answers; a tie counts its share.
        options: options of each question.
    """
    from scipy.stats import poisson_binom

    chances = [1 / len(question_options) for question_options in options]
    # Rounding a fractional count down keeps the test conservative.
    p = float(poisson_binom.sf(int(correct + 1e-9) - 1, chances))
    return TextAlone(len(chances), correct, sum(chances), min(1.0, p))
