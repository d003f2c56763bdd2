"""Call a function on untrusted input in a separate process with limits on memory and time.

A process started only for this (spawned, with one thread and no data) has the libraries loaded and forks a child for each call; the child
takes on the limits, calls, and sends back what came of it. Memory and processor time are limited by Linux (rlimits). Elsewhere only the
time on the clock is: macOS takes no limit of address space, and where there is no `fork` the call is made in this process.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from dataset_builders.errors import BadInput, Unavailable
from eval_harness.records.limits import MEMORY, Limits

P = ParamSpec("P")
T = TypeVar("T")
AT_ONCE, MOST_WAITING = 3, 50
"""Maximum number of submissions read concurrently, and waiting."""
PER_CLIENT = 2
"""Submissions per client: one being read and one waiting. More would block other clients."""
CAN_FORK = hasattr(os, "fork") and hasattr(socket, "send_fds")


class OverLimit(BadInput):
    """Reading exceeded its limits."""


class SandboxError(RuntimeError):
    """A defect of ours in the child; the message is its traceback."""


def call(limits: Limits, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Call `function` (of a module, so that the child can import it) with these arguments within `limits`, and return its result.

    Arguments and result travel as pickles between our own processes; strangers' bytes are only ever read in the child. Raises what the
    function raises where that is BadInput, OverLimit where it took too much memory or processor time, Unavailable where the clock stopped
    it, SandboxError for any other error.
    """
    if not CAN_FORK:
        return function(*arguments, **named)
    ours, theirs = Pipe()
    with ours:
        with theirs:
            _FORKER.fork(theirs, function.__module__)
        try:
            child = ours.recv()
        except EOFError:
            raise SandboxError("the process that forks ended before it did") from None
        try:
            ours.send((limits, dict(os.environ), str(Path.cwd()), function, arguments, named))
            word, value = "limits", cast("Any", limits)
            while word == "limits":
                limits = value
                # Most of this time is spent waiting for the Hub or for this machine.
                if not ours.poll(limits.wall_seconds):
                    raise Unavailable(f"it was not read within {limits.wall_seconds:,} s. Try again later.")
                word, value = ours.recv()
        except (EOFError, OSError):
            raise OverLimit(_over(limits)) from None
        finally:
            _kill(child)  # with all its child processes; its result has been received
    if word == "returned":
        return value
    if word == "refused":
        raise value
    if word == "over":
        raise OverLimit(_over(limits))
    raise SandboxError(value)


def go_on_within(limits: Limits) -> None:
    """Called by the function in the child: what the rest of it may take, known once the questions are. In no child it means nothing."""
    if _TO_PARENT:
        import resource

        _TO_PARENT[0].send(("limits", limits))
        seconds = int(time.process_time()) + limits.cpu_seconds
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))


_TO_PARENT: list[Connection] = []
"""In a child its end of the connection."""


