"""The board as a process of its own, for the tests that drive it from outside."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.processes import BOARD, Process, free_port, start

SERVE = """
import sys
from eval_harness.results import store_source
from leaderboard_space.data import board
from leaderboard_space.data import trusted_data
store_source.RECHECK_SECONDS = board.RESCAN_SECONDS = trusted_data.RECHECK_SECONDS = 0.5
from eval_harness.submissions.hidden_test import HiddenTest
from leaderboard_space.app import serve
store, port, hidden, *data = sys.argv[1:]
serve(store, port=int(port), data=data, hidden=HiddenTest(*hidden.split()) if hidden else None)
"""


@contextmanager
def board(
    store: Path | str, home: Path, data: Sequence[Path | str] = (), hidden: str = "", **environment: str
) -> Iterator[tuple[str, Process]]:
    """A board that looks at its store twice a second: (address, process). `environment` is added to this process's.

    `hidden`: questions, answers and ledger of a hidden test, divided by spaces.
    """
    port = free_port()
    places = {"HF_HOME": str(home / "hf"), "GRADIO_TEMP_DIR": str(home / "gradio")}
    unset = {name: None for name in os.environ if name.startswith(("HF_", "GRADIO_"))}
    process = start(BOARD, SERVE, store, port, hidden, *data, cwd=home, **{**unset, **places, **environment})
    address = f"http://127.0.0.1:{port}"
    try:
        said = process.line("The board is on")
        assert said == f"The board is on {address} (Ctrl-C ends it).\n"
        yield address, process
    finally:
        process.kill()
        process.wait(20)
