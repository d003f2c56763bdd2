"""A run folder scored, or scored again: its journal, its judge where it has one, what its tokens cost. See also: scoring (`scoring.py`)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from eval_harness.records.result import Result
from eval_harness.runs.folder import Run, read_answer_journal, read_questions, read_run
from eval_harness.runs.scoring import Reread, answer_frame, make_result, without_judge, write_result


def score_run(folder: Path, extraction: str = "ours", judged: bool = True) -> Result:
    """Score the answers of a run folder and write its `result.json` and `answers.parquet`; not `judged`: without the run's judge.

    Raises BadInput when the folder is no run folder or its journal is damaged.
    """
    result, answers = rescore(folder, extraction, judged)
    write_result(folder, result, answers)
    return result


def rescore(folder: Path, extraction: str = "ours", judged: bool = True) -> tuple[Result, pd.DataFrame]:
    """The result and the read answers of a run folder, computed from its journal; writes nothing."""
    run, questions = read_run(folder), read_questions(folder)
    run = run if judged else without_judge(run)
    records = read_answer_journal(folder / "answers.jsonl")
    run.environment |= _usage(records, run.environment.get("price_per_million_tokens"))
    result, answers = make_result(run, questions, answer_frame(records), extraction, _judge_of(run, folder, extraction))
    result.environment |= tokens_and_accuracy(answers, questions)
    return result, answers


def _judge_of(run: Run, folder: Path, extraction: str) -> Reread | None:
    """The judge the run was asked with, its replies kept in the run folder, so that scoring again asks it nothing new."""
    if not run.method.judge:
        return None
    from eval_harness.judge import Judge, read_with_judge

    judge = Judge(run.method.judge["model"], folder / "judge", run.method.judge.get("base_url"))

    def reread(answers: pd.DataFrame, questions: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Any]]:
        read, report = read_with_judge(answers, questions, run.request.method, judge, extraction=extraction)
        return read, report.as_dict()

    return reread


def _usage(records: list[dict[str, Any]], price: list[float] | None) -> dict[str, Any]:
    """Tokens counted by a server, summed over every answer of the journal, and what they cost (`price`: per million, in and out).

    What was kept from earlier runs is counted apart: it costs nothing again.
    """
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


def tokens_and_accuracy(answers: pd.DataFrame, questions: pd.DataFrame) -> dict[str, Any]:
    """Output tokens per answer, and accuracy against them; nothing where they were not counted.

    `tokens_out_per_answer`: quantiles. `accuracy_by_tokens_out`: up to four groups, from the shortest answers to the longest, of about
    as many answers each (answers of one length are never divided):
    the most tokens in the group, its answers, and the percentage of them whose choice is the key (only questions with a known key).
    """
    counted = answers[answers["tokens_out"].notna()] if "tokens_out" in answers else answers.iloc[:0]
    if counted.empty:
        return {}
    tokens = counted["tokens_out"].astype("int64")
    quantiles = {name: float(tokens.quantile(q)) for name, q in (("median", 0.5), ("p90", 0.9), ("max", 1.0))}
    found: dict[str, Any] = {"tokens_out_per_answer": quantiles}
    key = {name: sorted(answer) for name, answer in zip(questions["question_id"], questions["answer"], strict=True)}
    rows = [
        (count, sorted(choice) == key[name])
        for name, choice, count in zip(counted["question_id"], counted["choice"], tokens, strict=True)
        if key.get(name)
    ]
    rows.sort(key=lambda row: row[0])
    size = -(-len(rows) // 4)
    bounds = {rows[min(start + size, len(rows)) - 1][0] for start in range(0, len(rows), size)} if rows else set()
    groups = [[row for row in rows if low < row[0] <= high] for low, high in pairwise([-1, *sorted(bounds)])]
    found["accuracy_by_tokens_out"] = [
        {
            "up_to": int(group[-1][0]),
            "answers": len(group),
            "accuracy": round(100 * sum(right for _, right in group) / len(group), 2),
        }
        for group in groups
    ]
    return found
