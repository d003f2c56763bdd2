"""Compare a submission with the other results of its store, above all to detect near-copies.

Honest models agree, too: they know some of the same answers, and favour the same wrong ones. What
counts is therefore the agreement beyond that of two unrelated models of these accuracies, at the
lower end of its interval. A near-copy is only reported, never refused.

See also: lookalike names, and errors unlike those of other results (`checks.py`).
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq

from dataset_builders.errors import BadInput
from dataset_builders.hub.client import is_unavailable
from eval_harness.derive.run_files import ANSWERS_FILE, READINGS_FILE, read_readings, table_to_frame
from eval_harness.records.result import UNDELIVERED
from eval_harness.store.checks import (
    PublishedNames,
    similar_name_flags,
    skeleton,
    unusual_score_flags,
    wilson_lower_bound,
)
from eval_harness.store.contents import StoredResult, Submission, read_acceptance

SIMILAR_AGREEMENT = 0.75
"""From this agreement beyond chance (lower end of its interval), answers are flagged.

It is 1 for a copy, and 0 for two unrelated models of these accuracies. Of five real models on 4,550
questions, a model and its fine-tune reach .39. A copy of which 10 % (20 %) of the answers are
changed reaches .89 (.79).
"""
IDENTICAL_TEXT_AGREEMENT = 0.5
"""The threshold that is used instead if every response is identical.

Below it, there are so few errors that two good models may well make the same ones.
"""
TEXT_COMPARISON_SHARE = 0.8
"""If at least this share of the choices is equal, the texts are compared as well."""
LONG_RESPONSE_CHARS = 150
"""From this number of letters and digits, a response is long, and not just the text of an option.

Two models do not write the same response of this length.
"""
MIN_SHARED_LONG_SHARE, MIN_SHARED_LONG_TEXTS = 0.1, 5
"""Two results are flagged if they share this many distinct long responses.

The first number is a share of their common questions, the second a minimum.
"""
HASH_BUCKETS = 509
"""Number of hash buckets in which the choices of a sample are counted."""
NON_ALPHANUMERIC = re.compile(r"[\W_]+")

Numbers = npt.NDArray[Any]
Table = npt.NDArray[np.int64]

Digests = pd.DataFrame
"""A table with one row per answer of a result, most of whose columns are 64-bit digests.

