"""A section seen through a selection: one row per result, with its score there, its verdict, and the places it may hold.

Not here: the mathematics (`ranking.py`), sentences (`findings.py`), HTML (`views/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from eval_harness.prompts import DEFAULT_PROMPT
from eval_harness.results import Score
from eval_harness.scores import HEADLINE, METRICS, MetricInfo
from eval_harness.scores.statistics import places, published_interval
from leaderboard_space.outcomes import Outcomes
from leaderboard_space.published_results import ONLY_PRINTED
from leaderboard_space.ranking import Floats, MetricUnits, p_values, scores_of, unpaired_p_values
from leaderboard_space.sections import Entry, Section
from leaderboard_space.tree import Path, Tree, cells_under

ALL, ONE = "all", "one"
"""Which results are shown: every one of them, or one per model."""


@dataclass(frozen=True)
class Row:
    """One result in the standings. `first`, `last`: the places it may hold among the models (None for a baseline or no value), as
    `eval_harness.scores.statistics.Places` defines them; `apart_from`: the keys of the entries that it is told apart from.

    `recomputed`: the score was computed here from the answers; otherwise it is the result's own or a published cell.
    """

    entry: Entry
    score: Score
    first: int | None = None
    last: int | None = None
    recomputed: bool = False
    apart_from: frozenset[str] = frozenset()

    @property
    def is_baseline(self) -> bool:
        return self.entry.result.model.kind == "baseline"


@dataclass(frozen=True)
class Standings:
    """`rows`, best first. `hidden`: results of which nothing is known for this selection. `selected`: how many questions."""

    metric: str
    rows: list[Row]
    hidden: list[Entry] = field(default_factory=list)
    selected: int = 0

    @property
    def models(self) -> list[Row]:
        """The rows that are ranked: no baselines, a value."""
        return [row for row in self.rows if not row.is_baseline and row.score.value is not None]


METHODS = {
    "best": "best over methods",
    "mc": "multiple choice",
    "gd": "greedy decoding",
    "ps": "prefix scoring",
    "ff": "free form",
}
"""Methods as they are shown."""
ELSEWHERE = {
    ("probmed", "accuracy"): MetricInfo(
        "Accuracy with adversarial", "Pairs with both questions right (ProbMed Table 3)."
    )
}
"""Metrics whose name means something else in one format: the VQA-RAD pairs' `accuracy` is no accuracy of single-choice questions."""


def shown_method(name: str) -> str:
    """How a method is called."""
    return METHODS.get(name, name)


def info_of(metric: str, format: str = "") -> MetricInfo:
    """What a metric means (in a format); a metric this board does not know is shown by its name."""
    if (format, metric) in ELSEWHERE:
        return ELSEWHERE[format, metric]
    return METRICS.get(metric) or ONLY_PRINTED.get(metric) or MetricInfo(metric.replace("_", " "), "", None)


def metrics_of(section: Section, outcomes: Outcomes | None) -> list[str]:
    """The metrics that a section can be sorted by, the headline first, the others as in `METRICS`."""
    there = {name for entry in section.entries for name in entry.result.scores}
    there |= set(outcomes.metrics) if outcomes else set()
    there = {name for name in there if not name.startswith("share_")}
    headline = HEADLINE.get(section.format)
    order = [headline, *(name for name in METRICS if name != headline)]
    known = [name for name in order if name in there]
    return [str(name) for name in known] + sorted(there - set(known))


def methods_of(section: Section) -> list[str]:
    """The methods by which the section's results were got."""
    return sorted({entry.result.method.name for entry in section.entries})


def standings(
    section: Section,
    outcomes: Outcomes | None,
    tree: Tree,
    metric: str,
    branches: Sequence[Path] = (),
    shown: str = ALL,
) -> Standings:
    """Score and rank the results of a section on the questions in the union of `branches` (none: all of them).

    `shown`: ALL results, ONE per model (see `one_per_model`), or those of the method of that name.

    Results with answers are scored from these; of the others the result's own number is shown, or the published cell that is exactly
    the selected branch. Raises BadInput for an unknown branch.
    """
    mask = tree.mask(branches)
    info = info_of(metric)
    higher = info.higher_is_better is not False
    measured: dict[str, Score] = {}
    units: MetricUnits | None = None
    if outcomes is not None and metric in outcomes.metrics:
        units = outcomes.metrics[metric].part(outcomes.rows(metric, mask))
        measured = dict(zip(outcomes.runs, scores_of(units, info.higher_is_better), strict=True))
    rows: list[Row] = []
    hidden: list[Entry] = []
    for entry in section.entries:
        if shown not in (ALL, ONE, entry.result.method.name):
            continue
        if entry.key in measured:
            rows.append(Row(entry, measured[entry.key], recomputed=True))
            continue
        score = own_score(entry, metric, branches)
        if score is None:
            hidden.append(entry)
        else:
            rows.append(Row(entry, score))
    rows = one_per_model(rows) if shown == ONE else rows
    rows = _ranked(rows, units, outcomes, higher, info.unit == "count")
    rows.sort(key=lambda row: _order(row, higher))
    return Standings(metric, rows, hidden, int(mask.sum()) if mask is not None else section.questions)


