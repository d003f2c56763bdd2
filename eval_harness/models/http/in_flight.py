"""How many requests are in flight together: as many as allowed, fewer while the server says it is busy. Knows nothing of questions.

All places are used from the start. When the server says it is busy, the number falls to half of what was in flight (at most once
in `CUT_EVERY` seconds, for one burst of refusals is one piece of news) and grows again by a quarter with each round of answers. A wait
that the server asks for holds for everybody. Used from one event loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

LONGEST_WAIT = 60.0
CUT_EVERY = 1.0
CUT_TO = 0.5
GROWTH = 0.25


class InFlight:
    """At most `most` places."""

    def __init__(self, most: int) -> None:
        self.most = max(1, most)
        self.allowed = float(self.most)
        self.now = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._last_cut = -1e9
        self._not_before = 0.0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place among the requests in flight; waits while there is none, or while the server asked for a pause."""
        while (pause := self._not_before - time.monotonic()) > 0:
            # Not all at the same instant: that would be the burst the server complained about.
            await asyncio.sleep(pause + random.uniform(0, 0.1 * min(pause, 10.0)))
        await self._enter()
        try:
            yield
        finally:
            self.now -= 1
            self._let_in()

    async def _enter(self) -> None:
        if self.now < int(self.allowed) and not self._waiting:
            self.now += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.now -= 1
                self._let_in()
            raise

    def _let_in(self) -> None:
        while self._waiting and self.now < int(self.allowed):
            turn = self._waiting.popleft()
            if not turn.done():
                self.now += 1
                turn.set_result(None)

    def answered(self) -> None:
        """One more answer; a round of them lets a quarter more requests in."""
        if self.now <= self.allowed < self.most:
            self.allowed = min(float(self.most), self.allowed + max(GROWTH, 1 / self.allowed))
            self._let_in()

    def busy(self) -> None:
        """The server has too much to do."""
        now = time.monotonic()
        if now - self._last_cut > CUT_EVERY:
            self.allowed, self._last_cut = max(1.0, CUT_TO * min(self.allowed, self.now + 1)), now

    async def wait(self, tries: int, first: float, asked: float | None) -> None:
        """Wait before another try: twice as long each time, with jitter, and never shorter than the server asked for.

        What the server asked for holds for everybody.
        """
        if asked is not None:
            self._not_before = max(self._not_before, time.monotonic() + asked)
        backoff = min(LONGEST_WAIT, first * 2 ** (tries - 1)) * random.uniform(0.5, 1.0)
        await asyncio.sleep(max(backoff, (asked or 0.0) * random.uniform(1.0, 1.1)))
