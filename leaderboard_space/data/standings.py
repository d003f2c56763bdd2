"""The standings of a section on a selection: one row per result, with its score, verdict, and
possible ranks; and how much of each score comes from the images, known from runs of the same model
without the correct images.

See also: the mathematics (`outcomes.py`, `eval_harness.scores.comparisons`,
`eval_harness.store.sight`), sentences (`headlines.py`), HTML (`views/`).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.benchmarks import eval_spec
from eval_harness.records.result import Images, Result, Score, Scores
from eval_harness.scores.comparisons import compute_rank_ranges, compute_unpaired_differences
from eval_harness.scores.intervals import INTERVAL_METHOD, printed_interval
from eval_harness.store.sight import ImageShare, Sight, answered_share, compute_sight, read_arm_identity
from leaderboard_space.benchmarks import metric_info
from leaderboard_space.data.cache import READING, cached
from leaderboard_space.data.outcomes import Bools, Floats, MetricUnits, Outcomes, pairwise_p_values, score_runs
from leaderboard_space.data.published_results import map_scores, rename_error_shares
from leaderboard_space.data.sections import (
    ALL_RESULTS,
    GROUP_HEADINGS,
    ONE_PER_MODEL,
    RANKED_GROUPS,
    Entry,
    Owner,
    Row,
    Section,
    preference_key,
    ranking_group,
    row_owner,
)
from leaderboard_space.data.tree import Tree, TreePath, group_by_subject, selection_cells


@dataclass(frozen=True)
class Standings:
    """Ranked results. `rows`: best first; `hidden`: without a score on the selection; `selected`:
    number of questions.
    """

    metric: str
    rows: list[Row]
    hidden: list[Entry] = field(default_factory=list)
    selected: int = 0
    one_per_model: bool = False
    pairs: list[tuple[dict[str, int], Floats]] = field(default_factory=list, compare=False, repr=False)
    """For each ranked group: entry key -> position, and the (M, M) p-values of all pairs, corrected
    for multiplicity."""

    def corrected(self, keys: Sequence[str]) -> tuple[Floats, int] | None:
        """Return the p-values between some results, corrected for all comparisons of their ranking.

        Args:
            keys: Entry keys of K results.

        Returns:
            The (K, K) p-values and the number of models ranked; None if the results are not ranked
            together.
        """
        for position, p in self.pairs:
            if all(key in position for key in keys):
                at = [position[key] for key in keys]
                return p[np.ix_(at, at)], len(p)
        return None

    @property
    def models(self) -> list[Row]:
        """The rows of the main group that have a value and are not baselines."""
        return [
            row for row in self.rows if row.group == "ranked" and not row.is_reference and row.score.value is not None
        ]

    @property
    def standing(self) -> list[Row]:
        """All rows except withdrawn ones."""
        return [row for row in self.rows if row.group != "withdrawn"]

    def facets_of_parts(self, branches: Sequence[TreePath]) -> set[str]:
        """Return the facets by which hidden results have scores within the selection."""
        return {
            facet
            for entry in self.hidden
            for facet, label in cells_within(entry, branches)
            if (score := entry.result.breakdown[facet][label].get(self.metric)) is not None and score.value is not None
        }


def compute_standings(
    section: Section,
    outcomes: Outcomes | None,
    tree: Tree,
    metric: str,
    branches: Sequence[TreePath] = (),
    result_filter: str = ALL_RESULTS,
) -> Standings:
    """Score and rank the results of a section on a selection of questions.

    Results with answers are scored from them; for others, the result's own number is used, or the
    published cell that is exactly the selection.

    Args:
        section: The question set.
        outcomes: The set's aligned answers, if any.
        tree: The tree of the set's labels.
        metric: The metric to rank by.
        branches: The selection; all questions if empty.
        result_filter: ALL_RESULTS, ONE_PER_MODEL (`one_per_model`), or the name of a method.

    Raises:
        BadInput: If a branch is unknown.
    """
    mask = tree.mask(branches)
    info = metric_info(metric)
    higher = info.higher_is_better is not False
    measured: dict[str, Score] = {}
    units: MetricUnits | None = None
    if outcomes is not None and metric in outcomes.metrics:
        units = outcomes.metrics[metric].part(outcomes.rows(metric, mask))
        measured = dict(zip(outcomes.runs, score_runs(units, info.higher_is_better), strict=True))
    extras = _extras_by_entry(outcomes, mask)
    tried, account_tries = count_runs(section), count_account_tries(section)
    rows: list[Row] = []
    hidden: list[Entry] = []
    everything = result_filter in (ALL_RESULTS, ONE_PER_MODEL)
    for entry in section.entries:
        if not everything and result_filter != entry.result.method.name:
            continue
        key = entry.key
        score = measured.get(key)
        entry_scores = {} if score is not None else own_scores(entry, branches)
        if score is None and (score := entry_scores.get(metric)) is None:
            hidden.append(entry)
            continue
        abstained, answered, ends = extras.get(key) or _printed_extras(entry_scores)
        rows.append(
            Row(
                entry,
                score,
                from_answers=key in measured,
                group=ranking_group(entry),
                tried=tried.get(row_owner(entry), 1),
                account_tries=account_tries[entry.account] if entry.account and not entry.is_reference else 0,
                abstained=abstained,
                answered_accuracy=answered,
                ends=ends,
            )
        )
    rows = one_per_model(rows) if result_filter == ONE_PER_MODEL else rows
    # Mark silent runs only now: in a group of their own they would have got a second row for their
    # model.
    rows = [
        replace(row, group="no score") if row.score.nonresponse is not None and row.group in RANKED_GROUPS else row
        for row in rows
    ]
    ordered: list[Row] = []
    pairs: list[tuple[dict[str, int], Floats]] = []
    for group in GROUP_HEADINGS:
        part = [row for row in rows if row.group == group]
        if (
            group in RANKED_GROUPS and info.higher_is_better is not None
        ):  # without a better direction there are no ranks
            part, position, corrected = _rank_rows(part, units, outcomes, higher, info.unit == "count")
            pairs.append((position, corrected))
        ordered += sorted(part, key=lambda row: _sort_key(row, higher))
    selected = int(mask.sum()) if mask is not None else section.questions
    return Standings(metric, ordered, hidden, selected, result_filter == ONE_PER_MODEL, pairs)


RowExtras = tuple[float | None, float | None, tuple[int, ...]]
"""(abstained in percent, accuracy of answered questions in percent, response outcome counts), as in
`Row`."""


def _printed_extras(scores: Scores) -> RowExtras:
    abstained, answered = scores.get("abstained"), scores.get("answered_accuracy")
    return abstained.value if abstained else None, answered.value if answered else None, ()


def _extras_by_entry(outcomes: Outcomes | None, mask: Bools | None) -> dict[str, RowExtras]:
    """Compute entry key -> `RowExtras` on a selection, from the answers."""
    if outcomes is None or "abstained" not in outcomes.metrics:
        return {}
    abstained, answered = (
        outcomes.metrics[name].part(outcomes.rows(name, mask)) for name in ("abstained", "answered_accuracy")
    )
    percents = [
        [round(100 * value, 10) if math.isfinite(value) else None for value in units.shares().tolist()]
        for units in (abstained, answered)
    ]
    return dict(zip(outcomes.runs, zip(*percents, map(tuple, abstained.ended.tolist()), strict=True), strict=True))


def count_runs(section: Section) -> Counter[Owner]:
    """Count the runs of each model and account on these questions, over all methods, including
    withdrawn ones.
    """
    return Counter(row_owner(entry) for entry in section.entries if entry.result.kind == "measured")


def count_account_tries(section: Section) -> Counter[str]:
    """Count the results of each account on these questions, over all models, including withdrawn
    ones; empty if one account submitted all of them, as in a store of one's own.

    The best of many tries is too high by chance, whatever names they were submitted under.
    """
    tries = Counter(
        entry.account
        for entry in section.entries
        if entry.result.kind == "measured" and entry.account and not entry.is_reference
    )
    return tries if len(tries) > 1 else Counter()


def one_per_model(rows: list[Row]) -> list[Row]:
    """Keep one row per model, account and group, so that models are compared rather than runs.

    `sections.preference_key` decides which; a row without a score represents its model only if no
    row has one.
    """
    chosen: dict[tuple[object, ...], Row] = {}
    scored_first = sorted(
        rows,
        key=lambda row: (row.score.value is None or row.score.nonresponse is not None, preference_key(row.entry)),
    )
    for row in scored_first:
        chosen.setdefault((row.group, *row_owner(row.entry)), row)
    return list(chosen.values())


def own_scores(entry: Entry, branches: Sequence[TreePath]) -> Scores:
    """Return a result's own scores for a selection: overall, or the breakdown cell that is exactly
    the selection.
    """
    if not branches:
        return entry.result.scores
    cell = own_cell(entry, branches)
    return entry.result.breakdown[cell[0]][cell[1]] if cell else {}


def cells_within(entry: Entry, branches: Sequence[TreePath]) -> list[tuple[str, str]]:
    """List the (facet, value) cells of a result's breakdown within a selection; all cells without a
    selection.
    """
    breakdown = entry.result.breakdown
    if branches:
        return selection_cells(branches, breakdown)
    return [(facet, label) for facet, labels in breakdown.items() for label in labels]


def own_cell(entry: Entry, branches: Sequence[TreePath]) -> tuple[str, str] | None:
    """Return the (facet, value) cell of a result's breakdown that is exactly the selection; None
    without one.
    """
    if not branches or not entry.result.breakdown or len(branches) != len(group_by_subject(branches)):
        return None
    cells = selection_cells(branches, entry.result.breakdown)
    return cells[0] if len(cells) == 1 else None


def prepare_result(result: Result) -> Result:
    """Return a result as the board shows it.

    Error shares get their own metric name (`rename_error_shares`), and a percentage without an
    interval gets one from its number of cases, since nothing is known about shared images. Counts
    get none.
    """
    renamed = result.model_copy(update={"breakdown": rename_error_shares(result.breakdown)})
    return map_scores(renamed, lambda score, place: _with_interval(score, place[-1]))


def _with_interval(score: Score, metric: str) -> Score:
    if score.value is None or score.low is not None or score.n_cases <= 0 or not 0 <= score.value <= 100:
        return score
    if metric_info(metric).unit != "percent":
        return score
    interval = printed_interval(score.value, score.n_cases)
    ends = {"low": 100 * interval.low, "high": 100 * interval.high, "n_effective": interval.n_effective}
    return score.model_copy(update=ends | {"interval_method": INTERVAL_METHOD})


def _rank_rows(
    rows: list[Row], units: MetricUnits | None, outcomes: Outcomes | None, higher: bool, are_counts: bool
) -> tuple[list[Row], dict[str, int], Floats]:
    """Rank the models among `rows`. Baselines have no rank and do not count in the correction.

    Args:
        rows: The rows of one group.
        units: The selected units of the metric, if answers are known.
        outcomes: The aligned answers, if any.
        higher: True if higher scores are better.
        are_counts: True if the metric is a count.

    Returns:
        The rows with ranks, entry key -> position, and the corrected (M, M) p-values
        (`Standings.pairs`).
    """
    # Results with too few independent cases get no rank and do not count in the correction.
    models = [row for row in rows if not row.is_reference and row.score.value is not None and not row.score.is_small]
    computed_rows = [position for position, row in enumerate(models) if row.from_answers and not are_counts]
    p: Floats = np.ones((len(models), len(models)))
    # Unpaired tests are needed only if some scores do not come from answers.
    if len(computed_rows) < len(models):
        p = compute_unpaired_differences([row.score for row in models], are_counts)[2]
    # Runs with answers on the same questions are tested in pairs, all others as independent
    # samples.
    if computed_rows and units is not None and outcomes is not None:
        runs = [outcomes.row_of[models[position].entry.key] for position in computed_rows]
        block = np.ix_(computed_rows, computed_rows)
        p[block] = pairwise_p_values(units.part(runs=np.array(runs)))
    values: Floats = np.array([row.score.value for row in models], dtype=float)
    ranks = compute_rank_ranges(values, p, higher)
    position = {row.entry.key: at for at, row in enumerate(models)}

    def ranked(row: Row, at: int) -> Row:
        return replace(row, best_rank=int(ranks.best_rank[at]), worst_rank=int(ranks.worst_rank[at]))

    with_ranks = [ranked(row, position[row.entry.key]) if row.entry.key in position else row for row in rows]
    return with_ranks, position, ranks.corrected


def _sort_key(row: Row, higher: bool) -> tuple[bool, float, str]:
    value = row.score.value
    if value is None:
        return (True, 0.0, row.entry.result.model.name.lower())
    return (False, -value if higher else value, row.entry.result.model.name.lower())


UNIT_COLUMNS = ["metric", "unit", "cluster", "numerator", "denominator"]


def image_arms(section: Section, entry: Entry) -> Mapping[Images, Entry]:
    """Find the runs that differ from a result only in the images shown.

    Returns:
        Image condition -> run; empty for a published number.
    """
    if not section.arms or entry.derived is None:
        return {}
    identity_of_entry = _identity(entry.derived)
    return {
        arm.result.method.image: arm
        for identity, arm in _arms_with_identity(section)
        if identity_of_entry and identity == identity_of_entry
    }


@cached(READING)
def _arms_with_identity(section: Section) -> list[tuple[tuple[str | None, ...] | None, Entry]]:
    return [(_identity(arm.derived), arm) for arm in section.arms if arm.derived is not None]


def metric_sights(section: Section, metric: str) -> Mapping[str, Sight]:
    """Return the image effect of each result in one metric, on all questions of a section, by entry
    key.
    """
    return section_sights(section).get(metric, {})


@cached(READING)
def section_sights(section: Section) -> Mapping[str, Mapping[str, Sight]]:
    """Compare the results of a section with their arms in every metric.

    The board calls it in advance, so that no visitor waits for the files.

    Returns:
        Metric -> entry key -> image effect.
    """
    by_metric: dict[str, dict[str, Sight]] = {}
    for entry in section.entries if section.arms else ():
        for metric, sight in _entry_sights(section, entry).items():
            by_metric.setdefault(metric, {})[entry.key] = sight
    return by_metric


@cached(READING)
def section_mirages(section: Section) -> Mapping[str, ImageShare]:
    """Compute how often each result's model answers although its image is withheld.

    Returns:
        Entry key -> share; only results with such a run.
    """
    shares: dict[str, ImageShare] = {}
    for entry in section.entries if section.arms else ():
        arm = image_arms(section, entry).get("withheld")
        with suppress(OSError, ValueError, TypeError):
            for share in answered_share("withheld", pd.read_parquet(str(arm.units))) if arm else ():
                shares[entry.key] = share
    return shares


def _identity(folder: Path) -> tuple[str | None, ...] | None:
    try:
        return read_arm_identity(folder)[1]
    except BadInput:
        return None


def _entry_sights(section: Section, entry: Entry) -> dict[str, Sight]:
    """Return metric -> image effect of a result; empty if arms are missing or cannot be read."""
    arms = {"real": entry, **image_arms(section, entry)}
    compared_images = {
        name: ("real", *info.compared)
        for name, info in eval_spec(section.family).metrics.items()
        if info.compared and all(image in arms for image in info.compared)
    }
    try:
        # Only the columns needed: units files have tens of thousands of rows.
        tables = {
            image: pd.read_parquet(str(arm.units), columns=UNIT_COLUMNS)
            for image, arm in arms.items()
            if compared_images
        }
    except (OSError, ValueError, TypeError):
        return {}
    sights = {}
    for metric, images in compared_images.items():
        scores = [arms[image].result.scores.get(metric) for image in images]
        if all(arm is not None and arm.value is not None and not arm.nonresponse for arm in scores):
            with suppress(BadInput):  # raised for an arm that did not answer the same questions
                tables_of_arms: dict[str, pd.DataFrame] = {image: tables[image] for image in images[1:]}
                sights[metric] = compute_sight(tables["real"], tables_of_arms, metric, with_share=False)
    return sights
