"""Rows of answers, as files of any origin hold them, checked and brought into the columns of `answers.parquet`.

Refused are unknown questions, an answer given twice, wrong types, and numbers that are none; all at once, each with where it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dataset_builders.sources.problems import clip
from eval_harness.records.result import DELIVERIES, STATUSES
from eval_harness.store.untrusted import Placed, ProblemList, Record

LARGEST_INT = 1 << 53


@dataclass(frozen=True)
class Expected:
    """What answers are due: id of each question -> its number of options, samples of each, and how they were asked."""

    options: Mapping[str, int]
    samples: int
    method: str

    @classmethod
    def of(cls, questions: pd.DataFrame, samples: int, method: str) -> Expected:
        options = dict(zip(questions["question_id"].astype(str), questions["options"].map(len), strict=True))
        return cls(options, samples, method)


def checked_rows(rows: Iterable[Placed], expected: Expected, problems: ProblemList) -> list[Record]:
    """The rows (where, row) in the columns of `answers.parquet`. What is wrong goes to `problems`; when it is full, the rest is not read.

    A row says what the server did by `delivery`, or by `status` (`failed`, `missing`, `refused`: a journal, a file of another harness).
    """
    kept: dict[tuple[str, int], Record] = {}
    for where, row in rows:
        name, sample = row.get("question_id"), whole(row.get("sample"))
        if not isinstance(name, str):
            what = "has no `question_id` (or `index`). Name the question that was answered."
        elif name not in expected.options:
            what = f"question {clip(name)} is not in this split of the dataset. Check which benchmark and split it answers."
        elif sample is None or not 0 <= sample < expected.samples:
            what = (
                f"sample {clip(row.get('sample'))} of question {clip(name)} is not one of {expected.samples:,} (from 0)"
            )
        elif (name, sample) in kept:
            what = f"question {clip(name)}, sample {sample}, is answered twice. Keep one of them."
        else:
            what = _wrong_values(row) or _wrong_scores(row.get("scores"), expected.options[name], expected.method) or ""
        if what:
            problems.add(where, what)
            if problems.full:
                problems.problems.append("and more; the rest was not read")
                break
            continue
        assert isinstance(name, str) and sample is not None
        usage = row.get("usage") or (row.get("tokens_in"), row.get("tokens_out"))
        kept[name, sample] = {
            "question_id": name, "sample": sample, "response": row["response"] or "", "scores": row.get("scores"),
            "seconds": row.get("seconds"), "delivery": _delivery(row), "reasoning": row.get("reasoning"),
            "finish_reason": row.get("finish_reason"), "tokens_in": usage[0], "tokens_out": usage[1],
        }  # fmt: skip
    return list(kept.values())


def whole(value: Any) -> int | None:
    """A sample number as files hold it (absent is 0; 1.0 is 1, as tables with gaps write it); None when it is none."""
    if value is None:
        return 0
    if isinstance(value, str):
        digits = value.strip().removesuffix(".0")
        return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 8 else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _delivery(row: Record) -> str:
    if "delivery" in row:
        return str(row["delivery"])
    return DELIVERIES.get(str(row.get("status")), DELIVERIES["answered"])


def _wrong_scores(scores: Any, options: int, method: str) -> str | None:
    if scores is None:
        return None
    if method not in ("gd", "ps", "ps_official"):
        return f"holds option scores, which the method {clip(method)} has none of"
    # NaN and infinity are what a model may give; a choice is only read where every score is a number.
    if not isinstance(scores, list) or len(scores) != options or not all(map(_is_score, scores)):
        return f"option scores must be {options} numbers"
    return None


def _is_score(score: Any) -> bool:
    if score is None or isinstance(score, float):
        return True
    return isinstance(score, int) and not isinstance(score, bool) and abs(score) < LARGEST_INT


def _wrong_values(row: Record) -> str | None:
    """What is wrong with the columns of a row that say what came of the request."""
    if "response" not in row:
        return "has no `response`. Give the model's text, or null where it gave none."
    if not isinstance(row["response"], str | None):
        return f"`response` must be text or null, not {type(row['response']).__name__}."
    if "delivery" in row and row["delivery"] not in DELIVERIES.values():
        return f"delivery {clip(row['delivery'])} is none of {', '.join(DELIVERIES.values())}"
    if "delivery" not in row and row.get("status") not in STATUSES:
        return f"status {clip(row.get('status'))} is none of {', '.join(STATUSES)}"
    if not _is_duration(row.get("seconds")):
        return "`seconds` must be a number from 0, or null."
    for name in ("reasoning", "finish_reason"):
        if not isinstance(row.get(name), str | None):
            return f"{name} must be text or null"
    usage = row.get("usage")
    if usage is not None and (not isinstance(usage, list) or len(usage) != 2):
        return "usage must be two numbers of tokens, or null"
    counts = [row.get("tokens_in"), row.get("tokens_out"), *(usage or [])]
    if not all(count is None or (type(count) is int and 0 <= count < LARGEST_INT) for count in counts):
        return "tokens must be whole numbers from 0, or null"
    return None


def _is_duration(seconds: Any) -> bool:
    """Whether it may stand in the column `seconds`: absent, or a finite number from 0."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return seconds is None
    return 0 <= seconds < 1e9
