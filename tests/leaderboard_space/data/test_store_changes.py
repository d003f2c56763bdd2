"""A store that changes while it is read: files that come late, go, or say what cannot be."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from eval_harness.records.result import Score
from leaderboard_space.data.board import Board
from leaderboard_space.data.store.result_files import is_possible
from leaderboard_space.data.store.sections import Section
from leaderboard_space.service import Service
from tests.helpers import edit_json
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


def change(store: Path, model: str, edit: Any) -> None:
    path = next((store / "results" / FORMAT / model).glob("*/result.json"))
    edit_json(path, edit)
    (path.parent / "units.parquet").unlink()


def test_a_result_with_numbers_that_cannot_be_is_set_aside(store: Path) -> None:
    """Of a result without answers nothing can be computed again; a percentage of 1e308 must not be first for it."""
    change(store, "Model-0", lambda result: result["scores"]["average"].update(value=1e308, high=1e308))
    change(store, "Model-1", lambda result: [result["scores"][name].update(n=-1) for name in ("average", "fake")])
    board = Board(store)
    assert measured(board) == 1 and len(section_of(board).entries) == 1
    page = Service(board).view({"format": FORMAT, "metric": "average"})["html"]
    assert "2 files were set aside" in page and "average 1e+308 of n 30 is impossible." in page
    assert "Model 0" not in page and "Model 1" not in page


@pytest.mark.parametrize(
    ("metric", "changes", "expected"),
    [
        ("average", {}, True),
        ("average", {"value": 100.0000000001}, True),
        ("average", {"value": 100.1}, False),
        ("average", {"value": -0.1}, False),
        ("average", {"low": 60.0, "high": 40.0}, False),
        ("average", {"chance": 101.0}, False),
        ("average", {"n_cases": -1}, False),
        ("average", {"n_effective": 0.0}, False),
        ("fake_irrelevant", {"value": 543.0}, True),
        ("fake_irrelevant", {"value": -1.0}, False),
        ("something new", {"value": -12.5}, True),
    ],
)
def test_what_can_be(metric: str, changes: dict[str, Any], expected: bool) -> None:
    score = Score(value=50.0, n=1000, n_cases=1000)
    assert is_possible(metric, score.model_copy(update=changes)) is expected


def test_what_is_no_file_or_too_large_is_set_aside(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workdir = store / "results" / FORMAT / "pipe" / "run"
    workdir.mkdir(parents=True)
    os.mkfifo(workdir / "result.json")
    large = next((store / "results" / FORMAT / "Model-0").glob("*/result.json"))
    monkeypatch.setattr("leaderboard_space.data.store.result_files.LARGEST_RESULT", large.stat().st_size - 1)
    for other in (store / "results" / FORMAT).glob("Model-[12]/*/result.json"):
        other.write_text(json.dumps(json.loads(other.read_text(encoding="utf-8"))), encoding="utf-8")  # without indents
    board = Board(store)
    assert sorted(line.split(":")[0].split("/")[-3] for line in board.snapshot.problems) == ["Model-0", "pipe"]
    assert len(section_of(board).entries) == 2
