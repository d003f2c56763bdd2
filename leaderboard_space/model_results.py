"""Collect everything that the board knows about one model: its results on every question set, and
where each is weak and strong.

See also: which names mean one model (`data/sections.py`), drawing (`views/model.py`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dataset_builders.benchmarks import FORMATS, facets_of
from dataset_builders.facets import UNLABELLED
from eval_harness.records.result import Score
from leaderboard_space.benchmarks import BENCHMARK_LABELS, board_spec, gives_away, metric_info
from leaderboard_space.data.board import Board
from leaderboard_space.data.outcomes import Outcomes
from leaderboard_space.data.sections import (
    GROUP_HEADINGS,
    ONE_PER_MODEL,
    Entry,
    Row,
    Section,
    canonical_name,
    preference_key,
)
from leaderboard_space.data.tree import display_label
from leaderboard_space.query import BoardQuery, parse_query
from leaderboard_space.sentences import EQUAL_TOLERANCE, MIN_CASES

MAX_ENDS, MAX_SPOTS = 3, 6
"""Maximum numbers of facet values listed as weakest (and as strongest), and of weak spots over all
benchmarks."""
PART_NAMES = {
    "phantom": "drawn images",
    "sample": "a sample",
    "partial": "a part",
    "unconfirmed": "unverified",
    "retired": "an earlier version",
}
"""Kind of question set -> suffix to the benchmark's name; the complete set has none."""


@dataclass(frozen=True)
class Line:
    """A model's result on a question set.

    Args:
        query: The question set, ranked by its headline metric.
        row: The result's row in the standings.
        ranked: Number of rows with ranks in its group.
    """

    query: BoardQuery
    row: Row
    ranked: int

    @property
    def section(self) -> Section:
        return self.query.section

    @property
    def metric(self) -> str:
        return self.query.metric

    @property
    def score(self) -> Score:
        return self.row.score

    @property
    def questions(self) -> str:
        """The benchmark, and what its questions are if they are not its complete set."""
        kind = self.section.kind
        part = self.section.benchmark if kind == "custom" else PART_NAMES.get(kind)
        return BENCHMARK_LABELS[self.section.family] + (f" ({part})" if part else "")


@dataclass(frozen=True)
class Ends:
    """The weakest and the strongest values of a facet. Each of the strongest is better than each of
    the weakest.

    Args:
        facet: The facet.
        metric: The metric.
        weakest: Values with their scores, worst first.
        strongest: Values with their scores, best first.
        known: Number of values with at least `MIN_CASES` cases, which are compared.
        left_out: Number of values with fewer.
        against_chance: True if they are ordered by score minus chance.
    """

    facet: str
    metric: str
    weakest: list[tuple[str, Score]]
    strongest: list[tuple[str, Score]]
    known: int
    left_out: int
    against_chance: bool


@dataclass(frozen=True)
class Share:
    """How often an option's letter (or yes, no) was chosen where it was offered, and how often it
    is the key, in percent."""

    name: str
    chosen: Score
    key: float | None


def model_entries(board: Board, name: str) -> list[tuple[Section, Entry]]:
    """List every result of a model, under any of its names, in the order of the board.

    Args:
        board: The board.
        name: Any name of the model.
    """
    identity = canonical_name(name)
    return [
        (section, entry)
        for family in FORMATS
        for section in board.snapshot.sections.get(family, [])
        for entry in section.entries
        if canonical_name(entry.result.model.name) == identity
    ]


def all_models(board: Board) -> list[str]:
    """List the models on the board, each under one name, in alphabetical order, baselines last."""
    is_reference = {
        canonical_name(entry.result.model.name): entry.is_reference
        for section in board.snapshot.all_sections
        for entry in section.entries
    }
    return sorted(is_reference, key=lambda name: (is_reference[name], name.lower()))


def model_lines(board: Board, name: str) -> list[Line]:
    """List a model's results: one line for every question set and account.

    Within a set, ranked results come first, and among them the one that represents the model
    (`sections.preference_key`).

    Args:
        board: The board.
        name: Any name of the model.
    """
    identity, lines = canonical_name(name), []
    # A set appears once, even if the model has several results on it.
    for section in dict.fromkeys(section for section, _ in model_entries(board, name)):
        query = parse_query(board, {"format": section.family, "section": section.key, "shown": ONE_PER_MODEL})
        standings = query.standings
        # Results may spell the model's name differently.
        rows = [row for row in standings.rows if canonical_name(row.entry.result.model.name) == identity]
        ranked = Counter(row.group for row in standings.rows if row.best_rank is not None)
        lines += [
            Line(query, row, ranked[row.group])
            for row in sorted(rows, key=lambda row: (list(GROUP_HEADINGS).index(row.group), preference_key(row.entry)))
            if row.score.value is not None or row.score.nonresponse is not None
        ]
    return lines


def main_lines(lines: list[Line]) -> list[Line]:
    """Return the first ranked line of every benchmark."""
    main: dict[str, Line] = {}
    for line in (line for line in lines if line.row.group == "ranked"):
        main.setdefault(line.section.family, line)
    return list(main.values())


def scores_by_metric(line: Line, metrics: Sequence[str] | None = None) -> dict[str, Score]:
    """Return the scores of a line's result, except shares of letters, in the board's order.

    `metrics` limits them; None means all.
    """
    key, scores = line.row.entry.key, dict[str, Score]()
    for metric in line.query.metrics if metrics is None else [name for name in line.query.metrics if name in metrics]:
        score = line.query.scores(metric, frozenset({key})).get(key)
        if score is not None and score.value is not None:
            scores[metric] = score
    return scores


