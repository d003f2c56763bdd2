"""Run the board as a process of its own, for tests that drive it from outside."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.processes import Process, free_port, start

SERVE = """
import sys
from eval_harness.store import contents
from leaderboard_space.data import board
contents.HUB_RECHECK_SECONDS = board.RESCAN_SECONDS = board.RECHECK_SECONDS = 0.5
from eval_harness.store.hidden_test import HiddenTest
from leaderboard_space.app import serve
store, port, hidden, *data = sys.argv[1:]
serve(store, port=int(port), data=data, hidden=HiddenTest(*hidden.split()) if hidden else None)
"""


@contextmanager
def board(
    store: Path | str, home: Path, data: Sequence[Path | str] = (), hidden: str = "", **environment: str
) -> Iterator[tuple[str, Process]]:
    """Serve a board that checks its store twice a second: (address, process).

    `environment` is added to this process's. `hidden`: questions, answers and ledger of a hidden
    test, separated by spaces.
    """
    port = free_port()
    folders = {"HF_HOME": str(home / "hf"), "GRADIO_TEMP_DIR": str(home / "gradio")}
    unset = {name: None for name in os.environ if name.startswith(("HF_", "GRADIO_"))}
    process = start(SERVE, store, port, hidden, *data, cwd=home, **{**unset, **folders, **environment})
    address = f"http://127.0.0.1:{port}"
    try:
        startup_line = process.line("The board is on")
        assert startup_line == f"The board is on {address} (Ctrl-C stops it).\n"
        yield address, process
    finally:
        process.kill()
        process.wait(20)


def hand_in(address: str, target: str, file: Path) -> dict[str, Any]:
    """Return the Space's reply to one submission, over a connection of its own. Plain HTTP, because
    Gradio's client would first download the app's configuration.
    """
    with httpx.Client(base_url=f"{address}/gradio_api/", timeout=280) as client:
        (path,) = client.post("upload", files={"files": file.open("rb")}).raise_for_status().json()
        form_values = [target, [{"path": path, "meta": {"_type": "gradio.FileData"}}], f"Model {file.stem}", "open"]
        event = client.post("call/submit", json={"data": form_values}).raise_for_status().json()["event_id"]
        last_event = client.get(f"call/submit/{event}").raise_for_status().text.strip().split("\n\n")[-1]
        word, payload = last_event.split("\n", 1)
        assert word == "event: complete", last_event
        return dict(json.loads(payload.removeprefix("data: "))[-1])
