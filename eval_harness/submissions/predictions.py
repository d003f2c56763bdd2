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
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.sources.problems import clip
from eval_harness.integrations import readers
from eval_harness.submissions.untrusted.envelope import MOST_SAMPLES
from eval_harness.submissions.untrusted.files import Found, Record, listed, read_records

ABSENT = object()

Key = tuple[str, int]


@dataclass
class Predictions:
    """What a file says: one journal record per (question, sample), in the file's order, and everything that is wrong with it."""

    records: dict[Key, Record] = field(default_factory=dict)
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
    keys = dict(
        zip(
            questions["question_id"].astype(str),
            zip(questions["options"], questions["answer"], strict=True),
            strict=True,
        )
    )
    read = Predictions()
    reader = readers.reader_for(path)
    entries = readers.read(reader, path, questions, found) if reader else _entries(path, keys, found)
    for where, question_id, said in entries:
        key = _add(where, question_id, said, keys, read.records, found)
        if key is not None:
            read.records[key] = said
        if found.full:
            found.problems.append(f"{path}: and more; the rest was not read")
            break
    if not read.records and not found.problems:
        found.add(str(path), "holds no answers. Each record needs question_id and response.")
    read.problems = found.problems
    return read


def _entries(path: Path, keys: dict[str, Any], found: Found) -> Iterator[tuple[str, Any, Record]]:
    """(where, question id, journal record) of a file of records."""
    for place, record in read_records(path, found):
        yield from _answers(place, record, keys, found)


def _answers(place: str, record: Record, keys: dict[str, Any], found: Found) -> Iterator[tuple[str, Any, Record]]:
    """The answers in a record: (place, question id, journal record)."""
    pair = record.get("")
    if isinstance(pair, str):
        yield from _pair(place, pair, record, found)
    elif "qa_type" in record and "id" in record and "question_id" not in record:
        parts = [record.get("image_type"), record["id"], record["qa_type"]]
        if not all(isinstance(part, (str, int)) and not isinstance(part, bool) for part in parts[1:]):
            found.add(place, "its id or qa_type is no text")
            return
        names = ["-".join(str(part) for part in parts), "-".join(str(part) for part in parts[1:])]
        name = next((name for name in names if name in keys), names[1])
        options, answer = keys.get(name, ((), ()))
        truth = record.get("gt_ans")
        if isinstance(truth, str) and len(answer) == 1:
            ours = str(options[int(answer[0])])
            if truth.strip().lower().rstrip(".") != ours.lower():
                found.add(
                    place, f"its gt_ans is {clip(truth)}, the dataset says {ours!r}: another version of the dataset"
                )
        yield place, name, _journal(record, record.get("response", ABSENT))
    else:
        identity = record.get("question_id")
        identity = record.get("index") if identity is None else identity
        for name, there, remedy in (
            ("`question_id` (or `index`)", identity is not None, "Name the question that was answered."),
            ("`response`", "response" in record, "Give the model's text, or null where it gave none."),
        ):
            if not there:
                found.add(place, f"has no {name}; it has {listed(list(record)) or 'no fields'}. {remedy}")
                return
        yield place, identity, _journal(record, record["response"])


def _pair(place: str, pair: str, record: Record, found: Found) -> Iterator[tuple[str, Any, Record]]:
    """MediConfusion's two images of a pair; question ids are `<pair>-1` and `<pair>-2`."""
    answer = record.get("answer")
    for side in (1, 2):
        said: Any = record.get(f"image_{side}", ABSENT)
        if isinstance(answer, dict):
            image = answer.get(f"im{side}")
            said = image.get("full_answer", ABSENT) if isinstance(image, dict) else ABSENT
        if said is ABSENT:
            found.add(place, f"has no answer to image {side} (answer.im{side}.full_answer, or image_{side})")
        else:
            yield place, f"{pair}-{side}", _journal({}, said)


def _journal(record: Record, response: Any) -> Record:
    return {name: record.get(name) for name in ("sample", "status", "seconds")} | {"response": response}


def _add(
    place: str, question_id: Any, said: Record, keys: dict[str, Any], known: dict[Key, Record], found: Found
) -> Key | None:
    """Check one answer and bring it into the journal's form; returns its key, None when it is wrong."""
    if isinstance(question_id, float) and question_id.is_integer():
        question_id = int(question_id)  # a column of numbers with a gap in it
    if isinstance(question_id, bool) or not isinstance(question_id, (str, int)):
        found.add(place, "has no `question_id` (or `index`). Name the question that was answered.")
        return None
    name = str(question_id)
    if name not in keys:
        found.add(
            place, f"question {clip(name)} is not in this split. Check which benchmark and split the file answers."
        )
        return None
    sample = whole(said.pop("sample"))
    if sample is None or not 0 <= sample < MOST_SAMPLES:
        found.add(place, f"`sample` must be a whole number from 0 to {MOST_SAMPLES - 1}.")
        return None
    response = said["response"]
    wrong = wrong_response(response)
    if wrong:
        found.add(place, wrong)
        return None
    seconds = said["seconds"]
    if isinstance(seconds, str) or (isinstance(seconds, float) and math.isnan(seconds)):  # a gap in a table
        said["seconds"] = seconds = None
    if not is_duration(seconds):
        found.add(place, "`seconds` must be a number from 0, or null.")
        return None
    if (name, sample) in known:
        found.add(place, f"question {clip(name)}, sample {sample}, is answered twice. Keep one of them.")
        return None
    failed = response is None or said["status"] == "failed"
    said["status"] = "failed" if failed else "refused" if said["status"] == "refused" else "answered"
    said["response"] = response or ""
    said |= {"question_id": name, "sample": sample}
    return name, sample


def whole(value: Any) -> int | None:
    """A sample number as files hold it (absent is 0; 1.0 is 1, as tables with gaps write it); None when it is none."""
    if value is None:
        return 0
    if isinstance(value, str):
        digits = value.removesuffix(".0")
        return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 8 else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def wrong_response(response: Any) -> str | None:
    """What is wrong with a response, in words; None where it is a text or absent."""
    if response is ABSENT:
        return "has no `response`. Give the model's text, or null where it gave none."
    if response is not None and not isinstance(response, str):
        return f"`response` must be text or null, not {type(response).__name__}."
    return None


def is_duration(seconds: Any) -> bool:
    """Whether it may stand in the column `seconds`: absent, or a finite number from 0."""
    if seconds is None:
        return True
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return False
    return math.isfinite(seconds) and 0 <= seconds < 1e9 if abs(seconds) < 1e300 else False
