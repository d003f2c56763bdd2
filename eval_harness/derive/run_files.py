"""The files of a result, in a run folder and in a store.

Submitted: `run.json`, `answers.parquet` and, if a judge model read answers, `judge.parquet`.
Derived from them: `result.json` (scores), `readings.parquet` (the option that each answer chooses)
and `units.parquet` (the contribution of each question or case to each metric), all under the key
that `result.json` names.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eval_harness.derive.answer_table import table_to_frame

RUN_FILE, ANSWERS_FILE, JUDGE_FILE = "run.json", "answers.parquet", "judge.parquet"
RESULT_FILE, READINGS_FILE, UNITS_FILE = "result.json", "readings.parquet", "units.parquet"
SUBMITTED_FILES, DERIVED_FILES = (
    (RUN_FILE, ANSWERS_FILE, JUDGE_FILE),
    (READINGS_FILE, UNITS_FILE, RESULT_FILE),
)
READINGS_SCHEMA = pa.schema(
    [
        ("question_id", pa.string()),
        ("sample", pa.int32()),
        ("choice", pa.list_(pa.int32())),
        ("status", pa.string()),
        ("rule", pa.string()),
    ]
)
"""Columns of `readings.parquet`: one row per (question, sample), missing answers included."""


class SubmittedFiles(NamedTuple):
    """The files of a submission, byte for byte."""

    run: bytes
    answers: bytes
    judge: bytes | None = None

    @classmethod
    def from_folder(cls, folder: Path) -> "SubmittedFiles":
        """Read the files of a folder. Raises OSError."""
        judge = folder / JUDGE_FILE
        return cls(
            (folder / RUN_FILE).read_bytes(),
            (folder / ANSWERS_FILE).read_bytes(),
            judge.read_bytes() if judge.is_file() else None,
        )

    def content_by_name(self) -> dict[str, bytes]:
        """Return content by file name; without `judge.parquet` if there is none."""
        return {name: content for name, content in zip(SUBMITTED_FILES, self, strict=True) if content is not None}


def read_readings(
    folder: Path,
    columns: Sequence[str] = ("response",),
    question_ids: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Read the readings of a result joined with columns of its answers.

    Args:
        folder: The folder of the result.
        columns: Columns of the answers to add; a missing value is None.
        question_ids: Read only answers to these questions; others are not read from disk.

    Returns:
        `question_id, sample, choice, status, rule` and `columns`.

    Raises:
        OSError: If a file is missing.
        ValueError: If a file is unreadable.
    """
    keys = ["question_id", "sample"]
    row_filter = None if question_ids is None else pc.field("question_id").isin(list(question_ids))
    readings = table_to_frame(pq.read_table(folder / READINGS_FILE, filters=row_filter))
    answers = table_to_frame(pq.read_table(folder / ANSWERS_FILE, columns=[*keys, *columns], filters=row_filter))
    # Left join: readings also cover missing answers.
    joined = readings.merge(answers, on=keys, how="left", sort=False)
    for name in columns:
        joined[name] = joined[name].astype(object).where(joined[name].notna(), None)
    return joined


def read_question_file(path: Path) -> pd.DataFrame:
    """Read a Parquet file of questions, with list columns as Python lists.

    Raises:
        OSError: If the file is missing.
        ValueError: If the file is unreadable.
    """
    table = pq.read_table(path)
    frame = table.to_pandas()
    for name in table.column_names:
        if str(table.schema.field(name).type).startswith(("list", "large_list")):
            # pandas would turn lists into arrays, whose comparison is elementwise.
            frame[name] = pd.Series(table.column(name).to_pylist(), dtype=object)
    return frame
