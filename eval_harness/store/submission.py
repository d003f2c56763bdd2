"""A submission: the files that were sent as exact bytes, what was derived from them, and what was found out about them.

What is examined is what a store adds: nothing writes these files again on the way. See also: making them (`submit.py`), examining them
(`examine.py`), stores (`folder_store.py`, `hub_store.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import MAX_LISTED_PROBLEMS, BadInput
from eval_harness.derive.answer_table import table_to_frame
from eval_harness.derive.run_files import DERIVED_FILES, READINGS_FILE, RESULT_FILE, SubmittedFiles
from eval_harness.records.names import model_slug
from eval_harness.records.result import Result
from eval_harness.records.run import RunRecord
from eval_harness.store.similarity import Digests

REPRODUCED_SUFFIX = "-reproduced"
"""How the id of a result that the store's owner ran ends, and no other's."""


@dataclass(frozen=True)
class Submission:
    """Files that were examined. `problems` refuse them; `flags` are for a person to look at; `notes` only inform.

    `derived`: content of the derived files by name; `result`: the one in `result.json`; `digests`: of its answers, to compare with others';
    `questions`: content of the questions file, None where the store's owner does not vouch for the dataset.
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
        """Its folder in a store."""
        return result_folder(self.result, self.run_id)

    def readings(self) -> pd.DataFrame:
        """The reading of each answer (`readings.parquet`)."""
        return table_to_frame(self.derived[READINGS_FILE])

    def files(self) -> dict[str, bytes]:
        """The files that are sent, by their paths in a store."""
        return {f"{self.folder}/{name}": content for name, content in self.sent.content_by_name().items()}

    def derived_files(self) -> dict[str, bytes]:
        """Files that a store keeps beside them, by path; `result.json` last."""
        return {f"{self.folder}/{name}": self.derived[name] for name in DERIVED_FILES}

    def questions_file(self) -> dict[str, bytes]:
        """The questions by their path in a store; nothing where the store's owner does not vouch for them."""
        path = f"questions/{self.result.benchmark.fingerprint}.parquet"
        return {} if self.questions is None else {path: self.questions}

    def reproduced(self) -> Submission:
        """The same as the result of the store's owner, who ran the model: under an id of its own."""
        result = self.result.model_copy(update={"provenance": "reproduced"})
        derived = {**self.derived, RESULT_FILE: result.to_json().encode()}
        return replace(
            self, run_id=self.run_id.removesuffix(REPRODUCED_SUFFIX) + REPRODUCED_SUFFIX, result=result, derived=derived
        )

    def check(self, what: Path, remedy: str = "Nothing was submitted.") -> None:
        """Raise BadInput with all problems in one line, or return if there are none."""
        if self.problems:
            inside = [
                line.removeprefix(f"{what}, ").removeprefix(f"{what}: ").rstrip(".")
                for line in self.problems[:MAX_LISTED_PROBLEMS]
            ]
            more = len(self.problems) - MAX_LISTED_PROBLEMS
            count = "" if len(self.problems) == 1 else f"{len(self.problems)} problems: "
            rest = f"; and {more} more (--dry-run lists them)" if more > 0 else ""
            raise BadInput(f"{what}: {count}{'; '.join(inside)}{rest}. {remedy}")


def result_folder(result: Result, run_id: str) -> str:
    """Folder of a result in a store: `results/<benchmark>/<model>/<id>`."""
    return f"results/{result.benchmark.name}/{model_slug(result.model.name)}/{run_id}"


def submission_id(run: RunRecord, digest: str) -> str:
    """The id of a submission: readable, and a digest over what was asked and what was answered.

    Others' answers to the same request have another id, and so have two models whose names share a slug. The fields that go in are a
    fixed list, so that a field added to a run later changes no id. `digest`: of the answers and the judge's replies (sorted `row_digest`s).
    """
    benchmark, method = run.benchmark, run.method
    judge = {name: (method.judge or {}).get(name) for name in ("model", "prompt")} if method.judge else None
    request = [
        *(benchmark.name, benchmark.split, benchmark.fingerprint, run.model.name),
        *(method.name, method.prompt, method.shots, run.request.samples, method.extraction, method.generation, judge),
        method.image,
    ]
    short = hashlib.sha256(f"{json.dumps(request, sort_keys=True)}\n{digest}".encode()).hexdigest()[:16]
    arm = [method.image] if method.image != "real" else []
    parts = (benchmark.name[:40], model_slug(run.model.name)[:60].rstrip("-."), method.name[:12], *arm, short)
    return "-".join(parts)


ANSWER_CONTENT_COLUMNS = ("question_id", "sample", "response", "delivery", "reasoning", "scores")
"""The columns of answers that say what was answered; times and token counts may differ."""


def row_digest(row: Mapping[str, Any], columns: Sequence[str] = ANSWER_CONTENT_COLUMNS) -> bytes:
    """A digest of what one row of answers says."""
    said = [row.get(name) for name in columns]
    return hashlib.sha256(json.dumps(said).encode()).digest()
