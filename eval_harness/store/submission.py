"""A submission: its files, the scores and readings derived from them, and the problems found.

A store adds exactly these bytes: the files as rewritten by `examine.py`, and the derived files.

See also: making the files (`submit.py`), examining them (`examine.py`), stores (`folder_store.py`,
`hub_store.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.answer_files.untrusted import join_problems
from eval_harness.derive.answer_table import table_to_frame
from eval_harness.derive.run_files import DERIVED_FILES, READINGS_FILE, RESULT_FILE, SubmittedFiles
from eval_harness.records.names import model_slug
from eval_harness.records.result import Result
from eval_harness.records.run import RunRecord
from eval_harness.store.acceptance import ACCEPTANCE
from eval_harness.store.similarity import Digests

REPRODUCED_SUFFIX = "-reproduced"
"""Suffix of an id, which marks a result that the store's owner ran; no other id ends with it."""


@dataclass(frozen=True)
class Submission:
    """An examined submission.

    `problems` cause refusal, `flags` are for a person to review, `notes` only inform.

    Attributes:
        run_id: Id of the submission (`submission_id`).
        sent: The files that were sent, rewritten by `examine`.
        result: The result in `result.json`.
        derived: Content of the derived files, by name.
        digests: Digests of the answers, for comparison with other submissions.
        questions: Content of the questions file; None if the store's owner does not vouch for the
            dataset.
    """

    run_id: str
    sent: SubmittedFiles
    result: Result
    derived: Mapping[str, bytes]
    digests: Digests
    questions: bytes | None = None
    problems: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def folder(self) -> str:
        """The submission's folder in a store."""
        return result_folder(self.result, self.run_id)

    def readings(self) -> pd.DataFrame:
        """Return the reading of each answer (`readings.parquet`)."""
        return table_to_frame(self.derived[READINGS_FILE])

    def files(self) -> dict[str, bytes]:
        """Return the sent files, by their path in a store."""
        return {f"{self.folder}/{name}": content for name, content in self.sent.content_by_name().items()}

    def derived_files(self) -> dict[str, bytes]:
        """Return the derived files, by their path in a store; `result.json` comes last."""
        return {f"{self.folder}/{name}": self.derived[name] for name in DERIVED_FILES}

    def accepted_files(self, acceptance: bytes, with_questions: bool) -> dict[str, bytes]:
        """Return what a store on the Hub adds to the sent files, by path: see `Acceptance`."""
        questions = self.questions_file() if with_questions else {}
        return self.derived_files() | {f"{self.folder}/{ACCEPTANCE}": acceptance} | questions

    def questions_file(self) -> dict[str, bytes]:
        """Return the questions file, by its path in a store.

        Empty if the store's owner does not vouch for the questions.
        """
        path = f"questions/{self.result.benchmark.fingerprint}.parquet"
        return {} if self.questions is None else {path: self.questions}

    def reproduced(self) -> Submission:
        """Return a copy marked as reproduced by the store's owner, under an id of its own."""
        result = self.result.model_copy(update={"provenance": "reproduced"})
        derived = {**self.derived, RESULT_FILE: result.to_json().encode()}
        return replace(
            self,
            run_id=self.run_id.removesuffix(REPRODUCED_SUFFIX) + REPRODUCED_SUFFIX,
            result=result,
            derived=derived,
        )

    def check(self, source: Path, remedy: str = "Nothing was submitted.") -> None:
        """Raise BadInput if there are problems; its message lists the first of them in one line.

        Args:
            source: The submitted path, which the message names.
            remedy: Last sentence of the message.
        """
        if self.problems:
            count = "" if len(self.problems) == 1 else f"{len(self.problems)} problems: "
            raise BadInput(f"{count}{join_problems(self.problems, ' (--dry-run lists them)')}. {remedy}", source)


def result_folder(result: Result, run_id: str) -> str:
    """Return the folder of a result in a store: `results/<benchmark>/<model>/<id>`."""
    return f"results/{result.benchmark.name}/{model_slug(result.model.name)}/{run_id}"


def submission_id(run: RunRecord, digest: str) -> str:
    """Return the id of a submission: readable, and unique by a digest of request and answers.

    Different answers to the same request have different ids, and so do two models whose names have
    the same slug. The list of hashed fields is fixed, so that existing ids do not change when the
    run record gets a new field.

    Args:
        run: The run record.
        digest: Digest of the answers and the judge's replies (their sorted `row_digest`s).
    """
    benchmark, method = run.benchmark, run.method
    judge = {name: (method.judge or {}).get(name) for name in ("model", "prompt")} if method.judge else None
    # Do not add fields: existing ids would change.
    request = [
        *(benchmark.name, benchmark.split, benchmark.fingerprint, run.model.name),
        *(
            method.name,
            method.prompt,
            method.shots,
            run.request.samples,
            method.extraction,
            method.generation,
            judge,
        ),
        method.image,
    ]

    short = hashlib.sha256(f"{json.dumps(request, sort_keys=True)}\n{digest}".encode()).hexdigest()[:16]
    arm = [method.image] if method.image != "real" else []
    parts = (
        benchmark.name[:40],
        model_slug(run.model.name)[:60].rstrip("-."),
        method.name[:12],
        *arm,
        short,
    )

    # Its length is limited, since the id becomes a folder name.
    return "-".join(parts)


ANSWER_CONTENT_COLUMNS = ("question_id", "sample", "response", "delivery", "reasoning", "scores")
"""Columns that make up the content of an answer, as opposed to times and token counts."""


def row_digest(row: Mapping[str, Any], columns: Sequence[str] = ANSWER_CONTENT_COLUMNS) -> bytes:
    """Return the digest of one row of answers over `columns`."""
    content = [row.get(name) for name in columns]
    return hashlib.sha256(json.dumps(content).encode()).digest()