def in_turn(client: str, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Call `function` when it is the client's turn, and return its result; per client, one submission is read at a time and one may wait.
    Raises Unavailable where more wait already. (`function` calls `call`; this bounds how often that happens at once.)"""
    with _COUNTING:
        own, users = _CLIENTS.get(client, (threading.Lock(), 0))
        if users >= PER_CLIENT:
            raise Unavailable("your earlier submissions are still being read. Send this one when they are done.")
        if sum(count for _, count in _CLIENTS.values()) >= AT_ONCE + MOST_WAITING:
            raise Unavailable("too many submissions are being read. Come back in a few minutes.")
        _CLIENTS[client] = own, users + 1
    try:
        with own, _TURNS:
            return function(*arguments, **named)
    finally:
        with _COUNTING:
            users = _CLIENTS[client][1] - 1
            if users:
                _CLIENTS[client] = own, users
            else:
                del _CLIENTS[client]


_TURNS = threading.Semaphore(AT_ONCE)
_CLIENTS: dict[str, tuple[threading.Lock, int]] = {}
"""Client -> its turn, and how many submissions of it are read or wait."""
_COUNTING = threading.Lock()


def start(*modules: str) -> None:
    """Start the process that forks and load these modules in it, so that the first call need not wait for them."""
    if CAN_FORK:
        _FORKER.start(*modules)


def _over(limits: Limits) -> str:
    return f"needs more to be read than a submission of its size may take ({limits}). Leave out what is no answer to these questions."


def _kill(child: int) -> None:
    """End a child and all it started: it leads a group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


class _Forker:
    """The process that forks. It ends when this one does, however that ends: it reads the end of its connection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def start(self, *modules: str) -> None:
        with self._lock:
            self._started(*modules)

    def fork(self, child_end: Connection, module: str) -> None:
        """A new child, which gets this end of a connection. `module`: loaded before the first fork."""
        with self._lock:
            try:
                socket.send_fds(self._started(module), [b"+"], [child_end.fileno()])
            except OSError:  # it was ended from outside
                self._connection = None
                socket.send_fds(self._started(module), [b"+"], [child_end.fileno()])

    def _started(self, *modules: str) -> socket.socket:
        if self._connection is None or self._owner != os.getpid():
            ours, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", f"from {__name__} import forker; forker({theirs.fileno()}, *{modules!r})"],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env=os.environ
                    | {
                        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
                        "OMP_NUM_THREADS": "1",
                        "OPENBLAS_NUM_THREADS": "1",
                        "ARROW_DEFAULT_MEMORY_POOL": "system",
                    },
                    start_new_session=True,  # Ctrl-C in a terminal is for this process to handle
                )
            self._connection, self._owner = ours, os.getpid()
            atexit.register(ours.close)
        return self._connection


_FORKER = _Forker()


def forker(descriptor: int, *preload: str) -> None:
    """Main loop of the forking process: load the libraries, then fork a child for each incoming connection."""
    for name in preload:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for
    connection = socket.socket(fileno=descriptor)
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        if not data:
            return
        if os.fork() == 0:
            connection.close()
            status = 1
            try:
                _child(Connection(descriptors[0]))
                status = 0
            finally:
                os._exit(status)
        os.close(descriptors[0])


def _child(connection: Connection) -> None:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _die_with_parent()
    connection.send(os.getpid())
    limits, environment, folder, function, arguments, named = connection.recv()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    _TO_PARENT.append(connection)
    try:
        _limit(limits)
        reply = pickle.dumps(("returned", function(*arguments, **named)))
    except BadInput as error:
        reply = pickle.dumps(("refused", error))
    except (MemoryError, _OutOfTime):
        reply = pickle.dumps(("over", None))
    except BaseException:
        text = traceback.format_exc()
        short = "out of memory" in text.lower() or "cannot allocate memory" in text.lower()
        reply = pickle.dumps(("over", None) if short else ("failed", text))
    connection.send_bytes(reply)


class _OutOfTime(BaseException):
    """The processor time is used up; no handler of ordinary errors may take it for one."""


def _limit(limits: Limits) -> None:
    import resource

    def out_of_time(number: int, frame: Any) -> None:
        raise _OutOfTime

    signal.signal(signal.SIGXCPU, out_of_time)
    started_with = 0
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:  # noqa: PTH123
        started_with = int(file.read().split()[0]) * resource.getpagesize()
    for what, soft, hard in (
        (resource.RLIMIT_AS, started_with + MEMORY, started_with + MEMORY),
        (resource.RLIMIT_CPU, limits.cpu_seconds, resource.RLIM_INFINITY),  # `go_on_within` says when it ends for good
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, MEMORY, MEMORY),
    ):
        with contextlib.suppress(ValueError, OSError):  # a lower limit holds already, or the system knows none
            resource.setrlimit(what, (soft, hard))


def _die_with_parent() -> None:
    """Have Linux end this process when the one that forks ends."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
