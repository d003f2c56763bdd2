"""The standings of a section on a selection: one row per result, with its score, verdict, and possible ranks.

See also: the mathematics (`unit_scores.py`, `eval_harness.scores.ranks`), sentences (`headlines.py`), HTML (`views/`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dataset_builders.benchmarks import BENCHMARKS
from eval_harness.benchmarks import eval_spec
from eval_harness.benchmarks.spec import MetricInfo
from eval_harness.derive.metrics import HEADLINE_METRICS, METRICS
from eval_harness.records.result import Result, Score, Scores
from eval_harness.scores.intervals import INTERVAL_METHOD, printed_interval
from eval_harness.scores.ranks import compute_rank_ranges
from eval_harness.scores.unpaired import compute_unpaired_differences
from leaderboard_space.benchmarks import board_spec
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.outcomes import Outcomes
from leaderboard_space.data.published_results import ONLY_PRINTED, rename_error_shares
from leaderboard_space.data.ranks.groups import (
    GROUP_HEADINGS,
    RANKED_GROUPS,
    RankingGroup,
    count_runs,
    preference_key,
    ranking_group,
    row_owner,
)
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.data.tree import Tree, TreePath, group_by_subject, selection_cells
from leaderboard_space.data.unit_scores import Bools, Floats, MetricUnits, pairwise_p_values, score_runs

ALL_RESULTS, ONE_PER_MODEL = "all", "one"
"""Results to show: all, or one per model and account."""


@dataclass(frozen=True)
class Row:
    """One result in the standings. `first`, `last`: the ranks it may hold among the models (None for a baseline, no value, too few
    independent cases, or a metric of which neither end is the better one), as
    `eval_harness.scores.ranks.RankRanges` defines them; `ahead`, `behind`: how many of them are significantly better and worse.

    `recomputed`: the score was computed here from the answers; otherwise it is the result's own or a published cell.
    """

    entry: Entry
    score: Score
    first: int | None = None
    last: int | None = None
    recomputed: bool = False
    ahead: int = 0
    behind: int = 0
    group: RankingGroup = "ranked"
    tried: int = 1
    """Runs of this model that its account has in the store on these questions."""
    abstained: float | None = None
    answered_accuracy: float | None = None
    """Percent of the responses that choose no option, and of the questions right where one was chosen, on the same selection."""
    ends: tuple[int, ...] = ()
    """How the responses to the selection ended (`nonresponse.COUNTS`), where the answers are known."""

    @property
    def run(self) -> tuple[float, float] | None:
        """The interval of the paper's random run, where chance and verdict are against it and not against exact chance."""
        return self.score.chance_interval

    @property
    def is_baseline(self) -> bool:
        return self.entry.is_baseline


@dataclass(frozen=True)
class Standings:
    """`rows`, best first. `hidden`: results of which nothing is known for this selection. `selected`: how many questions."""

    metric: str
    rows: list[Row]
    hidden: list[Entry] = field(default_factory=list)
    selected: int = 0
    one_per_model: bool = False
    pairs: list[tuple[dict[str, int], Floats]] = field(default_factory=list, compare=False, repr=False)
    """Of each group with ranks: entry key -> position, and the p-values of all pairs (M, M), corrected for the ranking."""

    def corrected(self, keys: Sequence[str]) -> tuple[Floats, int] | None:
        """The p-values of some results, corrected for the ranking that they stand in, and how many models it has; None where they are not
        ranked together."""
        for position, p in self.pairs:
            if all(key in position for key in keys):
                at = [position[key] for key in keys]
                return p[np.ix_(at, at)], len(p)
        return None

    @property
    def models(self) -> list[Row]:
        """The rows of models: no baselines, a value, read by today's reader, not withdrawn. Those with ranks have a `first`."""
        return [
            row for row in self.rows if row.group == "ranked" and not row.is_baseline and row.score.value is not None
        ]

    @property
    def standing(self) -> list[Row]:
        """The rows but those withdrawn."""
        return [row for row in self.rows if row.group != "withdrawn"]

    def facets_of_parts(self, branches: Sequence[TreePath]) -> set[str]:
        """The facets by which results of which nothing is known for the selection as a whole have cells with the metric within it."""
        return {
            facet
            for entry in self.hidden
            for facet, label in cells_within(entry, branches)
            if (score := entry.result.breakdown[facet][label].get(self.metric)) is not None and score.value is not None
        }


METHOD_NAMES = {
    "best": "best over methods",
    "mc": "multiple choice",
    "gd": "greedy decoding",
    "ps": "prefix scoring",
    "ff": "free form",
}
"""Methods as they are shown."""


def method_name(name: str) -> str:
    """Display name of a method."""
    return METHOD_NAMES.get(name, name)


