"""Read output files of the papers' scripts, and JSON documents of plain answers.

- ProbMed (eval/inference scripts): records `{id, qa_type, response, gt_ans}`, as a list or as JSON
  Lines.
- MediConfusion: an object of pairs, `{pair: {answer: {im1: {full_answer}, im2: ...}}}` or
  `{pair: {image_1, image_2}}`.
- Plain answers: a JSON list of `{question_id, response}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput, clip
from dataset_builders.schema import LETTERS
from eval_harness.answer_files.untrusted import (
    ProblemList,
    Record,
    iter_json_lines,
    open_text,
    parse_json,
    parse_object,
    select_answer_fields,
)

LocatedAnswer = tuple[str, Any, Record]
"""(location in the file, question id, record of the answer)."""
IS_WHOLE = False
"""A file may answer only some of the questions; missing answers count as wrong."""


def recognises(path: Path) -> bool:
    """Return True for a JSON document, and for JSON Lines of ProbMed's script."""
    with path.open("rb") as file:
        head = file.read(1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"["):
        return True
    if not head.startswith(b"{"):
        return False
    try:
        first_record = parse_object(head.split(b"\n")[0], constants=True)
    except ValueError:
        # Not JSON: the first line of an indented document, or a line longer than what was read.
        return head.split(b"\n")[0].strip() == b"{" or len(head) == 1 << 16

    return ("qa_type" in first_record and "question_id" not in first_record) or _is_pairs(first_record)


def iter_answers(path: Path, questions: pd.DataFrame, problems: ProblemList) -> Iterator[LocatedAnswer]:
    """Yield (location, question id, record) for every answer.

    Args:
        path: The file.
        questions: The questions of the split.
        problems: Receives the entries that are not answers.

    Raises:
        BadInput: If the file is not JSON.
    """
    options_by_id = dict(zip(questions["question_id"].astype(str), questions["options"], strict=True))
    for location, entry_name, record in _records(path, problems):
        if not isinstance(record, dict):
            problems.add(location, "is not a JSON object. Each entry must be one answer.")
        elif entry_name is not None and {"answer", "image_1", "image_2"} & record.keys():
            yield from _pair(location, entry_name, record, problems)
        elif "qa_type" in record and "id" in record and "question_id" not in record:
            yield from _probing(location, record, options_by_id, problems)
        elif "response" in record and (record.get("question_id") is not None or record.get("index") is not None):
            question_id = record.get("question_id")
            yield (
                location,
                record.get("index") if question_id is None else question_id,
                select_answer_fields(record),
            )
        else:
            problems.add(
                location,
                "not an answer: it needs question_id and response, or the fields of a paper's script",
            )


def _records(path: Path, problems: ProblemList) -> Iterator[tuple[str, str | None, Any]]:
    """Yield (location, entry name or None, entry) of a JSON document or of JSON Lines."""
    with open_text(path, "\n") as file:
        text = file.read()
    try:
        document = parse_json(text, constants=True)
    except ValueError as error:
        if "\n{" not in text:
            raise BadInput(f"cannot be read as JSON ({str(error)[:200]}). Write it again.", path) from None
        yield from ((location, None, record) for location, record in iter_json_lines(path, problems))
        return

    # The document is a single record.
    if isinstance(document, dict) and not _is_pairs(document):
        document = [document]
    entries = enumerate(document, 1) if isinstance(document, list) else document.items()
    for entry_name, record in entries:
        is_named = isinstance(document, dict)
        yield (
            f"entry {clip(entry_name) if is_named else entry_name}",
            str(entry_name) if is_named else None,
            record,
        )


def _is_pairs(document: Any) -> bool:
    """Return True for MediConfusion's object of pairs: every value is an object."""
    return isinstance(document, dict) and bool(document) and all(isinstance(part, dict) for part in document.values())


def _probing(
    location: str, record: Record, options_by_id: dict[str, Any], problems: ProblemList
) -> Iterator[LocatedAnswer]:
    """Yield the answer of a ProbMed record.

    Its truth is given as a letter if it is one of the options.
    """
    id_parts = [record.get("image_type"), record["id"], record["qa_type"]]
    if not all(isinstance(part, (str, int)) and not isinstance(part, bool) for part in id_parts[1:]):
        problems.add(location, "id and qa_type must be strings")
        return

    # ProbMed's dataset prefixes ids with the image type; some output files do not.
    candidate_ids = ["-".join(map(str, id_parts)), "-".join(map(str, id_parts[1:]))]
    question_id = next(
        (question_id for question_id in candidate_ids if question_id in options_by_id),
        candidate_ids[1],
    )
    options = [str(option).lower() for option in options_by_id.get(question_id, ())]
    truth = record.get("gt_ans")
    truth_text = str(truth).strip().lower().rstrip(".")
    target = LETTERS[options.index(truth_text)] if truth_text in options else truth
    yield location, question_id, select_answer_fields(record) | {"target": target}


def _pair(location: str, pair: str, record: Record, problems: ProblemList) -> Iterator[LocatedAnswer]:
    """Yield the two answers of a MediConfusion pair (question ids `<pair>-1` and `<pair>-2`)."""
    answer = record.get("answer")
    for side in (1, 2):
        side_answer: Any = record
        response_key = f"image_{side}"
        if isinstance(answer, dict):
            side_answer, response_key = answer.get(f"im{side}"), "full_answer"
        if not isinstance(side_answer, dict) or response_key not in side_answer:
            problems.add(
                location,
                f"has no answer to image {side} (answer.im{side}.full_answer, or image_{side})",
            )
        else:
            yield (
                location,
                f"{pair}-{side}",
                select_answer_fields(side_answer) | {"response": side_answer[response_key]},
            )
