"""Answer requests from the current snapshot: the browser's (`Service`: views, trees, details,
downloads) and those of programs and agents (`tools`).

Independent of Gradio. Results are computed from an immutable snapshot and cached, so visitors with
the same selection share one computation.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any

from pydantic import ValidationError, validate_call

from dataset_builders.benchmark_names import FORMATS, resolve_name
from dataset_builders.errors import BadInput
from dataset_builders.facets import check_facet_conflicts, parse_facets, resolve_branch
from eval_harness.records.result import Score
from leaderboard_space import sentences
from leaderboard_space.benchmarks import board_spec, branch_chains, method_name, metric_info
from leaderboard_space.data.board import Board
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.sections import ALL_RESULTS, ONE_PER_MODEL, Entry, Row, Section, entry_labels
from leaderboard_space.data.tree import PATH_SEPARATOR, branch_name, display_label, selection_group_names
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
from leaderboard_space.query import METRICS_FACET, BoardQuery, parse_query, section_metrics
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
        by_image_type = partial(query.cells, "image_type", keys=frozenset({entry.key}))
        charts += breakdown.aspects_table(entry, by_image_type, entry_labels(query.entries))
    cells = query.cells(facet, query.metric, keys)
    footer = all_rows_button(len(shown_entries), len(entries))
    return (
        breakdown.view(
            query.section,
            cells,
            standings,
            facet,
            query.facets,
            shown_entries,
            footer,
        )
        + charts
        + reported
    )


def _breakdown_entries(query: BoardQuery, facet: str) -> list[Entry]:
    """Select the results that have cells in the breakdown, in the order of the table."""
    entries = [entry for entry in query.entries if query.has_cells(entry, facet)]
    if not query.standings.rows:  # no order from the table above: sort by the first column
        cells = query.cells(facet, query.metric)
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
        scores_by_key = query.scores(metric)
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
        cells = query.cells("image_type", "organ", frozenset({entry.key}))
        if any(entry.key in scores for scores in cells.values()):
            return entry
    return None


def _choose_facet(query: BoardQuery, request: Mapping[str, Any]) -> str:
    """Choose the facet to break down by: the requested one, else the first with a known score."""
    if request.get("facet") in query.facets:
        return str(request["facet"])
    if not query.standings.rows and (parts := query.standings.facets_of_parts(query.branches)):
        return next(facet for facet in query.facets if facet in parts)  # only parts have scores
    return next(
        facet for facet in query.facets if any(query.has_cells(entry, facet) for entry in query.section.entries)
    )


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
        cells = query.cells(facet, query.metric)
        rows = breakdown_table(section, query.entries, facet, cells, metric, query.branches)
        name += f"-by-{facet}"
    elif table == "aspects":
        entry = _image_type_entry(query, str(request.get("one") or ""))
        for metric in breakdown.ASPECT_METRICS:
            cells = query.cells("image_type", metric)
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


def tools(board: Board) -> list[Callable[..., Any]]:
    """Create the functions of the API; callers see their names, types and docstrings."""

    def question_sets() -> list[dict[str, Any]]:
        """List the question sets on this board: benchmark, key, split, kind (complete, unconfirmed,
        sample, partial, custom, phantom, retired), numbers of questions and results, and the
        metrics they can be ranked by.
        """
        return [
            {
                "benchmark": section.family,
                "question_set": section.key,
                "split": section.split,
                "kind": section.kind,
                "questions": section.questions,
                "results": len(section.entries),
                "metrics": section_metrics(section, board.outcomes(section)[0]),
            }
            for section in board.snapshot.all_sections
        ]

    def leaderboard(
        benchmark: str,
        branches: list[str] | None = None,
        metric: str = "",
        question_set: str = "",
        every_run: bool = False,
        facets: list[str] | None = None,
    ) -> list[dict[str, Any]]:
        """List the results of a benchmark for a selection of questions, best first: score with 95 %
        interval, n, chance, verdict, possible ranks, abstention rate and accuracy of answered
        questions, submitter and date, number of runs tried, and source. `group`: "ranked", or why a
        result is listed separately ("official reader" and "judge model" are ranked among
        themselves; "no score", "outdated" and "withdrawn" are not ranked); `judge`: the judge model
        and its prompt; `no_score`: why it has neither verdict nor rank.

        Args:
            benchmark: name of a benchmark, like mediconfusion
            branches: like "Ophthalmology > Fundus Photography" or "task: Counting": those of one
                subject (department, task, granularity, organ, ...) are united, those of different
                subjects intersected; none means everything
            metric: name of a metric; the benchmark's headline metric if empty
            question_set: key from question_sets; the complete official set if empty
            every_run: every result instead of one per model and account
            facets: labels that narrow the selection, like "modality=CT": labels of one facet are
                alternatives (or), different facets must all match (and)
        """
        query = _tool_query(board, benchmark, branches, metric, question_set, every_run, facets)
        table = leaderboard_table(query.section, query.standings, query.branches)
        # An empty list would read as "no results"; say where the numbers are.
        if not table:
            raise BadInput(
                f"metric {query.metric!r}: papers print it, if at all, only for parts of this selection, and no answers are known. "
                "`breakdown` gives the parts."
            )
        return table

    def branches_of(benchmark: str, question_set: str = "", contains: str = "") -> list[str]:
        """List the branches of a question set, in the form that `leaderboard` accepts (at most
        200).

        Args:
            benchmark: name of a benchmark, like mediconfusion
            question_set: key from question_sets; the complete official set if empty
            contains: a part of the branch's name; every branch if empty
        """
        section = _find_section(board, benchmark, question_set)
        _, tree = board.outcomes(section)
        lowered, subjects = contains.strip().lower(), {chain[0] for chain in branch_chains(section.family)}
        matches = [
            f"{path[0]}: {PATH_SEPARATOR.join(path[1:])}"
            for path in tree.rows
            if path[0] in subjects and (lowered in path[-1].lower() or lowered in branch_name(path).lower())
        ]
        # An agent's context is limited; `contains` narrows the list.
        return matches[:200]

    def breakdown(
        benchmark: str,
        facet: str,
        metric: str = "",
        branches: list[str] | None = None,
        question_set: str = "",
        facets: list[str] | None = None,
    ) -> list[dict[str, Any]]:
        """List scores per value of a facet (category, department, modality, task, image_type,
        organ, scenario, ...): one row per result and value, with 95 % interval, n, chance and the
        table or run that the number comes from.

        Args:
            benchmark: name of a benchmark, like mediconfusion
            facet: what to break down by; an unknown one is answered with the list of facets
            metric: name of a metric; the benchmark's headline metric if empty
            branches: break down only this selection; none means everything
            question_set: key from question_sets; the complete official set if empty
            facets: labels that narrow the selection, like "modality=CT": labels of one facet are
                alternatives (or), different facets must all match (and)
        """
        query = _tool_query(board, benchmark, branches, metric, question_set, True, facets)
        facets_with_scores = [name for name in query.facets if name != METRICS_FACET]
        if facet not in facets_with_scores:
            raise BadInput(
                f"facet {facet[:80]!r}: not known for these questions. Available: {', '.join(facets_with_scores) or 'none'}."
            )

        scored_metrics = [name for name in query.metrics if query.cells(facet, name)]
        chosen = query.metric if metric or query.metric in scored_metrics or not scored_metrics else scored_metrics[0]
        if chosen not in scored_metrics:
            raise BadInput(
                f"metric {chosen!r}: has no known scores by {facet} for this selection. Available: {', '.join(scored_metrics) or 'none'}."
            )
        cells = query.cells(facet, chosen)
        return breakdown_table(query.section, query.section.entries, facet, cells, chosen, query.branches)

    def reported(benchmark: str) -> list[dict[str, Any]]:
        """List numbers on a benchmark that other sources report, without answers that could be
        scored again: who ran the model, with what, on how many questions, and where it is printed.
        They are not results of this board and must not be ranked or averaged with them.

        Args:
            benchmark: name of a benchmark, like mediconfusion
        """
        return reported_table(resolve_name(benchmark, FORMATS, "benchmark"))

    return [_validate_arguments(tool) for tool in (question_sets, leaderboard, branches_of, breakdown, reported)]


def _tool_query(
    board: Board,
    benchmark: str,
    branches: list[str] | None,
    metric: str,
    question_set: str,
    every_run: bool,
    facets: list[str] | None,
) -> BoardQuery:
    """Convert the arguments of a call to a query.

    If no metric is given, one with known scores is used.

    Raises:
        BadInput: If a name is not on the board.
    """
    section = _find_section(board, benchmark, question_set)
    _, tree = board.outcomes(section)
    chains = branch_chains(section.family)
    paths = [
        path for branch in branches or () for path in resolve_branch(tree.rows, chains, branch, display=display_label)
    ]
    labels_by_facet = {facet: [node.label for node in nodes] for facet, nodes in tree.facets}
    labels = parse_facets(facets or [], labels_by_facet)
    check_facet_conflicts(paths, [facet for facet, _ in labels])
    query = parse_query(
        board,
        {
            "format": section.family,
            "section": section.key,
            "metric": metric,
            "branches": [*paths, *labels],
            "shown": ALL_RESULTS if every_run else ONE_PER_MODEL,
        },
    )
    # A page may show a similar metric instead; a program needs the one it asked for, or an error.
    if metric and query.metric != metric:
        raise BadInput(
            f"metric {metric[:80]!r}: not known here, or given away by the selection. Available: {', '.join(query.metrics)}."
        )
    return query if metric else query.fitting()


def _find_section(board: Board, benchmark: str, question_set: str) -> Section:
    """Find a question set. Raises BadInput if it is not on the board."""
    family = resolve_name(benchmark, FORMATS, "benchmark")
    section = board.snapshot.section(family, question_set or None)
    if section is None and not question_set:
        raise BadInput(f"benchmark {family!r}: this board has no results for it.")
    if section is None or (question_set and section.key != question_set):
        raise BadInput(f"question_set {question_set[:80]!r}: not on this board. `question_sets` names them.")
    return section


def _validate_arguments(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Validate a function's argument types; raises BadInput for an invalid one."""
    # pydantic reports types; callers get one line instead of its report.
    validated = validate_call(tool)

    @wraps(tool)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return validated(*args, **kwargs)
        except ValidationError as error:
            first_error = error.errors()[0]
            raise BadInput(f"{first_error['loc'][0]}: {first_error['msg']}.") from None

    return call
