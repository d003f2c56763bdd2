"""Say how many answers the rules did not read, with three of them and the command by which a judge model reads them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from eval_harness.benchmarks import spec
from eval_harness.derive.files import read_readings
from eval_harness.records.result import Result

SHOWN = 3
LONGEST = 120
"""Answers shown, and characters of each."""
TOLD_FIRST = 0.05
"""Share of unread answers from which on this is told right under the headline score."""


def with_unread(table: str, folder: Path, result: Result) -> str:
    """The printed `table` of a run's scores with what was not read: at its end, or under the headline metric where that is over 5 %."""
    answers = read_readings(folder)
    lines = unread_lines(answers, str(folder))
    if not lines:
        return table
    rows = table.split("\n")
    place = len(rows) - 1
    if len(unread(answers)) > TOLD_FIRST * len(answers):
        headline = f"{spec(result.benchmark.family).headline} "
        place = next((at for at, row in enumerate(rows) if row.startswith(headline)), place)
    return "\n".join([*rows[: place + 1], *lines, *rows[place + 1 :]])


def unread(answers: pd.DataFrame) -> pd.DataFrame:
    """The responses that arrived and that neither a rule nor a judge could read."""
    return answers[(answers["status"] == "irrelevant") & (answers["response"].fillna("").str.strip() != "")]


def unread_lines(answers: pd.DataFrame, run: str) -> list[str]:
    """How many answers were not read, three of them, and the command that reads them; empty where all were read."""
    rows = unread(answers)
    if rows.empty:
        return []
    share = 100 * len(rows) / len(answers)
    lines = [f"not read: {len(rows):,} of {len(answers):,} answers ({share:.1f} %), counted as wrong, for instance"]
    for name, response, rule in zip(rows["question_id"], rows["response"], rows["rule"], strict=True):
        text = " ".join(response.split())
        lines.append(f"  {name} ({rule}): {text[:LONGEST]!r}{' ...' if len(text) > LONGEST else ''}")
        if len(lines) > SHOWN:
            break
    judged = any(rows["rule"].str.startswith("judge: "))
    return lines if judged else [*lines, f"a judge model can read them: medprobe score {run} --judge openai:NAME"]
