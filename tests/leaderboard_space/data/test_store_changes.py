"""Test a store that changes while it is read: files that appear late, vanish, or contain impossible
values.
"""

from pathlib import Path

import pytest

from leaderboard_space.data.board import Board
from leaderboard_space.data.store.sections import Section
from tests.leaderboard_space.stores import add_run, answers, questions

FORMAT = "halt-medvqa"


def section_of(board: Board) -> Section:
    return board.snapshot.sections[FORMAT][0]


def measured(board: Board) -> int:
    """Count the results that are scored from their answers."""
    outcomes, _ = board.outcomes(section_of(board)) or (None, None)
    return len(outcomes.runs) if outcomes is not None else 0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    question_table = questions(FORMAT, 30)
    for number in range(3):
        add_run(tmp_path, FORMAT, question_table, answers(question_table, 0.5, seed=number), f"Model {number}")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "expected_results", "expected_text"),
    [("results/*/Model-1/*/units.parquet", 2, "Model 1: its units"), ("questions/*.parquet", 0, "the questions")],
)
def test_what_comes_after_its_result_is_read(store: Path, file: str, expected_results: int, expected_text: str) -> None:
    late = next(store.glob(file))
    body = late.read_bytes()
    late.write_bytes(body[: len(body) // 2])
    board = Board(store)
    assert measured(board) == expected_results
    assert any(f"{expected_text} cannot be read" in note for note in board.notes(section_of(board)))
    late.write_bytes(body)
    board.refresh()
    assert measured(board) == 3
    assert board.notes(section_of(board)) == ()


def test_a_store_that_is_away_for_a_moment_keeps_its_results_on_show(store: Path) -> None:
    board = Board(store)
    old_snapshot = board.snapshot
    (store / "results").rename(store / "away")
    with pytest.raises(OSError, match="unavailable"):
        board.refresh()
    assert board.snapshot is old_snapshot
    (store / "away").rename(store / "results")
    assert board.refresh().stamp == old_snapshot.stamp
