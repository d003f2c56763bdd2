"""Validate the browser's requests: question set, metric, and branches of its tree.

See also: answering them (`service.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dataset_builders.errors import BadInput
from eval_harness.derive.metrics import METRICS
from leaderboard_space.benchmarks import gives_away
from leaderboard_space.data.board import Board
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.outcomes import Outcomes
from leaderboard_space.data.ranks.standings import (
    ALL_RESULTS,
    ONE_PER_MODEL,
    Standings,
    compute_standings,
    section_methods,
    section_metrics,
)
from leaderboard_space.data.store.sections import Entry, Section, Snapshot
from leaderboard_space.data.tree import PATH_SEPARATOR, Tree, TreePath, branch_name, path_facets

MAX_BRANCHES = 2000


@dataclass(frozen=True)
class BoardQuery:
    """A validated request.

    Queries with the same selection are equal, so that they share cached results.
    """

    snapshot: Snapshot
    section: Section
    outcomes: Outcomes | None
    tree: Tree
    metric: str
    metrics: list[str] = field(compare=False)
    branches: tuple[TreePath, ...]
    result_filter: str
    notes: tuple[str, ...] = field(default=(), compare=False)
    """Files of the section that could not be read, one line each."""
    dropped: tuple[str, ...] = field(default=(), compare=False)
    unknown: tuple[str, ...] = field(default=(), compare=False)
    """Values in the request that the board does not know, one line each."""

    @property
    @cached(COMPUTING)
    def standings(self) -> Standings:
        """The standings of the selection, cached."""
        return compute_standings(self.section, self.outcomes, self.tree, self.metric, self.branches, self.result_filter)

    @property
    def entries(self) -> list[Entry]:
        """The results in the order of the table, then those without a score on the selection."""
        return [*(row.entry for row in self.standings.standing), *self.standings.hidden]

    def fitting(self) -> "BoardQuery":
        """Fall back to the first metric with a known score, so that no selection with known scores
        shows an empty board.

        Returns:
            A query with a known metric; this query if no metric is known, or no question is
            selected.
        """
        are_measured = all(entry.result.kind == "measured" for entry in self.section.entries)
        if are_measured and self.tree.size and not self.standings.selected:
            return self  # no question, no score
        by_metric = (replace(self, metric=metric) for metric in dict.fromkeys((self.metric, *self.metrics)))
        return next((query for query in by_metric if query.has_scores), self)

    @property
    def has_scores(self) -> bool:
        """True if any result has a score on the selection, or a printed cell within it."""
        scores = [row.score for row in self.standings.rows]
        if any(score.value is not None or score.nonresponse is not None for score in scores):
            return True
        return bool(self.standings.facets_of_parts(self.branches))


def parse_query(board: Board, request: Mapping[str, Any]) -> BoardQuery:
    """Validate a request and fill in defaults.

    Args:
        board: The board.
        request: `format` (the benchmark), `section`, `metric`, `branches`, `shown`.

    Returns:
        The query. Unknown values are replaced by defaults and reported in `unknown` and `dropped`.

    Raises:
        BadInput: If the board has no results for the benchmark.
    """
    snapshot = board.snapshot
    section = snapshot.section(str(request.get("format")), request.get("section"))
    if section is None:
        raise BadInput(f"benchmark {request.get('format')!r}: this board has no results for it.")
    requested_branches = _parse_branches(request.get("branches"))
    outcomes, tree = board.outcomes(section)
    # A facet without printed scores can be selected too: the page then says what is missing.
    branches = tuple(path for path in requested_branches if path in tree.rows or tree.is_unprinted(path))
    dropped = tuple(branch_name(branch) for branch in requested_branches if branch not in branches)
    metrics = rankable_metrics(section, outcomes, branches)
    requested_filter = str(request.get("shown"))
    result_filter = (
        requested_filter
        if requested_filter == ALL_RESULTS or requested_filter in section_methods(section)
        else ONE_PER_MODEL
    )
    metric = str(request.get("metric"))
    # Old links must keep working: values that are gone are replaced and reported, never an error.
    unknown = [
        f"{noun} {request[key]}: not on this board. Another one is shown."
        for noun, key, is_valid in (
            ("Set of questions", "section", str(request.get("section")) == section.key),
            ("Score", "metric", metric in metrics),
            ("Results", "shown", requested_filter == result_filter),
        )
        if request.get(key) and not is_valid
    ]
    if metric not in metrics:
        metric = metrics[0] if metrics else metric
    notes = board.notes(section)
    return BoardQuery(
        snapshot, section, outcomes, tree, metric, metrics, branches, result_filter, notes, dropped, tuple(unknown)
    )


def rankable_metrics(section: Section, outcomes: Outcomes | None, branches: Sequence[TreePath]) -> list[str]:
    """List the metrics that a selection can be ranked by: those whose answer its labels do not give
    away.
    """
    facets = [facet for branch in branches for facet in path_facets(section.family, branch)]
    metrics = [name for name in section_metrics(section, outcomes) if not gives_away(section.family, name, facets)]
    return metrics or [name for name in METRICS if not gives_away(section.family, name, facets)][:1]


def parse_selection(request: Mapping[str, Any]) -> list[TreePath]:
    """Parse the selection in an address (`views.parts.selection_address`)."""
    paths = [str(path) for key in ("branch", "facet") for path in as_list(request.get(key))]
    return [
        (facet, *labels.split(PATH_SEPARATOR)) for facet, _, labels in (path.partition(":") for path in paths) if labels
    ]


def as_list(value: Any) -> list[Any]:
    """Return the values of an address parameter that may occur once or several times."""
    return value if isinstance(value, list) else [value] if value else []


def _parse_branches(value: Any) -> list[TreePath]:
    """Parse paths (facet, label, ...) from untrusted JSON; anything else is dropped."""
    if not isinstance(value, list):
        return []
    branches = [
        tuple(str(part) for part in branch)
        for branch in value[:MAX_BRANCHES]
        if isinstance(branch, list | tuple) and 2 <= len(branch) <= 6
    ]
    return list(dict.fromkeys(branches))
