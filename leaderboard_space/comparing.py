"""Compare results on the same questions: paired if the answers of both are known, otherwise by
their scores; and what explains a difference: settings, questions that flip, causes.

Scores, selections and the correction for multiple comparisons are those of the leaderboard. See
also: drawing (`views/compare.py`), sentences (`sentences.py`), the causes
(`eval_harness/store/causes.py`).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.benchmarks import eval_spec
from eval_harness.records.result import Score
from eval_harness.scores.comparisons import (
    UNPAIRED_METHOD as UNPAIRED,
    compute_unpaired_difference,
    holm_adjust,
    paired_test,
)
from eval_harness.store.causes import ANSWERS, Explanation, explain
from eval_harness.store.comparison import load_side
from leaderboard_space import sentences
from leaderboard_space.benchmarks import metric_info
from leaderboard_space.data.board import Board
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.outcomes import Outcomes
from leaderboard_space.data.sections import (
    ALL_RESULTS,
    ONE_PER_MODEL,
    Entry,
    Owner,
    Section,
    canonical_name,
    entry_labels,
    find_result,
    preference_key,
    ranking_group,
    row_owner,
)
from leaderboard_space.query import BoardQuery, parse_query, parse_selection

SLOTS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
"""Keys of an address that name the results to compare."""


@dataclass(frozen=True)
class Difference:
    """The difference between two results.

    Args:
        entry_a: The first result.
        entry_b: The second result.
        value: Difference in percentage points, `entry_a` - `entry_b`.
        low: Lower end of the 95 % interval, in points.
        high: Upper end.
        p: Two-sided p-value of this pair alone.
        corrected: The p-value corrected for the leaderboard's ranking, or else for the pairs
            compared here (Holm).
        method: Name of the test.
        models: Number of models in that ranking; 0 if `corrected` is for the pairs compared here.
        n: Number of scored units of a paired test; None if unpaired.
        only_one: Units on which only `entry_a` was right; None if unpaired.
        only_other: Units on which only `entry_b` was right; None if unpaired.
    """

    entry_a: Entry
    entry_b: Entry
    value: float
    low: float
    high: float
    p: float
    corrected: float
    method: str
    models: int = 0
    n: int | None = None
    only_one: int | None = None
    only_other: int | None = None

    @property
    def is_paired(self) -> bool:
        return self.n is not None

    @property
    def is_significant(self) -> bool:
        """True if the two differ significantly after correction for all comparisons."""
        return self.corrected < sentences.ALPHA and abs(self.value) > sentences.EQUAL_TOLERANCE

    def reversed(self) -> "Difference":
        """Return the difference `entry_b` - `entry_a`."""
        return replace(
            self,
            entry_a=self.entry_b,
            entry_b=self.entry_a,
            value=-self.value,
            low=-self.high,
            high=-self.low,
            only_one=self.only_other,
            only_other=self.only_one,
        )


@dataclass(frozen=True)
class Comparison:
    """Results on the same questions, as a request chooses them.

    Of two results, the one with the higher score is the first of `chosen`: every difference on the
    page is first minus second.

    Args:
        query: Question set, selection and score, as on the leaderboard.
        chosen: The results to compare.
        metrics: Scores that at least two of the results have, or that one of them lacks for a known
            reason.
        unknown: Names in the request that match no result.
        is_example: True if the request names no result.
        fields: Text of the form's fields; each name stays where it was typed.
        is_set_chosen: True if the request names the question set.
    """

    query: BoardQuery
    chosen: list[Entry]
    metrics: list[str]
    unknown: tuple[str, ...] = ()
    is_example: bool = False
    fields: tuple[str, ...] = ()
    is_set_chosen: bool = False

    @property
    def section(self) -> Section:
        return self.query.section

    @property
    def outcomes(self) -> Outcomes | None:
        return self.query.outcomes

    @property
    def metric(self) -> str:
        return self.query.metric

    @cached_property
    def names(self) -> dict[str, str]:
        """Entry key -> name of a chosen result, which distinguishes it from the other chosen
        ones."""
        return entry_labels(self.chosen)

    @cached_property
    def _scores_of(self) -> Callable[[str], dict[str, Score]]:
        """Metric -> entry key -> score of a chosen result on the selection, as on the
        leaderboard."""
        keys = frozenset(entry.key for entry in self.chosen)
        # Not in the board's cache: visitors choose among many pairs.
        return cache(lambda metric: self.query.scores(metric, keys))

    def has_answers(self, entry: Entry) -> bool:
        """True if the result can be compared question by question."""
        return self.outcomes is not None and entry.key in self.outcomes.row_of

    def name(self, entry: Entry) -> str:
        """Return the name of a chosen result (see `names`)."""
        return self.names[entry.key]

    def no_score(self, entry: Entry, metric: str) -> str:
        """Explain why a result has no verdict or no score; "" if no reason is known."""
        score = self._scores_of(metric).get(entry.key)
        return sentences.no_score_reason(score, entry.result) if score is not None else ""

    def scores(self, metric: str) -> dict[str, Score]:
        """Return entry key -> score of the chosen results that have one."""
        return {key: score for key, score in self._scores_of(metric).items() if score.value is not None}

    def differences(self, metric: str) -> list[Difference]:
        """Compare every pair of chosen results that both have the score.

        Significant pairs come first, the largest difference first; the others follow by p-value.
        """
        pairs = [self._difference(entry_a, entry_b, metric) for entry_a, entry_b in combinations(self.chosen, 2)]
        differences = [pair for pair in pairs if pair is not None]
        if metric == self.metric:
            differences = self._corrected(differences)
        return sorted(
            differences,
            key=lambda pair: (
                not pair.is_significant,
                -abs(pair.value) if pair.is_significant else pair.p,
            ),
        )

    def _corrected(self, pairs: list[Difference]) -> list[Difference]:
        """Correct the p-values of pairs for multiple comparisons.

        If the leaderboard ranks all of these results together, the p-values of that ranking are
        used; otherwise the correction covers the pairs compared here (Holm 1979).
        """
        # The ranking "one result per model" comes first: it is what the leaderboard shows by
        # default.
        keys = list(dict.fromkeys(entry.key for pair in pairs for entry in (pair.entry_a, pair.entry_b)))
        for results in (ONE_PER_MODEL, ALL_RESULTS) if pairs else ():
            ranking = replace(self.query, result_filter=results).standings.corrected(keys)
            if ranking is not None:
                p_values, models = ranking
                at = {key: position for position, key in enumerate(keys)}
                ranked_p = [float(p_values[at[pair.entry_a.key], at[pair.entry_b.key]]) for pair in pairs]
                return [replace(pair, corrected=p, models=models) for pair, p in zip(pairs, ranked_p, strict=True)]
        # Not ranked together, for example because the metric has no direction: correct for these
        # pairs alone.
        adjusted = holm_adjust(np.array([pair.p for pair in pairs])).tolist()
        return [replace(pair, corrected=p) for pair, p in zip(pairs, adjusted, strict=True)]

    def _difference(self, entry_a: Entry, entry_b: Entry, metric: str) -> Difference | None:
        """Compare two results without a correction; None if one has no score or no verdict."""
        score_a, score_b = (self.scores(metric).get(entry.key) for entry in (entry_a, entry_b))
        if score_a is None or score_b is None or score_a.nonresponse is not None or score_b.nonresponse is not None:
            return None
        if (
            self.has_answers(entry_a)
            and self.has_answers(entry_b)
            and self.outcomes
            and metric in self.outcomes.metrics
        ):
            test = paired_test(self._units(entry_a, metric), self._units(entry_b, metric), metric)
            return Difference(
                entry_a, entry_b, test.difference, test.low, test.high, test.p, test.p, test.method, 0, test.n, test.only_a,
                test.only_b,
            )  # fmt: skip
        # Published scores: all that is known are two numbers with their intervals.
        low, high, p = compute_unpaired_difference(score_a, score_b)
        difference = (score_a.value or 0.0) - (score_b.value or 0.0)
        return None if math.isnan(low) else Difference(entry_a, entry_b, difference, low, high, p, p, UNPAIRED)

    def _units(self, entry: Entry, metric: str) -> pd.DataFrame:
        """Return a run's scored units on the selection, in the form that `paired_test` expects.

        Unit numbers are the same for every run of the set, so units can be paired by number.
        """
        assert self.outcomes is not None
        mask = self.query.tree.mask(self.query.branches)
        row = np.array([self.outcomes.row_of[entry.key]])
        units = self.outcomes.metrics[metric].part(self.outcomes.rows(metric, mask), row)
        numerator, denominator = units.run(0)
        return pd.DataFrame(
            {
                "metric": metric,
                "unit": np.arange(units.cluster.size).astype(str),
                "cluster": units.cluster,
                "numerator": numerator,
                "denominator": denominator,
            }
        )


def comparable_sections(board: Board) -> list[Section]:
    """List the question sets with at least two results.

    Complete official sets come first, phantoms last; within these, by number of results with
    answers.
    """

    def order(section: Section) -> tuple[bool, bool, bool, int]:
        answered = sum(entry.result.kind == "measured" and entry.answers is not None for entry in section.entries)
        # False sorts before True.
        return section.kind == "phantom", section.kind != "complete", answered < 2, -answered

    return sorted((section for section in board.snapshot.all_sections if len(section.entries) > 1), key=order)


def load_comparison(board: Board, request: Mapping[str, Any]) -> Comparison | None:
    """Load the comparison that a request chooses, filling in what it leaves out
    (`_next_by_default`).

    Args:
        board: The board.
        request: `set`, `branch` and `facet` (the selection, as in the leaderboard's address),
            `metric`, and results under the keys `SLOTS` (by key, by name, or by model).

    Returns:
        The comparison; None if no question set has two results.
    """
    sections = comparable_sections(board)
    if not sections:
        return None
    set_key = str(request.get("set") or "")
    names = {slot: name for slot in SLOTS if (name := str(request.get(slot) or "").strip())}
    # If the request names no set, use the first one that has a result for every name.
    has_all = (section for section in sections if all(_find(section, name) for name in names.values()))
    named_sets = (section for section in sections if f"{section.family}/{section.key}" == set_key)
    section = next(named_sets, None) or next(has_all, sections[0])

    parameters = {"format": section.family, "section": section.key, "metric": request.get("metric")}
    query = parse_query(board, parameters | {"branches": parse_selection(request), "shown": ONE_PER_MODEL})
    matches = [(name, _find(section, name)) for name in names.values()]
    chosen = list({entry.key: entry for _, entry in matches if entry is not None}.values())
    unknown = tuple(name for name, entry in matches if entry is None)
    # Fill in results that are not named, unless a name is unknown: then the page asks for another
    # name instead.
    while max(len(chosen), len(names)) < 2 and not unknown and (entry := _next_by_default(query, chosen)):
        chosen.insert(0 if names and "first" not in names else len(chosen), entry)

    # The metrics depend on the results, so they are chosen on a draft without metrics.
    draft = Comparison(query, chosen, [])
    metrics = [  # include metrics that a result lacks for a known reason: the page then states it
        name
        for name in query.metrics
        if metric_info(name).unit != "count"
        and (len(draft.scores(name)) >= min(2, len(chosen)) or any(draft.no_score(entry, name) for entry in chosen))
    ]
    metric = query.metric if query.metric in metrics else next(iter(metrics), "")
    label_of = entry_labels(section.entries)
    typed = [label_of[entry.key] if entry is not None else name for name, entry in matches]
    fields = typed if len(chosen) <= len(matches) else [label_of[entry.key] for entry in chosen]
    comparison = replace(
        draft,
        query=replace(query, metric=metric),
        metrics=metrics,
        unknown=unknown,
        is_example=not names,
        fields=tuple(fields),
        is_set_chosen=bool(set_key),
    )
    # Of two, the higher score comes first.
    pairs = comparison.differences(metric) if len(chosen) == 2 else []
    return replace(comparison, chosen=chosen[::-1]) if pairs and pairs[0].value < 0 else comparison


def _find(section: Section, name: str) -> Entry | None:
    """Find a result by name; a model's name means the result that represents it on the board."""
    return find_result(sorted(section.entries, key=preference_key), name)


def _next_by_default(query: BoardQuery, chosen: Sequence[Entry]) -> Entry | None:
    """Choose a result to compare with those already chosen.

    Preferred are, in this order: results with answers over scores alone, another model, models over
    baselines, results that represent their model, another score (equal answers show nothing), and
    the best score.
    """
    section, outcomes = query.section, query.outcomes
    is_higher_better = metric_info(query.metric).higher_is_better is not False
    # The first result by `preference_key` represents its model and account, as on the leaderboard.
    representatives: dict[Owner, Entry] = {}
    for entry in sorted(section.entries, key=preference_key):
        if ranking_group(entry) == "ranked":
            representatives.setdefault(row_owner(entry), entry)
    scores = query.scores(query.metric)
    values = {key: score.value for key, score in scores.items() if score.value is not None}
    chosen_models = {canonical_name(entry.result.model.name) for entry in chosen}
    chosen_values = {values.get(entry.key) for entry in chosen}
    # Prefer results with answers, if there are two to compare; else the scores decide.
    answered = outcomes.row_of if outcomes is not None and len(outcomes.runs) > 1 else values

    def order(entry: Entry) -> tuple[object, ...]:
        value = values.get(entry.key)
        return (
            value is None,
            entry.key not in answered,
            canonical_name(entry.result.model.name) in chosen_models,
            entry.is_reference,
            entry not in representatives.values(),
            value in chosen_values,
            -(value or 0.0) if is_higher_better else value or 0.0,
        )

    return min((entry for entry in section.entries if entry not in chosen), key=order, default=None)


def _settings_of(entry: Entry) -> dict[str, object]:
    """Return the settings of a result: name -> value."""
    method = entry.result.method
    names = ("prompt", "shots", "samples", "extraction", "judge")
    return {
        "method": method.name,
        **{name: getattr(method, name) for name in names},
        **(method.generation or {}),
        "deviations": "; ".join(entry.result.deviations) or None,
    }


def different_settings(comparison: Comparison) -> dict[str, list[object]]:
    """Return the settings in which the results differ: name -> the value of each result."""
    settings = [_settings_of(entry) for entry in comparison.chosen]
    # Hashes always differ and explain nothing.
    names = dict.fromkeys(name for of_result in settings for name in of_result if not name.endswith("_hash"))
    values = {name: [of_result.get(name) for of_result in settings] for name in names}
    return {name: row for name, row in values.items() if any(value != row[0] for value in row)}


def answered_pair(comparison: Comparison) -> tuple[Entry, Entry] | None:
    """Return the first two of the results that can be compared question by question."""
    answered = [entry for entry in comparison.chosen if comparison.has_answers(entry)]
    if len(answered) < 2 or comparison.outcomes is None or comparison.metric not in comparison.outcomes.metrics:
        return None
    return answered[0], answered[1]


def flipped_units(comparison: Comparison, entry_a: Entry, entry_b: Entry) -> Iterator[tuple[Entry, int, list[int]]]:
    """Yield each scored unit on which two results differ.

    An item is (the result that scored more, number of the case, positions of the questions).
    """
    outcomes, metric = comparison.outcomes, comparison.metric
    assert outcomes is not None
    # Units are in the same order for all runs of a set.
    units, at = outcomes.metrics[metric], outcomes.unit_index[metric]
    selected = outcomes.rows(metric, comparison.query.tree.mask(comparison.query.branches))
    numerators_a, numerators_b = (units.run(outcomes.row_of[entry.key])[0] for entry in (entry_a, entry_b))
    differ = np.flatnonzero(numerators_a != numerators_b)
    for unit in differ if selected is None else np.intersect1d(differ, selected):
        questions = [int(at.question[unit])]
        if questions[0] < 0:  # the unit is a whole case
            questions = np.flatnonzero(outcomes.case_of_question == at.case[unit]).tolist()
        yield (
            entry_a if numerators_a[unit] > numerators_b[unit] else entry_b,
            int(outcomes.case_of_question[questions[0]]),
            questions,
        )


def cause_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """List the causes of the difference of two results, and last what is left to different answers.

    Empty without a cause, and for a selection of questions or results without answers.
    """
    entries = comparison.chosen
    metrics = eval_spec(comparison.section.family).metrics
    is_verified = all(entry.folder is not None and entry.derived == entry.folder for entry in entries)
    if len(entries) != 2 or comparison.query.branches or comparison.metric not in metrics or not is_verified:
        return []
    explanation = _explain(comparison.section, str(entries[0].folder), str(entries[1].folder), comparison.metric)
    if explanation is None or not explanation.causes:
        return []
    rows: list[dict[str, Any]] = [vars(cause) for cause in explanation.causes]
    last_row = {"factor": ANSWERS, "points": explanation.different_points, "answers": explanation.n_different}
    return [*rows, last_row | {"detail": sentences.format_difference_interval(explanation.low, explanation.high)}]


@cached(COMPUTING)
def _explain(section: Section, folder_a: str, folder_b: str, metric: str) -> Explanation | None:
    """Explain the difference of two results; None if it cannot be derived.

    The cache forgets it with the section.
    """
    try:
        return explain(load_side(folder_a, list), load_side(folder_b, list), metric)
    except BadInput:
        return None
