"""Answer the browser's requests from the current snapshot: views, trees, details, downloads. Independent of Gradio.

Every answer is computed from one immutable snapshot and remembered by (snapshot, question), so that many readers of the same
selection cost one computation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dataset_builders.errors import BadInput
from eval_harness.records.result import Score
from leaderboard_space import sentences
from leaderboard_space.benchmarks import board_spec
from leaderboard_space.data.board import Board
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.cells import (
    METRICS_FACET,
    Cells,
    breakdown_cells,
    breakdown_facets,
    has_cells,
    scores_by_entry,
)
from leaderboard_space.data.model_names import entry_labels
from leaderboard_space.data.ranks.standings import Row, method_name, metric_info
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.data.tree import branch_name, selection_group_names
from leaderboard_space.export import (
    breakdown_table,
    format_selection,
    leaderboard_table,
    plot_note,
    table_citation,
    table_file,
)
from leaderboard_space.html import text
from leaderboard_space.query import BoardQuery, parse_query
from leaderboard_space.views import plots
from leaderboard_space.views.parts import FIRST, all_rows, set_name
from leaderboard_space.views.tables import breakdown, leaderboard, provenance


def breakdown_html(query: BoardQuery, request: Mapping[str, Any]) -> str:
    """The plots and the breakdown table of a selection, as HTML."""
    one = str(request.get("one") or "")[:1000]  # the cache keeps it
    return _render_breakdown(query, _choose_facet(query, request), one, request.get("all") == "yes")


@cached(COMPUTING)
def _render_breakdown(query: BoardQuery, facet: str, one: str, every: bool) -> str:
    entries = _breakdown_entries(query, facet)
    chosen = entries if every else entries[:FIRST]
    keys = frozenset(entry.key for entry in chosen)
    found, family = query.standings, query.section.family
    about = plot_note(query.section, found, query.branches)
    rows = [row for row in found.standing if row.entry.key in keys]
    stated = _chart_caption(query, rows)
    drawn = _benchmark_plot(query, keys, about) + plots.by_size(rows, query.metric, family, stated, about)
    drawn += plots.by_date(rows, query.metric, family, stated, about)
    if board_spec(query.section.family).by_image_type and (entry := _image_type_entry(query, one)) is not None:
        by_image_type = _image_type_cells(query, frozenset({entry.key}))
        drawn += breakdown.aspects(entry, by_image_type, entry_labels(query.entries))
    cells = _cells(query, facet, keys=keys)
    under = all_rows(len(chosen), len(entries))
    return (
        breakdown.view(
            query.section, cells, found, facet, breakdown_facets(query.section, query.outcomes), chosen, under
        )
        + drawn
    )


def _breakdown_entries(query: BoardQuery, facet: str) -> list[Entry]:
    """The results that the breakdown shows."""
    entries = [entry for entry in query.entries if has_cells(entry, query.outcomes, facet, query.metric)]
    if not query.standings.rows:  # nothing is ranked above: the best in the first column stands first
        known = _cells(query, facet)
        leading = known.get(next(iter(breakdown.columns_of(known, facet)), ""), {})
        sign = -1 if metric_info(query.metric).higher_is_better is not False else 1
        entries.sort(key=lambda entry: sign * (leading[entry.key].value or 0.0) if entry.key in leading else math.inf)
    return entries


def _benchmark_plot(query: BoardQuery, keys: frozenset[str], about: str) -> str:
    """The benchmark's plot of the results `keys`, of the table's own rows; where a selection as a whole has none, that of the largest image
    type in it (papers print by these)."""
    drawn = _plot_entries(query, keys, query.metric, "", about)
    if drawn or not board_spec(query.section.family).by_image_type:
        return drawn
    for branch in plots.image_types(query.tree, query.branches):
        name = branch_name(branch)
        part = replace(query, branches=(branch,)).fitting()
        drawn = _plot_entries(part, keys, query.metric, f"Known by image type only: {name}, the largest.", about)
        if drawn:
            return drawn
    return ""


def _plot_entries(query: BoardQuery, keys: frozenset[str], wanted: str, where: str, about: str) -> str:
    rows = [row for row in query.standings.standing if row.entry.key in keys]

    def known(metric: str) -> dict[str, Score]:
        """A score of every row: the table's where it is the table's score, else that of the same result or of the same model's result
        with the same score, since a paper prints the best over methods without its other scores."""
        if metric == query.metric:
            return {row.entry.key: row.score for row in rows}
        every = scores_by_entry(query.section, query.outcomes, query.tree, metric, query.branches)
        found = {}
        for row in rows:
            same = [row.entry, *(entry for entry in query.section.entries if _has_same_score(entry, row, query.metric))]
            score = next((every[entry.key] for entry in same if entry.key in every), None)
            if score is not None:
                found[row.entry.key] = score
        return found

    stated = f"{where} {_chart_caption(query, rows)}".strip()
    return plots.plot(query.section.family, rows, known, wanted, stated, about)


def _has_same_score(entry: Entry, row: Row, metric: str) -> bool:
    score = entry.result.scores.get(metric)
    return (
        entry.result.model.name == row.entry.result.model.name
        and score is not None
        and score.value is not None
        and abs(score.value - (row.score.value or math.inf)) < 0.005
    )


def _chart_caption(query: BoardQuery, rows: Sequence[Row]) -> str:
    """What a chart is of: the set of questions, the selection and the method."""
    only = f", only {' and '.join(selection_group_names(query.branches))}" if query.branches else ""
    methods = {method_name(row.entry.result.method.name) for row in rows if not row.is_baseline}
    return f"{query.section.title()}{only}, {methods.pop() if len(methods) == 1 else 'each row by its method in the table'}."


def _image_type_entry(query: BoardQuery, wanted: str) -> Entry | None:
    """The result that the table of a single one shows, the first of which anything is known by image type."""
    entries = query.entries
    for entry in breakdown.preferred(entries, wanted, entry_labels(entries)):
        cells = _image_type_cells(query, frozenset({entry.key}))("organ")
        if any(entry.key in held for held in cells.values()):
            return entry
    return None


def _choose_facet(query: BoardQuery, request: Mapping[str, Any]) -> str:
    """The facet to break down by: the requested one, else the first with a known score."""
    facets = breakdown_facets(query.section, query.outcomes)
    if request.get("facet") in facets:
        return str(request["facet"])
    if not query.standings.rows and (parts := query.standings.facets_of_parts(query.branches)):
        return next(facet for facet in facets if facet in parts)  # the parts are the answer
    return next(
        facet
        for facet in facets
        if any(has_cells(entry, query.outcomes, facet, query.metric) for entry in query.section.entries)
    )


def _cells(
    query: BoardQuery,
    facet: str,
    metric: str | None = None,
    keys: frozenset[str] | None = None,
) -> Cells:
    return breakdown_cells(
        query.section, query.outcomes, query.tree, metric or query.metric, facet, query.branches, keys
    )


def _image_type_cells(query: BoardQuery, keys: frozenset[str] | None = None) -> Callable[[str], Cells]:
    return lambda metric: _cells(query, "image_type", metric, keys)


def export_table(query: BoardQuery, request: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """A table and the name of its file. `of`: leaderboard, breakdown or aspects."""
    section, found, of = query.section, query.standings, str(request.get("of") or "leaderboard")
    name, rows = f"{section.benchmark}-{section.key}-{query.metric}", list[dict[str, Any]]()
    if of == "breakdown":
        facet = _choose_facet(query, request)
        metric = None if facet == METRICS_FACET else query.metric
        cells = _cells(query, facet)
        rows = breakdown_table(section, query.entries, facet, cells, metric, query.branches)
        name += f"-by-{facet}"
    elif of == "aspects":
        one = _image_type_entry(query, str(request.get("one") or ""))
        for metric in breakdown.ASPECTS:
            cells = _image_type_cells(query)(metric)
            rows += breakdown_table(section, [one] if one else [], "image_type", cells, metric, query.branches)
        name = f"{section.benchmark}-{section.key}-{one.result.model.name if one else ''}-aspects"
    else:
        rows = leaderboard_table(section, found, query.branches)
    if query.branches:
        name += f"-{format_selection(query.branches)}"
    return rows, name


@cached(COMPUTING)
def _panel(query: BoardQuery, every: bool) -> str:
    return leaderboard.panel(query, query.standings, every)


@cached(COMPUTING)
def _counts(query: BoardQuery) -> dict[str, list[int]]:
    return query.tree.counts(query.branches)


class Service:
    """Answers the board's requests. Thread-safe: many readers, one store."""

    def __init__(self, board: Board) -> None:
        self.board = board

    def view(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The panel of a benchmark: `html`, the `state` as understood, `stamp` of the data, `tree` (key to ask the tree for)."""
        family = str(request.get("format"))
        if self.board.snapshot.section(family, None) is None:
            return {
                "html": leaderboard.empty(family, list(self.board.snapshot.problems)),
                "stamp": self.board.snapshot.stamp,
                "state": {},
                "tree": None,
            }
        if request.get("stamp") is not None and request["stamp"] == self.board.snapshot.stamp:
            return {"unchanged": True}
        wanted = parse_query(self.board, request)
        query = wanted.fitting()
        html = _panel(query, request.get("all") == "yes")
        if query.metric != wanted.metric:
            said = sentences.shown_instead(query.section, wanted.metric, query.metric)
            html = f'<p class="note">{text(said, 300)}</p>' + html
        if query.dropped:
            gone = ", ".join(query.dropped[:5])
            html = f'<p class="note">Not in this question set, therefore ignored: {text(gone, 400)}.</p>' + html
        html = "".join(f'<p class="note">{text(line, 400)}</p>' for line in query.unknown) + html
        state = {
            "section": query.section.key,
            "metric": query.metric,
            "branches": [list(branch) for branch in query.branches],
            "shown": query.shown,
        }
        return {
            "html": html,
            "stamp": query.snapshot.stamp,
            "state": state,
            "tree": f"{query.section.key}@{query.tree.digest}",
            "selected": query.standings.selected,
            "cases": set_name(query.section) if any(entry.answers for entry in query.section.entries) else None,
            "counts": _counts(query),
        }

    def tree(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The facets and branches of a section, for the browser to draw."""
        if self.board.snapshot.section(str(request.get("format")), None) is None:
            return []
        return parse_query(self.board, request).tree.as_json

    def breakdown(self, request: Mapping[str, Any]) -> str:
        """The plots and the breakdown table of a selection, as HTML."""
        if self.board.snapshot.section(str(request.get("format")), None) is None:
            return ""
        return breakdown_html(parse_query(self.board, request), request)

    def detail(self, request: Mapping[str, Any]) -> str:
        """The provenance of one result, as HTML."""
        query = parse_query(self.board, request)
        wanted = str(request.get("key"))
        entry = next((entry for entry in query.section.entries if entry.key == wanted), None)
        if entry is None:
            raise BadInput("this result is no longer on the board. Reload the page.")
        return provenance.detail(entry, query.section, query.metric, query.branches)

    def export(self, request: Mapping[str, Any]) -> dict[str, str]:
        """A table as a file (`name`, `text`, `type`). `of`: leaderboard, breakdown or aspects; `as`: csv or json."""
        table, name = export_table(parse_query(self.board, request), request)
        return table_file(table, name, str(request.get("as")))

    def cite(self, request: Mapping[str, Any]) -> str:
        """How to cite what is shown."""
        query = parse_query(self.board, request)
        return table_citation(query.section, query.standings, query.branches, request)["text"]
