"""Start Python programs as processes of their own, serve applications in threads, and make folders
that the processes of a test run share.
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]
SHARED_VARIABLE = "MEDPROBE_TESTS"


class Process(subprocess.Popen[bytes]):
    """A running Python program, which writes both of its streams to `output_file`."""

    def __init__(self, code: str, arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.output_file = folder / f"output.{time.monotonic_ns()}"
        with self.output_file.open("wb") as output:
            super().__init__(
                [sys.executable, "-c", code, *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A shell starts background jobs with Ctrl-C ignored, which children inherit.
                preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),
            )
        # A test that fails must not leave its program behind.
        atexit.register(self.kill)

    def wait(self, timeout: float | None = 200) -> int:
        """Return the exit code (negative: the signal that ended it); fail if it still runs then."""
        return super().wait(timeout)

    def line(self, start: str, timeout: float = 100) -> str:
        """Wait for the first line of output with this beginning, and return it."""
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            ended = self.poll() is not None
            for line in self.output_file.read_text().splitlines(True):
                if line.startswith(start) and line.endswith("\n"):
                    return line
            assert not ended, self.output_file.read_text()[-2000:]
            time.sleep(0.02)
        raise AssertionError(f"never said {start!r}: {self.output_file.read_text()[-2000:]}")


def start(code: str, *arguments: object, cwd: Path, **environment: str | None) -> Process:
    """Run `code` as `python -c` does. A variable that is None is unset."""
    # The program imports this checkout, from whatever folder it runs in.
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    variables = {**os.environ, "PYTHONPATH": path, **environment}
    variables = {name: value for name, value in variables.items() if value is not None}
    return Process(code, [str(argument) for argument in arguments], cwd, variables)


def output_of(command: Sequence[object], **options: Any) -> str:
    """Run a program and return what it prints; fail with both of its streams unless it succeeds.

    `options` are those of `subprocess.run`.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **{"timeout": 280} | options)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an application in a thread; yield its address."""
    import uvicorn

    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join(20)


def shared_folder() -> Path:
    """Return a folder shared by all processes of a test run. The first process makes it; it starts
    the others and ends last.
    """
    if SHARED_VARIABLE not in os.environ:
        os.environ[SHARED_VARIABLE] = tempfile.mkdtemp(prefix="medprobe-tests-")
        atexit.register(shutil.rmtree, os.environ[SHARED_VARIABLE], ignore_errors=True)
    return Path(os.environ[SHARED_VARIABLE])


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that is made once per test run, by the first process that needs it; tests
    must not change it.
    """
    folder, done = shared_folder() / name, shared_folder() / f"{name}.done"
    with FileLock(f"{folder}.lock"):
        if not done.exists():
            make(folder)
            done.touch()
    return folder
