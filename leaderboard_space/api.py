"""The board for programs: what the API (and an agent that uses it) can ask, with names and words of this board. No Gradio here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataset_builders.errors import BadInput
from dataset_builders.schema import FORMATS
from leaderboard_space.export import breakdown_table, leaderboard_table
from leaderboard_space.sections import Board
from leaderboard_space.service import Asked, Service
from leaderboard_space.standings import ALL, ONE, metrics_of
from leaderboard_space.tree import SEPARATOR, Path, Tree
from leaderboard_space.views.breakdown import METRICS_FACET, cells_of, facets_of


def tools(board: Board, service: Service) -> list[Callable[..., Any]]:
    """The functions to offer; their names, types and docstrings are what a caller sees."""

    def question_sets() -> list[dict[str, Any]]:
        """The sets of questions on this board: benchmark, key, split, kind (complete, unconfirmed, sample, partial, custom,
        phantom, retired), how many questions and results, and the scores they can be ranked by."""
        return [
            {
                "benchmark": section.format,
                "question_set": section.key,
                "split": section.split,
                "kind": section.kind,
                "questions": section.questions,
                "results": len(section.entries),
                "metrics": metrics_of(section, (board.outcomes(section) or (None,))[0]),
            }
            for sections in board.snapshot.sections.values()
            for section in sections
        ]

    def leaderboard(
        benchmark: str,
        branches: list[str] | None = None,
        metric: str = "",
        question_set: str = "",
        every_run: bool = False,
    ) -> list[dict[str, Any]]:
        """Results of a benchmark (mediconfusion, probmed, gmai-mmbench, halt-medvqa) for a selection of questions, best first: score
        with 95 % interval, n, chance, verdict, the places the model may hold, and where the number comes from.

        Args:
            benchmark: one of the four formats
            branches: union of branches like "Ophthalmology > Fundus Photography" or "task: Counting"; none means everything
            metric: name of a score; the benchmark's headline if empty
            question_set: key from question_sets; the complete official set if empty
            every_run: every result instead of one per model
        """
        asked = _understood(board, service, benchmark, branches, metric, question_set, every_run)
        return leaderboard_table(asked.section, service.standings(asked), asked.branches)

    def branches_of(benchmark: str, question_set: str = "", contains: str = "") -> list[str]:
        """The branches of a set of questions whose name contains a text, as `leaderboard` takes them (at most 200).

        Args:
            benchmark: one of the four formats
            question_set: key from question_sets; the complete official set if empty
            contains: a part of the branch's name; every branch if empty
        """
        section = board.snapshot.section(benchmark, question_set or None)
        if section is None:
            raise BadInput(f"benchmark {benchmark!r}: this board has no results of it.")
        loaded = board.outcomes(section)
        assert loaded is not None
        found = [
            f"{path[0]}: {SEPARATOR.join(path[1:])}" for path in loaded[1].rows if contains.lower() in path[-1].lower()
        ]
        return found[:200]

    def breakdown(
        benchmark: str, facet: str, metric: str = "", branches: list[str] | None = None, question_set: str = ""
    ) -> list[dict[str, Any]]:
        """Scores of every result per value of a facet (category, department, modality, task, image_type, organ, scenario, ...): one row
        per result and value, with 95 % interval, n, chance and the table or run the number comes from.

        Args:
            benchmark: one of the four formats
            facet: what to break down by; a wrong one is answered with those there are
            metric: name of a score; the benchmark's headline if empty
            branches: break only this selection down; none means everything
            question_set: key from question_sets; the complete official set if empty
        """
        asked = _understood(board, service, benchmark, branches, metric, question_set, True)
        there = [name for name in facets_of(asked.section, asked.outcomes) if name != METRICS_FACET]
        if facet not in there:
            raise BadInput(f"facet {facet!r}: not known of these questions. There are: {', '.join(there) or 'none'}.")
        cells = cells_of(asked.section, asked.outcomes, asked.tree, asked.metric, facet, asked.branches, asked.metrics)
        return breakdown_table(asked.section, asked.section.entries, facet, cells, asked.metric, asked.branches)

    return [question_sets, leaderboard, branches_of, breakdown]


def _understood(
    board: Board,
    service: Service,
    benchmark: str,
    branches: list[str] | None,
    metric: str,
    question_set: str,
    every_run: bool,
) -> Asked:
    """A call, checked. Raises BadInput for what is not on the board."""
    if benchmark not in FORMATS:
        raise BadInput(f"benchmark {benchmark!r}: give one of {', '.join(FORMATS)}.")
    section = board.snapshot.section(benchmark, question_set or None)
    if section is None or (question_set and section.key != question_set):
        raise BadInput(f"question_set {question_set!r}: not on this board. question_sets names them.")
    loaded = board.outcomes(section)
    assert loaded is not None
    paths = [list(path) for branch in branches or [] for path in find_branch(loaded[1], branch)]
    asked = service.asked(
        {
            "format": benchmark,
            "section": section.key,
            "metric": metric,
            "branches": paths,
            "shown": ALL if every_run else ONE,
        }
    )
    if metric and asked.metric != metric:
        raise BadInput(f"metric {metric!r}: not known here. There are: {', '.join(asked.metrics)}.")
    return asked


def find_branch(tree: Tree, said: str) -> list[Path]:
    """The paths that a branch expression names: steps divided by ">", the first optionally as `facet: label`; case does not matter.

    Raises BadInput when there is no such branch.
    """
    facet, colon, rest = said.partition(":")
    known = {path[0] for path in tree.rows}
    named = facet.strip().lower() if colon and facet.strip().lower() in known else None
    steps = tuple(step.strip().lower() for step in (rest if named else said).split(">"))
    found = [
        path
        for path in tree.rows
        if (named is None or path[0] == named) and tuple(label.lower() for label in path[1:]) == steps
    ]
    if not found:
        near = sorted({path[-1] for path in tree.rows if steps[-1] and steps[-1] in path[-1].lower()})[:3]
        hint = f" Did you mean {', '.join(repr(name) for name in near)}?" if near else ""
        raise BadInput(f"branch {said!r}: not in this set of questions.{hint}")
    return found
