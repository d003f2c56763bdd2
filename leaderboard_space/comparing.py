"""Compare results on the same questions: paired if the answers of both are known, else by their numbers. Scores, the correction for many
comparisons and what a selection means are those of the leaderboard.

See also: drawing (`views/compare.py`), sentences (`sentences.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from eval_harness.records.result import Score
from eval_harness.scores.comparisons import paired_test
from eval_harness.scores.ranks import holm_adjust
from eval_harness.scores.unpaired import UNPAIRED_METHOD as UNPAIRED
from eval_harness.scores.unpaired import compute_unpaired_difference
from leaderboard_space import sentences
from leaderboard_space.data.board import Board
from leaderboard_space.data.cells import scores_by_entry
from leaderboard_space.data.model_names import find_result, identity_of, labels
from leaderboard_space.data.outcomes import Outcomes
from leaderboard_space.data.ranks.groups import Owner, group_of, order_of, owner_of
from leaderboard_space.data.ranks.standings import ALL, ONE, info_of
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.query import BoardQuery, parse_query, selection_of

SLOTS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
"""The keys of an address that name the results to compare."""
LEVEL = 0.05


@dataclass(frozen=True)
class Difference:
    """A pair of results: the difference in points (one - other), its interval, and two-sided p-values: `p` of the pair alone, `corrected`
    for the ranking of so many `models` (0: for the pairs compared here, Holm). `n` units, and
    the numbers that only one of them got right; None if unpaired."""

    one: Entry
    other: Entry
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
    def is_sure(self) -> bool:
        """True if the two differ significantly, corrected for all comparisons."""
        return self.corrected < LEVEL and abs(self.value) > 1e-9


@dataclass(frozen=True)
class Comparison:
    """Results on the same questions, as a request chooses them. `named`: a name for every result of the section, none twice.
    Of two, the one with the higher score is the first of `chosen`: every difference of the page is the first less the second.

    `query`: the set, the selection of its questions and the score, as on the leaderboard. `unknown`: what the request names and is not
    there; `is_example`: whether it names none; `fields`: what stands in the fields, each name where it was typed; `chosen_set`: whether the
    request names the set of questions."""

    query: BoardQuery
    chosen: list[Entry]
    named: dict[str, str]
    metrics: list[str]
    unknown: tuple[str, ...] = ()
    is_example: bool = False
    fields: tuple[str, ...] = ()
    chosen_set: bool = False

    @property
    def section(self) -> Section:
        return self.query.section

    @property
    def outcomes(self) -> Outcomes | None:
        return self.query.outcomes

    @property
    def metric(self) -> str:
        return self.query.metric

    def has_answers(self, entry: Entry) -> bool:
        """True if the result can be compared question by question."""
        return self.outcomes is not None and entry.key in self.outcomes.row_of

    def name(self, entry: Entry) -> str:
        """The label of a chosen result: whatever distinguishes it from the other chosen ones."""
        return self.name_of(entry.key)

    def name_of(self, key: str) -> str:
        """The same, by key."""
        return labels(self.chosen)[key]

    @cached_property
    def _held(self) -> dict[str, dict[str, Score]]:
        return {}

    def _scores(self, metric: str) -> dict[str, Score]:
        """Entry key -> score on the selection of the chosen results, as the leaderboard has them."""
        if metric not in self._held:
            keys, query = frozenset(entry.key for entry in self.chosen), self.query
            self._held[metric] = scores_by_entry(
                query.section, query.outcomes, query.tree, metric, query.branches, keys
            )
        return self._held[metric]

    def score(self, entry: Entry, metric: str) -> Score | None:
        """The result's score, from its answers if they are known; None if it has none."""
        found = self._scores(metric).get(entry.key)
        return found if found is not None and found.value is not None else None

    def no_score(self, entry: Entry, metric: str) -> str:
        """Why the result has no verdict or no score; empty if it may have them, or if nothing is known about it."""
        found = self._scores(metric).get(entry.key)
        return sentences.no_score(found, entry.result) if found is not None else ""

    def scores(self, metric: str) -> dict[str, Score]:
        """Entry key -> score, of those chosen that have one."""
        return {key: score for key, score in self._scores(metric).items() if score.value is not None}

    def differences(self, metric: str) -> list[Difference]:
        """Every pair of the chosen results of which both have the score; significant ones first, then by the size of the difference."""
        found = [
            difference
            for one, other in combinations(self.chosen, 2)
            if (difference := self._difference(one, other, metric)) is not None
        ]
        if metric == self.metric:
            found = self._corrected(found)
        return sorted(found, key=lambda pair: (not pair.is_sure, -abs(pair.value) if pair.is_sure else pair.p))

    def _corrected(self, pairs: list[Difference]) -> list[Difference]:
        """The same with p-values corrected as the leaderboard's ranking has them, if it ranks all of these results together; else for the
        pairs compared here (Holm 1979)."""
        keys = list(dict.fromkeys(entry.key for pair in pairs for entry in (pair.one, pair.other)))
        for shown in (ONE, ALL) if pairs else ():
            standings = replace(self.query, shown=shown).standings
            if (ranked := standings.corrected(keys)) is not None:
                p, models = ranked
                at = {key: number for number, key in enumerate(keys)}
                return [
                    replace(pair, corrected=float(p[at[pair.one.key], at[pair.other.key]]), models=models)
                    for pair in pairs
                ]
        adjusted = holm_adjust(np.array([pair.p for pair in pairs])).tolist()
        return [replace(pair, corrected=p) for pair, p in zip(pairs, adjusted, strict=True)]

    def _difference(self, one: Entry, other: Entry, metric: str) -> Difference | None:
        left, right = self.score(one, metric), self.score(other, metric)
        if left is None or right is None or left.value is None or right.value is None:
            return None
        if left.nonresponse is not None or right.nonresponse is not None:
            return None
        if self.has_answers(one) and self.has_answers(other) and self.outcomes and metric in self.outcomes.metrics:
            test = paired_test(self._units(one, metric), self._units(other, metric), metric)
            return Difference(
                one, other, test.difference, test.low, test.high, test.p, test.p, test.method, 0, test.n, test.only_a,
                test.only_b,
            )  # fmt: skip
        low, high, p = compute_unpaired_difference(left, right)
        if math.isnan(low):
            return None
        return Difference(one, other, left.value - right.value, low, high, p, p, UNPAIRED)

    def _units(self, entry: Entry, metric: str) -> pd.DataFrame:
        """A run's units of the selection as the paired test takes them. A unit is named by its number, which is the same for both runs."""
        assert self.outcomes is not None
        mask = self.query.tree.mask(self.query.branches)
        units = self.outcomes.metrics[metric].part(
            self.outcomes.rows(metric, mask), np.array([self.outcomes.row_of[entry.key]])
        )
        top, base = units.run(0)
        return pd.DataFrame(
            {
                "metric": metric,
                "unit": np.arange(units.cluster.size).astype(str),
                "cluster": units.cluster,
                "numerator": top,
                "denominator": base,
            }
        )


