"""Say how many answers the rules did not read, with three of them and the command by which a judge model reads them; and show one of the
answers for which a run has no score."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from eval_harness.derive.files import read_readings
from eval_harness.derive.headline import NoScore, headline
from eval_harness.records.result import Result
from eval_harness.scores.nonresponse import REASONS

SHOWN = 3
LONGEST = 120
"""Answers shown, and characters of each."""
TOLD_FIRST = 0.05
"""Share of unread answers from which on this is told right under the headline score."""


def with_unread(table: str, folder: Path, result: Result) -> str:
    """The printed `table` of a run's scores with what was not read: at its end, or under its first line, the headline score, where that is
    over 5 %. Where that line says why there is no score, one of the answers follows."""
    answers = read_readings(folder, ("response", "reasoning"))
    found = headline(result)
    lines = unread_lines(answers, str(folder), counted=not isinstance(found, NoScore))
    rows = table.split("\n")
    place = 1 if len(unread(answers)) > TOLD_FIRST * len(answers) else len(rows)
    if isinstance(found, NoScore) and found.nonresponse is not None and not (lines and place == 1):
        rows[1:1] = [_example(answers)]
        place += 1
    return "\n".join([*rows[:place], *lines, *rows[place:]])


def _example(answers: pd.DataFrame) -> str:
    """One of the responses that say nothing, of the most frequent reason."""
    silent = answers[answers["status"].isin(REASONS)]
    row = silent[silent["status"] == silent["status"].mode()[0]].iloc[0]
    return f"for example {row['question_id']} ({row['status']}): {_quoted(row['response'] or row['reasoning'] or '')}"


def _quoted(response: str) -> str:
    text = " ".join(response.split())
    return f"{text[:LONGEST]!r}{' ...' if len(text) > LONGEST else ''}" if text else "no text"


def unread(answers: pd.DataFrame) -> pd.DataFrame:
    """The responses that arrived and that neither a rule nor a judge could read."""
    return answers[(answers["status"] == "irrelevant") & (answers["response"].fillna("").str.strip() != "")]


def unread_lines(answers: pd.DataFrame, run: str, counted: bool = True) -> list[str]:
    """How many answers were not read, three of them, and the command that reads them; empty where all were read. `counted`: whether there
    is a score in which they count."""
    rows = unread(answers)
    if rows.empty:
        return []
    share = 100 * len(rows) / len(answers)
    wrong = ", counted as wrong" if counted else ""
    lines = [f"not read: {len(rows):,} of {len(answers):,} answers ({share:.1f} %){wrong}, for instance"]
    for name, response, rule in zip(rows["question_id"], rows["response"], rows["rule"], strict=True):
        lines.append(f"  {name} ({rule}): {_quoted(response)}")
        if len(lines) > SHOWN:
            break
    judged = any(rows["rule"].str.startswith("judge: "))
    return lines if judged else [*lines, f"a judge model can read them: medprobe score {run} --judge openai:NAME"]
