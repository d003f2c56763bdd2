"""Compare the answers of two results, to detect near-copies.

Two honest models agree, too: both know some answers, and both favour the same wrong ones. So agreement is
measured beyond what two models of these accuracies share anyway, with the uncertainty that the number of
questions leaves. It is only reported, never a reason to refuse. See also: where it is reported
(`folder_store.py`), and what a result's errors say beside those of others (`checks.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq

from eval_harness.derive.answer_table import table_to_frame
from eval_harness.derive.run_files import READINGS_FILE, read_readings
from eval_harness.records.result import UNDELIVERED

SIMILAR_AGREEMENT = 0.75
"""Agreement beyond chance, at the lower end of its interval, from which answers are flagged as alike: 1 is a copy, 0 what two unrelated
models of these accuracies share. Of five real models on 4,550 questions a model and its fine-tune reach .39, a copy of which 10 % (20 %)
was changed .89 (.79)."""
IDENTICAL_TEXT_AGREEMENT = 0.5
"""The same where every response is the same: below, so few questions have errors that two good models may well make the same ones."""
Z_ONE_SIDED_95 = 1.645
"""Standard normal quantile of one-sided 95 % bounds."""
TEXT_COMPARISON_SHARE = 0.8
"""Share of equal choices from which the texts are compared as well."""
LONG_RESPONSE_CHARS = 150
"""Characters (letters and digits) from which a response is a text of its own and no option's: two models never write the same one."""
MIN_SHARED_LONG_SHARE, MIN_SHARED_LONG_TEXTS = 0.1, 5
"""Share and minimum number of different long responses that two results must have in common to be flagged."""
HASH_BUCKETS = 509
"""Hash buckets in which the values of a sample are counted."""
NON_ALPHANUMERIC = re.compile(r"[\W_]+")

Numbers = npt.NDArray[Any]
Table = npt.NDArray[np.int64]


Digests = pd.DataFrame
"""64 bits of each answer of a result: `question` that it answers, `choices` over the options that were read out of it; where the texts were
read, `texts` over its letters and digits in lower case and its option scores, and whether that is `long`; where the questions are at hand,
`key` over the right options (0 where unknown) and their number of `options`. `sample`: its number."""


def compute_digests(readings: pd.DataFrame, questions: pd.DataFrame | None = None) -> Digests:
    """The digests of what a model answered; what never came is no answer that two may share.

    Args:
        readings: with `response` and `scores`, or without both.
        questions: those asked, by whose key the result can be compared with others.
    """
    readings = readings[~readings["status"].isin(UNDELIVERED)].reset_index(drop=True)
    columns: dict[str, Any] = {
        "question": _hash_values(readings["question_id"].astype(str)),
        "choices": _hash_choices(readings["choice"]),
    }
    if "response" in readings:
        plain = (
            readings["response"].fillna("").astype(object).map(lambda text: NON_ALPHANUMERIC.sub("", text.casefold()))
        )
        scores = readings["scores"].map(
            lambda row: repr(list(map(_score_or_nan, row))) if isinstance(row, list) else ""
        )
        columns |= {
            "texts": _hash_values(plain + "\0" + scores),
            "long": (plain + scores).str.len() >= LONG_RESPONSE_CHARS,
        }
    digests = pd.DataFrame(columns | {"sample": readings["sample"].to_numpy(np.int64)})
    if questions is None:
        return digests
    known = questions["answer"].map(len).to_numpy() > 0
    key = {
        "question": _hash_values(questions["question_id"].astype(str)),
        "key": np.where(known, _hash_choices(questions["answer"]), 0),
        "options": questions["options"].map(len).to_numpy(),
    }
    return digests.merge(pd.DataFrame(key), on="question")


def load_choice_digests(folder: Path) -> Digests:
    """The digests of a stored result without its texts. Raises OSError, ValueError and others where its file is not there or none."""
    about = (folder / READINGS_FILE).stat()
    return _load_choice_digests(folder.resolve(), about.st_mtime_ns, about.st_size)


def load_text_digests(folder: Path) -> Digests:
    """The digests of a stored result with its texts. Raises as `stored_choices` does."""
    return compute_digests(read_readings(folder, ("response", "scores")))


@lru_cache(maxsize=256)
def _load_choice_digests(folder: Path, changed: int, size: int) -> Digests:
    return compute_digests(table_to_frame(pq.read_table(folder / READINGS_FILE)))


def correct_shares(digests: Digests, ours: Digests) -> pd.Series:
    """Question -> the share of right answers by the key of `ours`; without refusals, and questions whose key is unknown."""
    key = ours.loc[ours["key"] != 0, ["question", "key"]].drop_duplicates()
    answers = digests.loc[digests["choices"] != NO_CHOICE, ["question", "choices"]].merge(key, on="question")
    return (answers["choices"] == answers["key"]).groupby(answers["question"]).mean()


