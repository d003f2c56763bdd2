"""How alike the answers of two results are: whether one may be the other with little changed.

Two runs of a model at temperature 0 are alike, too, so this is told and refuses nobody. See also: who is told (`folder.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from eval_harness.derive.files import READINGS, read_readings

ALIKE = 0.95
"""Cohen's kappa (Cohen 1960, eq. 1) from which answers are called alike: 0 is what two models that favour the same words or options
reach by chance, 1 a copy. A copy in which one answer in thirty was changed has about .96."""
ENOUGH = 30
"""Answers in common from which on their likeness says something."""
PARAGRAPH = 120
"""Letters and digits from which on a text that stands once in a result is a model's own wording."""
COPIED = 10
"""Such texts in common, and a third of all of them, from which on answers are called copied, however many others were changed."""
SIGNS = re.compile(r"[\W_]+")

Hashes = npt.NDArray[np.uint64]


SHIFTS = 16
"""Other questions that each question is paired with, to see how often answers agree by chance."""


@dataclass(frozen=True)
class Digests:
    """64 bits of each answer of a result: `question` that it answers, `exact` over its text and option scores, `texts` over its letters and
    digits in lower case, `choices` over the options that were read out of it. `own`: whether its text has `PARAGRAPH` letters and more,
    and answers no other question of the result."""

    question: Hashes
    exact: Hashes
    texts: Hashes
    choices: Hashes
    own: npt.NDArray[np.bool_]


def digests_of(readings: pd.DataFrame) -> Digests:
    """The digests of answers (at least COLUMNS)."""
    said = readings["response"].fillna("").astype(object)
    scores = ["" if not isinstance(each, list) else repr(list(map(_float, each))) for each in readings["scores"]]
    plain = pd.Series([SIGNS.sub("", text.casefold()) for text in said], dtype=object)
    columns = (
        readings["question_id"].astype(str),
        said + "\0" + pd.Series(scores, index=readings.index, dtype=object),
        plain,
        readings["choice"].map(lambda choice: repr(sorted(map(int, choice)))),
    )
    question, exact, texts, choices = (pd.util.hash_array(column.to_numpy(dtype=object)) for column in columns)
    asked = pd.Series(question).groupby(texts).nunique()
    own = (plain.str.len() >= PARAGRAPH).to_numpy(bool) & (asked.reindex(texts).to_numpy() == 1)
    return Digests(question, exact, texts, choices, own)


def stored_digests(folder: Path) -> Digests:
    """The digests of a result in a store. Raises OSError, ValueError and others where its files are not there or none."""
    about = (folder / READINGS).stat()
    return _stored_digests(folder.resolve(), about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=64)
def _stored_digests(folder: Path, changed: int, size: int) -> Digests:
    return digests_of(read_readings(folder, ("response", "scores")))


def likeness(ours: Digests, theirs: Digests) -> str | None:
    """How alike two results' answers are, in words that end before the name of the other; None where they are not.

    Compared per question, over those that both answer: an answer is shared where one of our samples has it and one of theirs, so that
    repeating a copy, or mixing it with other samples, hides nothing.
    """
    asked = [np.unique(each.question) for each in (ours, theirs)]
    common = np.intersect1d(asked[0], asked[1], assume_unique=True)
    if 2 * len(common) < min(map(len, asked)) or not len(common):
        return None
    one, other = _pairs(ours.question, ours.exact, common), _pairs(theirs.question, theirs.exact, common)
    if len(common) == max(map(len, asked)) and np.array_equal(one, other):
        return "every response is identical to that of"
    if len(common) < ENOUGH:
        return None
    for what in ("texts", "choices"):
        same, kappa = agreement(ours.question, getattr(ours, what), theirs.question, getattr(theirs, what), common)
        if kappa >= ALIKE:
            word = "responses, but for case and punctuation," if what == "texts" else "chosen options"
            return f"to {same:,} of {len(common):,} questions the {word} are the same (Cohen's kappa {kappa:.3f}) as those of"
    texts = [set(_pairs(each.question[each.own], each.texts[each.own], common).tolist()) for each in (ours, theirs)]
    same = len(texts[0] & texts[1])
    if same >= COPIED and 3 * same >= min(map(len, texts)):
        return f"{same:,} of {min(map(len, texts)):,} answers of a paragraph are the same word for word as those of"
    return None


def agreement(
    question: Hashes, values: Hashes, other_question: Hashes, other_values: Hashes, common: Hashes
) -> tuple[int, float]:
    """To how many of the `common` questions (Q,) both give a value, and that agreement beyond chance: (observed - expected) / (1 -
    expected), where the expected share is that of one's values for a question and the other's for another one. With one answer a question
    this estimates Cohen's kappa; NaN where both hold one and the same value only."""
    at, theirs = _positions(question, common), _positions(other_question, common)
    codes = np.unique(np.concatenate([values, other_values]))
    one = np.unique(_coded(at, np.searchsorted(codes, values), len(codes)))
    other_at, other_code = theirs[theirs >= 0], np.searchsorted(codes, other_values)[theirs >= 0]

    def shared(shift: int) -> int:
        moved = np.unique(((other_at + shift) % len(common)) * len(codes) + other_code)
        return len(np.unique(np.intersect1d(one, moved, assume_unique=True) // len(codes)))

    shifts = np.unique(np.linspace(1, len(common) - 1, min(SHIFTS, len(common) - 1)).astype(int))
    same = shared(0)
    expected = float(np.mean([shared(int(shift)) for shift in shifts])) / len(common) if len(shifts) else 1.0
    return same, (same / len(common) - expected) / (1 - expected) if expected < 1 else float("nan")


def _positions(question: Hashes, common: Hashes) -> npt.NDArray[np.int64]:
    """Where each answer's question stands in `common`; -1 where it does not."""
    at = np.searchsorted(common, question).clip(max=len(common) - 1)
    return np.where(common[at] == question, at, -1)


def _coded(at: npt.NDArray[np.int64], code: npt.NDArray[np.int64], codes: int) -> npt.NDArray[np.int64]:
    return at[at >= 0] * codes + code[at >= 0]


def _pairs(question: Hashes, values: Hashes, common: Hashes) -> Hashes:
    """The distinct (question, value) pairs of the common questions, each as 64 bits."""
    kept = _positions(question, common) >= 0
    return np.unique(question[kept] * np.uint64(0x9E3779B97F4A7C15) ^ values[kept])


def _float(score: float | None) -> float:
    return float("nan") if score is None else float(score)
