"""Read answers from plain files (CSV, JSON Lines, Parquet); check rows of answers from any source and convert them to the columns of
`answers.parquet`.

A record of a file is `{question_id | index, response[, sample, status, seconds, reasoning, finish_reason]}`. What other harnesses and the
papers' own scripts write is converted to such a file first (`harness_formats.py`).
Unknown questions, duplicate answers, wrong types and invalid
numbers are refused; all problems are reported at once, each with its location. See also: reading the files within limits
(`untrusted.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
from pydantic import BaseModel, Field, ValidationError

from dataset_builders.errors import clip, first_validation_error
from dataset_builders.schema import LETTERS
from eval_harness.answer_files.untrusted import (
    FINISH_FIELDS,
    LocatedRecord,
    ProblemList,
    Record,
    format_names,
    iter_records,
)
from eval_harness.records.finish_reasons import STATUS_BY_FINISH_REASON, normalize_finish_reason
from eval_harness.records.limits import MAX_SAMPLES
from eval_harness.records.result import DELIVERIES

FAILURE_PLACEHOLDERS = ("Failed to obtain answer via API", "[LMMS_EVAL_REQUEST_FAILED")
"""Placeholder that is stored for an answer that never came."""


class FileDescription(NamedTuple):
    """Benchmark, model, dataset and split of a file of answers, as `store.submit.prepare` takes them; None where unknown."""

    benchmark: str | None = None
    model: str | None = None
    data: str | None = None
    split: str | None = None


def format_letters(answer: Sequence[int]) -> str:
    """The key of a question as harnesses write it: "B", "BC"."""
    return "".join(LETTERS[int(index)] for index in answer)


def journal_record(text: Any) -> dict[str, Any]:
    """The journal record of an answer as a file has it; of lists in one another, their first text."""
    while isinstance(text, list) and text:
        text = text[0]
    failed = not isinstance(text, str) or text.startswith(FAILURE_PLACEHOLDERS)
    status = "failed" if failed else "answered"
    return {"response": None if failed else text, "status": status, "sample": 0, "seconds": None}


@dataclass
class Predictions:
    """Contents of a file: rows in the columns of `answers.parquet`, in the file's order, and every problem found in it."""

    rows: list[Record] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def samples(self) -> int:
        """Number of samples per question."""
        return 1 + max((row["sample"] for row in self.rows), default=0)


def read_predictions(path: Path, questions: pd.DataFrame) -> Predictions:
    """Read a file of answers to `questions` (at least `question_id, options, answer`), with all problems at once.

    Problems are malformed records, unknown questions, and questions answered twice.
    Raises BadInput for a file that cannot be read at all.
    """
    found = ProblemList()
    rows = _answer_rows(iter_records(path, found), found)
    kept = check_rows(rows, questions, MAX_SAMPLES, "mc", found)
    if kept and all(row["sample"] > 0 for row in kept):
        found.add(str(path), f"its samples begin with {min(row['sample'] for row in kept)}. Number them from 0.")
    if not kept and not found.problems:
        found.add(str(path), "holds no answers. Each record needs question_id and response.")
    return Predictions(kept, found.problems)


def _answer_rows(records: Iterable[LocatedRecord], found: ProblemList) -> Iterator[LocatedRecord]:
    """Convert a file's records to rows of answers: ids as text, gaps of a table as None, statuses in our terms. Records that answer no
    question are noted in `found`."""
    for where, record in records:
        identity = record.get("question_id")
        identity = record.get("index") if identity is None else identity
        if identity is None or "response" not in record:
            lacks = "`response`" if identity is not None else "`question_id` (or `index`)"
            remedy = "Give the model's text, or null" if identity is not None else "Name the question that was answered"
            found.add(where, f"has no {lacks}; it has {format_names(list(record)) or 'no fields'}. {remedy}.")
            continue
        if isinstance(identity, float) and identity.is_integer():
            identity = int(identity)  # a column of numbers with a gap in it
        is_id = isinstance(identity, (str, int)) and not isinstance(identity, bool)
        numbers = {name: record.get(name) for name in ("sample", "seconds")}
        kept = {"response": record["response"]} | {
            name: value for name, value in numbers.items() if not is_missing(value)
        }
        finish_reason = next(filter(None, (normalize_finish_reason(record.get(name)) for name in FINISH_FIELDS)), None)
        reasoning = record.get("reasoning")
        kept |= {"reasoning": reasoning if isinstance(reasoning, str) else None, "finish_reason": finish_reason}
        status = record.get("status")
        status = status if status and isinstance(status, str) else STATUS_BY_FINISH_REASON.get(finish_reason or "")
        if status == "truncated":  # how an answer was read, as our own tables have it
            kept["finish_reason"] = finish_reason or "length"
        if status not in DELIVERIES or (status == "answered" and record["response"] is None):
            status = "failed" if record["response"] is None else "answered"
        kept["delivery"] = DELIVERIES[status]
        yield where, {"question_id": str(identity).strip() if is_id else None} | kept


def is_missing(value: object) -> bool:
    """True for the values with which tables mark a missing value."""
    return isinstance(value, float) and math.isnan(value)


class AnswerRow(BaseModel):
    """A row of answers in the columns of `answers.parquet`."""

    question_id: str
    sample: int = Field(0, ge=0)
    response: str | None = None
    scores: list[float | None] | None = None
    seconds: float | None = Field(None, ge=0, lt=1e9)
    delivery: Literal[*DELIVERIES.values()]  # type: ignore[valid-type]
    reasoning: str | None = None
    finish_reason: str | None = None
    tokens_in: int | None = Field(None, ge=0, lt=1 << 53)
    tokens_out: int | None = Field(None, ge=0, lt=1 << 53)
    shown: list[str | None] | None = None


def check_rows(
    rows: Iterable[LocatedRecord], questions: pd.DataFrame, samples: int, method: str, problems: ProblemList
) -> list[Record]:
    """Check rows (location, row) of answers to `questions`, with this number of samples and this method, and return them in the columns of
    `answers.parquet`. Problems are added to `problems`; when it is full, the rest is not read."""
    options = dict(zip(questions["question_id"].astype(str), questions["options"].map(len), strict=True))
    kept: dict[tuple[str, int], Record] = {}

    def wrong(answer: AnswerRow) -> str | None:
        """The reason why an answer is not one of those expected; None if it is."""
        name = answer.question_id
        if name not in options:
            return f"question {clip(name)} is not in this split of the dataset. Check which benchmark and split it answers."
        if (name, answer.sample) in kept:
            return f"question {clip(name)}, sample {answer.sample}, is answered twice. Keep one of them."
        if answer.sample >= samples:
            return f"sample {answer.sample} of question {clip(name)} is not one of {samples:,} (from 0)"
        if answer.scores is not None and method not in ("gd", "ps", "ps_official"):
            return f"holds option scores, which the method {clip(method)} has none of"
        # A model may return NaN or infinity; a choice is read only if every score is finite.
        if answer.scores is not None and len(answer.scores) != options[name]:
            return f"option scores must be {options[name]} numbers"
        return None

    for where, row in rows:
        try:
            answer = AnswerRow.model_validate({name: value for name, value in row.items() if value is not None})
            what = wrong(answer)
        except ValidationError as error:
            what = first_validation_error(error)
        if what is None:
            kept[answer.question_id, answer.sample] = answer.model_dump() | {"response": answer.response or ""}
            continue
        problems.add(where, what)
        if problems.full:
            problems.problems.append("and more; the rest was not read")
            break
    return list(kept.values())