def metric_info(metric: str, family: str = "") -> MetricInfo:
    """Description of a metric (of a format); a metric unknown to this board is shown by its name."""
    own = eval_spec(family).metrics.get(metric) if family in BENCHMARKS else None
    return own or METRICS.get(metric) or ONLY_PRINTED.get(metric) or MetricInfo(metric.replace("_", " "), "", None)


def section_metrics(section: Section, outcomes: Outcomes | None) -> list[str]:
    """The metrics that a section can be sorted by, the headline first, then the benchmark's aspects, the others as in `METRICS`: those that
    papers print only by the values of a facet among them. Where no model has a score of the whole, those of its parts."""
    there = _result_metrics(section) | (set(outcomes.metrics) if outcomes else set())
    there = {name for name in there if not name.startswith("share_")}
    headline = HEADLINE_METRICS[section.family]
    order = dict.fromkeys((headline, *board_spec(section.family).aspects, *METRICS))
    known = [name for name in order if name in there]
    return known + sorted(there - set(known)) or [headline]


@cached(COMPUTING)  # of hundreds of results, with every request
def _result_metrics(section: Section) -> set[str]:
    """The metrics of the results' own scores; of cells where they are published, or no result has a score of the whole."""
    whole = {name for entry in section.entries for name in entry.result.scores}
    parted = [entry.result for entry in section.entries if entry.result.kind == "published" or not whole]
    cells = (cell for result in parted for held in result.breakdown.values() for cell in held.values())
    return whole.union(*cells)


def section_methods(section: Section) -> list[str]:
    """The methods by which the section's results were got."""
    return sorted({entry.result.method.name for entry in section.entries})


def compute_standings(
    section: Section,
    outcomes: Outcomes | None,
    tree: Tree,
    metric: str,
    branches: Sequence[TreePath] = (),
    shown: str = ALL_RESULTS,
) -> Standings:
    """Score and rank the results of a section on the questions that `branches` select (none: all of them).

    `shown`: ALL results, ONE per model (see `one_per_model`), or those of the method of that name.

    Results with answers are scored from these; of the others the result's own number is shown, or the published cell that is exactly
    the selected branch. Raises BadInput for an unknown branch.
    """
    mask = tree.mask(branches)
    info = metric_info(metric)
    higher = info.higher_is_better is not False
    measured: dict[str, Score] = {}
    units: MetricUnits | None = None
    if outcomes is not None and metric in outcomes.metrics:
        units = outcomes.metrics[metric].part(outcomes.rows(metric, mask))
        measured = dict(zip(outcomes.runs, score_runs(units, info.higher_is_better), strict=True))
    beside = _extras_by_entry(outcomes, mask)
    tried = count_runs(section)
    rows: list[Row] = []
    hidden: list[Entry] = []
    everything = shown in (ALL_RESULTS, ONE_PER_MODEL)
    for entry in section.entries:
        if not everything and shown != entry.result.method.name:
            continue
        key = entry.key
        score = measured.get(key)
        own = {} if score is not None else own_scores(entry, branches)
        if score is None and (score := own.get(metric)) is None:
            hidden.append(entry)
            continue
        abstained, answered, ends = beside.get(key) or _printed_extras(own)
        rows.append(
            Row(
                entry,
                score,
                recomputed=key in measured,
                group=ranking_group(entry),
                tried=tried.get(row_owner(entry), 1),
                abstained=abstained,
                answered_accuracy=answered,
                ends=ends,
            )
        )
    rows = one_per_model(rows) if shown == ONE_PER_MODEL else rows
    rows = [replace(row, group="no score") if _is_silent(row) else row for row in rows]
    ordered: list[Row] = []
    pairs: list[tuple[dict[str, int], Floats]] = []
    for group in GROUP_HEADINGS:
        part = [row for row in rows if row.group == group]
        if group in RANKED_GROUPS and info.higher_is_better is not None:  # no end is the better one: no ranks
            part, position, corrected = _rank_rows(part, units, outcomes, higher, info.unit == "count")
            pairs.append((position, corrected))
        ordered += sorted(part, key=lambda row: _sort_key(row, higher))
    selected = int(mask.sum()) if mask is not None else section.questions
    return Standings(metric, ordered, hidden, selected, shown == ONE_PER_MODEL, pairs)


def _is_silent(row: Row) -> bool:
    return row.score.nonresponse is not None and row.group in RANKED_GROUPS


RowExtras = tuple[float | None, float | None, tuple[int, ...]]
"""What stands beside a score (`Row`): in percent how often it abstained and how often it was right where it did not, and how its responses
ended."""


def _printed_extras(own: Scores) -> RowExtras:
    abstained, answered = own.get("abstained"), own.get("answered_accuracy")
    return abstained.value if abstained else None, answered.value if answered else None, ()


def _extras_by_entry(outcomes: Outcomes | None, mask: Bools | None) -> dict[str, RowExtras]:
    """Entry key -> the values beside its score on a selection, from the answers."""
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


