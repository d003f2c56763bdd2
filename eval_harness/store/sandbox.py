"""Call a function on untrusted input in a separate process, with limits on memory and time.

A forking process, which has one thread and no data, has the libraries loaded and forks a child for
each call. The child sets its limits, calls the function, and sends back the outcome. On Linux,
memory and CPU time are limited by rlimits. On other systems only wall-clock time is limited (macOS
has no limit on address space). Without `fork`, the function runs in this process, without limits.
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
"""Maximum numbers of submissions that are read at a time, and that wait.

The slow queue reads one more submission at a time.
"""
QUICK_SECONDS = 5.0
"""Seconds after which a submission counts as slow and is restarted in the slow queue."""
BUDGET_PERIOD_SECONDS, CLIENT_BUDGET_SECONDS = 3600.0, 600.0
"""In each period, the slow submissions of one client may be read for so many seconds in total."""
MAX_PER_CLIENT = 2
"""Submissions per client: one being read and one waiting. More would keep other clients waiting."""
CAN_FORK = hasattr(os, "fork") and hasattr(socket, "send_fds")
"""True if this system can fork and pass file descriptors."""


class LimitExceeded(BadInput):
    """Reading exceeded its limits."""


class Postponed(Unavailable):
    """Reading took longer than the caller wanted to wait (`time_limit`)."""


class SandboxError(BadInput):
    """Reading ended with an unexpected error.

    Only the input at hand is refused. The traceback, which may contain paths, goes to standard
    error.
    """


def run_sandboxed(limits: Limits, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a child process within limits, and return its result.

    Arguments and results are pickled between medprobe's own processes; untrusted bytes are parsed
    in the child alone.

    Args:
        limits: Limits on memory and time.
        function: A module-level function, so that the child can import it.
        *args: Its arguments.
        **kwargs: Its keyword arguments.

    Raises:
        BadInput: If the function raises it.
        LimitExceeded: If the call took too much memory or time.
        Postponed: If the call took longer than `time_limit` allows.
        SandboxError: If the function raised any other exception.
        Unavailable: If the child was killed from outside.
    """
    if not CAN_FORK:
        return function(*args, **kwargs)
    parent_end, child_end = Pipe()
    deadline = time.monotonic() + _TIME_LIMIT.get()
    with parent_end, contextlib.ExitStack() as stack:
        with child_end:
            _FORKER.fork(child_end, function.__module__)
        try:
            child = parent_end.recv()
        except EOFError:
            raise Unavailable("the reading process was killed from outside. Try again later.") from None
        try:
            _grant_limits(parent_end, limits, 0, deadline, stack)
            parent_end.send((dict(os.environ), str(Path.cwd()), function, args, kwargs))
            while True:
                # Wall-clock time is limited as well: a child that waits uses no CPU time.
                if not parent_end.poll(min(limits.wall_seconds, max(deadline - time.monotonic(), 0))):
                    raise _timeout_error(limits, deadline)
                status, payload = parent_end.recv()
                if status != "limits":
                    break
                granted_bytes, limits = limits.memory, payload
                _grant_limits(parent_end, limits, granted_bytes, deadline, stack)
        except (EOFError, OSError):
            raise LimitExceeded(_over_limit_message(limits)) from None
        finally:
            # The child is not needed any more: its result, if any, has been received.
            _kill_group(child)

    if status == "returned":
        return payload
    if status == "refused":
        raise payload
    if status == "over":
        raise LimitExceeded(_over_limit_message(limits))
    error_type, trace = payload
    print(trace, file=sys.stderr)
    raise SandboxError(
        f"cannot be read ({error_type}). Recreate its files and its dataset with medprobe, or report this."
    )


def _grant_limits(
    child: Connection,
    limits: Limits,
    granted_bytes: int,
    deadline: float,
    stack: contextlib.ExitStack,
) -> None:
    """Let the child continue within these limits.

    Only one child at a time may have the large memory limit, until `stack` is closed.

    Args:
        child: Connection to the child.
        limits: The limits to grant.
        granted_bytes: Memory that the child was granted earlier.
        deadline: Time on the monotonic clock at which to give up.
        stack: Releases the lock for the large limit when it is closed.
    """
    if limits.memory > MEMORY_BYTES >= granted_bytes:
        if not _LARGE_READ_LOCK.acquire(timeout=min(max(deadline - time.monotonic(), 0), threading.TIMEOUT_MAX)):
            raise _timeout_error(limits, deadline)
        stack.callback(_LARGE_READ_LOCK.release)
    child.send(limits)


_LARGE_READ_LOCK = threading.Lock()


