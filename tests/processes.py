"""Start Python programs as processes of their own without delay: they are forked from a process
that has already imported the heavy libraries.

For tests that start servers or kill running commands. Each is a real process, and kill -9 ends it
like any other. Linux and macOS (`os.fork`).
"""

from __future__ import annotations

import atexit
import gc
import importlib.abc
import importlib.util
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = (
    *("torch", "medprobe.command_line", "leaderboard_space.app", "curation.review.review"),
    *("eval_harness.runs.runner", "eval_harness.store.submit"),
    *("eval_harness.models.local.transformers_vlm", "pyarrow.dataset", "scipy.optimize", "scipy.stats", "openai"),
    *("transformers.models.llava.modeling_llava", "transformers.models.llava.processing_llava"),
    *("transformers.models.clip.modeling_clip", "transformers.models.clip.image_processing_clip"),
    *("transformers.models.llama.modeling_llama", "transformers.models.auto.modeling_auto"),
)
SHARED_VARIABLE = "MEDPROBE_TESTS"
READ_AT_IMPORT = ("huggingface_hub.constants", "gradio.oauth")
"""Modules that read the environment on import: the first is reloaded, the second only stores the
value.
"""


class _GradioWithoutStubs(importlib.abc.MetaPathFinder):
    """Gradio parses each of its components on import to write a .pyi file beside it, which takes
    half of the import time.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "gradio.component_meta":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            module.create_or_modify_pyi = lambda *_: None

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _GradioWithoutStubs())


class Process:
    """A running program; its output is in the file `said`."""

    def __init__(self, parent: _Parent, pid: int, output: Path) -> None:
        self.pid, self.output_file = pid, output
        self._parent = parent
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code (negative: the signal that ended it), or None while it runs."""
        if self._code is None:
            self._code = self._parent.ask({"poll": self.pid})
        return self._code

    def wait(self, timeout: float = 200) -> int:
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            assert time.monotonic() < until, (
                f"still running after {timeout} seconds: {self.output_file.read_text()[-2000:]}"
            )
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

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
    """Run `code` as `python -c` would, in a process that has imported LIBRARIES. A variable that is
    None is unset.
    """
    cwd.mkdir(parents=True, exist_ok=True)
    output_file = cwd / f"said.{time.monotonic_ns()}"
    output_file.touch()
    program = {
        "code": code,
        "arguments": [str(argument) for argument in arguments],
        "cwd": str(cwd),
        "environment": {name: value for name, value in {**os.environ, **environment}.items() if value is not None},
        "said": str(output_file),
    }
    parent = _parent()
    return Process(parent, parent.ask(program), output_file)


def interpreter() -> str:
    """Return a command line that acts as a Python with LIBRARIES; xdist starts test processes with
    it.
    """
    return shlex.join([sys.executable, "-S", "-E", str(ROOT / "tests/forked_python.py"), str(_parent().address)])


def move_home(old: str, new: str) -> None:
    """Make every module that was imported with `old` as Hugging Face home use `new`."""
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            # isinstance would load lazy objects
            if issubclass(type(value), (str, Path)) and str(value).startswith(old):
                setattr(module, name, type(value)(str(value).replace(old, new, 1)))


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


def collect_less_garbage() -> None:
    """Exempt all current objects from garbage collection: traversing them again took a quarter of
    the tests' time.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@cache
def _parent() -> _Parent:
    return _Parent()


class _Parent:
    """The process that has imported the libraries; one for all test processes, it ends with the
    last of them.
    """

    def __init__(self) -> None:
        self.address = shared_folder() / "parent"
        self._connection = socket.socket(socket.AF_UNIX)
        self._lock = threading.Lock()
        with FileLock(f"{self.address}.lock"):
            if not self.address.exists():
                _start_parent(self.address)
            self._connection.connect(str(self.address))
        self._replies = self._connection.makefile()

    def ask(self, message: dict[str, Any]) -> Any:
        with self._lock:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
            return json.loads(self._replies.readline())


def _start_parent(address: Path) -> None:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        subprocess.Popen(
            [sys.executable, __file__, str(listener.fileno()), str(address)],
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )


def _serve(descriptor: int, address: Path) -> None:
    """Run the parent: import, then fork a child for each requested program.

    Returns in the child, with the program to run. When a test process ends, its programs are ended,
    too; when the last one ends, so does the parent.
    """
    for name in LIBRARIES:
        importlib.import_module(name)
    collect_less_garbage()
    children: dict[socket.socket, set[int]] = {}
    with socket.socket(fileno=descriptor) as listener:
        while True:
            for ready in select.select([listener, *children], [], [])[0]:
                if ready is listener:
                    children[listener.accept()[0]] = set()
                    continue
                line, streams, *_ = socket.recv_fds(ready, 1 << 20, 3)
                while line and not line.endswith(b"\n"):
                    line += ready.recv(1 << 20)
                if not line:
                    for pid in children.pop(ready):
                        os.kill(pid, signal.SIGKILL)
                    ready.close()
                    continue
                message, started = json.loads(line), children[ready]
                if "poll" in message:
                    pid, status = os.waitpid(message["poll"], os.WNOHANG)
                    started.discard(pid)
                    reply = os.waitstatus_to_exitcode(status) if pid else None
                elif pid := os.fork():
                    started.add(pid)
                    reply = pid
                else:
                    for open_socket in (listener, *children):
                        open_socket.close()
                    return _run(message, streams)
                for stream in streams:
                    os.close(stream)
                ready.sendall(json.dumps(reply).encode() + b"\n")
            if not children:
                with FileLock(f"{address}.lock"):
                    if not select.select([listener], [], [], 0)[0]:
                        return address.unlink(missing_ok=True)


def _run(program: dict[str, Any], streams: list[int]) -> None:
    """Become the requested program. `streams`: its standard streams, if it does not write to a
    file.
    """
    # a shell starts background jobs with this signal ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(program["cwd"])
    os.environ.clear()
    os.environ.update(program["environment"])
    if not streams:
        output_descriptor = os.open(program["said"], os.O_WRONLY | os.O_APPEND)
        streams = [os.open(os.devnull, os.O_RDONLY), output_descriptor, output_descriptor]
    for target, source in enumerate(streams):
        os.dup2(source, target)
    sys.argv = ["-c", *program["arguments"]]
    hub, sign_in = (sys.modules.get(name) for name in READ_AT_IMPORT)
    if hub is not None:
        importlib.reload(hub)
    for name in os.environ.keys() & vars(sign_in).keys() if sign_in is not None else ():
        setattr(sign_in, name, os.environ[name])
    exec(compile(program["code"], "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]))
