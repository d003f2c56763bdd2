"""Read the samples that lmms-eval writes for our tasks (`<date>_samples_<task>.jsonl`).

A line has `doc_id`, `target`, `resps` (the raw answer), `filtered_resps` (the answer without what
lmms-eval takes for reasoning) and the output of the task's `process_results`, in which our tasks
store the question id. There is no finish reason. If the server dies, lmms-eval exits with code 0
and stores a marker instead of an answer.

Format: lmms-eval 0.7.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from eval_harness.answer_files.predictions import journal_record
from eval_harness.answer_files.untrusted import ProblemList, iter_json_lines, parse_object

TASK_IDS_KEY = "medprobe_answer"
"""The key under which our tasks store their ids in a line."""


def recognises(path: Path) -> bool:
    """Return True if the first line is an lmms-eval sample."""
    try:
        with path.open("rb") as file:
            first_record = parse_object(file.readline(), constants=True)
    except (OSError, ValueError):
        return False
    return {"doc_id", "target", "filtered_resps"} <= set(first_record)


def iter_answers(
    path: Path, questions: pd.DataFrame, problems: ProblemList
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield (location, question id, journal record) for every line.

    A line of another task is reported as a problem.
    """
    for location, line in iter_json_lines(path, problems):
        ids = line.get(TASK_IDS_KEY)
        question_id = ids.get("question_id") if isinstance(ids, dict) else None
        if question_id is None:
            problems.add(
                location,
                f"has no {TASK_IDS_KEY}.question_id: not made with the tasks of `medprobe export-lmms-eval`",
            )
            continue
        record = journal_record(line.get("resps") or line.get("filtered_resps"))
        yield location, question_id, record | {"target": line.get("target")}
