"""The responses of a run, read from the store when somebody looks at them. Not here: scoring them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pandas as pd
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
