"""Reads the details of lighteval (`details_<task>_<date>.parquet`): `doc` with our ids in `doc.specific`, `model_response.text`.

Format: lighteval 0.13. The tasks of `medprobe export-lighteval` put the ids there; a custom task puts `{"question_id": ...}` into
`Doc.specific`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builders.errors import BadInput
from eval_harness.integrations.described import Described, record_of
from eval_harness.records.limits import MAX_FILE, MOST_ANSWERS
from eval_harness.store.untrusted import ProblemList


def recognises(path: Path) -> bool:
    """Whether it is a Parquet file with the columns of lighteval's details."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"PAR1":
                return False
        return {"doc", "model_response"} <= set(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return False


def describe(path: Path) -> Described:
    """The details name no model."""
    return Described("lighteval")


def read(path: Path, questions: pd.DataFrame, found: ProblemList) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(where, question id, journal record) of every row and sample. Raises BadInput for a file that is damaged or too large."""
    try:
        with pq.ParquetFile(path) as file:
            unpacked = sum(file.metadata.row_group(n).total_byte_size for n in range(file.metadata.num_row_groups))
            if file.metadata.num_rows > MOST_ANSWERS or unpacked > 8 * MAX_FILE:
                raise BadInput(
                    f"{path}: is too large to be read ({file.metadata.num_rows:,} rows, {unpacked:,} bytes)."
                )
            row = 0
            for batch in file.iter_batches(256, columns=["doc", "model_response"]):
                for entry in batch.to_pylist():
                    row += 1
                    yield from _answers(f"{path}, row {row}", entry, found)
    except (OSError, pa.ArrowException) as error:
        raise BadInput(
            f"{path}: cannot be read ({str(error).splitlines()[0]}). Give lighteval's details file."
        ) from None


def _answers(where: str, entry: dict[str, Any], found: ProblemList) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    doc, response = _mapping(entry.get("doc")), _mapping(entry.get("model_response"))
    identity = _mapping(doc.get("specific")).get("question_id")
    if identity is None:
        found.add(where, "has no doc.specific.question_id: the task has to put it there")
        return
    for record in answers_of(response):
        yield where, identity, record


def answers_of(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The journal records of a `model_response`, one for each sample. Where no text came there is none, or null."""
    texts = response.get("text")
    texts = [texts] if isinstance(texts, str) else list(texts or [None])
    return [record_of(text, sample) for sample, text in enumerate(texts)]


def _mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, str):  # some versions store these as JSON
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}
