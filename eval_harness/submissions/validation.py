"""Whether a submission is what it says: its names, its answers, and its scores against those that we compute from its answers.

Problems refuse a submission; flags are for a human to look at. Not here: reading files (`foreign_files.py`, `predictions.py`), stores.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from dataset_builders.problems import clip
from eval_harness.answers import READER_VERSION
from eval_harness.results import DELIVERIES, STATUSES, Result, Scores
from eval_harness.submissions.plausibility import doubts
from eval_harness.submissions.predictions import MAX_SAMPLES, is_duration, whole, wrong_response

TOLERANCE = 5e-5
"""How far a claimed number may be from the recomputed one: half of the fourth decimal, in percent."""
JUDGED = (
    "its answers were read by a judge model, which nobody can ask again here: read them by rules with "
    "`medprobe score RUN_DIR --no-judge`, then submit that"
)
AGAIN = "-reproduced"
"""What the run id of a reproduced result ends with, and no other."""
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
MODEL_NAME = re.compile(r"\w[\w .,:/+()\[\]@#&~-]{0,99}")
"""A display name starts with a letter or a digit, so that no spreadsheet takes it for a formula, and holds no markup, quote or control."""
ENOUGH = 30
"""Questions from which on a pattern in the answers says something."""


def wrong_names(result: Result, run_id: str) -> list[str]:
    """What is wrong with the names that become folders, and the one that people read."""
    wrong = []
    if not MODEL_NAME.fullmatch(result.model.name):
        wrong.append(
            f"model name {clip(result.model.name)}: must start with a letter or digit, have at most 100 characters, and none of "
            "< > ; quotes, backslashes, or control characters"
        )
    for what, name in (("run id", run_id), ("benchmark name", result.benchmark.name)):
        if not FOLDER_NAME.fullmatch(name):
            wrong.append(
                f"{what} {clip(name)}: must be letters, digits, dots and dashes, and start with a letter or digit"
            )
    if run_id.endswith(AGAIN) and result.provenance != "reproduced":
        wrong.append(f"run id {clip(run_id, 200)}: this ending is kept for what the store's owner runs again")
    return wrong


def wrong_standing(result: Result, reproduced: bool = False) -> list[str]:
    """What may not be said of a result: who verified it (an owner may: `reproduced`), that a baseline or a part is the whole."""
    wrong = []
    if result.kind != "measured":
        wrong.append(f"kind {result.kind!r}: only measured results with their answers can be submitted")
    if result.provenance != "submitted" and not (reproduced and result.provenance == "reproduced"):
        wrong.append(
            f"provenance {result.provenance!r}: only who runs a model again may say so; a submission is 'submitted'"
        )
    if "baseline:" in (result.command or "") and result.model.kind != "baseline":
        wrong.append(
            f"model kind {result.model.kind!r}: the command ran a baseline, which can only land marked as 'baseline'"
        )
    told = " ".join(result.deviations).lower()
    if ("text-only" in told or "image was withheld" in told) and result.model.kind != "baseline":
        wrong.append(f"model kind {result.model.kind!r}: a run without images can only land marked as 'baseline'")
    samples = result.method.samples
    if samples is not None and not 1 <= samples <= MAX_SAMPLES:
        wrong.append(f"method.samples {samples}: must be from 1 to {MAX_SAMPLES}")
    if result.reader_version not in (None, READER_VERSION):
        wrong.append(
            f"reader_version {result.reader_version}: answers are read by reader {READER_VERSION} here; score the run again with this "
            "version of medprobe"
        )
    if result.method.extraction not in ("ours", "official"):
        wrong.append(f"method.extraction {clip(result.method.extraction)}: must be ours or official")
    return wrong


def checked_answers(
    rows: Iterable[tuple[str, dict[str, Any]]], questions: pd.DataFrame, samples: int, method: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """The journal records behind rows of answers (place, row), and what is wrong with them.

    Refused are unknown questions, an answer given twice, wrong types, and numbers that are none. Only `failed` and `refused` are taken
    from a row's status; whether a response was an answer is read again.
    """
    options = dict(zip(questions["question_id"].astype(str), questions["options"].map(len), strict=True))
    records: list[dict[str, Any]] = []
    wrong: list[str] = []
    seen: set[tuple[str, int]] = set()
    for place, row in rows:
        name, sample = row.get("question_id"), whole(row.get("sample"))
        what = wrong_response(row.get("response"))
        if not isinstance(name, str) or name not in options:
            what = f"question {clip(name)} is not in this split of the dataset"
        elif sample is None or not 0 <= sample < samples:
            what = f"sample {clip(row.get('sample'))} of question {clip(name)} is not one of {samples}"
        elif (name, sample) in seen:
            what = f"question {clip(name)}, sample {sample}, is answered twice"
        elif row.get("status") not in STATUSES:
            what = f"status {clip(row.get('status'))} is none of {', '.join(STATUSES)}"
        elif "delivery" in row and row["delivery"] not in DELIVERIES.values():
            what = f"delivery {clip(row['delivery'])} is none of {', '.join(DELIVERIES.values())}"
        elif not is_duration(row.get("seconds")):
            what = f"seconds {clip(row.get('seconds'))} is no number from 0"
        else:
            what = what or _wrong_scores(row.get("scores"), options[name], method)
        if what:
            wrong.append(f"{place}: {what}")
            continue
        assert isinstance(name, str) and sample is not None
        seen.add((name, sample))
        kept = {key: row.get(key) for key in ("seconds", "scores", "reasoning", "finish_reason", "usage")}
        if row.get("tokens_out") is not None:
            kept["usage"] = [row.get("tokens_in"), row["tokens_out"]]
        status = _journal_status(row)
        records.append(
            {"question_id": name, "sample": sample, "response": row.get("response"), "status": status, **kept}
        )
    return records, wrong


def _journal_status(row: dict[str, Any]) -> str:
    """What the server did, in the journal's words; files without the column `delivery` tell it by status and rule."""
    if "delivery" in row:
        return next((status for status, delivery in DELIVERIES.items() if delivery == row["delivery"]), "failed")
    if row.get("rule") in ("refusal", "error text"):
        return "answered"
    return str(row["status"]) if row["status"] in ("failed", "refused") else "answered"


