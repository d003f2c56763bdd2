"""Compare the answers of two results, to detect near-copies.

Two runs of a model at temperature 0 are alike, too, so this is only reported, never a reason to refuse. See also: where it is
reported (`folder.py`).
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from eval_harness.derive.files import READINGS, read_readings
from eval_harness.records.result import UNDELIVERED

ALIKE = 0.95
"""Cohen's kappa (Cohen 1960, eq. 1) from which answers are flagged as alike: 0 is agreement by chance, given the words or options that
both models favour, 1 is a copy. A copy in which one answer in thirty was changed has about .96."""
CHANCE = 1e-4
"""Probability that two unrelated results reach it, for the best-agreeing of many pairs of samples."""
ENOUGH = 30
"""Minimum number of common answers for their likeness to be meaningful."""
BUCKETS = 509
"""Hash buckets in which the values of a sample are counted."""
SIGNS = re.compile(r"[\W_]+")

Numbers = npt.NDArray[Any]


Digests = pd.DataFrame
"""64 bits of each answer of a result: `question` that it answers, `exact` over its text and option scores, `texts` over its letters and
digits in lower case, `choices` over the options that were read out of it. `sample`: its number."""


def digests_of(readings: pd.DataFrame) -> Digests:
    """The digests of what a model answered (readings with `response` and `scores`): what never came is no answer that two may share."""
    readings = readings[~readings["status"].isin(UNDELIVERED)].reset_index(drop=True)
    said = readings["response"].fillna("").astype(object)
    scores = ["" if not isinstance(each, list) else repr(list(map(_float, each))) for each in readings["scores"]]
    plain = pd.Series([SIGNS.sub("", text.casefold()) for text in said], dtype=object)
    columns = {
        "question": readings["question_id"].astype(str),
        "exact": said + "\0" + pd.Series(scores, index=readings.index, dtype=object),
        "texts": plain,
        "choices": readings["choice"].map(lambda choice: repr(sorted(map(int, choice)))),
    }
    hashes = {name: pd.util.hash_array(column.to_numpy(dtype=object)) for name, column in columns.items()}
    return pd.DataFrame(hashes | {"sample": readings["sample"].to_numpy(np.int64)})


def stored_digests(folder: Path) -> Digests:
    """The digests of a result in a store. Raises OSError, ValueError and others where its files are not there or none."""
    about = (folder / READINGS).stat()
    return _stored_digests(folder.resolve(), about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=64)
def _stored_digests(folder: Path, changed: int, size: int) -> Digests:
    return digests_of(read_readings(folder, ("response", "scores")))


def likeness(ours: Digests, theirs: Digests) -> str | None:
    """Description of how alike two results' answers are, to be followed by the name of the other; None if they are not.

    Compared over the questions that both answer, each sample of one with each of the other: however often a copy is repeated, and whatever
    stands beside it, one of its samples is that of the original.
    """
    asked = [each["question"].nunique() for each in (ours, theirs)]
    common = np.intersect1d(ours["question"], theirs["question"])
    if not len(common) or 2 * len(common) < min(asked):
        return None
    own_words = ours["exact"].nunique() > 1  # a constant text, such as a refusal, is not specific to a model
    said = [set(zip(each["question"], each["exact"], strict=True)) for each in (ours, theirs)]
    if own_words and len(common) == max(asked) and said[0] == said[1]:
        return "every response is identical to that of"
    if len(common) < ENOUGH:
        return None
    for what, words in (("texts", "responses, but for case and punctuation,"), ("choices", "chosen options")):
        if found := _nearest_samples(ours, theirs, what, common):
            alike = f"the {words} are the same (Cohen's kappa {found[1]:.3f}) as those of"
            return f"to {found[0]:,} of {len(common):,} questions {alike}"
    return None


def _nearest_samples(ours: Digests, theirs: Digests, what: str, common: Numbers) -> tuple[int, float] | None:
    """In how many of the `common` questions the two samples that agree best give the same value, and Cohen's kappa; None where none are
    alike."""
    codes = pd.factorize(pd.concat([ours[what], theirs[what]]))[0]
    one, other = (
        each.assign(code=code)
        .pivot(index="sample", columns="question", values="code")
        .reindex(columns=common)
        .fillna(-1)
        .to_numpy(np.int64)
        for each, code in ((ours, codes[: len(ours)]), (theirs, codes[len(ours) :]))
    )
    values, other_values = _frequencies(one), _frequencies(other)
    best: tuple[int, float] | None = None
    for sample, frequencies in zip(one, values, strict=True):
        both = ((other >= 0) & (sample >= 0)).sum(axis=1)
        same = ((other == sample) & (sample >= 0)).sum(axis=1)
        kappa = _kappa(same, both, other_values @ frequencies, len(one) * len(other))
        at = int(np.where((both >= ENOUGH) & (2 * both >= len(common)), kappa, 0).argmax())
        if kappa[at] >= max(ALIKE, best[1] if best else 0):
            best = int(same[at]), float(kappa[at])
    return best


def _frequencies(table: npt.NDArray[np.int64]) -> Numbers:
    """(samples, BUCKETS): how often a sample has each value, of its answers; many values share a bucket."""
    counts = np.zeros((len(table), BUCKETS))
    rows, columns = np.nonzero(table >= 0)
    np.add.at(counts, (rows, table[rows, columns] % BUCKETS), 1)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def _kappa(same: Numbers, of: Numbers, expected: Numbers, tries: int) -> Numbers:
    """Agreement beyond chance, (observed - expected) / (1 - expected); 0 where chance explains it: where one of so many `tries` reaches it
    with a probability over `CHANCE` (the normal distribution's tail is under exp(-z^2 / 2))."""
    observed = same / np.maximum(of, 1)
    expected = np.clip(expected, 1 / np.maximum(of, 2), 1)
    beyond = np.maximum(observed - expected, 0)
    by_chance = beyond**2 * of < 2 * math.log(tries / CHANCE) * expected * (1 - expected)
    return np.where(by_chance | (expected >= 1), 0, beyond / np.maximum(1 - expected, 1e-9))


def _float(score: float | None) -> float:
    return float("nan") if score is None else float(score)
