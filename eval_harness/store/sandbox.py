"""Call a function on untrusted input in a separate process, with limits on memory and time.

Each call starts a Python process, which imports the function's module, sets its own limits, calls
the function, and sends back the outcome. On Linux, memory and CPU time are limited by rlimits. On
other systems only wall-clock time is limited (macOS has no limit on address space). On Windows,
which cannot pass a pipe to a child, the function runs in this process without limits.
"""

import contextlib
import importlib
import math
import os
import pickle
import signal
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
CAN_PASS_PIPES = os.name == "posix"
"""True if this system can hand an open pipe to a child process."""


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
    if not CAN_PASS_PIPES:
        return function(*args, **kwargs)
    parent_end, child_end = Pipe()
    with parent_end, contextlib.ExitStack() as stack:
        with child_end:
            stack.callback(_end_group, _start_child(child_end.fileno(), function.__module__))
        try:
            # The time limit begins once the child has imported the module.
            parent_end.recv()
        except EOFError:
            raise Unavailable("the reading process was killed from outside. Try again later.") from None

        deadline = time.monotonic() + _TIME_LIMIT.get()
        try:
            _grant_limits(parent_end, limits, 0, deadline, stack)
            parent_end.send((function, args, kwargs))
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
                # Idle clients are forgotten, or the dictionary would grow with every visitor.
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


def _over_limit_message(limits: Limits) -> str:
    """Return the message for input that exceeded its limits."""
    return f"is damaged, or reading it exceeds the limits for its size ({limits}). Leave out everything but answers to these questions."


def _start_child(descriptor: int, module: str) -> "subprocess.Popen[bytes]":
    """Start a process that runs `run_child`.

    Args:
        descriptor: The child's end of the pipe.
        module: Module of the function that will be called.

    Returns:
        The process, which leads its own process group.
    """
    return subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import run_child; run_child({descriptor}, {module!r})"],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
            # The libraries get one thread each, since thread pools reserve address space.
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "ARROW_DEFAULT_MEMORY_POOL": "system",
        },
        start_new_session=True,  # Ctrl-C in a terminal is handled by this process
    )


def _end_group(child: "subprocess.Popen[bytes]") -> None:
    """Kill a child and everything that it started, which is in its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def run_child(descriptor: int, module: str) -> None:
    """Run one call in the child: import, set limits, receive the call, send the outcome.

    Args:
        descriptor: This process's end of the pipe.
        module: Module of the function. It is imported before the limits are set, so that the memory
            of its libraries does not count.
    """
    _die_with_parent()
    connection = Connection(descriptor)
    importlib.import_module(module)
    connection.send("ready")

    try:
        # Set before the arguments are received, which count towards the limits.
        _set_limits(connection.recv())
        function, args, kwargs = connection.recv()
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
    """Ask Linux to kill this process when the thread that started it ends.

    That thread also ends if its process does.
    """
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
