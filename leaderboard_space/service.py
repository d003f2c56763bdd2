"""Answer the browser's requests from the current snapshot: views, trees, details, downloads.

Independent of Gradio.

Results are computed from an immutable snapshot and cached, so visitors with the same selection
share one computation.
"""

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
    name_set,
    plot_note,
    set_citation,
    table_file,
)
from leaderboard_space.html import text
from leaderboard_space.query import BoardQuery, parse_query
from leaderboard_space.views import plots
from leaderboard_space.views.parts import MAX_FIRST_RESULTS, all_rows_button, provenance_details, set_name
from leaderboard_space.views.tables import breakdown, leaderboard
from leaderboard_space.views.tables.unranked import reader_groups, readers_part, reported_parts, reported_table


@cached(COMPUTING)
def _render_breakdown(query: BoardQuery, facet: str, result_name: str, every: bool) -> str:
    # A long table is drawn in part; the charts show the same rows.
    entries = _breakdown_entries(query, facet)
    shown_entries = entries if every else entries[:MAX_FIRST_RESULTS]
    keys = frozenset(entry.key for entry in shown_entries)
    standings, family = query.standings, query.section.family
    note = plot_note(query.section, standings, query.branches)
    # Results without cells in this facet have a score all the same.
    rows = standings.standing if every else standings.standing[:MAX_FIRST_RESULTS]
    caption = _chart_caption(query, rows)
    charts = _benchmark_plot(query, keys, note) + plots.by_size(rows, query.metric, family, caption, note)
    # What other sources report is never drawn; the chart by date says so, as its models are newer.
    left_out_note, reported = reported_parts(family) if query.section.is_official else ("", "")
    charts += plots.by_date(rows, query.metric, family, f"{caption}{left_out_note}", note)
    if board_spec(query.section.family).by_image_type and (entry := _image_type_entry(query, result_name)) is not None:
        by_image_type = _image_type_cells(query, frozenset({entry.key}))
        charts += breakdown.aspects_table(entry, by_image_type, entry_labels(query.entries))
    cells = _cells(query, facet, keys=keys)
    footer = all_rows_button(len(shown_entries), len(entries))
    return (
        breakdown.view(
            query.section,
            cells,
            standings,
            facet,
            breakdown_facets(query.section, query.outcomes),
            shown_entries,
            footer,
        )
        + charts
        + reported
    )


def _breakdown_entries(query: BoardQuery, facet: str) -> list[Entry]:
    """Select the results that have cells in the breakdown, in the order of the table."""
    entries = [entry for entry in query.entries if has_cells(entry, query.outcomes, facet, query.metric)]
    if not query.standings.rows:  # no order from the table above: sort by the first column
        cells = _cells(query, facet)
        first_column = cells.get(next(iter(breakdown.known_columns(cells, facet)), ""), {})
        sign = -1 if metric_info(query.metric).higher_is_better is not False else 1
        entries.sort(
            key=lambda entry: sign * (first_column[entry.key].value or 0.0) if entry.key in first_column else math.inf
        )
    return entries


def _benchmark_plot(query: BoardQuery, keys: frozenset[str], note: str) -> str:
    """Render the plot that is specific to the benchmark, for the rows of the table.

    If the whole selection cannot be plotted, plot its largest image type, because papers print
    scores by image type.
    """
    chart = _plot_entries(query, keys, query.metric, "", note)
    if chart or not board_spec(query.section.family).by_image_type:
        return chart
    # The largest image type first.
    for branch in plots.image_types(query.tree, query.branches):
        name = branch_name(branch)
        part = replace(query, branches=(branch,)).fitting()
        chart = _plot_entries(part, keys, query.metric, f"Known by image type only: {name}, the largest.", note)
        if chart:
            return chart
    return ""