def one_per_model(rows: list[Row]) -> list[Row]:
    """One row per model and provenance: models are compared, not how often each was asked.

    Of a paper's rows the best over methods stands for the model, of measured ones multiple choice with the benchmark's default prompt and
    our extraction, the newest of several. What combines many samples or knows the answers (a `variant`) comes last.
    """
    chosen: dict[tuple[str, str], Row] = {}
    for row in rows:
        result = row.entry.result
        key = (result.model.name, result.provenance if result.kind != "aggregate" else result.kind)
        if key not in chosen or _stands_for(row) > _stands_for(chosen[key]):
            chosen[key] = row
    return list(chosen.values())


def _stands_for(row: Row) -> tuple[bool, bool, bool, bool, bool, bool, str]:
    """How well a result stands for its model; larger is better."""
    result, method = row.entry.result, row.entry.result.method
    return (
        row.score.value is not None,
        "variant" not in method.generation,
        method.name == "best",
        method.name == "mc",
        method.prompt in (None, DEFAULT_PROMPT.get(result.benchmark.format)) and method.extraction in (None, "ours"),
        (method.samples or 1) == 1,
        result.created_at,
    )


def own_score(entry: Entry, metric: str, branches: Sequence[Path]) -> Score | None:
    """What a result itself says about a selection: its score, or the cell of its breakdown that is exactly the one branch."""
    if not branches:
        return entry.result.scores.get(metric)
    cell = own_cell(entry, branches)
    return entry.result.breakdown[cell[0]][cell[1]].get(metric) if cell else None


def own_cell(entry: Entry, branches: Sequence[Path]) -> tuple[str, str] | None:
    """The cell (facet, facet value) of a result's breakdown that is exactly the selection."""
    cells = cells_under(branches[0], entry.result.breakdown) if len(branches) == 1 else []
    return cells[0] if len(cells) == 1 else None


def with_interval(score: Score) -> Score:
    """A published percentage without interval gets Wilson's on its number of cases (nothing is known of shared images)."""
    if score.value is None or score.low is not None or score.n_cases <= 0 or not 0 <= score.value <= 100:
        return score
    low, high, method = published_interval(score.value, score.n_cases)
    return score.model_copy(update={"low": low, "high": high, "interval_method": method})


def _ranked(
    rows: list[Row], units: MetricUnits | None, outcomes: Outcomes | None, higher: bool, are_counts: bool
) -> list[Row]:
    """The rows with the places that the models among them may hold. Baselines neither hold places nor take part in the correction."""
    models = [row for row in rows if not row.is_baseline and row.score.value is not None]
    p = unpaired_p_values([row.score for row in models], are_counts)
    if units is not None and outcomes is not None and not units.is_count:
        run_of = {key: number for number, key in enumerate(outcomes.runs)}
        here = [number for number, row in enumerate(models) if row.recomputed]
        runs = [run_of[models[number].entry.key] for number in here]
        if runs:
            p[np.ix_(here, here)] = p_values(units.of(np.array(runs)))
    values: Floats = np.array([row.score.value for row in models], dtype=float)
    found = places(values, p, higher)
    keys = [row.entry.key for row in models]
    number = {id(row): at for at, row in enumerate(models)}

    def placed(row: Row, at: int) -> Row:
        apart = frozenset(keys[other] for other in np.flatnonzero(found.apart[at]))
        return replace(row, first=int(found.first[at]), last=int(found.last[at]), apart_from=apart)

    return [placed(row, number[id(row)]) if id(row) in number else row for row in rows]


def _order(row: Row, higher: bool) -> tuple[bool, float, str]:
    value = row.score.value
    if value is None:
        return (True, 0.0, row.entry.result.model.name.lower())
    return (False, -value if higher else value, row.entry.result.model.name.lower())