def _timeout_error(limits: Limits, deadline: float) -> BadInput:
    """Return the error for a call that ran out of time."""
    if time.monotonic() >= deadline:
        return Postponed("it takes too long to read. Try again later.")
    return LimitExceeded(f"was not read within {limits.wall_seconds:,} s. Send it again later, or a smaller one.")


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Make calls in this context raise Postponed after this many seconds."""
    token = _TIME_LIMIT.set(seconds)
    try:
        yield
    finally:
        _TIME_LIMIT.reset(token)


_TIME_LIMIT: ContextVar[float] = ContextVar("patience", default=math.inf)


def tighten_limits(limits: Limits) -> None:
    """Set the limits for the rest of a call, once the questions are known.

    The function that runs in the child calls this; elsewhere it does nothing.
    """
    if _TO_PARENT:
        _TO_PARENT[0].send(("limits", limits))
        _set_limits(_TO_PARENT[0].recv(), is_last=True)


_TO_PARENT: list[Connection] = []
"""In a child process, its end of the connection; empty elsewhere."""
_INITIAL_BYTES: list[int] = []
"""In a child process, the bytes of memory that it had at its start; empty elsewhere."""


def run_in_turn(client: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function when it is the client's turn, and return its result.

    For each client, one submission is read at a time and one may wait. A call that takes longer
    than QUICK_SECONDS is restarted in a second queue, which runs one call at a time, so that quick
    calls never wait for slow ones. `function` should call `run_sandboxed`, whose concurrency this
    limits.

    Args:
        client: Rate-limit key.
        function: The function to call.
        *args: Its arguments.
        **kwargs: Its keyword arguments.

    Raises:
        Unavailable: If too many submissions are waiting, or the client has used up
            CLIENT_BUDGET_SECONDS.
    """
    with _CLIENTS_LOCK:
        turn, users = _CLIENTS.get(client, (threading.Lock(), 0))
        if users >= MAX_PER_CLIENT:
            raise Unavailable("your earlier submissions are still being read. Send this one when they are done.")
        if sum(count for _, count in _CLIENTS.values()) > QUICK_SLOTS + MAX_WAITING:
            raise Unavailable("too many submissions are being read. Come back in a few minutes.")
        _CLIENTS[client] = turn, users + 1
    try:
        with turn:
            # First attempt, limited to QUICK_SECONDS; then again in the slow queue.
            with contextlib.suppress(Postponed), _QUICK_SEMAPHORE, time_limit(QUICK_SECONDS):
                return function(*args, **kwargs)
            with _SLOW_LOCK, _charge_time(client):
                return function(*args, **kwargs)
    finally:
        with _CLIENTS_LOCK:
            users = _CLIENTS[client][1] - 1
            if users:
                _CLIENTS[client] = turn, users
            else:
                # Idle clients are forgotten, lest the dictionary grow with the number of visitors.
                del _CLIENTS[client]


@contextlib.contextmanager
def _charge_time(client: str) -> Iterator[None]:
    """Charge the time of a slow submission to its client.

    Raises:
        Unavailable: If the client has used up this hour's budget.
    """
    began = time.monotonic()
    _SLOW_READS[:] = [slow_read for slow_read in _SLOW_READS if slow_read[0] > began - BUDGET_PERIOD_SECONDS]
    if sum(seconds for _, reader, seconds in _SLOW_READS if reader == client) >= CLIENT_BUDGET_SECONDS:
        raise Unavailable(
            "your submissions have used up this hour's reading time. Come back in an hour, or "
            "check this one on your machine with `medprobe submit --dry-run`."
        )

    try:
        yield
    finally:
        _SLOW_READS.append((began, client, time.monotonic() - began))


_QUICK_SEMAPHORE, _SLOW_LOCK = threading.Semaphore(QUICK_SLOTS), threading.Lock()
_SLOW_READS: list[tuple[float, str, float]] = []
"""(start, client, seconds) of each slow submission that was read in the last hour."""
_CLIENTS: dict[str, tuple[threading.Lock, int]] = {}
"""Client -> its lock, and the number of its submissions that are being read or waiting."""
_CLIENTS_LOCK = threading.Lock()


def start_forker(*modules: str) -> None:
    """Start the forking process and load modules in it, so that the first call is not delayed."""
    if CAN_FORK:
        _FORKER.start(*modules)


def _over_limit_message(limits: Limits) -> str:
    """Return the message for input that exceeded its limits."""
    return f"is damaged, or reading it exceeds the limits for its size ({limits}). Leave out everything but answers to these questions."


