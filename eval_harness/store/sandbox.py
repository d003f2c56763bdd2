"""Call a function on untrusted input in a separate process with limits on memory and time.

A process started only for this (spawned, with one thread and no data) has the libraries loaded and forks a child for each call; the child
takes on the limits, calls, and sends back what came of it. Memory and processor time are limited by Linux (rlimits). Elsewhere only the
time on the clock is: macOS takes no limit of address space, and where there is no `fork` the call is made in this process.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from dataset_builders.errors import BadInput, Unavailable
from eval_harness.records.limits import LARGE_MEMORY_BYTES, MEMORY_BYTES, Limits

P = ParamSpec("P")
T = TypeVar("T")
QUICK_SLOTS, MAX_WAITING = 2, 50
"""Maximum number of submissions read concurrently for their first QUICK_SECONDS, beside one that takes longer; and waiting."""
QUICK_SECONDS = 5.0
BUDGET_PERIOD_SECONDS, CLIENT_BUDGET_SECONDS = 3600.0, 600.0
"""Seconds for which the submissions of one client that take longer are read in an hour."""
MAX_PER_CLIENT = 2
"""Submissions per client: one being read and one waiting. More would block other clients."""
CAN_FORK = hasattr(os, "fork") and hasattr(socket, "send_fds")


class LimitExceeded(BadInput):
    """Reading exceeded its limits."""


class Postponed(Unavailable):
    """Reading takes longer than it was given at first (`within`)."""


class SandboxError(BadInput):
    """Reading ended with an error that was not foreseen. What was to be read is refused, and nothing else is: its traceback, which may
    name paths, goes to standard error."""


def run_sandboxed(limits: Limits, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Call `function` (of a module, so that the child can import it) with these arguments within `limits`, and return its result.

    Arguments and result travel as pickles between our own processes; strangers' bytes are only ever read in the child. Raises what the
    function raises where that is BadInput, OverLimit where it took too much memory or time, PutOff where it took longer than `within` says,
    SandboxError, which is a BadInput as well, for any other error.
    """
    if not CAN_FORK:
        return function(*arguments, **named)
    ours, theirs = Pipe()
    deadline = time.monotonic() + _TIME_LIMIT.get()
    with ours, contextlib.ExitStack() as held:
        with theirs:
            _FORKER.fork(theirs, function.__module__)
        try:
            child = ours.recv()
        except EOFError:
            raise Unavailable("the process that reads was ended from outside. Try again later.") from None
        try:
            _grant_limits(ours, limits, 0, deadline, held)
            ours.send((dict(os.environ), str(Path.cwd()), function, arguments, named))
            while True:
                # Most of this time is spent waiting for the Hub or for this machine.
                if not ours.poll(min(limits.wall_seconds, max(deadline - time.monotonic(), 0))):
                    raise _timeout_error(limits, deadline)
                word, value = ours.recv()
                if word != "limits":
                    break
                before, limits = limits.memory, value
                _grant_limits(ours, limits, before, deadline, held)
        except (EOFError, OSError):
            raise LimitExceeded(_over_limit_message(limits)) from None
        finally:
            _kill_group(child)  # with all its child processes; its result has been received
    if word == "returned":
        return value
    if word == "refused":
        raise value
    if word == "over":
        raise LimitExceeded(_over_limit_message(limits))
    kind, text = value
    print(text, file=sys.stderr)
    raise SandboxError(f"cannot be read ({kind}). Make its files and its dataset again with medprobe, or report this.")


def _grant_limits(child: Connection, limits: Limits, before: int, deadline: float, held: contextlib.ExitStack) -> None:
    """Let the child go on within these limits: of those that take much memory, one at a time, until `held` ends. `before`: the memory that
    it was granted before."""
    if limits.memory > MEMORY_BYTES >= before:
        if not _LARGE_READ_LOCK.acquire(timeout=min(max(deadline - time.monotonic(), 0), threading.TIMEOUT_MAX)):
            raise _timeout_error(limits, deadline)
        held.callback(_LARGE_READ_LOCK.release)
    child.send(limits)


_LARGE_READ_LOCK = threading.Lock()


def _timeout_error(limits: Limits, deadline: float) -> BadInput:
    if time.monotonic() >= deadline:
        return Postponed("it takes long to be read. Try again later.")
    return LimitExceeded(f"was not read within {limits.wall_seconds:,} s. Send it again later, or a smaller one.")


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """What is called here raises PutOff after so many seconds, with nothing found out about what was to be read."""
    before = _TIME_LIMIT.set(seconds)
    try:
        yield
    finally:
        _TIME_LIMIT.reset(before)


_TIME_LIMIT: ContextVar[float] = ContextVar("patience", default=math.inf)


def tighten_limits(limits: Limits) -> None:
    """Called by the function in the child: what the rest of it may take, known once the questions are. In no child it means nothing."""
    if _TO_PARENT:
        _TO_PARENT[0].send(("limits", limits))
        _set_limits(_TO_PARENT[0].recv(), is_last=True)


_TO_PARENT: list[Connection] = []
"""In a child its end of the connection."""
_INITIAL_BYTES: list[int] = []
"""In a child the bytes that it had at its start."""


