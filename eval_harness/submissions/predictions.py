"""Answers in the files of other harnesses: which question each record answers, and what was said.

Layouts: `{question_id | index, response[, sample, status, seconds]}`; ProbMed's official output `{id, qa_type, response, gt_ans}`
(their eval/inference scripts; a list or JSON Lines); MediConfusion's official output, an object of pairs:
`{pair: {answer: {im1: {full_answer}, im2: ...}}}` or `{pair: {image_1, image_2}}`.
What inspect-ai, lmms-eval, lighteval and VLMEvalKit write: `eval_harness/integrations/`.
See also: reading the files within limits (`untrusted/files.py`), scoring.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.sources.problems import clip
from eval_harness.integrations.reading import readers
from eval_harness.records.limits import MOST_SAMPLES
from eval_harness.submissions.checks.validation import checked_answers
from eval_harness.submissions.untrusted.files import Found, Record, listed, read_records


@dataclass
class Predictions:
    """What a file says: one journal record per (question, sample), in the file's order, and everything that is wrong with it."""

    records: dict[tuple[str, int], Record] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def samples(self) -> int:
        """How many samples per question the file holds."""
        return 1 + max((sample for _, sample in self.records), default=0)


def read_predictions(path: Path, questions: pd.DataFrame) -> Predictions:
    """Read a file of answers to `questions` (at least `question_id, options, answer`), with all problems at once.

    A problem is a record that is none, an unknown question, a question answered twice, a key of another version of the dataset.
    Raises BadInput for a file that cannot be read at all.
    """
    found = Found()
    reader = readers.reader_for(path)
    entries = readers.read(reader, path, questions, found) if reader else _entries(path, questions, found)
    rows = ((where, _row(identity, said)) for where, identity, said in entries)
    records, problems = checked_answers(rows, questions, MOST_SAMPLES, "mc", found)
    if records and all(record["sample"] > 0 for record in records):
        found.add(str(path), f"its samples begin with {min(r['sample'] for r in records)}. Number them from 0.")
    if not records and not problems:
        found.add(str(path), "holds no answers. Each record needs question_id and response.")
    return Predictions({(record["question_id"], record["sample"]): record for record in records}, problems)


def answered_ids(path: Path, most: int = 200) -> list[str]:
    """Ids of questions in the first records of a file of answers, whatever its questions are; none of another harness's log, which names
    its task. Raises BadInput for a file that cannot be read at all."""
    if readers.reader_for(path):
        return []
    found, ids = Found(), list[str]()
    for where, record in islice(read_records(path, found), most):
        if "qa_type" in record and "id" in record and "question_id" not in record:
            ids += _probing_names(record)
        else:
            rows = (_row(identity, said) for _, identity, said in _answers(where, record, {}, found))
            ids += [row["question_id"] for row in rows if row["question_id"] is not None]
    return ids


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
        "question_id": str(identity) if is_id else None,
        "status": status if status in ("failed", "refused") else "answered",
        "seconds": seconds,
    }


def _entries(path: Path, questions: pd.DataFrame, found: Found) -> Iterator[tuple[str, Any, Record]]:
    """(where, question id, journal record) of a file of records."""
    keys = {str(row.question_id): (row.options, row.answer) for row in questions.itertuples()}
    for where, record in read_records(path, found):
        yield from _answers(where, record, keys, found)


def _answers(where: str, record: Record, keys: dict[str, Any], found: Found) -> Iterator[tuple[str, Any, Record]]:
    """The answers in a record: (where, question id, journal record)."""
    pair = record.get("")
    if isinstance(pair, str):
        yield from _pair(where, pair, record, found)
    elif "qa_type" in record and "id" in record and "question_id" not in record:
        names = _probing_names(record)
        if not names:
            found.add(where, "its id or qa_type is no text")
            return
        name = next((name for name in names if name in keys), names[1])
        options, answer = keys.get(name, ((), ()))
        truth = record.get("gt_ans")
        if isinstance(truth, str) and len(answer) == 1:
            ours = str(options[int(answer[0])])
            if truth.strip().lower().rstrip(".") != ours.lower():
                found.add(
                    where, f"its gt_ans is {clip(truth)}, the dataset says {ours!r}: another version of the dataset"
                )
        yield where, name, _said(record)
    else:
        identity = record.get("question_id")
        identity = record.get("index") if identity is None else identity
        for name, there, remedy in (
            ("`question_id` (or `index`)", identity is not None, "Name the question that was answered."),
            ("`response`", "response" in record, "Give the model's text, or null where it gave none."),
        ):
            if not there:
                found.add(where, f"has no {name}; it has {listed(list(record)) or 'no fields'}. {remedy}")
                return
        yield where, identity, _said(record)


def _probing_names(record: Record) -> list[str]:
    """The ids that a record of ProbMed's output may mean: with its image type in front, as its dataset has them, or without."""
    parts = [record.get("image_type"), record["id"], record["qa_type"]]
    if not all(isinstance(part, (str, int)) and not isinstance(part, bool) for part in parts[1:]):
        return []
    return ["-".join(str(part) for part in parts), "-".join(str(part) for part in parts[1:])]


def _pair(where: str, pair: str, record: Record, found: Found) -> Iterator[tuple[str, Any, Record]]:
    """MediConfusion's two images of a pair; question ids are `<pair>-1` and `<pair>-2`."""
    answer = record.get("answer")
    for side in (1, 2):
        said: Any = record
        name = f"image_{side}"
        if isinstance(answer, dict):
            said, name = answer.get(f"im{side}"), "full_answer"
        if not isinstance(said, dict) or name not in said:
            found.add(where, f"has no answer to image {side} (answer.im{side}.full_answer, or image_{side})")
        else:
            yield where, f"{pair}-{side}", {"response": said[name]}


def _said(record: Record) -> Record:
    return {name: record[name] for name in ("response", "sample", "status", "seconds") if name in record}
