"""The answers of a run as a table: one row per answered (question, sample), before reading and scoring.

`answers.parquet` holds what came back from the model, `judge.parquet` what a judge model replied about it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builders.errors import BadInput
from eval_harness.records.names import replace_surrogates
from eval_harness.records.result import DELIVERIES
from eval_harness.records.run import RunRecord

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
"""Columns of `answers.parquet`. `scores`: one number per option for the methods that score options; `delivery`: what the server did
(`DELIVERIES`); `seconds`: from the request to the last token; `shown`: ids of the images of another case that were shown."""
JUDGE_SCHEMA = pa.schema([("question_id", pa.string()), ("sample", pa.int32()), ("reply", pa.string())])
"""Columns of `judge.parquet`: the judge model's verbatim reply about an answer."""
ANSWER_COLUMNS: list[str] = ANSWERS_SCHEMA.names
Record = dict[str, Any]
ROWS = 4096
"""Rows per row group: 64 MB at 16 kB of reasoning per answer."""


def answer_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table from a journal record (`status` of the request, `usage`)."""
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


USAGE_FIELDS = ("answers_from_cache", "tokens_in", "tokens_out", "cost")
"""Fields of `usage_of` (`environment` of a run)."""


def sum_usage(records: Iterable[Mapping[str, Any]], price: list[float] | None) -> dict[str, Any]:
    """Tokens counted by a server, summed over every answer of the journal, and what they cost (`price`: per million, in and out).

    What was kept from earlier runs is counted apart: it costs nothing again.
    """
    records = list(records)
    kept = sum(bool(record.get("from_cache")) for record in records)
    found: dict[str, Any] = {"answers_from_cache": kept} if kept else {}
    counted = [record["usage"] for record in records if record.get("usage") and not record.get("from_cache")]
    if not counted:
        return found
    tokens = [sum(usage[side] for usage in counted) for side in (0, 1)]
    found |= {"tokens_in": tokens[0], "tokens_out": tokens[1]}
    if price:
        found["cost"] = round(sum(t * p for t, p in zip(tokens, price, strict=True)) / 1e6, 6)
    return found


def answer_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as a frame, ordered by question id and sample, so that equal answers give equal tables; of duplicates the last one counts.

    Values are Python objects: None where there is nothing.
    """
    latest = {(row["question_id"], row["sample"]): row for row in rows}
    kept = [latest[key] for key in sorted(latest)]
    return pd.DataFrame(
        {name: pd.Series([_plain(row.get(name)) for row in kept], dtype=object) for name in ANSWER_COLUMNS}
    ).astype({"sample": "int64"})


def encode_answers(answers: pd.DataFrame) -> bytes:
    """The content of `answers.parquet`; the same bytes for the same rows."""
    return _parquet(answers, ANSWERS_SCHEMA)


def encode_judge_replies(replies: pd.DataFrame) -> bytes:
    """The content of `judge.parquet`."""
    return _parquet(replies, JUDGE_SCHEMA)


def table_to_frame(table: pa.Table | bytes) -> pd.DataFrame:
    """A table, or the bytes of a Parquet file, as Python objects."""
    if isinstance(table, bytes):
        table = pq.read_table(pa.BufferReader(table))
    columns = zip(table.column_names, table.columns, strict=True)
    return pd.DataFrame({name: pd.Series(column.to_pylist(), dtype=object) for name, column in columns})


def rewrite_rows(rows: Iterable[Record], schema: pa.Schema, sink: io.BytesIO) -> Iterator[Record]:
    """Write rows to `sink` as `answers_bytes` does, in their order, and pass each on: what is read of a stranger's file is kept so, never
    its own bytes, of which another reader may make something else."""
    remaining = iter(rows)
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        while group := list(islice(remaining, ROWS)):
            writer.write_table(_table({name: [row[name] for row in group] for name in schema.names}, schema))
            yield from group


def _parquet(frame: pd.DataFrame, schema: pa.Schema) -> bytes:
    """The rows as Parquet, in row groups of ROWS, so that long texts are never all in memory twice."""
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, schema, compression="zstd") as writer:
        for start in range(0, max(1, len(frame)), ROWS):
            part = frame.iloc[start : start + ROWS]
            writer.write_table(_table({name: part[name].tolist() for name in schema.names}, schema))
    return buffer.getvalue()


def _table(columns: Mapping[str, list[Any]], schema: pa.Schema) -> pa.Table:
    return pa.table({name: [_plain(value) for value in values] for name, values in columns.items()}, schema=schema)


def _plain(value: Any) -> Any:
    """Convert pandas' NaN for a missing value back to None, and text to valid UTF-8 (a server may send lone surrogates)."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return replace_surrogates(value)
        return value  # the same object: there may be no memory for a second copy of long reasoning
    return None if isinstance(value, float) and math.isnan(value) else value


def check_all_asked(folder: Path, run: RunRecord, questions: pd.DataFrame, records: Iterable[dict[str, Any]]) -> None:
    """Raise BadInput if the run was interrupted: questions that were never asked are neither failed nor wrong. (A model that gave no
    answer, and a recorded file that lacks a question, have a record of it.)"""
    due = {(str(name), sample) for name in questions["question_id"] for sample in range(run.request.samples)}
    if left := len(due - {(str(record["question_id"]), int(record["sample"])) for record in records}):
        raise BadInput(
            f"{folder}: {left:,} of {len(due):,} answers were never asked for: the run was interrupted. Give the same `medprobe eval` "
            "again to ask them, or make it a run of the cases that were asked: `medprobe score RUN_DIR --asked-only`."
        )
