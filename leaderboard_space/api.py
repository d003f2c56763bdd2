"""The board's API for programs and agents. Independent of Gradio."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from pydantic import ValidationError, validate_call

from dataset_builders.benchmark_names import FORMATS, resolve_name
from dataset_builders.errors import BadInput
from dataset_builders.facets import check_facet_conflicts, parse_facets, resolve_branch
from leaderboard_space.benchmarks import branch_chains
from leaderboard_space.data.board import Board
from leaderboard_space.data.cells import METRICS_FACET, Cells, breakdown_cells, breakdown_facets
from leaderboard_space.data.ranks.standings import ALL_RESULTS, ONE_PER_MODEL, section_metrics
from leaderboard_space.data.store.sections import Section
from leaderboard_space.data.tree import PATH_SEPARATOR, branch_name, display_label
from leaderboard_space.export import breakdown_table, leaderboard_table
from leaderboard_space.query import BoardQuery, parse_query
from leaderboard_space.service import Service
from leaderboard_space.views.tables.unranked import reported_table


def tools(board: Board, service: Service) -> list[Callable[..., Any]]:
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
        query = _tool_query(board, service, benchmark, branches, metric, question_set, every_run, facets)
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
        query = _tool_query(board, service, benchmark, branches, metric, question_set, True, facets)
        facets_with_scores = [name for name in breakdown_facets(query.section, query.outcomes) if name != METRICS_FACET]
        if facet not in facets_with_scores:
            raise BadInput(
                f"facet {facet[:80]!r}: not known for these questions. Available: {', '.join(facets_with_scores) or 'none'}."
            )

        def cells(name: str) -> Cells:
            return breakdown_cells(query.section, query.outcomes, query.tree, name, facet, query.branches)

        scored_metrics = [name for name in query.metrics if cells(name)]
        chosen = query.metric if metric or query.metric in scored_metrics or not scored_metrics else scored_metrics[0]
        if chosen not in scored_metrics:
            raise BadInput(
                f"metric {chosen!r}: has no known scores by {facet} for this selection. Available: {', '.join(scored_metrics) or 'none'}."
            )
        return breakdown_table(query.section, query.section.entries, facet, cells(chosen), chosen, query.branches)

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
    service: Service,
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
