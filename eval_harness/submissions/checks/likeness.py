"""How alike the answers of two results are: whether one may be the other with little changed.

Two runs of a model at temperature 0 are alike, too, so this is told and refuses nobody. See also: who is told (`folder_store.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq

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
COLUMNS = ["question_id", "sample", "response", "choice", "scores"]

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Digests:
    """64 bits of each answer of a result, in the order of `keys` (question and sample): `exact` over its text and option scores, `texts`
    over its letters and digits in lower case, `choices` over the options that were read out of it. `own`: whether its text has
    `PARAGRAPH` letters and more, and stands in no other answer of the result."""

    keys: Hashes
    exact: Hashes
    texts: Hashes
    choices: Hashes
    own: npt.NDArray[np.bool_]


def digests_of(answers: pd.DataFrame) -> Digests:
    """The digests of answers (at least COLUMNS)."""
    said = answers["response"].fillna("").astype(object)
    scores = [
        "" if not isinstance(each, (list, tuple, np.ndarray)) else repr(list(map(_float, each)))
        for each in answers["scores"]
    ]
    plain = [SIGNS.sub("", text.casefold()) for text in said]
    columns = (
        answers["question_id"].astype(str) + "\0" + answers["sample"].astype(int).astype(str),
        said + "\0" + pd.Series(scores, index=answers.index, dtype=object),
        pd.Series(plain, index=answers.index, dtype=object),
        answers["choice"].map(lambda choice: repr(sorted(map(int, choice)))),
    )
    keys, exact, plain_texts, choices = (pd.util.hash_array(column.to_numpy(dtype=object)) for column in columns)
    order = np.argsort(keys)
    texts = pd.Series(plain, dtype=object)
    own = (~texts.duplicated(keep=False) & (texts.str.len() >= PARAGRAPH)).to_numpy(bool)
    return Digests(keys[order], exact[order], plain_texts[order], choices[order], own[order])


def stored_digests(path: Path) -> Digests:
    """The digests of an answers.parquet that landed. Raises OSError, ValueError and others where it is none."""
    about = path.stat()
    return _stored_digests(path.resolve(), about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=64)
def _stored_digests(path: Path, changed: int, size: int) -> Digests:
    return digests_of(pq.read_table(path, columns=COLUMNS).to_pandas())


def likeness(ours: Digests, theirs: Digests) -> str | None:
    """How alike two results' answers are, in words that end before the name of the other; None where they are not."""
    if np.array_equal(ours.keys, theirs.keys) and np.array_equal(ours.exact, theirs.exact):
        return "every response is identical to that of"
    _, here, there = np.intersect1d(ours.keys, theirs.keys, assume_unique=True, return_indices=True)
    if len(here) < max(ENOUGH, len(ours.keys) / 2):
        return None
    for what in ("texts", "choices"):
        one, other = getattr(ours, what)[here], getattr(theirs, what)[there]
        same, kappa = int((one == other).sum()), cohens_kappa(one, other)
        if kappa >= ALIKE:
            word = "responses, but for case and punctuation," if what == "texts" else "chosen options"
            return f"{same:,} of {len(here):,} {word} are the same (Cohen's kappa {kappa:.3f}) as those of"
    both = ours.own[here] & theirs.own[there]
    same = int((both & (ours.texts[here] == theirs.texts[there])).sum())
    if same >= COPIED and 3 * same >= both.sum():
        return f"{same:,} of {int(both.sum()):,} answers of a paragraph are the same word for word as those of"
    return None


def cohens_kappa(one: Hashes, other: Hashes) -> float:
    """The agreement of two columns beyond what their frequencies give by chance; NaN where both hold one and the same value only."""
    values, codes = np.unique(np.concatenate([one, other]), return_inverse=True)
    first, second = (np.bincount(part, minlength=len(values)) / len(one) for part in np.split(codes, 2))
    expected = float(first @ second)
    return (float((one == other).mean()) - expected) / (1 - expected) if expected < 1 else float("nan")


def _float(score: float | None) -> float:
    return float("nan") if score is None else float(score)