def run_in_turn(client: str, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Call `function` when it is the client's turn, and return its result; per client, one submission is read at a time and one may wait.

    What takes longer than QUICK_SECONDS is begun again behind the others that do, one at a time, so that those that take none wait for none
    that does. (`function` calls `call`; this bounds how often that happens at once.) Raises Unavailable where more wait already, and for a
    client whose submissions took SECONDS_AN_HOUR.
    """
    with _CLIENTS_LOCK:
        own, users = _CLIENTS.get(client, (threading.Lock(), 0))
        if users >= MAX_PER_CLIENT:
            raise Unavailable("your earlier submissions are still being read. Send this one when they are done.")
        if sum(count for _, count in _CLIENTS.values()) > QUICK_SLOTS + MAX_WAITING:
            raise Unavailable("too many submissions are being read. Come back in a few minutes.")
        _CLIENTS[client] = own, users + 1
    try:
        with own:
            with contextlib.suppress(Postponed), _QUICK_SEMAPHORE, time_limit(QUICK_SECONDS):
                return function(*arguments, **named)
            with _SLOW_LOCK, _charge_time(client):
                return function(*arguments, **named)
    finally:
        with _CLIENTS_LOCK:
            users = _CLIENTS[client][1] - 1
            if users:
                _CLIENTS[client] = own, users
            else:
                del _CLIENTS[client]


@contextlib.contextmanager
def _charge_time(client: str) -> Iterator[None]:
    """Note how long a client's submission is read. Raises Unavailable where this hour has none left for it."""
    began = time.monotonic()
    _SLOW_READS[:] = [spent for spent in _SLOW_READS if spent[0] > began - BUDGET_PERIOD_SECONDS]
    if sum(seconds for _, who, seconds in _SLOW_READS if who == client) >= CLIENT_BUDGET_SECONDS:
        raise Unavailable(
            "your submissions took all the time that they have in an hour. Come back in an hour, or check this one on your machine with "
            "`medprobe submit --dry-run`."
        )
    try:
        yield
    finally:
        _SLOW_READS.append((began, client, time.monotonic() - began))


_QUICK_SEMAPHORE, _SLOW_LOCK = threading.Semaphore(QUICK_SLOTS), threading.Lock()
_SLOW_READS: list[tuple[float, str, float]] = []
"""(when, client, seconds) of the readings of the last hour that took long."""
_CLIENTS: dict[str, tuple[threading.Lock, int]] = {}
"""Client -> its turn, and how many submissions of it are read or wait."""
_CLIENTS_LOCK = threading.Lock()


def start_forker(*modules: str) -> None:
    """Start the process that forks and load these modules in it, so that the first call need not wait for them."""
    if CAN_FORK:
        _FORKER.start(*modules)


def _over_limit_message(limits: Limits) -> str:
    return f"is damaged, or needs more to be read than its size allows ({limits}). Leave out what is no answer to these questions."


def _kill_group(child: int) -> None:
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
                    [
                        sys.executable,
                        "-c",
                        f"from {__name__} import fork_children; fork_children({theirs.fileno()}, *{modules!r})",
                    ],
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


def fork_children(descriptor: int, *preload: str) -> None:
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
                _run_child(Connection(descriptors[0]))
                status = 0
            finally:
                os._exit(status)
        os.close(descriptors[0])


def _run_child(connection: Connection) -> None:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _die_with_parent()
    connection.send(os.getpid())
    try:
        _set_limits(connection.recv())  # before the files are received, which count as well
        environment, folder, function, arguments, named = connection.recv()
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        _TO_PARENT.append(connection)
        reply = pickle.dumps(("returned", function(*arguments, **named)))
    except BadInput as error:
        reply = pickle.dumps(("refused", error))
    except (MemoryError, _OutOfTime):
        reply = pickle.dumps(("over", None))
    except BaseException as error:
        text = traceback.format_exc()
        short = "out of memory" in text.lower() or "cannot allocate memory" in text.lower()
        reply = pickle.dumps(("over", None) if short else ("failed", (type(error).__name__, text)))
    connection.send_bytes(reply)


class _OutOfTime(BaseException):
    """The processor time is used up; no handler of ordinary errors may take it for one."""


def _set_limits(limits: Limits, is_last: bool = False) -> None:
    """Take on limits; the last are for good, also for what handles every error itself."""
    import resource

    def out_of_time(number: int, frame: Any) -> None:
        raise _OutOfTime

    signal.signal(signal.SIGXCPU, out_of_time)
    if not _INITIAL_BYTES:
        with contextlib.suppress(OSError), open("/proc/self/statm") as file:  # noqa: PTH123
            _INITIAL_BYTES.append(int(file.read().split()[0]) * resource.getpagesize())
    started_with, seconds = sum(_INITIAL_BYTES), int(time.process_time()) + limits.cpu_seconds
    for what, soft, hard in (
        (resource.RLIMIT_AS, started_with + limits.memory, started_with + LARGE_MEMORY_BYTES),
        (resource.RLIMIT_CPU, seconds, seconds + 5 if is_last else resource.RLIM_INFINITY),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, LARGE_MEMORY_BYTES, LARGE_MEMORY_BYTES),
    ):
        with contextlib.suppress(ValueError, OSError):  # a lower limit holds already, or the system knows none
            resource.setrlimit(what, (soft, hard))


def _die_with_parent() -> None:
    """Have Linux end this process when the one that forks ends."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
