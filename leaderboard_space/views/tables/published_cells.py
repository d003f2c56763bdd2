"""The cells that papers print within a selection that cannot be scored as one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eval_harness.results import Score
from leaderboard_space import sentences
from leaderboard_space.data.facets import cells_in
from leaderboard_space.data.published_results import table_of
from leaderboard_space.data.ranks.standings import (
    Standings,
    info_of,
    with_interval,
)
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.data.tree import Path, shown_label
from leaderboard_space.html import count, interval, score_text, text
from leaderboard_space.views.parts import files, sorted_by
from leaderboard_space.views.tables.provenance import source_mark

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
    first = next(iter(cells.values()), {})
    sign = -1 if info_of(found.metric).higher_is_better is not False else 1
    return sorted(
        entries, key=lambda entry: sign * (first[entry.key].value or 0.0) if entry.key in first else math.inf
    ), cells


def printed_table(found: Standings, printed: Printed, family: str) -> str:
    """What papers print within the selection, part by part, as a table; empty where they print nothing."""
    label = info_of(found.metric, family).label
    entries, cells = printed
    if not entries:
        return ""
    rows = ""
    for entry in entries:
        numbers = "".join(
            _published_cell(entry, found.metric, cell, held.get(entry.key)) for cell, held in cells.items()
        )
        tables = {table_of(entry.result, found.metric, *cell) for cell, held in cells.items() if entry.key in held}
        numbered = {table.removeprefix("Table ") for table in tables if table}
        said = ", ".join(sorted(numbered, key=lambda name: (len(name), name)))
        mark = f"published · T{said}" if said else source_mark(entry.result)
        rows += (
            f'<tr><th scope="row">{text(entry.result.model.name, 80)} <small>{text(mark)}</small></th>{numbers}</tr>'
        )
    head = "".join(
        f'<th scope="col" data-sort="{text(value, 200)}"><button type="button" class="sorts">'
        f"<span>{text(shown_label(facet, value), 60)}</span></button><small>n {count(max(score.n for score in held.values()))}</small></th>"
        for (facet, value), held in cells.items()
    )
    return (
        f'<div class="bar-head"><h3 class="cells">{text(label)}: what papers print within the selection, part by part</h3>'
        f'{files("cells")}</div><div class="scroll"><table class="heat" data-table="cells" aria-label="Published cells"><thead><tr>'
        f'<th scope="col" data-sort="model"><button type="button" class="sorts">Model</button></th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _published_cell(entry: Entry, metric: str, cell: tuple[str, str], score: Score | None) -> str:
    if score is None:
        return '<td data-v="">–</td>'
    said = sentences.behind(score.low, score.high, score.n, score.n_cases)
    table = table_of(entry.result, metric, *cell)
    return (
        f'<td{sorted_by(score.value)} title="{text(f"{said}, {table}" if table else said, 200)}">'
        f"{score_text(score.value, info_of(metric).unit)} <small>{interval(score.low, score.high)}</small></td>"
    )