def _wrong_scores(scores: Any, options: int, method: str) -> str | None:
    if scores is None:
        return None
    if method not in ("gd", "ps"):
        return f"holds option scores, which the method {clip(method)} has none of"
    numbers = isinstance(scores, list) and all(isinstance(s, (int, float)) and not isinstance(s, bool) for s in scores)
    if not numbers or len(scores) != options or not all(abs(s) < 1e300 and math.isfinite(s) for s in scores):
        return f"option scores must be {options} finite numbers"
    return None


def different_scores(claimed: Scores, computed: Scores, where: str = "") -> Iterator[str]:
    """Each claimed number that its answers do not give, with both."""
    for name, theirs in claimed.items():
        ours = computed.get(name)
        for part in ("value", "low", "high", "chance", "n", "n_cases", "verdict"):
            left, right = getattr(theirs, part), getattr(ours, part) if ours else None
            if not _same(left, right):
                what = "" if part == "value" else f" ({part})"
                yield f"claims {where}{name}{what} = {left}, its answers give {right}"
                break


def different_claims(claimed: Result, computed: Result) -> Iterator[str]:
    """Each number that a result claims, and its answers do not give; where all in all agree, those for a part. What it leaves out is no
    claim."""
    whole = list(different_scores(claimed.scores, computed.scores))
    yield from whole
    if whole:
        return
    for facet, values in claimed.breakdown.items():
        for value, scores in values.items():
            ours = computed.breakdown.get(facet, {}).get(value, {})
            yield from different_scores(scores, ours, f"{facet} {value}: ")


