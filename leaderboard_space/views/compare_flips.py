"""The questions that flip: what one of two compared results got right and the other did not, with images, key and both answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from leaderboard_space import sentences
from leaderboard_space.comparing import Comparison
from leaderboard_space.data.answers_shown import responses
from leaderboard_space.data.board import Board
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.export import Table
from leaderboard_space.html import prose, text
from leaderboard_space.views.addresses import address_of, set_name
from leaderboard_space.views.case import article, datasets_of, given_to, in_full
from leaderboard_space.views.parts import files
from leaderboard_space.views.tables.choices import key_of

MOST_FLIPS = 8


def _two(found: Comparison) -> tuple[Entry, Entry] | None:
    """The first two of the results that can be compared question by question."""
    answered = [entry for entry in found.chosen if found.has_answers(entry)]
    if len(answered) < 2 or found.outcomes is None or found.metric not in found.outcomes.metrics:
        return None
    return answered[0], answered[1]


def _won_alone(found: Comparison, one: Entry, other: Entry) -> Iterator[tuple[Entry, int, list[int]]]:
    """The units that one of the two won alone: who, the case, and the positions of the questions of the unit."""
    assert found.outcomes is not None
    units, at = found.outcomes.metrics[found.metric], found.outcomes.unit_index[found.metric]
    left, right = (units.run(found.outcomes.row_of[entry.key])[0] for entry in (one, other))
    for unit in np.flatnonzero(left != right):
        if at.question[unit] >= 0:
            where = [int(at.question[unit])]
        else:
            where = np.flatnonzero(found.outcomes.case_of_question == at.case[unit]).tolist()
        yield one if left[unit] > right[unit] else other, int(found.outcomes.case_of_question[where[0]]), where


def rows(found: Comparison) -> Table:
    two = _two(found)
    if two is None or found.outcomes is None:
        return []
    given = [_said(entry) for entry in two]
    rows: Table = []
    for unit, (winner, _, where) in enumerate(_won_alone(found, *two), 1):
        for row in where:
            question = found.outcomes.questions.iloc[row]
            rows.append(
                {
                    "unit": unit,
                    "higher_here": found.name(winner),
                    "case_id": question["case_id"],
                    "question_id": question["question_id"],
                    "question": question["question"],
                    "key": in_full(question, key_of(found.section, question)) or "hidden",
                    "first": found.name(two[0]),
                    "first_answer": _answer(given[0], question),
                    "second": found.name(two[1]),
                    "second_answer": _answer(given[1], question),
                }
            )
    return rows


def _said(entry: Entry) -> pd.DataFrame:
    return responses(entry)


def _answer(frame: pd.DataFrame, question: pd.Series) -> str:
    """The options of an answer with their texts, else its status."""
    if question["question_id"] not in frame.index:
        return "no answer"
    row: Any = frame.loc[question["question_id"]]
    return in_full(question, [int(option) for option in row["choice"]]) or str(row["status"])


def view(board: Board, found: Comparison) -> str:
    """The cases of which one of the two got more right than the other, drawn with their images and both answers."""
    two = _two(found)
    if two is None:
        return ""
    assert found.outcomes is not None
    flipped = list(_won_alone(found, *two))
    if not flipped:
        return (
            '<h3>Questions that flip</h3><p class="sub">None: both have the same outcome everywhere on this score.</p>'
        )
    cases = list({case: (case, winner.key) for winner, case, _ in reversed(flipped)}.values())[::-1]
    shown = cases[:MOST_FLIPS]
    given = given_to(found.outcomes, np.array([case for case, _ in shown]), two)
    if len(given) < 2:
        return '<h3>Questions that flip</h3><p class="sub">The answers of one of the two cannot be read.</p>'
    ids = found.outcomes.questions.drop_duplicates("case_id")["case_id"].astype(str).tolist()
    body = ""
    for case, winner in shown:
        both = address_of("cases", ids[case], set=set_name(found.section), first=two[0].key, second=two[1].key)
        head = f'<small>{text(found.name_of(winner), 120)} scored more · <a href="{both}">both answers and neighbouring cases</a></small>'
        body += article(found.section, found.outcomes, case, two, given, datasets_of(board, found.section), head)
    sub = sentences.flips(found.name(two[0]), found.name(two[1]), len(flipped), len(cases), len(shown))
    if any((entry.result.method.samples or 1) > 1 for entry in two):
        sub += f" {sentences.FIRST_SAMPLE}"
    return f'<div class="bar-head"><h3>Questions that flip</h3>{files("flips")}</div><p class="sub">{prose(sub, 500)}</p>{body}'
