"""Test how the board reads a store: it may change meanwhile, or be a repository on the Hub; each
cached result is computed once and dropped together with its inputs.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from dataset_builders.errors import BadInput
from eval_harness.store.contents import scan_store
from leaderboard_space.data import cache
from leaderboard_space.data.board import Board
from leaderboard_space.data.store.sections import Section
from leaderboard_space.query import parse_query
from tests.commands import medprobe
from tests.eval_harness.store.submitting import REPO
from tests.leaderboard_space.stores import add_run, answers, questions
from tests.localhub.accounts import CURATOR


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


@pytest.fixture
def api(local_hub: Any, monkeypatch: pytest.MonkeyPatch) -> HfApi:
    """Return the client of an empty store's owner; the board checks for news at every refresh."""
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    monkeypatch.setattr("eval_harness.store.contents.HUB_RECHECK_SECONDS", 0)
    api = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    api.create_repo(**REPO)
    return api


def result_of(model: str, folder: Path) -> Path:
    """Return a store with one result."""
    question_table = questions("halt-medvqa", 12)
    add_run(folder, "halt-medvqa", question_table, answers(question_table, 0.5), model)
    return folder


def names(board: Board) -> list[str]:
    return [entry.result.model.name for section in board.snapshot.sections["halt-medvqa"] for entry in section.entries]


def test_a_repository_that_is_not_there_is_one_clear_line(local_hub: Any) -> None:
    with pytest.raises(BadInput, match="results store ORG/not-there"):
        Board("ORG/not-there")


def test_a_new_repository_without_results_is_a_board_to_begin_with(api: HfApi, tmp_path: Path) -> None:
    """A Space is set up before the first submission; it must start, show the first result, and
    continue when results are withdrawn.
    """
    board = Board("ORG/results")
    assert not any(board.snapshot.sections.values()) and board.snapshot.problems == ()
    board.refresh()
    api.upload_folder(**REPO, folder_path=result_of("One", tmp_path / "first"))
    board.refresh()
    assert names(board) == ["One"] and board.outcomes(board.snapshot.sections["halt-medvqa"][0])[0] is not None
    api.upload_folder(**REPO, folder_path=result_of("Two", tmp_path / "second"))
    board.refresh()
    assert names(board) == ["One", "Two"]
    api.delete_folder("results", **REPO)
    board.refresh()
    assert not any(board.snapshot.sections.values())


def test_results_of_a_repository_are_loaded_and_make_a_table(api: HfApi, tmp_path: Path) -> None:
    assert scan_store("ORG/results") == ([], [])
    api.upload_folder(**REPO, folder_path=result_of("One", tmp_path / "first"))
    assert [entry.result.model.name for entry in scan_store("ORG/results")[0]] == ["One"]
    head, first_row, *_ = medprobe("results", "ORG/results", "--format", "csv", cwd=tmp_path).stdout.splitlines()
    assert head.startswith("benchmark,split,model") and ",One," in first_row