def comparable_sections(board: Board) -> list[Section]:
    """Sets of questions with at least two results: complete official ones first, phantoms last, then by how many have
    answers."""
    found = [section for held in board.snapshot.sections.values() for section in held if len(section.entries) > 1]

    def order(section: Section) -> tuple[bool, bool, bool, int]:
        answered = sum(entry.result.kind == "measured" and entry.answers is not None for entry in section.entries)
        return section.kind == "phantom", section.kind != "complete", answered < 2, -answered

    return sorted(found, key=order)


def compared(board: Board, request: Mapping[str, Any]) -> Comparison | None:
    """What a request chooses: `set`, `branch` and `facet` (the selection, as the leaderboard's address has it), `metric`, and results under
    the keys SLOTS (by key, by name, or by model). What it does not say is chosen of the first set that has two results
    (`_next_by_default`). None where no set has."""
    sections = comparable_sections(board)
    if not sections:
        return None
    wanted, said = (
        str(request.get("set") or ""),
        [name for slot in SLOTS if (name := str(request.get(slot) or "").strip())],
    )
    # Without a set, the first that has a result of every name.
    has_all = (one for one in sections if all(_meant(one, name) for name in said))
    section = next((one for one in sections if f"{one.family}/{one.key}" == wanted), next(has_all, sections[0]))
    asked = {"format": section.family, "section": section.key, "metric": request.get("metric")}
    query = parse_query(board, asked | {"branches": selection_of(request), "shown": ONE})
    named = labels(section.entries)
    taken = [slot for slot in SLOTS if str(request.get(slot) or "").strip()]
    found = [(name, _meant(section, name)) for name in said]
    chosen = list({entry.key: entry for _, entry in found if entry is not None}.values())
    unknown = tuple(name for name, entry in found if entry is None)
    metrics = [name for name in query.metrics if info_of(name).unit != "count"]
    while max(len(chosen), len(said)) < 2 and not unknown:
        entry = _next_by_default(query, chosen)
        if entry is None:
            break
        chosen.insert(0 if said and "first" not in taken else len(chosen), entry)
    draft = Comparison(query, chosen, named, metrics, unknown)
    known = [name for name in metrics if len(draft.scores(name)) >= min(2, len(chosen))]
    # For a run without a score the page gives the reason, for the requested score.
    without = [name for name in metrics if name not in known and any(draft.no_score(entry, name) for entry in chosen)]
    known = [name for name in metrics if name in known or name in without]
    metric = query.metric if query.metric in known else next(iter(known), "")
    fields = tuple(named[entry.key] if entry is not None else name for name, entry in found)
    if len(chosen) > len(found):
        fields = tuple(named[entry.key] for entry in chosen)
    shown = replace(
        draft,
        query=replace(query, metric=metric),
        metrics=known,
        is_example=not said,
        fields=fields,
        chosen_set=bool(wanted),
    )
    pairs = shown.differences(metric) if len(chosen) == 2 else []
    return replace(shown, chosen=chosen[::-1]) if pairs and pairs[0].value < 0 else shown


