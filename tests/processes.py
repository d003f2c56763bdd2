"""Python programs in processes of their own that start at once: forked from one that has imported the heavy libraries already.

For tests that start servers and kill what runs: each is a real process, and kill -9 ends it as any other. Linux and macOS (`os.fork`).
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BOARD = ("leaderboard_space.app", "curation.review.review_app")
MODELS = (
    "torch",
    "transformers",
    "eval_harness.models.local.network",
    *("eval_harness.runs.runner", "medprobe"),
)
HUB = ("eval_harness.submissions.hidden_test", "eval_harness.scores", "dataset_builders.hub.publish")
READ_AT_IMPORT = ("huggingface_hub.constants", "gradio.oauth")
"""Modules that read the environment when they are imported: the first is read again, the second only keeps what it read."""


class Process:
    """A running program; what it says is in the file `said`."""

    def __init__(self, parent: _Parent, pid: int, said: Path) -> None:
        self.pid, self.said = pid, said
        self._parent = parent
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code (negative: the signal that ended it), or None while it runs."""
        if self._code is None:
            self._code = self._parent.ask({"poll": self.pid})
        return self._code

    def wait(self, timeout: float = 200) -> int:
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            assert time.monotonic() < until, f"still running after {timeout} seconds: {self.said.read_text()[-2000:]}"
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def line(self, start: str, timeout: float = 100) -> str:
        """The first line said that begins so, once it is there."""
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            ended = self.poll() is not None
            for line in self.said.read_text().splitlines(True):
                if line.startswith(start) and line.endswith("\n"):
                    return line
            assert not ended, self.said.read_text()[-2000:]
            time.sleep(0.02)
        raise AssertionError(f"never said {start!r}: {self.said.read_text()[-2000:]}")


def start(preloaded: tuple[str, ...], code: str, *arguments: object, cwd: Path, **environment: str | None) -> Process:
    """Run `code` as `python -c` would, in a process that has the modules `preloaded`. A variable that is None is unset."""
    cwd.mkdir(parents=True, exist_ok=True)
    said = cwd / f"said.{time.monotonic_ns()}"
    said.touch()
    wanted = {
        "code": code,
        "arguments": [str(argument) for argument in arguments],
        "cwd": str(cwd),
        "environment": {name: value for name, value in {**os.environ, **environment}.items() if value is not None},
        "said": str(said),
    }
    parent = _parent(preloaded)
    return Process(parent, parent.ask(wanted), said)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@cache
def _parent(preloaded: tuple[str, ...]) -> _Parent:
    return _Parent(preloaded)


class _Parent:
    """The process that has imported the libraries; it ends when this one does."""

    def __init__(self, preloaded: tuple[str, ...]) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, __file__, *preloaded],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self._lock = threading.Lock()
        assert self._process.stdin
        atexit.register(self._process.stdin.close)  # which ends it, and what it still runs

    def ask(self, what: dict[str, Any]) -> Any:
        with self._lock:
            assert self._process.stdin and self._process.stdout
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())


def _serve() -> None:
    """What the parent does: import, then fork a child for each program that is wanted. Returns in the child, with its program run."""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    children = set()
    for line in sys.stdin:
        wanted = json.loads(line)
        if "poll" in wanted:
            pid, status = os.waitpid(wanted["poll"], os.WNOHANG)
            children.discard(pid)
            print(json.dumps(os.waitstatus_to_exitcode(status) if pid else None), flush=True)
        elif pid := os.fork():
            children.add(pid)
            print(json.dumps(pid), flush=True)
        else:
            return _run(wanted)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _run(wanted: dict[str, Any]) -> None:
    os.chdir(wanted["cwd"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    said = os.open(wanted["said"], os.O_WRONLY | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, said), (2, said)):
        os.dup2(source, target)
    sys.argv = ["-c", *wanted["arguments"]]
    hub, sign_in = (sys.modules.get(name) for name in READ_AT_IMPORT)
    if hub is not None:
        importlib.reload(hub)
    for name in os.environ.keys() & vars(sign_in).keys() if sign_in is not None else ():
        setattr(sign_in, name, os.environ[name])
    exec(compile(wanted["code"], "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    _serve()
