"""Answers from plain files (CSV, JSON Lines, Parquet), and rows of answers from anywhere, checked and brought into the columns of
`answers.parquet`.

A record of a file is `{question_id | index, response[, sample, status, seconds, reasoning, finish_reason]}`. What other harnesses and the
papers' own scripts write is converted to such a file where it lies (`interop/`). Refused are unknown questions, an answer
given twice, wrong types, and numbers that are none; all at once, each with where it stands. See also: reading the files within limits
(`untrusted.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import clip
from eval_harness.derive.answer_table import COLUMNS
from eval_harness.records.limits import MOST_SAMPLES
from eval_harness.records.result import DELIVERIES
from eval_harness.store.untrusted import Placed, ProblemList, Record, listed, read_records


@dataclass
class Predictions:
    """What a file says: rows in the columns of `answers.parquet`, in the file's order, and everything that is wrong with it."""

    rows: list[Record] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def samples(self) -> int:
        """How many samples per question the file holds."""
        return 1 + max((row["sample"] for row in self.rows), default=0)


def read_predictions(path: Path, questions: pd.DataFrame) -> Predictions:
    """Read a file of answers to `questions` (at least `question_id, options, answer`), with all problems at once.

    A problem is a record that is none, an unknown question, a question answered twice.
    Raises BadInput for a file that cannot be read at all.
    """
    found = ProblemList()
    rows = _rows(read_records(path, found), found)
    kept = checked_rows(rows, Expected.of(questions, MOST_SAMPLES, "mc"), found)
    if kept and all(row["sample"] > 0 for row in kept):
        found.add(str(path), f"its samples begin with {min(row['sample'] for row in kept)}. Number them from 0.")
    if not kept and not found.problems:
        found.add(str(path), "holds no answers. Each record needs question_id and response.")
    return Predictions(kept, found.problems)


def answered_ids(path: Path, most: int = 200) -> list[str]:
    """Ids of questions in the first records of a file of answers, whatever its questions are. Raises BadInput for a file that cannot be
    read at all."""
    found = ProblemList()
    rows = _rows(islice(read_records(path, found), most), found)
    return [row["question_id"] for _, row in rows if row["question_id"] is not None]


def _rows(records: Iterable[Placed], found: ProblemList) -> Iterator[Placed]:
    """Records of any file as rows of answers: ids as text, gaps of a table as nothing, what came of the request in our words. Those that
    answer nothing are noted in `found`."""
    for where, record in records:
        identity = record.get("question_id")
        identity = record.get("index") if identity is None else identity
        if identity is None or "response" not in record:
            lacks = "`response`" if identity is not None else "`question_id` (or `index`)"
            remedy = "Give the model's text, or null" if identity is not None else "Name the question that was answered"
            found.add(where, f"has no {lacks}; it has {listed(list(record)) or 'no fields'}. {remedy}.")
            continue
        if isinstance(identity, float) and identity.is_integer():
            identity = int(identity)  # a column of numbers with a gap in it
        is_id = isinstance(identity, (str, int)) and not isinstance(identity, bool)
        seconds, status = record.get("seconds"), record.get("status")
        if isinstance(seconds, str) or (isinstance(seconds, float) and math.isnan(seconds)):
            seconds = None
        if record["response"] is None:
            status = "failed"
        texts = {name: record[name] for name in ("reasoning", "finish_reason") if isinstance(record.get(name), str)}
        yield (
            where,
            {
                "question_id": str(identity).strip() if is_id else None,
                "sample": record.get("sample"),
                "response": record["response"],
                "seconds": seconds,
                "delivery": DELIVERIES[status if status in ("failed", "refused") else "answered"],
                **texts,
            },
        )


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
    """The rows (where, row) in the columns of `answers.parquet`. What is wrong goes to `problems`; when it is full, the rest is not
    read."""
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
        texts = {"question_id": name, "sample": sample, "response": row["response"] or ""}
        kept[name, sample] = {column: row.get(column) for column in COLUMNS} | texts
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
    if not isinstance(row["response"], str | None):
        return f"`response` must be text or null, not {type(row['response']).__name__}."
    if row.get("delivery") not in DELIVERIES.values():
        return f"delivery {clip(row.get('delivery'))} is none of {', '.join(DELIVERIES.values())}"
    if not _is_duration(row.get("seconds")):
        return "`seconds` must be a number from 0, or null."
    for name in ("reasoning", "finish_reason"):
        if not isinstance(row.get(name), str | None):
            return f"{name} must be text or null"
    counts = [row.get("tokens_in"), row.get("tokens_out")]
    if not all(count is None or (type(count) is int and 0 <= count < LARGEST_INT) for count in counts):
        return "tokens must be whole numbers from 0, or null"
    return None


def _is_duration(seconds: Any) -> bool:
    """True if it may stand in the column `seconds`: absent, or a finite number from 0."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return seconds is None
    return 0 <= seconds < 1e9
