"""Limit the number of concurrent requests: as many as allowed, fewer while the server says it is busy.

All are used from the start. When the server says it is busy, the number falls to half of what was in flight (at most once in
`CUT_EVERY` seconds: one burst of refusals counts once) and grows again by a quarter with each round of answers. A wait that the server asks
for holds for all requests. Used within one event loop.
"""

from __future__ import annotations

import asyncio
import queue
import random
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

Item = TypeVar("Item")
LONGEST_WAIT = 60.0
CUT_EVERY = 1.0
CUT_TO = 0.5
GROWTH = 0.25


class InFlight:
    """At most `most` requests; with `alone` one, until `open`."""

    def __init__(self, most: int, alone: bool = False) -> None:
        self.most = max(1, most)
        self.alone = alone
        self.allowed = float(self.most)
        self.now = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._last_cut = -1e9
        self._not_before = 0.0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """One of the requests in flight; waits while there are as many as allowed, or while the server asked for a pause."""
        while True:
            pause = self._not_before - time.monotonic()
            if pause > 0:
                # Not all at the same instant: that would be the burst the server complained about.
                await asyncio.sleep(pause + random.uniform(0, 0.1 * min(pause, 10.0)))
            elif self._room > 0:
                break
            else:
                self._waiting.append(asyncio.get_running_loop().create_future())
                await self._waiting[-1]
        self.now += 1
        try:
            yield
        finally:
            self.now -= 1
            self._wake()

    @property
    def _room(self) -> int:
        return (1 if self.alone else int(self.allowed)) - self.now

    def open(self) -> None:
        """The server answers: all may ask."""
        self.alone = False
        self._wake()

    def _wake(self) -> None:
        room = self._room
        while self._waiting and room > 0:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                room -= 1

    def answered(self) -> None:
        """One more answer; a round of them lets a quarter more requests in."""
        if self.now <= self.allowed < self.most:
            self.allowed = min(float(self.most), self.allowed + max(GROWTH, 1 / self.allowed))
            self._wake()

    def busy(self) -> None:
        """The server has too much to do."""
        now = time.monotonic()
        if not self.alone and now - self._last_cut > CUT_EVERY:
            self.allowed, self._last_cut = max(1.0, CUT_TO * min(self.allowed, self.now + 1)), now

    def pause(self, tries: int, first: float, retry_after: float | None) -> float:
        """Seconds to wait before another try: twice as long each time, with jitter, and never shorter than the server asked for.

        What the server asked for holds for all requests.
        """
        if retry_after is not None:
            self._not_before = max(self._not_before, time.monotonic() + retry_after)
        backoff = min(LONGEST_WAIT, first * 2 ** (tries - 1)) * random.uniform(0.5, 1.0)
        return max(backoff, (retry_after or 0.0) * random.uniform(1.0, 1.1))


@dataclass(frozen=True)
class _End:
    error: BaseException | None


def in_background(work: Callable[[Callable[[Item], None]], Coroutine[Any, Any, None]]) -> Iterator[Item]:
    """Run `work(emit)` in an event loop of its own thread; yield what it emits, as it comes, and raise what it raises.

    Works where the caller has an event loop, as a notebook does. Closing the iterator cancels the work.
    """
    items: queue.SimpleQueue[Item | _End] = queue.SimpleQueue()
    runner = asyncio.Runner()
    loop = runner.get_loop()
    task = loop.create_task(work(items.put))

    async def finished() -> None:
        await task

    def run() -> None:
        error: BaseException | None = None
        try:
            with runner:
                runner.run(finished())
        except BaseException as raised:  # handed to the caller's thread, which raises it
            error = raised
        items.put(_End(error))

    thread = threading.Thread(target=run, name="in-flight", daemon=True)
    thread.start()
    try:
        while not isinstance(item := items.get(), _End):
            yield item
    finally:
        if thread.is_alive() and not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)
        thread.join(2.0)
    if item.error is not None:
        raise item.error