def describe_similarity(
    ours: Digests, theirs: Digests, with_texts: Callable[[], Digests] | None = None, withdrawn: bool = False
) -> str | None:
    """Description of how alike two results' answers are, to be followed by the name of the other; None if they are not.

    Compared over the questions that both answer, each sample of one with each of the other: however often a copy is repeated, and whatever
    stands beside it, one of its samples is that of the original.

    Args:
        ours: digests with texts and key.
        theirs: digests, without texts where `with_texts` gives them; it is called only where the choices come near.
        withdrawn: the other was withdrawn: the same responses are told, however few.
    """
    asked = [digests["question"].nunique() for digests in (ours, theirs)]
    common = np.intersect1d(ours["question"], theirs["question"])
    if not len(common) or 2 * len(common) < min(asked):
        return None
    same, beyond = _most_similar_samples(ours, theirs, common)
    if same >= TEXT_COMPARISON_SHARE * len(common):
        theirs = with_texts() if with_texts is not None else theirs
        texts = [digests[["question", "texts", "long"]].drop_duplicates() for digests in (ours, theirs)]
        shared = texts[0].merge(texts[1])
        whole = len(common) == max(asked) and len(shared) == len(texts[0]) == len(texts[1])
        # A constant text, such as a refusal, is not specific to a model.
        if whole and ours["texts"].nunique() > 1 and (withdrawn or beyond >= IDENTICAL_TEXT_AGREEMENT):
            return "every response, but for case and punctuation, is identical to that of"
        long = shared[shared["long"]]
        if long["texts"].nunique() >= max(MIN_SHARED_LONG_TEXTS, MIN_SHARED_LONG_SHARE * len(common)):
            return f"{len(long):,} long responses, but for case and punctuation, are the same as those of"
    if beyond < SIMILAR_AGREEMENT:
        return None
    return (
        f"to {same:,} of {len(common):,} questions the chosen options are the same (at least {100 * beyond:.0f} % of the agreement that "
        "is possible beyond two models of these accuracies) as those of"
    )


def _most_similar_samples(ours: Digests, theirs: Digests, common: Numbers) -> tuple[int, float]:
    """In how many of the `common` questions the two samples that agree best choose the same, and the agreement beyond chance."""
    asked = ours.drop_duplicates("question").set_index("question").loc[common]
    wrong = (1 / np.maximum(asked["options"] - 1, 1)).mean()
    codes = pd.factorize(pd.concat([ours["choices"], theirs["choices"], asked["key"]]))[0]
    right = codes[len(ours) + len(theirs) :]
    one, other = (
        digests.assign(code=code)
        .pivot(index="sample", columns="question", values="code")
        .reindex(columns=common)
        .fillna(-1)
        .to_numpy(np.int64)
        for digests, code in ((ours, codes[: len(ours)]), (theirs, codes[len(ours) : len(ours) + len(theirs)]))
    )
    shares = _choice_frequencies(other)
    best = (0, -math.inf)
    for sample, frequencies in zip(one, _choice_frequencies(one), strict=True):
        answered = (other >= 0) & (sample >= 0)
        both = answered.sum(axis=1)
        same = ((other == sample) & answered).sum(axis=1)
        ours_right, theirs_right = (
            (answered & (choices == right)).sum(axis=1) / np.maximum(both, 1) for choices in (sample, other)
        )
        # What unrelated models share: the right answers, wrong ones by chance; or the options that both favour.
        by_key = ours_right * theirs_right + (1 - ours_right) * (1 - theirs_right) * wrong
        beyond = _excess_agreement(same, both, np.maximum(by_key, shares @ frequencies))
        at = int(np.where(2 * both >= len(common), beyond, -1).argmax())
        if 2 * both[at] >= len(common) and beyond[at] > best[1]:
            best = int(same[at]), float(beyond[at])
    return best


def _choice_frequencies(table: Table) -> Numbers:
    """(samples, BUCKETS): how often a sample has each value, of its answers; many values share a bucket."""
    counts = np.zeros((len(table), HASH_BUCKETS))
    rows, columns = np.nonzero(table >= 0)
    np.add.at(counts, (rows, table[rows, columns] % HASH_BUCKETS), 1)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def _excess_agreement(same: Numbers, of: Numbers, expected: Numbers) -> Numbers:
    """Agreement beyond what is expected, (observed - expected) / (1 - expected), at the lower bound of what was observed."""
    beyond = (wilson_lower_bound(same, np.maximum(of, 1)) - expected) / np.maximum(1 - expected, 1e-9)
    return np.where(expected < 1, beyond, -1)


def wilson_lower_bound(count: Any, of: Any) -> Any:
    """Lower bound (one-sided 95 %) of a share, of numbers or arrays (Wilson 1927)."""
    half = Z_ONE_SIDED_95 * np.sqrt(count * (of - count) / of + Z_ONE_SIDED_95**2 / 4)
    return (count + Z_ONE_SIDED_95**2 / 2 - half) / (of + Z_ONE_SIDED_95**2)


def _hash_values(values: pd.Series) -> Numbers:
    return pd.util.hash_array(values.to_numpy(dtype=object))


def _hash_choices(choices: pd.Series) -> Numbers:
    return _hash_values(choices.map(lambda choice: repr(sorted(map(int, choice)))))


NO_CHOICE = _hash_choices(pd.Series([()]))[0]
"""What `choices` holds of an answer that chose no option, such as a refusal."""


def _score_or_nan(score: float | None) -> float:
    return math.nan if score is None else float(score)
