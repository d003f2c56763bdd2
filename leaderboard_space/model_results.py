"""Everything that the board knows of one model: its results in every set of questions, and where each is weak and strong.

See also: which names mean one model (`data/model_names.py`), drawing (`views/model.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dataset_builders.benchmarks import BENCHMARKS, FACETS_BY_BENCHMARK
from dataset_builders.lexical_tree import UNLABELLED
from eval_harness.records.result import Score
from leaderboard_space.benchmarks import LABELS, gives_away, spec
from leaderboard_space.data import cells
from leaderboard_space.data.board import Board
from leaderboard_space.data.model_names import identity_of
from leaderboard_space.data.outcomes import Outcomes
from leaderboard_space.data.ranks.groups import GROUPS, order_of
from leaderboard_space.data.ranks.standings import ONE, Row, info_of, metrics_of
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.data.tree import Tree, shown_label
from leaderboard_space.query import parse_query
from leaderboard_space.sentences import FEW, SAME

MOST_ENDS, MOST_SPOTS = 3, 6
"""Categories that are listed as the weakest, and as the strongest; weak spots over all benchmarks."""


@dataclass(frozen=True)
class Line:
    """The model's result in a set of questions. `ranked`: how many hold ranks in its group there; `outcomes` None: no answers are known."""

    section: Section
    metric: str
    row: Row
    ranked: int
    outcomes: Outcomes | None
    tree: Tree

    @property
    def score(self) -> Score:
        return self.row.score

    @property
    def questions(self) -> str:
        """What was asked, in a sentence: the benchmark, and what its questions are where they are not its complete set."""
        part = {
            "phantom": "drawn images",
            "sample": "a sample",
            "partial": "a part",
            "custom": self.section.benchmark,
            "unconfirmed": "unverified",
            "retired": "an earlier version",
        }.get(self.section.kind)
        return LABELS[self.section.family] + (f" ({part})" if part else "")


@dataclass(frozen=True)
class Ends:
    """The weakest and the strongest values of a facet by one metric, worst first and best first, each of the strongest better than each of
    the weakest. `known`: how many values have at least
    FEW cases, among which they are the ends; `left_out`: how many have fewer. `against_chance`: ordered by score minus chance."""

    facet: str
    metric: str
    weakest: list[tuple[str, Score]]
    strongest: list[tuple[str, Score]]
    known: int
    left_out: int
    against_chance: bool


@dataclass(frozen=True)
class Share:
    """How often an option's letter (or yes, no) was chosen where it was offered, and how often it is the key; percent."""

    name: str
    chosen: Score
    key: float | None


def entries_of(board: Board, name: str) -> list[tuple[Section, Entry]]:
    """Every result of a model, whatever it is called in it, in the order of the board."""
    wanted = identity_of(name)
    return [
        (section, entry)
        for family in BENCHMARKS
        for section in board.snapshot.sections.get(family, [])
        for entry in section.entries
        if identity_of(entry.result.model.name) == wanted
    ]


def all_models(board: Board) -> list[str]:
    """The models on the board under their one names, baselines last, in alphabetical order."""
    found = {
        identity_of(entry.result.model.name): entry.is_baseline
        for sections in board.snapshot.sections.values()
        for section in sections
        for entry in section.entries
    }
    return sorted(found, key=lambda name: (found[name], name.lower()))


def lines_of(board: Board, name: str) -> list[Line]:
    """One line for every set of questions and account, ranked ones first within a set, of these the one that stands for the model
    (`groups.order_of`)."""
    wanted, lines = identity_of(name), []
    for section in dict.fromkeys(section for section, _ in entries_of(board, name)):
        query = parse_query(board, {"format": section.family, "section": section.key, "shown": ONE})
        found = query.standings
        mine = [row for row in found.rows if identity_of(row.entry.result.model.name) == wanted]
        ranked = Counter(row.group for row in found.rows if row.first is not None)
        lines += [
            Line(section, query.metric, row, ranked[row.group], query.outcomes, query.tree)
            for row in sorted(mine, key=lambda row: (list(GROUPS).index(row.group), order_of(row.entry)))
            if row.score.value is not None or row.score.nonresponse is not None
        ]
    return lines


def main_lines(lines: list[Line]) -> list[Line]:
    """The first ranked line of every benchmark: what is said of it in a word."""
    found: dict[str, Line] = {}
    for line in lines:
        if line.row.group == "ranked":
            found.setdefault(line.section.family, line)
    return list(found.values())


def scores_by_metric(line: Line, wanted: Sequence[str] | None = None) -> dict[str, Score]:
    """Every score of a line's result but the shares of letters (or those `wanted`), in the board's order."""
    key, found = line.row.entry.key, dict[str, Score]()
    for metric in metrics_of(line.section, line.outcomes):
        if wanted is None or metric in wanted:
            held = cells.scores_by_entry(line.section, line.outcomes, line.tree, metric, (), frozenset({key}))
            if key in held and held[key].value is not None:
                found[metric] = held[key]
    return found


