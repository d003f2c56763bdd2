"""A store that changes while it is read: files that come late, go, or say what cannot be."""

import os
import shutil
from pathlib import Path

import pytest

from leaderboard_space.data.board import Board
from leaderboard_space.data.store.sections import Section
from leaderboard_space.service import Service
from tests.leaderboard_space.stores import add_run, answers, questions

FORMAT = "halt-medvqa"


def section_of(board: Board) -> Section:
    return board.snapshot.sections[FORMAT][0]


def measured(board: Board) -> int:
    """How many results are scored from their answers."""
    outcomes, _ = board.outcomes(section_of(board)) or (None, None)
    return len(outcomes.runs) if outcomes is not None else 0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    asked = questions(FORMAT, 30)
    for number in range(3):
        add_run(tmp_path, FORMAT, asked, answers(asked, 0.5, seed=number), f"Model {number}")
    return tmp_path


def test_answers_that_come_after_their_result_are_read(store: Path) -> None:
    late = next((store / "results").glob("*/Model-1/*/units.parquet"))
    body = late.read_bytes()
    late.write_bytes(body[: len(body) // 2])
    board = Board(store)
    assert measured(board) == 2
    assert any("Model 1: its units cannot be read" in note for note in section_of(board).notes)
    late.write_bytes(body)
    board.refresh()
    assert measured(board) == 3
    assert section_of(board).notes == []


def test_questions_that_come_last_are_read(store: Path) -> None:
    kept = next((store / "questions").glob("*.parquet"))
    body = kept.read_bytes()
    kept.unlink()
    board = Board(store)
    assert measured(board) == 0
    kept.write_bytes(body)
    board.refresh()
    assert measured(board) == 3


def test_a_reader_hears_that_one_result_took_the_place_of_another(store: Path) -> None:
    board = Board(store)
    service = Service(board)
    before = service.view({"format": FORMAT})
    gone = next((store / "results" / FORMAT).glob("Model-2/*"))
    old = (gone / "result.json").stat()
    asked = questions(FORMAT, 30)
    new = add_run(store, FORMAT, asked, answers(asked, 0.5, seed=9), "Model 9")
    for path in new.iterdir():  # as old as the one that goes: neither the count of results nor the newest date changes
        os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    shutil.rmtree(gone.parent)
    board.refresh()
    after = service.view({"format": FORMAT, "stamp": before["stamp"]})
    assert "Model 9" in after["html"] and "Model 2" not in after["html"]


def test_a_store_that_is_away_for_a_moment_keeps_its_results_on_show(store: Path) -> None:
    board = Board(store)
    before = board.snapshot
    (store / "results").rename(store / "away")
    with pytest.raises(OSError, match="away"):
        board.refresh()
    assert board.snapshot is before
    (store / "away").rename(store / "results")
    assert board.refresh().stamp == before.stamp
