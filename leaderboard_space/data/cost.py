"""Cost of a run's answers: tokens per question, where its answers state them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pyarrow.parquet as pq

from leaderboard_space.data.store.sections import Entry

COLUMNS = ["tokens_in", "tokens_out"]


def tokens_of(entries: Sequence[Entry]) -> dict[str, float]:
    """Entry key -> tokens per answered request, read and written together, of the runs that recorded both for at least half of them."""
    found = {}
    for entry in entries:
        path = entry.answers
        if path is None or entry.result.kind != "measured":
            continue
        try:
            tokens = _tokens(path, path.stat().st_mtime_ns)
        except OSError:
            continue
        if tokens is not None:
            found[entry.key] = tokens
    return found


@lru_cache(maxsize=4096)
def _tokens(path: Path, stamp: int) -> float | None:
    """The mean of a file's sums of tokens; None where it does not say. `stamp`: when the file was changed."""
    try:
        if not set(COLUMNS) <= set(pq.read_schema(path).names):
            return None
        table = pq.read_table(path, columns=COLUMNS).to_pandas()
    except Exception:  # a stranger's file: whatever is wrong with it is said where it is scored
        return None
    known = table.dropna()
    return float(known.sum(axis=1).mean()) if len(known) and 2 * len(known) >= len(table) else None
