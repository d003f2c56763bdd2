"""From answers to a result: read the responses, score them, write `result.json` and `answers.parquet`.

Rescoring the same answers gives the same result, but for its time stamp. Not here: extraction (`answers.py`), formulas (`scores/`).
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from eval_harness.answers import read_answers
from eval_harness.results import Result
from eval_harness.runs import Run, key_of, read_journal, read_questions, read_run, write_atomically
from eval_harness.scores import score

ANSWERS_SCHEMA = pa.schema(
    [
        ("question_id", pa.string()),
        ("sample", pa.int32()),
        ("response", pa.string()),
        ("choice", pa.list_(pa.int32())),
        ("status", pa.string()),
        ("rule", pa.string()),
        ("scores", pa.list_(pa.float64())),
        ("seconds", pa.float64()),
    ]
)
"""Columns of `answers.parquet` (DESIGN section 5); `scores` holds one number per option for the methods that score options."""


def score_run(folder: Path, extraction: str = "ours") -> Result:
    """Score the answers of a run folder and write its `result.json` and `answers.parquet`.

    Raises BadInput when the folder is no run folder or its journal is damaged.
    """
    result, answers = rescore(folder, extraction)
    write_result(folder, result, answers)
    return result


def rescore(folder: Path, extraction: str = "ours") -> tuple[Result, pd.DataFrame]:
    """The result and the read answers of a run folder, computed from its journal; writes nothing."""
    run, questions = read_run(folder), read_questions(folder)
    return make_result(run, questions, answer_frame(read_journal(folder / "answers.jsonl")[0]), extraction)


def answer_frame(journal: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Journal lines as a frame, one row per (question, sample): the last line of each counts."""
    records = {key_of(record): record for record in journal}
    rows = [
        {
            "question_id": question_id,
            "sample": sample,
            # Lone surrogates (a server may send them escaped) cannot be stored as UTF-8.
            "response": str(record["response"] or "").encode("utf-8", "replace").decode(),
            "status": record["status"],
            "seconds": record.get("seconds"),
            "scores": record.get("scores"),
        }
        for (question_id, sample), record in records.items()
    ]
    return pd.DataFrame(rows, columns=["question_id", "sample", "response", "status", "seconds", "scores"])


def make_result(
    run: Run, questions: pd.DataFrame, journal: pd.DataFrame, extraction: str
) -> tuple[Result, pd.DataFrame]:
    """The result of a run, and its answers with what was read out of each.

    `questions` and `journal` have one row per question and per (question, sample). Rows come out in the order of the questions, so
    the same answers given in another order make the same files. A question without an answer counts as `failed`.
    """
    order = {question_id: position for position, question_id in enumerate(questions["question_id"])}
    asked = pd.MultiIndex.from_product(
        [questions["question_id"], range(run.request.samples)], names=["question_id", "sample"]
    )
    complete = journal.set_index(["question_id", "sample"]).reindex(asked).reset_index()
    complete["response"] = complete["response"].fillna("").astype(str)
    complete["status"] = complete["status"].fillna("failed")
    answers = read_answers(complete, questions, run.benchmark.format, extraction)
    answers = answers.sort_values(
        by=["question_id", "sample"], key=lambda column: column.map(order) if column.name == "question_id" else column
    ).reset_index(drop=True)
    scored = score(run.benchmark.format, questions, answers)
    result = Result(
        kind="measured",
        provenance="submitted",
        benchmark=run.benchmark,
        model=run.model,
        method=run.method.model_copy(update={"extraction": extraction}),
        scores=scored.scores,
        breakdown=scored.breakdown,
        statuses=scored.statuses,
        deviations=run.deviations,
        environment=run.environment,
        command=run.command,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return result, answers


def write_result(folder: Path, result: Result, answers: pd.DataFrame) -> None:
    """Write `answers.parquet`, then `result.json`; each appears whole or not at all."""
    table = pa.Table.from_pylist(
        [{name: _plain(row[name]) for name in ANSWERS_SCHEMA.names} for row in answers.to_dict("records")],
        schema=ANSWERS_SCHEMA,
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    write_atomically(folder / "answers.parquet", buffer.getvalue())
    write_atomically(folder / "result.json", result.to_json().encode())


def _plain(value: Any) -> Any:
    """NaN, which pandas puts where there is nothing, back to None."""
    return None if isinstance(value, float) and math.isnan(value) else value
