"""Draw what each difference between two results is worth, as bars that add up.

See also: the causes (`eval_harness/store/causes.py`), the page Compare (`compare.py`).
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

from dataset_builders.errors import BadInput
from eval_harness.benchmarks import eval_spec
from eval_harness.store.causes import ANSWERS, Explanation, explain
from eval_harness.store.comparison import load_side
from leaderboard_space import sentences
from leaderboard_space.comparing import Comparison
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.store.sections import Section
from leaderboard_space.export import Table
from leaderboard_space.html import count, number, text
from leaderboard_space.views.tables.table import column, name_column, titled_table


def cause_rows(comparison: Comparison) -> Table:
    """List the causes of the difference of two results, and last what is left to different answers.

    Empty without a cause, and for a selection of questions or results without answers.
    """
    entries = comparison.chosen
    metrics = eval_spec(comparison.section.family).metrics
    is_verified = all(entry.folder is not None and entry.derived == entry.folder for entry in entries)
    if len(entries) != 2 or comparison.query.branches or comparison.metric not in metrics or not is_verified:
        return []
    explanation = _explain(comparison.section, entries[0].folder, entries[1].folder, comparison.metric)
    if explanation is None or not explanation.causes:
        return []
    rows: Table = [vars(cause) for cause in explanation.causes]
    last_row = {"factor": ANSWERS, "points": explanation.different_points, "answers": explanation.n_different}
    return [*rows, last_row | {"detail": sentences.format_difference_interval(explanation.low, explanation.high)}]


@cached(COMPUTING)
def _explain(section: Section, folder_a: Path | None, folder_b: Path | None, metric: str) -> Explanation | None:
    """Explain the difference of two results of a section; None if it cannot be derived."""
    try:
        return explain(load_side(str(folder_a), list), load_side(str(folder_b), list), metric)
    except BadInput:
        return None


def causes(comparison: Comparison) -> str:
    """Draw the table of `cause_rows`; "" if it is empty.

    Each bar begins where the one above it ends, so the last one ends at the difference.
    """
    rows = cause_rows(comparison)
    if not rows:
        return ""
    ends = [0.0, *accumulate(float(row["points"]) for row in rows)]
    low, width = min(ends), max(ends) - min(ends) or 1.0
    row_number = {row["factor"]: at for at, row in enumerate(rows)}

    def bar(row: dict[str, object]) -> str:
        at = row_number[row["factor"]]
        start, end = sorted(100 * (edge - low) / width for edge in ends[at : at + 2])
        tone = "better" if ends[at + 1] >= ends[at] else "worse"
        style = f"left:{start:.2f}%;width:{end - start:.2f}%"
        return f'<span class="track v-{tone}" aria-hidden="true"><i class="bar" style="{style}"></i></span>'

    # Without keys: sorted bars would not begin where the last one ended.
    columns = [
        name_column("Cause", lambda row: text(row["factor"], 80)),
        column("Points", lambda row: number(row["points"])),
        column("Each bar begins where the last one ended", bar),
        column("Answers", lambda row: count(row["answers"])),
        column("", lambda row: text(row["detail"], 200)),
    ]
    title = f"Why first − second is {ends[-1]:+.1f} points"
    return titled_table(title, "causes", columns, rows)
