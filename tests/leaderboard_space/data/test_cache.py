"""Test the board's cache: each result is computed once and dropped together with its inputs, and
the number of results is bounded.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leaderboard_space.data import cache
from leaderboard_space.data.board import Board
from leaderboard_space.query import parse_query
from tests.leaderboard_space.stores import add_run, answers, questions


def test_a_result_is_computed_once_for_many_threads() -> None:
    calls: list[int] = []

    @cache.cached(cache.COMPUTING)
    def square(number: int) -> int:
        time.sleep(0.01)
        calls.append(number)
        return number * number

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(square, [3, 4] * 20)) == [9, 16] * 20
    assert sorted(calls) == [3, 4]


def test_an_error_is_not_kept_and_the_least_recently_used_result_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_results", type(cache._results)())
    monkeypatch.setattr(cache, "MAX_RESULTS", 2)
    calls: list[int] = []

    @cache.cached(cache.COMPUTING)
    def inverse(number: int) -> float:
        calls.append(number)
        return 1 / number

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            inverse(0)
    for number in (1, 2, 1, 3, 1, 2):
        inverse(number)
    assert calls == [0, 0, 1, 2, 3, 2]


def test_results_of_an_unchanged_section_outlive_a_change_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    for family in ("halt-medvqa", "gmai-mmbench"):
        question_table = questions(family, 12, seed=1)
        add_run(tmp_path, family, question_table, answers(question_table, 0.5), "One")
    board = Board(tmp_path)
    (halt,), (gmai,) = (board.snapshot.sections[family] for family in ("halt-medvqa", "gmai-mmbench"))
    cached_answers = board.outcomes(halt), board.outcomes(gmai)
    query = parse_query(board, {"format": "halt-medvqa"})
    assert query.standings is parse_query(board, {"format": "halt-medvqa"}).standings
    assert board.refresh() is board.refresh()

    question_table = questions("halt-medvqa", 12, seed=1)
    add_run(tmp_path, "halt-medvqa", question_table, answers(question_table, 0.1), "Two")
    board.refresh()
    (new_section,) = board.snapshot.sections["halt-medvqa"]
    assert new_section is not halt and board.snapshot.sections["gmai-mmbench"] == (gmai,)
    assert board.outcomes(gmai) is cached_answers[1] and not any(halt in key for key in cache._results)
    assert [row.entry.result.model.name for row in parse_query(board, {"format": "halt-medvqa"}).standings.rows]