def one_per_model(rows: list[Row]) -> list[Row]:
    """Keep one row per model, account and group, so that models are compared rather than runs.

    `groups.preference_key` decides which; a row without a score represents its model only if no row has one.
    """
    chosen: dict[tuple[object, ...], Row] = {}
    for row in sorted(rows, key=lambda row: (_lacks_score(row.score), preference_key(row.entry))):
        chosen.setdefault((row.group, *row_owner(row.entry)), row)
    return list(chosen.values())


def _lacks_score(score: Score) -> bool:
    return score.value is None or score.nonresponse is not None


def own_scores(entry: Entry, branches: Sequence[TreePath]) -> Scores:
    """A result's own scores for a selection: overall, or the cell of its breakdown that is exactly the selection."""
    if not branches:
        return entry.result.scores
    cell = own_cell(entry, branches)
    return entry.result.breakdown[cell[0]][cell[1]] if cell else {}


def cells_within(entry: Entry, branches: Sequence[TreePath]) -> list[tuple[str, str]]:
    """The cells (facet, facet value) of a result's breakdown that lie within a selection; without one all."""
    breakdown = entry.result.breakdown
    if branches:
        return selection_cells(branches, breakdown)
    return [(facet, label) for facet, held in breakdown.items() for label in held]


def own_cell(entry: Entry, branches: Sequence[TreePath]) -> tuple[str, str] | None:
    """The cell (facet, facet value) of a result's breakdown that is exactly the selection."""
    if not branches or not entry.result.breakdown or len(branches) != len(group_by_subject(branches)):
        return None
    cells = selection_cells(branches, entry.result.breakdown)
    return cells[0] if len(cells) == 1 else None


def prepare_result(result: Result) -> Result:
    """Return a result as the board shows it.

    Error shares get their own metric name (`rename_error_shares`), and a percentage without an interval gets one from
    its number of cases (nothing is known of shared images). Counts have none.
    """

    def whole(scores: Scores) -> Scores:
        return {metric: _with_interval(score, metric) for metric, score in scores.items()}

    parts = rename_error_shares(result.breakdown).items()
    breakdown = {facet: {label: whole(scores) for label, scores in held.items()} for facet, held in parts}
    return result.model_copy(update={"scores": whole(result.scores), "breakdown": breakdown})


def _with_interval(score: Score, metric: str) -> Score:
    if score.value is None or score.low is not None or score.n_cases <= 0 or not 0 <= score.value <= 100:
        return score
    if metric_info(metric).unit != "percent":
        return score
    found = printed_interval(score.value, score.n_cases)
    ends = {"low": 100 * found.low, "high": 100 * found.high, "n_effective": found.n_effective}
    return score.model_copy(update=ends | {"interval_method": INTERVAL_METHOD})


def _rank_rows(
    rows: list[Row], units: MetricUnits | None, outcomes: Outcomes | None, higher: bool, are_counts: bool
) -> tuple[list[Row], dict[str, int], Floats]:
    """The rows with the ranks that the models among them may hold, and what these follow from (`Standings.pairs`). Baselines neither hold
    ranks nor take part in the correction."""
    models = [row for row in rows if not row.is_baseline and row.score.value is not None and not row.score.is_small]
    here: list[int] = []
    if units is not None and outcomes is not None and not units.is_count:
        here = [number for number, row in enumerate(models) if row.recomputed]
    p: Floats = np.ones((len(models), len(models)))
    if len(here) < len(models):
        p = compute_unpaired_differences([row.score for row in models], are_counts)[2]
    if here and units is not None and outcomes is not None:
        runs = [outcomes.row_of[models[number].entry.key] for number in here]
        block = np.ix_(here, here)
        p[block] = pairwise_p_values(units.part(runs=np.array(runs)))
    values: Floats = np.array([row.score.value for row in models], dtype=float)
    found = compute_rank_ranges(values, p, higher)
    above = values[None, :] > values[:, None] if higher else values[None, :] < values[:, None]
    ahead = (found.differs & above).sum(axis=1)
    behind = found.differs.sum(axis=1) - ahead
    number = {row.entry.key: at for at, row in enumerate(models)}

    def ranked(row: Row, at: int) -> Row:
        return replace(
            row,
            first=int(found.best_rank[at]),
            last=int(found.worst_rank[at]),
            ahead=int(ahead[at]),
            behind=int(behind[at]),
        )

    ordered = [ranked(row, number[row.entry.key]) if row.entry.key in number else row for row in rows]
    return ordered, number, found.corrected


def _sort_key(row: Row, higher: bool) -> tuple[bool, float, str]:
    value = row.score.value
    if value is None:
        return (True, 0.0, row.entry.result.model.name.lower())
    return (False, -value if higher else value, row.entry.result.model.name.lower())