def ends_of(line: Line) -> list[Ends]:
    """The ends of each facet of which at least two values are known; by the line's metric, else by the first that is known there."""
    found = []
    first = spec(line.section.family).first_facet
    for facet in sorted(FACETS_BY_BENCHMARK.get(line.section.family, ()), key=lambda facet: facet != first):
        for metric in dict.fromkeys((line.metric, *metrics_of(line.section, line.outcomes))):
            if gives_away(line.section.family, metric, (facet,)):
                continue
            held = cells_of(line, facet, metric) if info_of(metric).unit == "percent" else {}
            if len(held) > 1:
                found.append(_ends(facet, metric, held))
                break
    return found


@dataclass(frozen=True)
class Spot:
    """Something that a model was tested on: an aspect of a benchmark, or a label by one score (`facet` and `label`)."""

    line: Line
    name: str
    metric: str
    score: Score
    facet: str = ""
    label: str = ""

    @property
    def above_guessing(self) -> float:
        """Points on the better side of guessing; negative on the worse one."""
        sign = -1 if info_of(self.metric).higher_is_better is False else 1
        return sign * ((self.score.value or 0.0) - (self.score.chance or 0.0))


def weak_spots(lines: Sequence[Line]) -> list[Spot]:
    """Where a model is weakest against guessing, over all of its benchmarks: what is significantly worse first; of at least FEW cases, and
    nothing that is better than guessing where there is other."""
    spots = []
    for line in lines:
        aspects = spec(line.section.family).aspects
        if len(aspects) > 1:
            held = scores_by_metric(line, tuple(aspects))
            spots += [Spot(line, aspects[metric], metric, score) for metric, score in held.items()]
        for found in ends_of(line):
            spots += [
                Spot(line, shown_label(found.facet, label), found.metric, score, found.facet, label)
                for label, score in found.weakest
            ]
    known = [spot for spot in spots if spot.score.chance is not None and spot.score.n_cases >= FEW]
    known.sort(key=lambda spot: (spot.score.verdict != "worse", spot.above_guessing))
    bad = [spot for spot in known if spot.score.verdict != "better"]
    return (bad or known)[:MOST_SPOTS]


def cells_of(line: Line, facet: str, metric: str) -> dict[str, Score]:
    """Value of a facet -> the score of the line's result there."""
    key = line.row.entry.key
    found = cells.cells_of(line.section, line.outcomes, line.tree, metric, facet, (), frozenset({key}))
    known = {label: held[key] for label, held in found.items() if key in held and label != UNLABELLED}
    return {label: score for label, score in known.items() if score.value is not None}


def _ends(facet: str, metric: str, cells: dict[str, Score]) -> Ends:
    many = {label: score for label, score in cells.items() if score.n_cases >= FEW}
    held = many if len(many) > 1 else cells
    against_chance = all(score.chance is not None for score in held.values())
    sign = -1 if info_of(metric).higher_is_better is False else 1

    def height(item: tuple[str, Score]) -> tuple[float, str]:
        label, score = item
        return sign * ((score.value or 0.0) - ((score.chance or 0.0) if against_chance else 0.0)), label

    ordered = sorted(held.items(), key=height)
    size = min(MOST_ENDS, len(ordered) // 2)
    while size and height(ordered[-size])[0] - height(ordered[size - 1])[0] <= SAME:
        size -= 1  # what is as high as the weakest is no end
    return Ends(
        facet,
        metric,
        weakest=ordered[:size],
        strongest=ordered[::-1][:size],
        known=len(held),
        left_out=len(cells) - len(held),
        against_chance=against_chance,
    )


def shares_of(line: Line) -> list[Share]:
    """How often the result chose each letter, or yes and no; empty where that was not recorded, as in papers."""
    held, method = line.row.entry.result.scores, line.row.entry.result.method
    turns = method.samples or 1 if method.generation.get("permute") else 1
    keys = _key_shares(line.outcomes, turns) if line.outcomes is not None else {}
    return [
        Share(name.removeprefix("share_"), score, keys.get(name.removeprefix("share_")))
        for name, score in held.items()
        if name.startswith("share_") and score.value is not None
    ]


def _key_shares(outcomes: Outcomes, turns: int) -> dict[str, float]:
    """Letter (yes, no) -> in percent of the questions that offer it, how often it is the one right option. `turns`: how many orders of its
    options each question was shown in (`--permute`)."""
    offered: Counter[str] = Counter()
    right: Counter[str] = Counter()
    table = outcomes.questions
    for kind, options, key in zip(table["question_type"], table["options"], table["answer"], strict=True):
        if len(key) != 1 or kind == "multiple":  # several right options, or a hidden key
            continue
        names = ("yes", "no") if kind == "yes_no" else [chr(65 + at) for at in range(len(options))]
        offered.update(dict.fromkeys(names, turns))
        right.update(names[(int(key[0]) - turn) % len(options)] for turn in range(turns))
    return {name: 100 * right[name] / of for name, of in offered.items()}
