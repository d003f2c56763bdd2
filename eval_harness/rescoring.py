"""A run folder scored, or scored again: its journal, its judge where it has one, what its tokens cost. Not here: scoring (`scoring.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from eval_harness.results import Result
from eval_harness.runs import Run, read_journal, read_questions, read_run
from eval_harness.scoring import Reread, answer_frame, make_result, without_judge, write_result


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
    records = read_journal(folder / "answers.jsonl")[0]
    run.environment |= _usage(records, run.environment.get("price_per_million_tokens"))
    return make_result(run, questions, answer_frame(records), extraction, _judge_of(run, folder, extraction))


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
    """Tokens counted by a server, summed over every answer of the journal, and what they cost (`price`: per million, in and out)."""
    counted = [record["usage"] for record in records if record.get("usage")]
    if not counted:
        return {}
    tokens = [sum(usage[side] for usage in counted) for side in (0, 1)]
    found: dict[str, Any] = {"tokens_in": tokens[0], "tokens_out": tokens[1]}
    if price:
        found["cost"] = round(sum(t * p for t, p in zip(tokens, price, strict=True)) / 1e6, 6)
    return found
