"""Validate the browser's requests: a benchmark's section, a metric of it, branches of its tree.

See also: how it is answered (`service.py`).
"""

from __future__ import annotations

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
    """A request of the browser, checked: the section it names exists, the metric and branches are there."""

    snapshot: Snapshot
    section: Section
    outcomes: Outcomes | None
    tree: Tree
    metric: str
    metrics: list[str] = field(compare=False)
    branches: tuple[TreePath, ...]
    shown: str
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What could not be read of the section, one line each."""
    dropped: tuple[str, ...] = field(default=(), compare=False)
    unknown: tuple[str, ...] = field(default=(), compare=False)
    """What the request names and the board does not know, one line each."""

    @property
    @cached(COMPUTING)
    def standings(self) -> Standings:
        """The ranked rows."""
        return compute_standings(self.section, self.outcomes, self.tree, self.metric, self.branches, self.shown)

    @property
    def entries(self) -> list[Entry]:
        """The results shown, in the order of the table, then those of which this selection says nothing as a whole."""
        return [*(row.entry for row in self.standings.standing), *self.standings.hidden]

    def fitting(self) -> BoardQuery:
        """The same with the first score of which something is known for the selection, where nothing is known of the wanted one: no
        choice of branches empties the board as long as anything is known of them."""
        are_measured = all(entry.result.kind == "measured" for entry in self.section.entries)
        if are_measured and self.tree.size and not self.standings.selected:
            return self  # no question, no score
        by_metric = (replace(self, metric=metric) for metric in dict.fromkeys((self.metric, *self.metrics)))
        return next((query for query in by_metric if query.has_scores), self)

    @property
    def has_scores(self) -> bool:
        """True if a score of the selection is known, or a printed cell within it (of everything: any cell)."""
        scores = [row.score for row in self.standings.rows]
        if any(score.value is not None or score.nonresponse is not None for score in scores):
            return True
        return bool(self.standings.facets_of_parts(self.branches))


def parse_query(board: Board, request: Mapping[str, Any]) -> BoardQuery:
    """A request, checked against what is there; what it does not say is chosen. Raises BadInput for a benchmark without results."""
    snapshot = board.snapshot
    section = snapshot.section(str(request.get("format")), request.get("section"))
    if section is None:
        raise BadInput(f"benchmark {request.get('format')!r}: this board has no results for it.")
    wanted = _parse_branches(request.get("branches"))
    outcomes, tree = board.outcomes(section)
    branches = tuple(path for path in wanted if path in tree.rows or tree.is_unprinted(path))
    dropped = tuple(branch_name(branch) for branch in wanted if branch not in branches)
    metrics = rankable_metrics(section, outcomes, branches)
    wanted_shown = str(request.get("shown"))
    shown = wanted_shown if wanted_shown == ALL_RESULTS or wanted_shown in section_methods(section) else ONE_PER_MODEL
    metric = str(request.get("metric"))
    unknown = [
        f"{what} {request[key]}: not on this board. Another one is shown."
        for what, key, known in (
            ("Set of questions", "section", str(request.get("section")) == section.key),
            ("Score", "metric", metric in metrics),
            ("Results", "shown", wanted_shown == shown),
        )
        if request.get(key) and not known
    ]
    if metric not in metrics:
        metric = metrics[0] if metrics else metric
    notes = board.notes(section)
    return BoardQuery(
        snapshot, section, outcomes, tree, metric, metrics, branches, shown, notes, dropped, tuple(unknown)
    )


def rankable_metrics(section: Section, outcomes: Outcomes | None, branches: Sequence[TreePath]) -> list[str]:
    """The scores that a selection can be ranked by: those that its labels do not give away."""
    facets = [facet for branch in branches for facet in path_facets(section.family, branch)]
    found = [name for name in section_metrics(section, outcomes) if not gives_away(section.family, name, facets)]
    return found or [name for name in METRICS if not gives_away(section.family, name, facets)][:1]


def parse_selection(request: Mapping[str, Any]) -> list[TreePath]:
    """The selection that an address names (`views.parts.selection_address`)."""
    named = [str(one) for key in ("branch", "facet") for one in as_list(request.get(key))]
    return [
        (facet, *labels.split(PATH_SEPARATOR)) for facet, _, labels in (one.partition(":") for one in named) if labels
    ]


def as_list(value: Any) -> list[Any]:
    """What an address says once or several times under a key."""
    return value if isinstance(value, list) else [value] if value else []


def _parse_branches(value: Any) -> list[TreePath]:
    """Paths (facet, label, ...) from whatever the browser sent; anything else is dropped."""
    if not isinstance(value, list):
        return []
    found = [
        tuple(str(part) for part in branch)
        for branch in value[:MAX_BRANCHES]
        if isinstance(branch, list | tuple) and 2 <= len(branch) <= 6
    ]
    return list(dict.fromkeys(found))
