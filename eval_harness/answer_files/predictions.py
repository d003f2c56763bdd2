"""Read answers from plain files (CSV, JSON Lines, Parquet), and check rows of answers.

The rows may come from any source. A record is `{question_id | index, response[, sample, status,
seconds, reasoning, finish_reason]}`. The output of other harnesses and of the papers' scripts
is read as the same records (`harness_formats.py`). Unknown questions, duplicate answers, wrong
types and invalid numbers are rejected; all problems are reported at once, each with its location.

See also: reading the files within limits (`untrusted.py`).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

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
from eval_harness.records.limits import MAX_SAMPLES
from eval_harness.records.request import STATUS_BY_FINISH_REASON, normalize_finish_reason
from eval_harness.records.result import DELIVERIES

FAILURE_PLACEHOLDERS = ("Failed to obtain answer via API", "[LMMS_EVAL_REQUEST_FAILED")
"""Prefixes of the text that harnesses store for an answer that was never received."""


def format_letters(answer: Sequence[int]) -> str:
    """Return the answer key of a question as harnesses write it: "B", or "BC" for two options."""
    return "".join(LETTERS[int(index)] for index in answer)


def journal_record(text: Any) -> dict[str, Any]:
    """Return the journal record of a stored answer; from nested lists, the first text is taken."""
    while isinstance(text, list) and text:
        text = text[0]
    failed = not isinstance(text, str) or text.startswith(FAILURE_PLACEHOLDERS)
    status = "failed" if failed else "answered"
    return {"response": None if failed else text, "status": status, "sample": 0, "seconds": None}


@dataclass
class Predictions:
    """Contents of a file of answers.

    `rows` have the columns of `answers.parquet`, in file order; `problems` lists everything that is
    wrong with the file, each with its location in it.
    """

    rows: list[Record] = field(default_factory=list)
    problems: ProblemList = field(default_factory=ProblemList)

    @property
    def samples(self) -> int:
        """Number of samples per question."""
        return 1 + max((row["sample"] for row in self.rows), default=0)


def read_predictions(path: Path, questions: pd.DataFrame) -> Predictions:
    """Read a plain file of answers.

    Args:
        path: The file.
        questions: The questions of the split (at least `question_id`, `options`, `answer`).

    Returns:
        The valid answers and all problems: malformed records, unknown questions, and questions
            answered twice.

    Raises:
        BadInput: If the file cannot be read at all.
    """
    problems = ProblemList()
    return check_predictions(iter_records(path, problems), questions, problems)


def check_predictions(records: Iterable[LocatedRecord], questions: pd.DataFrame, problems: ProblemList) -> Predictions:
    """Check the records of a file; arguments and return value as for `read_predictions`."""
    rows = _answer_rows(records, problems)
    answer_rows = check_rows(rows, questions, MAX_SAMPLES, "mc", problems)
    if answer_rows and all(row["sample"] > 0 for row in answer_rows):
        first_sample = min(row["sample"] for row in answer_rows)
        problems.add(None, f"its samples begin with {first_sample}. Number them from 0.")
    if not answer_rows and not problems:
        problems.add(None, "contains no answers. Each record needs question_id and response.")

    return Predictions(answer_rows, problems)


def _answer_rows(records: Iterable[LocatedRecord], problems: ProblemList) -> Iterator[LocatedRecord]:
    """Convert records to rows of answers.

    Ids become text, missing table cells None, and statuses our own names. Records that do not
    answer a question are reported in `problems`.
    """
    for location, record in records:
        question_id = record.get("question_id")
        question_id = record.get("index") if question_id is None else question_id
        if question_id is None or "response" not in record:
            missing_field = "`response`" if question_id is not None else "`question_id` (or `index`)"
            remedy = (
                "Give the model's text, or null" if question_id is not None else "Name the question that was answered"
            )
            problems.add(
                location,
                f"has no {missing_field}; it has {format_names(list(record)) or 'no fields'}. {remedy}.",
            )
            continue
        if isinstance(question_id, float) and question_id.is_integer():
            question_id = int(question_id)  # pandas reads an integer column with missing cells as floats
        is_id = isinstance(question_id, (str, int)) and not isinstance(question_id, bool)
        numbers = {name: record.get(name) for name in ("sample", "seconds")}
        row = {"response": record["response"]} | {
            name: value
            for name, value in numbers.items()
            if not (isinstance(value, float) and math.isnan(value))  # a missing cell of a table
        }
        finish_reason = next(
            filter(None, (normalize_finish_reason(record.get(name)) for name in FINISH_FIELDS)),
            None,
        )
        reasoning = record.get("reasoning")
        row |= {
            "reasoning": reasoning if isinstance(reasoning, str) else None,
            "finish_reason": finish_reason,
        }
        # In order of precedence: the stated status, the finish reason, whether there is a text.
        status = record.get("status")
        status = status if status and isinstance(status, str) else STATUS_BY_FINISH_REASON.get(finish_reason or "")
        if status == "truncated":  # in our own tables, `status` is that of the reading
            row["finish_reason"] = finish_reason or "length"
        if status not in DELIVERIES or (status == "answered" and record["response"] is None):
            status = "failed" if record["response"] is None else "answered"
        row["delivery"] = DELIVERIES[status]
        yield location, {"question_id": str(question_id).strip() if is_id else None} | row


class AnswerRow(BaseModel):
    """A row of answers with the columns of `answers.parquet`."""

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
    rows: Iterable[LocatedRecord],
    questions: pd.DataFrame,
    samples: int,
    method: str,
    problems: ProblemList,
) -> list[Record]:
    """Check rows of answers, and return them with the columns of `answers.parquet`.

    Args:
        rows: (location, row) pairs.
        questions: The questions that may be answered.
        samples: Number of samples per question; sample numbers run from 0.
        method: Name of the run's method; only some methods have option scores.
        problems: Receives the rows that are invalid. Once it is full, reading stops.

    Returns:
        The valid rows, at most one per question and sample.
    """
    options = dict(zip(questions["question_id"].astype(str), questions["options"].map(len), strict=True))
    accepted: dict[tuple[str, int], Record] = {}

    def answer_problem(answer: AnswerRow) -> str | None:
        """Return why an answer is invalid, or None if it is valid."""
        question_id = answer.question_id
        if question_id not in options:
            return (
                f"question {clip(question_id)} is not in this split of the dataset. Check the benchmark and the split."
            )
        if (question_id, answer.sample) in accepted:
            return f"question {clip(question_id)}, sample {answer.sample}, is answered twice. Keep one of them."
        if answer.sample >= samples:
            return f"sample {answer.sample} of question {clip(question_id)} is not one of the run's {samples:,} samples (numbered from 0)"
        if answer.scores is not None and method not in ("gd", "ps", "ps_official"):
            return f"has option scores, which the method {clip(method)} does not produce"
        # A model may return NaN or infinity; a choice is read only if every score is finite.
        if answer.scores is not None and len(answer.scores) != options[question_id]:
            return f"option scores must be {options[question_id]} numbers"

        return None

    for location, row in rows:
        try:
            # None stands for a missing value: the column's default applies.
            answer = AnswerRow.model_validate({column: value for column, value in row.items() if value is not None})
            problem = answer_problem(answer)
        except ValidationError as error:
            problem = first_validation_error(error)
        if problem is None:
            # A missing text becomes an empty one; `delivery` still tells the two apart.
            accepted[answer.question_id, answer.sample] = answer.model_dump() | {"response": answer.response or ""}
            continue
        problems.add(location, problem)
        if problems.full:
            problems.append("there are more problems; the rest was not read")
            break

    return list(accepted.values())
