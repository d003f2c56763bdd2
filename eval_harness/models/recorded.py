"""Answers that were given elsewhere, read from a JSONL file of `{question_id | index, response[, sample]}`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from dataset_builders.errors import BadInput, first_misfit
from eval_harness.models.interface import Backend
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model


def read_recorded(path: Path) -> dict[tuple[str, int], str | None]:
    """(question id, sample) -> response text, None where the record holds no text.

    The id is `question_id`, else `index`, compared as text; `sample` defaults to 0.
    Raises BadInput for a missing or unreadable file, a line that is not a record, and an answer given twice.
    """
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read as UTF-8 text ({error}). recorded: takes a JSONL file.") from None
    answers: dict[tuple[str, int], str | None] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        key, response = _record(line, f"{path}, line {number}")
        if key in answers:
            raise BadInput(
                f"{path}, line {number}: question {key[0]!r}, sample {key[1]}, is answered twice. Keep one of them."
            )
        answers[key] = response
    if not answers:
        raise BadInput(f"{path}: holds no answers. Each line must be a JSON object with question_id and response.")
    return answers


class _Record(BaseModel):
    """One line of a recorded file."""

    model_config = ConfigDict(strict=True)

    question_id: str | int | None = None
    index: str | int | None = None
    response: str | None
    sample: NonNegativeInt = 0


def _record(line: str, where: str) -> tuple[tuple[str, int], str | None]:
    try:
        record = _Record.model_validate_json(line)
    except ValidationError as error:
        raise BadInput(
            f"{where}: {first_misfit(error)}. Each line must be an object with question_id and response."
        ) from None
    identity = record.index if record.question_id is None else record.question_id
    if identity is None:
        raise BadInput(f"{where}: has no `question_id` (or `index`). Name the question that was answered.")
    return (str(identity), record.sample), record.response


class Recorded(Backend):
    """A back end that looks answers up. A question without a record comes back `missing`, one whose record holds no text `failed`."""

    needs_images = False
    several_images = True
    one_token = True
    sees_prompts = False
    takes_stream = True
    options = ()

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers = read_recorded(path)
        self.model = Model(name=path.stem)
        self.deviations: list[str] = ["answers were recorded elsewhere; prompt and generation settings are not known"]

    def samples(self) -> int:
        """How many samples per question the file holds."""
        return 1 + max(sample for _, sample in self.answers)

    def check_questions(self, known: frozenset[str]) -> None:
        """Raise BadInput when the file answers a question that the split does not have. Answers to questions of the split that the
        run does not ask are left unused."""
        unknown = sorted({question for question, _ in self.answers} - known)
        if unknown:
            listed = ", ".join(unknown[:5]) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
            raise BadInput(
                f"{self.path}: answers {len(unknown)} question(s) that this split does not have: {listed}. "
                "Check --data and --split, or remove them."
            )

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        for request in requests:
            text = self.answers.get((request.question_id, request.sample))
            if text is None:
                status = "failed" if (request.question_id, request.sample) in self.answers else "missing"
                yield Response(request.question_id, request.sample, "", status, error="no recorded answer")
            else:
                yield Response(request.question_id, request.sample, text)

    def describe(self) -> dict[str, Any]:
        return {"recorded_file": self.path.name}
