"""Test a results store that is a dataset repository: it is read from the loopback Hub, and read
again when it grows.
"""

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from dataset_builders.errors import BadInput
from eval_harness.store.scan import scan_store
from leaderboard_space.data.board import Board
from tests.commands import medprobe
from tests.leaderboard_space.stores import add_run, answers, questions
from tests.localhub.accounts import CURATOR

REPO = {"repo_id": "ORG/results", "repo_type": "dataset"}


@pytest.fixture
def api(local_hub: Any, monkeypatch: pytest.MonkeyPatch) -> HfApi:
    """Return the client of an empty store's owner; the board checks for news at every refresh."""
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    monkeypatch.setattr("eval_harness.store.scan.HUB_RECHECK_SECONDS", 0)
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
