"""Any results on the same questions compared with each other: paired where the answers of both are known, else by their numbers.

See also: drawing (`views/comparing/compare.py`), sentences (`sentences/`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from eval_harness.results import Score
from eval_harness.scores.statistics import paired_test
from leaderboard_space.data.board import Board
from leaderboard_space.data.ranks.outcomes import Outcomes
from leaderboard_space.data.ranks.pairs import unpaired_difference
from leaderboard_space.data.ranks.ranking import scores_of
from leaderboard_space.data.ranks.standings import info_of, metrics_of, with_interval
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.views.tables.choices import find_result, labels

SLOTS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
"""The keys of an address that name the results to compare."""
LEVEL = 0.05
UNPAIRED = "unpaired, from the printed numbers"


@dataclass(frozen=True)
class Difference:
    """Two results of a comparison: the difference in points (one - other), its interval, and two-sided p-values of this comparison alone
    and corrected for all the pairs that are compared here (Holm). `n` units, of which each won so many alone; None where unpaired."""

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
        """Whether the two are told apart among all the pairs of the comparison."""
        return self.corrected < LEVEL and abs(self.value) > 1e-9


@dataclass(frozen=True)
class Comparison:
    """Results on the same questions, as a request chooses them. `named`: a name for every result of the section, none twice.

    `unknown`: what the request names and is not there."""

    section: Section
    outcomes: Outcomes | None
    chosen: list[Entry]
    named: dict[str, str]
    metrics: list[str]
    metric: str
    unknown: tuple[str, ...] = ()

    def has_answers(self, entry: Entry) -> bool:
        """Whether the result can be compared question by question."""
        return self.outcomes is not None and entry.key in self.outcomes.row_of

    def name(self, entry: Entry) -> str:
        """How a chosen result is called: what tells it apart from the others that are chosen."""
        return self.name_of(entry.key)

    def name_of(self, key: str) -> str:
        """The same by its key."""
        return labels(self.chosen)[key]

    def score(self, entry: Entry, metric: str) -> Score | None:
        """The result's score, from its answers where they are known; None where it has none."""
        if self.outcomes is not None and self.has_answers(entry) and metric in self.outcomes.metrics:
            units = self.outcomes.metrics[metric].part(runs=np.array([self.outcomes.row_of[entry.key]]))
            found: Score | None = scores_of(units, info_of(metric).higher_is_better)[0]
        else:
            found = entry.result.scores.get(metric)
        return with_interval(found, metric) if found is not None and found.value is not None else None

    def scores(self, metric: str) -> dict[str, Score]:
        """Entry key -> score, of those chosen that have one."""
        found = {entry.key: self.score(entry, metric) for entry in self.chosen}
        return {key: score for key, score in found.items() if score is not None}

    def differences(self, metric: str) -> list[Difference]:
        """Every pair of the chosen results of which both have the score; told apart first, the largest difference before the others."""
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
    raw = np.array([pair.p for pair in pairs])
    order = np.argsort(raw, kind="stable")
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(np.maximum.accumulate(raw[order] * (len(raw) - np.arange(len(raw)))), 1.0)
    return [replace(pair, corrected=float(p)) for pair, p in zip(pairs, adjusted.tolist(), strict=True)]


def comparable_sections(board: Board) -> list[Section]:
    """Sets of questions with at least two results, those with answers of most results first among the complete ones."""
    found = [section for held in board.snapshot.sections.values() for section in held if len(section.entries) > 1]

    def order(section: Section) -> tuple[bool, int]:
        answered = sum(entry.result.kind == "measured" and entry.answers is not None for entry in section.entries)
        return answered < 2, -answered

    return sorted(found, key=order)


def compared(board: Board, request: Mapping[str, Any]) -> Comparison | None:
    """What a request chooses: `set`, `metric`, and results under the keys SLOTS (by key, by name, or by model). What it does not say is
    the best of the first set that has two results. None where no set has."""
    sections = comparable_sections(board)
    if not sections:
        return None
    wanted = str(request.get("set") or "")
    section = next((one for one in sections if f"{one.family}/{one.key}" == wanted), sections[0])
    loaded = board.outcomes(section)
    outcomes = loaded[0] if loaded else None
    named = labels(section.entries)
    said = [str(request[slot]).strip() for slot in SLOTS if str(request.get(slot) or "").strip()]
    found = [(name, find_result(section.entries, name)) for name in said]
    chosen = list({entry.key: entry for _, entry in found if entry is not None}.values())
    unknown = tuple(name for name, entry in found if entry is None)
    metrics = [name for name in metrics_of(section, outcomes) if info_of(name).unit != "count"]
    draft = Comparison(section, outcomes, chosen, named, metrics, "", unknown)
    for entry in _by_default(draft):
        if max(len(chosen), len(said)) >= 2 or unknown:
            break
        if entry.key not in {one.key for one in chosen}:
            chosen.append(entry)
    known = [name for name in metrics if len(draft.scores(name)) >= min(2, len(chosen))]
    metric = str(request.get("metric"))
    metric = metric if metric in known else next(iter(known), "")
    return Comparison(section, outcomes, chosen, named, known, metric, unknown)


def _by_default(draft: Comparison) -> list[Entry]:
    """The results to compare where none is named: with answers first, then by score, no baselines before models, one per model."""
    first = next(iter(draft.metrics), "")
    up = info_of(first).higher_is_better is not False

    def order(entry: Entry) -> tuple[bool, bool, bool, float]:
        score = entry.result.scores.get(first)
        value = score.value if score is not None else None
        answered = draft.has_answers(entry) and len(draft.outcomes.runs if draft.outcomes else ()) > 1
        lowest = math.inf if value is None else (-value if up else value)
        return not answered, entry.is_baseline, entry.provenance.withdrawal is not None, lowest

    ordered = sorted(draft.section.entries, key=order)
    seen: dict[str, Entry] = {}
    for entry in ordered:
        seen.setdefault(entry.result.model.name, entry)
    return [*seen.values(), *(entry for entry in ordered if entry not in seen.values())]
