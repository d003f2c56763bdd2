"""Compute scores per facet value or per metric: for breakdowns, topics and model pages."""

from collections.abc import Sequence

import numpy as np

from dataset_builders.benchmarks import FACETS_BY_BENCHMARK
from dataset_builders.facets import UNLABELLED
from eval_harness.records.result import Score
from leaderboard_space.benchmarks import board_spec
from leaderboard_space.data.outcomes import Bools, Outcomes, score_runs
from leaderboard_space.data.ranks.standings import metric_info, own_scores, section_metrics
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.data.tree import Tree, TreePath, selection_cells

METRICS_FACET = "metric"
"""The pseudo-facet whose columns are the metrics themselves (aspects, scenarios)."""
Cells = dict[str, dict[str, Score]]
"""Column -> entry key -> score."""


def breakdown_facets(section: Section, outcomes: Outcomes | None) -> list[str]:
    """List the facets by which a section can be broken down, the benchmark's first facet first.

    These are the source's facets, further facets of results (such as the steps in ProbMed's Table
    6), and METRICS_FACET.
    """
    result_facets = dict.fromkeys(facet for entry in section.entries for facet in entry.result.breakdown)
    facets = FACETS_BY_BENCHMARK.get(section.family, ())
    known_facets = [facet for facet in facets if facet in result_facets or _label_rows(outcomes, facet)]
    known_facets += [facet for facet in result_facets if facet not in facets]
    return sorted([*known_facets, METRICS_FACET], key=lambda facet: facet != board_spec(section.family).first_facet)


def has_cells(entry: Entry, outcomes: Outcomes | None, facet: str, metric: str) -> bool:
    """Return True if a result has a score of `metric` for some value of a facet.

    Papers print each table as a result of its own, so most published results have the cells of few
    facets.
    """
    if facet == METRICS_FACET or _is_computed(entry, outcomes, metric):
        return True
    return any(metric in scores for scores in entry.result.breakdown.get(facet, {}).values())


def _is_computed(entry: Entry, outcomes: Outcomes | None, metric: str) -> bool:
    """Return True if a result's scores are computed from its answers."""
    return outcomes is not None and metric in outcomes.metrics and entry.key in outcomes.row_of


def breakdown_cells(
    section: Section,
    outcomes: Outcomes | None,
    tree: Tree,
    metric: str,
    facet: str,
    branches: Sequence[TreePath],
    keys: frozenset[str] | None = None,
) -> Cells:
    """Compute the scores of a breakdown.

    Args:
        section: The question set.
        outcomes: The set's aligned answers, if any.
        tree: The tree of the set's labels.
        metric: The metric; ignored for METRICS_FACET, whose columns are metrics.
        facet: The facet to break down by.
        branches: The selection; printed scores are used only for cells that lie within it.
        keys: Entry keys of the results; None for all.

    Returns:
        Column -> entry key -> score.
    """
    mask = tree.mask(branches)
    if facet == METRICS_FACET:
        metrics = section_metrics(section, outcomes)
        return {name: scores_by_entry(section, outcomes, tree, name, branches, keys) for name in metrics}
    labels = _label_rows(outcomes, facet)
    cells: Cells = {}
    for label, rows in labels.items():
        # The label's questions that are also in the selection.
        part = np.zeros(len(outcomes.questions) if outcomes else 0, dtype=bool)
        part[rows] = True
        if mask is not None:
            part &= mask
        if part.any():
            cells[label] = _computed_scores(outcomes, metric, part, keys)
    for entry in _select_entries(section, keys):
        # Computed scores take precedence over those in the result file.
        if labels and _is_computed(entry, outcomes, metric):
            continue
        printed = entry.result.breakdown
        inside = set(selection_cells(branches, printed))
        for label, scores in printed.get(facet, {}).items():
            if metric in scores and (not branches or (facet, label) in inside):
                cells.setdefault(label, {}).setdefault(entry.key, scores[metric])
    return cells


def scores_by_entry(
    section: Section,
    outcomes: Outcomes | None,
    tree: Tree,
    metric: str,
    branches: Sequence[TreePath],
    keys: frozenset[str] | None = None,
) -> dict[str, Score]:
    """Compute the scores of a metric on a selection.

    Returns:
        Entry key -> score, for the results that have a known score and, if given, are in `keys`.
    """
    scores = {entry.key: own_scores(entry, branches).get(metric) for entry in _select_entries(section, keys)}
    # Scores computed from answers take precedence over those in the result file.
    own_scores_by_key = {key: score for key, score in scores.items() if score is not None}
    return own_scores_by_key | _computed_scores(outcomes, metric, tree.mask(branches), keys)


def _select_entries(section: Section, keys: frozenset[str] | None) -> list[Entry]:
    """Select the results with these keys; all of them if `keys` is None."""
    return [entry for entry in section.entries if keys is None or entry.key in keys]


def _computed_scores(
    outcomes: Outcomes | None, metric: str, mask: Bools | None, keys: frozenset[str] | None
) -> dict[str, Score]:
    """Score the results that have answers on the questions of `mask`; returns entry key -> score.

    `keys` limits the results; None means all.
    """
    if outcomes is None or metric not in outcomes.metrics:
        return {}
    runs = [row for row, key in enumerate(outcomes.runs) if keys is None or key in keys]
    if not runs:
        return {}
    units = outcomes.metrics[metric].part(outcomes.rows(metric, mask), None if keys is None else np.array(runs))
    scores = score_runs(units, metric_info(metric).higher_is_better)
    return dict(zip((outcomes.runs[row] for row in runs), scores, strict=True))


def _label_rows(outcomes: Outcomes | None, facet: str) -> dict[str, np.ndarray]:
    """Return label -> positions of its questions, without unlabelled questions."""
    if outcomes is None:
        return {}
    return {label: rows for label, rows in outcomes.rows_by_label(facet).items() if label != UNLABELLED}
