"""Compare results on the same questions: paired if the answers of both are known, else by their numbers.

See also: drawing (`views/compare.py`), sentences (`sentences.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from eval_harness.records.result import Score
from eval_harness.scores.comparisons import paired_test
from eval_harness.scores.ranks import holm_adjusted
from eval_harness.scores.unpaired import METHOD as UNPAIRED
from eval_harness.scores.unpaired import unpaired_difference
from leaderboard_space import sentences
from leaderboard_space.data.board import Board
from leaderboard_space.data.model_names import find_result, identity_of, labels
from leaderboard_space.data.outcomes import Outcomes
from leaderboard_space.data.ranks.groups import Owner, group_of, order_of, owner_of
from leaderboard_space.data.ranks.standings import info_of, metrics_of
from leaderboard_space.data.scoring import scores_of
from leaderboard_space.data.store.sections import Entry, Section

SLOTS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
"""The keys of an address that name the results to compare."""
LEVEL = 0.05


@dataclass(frozen=True)
class Difference:
    """A pair of results: the difference in points (one - other), its interval, and two-sided p-values, uncorrected and corrected for all
    pairs compared here (Holm). `n` units, and the numbers that only one of them got right; None if unpaired."""

    one: Entry
    other: Entry
    value: float
    low: float
    high: float
    p: float
    corrected: float
    method: str
    n: int | None = None
    only_one: int | None = None
    only_other: int | None = None

    @property
    def is_paired(self) -> bool:
        return self.n is not None

    @property
    def is_sure(self) -> bool:
        """True if the two differ significantly, corrected for all pairs of the comparison."""
        return self.corrected < LEVEL and abs(self.value) > 1e-9


@dataclass(frozen=True)
class Comparison:
    """Results on the same questions, as a request chooses them. `named`: a name for every result of the section, none twice.
    Of two, the one with the higher score is the first of `chosen`: every difference of the page is the first less the second.

    `unknown`: what the request names and is not there; `is_example`: whether it names none;
    `fields`: what stands in the fields, each name where it was typed; `chosen_set`: whether the request names the set of questions."""

    section: Section
    outcomes: Outcomes | None
    chosen: list[Entry]
    named: dict[str, str]
    metrics: list[str]
    metric: str
    unknown: tuple[str, ...] = ()
    is_example: bool = False
    fields: tuple[str, ...] = ()
    chosen_set: bool = False

    def has_answers(self, entry: Entry) -> bool:
        """True if the result can be compared question by question."""
        return self.outcomes is not None and entry.key in self.outcomes.row_of

    def name(self, entry: Entry) -> str:
        """The label of a chosen result: whatever distinguishes it from the other chosen ones."""
        return self.name_of(entry.key)

    def name_of(self, key: str) -> str:
        """The same, by key."""
        return labels(self.chosen)[key]

    def score(self, entry: Entry, metric: str) -> Score | None:
        """The result's score, from its answers if they are known; None if it has none."""
        found = self._own(entry, metric)
        return found if found is not None and found.value is not None else None

    def no_score(self, entry: Entry, metric: str) -> str:
        """Why the result cannot be compared by a score; empty if it can, or if nothing is known about it."""
        found = self._own(entry, metric)
        return sentences.no_score(found, entry.result) if found is not None else ""

    def _own(self, entry: Entry, metric: str) -> Score | None:
        if self.outcomes is not None and self.has_answers(entry) and metric in self.outcomes.metrics:
            units = self.outcomes.metrics[metric].part(runs=np.array([self.outcomes.row_of[entry.key]]))
            return scores_of(units, info_of(metric).higher_is_better)[0]
        return entry.result.scores.get(metric)

    def scores(self, metric: str) -> dict[str, Score]:
        """Entry key -> score, of those chosen that have one."""
        found = {entry.key: self.score(entry, metric) for entry in self.chosen}
        return {key: score for key, score in found.items() if score is not None}

    def values(self, metric: str) -> dict[str, float]:
        """Entry key -> its score, from the answers where they are known; of all results of the section that have one."""
        printed = {one.key: score.value for one in self.section.entries if (score := one.result.scores.get(metric))}
        if self.outcomes is not None and metric in self.outcomes.metrics:
            printed |= dict(zip(self.outcomes.runs, self.outcomes.metrics[metric].shares().tolist(), strict=True))
        return {key: value for key, value in printed.items() if value is not None and math.isfinite(value)}

    def differences(self, metric: str) -> list[Difference]:
        """Every pair of the chosen results of which both have the score; significant ones first, then by the size of the difference."""
        found = [
            difference
            for one, other in combinations(self.chosen, 2)
            if (difference := self._difference(one, other, metric)) is not None
        ]
        if len(found) > 1:
            found = _corrected(found)
        return sorted(found, key=lambda pair: (not pair.is_sure, -abs(pair.value) if pair.is_sure else pair.p))

    def _difference(self, one: Entry, other: Entry, metric: str) -> Difference | None:
        left, right = self.score(one, metric), self.score(other, metric)
        if left is None or right is None or left.value is None or right.value is None:
            return None
        if left.nonresponse is not None or right.nonresponse is not None:
            return None
        if self.has_answers(one) and self.has_answers(other) and self.outcomes and metric in self.outcomes.metrics:
            test = paired_test(self._units(one, metric), self._units(other, metric), metric)
            return Difference(
                one, other, test.difference, test.low, test.high, test.p, test.p, test.method, test.n, test.only_a,
                test.only_b,
            )  # fmt: skip
        low, high, p = unpaired_difference(left, right)
        if math.isnan(low):
            return None
        return Difference(one, other, left.value - right.value, low, high, p, p, UNPAIRED)

    def _units(self, entry: Entry, metric: str) -> pd.DataFrame:
        """A run's units as the paired test takes them. A unit is named by its number, which is the same for both runs."""
        assert self.outcomes is not None
        units = self.outcomes.metrics[metric]
        top, base = units.run(self.outcomes.row_of[entry.key])
        return pd.DataFrame(
            {
                "metric": metric,
                "unit": np.arange(units.cluster.size).astype(str),
                "cluster": units.cluster,
                "numerator": top,
                "denominator": base,
            }
        )