def different_results(claimed: Result, computed: Result) -> Iterator[str]:
    """Everything computed in a result that its answers do not give; what is left out counts as different."""
    yield from different_scores(claimed.scores, computed.scores)
    yield from (f"lacks the score {name}" for name in sorted(computed.scores.keys() - claimed.scores.keys()))
    for facet in sorted(claimed.breakdown.keys() | computed.breakdown.keys()):
        theirs, ours = claimed.breakdown.get(facet, {}), computed.breakdown.get(facet, {})
        if theirs.keys() != ours.keys():
            yield f"its breakdown by {clip(facet)} has other values than its answers"
        for value in theirs.keys() & ours.keys():
            if theirs[value].keys() != ours[value].keys():
                yield f"its breakdown by {clip(facet)}, {clip(value)} has other scores than its answers"
            yield from different_scores(theirs[value], ours[value], f"{facet} {value}: ")
    if Counter(claimed.statuses) != Counter(computed.statuses):  # a status that a file leaves out counts 0
        yield f"claims the statuses {claimed.statuses}, its answers give {computed.statuses}"


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return abs(left - right) <= TOLERANCE
    return bool(left == right)


def answers_digest(answers: pd.DataFrame) -> str:
    """The same for the same responses to the same questions, whoever gave them, in whatever order."""
    rows = zip(answers["question_id"].astype(str), answers["sample"].astype(int), answers["response"], strict=True)
    lines = sorted(json.dumps([name, sample, response or ""]) for name, sample, response in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def implausible(result: Result, questions: pd.DataFrame, answers: pd.DataFrame) -> list[str]:
    """What a human should look at: (nearly) perfect answers, ones in the order of the key, no time taken.

    A baseline is what it says it is, and is not flagged. Answers of another submission: `folder_store.twins`.
    """
    flags: list[str] = []
    if result.model.kind == "baseline":
        return doubts(result, questions, answers)
    key = dict(zip(questions["question_id"].astype(str), questions["answer"].map(_tuple), strict=True))
    first = answers[answers["sample"] == 0]
    given = [_tuple(choice) for choice in first["choice"]]
    wanted = [key[name] for name in first["question_id"].astype(str)]
    known = [(g, w) for g, w in zip(given, wanted, strict=True) if w]
    right = sum(g == w for g, w in known)
    if known and right == len(known):
        flags.append(f"a perfect score: all {right:,} answers are right")
    elif len(known) >= ENOUGH and right >= 0.99 * len(known):
        flags.append(f"a nearly perfect score: {right:,} of {len(known):,} answers are right")
    shifted = _in_the_order_of_the_key(known)
    if shifted:
        flags.append(f"the answers follow the order of the key, {shifted}")
    seconds = pd.to_numeric(answers["seconds"], errors="coerce").dropna()
    if len(seconds) and (seconds <= 0).all():
        flags.append("all response times are zero")
    return [*flags, *doubts(result, questions, answers)]


def _in_the_order_of_the_key(known: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> str | None:
    """Whether the answers are the key itself, moved by a few places or turned round: copied, and misaligned."""
    if len(known) < ENOUGH:
        return None
    names = {choice: number for number, choice in enumerate(dict.fromkeys(w for _, w in known))}
    given = np.array([names.get(g, -1) for g, _ in known])
    wanted = np.array([names[w] for _, w in known])
    if np.bincount(wanted).max() > 0.9 * len(wanted):
        return None  # nearly always the same letter: any constant answer would fit
    orders = {f"moved by {abs(step)}": np.roll(wanted, step) for step in (1, -1, 2, -2)} | {
        "turned round": wanted[::-1]
    }
    for name, order in orders.items():
        if (given == order).mean() >= 0.98 and (order == wanted).mean() < 0.9:
            return name
    return None


def _tuple(choice: Any) -> tuple[int, ...]:
    return tuple(sorted(int(position) for position in choice))
