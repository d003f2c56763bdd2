"""Validate requests (question set, score, branches of its tree), and compute what the board shows
for them: standings, and scores by facet value or by metric.

See also: answering requests (`service.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dataset_builders.benchmarks import FACETS_BY_BENCHMARK
from dataset_builders.errors import BadInput
from dataset_builders.facets import UNLABELLED
from eval_harness.derive.metrics import HEADLINE_METRICS, METRICS
from eval_harness.records.result import Score
from leaderboard_space.benchmarks import board_spec, gives_away, metric_info
from leaderboard_space.data.board import Board
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.outcomes import Bools, Ints, Outcomes, score_runs
from leaderboard_space.data.sections import ALL_RESULTS, ONE_PER_MODEL, Entry, Section, Snapshot
from leaderboard_space.data.standings import Standings, compute_standings, own_scores
from leaderboard_space.data.tree import PATH_SEPARATOR, Tree, TreePath, branch_name, path_facets, selection_cells

MAX_BRANCHES = 2000
METRICS_FACET = "metric"
"""The pseudo-facet whose columns are the metrics themselves (aspects, scenarios)."""
Cells = dict[str, dict[str, Score]]
"""Column -> entry key -> score."""


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

    @property
    def facets(self) -> list[str]:
        """The facets by which the section can be broken down, the benchmark's first facet first.

        These are the source's facets, further facets of results (such as the steps in ProbMed's
        Table 6), and METRICS_FACET.
        """
        result_facets = dict.fromkeys(facet for entry in self.section.entries for facet in entry.result.breakdown)
        facets = FACETS_BY_BENCHMARK.get(self.section.family, ())
        known_facets = [facet for facet in facets if facet in result_facets or self._label_rows(facet)]
        known_facets += [facet for facet in result_facets if facet not in facets]
        first_facet = board_spec(self.section.family).first_facet
        return sorted([*known_facets, METRICS_FACET], key=lambda facet: facet != first_facet)

    def has_cells(self, entry: Entry, facet: str) -> bool:
        """Return True if a result has a score for some value of a facet.

        Papers print each table as a result of its own, so most published results have the cells of
        few facets.
        """
        if facet == METRICS_FACET or self._is_computed(entry, self.metric):
            return True
        return any(self.metric in scores for scores in entry.result.breakdown.get(facet, {}).values())

    def cells(self, facet: str, metric: str, keys: frozenset[str] | None = None) -> Cells:
        """Compute the scores of a breakdown.

        Args:
            facet: The facet to break down by.
            metric: The metric; ignored for METRICS_FACET, whose columns are metrics.
            keys: Entry keys of the results; None for all.

        Returns:
            Column -> entry key -> score. Printed scores are used only for cells that lie within the
            selection.
        """
        if facet == METRICS_FACET:
            return {name: self.scores(name, keys) for name in section_metrics(self.section, self.outcomes)}
        mask, labels = self.tree.mask(self.branches), self._label_rows(facet)
        cells: Cells = {}
        for label, rows in labels.items():
            # The label's questions that are also in the selection.
            part = np.zeros(self.tree.size, dtype=bool)
            part[rows] = True
            if mask is not None:
                part &= mask
            if part.any():
                cells[label] = self._computed_scores(metric, part, keys)
        for entry in self._select_entries(keys):
            # Computed scores take precedence over those in the result file.
            if labels and self._is_computed(entry, metric):
                continue
            printed = entry.result.breakdown
            inside = set(selection_cells(self.branches, printed))
            for label, scores in printed.get(facet, {}).items():
                if metric in scores and (not self.branches or (facet, label) in inside):
                    cells.setdefault(label, {}).setdefault(entry.key, scores[metric])
        return cells

    def scores(self, metric: str, keys: frozenset[str] | None = None) -> dict[str, Score]:
        """Compute the scores of a metric on the selection.

        Args:
            metric: The metric.
            keys: Entry keys of the results; None for all.

        Returns:
            Entry key -> score, for the results that have a known score.
        """
        scores = {entry.key: own_scores(entry, self.branches).get(metric) for entry in self._select_entries(keys)}
        known_scores = {key: score for key, score in scores.items() if score is not None}
        # Scores computed from answers take precedence over those in the result file.
        return known_scores | self._computed_scores(metric, self.tree.mask(self.branches), keys)

    def _select_entries(self, keys: frozenset[str] | None) -> list[Entry]:
        return [entry for entry in self.section.entries if keys is None or entry.key in keys]

    def _is_computed(self, entry: Entry, metric: str) -> bool:
        """Return True if a result's scores are computed from its answers."""
        return self.outcomes is not None and metric in self.outcomes.metrics and entry.key in self.outcomes.row_of

    def _computed_scores(self, metric: str, mask: Bools | None, keys: frozenset[str] | None) -> dict[str, Score]:
        """Score the results that have answers on the questions of `mask`, by entry key."""
        if self.outcomes is None or metric not in self.outcomes.metrics:
            return {}
        runs = [row for row, key in enumerate(self.outcomes.runs) if keys is None or key in keys]
        if not runs:
            return {}
        rows = self.outcomes.rows(metric, mask)
        units = self.outcomes.metrics[metric].part(rows, None if keys is None else np.array(runs))
        scores = score_runs(units, metric_info(metric).higher_is_better)
        return dict(zip((self.outcomes.runs[row] for row in runs), scores, strict=True))

    def _label_rows(self, facet: str) -> dict[str, Ints]:
        """Return label -> positions of its questions, without unlabelled questions."""
        labels = self.outcomes.rows_by_label(facet) if self.outcomes is not None else {}
        return {label: rows for label, rows in labels.items() if label != UNLABELLED}


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


def section_metrics(section: Section, outcomes: Outcomes | None) -> list[str]:
    """List the metrics that a section can be sorted by.

    They include metrics that papers print only by facet value and, if no result has an overall
    score, those of its cells.

    Args:
        section: The question set.
        outcomes: The set's aligned answers, if any.

    Returns:
        The headline metric first, then the benchmark's aspects, then the others in the order of
        `METRICS`.
    """
    available = _result_metrics(section) | (set(outcomes.metrics) if outcomes else set())
    # Shares of letters describe a response bias; they are not scores to rank by.
    available = {name for name in available if not name.startswith("share_")}
    headline = HEADLINE_METRICS[section.family]
    # A fixed order, so that the default metric never depends on which result came first.
    order = dict.fromkeys((headline, *board_spec(section.family).aspects, *METRICS))
    metrics = [name for name in order if name in available]
    return metrics + sorted(available - set(metrics)) or [headline]


@cached(COMPUTING)  # walks through hundreds of results, and every request needs it
def _result_metrics(section: Section) -> set[str]:
    """Collect the metrics of a section's overall scores.

    Metrics of breakdown cells are added for published results, and for all if no result has an
    overall score.
    """
    overall = {name for entry in section.entries for name in entry.result.scores}
    parted = [entry.result for entry in section.entries if entry.result.provenance == "published" or not overall]
    cells = (cell for result in parted for values in result.breakdown.values() for cell in values.values())
    return overall.union(*cells)


def section_methods(section: Section) -> list[str]:
    """List the methods of a section's results."""
    return sorted({entry.result.method.name for entry in section.entries})


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
