"""The responses of a run, read from the store when somebody looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataset_builders.errors import BadInput


@lru_cache(maxsize=16)
def _read(path: Path, stamp: int) -> pd.DataFrame:
    table = pq.read_table(path, columns=["question_id", "sample", "response", "choice", "status"]).to_pandas()
    first = table.sort_values("sample", kind="stable").drop_duplicates("question_id")
    return first.set_index("question_id")


def responses(path: Path) -> pd.DataFrame:
    """The first sample of every question: columns `response, choice, status`, index `question_id`.

    Raises BadInput when the file cannot be read.
    """
    try:
        return _read(path, path.stat().st_mtime_ns)
    except Exception as error:  # one damaged file is one line on the page
        raise BadInput(f"{path.parent.name}: its answers cannot be read ({type(error).__name__}).") from None


Answer = tuple[list[int], str, str]
"""The options chosen, the status, and what was said."""
NONE: Answer = ([], "no answer", "")


def answers_to(path: Path, question_ids: Sequence[str]) -> dict[str, Answer]:
    """The first sample's answer to each of a few questions; questions without one are missing.

    Reads just these from the file: a page shows a few questions of many runs, whose whole answers would not stay in memory together.
    Raises BadInput when the file cannot be read.
    """
    try:
        wanted = pc.field("question_id").isin(list(question_ids))
        table = pq.read_table(path, columns=["question_id", "sample", "response", "choice", "status"], filters=wanted)
        rows = sorted(table.to_pylist(), key=lambda row: row["sample"] or 0)
        return {
            str(row["question_id"]): (
                [int(option) for option in row["choice"] or []],
                str(row["status"]),
                str(row["response"] or ""),
            )
            for row in reversed(rows)
        }
    except Exception as error:  # one damaged file is one line on the page
        raise BadInput(f"{path.parent.name}: its answers cannot be read ({type(error).__name__}).") from None