def facet_ends(line: Line) -> list[Ends]:
    """Find the weakest and strongest values of each facet with at least two known values.

    They are compared by the line's metric or, if it is unknown there, by the first known metric.
    """
    family, ends = line.section.family, []
    outcomes = line.query.outcomes
    columns = outcomes.questions.columns if outcomes is not None else ()
    for facet in sorted(facets_of(family, columns), key=lambda facet: facet != board_spec(family).first_facet):
        metrics = dict.fromkeys((line.metric, *line.query.metrics))
        for metric in (name for name in metrics if not gives_away(family, name, (facet,))):
            scores = facet_scores(line, facet, metric) if metric_info(metric).unit == "percent" else {}
            # A single value cannot be compared: try the next metric.
            if len(scores) > 1:
                ends.append(_ends(facet, metric, scores))
                break
    return ends


@dataclass(frozen=True)
class Spot:
    """Something that a model was tested on.

    Args:
        line: The result.
        name: The aspect or the label, in words.
        metric: The score.
        score: Its value.
        facet: Facet of the label; "" for an aspect of the benchmark.
        label: Value of the facet.
    """

    line: Line
    name: str
    metric: str
    score: Score
    facet: str = ""
    label: str = ""

    @property
    def above_guessing(self) -> float:
        """Points on the better side of guessing; negative on the worse side."""
        sign = -1 if metric_info(self.metric).higher_is_better is False else 1
        return sign * ((self.score.value or 0.0) - (self.score.chance or 0.0))


def weak_spots(lines: Sequence[Line]) -> list[Spot]:
    """List where a model is weakest compared with guessing, over all of its benchmarks.

    Only spots with at least `MIN_CASES` cases count. Those significantly worse than guessing come
    first; those significantly better are left out unless there are no others.
    """
    spots: list[Spot] = []
    for line in lines:
        aspects = board_spec(line.section.family).aspects
        by_metric = scores_by_metric(line, tuple(aspects)) if len(aspects) > 1 else {}
        spots += [Spot(line, aspects[metric], metric, score) for metric, score in by_metric.items()]
        spots += [
            Spot(line, display_label(ends.facet, label), ends.metric, score, ends.facet, label)
            for ends in facet_ends(line)
            for label, score in ends.weakest
        ]
    tested = [spot for spot in spots if spot.score.chance is not None and spot.score.n_cases >= MIN_CASES]
    tested.sort(key=lambda spot: (spot.score.verdict != "worse", spot.above_guessing))
    return ([spot for spot in tested if spot.score.verdict != "better"] or tested)[:MAX_SPOTS]


def facet_scores(line: Line, facet: str, metric: str) -> dict[str, Score]:
    """Return facet value -> the score of the line's result there.

    Args:
        line: The result.
        facet: The facet.
        metric: The score.
    """
    key = line.row.entry.key
    columns = line.query.cells(facet, metric, frozenset({key}))
    scores = {label: scores[key] for label, scores in columns.items() if key in scores and label != UNLABELLED}
    return {label: score for label, score in scores.items() if score.value is not None}


def _ends(facet: str, metric: str, cells: dict[str, Score]) -> Ends:
    """Find the weakest and strongest values of a facet. `cells`: value -> score."""
    # Small values would be extreme by chance alone.
    large = {label: score for label, score in cells.items() if score.n_cases >= MIN_CASES}
    scores = large if len(large) > 1 else cells
    against_chance = all(score.chance is not None for score in scores.values())
    sign = -1 if metric_info(metric).higher_is_better is False else 1

    def height(item: tuple[str, Score]) -> tuple[float, str]:
        label, score = item
        return sign * ((score.value or 0.0) - ((score.chance or 0.0) if against_chance else 0.0)), label

    ordered = sorted(scores.items(), key=height)
    size = min(MAX_ENDS, len(ordered) // 2)
    while size and height(ordered[-size])[0] - height(ordered[size - 1])[0] <= EQUAL_TOLERANCE:
        size -= 1  # a value listed as strongest must be better than those listed as weakest
    left_out = len(cells) - len(scores)
    return Ends(facet, metric, ordered[:size], ordered[::-1][:size], len(scores), left_out, against_chance)


def option_shares(line: Line) -> list[Share]:
    """Return how often the result chose each letter, or yes and no.

    The list is empty if that was not recorded; papers do not print it.
    """
    scores, method = line.row.entry.result.scores, line.row.entry.result.method
    # With --permute, each question is shown once per option order, so the key has another letter in
    # each of them.
    orders = method.samples or 1 if method.generation.get("permute") else 1
    keys = _key_shares(line.query.outcomes, orders) if line.query.outcomes is not None else {}
    shares = {name.removeprefix("share_"): score for name, score in scores.items() if name.startswith("share_")}
    return [Share(name, score, keys.get(name)) for name, score in shares.items() if score.value is not None]


def _key_shares(outcomes: Outcomes, orders: int) -> dict[str, float]:
    """Compute how often each letter, or yes and no, is the only right option.

    The result is in percent of the questions that offer the letter.

    Args:
        outcomes: The questions.
        orders: Number of option orders in which each question was shown (`--permute`).
    """
    offered: Counter[str] = Counter()
    right: Counter[str] = Counter()
    table = outcomes.questions
    for kind, options, key in zip(table["question_type"], table["options"], table["answer"], strict=True):
        if len(key) == 1 and kind != "multiple":  # skip questions with several right options or a hidden key
            names = ("yes", "no") if kind == "yes_no" else [chr(65 + at) for at in range(len(options))]
            offered.update(dict.fromkeys(names, orders))
            right.update(names[(int(key[0]) - turn) % len(options)] for turn in range(orders))
    return {name: 100 * right[name] / n for name, n in offered.items()}
