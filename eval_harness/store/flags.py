"""Flags for a person to look at before a result is added; none refuses a result, and none proves one.

See also: its dataset (`examine.py`), names and answers like those of another result (`names.py`, `likeness.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from dataset_builders.errors import clip
from eval_harness.reader.judge import prompt_of
from eval_harness.records.result import Result

REMARKABLE = 0.90
"""Share of right answers from which a result is looked at: no model in the papers of the four benchmarks comes near it."""
ENOUGH = 30
"""Questions from which on such a share says something."""
FEW = 8
"""Questions from which on it is odd that all are right; with fewer it happens by guessing."""


def doubts(result: Result, questions: pd.DataFrame, readings: pd.DataFrame) -> list[str]:
    """Flags for a result of `readings` of answers to `questions`."""
    is_model = result.model.responder == "model"  # a baseline was reproduced
    remarkable = _remarkable(questions, readings) if is_model else ()
    return [*remarkable, *_odd_method(result, readings)]


def asked_in_part(questions: pd.DataFrame, split: pd.DataFrame) -> Iterator[str]:
    """A flag for parts of cases among the questions of a `split` that were asked: `eval` asks whole cases, which are scored together."""
    counts = questions.groupby("case_id").size()
    halves = int((counts < split.groupby("case_id").size().reindex(counts.index)).sum())
    if halves:
        yield f"{halves:,} of its {len(counts):,} cases were asked in part"


def _remarkable(questions: pd.DataFrame, readings: pd.DataFrame) -> Iterator[str]:
    """(Nearly) right throughout, all samples together; right wherever it chose."""
    key = dict(zip(questions["question_id"].astype(str), questions["answer"].map(_tuple), strict=True))
    wanted = [key[name] for name in readings["question_id"].astype(str)]
    table = pd.DataFrame({"given": readings["choice"].map(_tuple).tolist(), "wanted": wanted})
    table = table[table["wanted"].map(len) > 0]
    asked, right = len(table), int((table["given"] == table["wanted"]).sum())
    chosen, samples = int((table["given"].map(len) > 0).sum()), max(1, readings["sample"].nunique())
    if right >= REMARKABLE * asked and asked // samples >= (FEW if right == asked else ENOUGH):
        word = "perfect" if right == asked else "remarkable"
        yield f"a {word} score: {right:,} of {asked:,} answers are right, more than of any model in the papers"
    if ENOUGH <= chosen < asked and right >= 0.99 * chosen:
        others = f"the other {asked - chosen:,} chose none: wrong answers may have been taken out"
        yield f"{right:,} of the {chosen:,} answers that chose an option are right, and {others}"


def _odd_method(result: Result, readings: pd.DataFrame) -> Iterator[str]:
    """A judge that was asked something else than ours, or a method that chooses by option scores where there are none."""
    method = result.method
    judge = method.judge
    if judge is not None and any(judge.get(name) != value for name, value in prompt_of(method.name).items()):
        yield f"the judge was asked with another prompt than medprobe's ({clip(judge.get('prompt_hash'))})"
    lacking = int(((readings["delivery"] == "answered") & readings["scores"].isna()).sum())
    if lacking and method.name in ("gd", "ps", "ps_official"):
        yield f"the method {method.name} chooses by option scores, and {lacking:,} answers have none"


def _tuple(choice: Any) -> tuple[int, ...]:
    return tuple(sorted(int(position) for position in choice))
