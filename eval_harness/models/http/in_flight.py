"""How many requests are in flight together: as many as allowed, fewer while the server says it is busy. Knows nothing of questions.

All are used from the start. When the server says it is busy, the number falls to half of what was in flight (at most once in
`CUT_EVERY` seconds, for one burst of refusals is one piece of news) and grows again by a quarter with each round of answers. A wait
that the server asks for holds for everybody. Used from many threads.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Given = TypeVar("Given")
Reply = TypeVar("Reply")
LAST_REPLIES = 5.0
"""Seconds for which replies under way are waited for when the asking ends in an error: they are paid for."""
LONGEST_WAIT = 60.0
CUT_EVERY = 1.0
CUT_TO = 0.5
GROWTH = 0.25


class Stopped(Exception):
    """Nothing more is to be sent."""


class InFlight:
    """At most `most` requests."""

    def __init__(self, most: int) -> None:
        self.most = max(1, most)
        self.allowed = float(self.most)
        self.now = 0
        self._change = threading.Condition()
        self._stop = threading.Event()
        self._last_cut = -1e9
        self._not_before = 0.0

    @contextmanager
    def one(self) -> Iterator[None]:
        """One of the requests in flight; waits while there are as many as allowed, or while the server asked for a pause.

        Raises Stopped.
        """
        while (pause := self._not_before - time.monotonic()) > 0:
            # Not all at the same instant: that would be the burst the server complained about.
            self._sleep(pause + random.uniform(0, 0.1 * min(pause, 10.0)))
        with self._change:
            self._change.wait_for(lambda: self.now < int(self.allowed) or self.stopped)
            if self.stopped:
                raise Stopped
            self.now += 1
        try:
            yield
        finally:
            with self._change:
                self.now -= 1
                self._change.notify()

    def answered(self) -> None:
        """One more answer; a round of them lets a quarter more requests in."""
        with self._change:
            if self.now <= self.allowed < self.most:
                self.allowed = min(float(self.most), self.allowed + max(GROWTH, 1 / self.allowed))
                self._change.notify()

    def busy(self) -> None:
        """The server has too much to do."""
        now = time.monotonic()
        with self._change:
            if now - self._last_cut > CUT_EVERY:
                self.allowed, self._last_cut = max(1.0, CUT_TO * min(self.allowed, self.now + 1)), now

    def wait(self, tries: int, first: float, retry_after: float | None) -> None:
        """Wait before another try: twice as long each time, with jitter, and never shorter than the server asked for.

        What the server asked for holds for everybody. Raises Stopped.
        """
        if retry_after is not None:
            self._not_before = max(self._not_before, time.monotonic() + retry_after)
        backoff = min(LONGEST_WAIT, first * 2 ** (tries - 1)) * random.uniform(0.5, 1.0)
        self._sleep(max(backoff, (retry_after or 0.0) * random.uniform(1.0, 1.1)))

    def _sleep(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopped

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Let nothing more be sent; whoever waits gets Stopped."""
        with self._change:
            self._stop.set()
            self._change.notify_all()


def in_threads(flight: InFlight, waiting: Iterator[Given], ask: Callable[[Given], Reply]) -> Iterator[Reply]:
    """What `ask` gives for each of what waits, in any order, each taken by one of so many threads as may be in flight once it is free.

    What one of them raises is raised here; only the replies under way are waited for before."""
    done: queue.SimpleQueue[Reply | BaseException | None] = queue.SimpleQueue()
    taking = threading.Lock()

    def work() -> None:
        try:
            while not flight.stopped:
                with taking:
                    given = next(waiting, None)
                if given is None:
                    break
                done.put(ask(given))
        except Stopped:
            pass
        except BaseException as error:  # handed to the caller's thread, which raises it
            done.put(error)
        done.put(None)

    workers = [threading.Thread(target=work, name="in-flight", daemon=True) for _ in range(flight.most)]
    for worker in workers:
        worker.start()
    failure: BaseException | None = None
    working, until = len(workers), 0.0
    try:
        while working:
            try:
                item = done.get(timeout=None if failure is None else max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            match item:
                case None:
                    working -= 1
                case BaseException() as error:
                    if failure is None:
                        failure, until = error, time.monotonic() + LAST_REPLIES
                        flight.stop()
                case reply:
                    yield reply
    finally:
        flight.stop()
    if failure is not None:
        raise failure
