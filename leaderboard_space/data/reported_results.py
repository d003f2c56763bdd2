"""Numbers on the benchmarks that other sources report, without answers that could be scored again.

They are rows of `published/reported.csv` and never become results, so nothing can rank, average,
plot or join them with the numbers of the board. See also: published answers that were scored again
(`published_results.py`).
"""

from __future__ import annotations

from functools import cache

from leaderboard_space.data.published_results import CsvRow, read_table, sources

NOT_STATED = "not stated"
GROUP_COLUMNS = ("split", "model", "metric", "facet", "facet_value")
"""Rows of a benchmark that are equal in these columns stand side by side."""


@cache
def reported_groups(family: str) -> tuple[tuple[CsvRow, ...], ...]:
    """Return what other sources report on a benchmark: the rows of each model, split and score.

    Args:
        family: Key of the benchmark.

    Returns:
        One tuple of rows per group, in the order of the table. Each row has the columns of
        `reported.csv` and those of its source (`sources.csv`).
    """
    groups: dict[tuple[str, ...], list[CsvRow]] = {}
    for row in read_table("reported"):
        if row["benchmark"] == family:
            # The row's own date and id take precedence over those of the source.
            groups.setdefault(tuple(row[name] for name in GROUP_COLUMNS), []).append(sources()[row["source"]] | row)
    return tuple(map(tuple, groups.values()))


def spread(rows: tuple[CsvRow, ...]) -> float:
    """Return the points between the lowest and the highest value of a group."""
    values = [float(row["value"]) for row in rows]
    return max(values) - min(values)
