"""The files of a run, in its folder and in a store, and the tables that they hold.

Submitted: `run.json`, `answers.parquet` (the model's answers, one row per answered question and
sample) and, if a judge model read answers, `judge.parquet` (its replies about them). Derived from
them: `result.json` (scores), `readings.parquet` (the option that each answer chooses) and
`units.parquet` (the contribution of each question or case to each metric), all under the key that
`result.json` names.
"""

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataset_builders.errors import BadInput, replace_surrogates
from eval_harness.records.result import DELIVERIES, RunRecord

RUN_FILE, ANSWERS_FILE, JUDGE_FILE = "run.json", "answers.parquet", "judge.parquet"

RESULT_FILE, READINGS_FILE, UNITS_FILE = "result.json", "readings.parquet", "units.parquet"

SUBMITTED_FILES, DERIVED_FILES = (
    (RUN_FILE, ANSWERS_FILE, JUDGE_FILE),
    (READINGS_FILE, UNITS_FILE, RESULT_FILE),
)

ANSWERS_SCHEMA = pa.schema(
    [
        ("question_id", pa.string()),
        ("sample", pa.int32()),
        ("response", pa.string()),
        ("scores", pa.list_(pa.float64())),
        ("seconds", pa.float64()),
        ("delivery", pa.string()),
        ("reasoning", pa.string()),
        ("finish_reason", pa.string()),
        ("tokens_in", pa.int64()),
        ("tokens_out", pa.int64()),
        ("shown", pa.list_(pa.string())),
    ]
)
"""Columns of `answers.parquet`.

`scores`: one number per option, for methods that score options; `delivery`: what the server did
(`DELIVERIES`); `seconds`: from the request to the last token; `shown`: ids of the images of
another case that were shown instead of the right ones.
"""

JUDGE_SCHEMA = pa.schema([("question_id", pa.string()), ("sample", pa.int32()), ("reply", pa.string())])
"""Columns of `judge.parquet`: the judge model's verbatim reply about an answer."""

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

ANSWER_TABLE_COLUMNS: list[str] = ANSWERS_SCHEMA.names

Record = dict[str, Any]

ROW_GROUP_SIZE = 4096
"""Rows per row group: 64 MB if each answer has 16 kB of reasoning."""


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


# --- from the journal to the table of answers ---


def answer_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """Build a row of the table from a journal record."""
    # Local models and recorded files may not count tokens.
    tokens = record.get("usage") or (None, None)
    return {
        "question_id": str(record["question_id"]),
        "sample": int(record.get("sample") or 0),
        "response": record["response"] or "",
        "scores": record.get("scores"),
        "seconds": record.get("seconds"),
        "delivery": DELIVERIES[record["status"]],
        "reasoning": record.get("reasoning"),
        "finish_reason": record.get("finish_reason"),
        "tokens_in": tokens[0],
        "tokens_out": tokens[1],
        "shown": record.get("shown"),
    }