def _plot_entries(query: BoardQuery, keys: frozenset[str], plot_metric: str, prefix: str, note: str) -> str:
    rows = [row for row in query.standings.standing if row.entry.key in keys]

    def known(metric: str) -> dict[str, Score]:
        """Return the scores of all rows, by entry key.

        A row without the metric uses another result of the same model with the same score: papers
        print their best over methods without its other metrics.
        """
        if metric == query.metric:
            return {row.entry.key: row.score for row in rows}
        scores_by_key = scores_by_entry(query.section, query.outcomes, query.tree, metric, query.branches)
        scores = {}
        for row in rows:
            candidates = [
                row.entry,
                *(entry for entry in query.section.entries if _has_same_score(entry, row, query.metric)),
            ]
            score = next((scores_by_key[entry.key] for entry in candidates if entry.key in scores_by_key), None)
            if score is not None:
                scores[row.entry.key] = score
        return scores

    caption = f"{prefix} {_chart_caption(query, rows)}".strip()
    return plots.plot(query.section.family, rows, known, plot_metric, caption, note)


def _has_same_score(entry: Entry, row: Row, metric: str) -> bool:
    score = entry.result.scores.get(metric)
    return (
        entry.result.model.name == row.entry.result.model.name
        and score is not None
        and score.value is not None
        # Printed scores have at most two decimals.
        and abs(score.value - (row.score.value or math.inf)) < 0.005
    )


def _chart_caption(query: BoardQuery, rows: Sequence[Row]) -> str:
    """Describe a chart: question set, selection and method."""
    only = f", only {' and '.join(selection_group_names(query.branches))}" if query.branches else ""
    methods = {method_name(row.entry.result.method.name) for row in rows if not row.is_reference}
    return f"{query.section.title()}{only}, {methods.pop() if len(methods) == 1 else 'each row by its method in the table'}."


def _image_type_entry(query: BoardQuery, result_name: str) -> Entry | None:
    """Choose the result of the single-result table: the first with scores by image type."""
    entries = query.entries
    for entry in breakdown.order_preferred(entries, result_name, entry_labels(entries)):
        cells = _image_type_cells(query, frozenset({entry.key}))("organ")
        if any(entry.key in scores for scores in cells.values()):
            return entry
    return None


def _choose_facet(query: BoardQuery, request: Mapping[str, Any]) -> str:
    """Choose the facet to break down by: the requested one, else the first with a known score."""
    facets = breakdown_facets(query.section, query.outcomes)
    if request.get("facet") in facets:
        return str(request["facet"])
    if not query.standings.rows and (parts := query.standings.facets_of_parts(query.branches)):
        return next(facet for facet in facets if facet in parts)  # only parts have scores
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
    """Build a table for download.

    Args:
        query: The selection.
        request: `of`: leaderboard, breakdown, aspects or reported; `facet`, `one`.

    Returns:
        The rows and the file name without extension.
    """
    section, standings, table = query.section, query.standings, str(request.get("of") or "leaderboard")
    name, rows = f"{section.benchmark}-{section.key}-{query.metric}", list[dict[str, Any]]()
    if table == "breakdown":
        facet = _choose_facet(query, request)
        metric = None if facet == METRICS_FACET else query.metric
        cells = _cells(query, facet)
        rows = breakdown_table(section, query.entries, facet, cells, metric, query.branches)
        name += f"-by-{facet}"
    elif table == "aspects":
        entry = _image_type_entry(query, str(request.get("one") or ""))
        for metric in breakdown.ASPECT_METRICS:
            cells = _image_type_cells(query)(metric)
            rows += breakdown_table(section, [entry] if entry else [], "image_type", cells, metric, query.branches)
        name = f"{section.benchmark}-{section.key}-{entry.result.model.name if entry else ''}-aspects"
    elif table == "reported":
        return reported_table(section.family), f"{section.family}-reported"
    else:
        rows = leaderboard_table(section, standings, query.branches)
    if query.branches:
        name += f"-{format_selection(query.branches)}"
    return rows, name


@cached(COMPUTING)
def _counts(query: BoardQuery) -> dict[str, list[int]]:
    return query.tree.counts(query.branches)


