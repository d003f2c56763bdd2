"""Read the output files of the papers' own scripts, and JSON documents of plain answers.

ProbMed: records `{id, qa_type, response, gt_ans}` (eval/inference scripts; a list or JSON Lines). MediConfusion: an object of pairs,
`{pair: {answer: {im1: {full_answer}, im2: ...}}}` or `{pair: {image_1, image_2}}`. A JSON list of `{question_id, response}` as well.
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
"""Location in the file, question id, record of the answer."""
IS_WHOLE = False
"""A file may answer a part of the questions: what is missing counts as wrong."""


def recognises(path: Path) -> bool:
    """True if it is a JSON document, or JSON Lines of ProbMed's script."""
    with path.open("rb") as file:
        head = file.read(1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"["):
        return True
    if not head.startswith(b"{"):
        return False
    try:
        first = parse_object(head.split(b"\n")[0], constants=True)
    except ValueError:
        return head.split(b"\n")[0].strip() == b"{" or len(head) == 1 << 16
    return ("qa_type" in first and "question_id" not in first) or _is_pairs(first)


def iter_answers(path: Path, questions: pd.DataFrame, found: ProblemList) -> Iterator[LocatedAnswer]:
    """(where, question id, record) of every answer. Raises BadInput for a file that is no JSON."""
    options_of = dict(zip(questions["question_id"].astype(str), questions["options"], strict=True))
    for where, name, record in _records(path, found):
        if not isinstance(record, dict):
            found.add(where, "is not a JSON object. Each entry must be one answer.")
        elif name is not None and {"answer", "image_1", "image_2"} & record.keys():
            yield from _pair(where, name, record, found)
        elif "qa_type" in record and "id" in record and "question_id" not in record:
            yield from _probing(where, record, options_of, found)
        elif "response" in record and (record.get("question_id") is not None or record.get("index") is not None):
            identity = record.get("question_id")
            yield where, record.get("index") if identity is None else identity, select_answer_fields(record)
        else:
            found.add(where, "is no answer: it needs question_id and response, or what a paper's script writes")


def _records(path: Path, found: ProblemList) -> Iterator[tuple[str, str | None, Any]]:
    """(where, name of the entry, entry) of a document, or of the lines of a file."""
    with open_text(path, "\n") as file:
        text = file.read()
    try:
        value = parse_json(text, constants=True)
    except ValueError as error:
        if "\n{" not in text:
            raise BadInput(f"{path}: cannot be read as JSON ({str(error)[:200]}). Write it again.") from None
        yield from ((where, None, record) for where, record in iter_json_lines(path, found))
        return
    if isinstance(value, dict) and not _is_pairs(value):
        value = [value]
    entries = enumerate(value, 1) if isinstance(value, list) else value.items()
    for name, record in entries:
        is_named = isinstance(value, dict)
        yield f"{path}, entry {clip(name) if is_named else name}", str(name) if is_named else None, record


def _is_pairs(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(part, dict) for part in value.values())


def _probing(where: str, record: Record, options_of: dict[str, Any], found: ProblemList) -> Iterator[LocatedAnswer]:
    parts = [record.get("image_type"), record["id"], record["qa_type"]]
    if not all(isinstance(part, (str, int)) and not isinstance(part, bool) for part in parts[1:]):
        found.add(where, "its id or qa_type is no text")
        return
    # With its image type in front, as ProbMed's dataset has them, or without.
    names = ["-".join(map(str, parts)), "-".join(map(str, parts[1:]))]
    name = next((name for name in names if name in options_of), names[1])
    options = [str(option).lower() for option in options_of.get(name, ())]
    truth = record.get("gt_ans")
    said = str(truth).strip().lower().rstrip(".")
    target = LETTERS[options.index(said)] if said in options else truth
    yield where, name, select_answer_fields(record) | {"target": target}


def _pair(where: str, pair: str, record: Record, found: ProblemList) -> Iterator[LocatedAnswer]:
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
            yield where, f"{pair}-{side}", select_answer_fields(said) | {"response": said[name]}
