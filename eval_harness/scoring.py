"""From answers to a result: read the responses, score them, write `result.json` and `answers.parquet`.

Rescoring the same answers gives the same result, but for its time stamp. Not here: extraction (`answers.py`), formulas (`scores/`).
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from eval_harness.answers import read_answers
from eval_harness.requests import original, rotation, shown
from eval_harness.results import Result
from eval_harness.runs import Run, key_of, read_journal, read_questions, read_run, write_atomically
from eval_harness.scores import score

if TYPE_CHECKING:
    from eval_harness.judge import Judge

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
    records = read_journal(folder / "answers.jsonl")[0]
    run.environment |= _usage(records, run.environment.get("price_per_million_tokens"))
    return make_result(run, questions, answer_frame(records), extraction, _judge_of(run, folder))


def _judge_of(run: Run, folder: Path) -> Judge | None:
    """The judge the run was asked with, its replies kept in the run folder, so that scoring again asks it nothing new."""
    if not run.method.judge:
        return None
    from eval_harness.judge import Judge

    return Judge(run.method.judge["model"], folder / "judge", run.method.judge.get("base_url"))


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
    run: Run, questions: pd.DataFrame, journal: pd.DataFrame, extraction: str, judge: Judge | None = None
) -> tuple[Result, pd.DataFrame]:
    """The result of a run, and its answers with what was read out of each.

    `questions` and `journal` have one row per question and per (question, sample). Rows come out in the order of the questions, so
    the same answers given in another order make the same files. `judge` reads what the rules leave unread, and free-form answers.
    A question without an answer counts as `failed`.
    """
    order = {question_id: position for position, question_id in enumerate(questions["question_id"])}
    asked = pd.MultiIndex.from_product(
        [questions["question_id"], range(run.request.samples)], names=["question_id", "sample"]
    )
    complete = journal.set_index(["question_id", "sample"]).reindex(asked).reset_index()
    complete["response"] = complete["response"].fillna("").astype(str)
    complete["status"] = complete["status"].fillna("failed")
    if run.request.permute:
        answers = _read_permuted(complete, questions, run.benchmark.format, extraction)
    else:
        answers = read_answers(complete, questions, run.benchmark.format, extraction)
    method = run.method.model_copy(update={"extraction": extraction})
    if judge is not None:
        from eval_harness.judge import read_with_judge

        answers, report = read_with_judge(answers, questions, run.request.method, judge, extraction=extraction)
        method.judge = report.as_dict()
    answers = answers.sort_values(
        by=["question_id", "sample"], key=lambda column: column.map(order) if column.name == "question_id" else column
    ).reset_index(drop=True)
    scored = score(run.benchmark.format, questions, answers)
    result = Result(
        kind="measured",
        provenance="submitted",
        benchmark=run.benchmark,
        model=run.model,
        method=method,
        scores=scored.scores,
        breakdown=scored.breakdown,
        statuses=scored.statuses,
        deviations=run.deviations,
        environment=run.environment | (_by_option_or_letter(answers, questions) if run.request.permute else {}),
        command=run.command,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return result, answers


def _read_permuted(complete: pd.DataFrame, questions: pd.DataFrame, format: str, extraction: str) -> pd.DataFrame:
    """Answers of a `--permute` run: each sample is read with its options in the order shown, its choice told in the question's own."""
    parts = []
    counts = dict(zip(questions["question_id"], questions["options"].map(len), strict=True))
    for sample, given in complete.groupby("sample", sort=True):
        turn = int(str(sample))
        options = [shown(options, rotation(turn, len(options))) for options in questions["options"]]
        turned = questions.assign(options=pd.Series(options, index=questions.index, dtype=object))
        read = read_answers(given, turned, format, extraction)
        read["choice"] = [
            [original(int(position), rotation(turn, counts[question]), counts[question]) for position in choice]
            for question, choice in zip(read["question_id"], read["choice"], strict=True)
        ]
        parts.append(read)
    return pd.concat(parts, ignore_index=True)


def _by_option_or_letter(answers: pd.DataFrame, questions: pd.DataFrame) -> dict[str, Any]:
    """Is the answer the option or the letter? Shares (percent) of the questions answered in every option order: `same_option` chose the
    same option throughout, `same_letter` the same letter."""
    counts = dict(zip(questions["question_id"], questions["options"].map(len), strict=True))
    option, letter, asked = 0, 0, 0
    for question, given in answers.groupby("question_id"):
        k = counts[question]
        rows = given[given["sample"] < k]
        if len(rows) < k or k < 2 or not all(len(choice) == 1 for choice in rows["choice"]):
            continue
        asked += 1
        picks = [int(choice[0]) for choice in rows["choice"]]
        letters = [(pick - rotation(int(sample), k)) % k for pick, sample in zip(picks, rows["sample"], strict=True)]
        option += len(set(picks)) == 1
        letter += len(set(letters)) == 1
    share = {"same_option": option, "same_letter": letter}
    return {
        "permuted": {name: 100 * count / asked if asked else None for name, count in share.items()}
        | {"questions": asked}
    }


def _usage(records: list[dict[str, Any]], price: list[float] | None) -> dict[str, Any]:
    """Tokens counted by a server, summed over every answer of the journal, and what they cost (`price`: per million, in and out)."""
    counted = [record["usage"] for record in records if record.get("usage")]
    if not counted:
        return {}
    tokens = [sum(usage[side] for usage in counted) for side in (0, 1)]
    found: dict[str, Any] = {"tokens_in": tokens[0], "tokens_out": tokens[1]}
    if price:
        found["cost"] = round(sum(t * p for t, p in zip(tokens, price, strict=True)) / 1e6, 6)
    return found


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