def _kill_group(child: int) -> None:
    """Kill a child and everything that it started, which is in its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


class _Forker:
    """Handle of the forking process.

    The forking process exits when this process ends for any reason, since its connection is then
    closed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def start(self, *modules: str) -> None:
        """Start the forking process if it is not running."""
        with self._lock:
            self._started(*modules)

    def fork(self, child_end: Connection, module: str) -> None:
        """Fork a child.

        Args:
            child_end: The child's end of the connection.
            module: Module to load before the first fork.
        """
        with self._lock:
            try:
                socket.send_fds(self._started(module), [b"+"], [child_end.fileno()])
            except OSError:  # the forking process was killed from outside
                self._connection = None
                socket.send_fds(self._started(module), [b"+"], [child_end.fileno()])

    def _started(self, *modules: str) -> socket.socket:
        """Return the connection to the forking process, which is started if needed."""
        # A fork of this process (e.g. a web server's worker) needs a forking process of its own.
        if self._connection is None or self._owner != os.getpid():
            parent_end, child_end = socket.socketpair()
            with child_end:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-c",
                        f"from {__name__} import fork_children; fork_children({child_end.fileno()}, *{modules!r})",
                    ],
                    pass_fds=[child_end.fileno()],
                    stdin=subprocess.DEVNULL,
                    env=os.environ
                    | {
                        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
                        "OMP_NUM_THREADS": "1",
                        "OPENBLAS_NUM_THREADS": "1",
                        "ARROW_DEFAULT_MEMORY_POOL": "system",
                    },
                    start_new_session=True,  # Ctrl-C in a terminal is handled by this process
                )
            self._connection, self._owner = parent_end, os.getpid()
            atexit.register(parent_end.close)
        return self._connection


_FORKER = _Forker()


def fork_children(descriptor: int, *preload: str) -> None:
    """Run the forking process: load the libraries, then fork a child for each connection."""
    for name in preload:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the kernel
    connection = socket.socket(fileno=descriptor)
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        if not data:
            return
        if os.fork() == 0:
            # The child must not hold the forking process's connection open.
            connection.close()
            status = 1
            try:
                _run_child(Connection(descriptors[0]))
                status = 0
            finally:
                os._exit(status)
        os.close(descriptors[0])


def _run_child(connection: Connection) -> None:
    """Run one call in the child: set limits, receive the call, send the outcome."""
    # Own process group, so that the parent can kill it with everything it starts.
    os.setsid()
    # The function may start processes of its own and wait for them.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _die_with_parent()
    connection.send(os.getpid())

    try:
        # Set before the arguments are received, which count towards the limits.
        _set_limits(connection.recv())
        environment, folder, function, args, kwargs = connection.recv()
        # Those of the forking process may be outdated, so the caller's are used.
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        _TO_PARENT.append(connection)
        reply = pickle.dumps(("returned", function(*args, **kwargs)))
    except BadInput as error:
        reply = pickle.dumps(("refused", error))
    except (MemoryError, _OutOfTime):
        reply = pickle.dumps(("over", None))
    except BaseException as error:
        trace = traceback.format_exc()
        # Libraries report failed allocations as errors of their own.
        is_out_of_memory = "out of memory" in trace.lower() or "cannot allocate memory" in trace.lower()
        reply = pickle.dumps(("over", None) if is_out_of_memory else ("failed", (type(error).__name__, trace)))

    connection.send_bytes(reply)


class _OutOfTime(BaseException):
    """The CPU time is used up.

    It is not an Exception, so that no handler of ordinary errors catches it.
    """


def _set_limits(limits: Limits, is_last: bool = False) -> None:
    """Set the limits of this process.

    With `is_last`, CPU time also gets a hard limit, which ends even code that handles every error.
    """
    import resource

    def out_of_time(number: int, frame: Any) -> None:
        raise _OutOfTime

    signal.signal(signal.SIGXCPU, out_of_time)
    if not _INITIAL_BYTES:
        with contextlib.suppress(OSError), open("/proc/self/statm") as file:  # noqa: PTH123
            _INITIAL_BYTES.append(int(file.read().split()[0]) * resource.getpagesize())

    initial_bytes, seconds = sum(_INITIAL_BYTES), int(time.process_time()) + limits.cpu_seconds

    for resource_id, soft, hard in (
        (resource.RLIMIT_AS, initial_bytes + limits.memory, initial_bytes + LARGE_MEMORY_BYTES),
        (resource.RLIMIT_CPU, seconds, seconds + 5 if is_last else resource.RLIM_INFINITY),
        # No core dumps: they would write untrusted content to disk.
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, LARGE_MEMORY_BYTES, LARGE_MEMORY_BYTES),
    ):
        with contextlib.suppress(ValueError, OSError):  # a lower limit is already set, or the system has none
            resource.setrlimit(resource_id, (soft, hard))


def _die_with_parent() -> None:
    """Ask Linux to kill this process when the forking process ends."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