def _meant(section: Section, name: str) -> Entry | None:
    """The result that a name means; of a model's results the one that stands for it on the leaderboard."""
    return find_result(sorted(section.entries, key=order_of), name)


def _next_by_default(query: BoardQuery, chosen: Sequence[Entry]) -> Entry | None:
    """The result to compare with those `chosen` where none is named: the best of the results that stand for their models, of another model
    and with another score, since equal answers show nothing. Answers come before numbers alone, models before baselines."""
    section, outcomes = query.section, query.outcomes
    up = info_of(query.metric).higher_is_better is not False
    standing: dict[Owner, Entry] = {}
    for entry in sorted(section.entries, key=order_of):
        if group_of(entry) == "ranked":
            standing.setdefault(owner_of(entry), entry)
    scores = scores_by_entry(section, outcomes, query.tree, query.metric, query.branches)
    values = {key: score.value for key, score in scores.items() if score.value is not None}
    taken = {identity_of(entry.result.model.name) for entry in chosen}
    scored = {values.get(entry.key) for entry in chosen}
    answered = outcomes is not None and len(outcomes.runs) > 1

    def order(entry: Entry) -> tuple[object, ...]:
        value = values.get(entry.key)
        return (
            value is None,
            answered and (outcomes is None or entry.key not in outcomes.row_of),
            identity_of(entry.result.model.name) in taken,
            entry.is_baseline,
            entry not in standing.values(),
            value in scored,
            -(value or 0.0) if up else value or 0.0,
        )

    return min((entry for entry in section.entries if entry not in chosen), key=order, default=None)
