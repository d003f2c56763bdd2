"""Read the samples that lmms-eval writes for our tasks (`<date>_samples_<task>.jsonl`).

A line has `doc_id`, `target`, `resps` (the raw answer), `filtered_resps` (less what lmms-eval takes for reasoning) and what the task's
`process_results` returned: ours puts the question's id there. There is no finish reason; a dead server leaves exit code 0 and a marker in
place of an answer. Format: lmms-eval 0.7.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from eval_harness.answer_files.predictions import journal_record
from eval_harness.answer_files.untrusted import ProblemList, iter_json_lines, parse_object

TASK_IDS_KEY = "medprobe_answer"
"""The key of our task's ids in a line."""


def recognises(path: Path) -> bool:
    """True if the first line is a sample of lmms-eval."""
    try:
        with path.open("rb") as file:
            first = parse_object(file.readline(), constants=True)
    except (OSError, ValueError):
        return False
    return {"doc_id", "target", "filtered_resps"} <= set(first)


def iter_answers(path: Path, questions: pd.DataFrame, found: ProblemList) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(where, question id, journal record) of every line."""
    for where, line in iter_json_lines(path, found):
        ids = line.get(TASK_IDS_KEY)
        identity = ids.get("question_id") if isinstance(ids, dict) else None
        if identity is None:
            found.add(
                where,
                f"has no {TASK_IDS_KEY}.question_id: it was not asked with the tasks of `medprobe export-lmms-eval`",
            )
            continue
        record = journal_record(line.get("resps") or line.get("filtered_resps"))
        yield where, identity, record | {"target": line.get("target")}