def answer_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Build the answer table, ordered by question id and sample; the last of duplicates counts.

    Missing values are None. Equal answers give equal tables.
    """
    # A question asked again (after a failure) has a later record, which replaces the earlier one.
    latest = {(row["question_id"], row["sample"]): row for row in rows}
    ordered_rows = [latest[key] for key in sorted(latest)]
    return pd.DataFrame(
        {
            name: pd.Series([_plain(row.get(name)) for row in ordered_rows], dtype=object)
            for name in ANSWER_TABLE_COLUMNS
        }
    ).astype({"sample": "int64"})


def check_all_asked(folder: Path, run: RunRecord, questions: pd.DataFrame, records: Iterable[dict[str, Any]]) -> None:
    """Check that a run was not interrupted before all of its questions were asked.

    A question that was never asked is neither failed nor wrong. A failed request, or a question
    missing from a recorded file, does have a record.

    Args:
        folder: The run folder, for the message.
        run: The run record, with the number of samples.
        questions: The questions of the run.
        records: Journal records.

    Raises:
        BadInput: If some (question, sample) pairs have no record.
    """
    # Every (question, sample) that the run had to ask.
    due_keys = {(str(name), sample) for name in questions["question_id"] for sample in range(run.request.samples)}
    if n_unasked := len(due_keys - {(str(record["question_id"]), int(record["sample"])) for record in records}):
        raise BadInput(
            f"{folder}: {n_unasked:,} of {len(due_keys):,} answers were never requested: the run was "
            "interrupted. Repeat the same `medprobe eval` command to request them, or score only the cases that were "
            "asked: `medprobe score RUN_DIR --asked-only`."
        )


USAGE_FIELDS = ("answers_from_cache", "tokens_in", "tokens_out", "cost")
"""Fields returned by `sum_usage`, stored in the `environment` of a run."""


def sum_usage(records: Iterable[Mapping[str, Any]], price: list[float] | None) -> dict[str, Any]:
    """Sum the tokens that a server counted over the answers of a journal, and compute their cost.

    Answers reused from earlier runs are counted separately, because they cost nothing this time.

    Args:
        records: Journal records.
        price: Price per million input and output tokens; None: the cost is left out.

    Returns:
        Those of USAGE_FIELDS that apply.
    """
    records = list(records)
    n_cached = sum(bool(record.get("from_cache")) for record in records)
    usage: dict[str, Any] = {"answers_from_cache": n_cached} if n_cached else {}
    counted_tokens = [record["usage"] for record in records if record.get("usage") and not record.get("from_cache")]
    if not counted_tokens:
        return usage
    tokens = [sum(counts[side] for counts in counted_tokens) for side in (0, 1)]
    usage |= {"tokens_in": tokens[0], "tokens_out": tokens[1]}
    if price:
        usage["cost"] = round(
            sum(count * unit_price for count, unit_price in zip(tokens, price, strict=True)) / 1e6,
            6,
        )
    return usage


# --- writing and reading tables ---


def encode_table(frame: pd.DataFrame, schema: pa.Schema) -> bytes:
    """Encode `answers.parquet` or `judge.parquet`; the same rows give the same bytes.

    Args:
        frame: The rows.
        schema: Columns to write (ANSWERS_SCHEMA, JUDGE_SCHEMA).
    """
    names, sink = schema.names, io.BytesIO()
    rows = (dict(zip(names, row, strict=True)) for row in frame[names].itertuples(index=False, name=None))
    for _ in rewrite_rows(rows, schema, sink):
        pass
    return sink.getvalue()


def rewrite_rows(rows: Iterable[Record], schema: pa.Schema, sink: io.BytesIO) -> Iterator[Record]:
    """Write rows to `sink` as a Parquet file, and yield each of them.

    Rows of an untrusted file are stored re-encoded, never as the original bytes, which another
    Parquet reader may interpret differently.

    Args:
        rows: Rows of the table, in order.
        schema: Columns to write.
        sink: Receives the Parquet file.

    Yields:
        The rows, unchanged.
    """
    remaining = iter(rows)
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        # Row groups are written as they fill up, so memory stays limited for any file size.
        while group := list(islice(remaining, ROW_GROUP_SIZE)):
            columns = {name: [_plain(row[name]) for row in group] for name in schema.names}
            writer.write_table(pa.table(columns, schema=schema))
            yield from group


def _plain(value: Any) -> Any:
    """Convert NaN to None, and text to valid UTF-8 (servers may send lone surrogates)."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return replace_surrogates(value)
        return value  # no copy: there may be no memory for a second copy of long reasoning
    return None if isinstance(value, float) and math.isnan(value) else value


def table_to_frame(table: pa.Table | bytes) -> pd.DataFrame:
    """Convert an Arrow table, or the bytes of a Parquet file, to a data frame of Python objects."""
    if isinstance(table, bytes):
        table = pq.read_table(pa.BufferReader(table))
    # to_pylist, not to_pandas: lists and None stay Python objects.
    columns = zip(table.column_names, table.columns, strict=True)
    return pd.DataFrame({name: pd.Series(column.to_pylist(), dtype=object) for name, column in columns})


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
