"""A submission: two files as exact bytes, where they belong in a store, and what was found out about them.

What is examined is what lands: nothing writes these files anew on the way. See also: making them (`forming.py`), examining them
(`examination.py`), stores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.sources.problems import SHOWN
from eval_harness.records.names import AGAIN, model_slug
from eval_harness.records.result import Result
from eval_harness.runs.scoring import answers_bytes

FILES = ("answers.parquet", "result.json")
MAX_RESULT = 8 << 20
"""Bytes of a result.json or run.json. The largest honest one (GMAI-MMBench with all its facets) is under one million."""


@dataclass(frozen=True)
class Bundle:
    """`result.json` and `answers.parquet`, byte for byte."""

    result: bytes
    answers: bytes

    @classmethod
    def of(cls, result: Result, answers: pd.DataFrame) -> Bundle:
        return cls(result.to_json().encode(), answers_bytes(answers))

    @classmethod
    def read(cls, folder: Path) -> Bundle:
        """The two files of a folder. Raises OSError."""
        return cls((folder / "result.json").read_bytes(), (folder / "answers.parquet").read_bytes())


@dataclass(frozen=True)
class Submission:
    """A bundle that was examined. `problems` refuse it; `flags` are for a human to look at; `notes` only inform.

    `result` is what `bundle.result` says, `answers` what was read out of its responses here, `questions` those that were scored;
    `vouched` whether they are of a dataset that the store's owner vouches for.
    """

    run_id: str
    bundle: Bundle
    result: Result
    answers: pd.DataFrame
    questions: pd.DataFrame
    vouched: bool = False
    problems: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def folder(self) -> str:
        """Where it lies in a store."""
        return folder_of(self.result, self.run_id)

    def files(self) -> dict[str, bytes]:
        """Its files by their paths in a store."""
        return {
            f"{self.folder}/answers.parquet": self.bundle.answers,
            f"{self.folder}/result.json": self.bundle.result,
        }

    def check(self, what: Path, remedy: str = "Nothing was submitted.") -> None:
        """Raise BadInput with all problems in one line, or return if there are none."""
        if self.problems:
            inside = [
                line.removeprefix(f"{what}, ").removeprefix(f"{what}: ").rstrip(".") for line in self.problems[:SHOWN]
            ]
            shown = "; ".join(inside)
            more = len(self.problems) - SHOWN
            count = "" if len(self.problems) == 1 else f"{len(self.problems)} problems: "
            rest = f"; and {more} more (--dry-run lists them)" if more > 0 else ""
            if "result.json claims" in shown:
                remedy += f" `medprobe score {what}` computes result.json again; or find out what changed it."
            raise BadInput(f"{what}: {count}{shown}{rest}. {remedy}")


def folder_of(result: Result, run_id: str) -> str:
    """Where a result lies in a store: `results/<benchmark>/<model>/<id>`."""
    return f"results/{result.benchmark.name}/{model_slug(result.model.name)}/{run_id}"


def submission_id(result: Result, rows: Iterable[Mapping[str, Any]]) -> str:
    """The id of a submission: readable, and a digest over what was asked and what was answered.

    Others' answers to the same request have another id, and so have two models whose names share a slug. The fields that go in are a
    fixed list, so that a field added to a result later changes no id. `rows`: those of `answers.parquet`.
    """
    benchmark, method = result.benchmark, result.method
    request = [
        *(benchmark.name, benchmark.split, benchmark.fingerprint, result.model.name),
        *(method.name, method.prompt, method.shots, method.samples, method.extraction, method.generation),
    ]
    answers = sorted(json.dumps(_said(row)) for row in rows)
    digest = hashlib.sha256("\n".join([json.dumps(request, sort_keys=True), *answers]).encode()).hexdigest()[:16]
    parts = (benchmark.name[:40], model_slug(result.model.name)[:60].rstrip("-."), method.name[:12], digest)
    return "-".join(parts) + (AGAIN if result.provenance == "reproduced" else "")


def answers_digest(rows: Iterable[Mapping[Any, Any]]) -> str:
    """The same for the same responses to the same questions, whoever gave them, in whatever order."""
    lines = sorted(
        json.dumps([str(row["question_id"]), int(row["sample"]), row["response"] or "", _scores(row)]) for row in rows
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _said(row: Mapping[str, Any]) -> list[Any]:
    texts = [row["response"] or "", row.get("delivery"), row.get("reasoning")]
    return [str(row["question_id"]), int(row["sample"] or 0), *texts, _scores(row)]


def _scores(row: Mapping[Any, Any]) -> list[float | None] | None:
    scores = row.get("scores")
    if scores is None or isinstance(scores, float):  # pandas writes NaN where there is nothing
        return None
    return [None if score is None else float(score) for score in scores]
