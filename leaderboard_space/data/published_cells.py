"""The cells that papers print within a selection that cannot be scored as one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eval_harness.records.result import Score
from leaderboard_space.data.facets import cells_in
from leaderboard_space.data.ranks.standings import Standings, info_of, with_interval
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.data.tree import Path

Printed = tuple[list[Entry], dict[tuple[str, str], dict[str, Score]]]
"""Results, and the cells that they print: (facet, value) -> entry key -> score."""


def published_cells(found: Standings, branches: Sequence[Path]) -> Printed:
    """The cells that papers print within a selection that cannot be scored as one."""
    cells: dict[tuple[str, str], dict[str, Score]] = {}
    for entry in found.hidden:
        for facet, value in cells_in(branches, entry.result.breakdown):
            score = entry.result.breakdown[facet][value].get(found.metric)
            if score is not None and score.value is not None:
                cells.setdefault((facet, value), {})[entry.key] = with_interval(score, found.metric)
    entries = [entry for entry in found.hidden if any(entry.key in held for held in cells.values())]
    leading = next(iter(cells.values()), {})
    sign = -1 if info_of(found.metric).higher_is_better is not False else 1
    return sorted(
        entries, key=lambda entry: sign * (leading[entry.key].value or 0.0) if entry.key in leading else math.inf
    ), cells
