"""Plain files of answers (CSV, JSON Lines, Parquet): which question each record answers, and what was said.

A record is `{question_id | index, response[, sample, status, seconds, reasoning, finish_reason]}`. What other harnesses and the papers'
own scripts write is converted to such a file where it lies (`integrations/reading/`). See also: reading the files within limits
(`untrusted.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from eval_harness.records.limits import MOST_SAMPLES
from eval_harness.store.answer_rows import Expected, checked_rows
from eval_harness.store.untrusted import ProblemList, Record, listed, read_records


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
    entries = (_answer(where, record, found) for where, record in read_records(path, found))
    rows = ((each[0], _row(*each[1:])) for each in entries if each is not None)
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
    entries = (_answer(where, record, found) for where, record in islice(read_records(path, found), most))
    ids = (_row(*each[1:])["question_id"] for each in entries if each is not None)
    return [name for name in ids if name is not None]


def _row(identity: Any, said: Record) -> Record:
    """A record of any file as a row of answers: ids as text, gaps of a table as nothing, what came of the request in our words."""
    if isinstance(identity, float) and identity.is_integer():
        identity = int(identity)  # a column of numbers with a gap in it
    is_id = isinstance(identity, (str, int)) and not isinstance(identity, bool)
    seconds, status = said.get("seconds"), said.get("status")
    if isinstance(seconds, str) or (isinstance(seconds, float) and math.isnan(seconds)):
        seconds = None
    if said.get("response") is None:
        status = "failed"
    return said | {
        "question_id": str(identity).strip() if is_id else None,
        "status": status if status in ("failed", "refused") else "answered",
        "seconds": seconds,
    }


def _answer(where: str, record: Record, found: ProblemList) -> tuple[str, Any, Record] | None:
    """The answer in a record: (where, question id, what was said); None where it is none, which `found` says."""
    identity = record.get("question_id")
    identity = record.get("index") if identity is None else identity
    for name, there, remedy in (
        ("`question_id` (or `index`)", identity is not None, "Name the question that was answered."),
        ("`response`", "response" in record, "Give the model's text, or null where it gave none."),
    ):
        if not there:
            found.add(where, f"has no {name}; it has {listed(list(record)) or 'no fields'}. {remedy}")
            return None
    return where, identity, _said(record)


def _said(record: Record) -> Record:
    said = {name: record[name] for name in ("response", "sample", "status", "seconds") if name in record}
    return said | {name: record[name] for name in ("reasoning", "finish_reason") if isinstance(record.get(name), str)}