`question`: digest of the question's id. `choices`: digest of the options that were read from the
answer. `sample`: number of the sample. If the texts were read: `texts`, digest of the letters and
digits in lower case and of the option scores, and `long`, whether the text is long. If the
questions are known: `key`, digest of the right options or 0 if they are unknown, and `options`, the
number of options.
"""


def duplicate_flags(
    store: Path,
    submission: Submission,
    account: str | None = None,
    fetch: Callable[[Path], object] = lambda file: None,
    pending: Mapping[str, tuple[str, Digests]] | None = None,
    published: PublishedNames | None = None,
) -> list[str]:
    """Flag what is suspicious about a submission in comparison with the stored results.

    Flagged are answers that equal or nearly equal those of another result, errors or a score unlike
    all others, and a confusingly similar name. An account's own results may agree with each other
    if they are reruns, checkpoints, or a run and its arms. A withdrawn result must not be submitted
    again.

    Args:
        store: Folder of the store.
        submission: The examined submission.
        account: The submitter, if known.
        fetch: Downloads a file of a result, if the store is not a local folder. Texts are fetched
            only for results with similar choices.
        pending: Name -> (account, digests) of older submissions that are still open.
        published: Model names in papers.

    Returns:
        One line per flag.
    """
    result, digests, flags = submission.result, submission.digests, []
    # All runs of a baseline have the same answers, so only models are compared.
    is_model = result.model.responder == "model"
    name_skeleton, names, own_skeletons = skeleton(result.model.name), set(), set()
    peers: dict[str, pd.Series] = {}

    for path in sorted(store.glob(f"results/{result.benchmark.name}/*/*/result.json")):
        name = path.parent.relative_to(store).as_posix()
        if name == submission.folder:
            continue
        try:
            stored = StoredResult.read(path)
            other_result, withdrawn = stored.result, stored.withdrawal is not None
            acceptance = read_acceptance(path.parent)
            same_account = acceptance is not None and account == acceptance.account
            other_skeleton = skeleton(other_result.model.name)
            # Names are collected even from results whose answers are not compared below.
            own_skeletons.update([other_skeleton] if same_account else [])
            names.update([] if same_account else [other_result.model.name])
            if (
                other_skeleton == name_skeleton
                and "reproduced" in (other_result.provenance, result.provenance)
                and not withdrawn
            ):
                continue  # the same model run again: identical answers are expected
            # An unverified result has only untrusted files: never read them outside the sandbox.
            if (
                not is_model
                or other_result.kind != "measured"
                or other_result.model.responder != "model"
                or acceptance is None
            ):
                continue
            if (
                same_account
                and not withdrawn
                and (other_skeleton == name_skeleton or other_result.method.image != result.method.image)
            ):
                continue
            fetch(path.parent / READINGS_FILE)
            other_digests = load_choice_digests(path.parent)
            similarity_text = describe_similarity(
                digests, other_digests, partial(_fetch_text_digests, path.parent, fetch), withdrawn
            )
            # Checkpoints of one account may agree in most choices, but not in the text of every
            # response.
            if similarity_text and (not same_account or withdrawn or "every response" in similarity_text):
                flags.append(f"{similarity_text} {name}{', which was withdrawn' if withdrawn else ''}")
            if not same_account and not withdrawn and other_result.method.image == "real":
                peers[name] = correct_shares(other_digests, digests)
        except (BadInput, KeyError, OSError, ValueError, TypeError) as error:
            if is_unavailable(error):
                raise
            continue  # the board skips unreadable results as well

    for name, (author, pending_digests) in (pending or {}).items():
        if is_model and author != account and (similarity_text := describe_similarity(digests, pending_digests)):
            flags.append(f"{similarity_text} {name} of {author}, which was opened earlier")

    if is_model and result.method.image == "real":
        flags += _peer_flags(submission, peers)
    if name_skeleton not in own_skeletons:  # an account may respell a name that it already uses
        flags += similar_name_flags(result.model.name, sorted(names), published, result.model.kind)

    return [line for line in flags if line not in submission.flags]


def _peer_flags(submission: Submission, peers: Mapping[str, pd.Series]) -> Iterator[str]:
    """Flag a submission whose score or errors are unlike those of its peers.

    Peers are other accounts' results on most of the same questions.
    """
    digests, result = submission.digests, submission.result
    right = correct_shares(digests, digests)
    if right.empty:  # nothing was delivered, or no key is known
        return iter(())
    table = pd.DataFrame({name: shares.reindex(right.index) for name, shares in peers.items()}, index=right.index)
    # Results on few of these questions say little about them.
    table = table.loc[:, table.notna().mean() > 0.5]
    expected_answers = result.benchmark.questions * (result.method.samples or 1)
    correct = int((digests["choices"] == digests["key"]).sum())
    return unusual_score_flags(right, correct, expected_answers, table, float((1 / digests["options"]).mean()))


def _fetch_text_digests(folder: Path, fetch: Callable[[Path], object]) -> Digests:
    """Download the answers of a result, and return their digests with texts."""
    fetch(folder / ANSWERS_FILE)
    return compute_digests(read_readings(folder, ("response", "scores")))


def compute_digests(readings: pd.DataFrame, questions: pd.DataFrame | None = None) -> Digests:
    """Compute the digests of a model's answers; undelivered answers are left out.

    Args:
        readings: Readings, with both or neither of the columns `response` and `scores`.
        questions: The questions with their key, which are needed to compare this result with
            others.
    """
    # Left out, since equal failures are not equal answers.
    readings = readings[~readings["status"].isin(UNDELIVERED)].reset_index(drop=True)
    columns: dict[str, Any] = {
        "question": _hash_values(readings["question_id"].astype(str)),
        "choices": _hash_choices(readings["choice"]),
    }
    if "response" in readings:
        normalized = (
            readings["response"].fillna("").astype(object).map(lambda text: NON_ALPHANUMERIC.sub("", text.casefold()))
        )
        scores = readings["scores"].map(
            lambda row: (
                repr([math.nan if score is None else float(score) for score in row]) if isinstance(row, list) else ""
            )
        )
        columns |= {
            "texts": _hash_values(normalized + "\0" + scores),
            "long": (normalized + scores).str.len() >= LONG_RESPONSE_CHARS,
        }

    digests = pd.DataFrame(columns | {"sample": readings["sample"].to_numpy(np.int64)})
    if questions is None:
        return digests
    has_key = questions["answer"].map(len).to_numpy() > 0
    key = {
        "question": _hash_values(questions["question_id"].astype(str)),
        "key": np.where(has_key, _hash_choices(questions["answer"]), 0),
        "options": questions["options"].map(len).to_numpy(),
    }

    return digests.merge(pd.DataFrame(key), on="question")


def load_choice_digests(folder: Path) -> Digests:
    """Load the digests of a stored result without its texts; cached while its file is unchanged.

    Raises OSError, ValueError and others if the file is missing or invalid.
    """
    # The file's time and size are part of the cache key, so that a changed file is read again.
    about = (folder / READINGS_FILE).stat()
    return _load_choice_digests(folder.resolve(), about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=256)
def _load_choice_digests(folder: Path, changed: int, size: int) -> Digests:
    return compute_digests(table_to_frame(pq.read_table(folder / READINGS_FILE)))


def correct_shares(digests: Digests, reference: Digests) -> pd.Series:
    """Return the share of right answers to each question, by the key in `reference`.

    Answers without a choice, and questions without a known key, are left out.
    """
    key = reference.loc[reference["key"] != 0, ["question", "key"]].drop_duplicates()
    answers = digests.loc[digests["choices"] != NO_CHOICE, ["question", "choices"]].merge(key, on="question")
    return (answers["choices"] == answers["key"]).groupby(answers["question"]).mean()


def describe_similarity(
    digests: Digests,
    other_digests: Digests,
    with_texts: Callable[[], Digests] | None = None,
    withdrawn: bool = False,
) -> str | None:
    """Describe how alike the answers of two results are.

    Every sample of one result is compared with every sample of the other, on the questions that
    both answer. A copy is thus found even if it is one of several samples.

    Args:
        digests: Digests with texts and key.
        other_digests: Digests of the other result; without texts if `with_texts` is given.
        with_texts: Loads the other digests with texts; called only if the choices are similar.
        withdrawn: True if the other result was withdrawn. Identical responses are then flagged even
            if there are few errors.

    Returns:
        A phrase that is to be followed by the other result's name; None if they are not alike.
    """
    question_counts = [table["question"].nunique() for table in (digests, other_digests)]
    common = np.intersect1d(digests["question"], other_digests["question"])
    # The two have too few questions in common.
    if not len(common) or 2 * len(common) < min(question_counts):
        return None
    matching_choices, excess = _most_similar_samples(digests, other_digests, common)
    if matching_choices >= TEXT_COMPARISON_SHARE * len(common):
        other_digests = with_texts() if with_texts is not None else other_digests
        texts = [table[["question", "texts", "long"]].drop_duplicates() for table in (digests, other_digests)]
        shared_texts = texts[0].merge(texts[1])
        all_identical = len(common) == max(question_counts) and len(shared_texts) == len(texts[0]) == len(texts[1])
        # A constant text, such as a refusal, is not specific to a model.
        if all_identical and digests["texts"].nunique() > 1 and (withdrawn or excess >= IDENTICAL_TEXT_AGREEMENT):
            return "every response, apart from case and punctuation, is identical to that of"
        long = shared_texts[shared_texts["long"]]
        if long["texts"].nunique() >= max(MIN_SHARED_LONG_TEXTS, MIN_SHARED_LONG_SHARE * len(common)):
            return f"{len(long):,} long responses, apart from case and punctuation, are the same as those of"

    if excess < SIMILAR_AGREEMENT:
        return None

    return (
        f"for {matching_choices:,} of {len(common):,} questions (at least {100 * excess:.0f} % of "
        "the possible agreement beyond that of unrelated models with these accuracies) the chosen "
        "options are the same as those of"
    )


def _most_similar_samples(digests: Digests, other_digests: Digests, common: Numbers) -> tuple[int, float]:
    """Find the two samples that agree most.

    Args:
        digests: Digests with the key.
        other_digests: Digests of the other result.
        common: Hashes of the questions that both answer.

    Returns:
        The number of common questions with the same choice, and the agreement beyond chance.
    """
    questions = digests.drop_duplicates("question").set_index("question").loc[common]
    chance_among_wrong = (1 / np.maximum(questions["options"] - 1, 1)).mean()
    # Common integer codes for choices and key, so that arrays can be compared.
    codes = pd.factorize(pd.concat([digests["choices"], other_digests["choices"], questions["key"]]))[0]
    right = codes[len(digests) + len(other_digests) :]
    samples, other_samples = (
        table.assign(code=code)
        # One row per sample, one column per common question.
        .pivot(index="sample", columns="question", values="code")
        # -1 marks a question that the sample does not answer.
        .reindex(columns=common)
        .fillna(-1)
        .to_numpy(np.int64)
        for table, code in (
            (digests, codes[: len(digests)]),
            (other_digests, codes[len(digests) : len(digests) + len(other_digests)]),
        )
    )

    shares = _choice_frequencies(other_samples)
    best = (0, -math.inf)

    for sample, frequencies in zip(samples, _choice_frequencies(samples), strict=True):
        answered = (other_samples >= 0) & (sample >= 0)
        answered_by_both = answered.sum(axis=1)
        same_choices = ((other_samples == sample) & answered).sum(axis=1)
        accuracy, other_accuracy = (
            (answered & (choices == right)).sum(axis=1) / np.maximum(answered_by_both, 1)
            for choices in (sample, other_samples)
        )
        # Unrelated models agree because both are right, because both choose the same wrong option
        # by chance, or because both favour the same options.
        by_key = accuracy * other_accuracy + (1 - accuracy) * (1 - other_accuracy) * chance_among_wrong
        excess = _excess_agreement(same_choices, answered_by_both, np.maximum(by_key, shares @ frequencies))
        best_match = int(np.where(2 * answered_by_both >= len(common), excess, -1).argmax())
        if 2 * answered_by_both[best_match] >= len(common) and excess[best_match] > best[1]:
            best = int(same_choices[best_match]), float(excess[best_match])

    return best


def _choice_frequencies(table: Table) -> Numbers:
    """Return how often each sample makes each choice, as shares of its answers.

    The shape is (samples, HASH_BUCKETS); several choices may share a bucket.
    """
    # Buckets limit the memory; collisions can only raise the expected agreement.
    counts = np.zeros((len(table), HASH_BUCKETS))
    rows, columns = np.nonzero(table >= 0)
    np.add.at(counts, (rows, table[rows, columns] % HASH_BUCKETS), 1)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def _excess_agreement(agreements: Numbers, total: Numbers, expected: Numbers) -> Numbers:
    """Return the agreement beyond expectation, (observed - expected) / (1 - expected).

    The observed agreement is the lower bound of its share.
    """
    excess = (wilson_lower_bound(agreements, np.maximum(total, 1)) - expected) / np.maximum(1 - expected, 1e-9)
    return np.where(expected < 1, excess, -1)


def _hash_values(values: pd.Series) -> Numbers:
    """Hash each value to 64 bits."""
    return pd.util.hash_array(values.to_numpy(dtype=object))


def _hash_choices(choices: pd.Series) -> Numbers:
    """Hash each choice to 64 bits, whatever the order of its options."""
    return _hash_values(choices.map(lambda choice: repr(sorted(map(int, choice)))))


NO_CHOICE = _hash_choices(pd.Series([()]))[0]
"""Value of `choices` for an answer that chose no option, such as a refusal."""
