"""Blind baseline: a language model answers without any image; the questions of a benchmark put to it as text alone, with the
harness's own prompt, reader and scores.

Both questions of MediConfusion's pairs read the same, so a model that always answers the same text alike gets no pair, half of the
questions and 100% confusion, and one that answers at random a quarter of the pairs: more of either means that something beside the
image gives answers away.
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
    """A model's scores without images: metric -> value, low, high (95%), n, n_cases, chance, verdict. `statuses`: how its responses
    ended; a question without an answer counts as wrong."""

    model: str
    prompt: str
    temperature: float
    scores: dict[str, dict[str, Any]]
    statuses: dict[str, int]


@dataclass(frozen=True)
class BlindAsking:
    """A language model to be asked without images, where its replies are kept, and how it is asked."""

    model: Writer
    journal: Path
    asking: AskSettings


def score_blind(family: str, questions: pd.DataFrame, blind: BlindAsking) -> BlindModel:
    """A model's scores on questions (rows as `questions_text` has them) that are put to it without their images.

    Replies go to the journal as they come; asking the same model the same questions again costs nothing, failed ones are asked anew.
    """
    model, asking = blind.model, blind.asking
    by_kind = {kind: get_prompt(family, None, str(kind), "mc") for kind in questions["question_type"].unique()}
    ids: dict[str, str] = {}
    prompts: dict[str, str] = {}
    for row in questions.to_dict("records"):
        text = by_kind[row["question_type"]].render(row["question"], row["options"])
        key = json.dumps([model.name, asking.temperature, row["question_id"], text], ensure_ascii=False)
        ids[key], prompts[key] = row["question_id"], text
    system = eval_spec(family).system if getattr(model, "is_api", False) else None  # as in the harness
    replies = list(ask_once(model, prompts, asking, blind.journal, "asking without images", system).values())
    answers = pd.DataFrame(
        [(ids[each["id"]], 0, each["reply"], each["status"]) for each in replies],
        columns=["question_id", "sample", "response", "status"],
    )
    scored = compute_scores(family, questions, read_responses(answers, questions, family))
    return BlindModel(
        model.name,
        ", ".join(sorted({prompt.name for prompt in by_kind.values()})),
        asking.temperature,
        {name: found.model_dump() for name, found in scored.scores.items()},
        scored.statuses,
    )


# What the text of questions gives away: how many are right with the option that is most often right elsewhere in the set

FOLD_COUNT = 10
SIGNIFICANCE_LEVEL, MIN_MARGIN = 0.05, 0.05
"""The text gives answers away where it is right more often than chance by a margin of 5 points, and a one-sided exact test says so."""


@dataclass(frozen=True)
class TextAlone:
    """`correct`: expected number right of `questions` (a tie of k options counts 1/k); `chance`: that of a uniform guess; `p`: of so many
    right or more by chance."""

    questions: int
    correct: float
    chance: float
    p: float

    @property
    def is_large(self) -> bool:
        """True if so many more than by chance matter."""
        return self.correct - self.chance >= MIN_MARGIN * self.questions

    @property
    def gives_away(self) -> bool:
        return self.p <= SIGNIFICANCE_LEVEL and self.is_large

    def __str__(self) -> str:
        return f"{self.correct:.0f} of {self.questions} right without the image, where {self.chance:.0f} are by chance"


def measure_text_alone(
    options: Sequence[Sequence[str]], right: Sequence[int], held: Sequence[Iterable[Hashable]]
) -> TextAlone:
    """Questions of one right option each, answered by what the other folds say. held: image, patient ... of each question; what shares one
    is in one fold."""
    names = [[" ".join(option.casefold().split()) for option in shown] for shown in options]
    parts = connected_components(range(len(names)), lambda at: held[at])
    parts.sort(key=lambda part: hashlib.sha256(f"fold {min(part)}".encode()).digest())
    chance = sum(1 / len(shown) for shown in names)
    was_right = Counter(shown[at] for shown, at in zip(names, right, strict=True))
    was_offered = Counter(name for shown in names for name in shown)
    correct = 0.0
    for number in range(FOLD_COUNT):
        fold = [at for part in parts[number::FOLD_COUNT] for at in part]
        right_here = Counter(names[at][right[at]] for at in fold)
        offered_here = Counter(name for at in fold for name in names[at])
        for at in fold:
            rates = [
                (was_right[name] - right_here[name] + chance / len(names))
                / (was_offered[name] - offered_here[name] + 1)
                for name in names[at]
            ]
            best = [k for k, rate in enumerate(rates) if rate >= max(rates) - 1e-12]
            correct += (right[at] in best) / len(best)
    return compare_with_chance(correct, options)


def compare_with_chance(correct: float, options: Sequence[Sequence[str]]) -> TextAlone:
    """So many right of questions with these options, with the exact test."""
    from scipy.stats import poisson_binom

    chances = [1 / len(shown) for shown in options]
    # A tie counts its share: rounding down keeps the test from saying more than it can.
    p = float(poisson_binom.sf(int(correct + 1e-9) - 1, chances))
    return TextAlone(len(chances), correct, sum(chances), min(1.0, p))