class Service:
    """Answers the requests of benchmark pages. Thread-safe."""

    def __init__(self, board: Board) -> None:
        self.board = board

    def view(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Render a benchmark's panel.

        Args:
            request: As for `parse_query`; `stamp` of the data shown, `all` (yes: all rows).

        Returns:
            `html`, the `state` as understood, `stamp` of the data, `tree` (cache key of the tree),
            `counts` and others; only `unchanged` if the request's stamp is current.
        """
        family = str(request.get("format"))
        if self.board.snapshot.section(family, None) is None:
            return {
                "html": leaderboard.empty_panel(family, list(self.board.snapshot.problems)),
                "stamp": self.board.snapshot.stamp,
                "state": {},
                "tree": None,
            }
        # The browser polls with the stamp of what it shows.
        if request.get("stamp") is not None and request["stamp"] == self.board.snapshot.stamp:
            return {"unchanged": True}
        requested = parse_query(self.board, request)
        query = requested.fitting()
        readers = readers_part(reader_groups(self.board, query.snapshot, query.section))
        notes = list(query.unknown)
        if query.dropped:
            notes.append(f"Not in this question set, therefore ignored: {', '.join(query.dropped[:5])}.")
        if query.metric != requested.metric:
            notes.append(sentences.substitute_metric_note(query.section, requested.metric, query.metric))
        note_html = "".join(f'<p class="note">{text(note, 400)}</p>' for note in notes)
        state = {
            "section": query.section.key,
            "metric": query.metric,
            "branches": [list(branch) for branch in query.branches],
            "shown": query.result_filter,
        }
        return {
            "html": note_html + leaderboard.panel(query, request.get("all") == "yes") + readers,
            "stamp": query.snapshot.stamp,
            "state": state,
            "tree": f"{query.section.key}@{query.tree.digest}",
            "selected": query.standings.selected,
            "cases": set_name(query.section) if any(entry.answers for entry in query.section.entries) else None,
            "counts": _counts(query),
        }

    def tree(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the facets and branches of a section for the browser."""
        if self.board.snapshot.section(str(request.get("format")), None) is None:
            return []
        return parse_query(self.board, request).tree.as_json

    def breakdown(self, request: Mapping[str, Any]) -> str:
        """Render the plots and the breakdown table of a selection, and what other sources report.

        Args:
            request: As for `parse_query`; `facet`, `one` (the result of the single-result table),
                `all` (yes: all rows).
        """
        if self.board.snapshot.section(str(request.get("format")), None) is None:
            return ""
        query = parse_query(self.board, request)
        result_name = str(request.get("one") or "")[:1000]  # bounded, since the cache keeps it
        return _render_breakdown(query, _choose_facet(query, request), result_name, request.get("all") == "yes")

    def detail(self, request: Mapping[str, Any]) -> str:
        """Render the provenance of one result. Raises BadInput if it is no longer on the board."""
        query = parse_query(self.board, request)
        key = str(request.get("key"))
        entry = next((entry for entry in query.section.entries if entry.key == key), None)
        if entry is None:
            raise BadInput("this result is no longer on the board. Reload the page.")
        return provenance_details(entry, query.section, query.metric, query.branches)

    def export(self, request: Mapping[str, Any]) -> dict[str, str]:
        """Export a table (`name`, `text`, `type`).

        `of`: leaderboard, breakdown, aspects or reported; `as`: csv or json.
        """
        table, name = export_table(parse_query(self.board, request), request)
        return table_file(table, name, str(request.get("as")))

    def cite(self, request: Mapping[str, Any]) -> str:
        """Return the citation of the table shown."""
        query = parse_query(self.board, request)
        title = f"{name_set(query.section)}: {query.metric}"
        note = f"Selection: {format_selection(query.branches) or 'everything'}."
        entries = [row.entry for row in query.standings.rows]
        return set_citation(query.section, title, note, entries, request)["text"]
