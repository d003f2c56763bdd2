"""Replay recorded answers from a file of any supported format (`answer_files/`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from eval_harness.answer_files.harness_formats import read_answer_file
from eval_harness.answer_files.untrusted import Record
from eval_harness.derive.reading import STATUS_BY_DELIVERY
from eval_harness.models.interface import Backend
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model


class Recorded(Backend):
    """A back end that looks up recorded answers; call `read` before `generate`.

    A question without a record is `missing`; one whose record has no text is `failed`.
    """

    needs_images = False
    several_images = True
    one_token = True
    sees_prompts = False
    takes_stream = True
    options = ()

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[tuple[str, int], Record] = {}
        """(question id, sample number) -> record."""
        self.model = Model(name=path.stem)
        self.deviations: list[str] = ["answers were recorded elsewhere; prompt and generation settings are not known"]

    def read(self, questions: pd.DataFrame) -> int:
        """Read the answers to the questions of a split.

        Answers to questions that the run does not ask are ignored.

        Args:
            questions: All questions of the split.

        Returns:
            The number of samples per question.

        Raises:
            BadInput: If the file has problems, such as a question that the split lacks; lists all
                of them.
        """
        predictions = read_answer_file(self.path, questions)
        self.answers = {(row["question_id"], row["sample"]): row for row in predictions.rows}
        return predictions.samples

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Yield the recorded answer of each request, in order."""
        for request in requests:
            row = self.answers.get((request.question_id, request.sample), {"response": "", "delivery": "missing"})
            status = STATUS_BY_DELIVERY[row["delivery"]]
            details: dict[str, Any] = {name: row.get(name) for name in ("seconds", "reasoning", "finish_reason")}
            error = None if status == "answered" else "no recorded answer"
            yield Response(request.question_id, request.sample, row["response"], status, error=error, **details)

    def describe(self) -> dict[str, Any]:
        return {"recorded_file": self.path.name}