def _corrected(pairs: list[Difference]) -> list[Difference]:
    """The same with p-values corrected for how many pairs are compared (Holm 1979): those that can be tested, whichever they are."""
    adjusted = holm_adjusted(np.array([pair.p for pair in pairs])).tolist()
    return [replace(pair, corrected=p) for pair, p in zip(pairs, adjusted, strict=True)]


def comparable_sections(board: Board) -> list[Section]:
    """Sets of questions with at least two results: complete official ones first, phantoms last, then by how many have
    answers."""
    found = [section for held in board.snapshot.sections.values() for section in held if len(section.entries) > 1]

    def order(section: Section) -> tuple[bool, bool, bool, int]:
        answered = sum(entry.result.kind == "measured" and entry.answers is not None for entry in section.entries)
        return section.kind == "phantom", section.kind != "complete", answered < 2, -answered

    return sorted(found, key=order)


def compared(board: Board, request: Mapping[str, Any]) -> Comparison | None:
    """What a request chooses: `set`, `metric`, and results under the keys SLOTS (by key, by name, or by model). What it does not say is
    chosen of the first set that has two results (`_next_by_default`). None where no set has."""
    sections = comparable_sections(board)
    if not sections:
        return None
    wanted, said = (
        str(request.get("set") or ""),
        [name for slot in SLOTS if (name := str(request.get(slot) or "").strip())],
    )
    # Without a set, the first that has a result of every name.
    has_all = (one for one in sections if all(find_result(one.entries, name) for name in said))
    section = next((one for one in sections if f"{one.family}/{one.key}" == wanted), next(has_all, sections[0]))
    outcomes, _ = board.outcomes(section)
    named = labels(section.entries)
    taken = [slot for slot in SLOTS if str(request.get(slot) or "").strip()]
    found = [(name, find_result(section.entries, name)) for name in said]
    chosen = list({entry.key: entry for _, entry in found if entry is not None}.values())
    unknown = tuple(name for name, entry in found if entry is None)
    metrics = [name for name in metrics_of(section, outcomes) if info_of(name).unit != "count"]
    draft = Comparison(section, outcomes, chosen, named, metrics, "", unknown)
    asked = str(request.get("metric"))
    chosen_by = asked if asked in metrics else next(iter(metrics), "")
    is_example = not said
    while max(len(chosen), len(said)) < 2 and not unknown:
        entry = _next_by_default(draft, chosen_by, chosen)
        if entry is None:
            break
        chosen.insert(0 if said and "first" not in taken else len(chosen), entry)
    known = [name for name in metrics if len(draft.scores(name)) >= min(2, len(chosen))]
    # For a run without a score the page gives the reason, for the requested score.
    without = [name for name in metrics if name not in known and any(draft.no_score(entry, name) for entry in chosen)]
    known = [name for name in metrics if name in known or name in without]
    metric = asked if asked in known else next(iter(known), "")
    fields = tuple(named[entry.key] if entry is not None else name for name, entry in found)
    if len(chosen) > len(found):
        fields = tuple(named[entry.key] for entry in chosen)
    shown = Comparison(section, outcomes, chosen, named, known, metric, unknown, is_example, fields, bool(wanted))
    pairs = shown.differences(metric) if len(chosen) == 2 else []
    return replace(shown, chosen=chosen[::-1]) if pairs and pairs[0].value < 0 else shown


def _next_by_default(draft: Comparison, metric: str, chosen: Sequence[Entry]) -> Entry | None:
    """The result to compare with those `chosen` where none is named: the best of the results that stand for their models, of another model
    and with another score, since equal answers show nothing. Answers come before numbers alone, models before baselines."""
    up = info_of(metric).higher_is_better is not False
    standing: dict[Owner, Entry] = {}
    for entry in sorted(draft.section.entries, key=order_of):
        if group_of(entry) == "ranked":
            standing.setdefault(owner_of(entry), entry)
    values = draft.values(metric)
    taken = {identity_of(entry.result.model.name) for entry in chosen}
    scored = {values.get(entry.key) for entry in chosen}
    answered = draft.outcomes is not None and len(draft.outcomes.runs) > 1

    def order(entry: Entry) -> tuple[object, ...]:
        value = values.get(entry.key)
        return (
            value is None,
            answered and not draft.has_answers(entry),
            identity_of(entry.result.model.name) in taken,
            entry.is_baseline,
            entry not in standing.values(),
            value in scored,
            -(value or 0.0) if up else value or 0.0,
        )

    return min((entry for entry in draft.section.entries if entry not in chosen), key=order, default=None)
