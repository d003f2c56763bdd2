"""The table of cells that papers print within a selection that cannot be scored as one (`standings.published_cells`)."""

from __future__ import annotations

from eval_harness.records.result import Score
from leaderboard_space import sentences
from leaderboard_space.data.published_results import table_of
from leaderboard_space.data.ranks.standings import (
    Printed,
    Standings,
    info_of,
)
from leaderboard_space.data.result_names import source_mark
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.data.tree import shown_label
from leaderboard_space.html import count, interval, score_text, text
from leaderboard_space.views.parts import files, sorted_by
from leaderboard_space.views.tables.row_window import Value, Window, first, matching, more, search_field


def printed_table(found: Standings, printed: Printed, family: str, window: Window) -> str:
    """What papers print within the selection, part by part, as a table; empty where they print nothing."""
    label = info_of(found.metric, family).label
    entries, cells = printed
    if not entries:
        return ""
    of_column = {value: held for (_, value), held in reversed(cells.items())}

    def value_of(entry: Entry, column: str) -> Value:
        score = of_column.get(column, {}).get(entry.key)
        return entry.result.model.name.lower() if column == "model" else score.value if score is not None else None

    held = matching(window, entries, lambda entry: entry.result.model.name)
    drawn = first(window, "cells", held, value_of)
    rows = ""
    for entry in drawn:
        numbers = "".join(
            _published_cell(entry, found.metric, cell, scores.get(entry.key)) for cell, scores in cells.items()
        )
        tables = {table_of(entry.result, found.metric, *cell) for cell, scores in cells.items() if entry.key in scores}
        numbered = {table.removeprefix("Table ") for table in tables if table}
        said = ", ".join(sorted(numbered, key=lambda name: (len(name), name)))
        mark = f"published · T{said}" if said else source_mark(entry.result)
        rows += (
            f'<tr><th scope="row">{text(entry.result.model.name, 80)} <small>{text(mark)}</small></th>{numbers}</tr>'
        )
    sizes = {cell: count(max(score.n for score in scores.values())) for cell, scores in cells.items()}
    head = "".join(
        f'<th scope="col" data-sort="{text(value, 200)}"><button type="button" class="sorts">'
        f"<span>{text(shown_label(facet, value), 60)}</span></button><small>n {size}</small></th>"
        for (facet, value), size in sizes.items()
    )
    field = "" if found.rows else search_field(window, len(entries))  # else it stands above the ranking
    return (
        f'<div class="bar-head"><h3 class="cells">{text(label)}: what papers print within the selection, part by part</h3>'
        f'{files("cells")}</div>{field}<div class="scroll"><table class="heat" data-table="cells" aria-label="Published cells">'
        f'<thead><tr><th scope="col" data-sort="model"><button type="button" class="sorts">Model</button></th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{more(window, len(drawn), len(held), len(entries))}"
    )


def _published_cell(entry: Entry, metric: str, cell: tuple[str, str], score: Score | None) -> str:
    if score is None:
        return '<td data-v="">–</td>'
    said = sentences.behind(score)
    table = table_of(entry.result, metric, *cell)
    return (
        f'<td{sorted_by(score.value)} title="{text(f"{said}, {table}" if table else said, 200)}">'
        f"{score_text(score.value, info_of(metric).unit)} <small>{interval(score.low, score.high, score.chance)}</small></td>"
    )
