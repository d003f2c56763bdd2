"""A results store that is a dataset repository: read from the loopback Hub by a process of its own, and read again when it grows."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.leaderboard_space.stores import add_run, answers, questions
from tests.localhub.accounts import CURATOR

SCRIPT = """
import sys
from pathlib import Path
from huggingface_hub import HfApi
from eval_harness.results import store_source
from leaderboard_space.data.board import Board

def names(board):
    return [entry.result.model.name for entry in board.snapshot.sections["halt-medvqa"][0].entries]

first, second = sys.argv[1:]
api = HfApi()
api.create_repo("ORG/results", repo_type="dataset")
api.upload_folder(repo_id="ORG/results", repo_type="dataset", folder_path=first)
board = Board("ORG/results")
loaded = board.outcomes(board.snapshot.sections["halt-medvqa"][0])
print(names(board), loaded[0] is not None)
api.upload_folder(repo_id="ORG/results", repo_type="dataset", folder_path=second)
store_source.RECHECK_SECONDS = 0
board.refresh()
print(names(board))
"""
WRONG = """
from dataset_builders.errors import BadInput
from leaderboard_space.data.board import Board
try:
    Board("ORG/not-there")
except BadInput as error:
    print("refused:", str(error)[:40])
"""


def run(script: str, hub: Any, home: Path, *arguments: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_TOKEN": CURATOR, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(home)},
        cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_store_on_the_hub_is_read_and_read_again(local_hub: Any, tmp_path: Path) -> None:
    asked = questions("halt-medvqa", 12)
    for place, name in (("first", "One"), ("second", "Two")):
        add_run(tmp_path / place, "halt-medvqa", asked, answers(asked, 0.5), name)
    said = run(SCRIPT, local_hub, tmp_path / "home", tmp_path / "first", tmp_path / "second")
    assert said.splitlines() == ["['One'] True", "['One', 'Two']"]


def test_a_repository_that_is_not_there_is_one_clear_line(local_hub: Any, tmp_path: Path) -> None:
    assert run(WRONG, local_hub, tmp_path / "home").startswith("refused: results store ORG/not-there")


EMPTY = """
import sys
from huggingface_hub import HfApi
from eval_harness.results import store_source
from leaderboard_space.data.board import Board

first, = sys.argv[1:]
api = HfApi()
api.create_repo("ORG/new", repo_type="dataset")
board = Board("ORG/new")
print(sum(map(len, board.snapshot.sections.values())), board.snapshot.problems)
store_source.RECHECK_SECONDS = 0
board.refresh()
api.upload_folder(repo_id="ORG/new", repo_type="dataset", folder_path=first)
board.refresh()
print([entry.result.model.name for entry in board.snapshot.sections["halt-medvqa"][0].entries])
api.delete_folder("results", repo_id="ORG/new", repo_type="dataset")
board.refresh()
print(sum(map(len, board.snapshot.sections.values())))
"""


def test_a_new_repository_without_results_is_a_board_to_begin_with(local_hub: Any, tmp_path: Path) -> None:
    """A Space is set up before anybody submits; it must start, show the first result, and bear that results are withdrawn."""
    asked = questions("halt-medvqa", 12)
    add_run(tmp_path / "first", "halt-medvqa", asked, answers(asked, 0.5), "One")
    said = run(EMPTY, local_hub, tmp_path / "home", tmp_path / "first")
    assert said.splitlines() == ["0 []", "['One']", "0"]


TABLE = """
import sys
from huggingface_hub import HfApi
from eval_harness.results import load_results
from medprobe import main

first, = sys.argv[1:]
api = HfApi()
api.create_repo("ORG/results", repo_type="dataset")
print([result.model.name for result in load_results("ORG/results")])
api.upload_folder(repo_id="ORG/results", repo_type="dataset", folder_path=first)
print([result.model.name for result in load_results("ORG/results")])
sys.argv = ["medprobe", "results", "--results", "ORG/results"]
main()
"""


def test_results_of_a_repository_are_loaded_and_make_a_table(local_hub: Any, tmp_path: Path) -> None:
    asked = questions("halt-medvqa", 12)
    add_run(tmp_path / "first", "halt-medvqa", asked, answers(asked, 0.5), "One")
    said = run(TABLE, local_hub, tmp_path / "home", tmp_path / "first").splitlines()
    assert said[:2] == ["[]", "['One']"]
    assert said[2].startswith("benchmark,split,model") and ",One," in said[3]
