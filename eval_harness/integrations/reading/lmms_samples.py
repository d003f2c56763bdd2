"""Reads the samples of lmms-eval (`--log_samples`: `<date>_samples_<task>.jsonl`) of the tasks of `medprobe export-lmms-eval`.

A line has `doc_id`, `target`, `resps` (the raw answer), `filtered_resps` (less what lmms-eval takes for reasoning) and what the task's
`process_results` returned: ours puts the question's id there. There is no finish reason; a dead server leaves rc 0 and a marker in place of
an answer. Format: lmms-eval 0.7.3.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from eval_harness.integrations.described import Described, record_of
from eval_harness.store.untrusted import ProblemList, json_lines

IDS = "medprobe_answer"
"""The key of our task's ids in a line."""
MEGABYTE = 1 << 20


def recognises(path: Path) -> bool:
    """Whether the first line is a sample of lmms-eval."""
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline(64 * MEGABYTE))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and {"doc_id", "target", "filtered_resps"} <= set(first)


def describe(path: Path) -> Described:
    """The samples name neither model nor benchmark."""
    return Described("lmms-eval")


def read(path: Path, questions: pd.DataFrame, found: ProblemList) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(where, question id, journal record) of every line."""
    for where, line in json_lines(path, found):
        ids = line.get(IDS)
        identity = ids.get("question_id") if isinstance(ids, dict) else None
        if identity is None:
            found.add(
                where, f"has no {IDS}.question_id: it was not asked with the tasks of `medprobe export-lmms-eval`"
            )
            continue
        said = record_of(line.get("resps") or line.get("filtered_resps"))
        yield where, identity, said | {"target": line.get("target")}
