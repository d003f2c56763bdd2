"""Asking a busy server: how many at a time, what went wrong, how long to wait. Knows nothing of questions or answers.

The number in flight grows by one after a round of answers and halves when the server says it is busy (at most once a second).
"""

from __future__ import annotations

import asyncio
import email.utils
import math
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from dataset_builders.errors import BadInput

LONGEST_WAIT = 60.0
LONGEST_RETRY_AFTER = 900.0
Item = TypeVar("Item")

_FILTER = re.compile(r"content[_ -]?(filter|policy|management)|safety system|moderation|ResponsibleAI", re.IGNORECASE)
_PARAMETERS = ("max_tokens", "max_completion_tokens", "temperature", "seed", "top_logprobs", "logprobs")


class Refusal(Exception):
    """A filter or the model held the answer back; asking again is no use."""


class Trouble(Exception):
    """No answer came. `again`: worth another try. `busy`: the server has too much to do. `fatal`: no question will be answered.

    `parameter`: the one the server does not take. `retry_after`: seconds the server asked for.
    """

    def __init__(
        self,
        words: str,
        again: bool = True,
        busy: bool = False,
        fatal: bool = False,
        parameter: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(words)
        self.again, self.busy, self.fatal = again, busy, fatal
        self.parameter, self.retry_after = parameter, retry_after


def trouble_of(error: Exception) -> Refusal | Trouble:
    """What an exception of the client means."""
    import openai

    if isinstance(error, openai.APITimeoutError | TimeoutError):
        return Trouble("no answer in time", busy=True)
    if isinstance(error, openai.APIStatusError):
        return _of_status(error.status_code, error.message, error.response.headers.get("retry-after"), str(error.code))
    if isinstance(error, openai.APIConnectionError):
        return Trouble(f"the connection broke ({_short(error.__cause__ or error)})")
    return Trouble(f"the server's reply cannot be read ({_short(error)})")


def _of_status(status: int, message: str, retry_after: str | None, code: str) -> Refusal | Trouble:
    said = f"HTTP {status}: {_short(message)}"
    if status in (400, 403, 422, 451) and (_FILTER.search(message) or _FILTER.search(code)):
        return Refusal(said)
    if status == 429 and "insufficient_quota" in (code, message):
        return Trouble(
            f"the account has no credit left ({said}). Every answer so far is kept.", again=False, fatal=True
        )
    if status in (401, 403):
        return Trouble(f"the server refuses the key ({said}). Check OPENAI_API_KEY.", again=False, fatal=True)
    if status == 404:
        return Trouble(
            f"the server knows no such model or address ({said}). Check the name and --base-url.", False, fatal=True
        )
    if status in (400, 422):
        parameter = next((name for name in _PARAMETERS if re.search(rf"\b{name}\b", message)), None)
        return Trouble(said, again=False, parameter=parameter)
    if status in (408, 409, 425, 429) or status >= 500:
        return Trouble(said, busy=status in (429, 503, 529), retry_after=seconds_of(retry_after))
    return Trouble(said, again=False)


def seconds_of(header: str | None) -> float | None:
    """A Retry-After header in seconds: a number, or a date. None where it is absent or makes no sense."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER) if math.isfinite(seconds) else None


def without_key(text: str, key: str) -> str:
    """Servers repeat keys in their error messages; here they end."""
    if key:
        text = text.replace(key, "[key]")
    return re.sub(r"\b(sk|key|Bearer)[-_ ][A-Za-z0-9*_-]{6,}", "[key]", text)


def _short(thing: Any) -> str:
    words = " ".join(str(thing).split()) or type(thing).__name__
    return words[:300]


class Crowd:
    """Requests in flight together. Used from one event loop."""

    def __init__(self, most: int, give_up_after: int) -> None:
        self.most = max(1, most)
        self.allowed = min(4, self.most)
        self.in_flight = 0
        self._give_up_after = give_up_after
        self._failures = 0
        self._any_answer = False
        self._since_growth = 0
        self._last_cut = -1e9
        self._not_before = 0.0
        self._changed = asyncio.Condition()

    async def run(self, one: Callable[[Item], Awaitable[None]], items: Sequence[Item]) -> None:
        """Run `one` for every item; the first exception stops all and is raised."""
        waiting = iter(items)

        async def worker() -> None:
            for item in waiting:
                await one(item)

        workers = [asyncio.ensure_future(worker()) for _ in range(min(self.most, len(items)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place among the requests in flight; waits while there is none, or while the server asked for a pause."""
        async with self._changed:
            while self.in_flight >= self.allowed:
                await self._changed.wait()
            self.in_flight += 1
        try:
            while (pause := self._not_before - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            yield
        finally:
            async with self._changed:
                self.in_flight -= 1
                self._changed.notify_all()

    async def wait(self, tries: int, first: float, asked: float | None) -> None:
        """Wait before another try: twice as long each time, with jitter, and never shorter than the server asked for.

        What the server asked for holds for everybody.
        """
        if asked is not None:
            self._not_before = max(self._not_before, time.monotonic() + asked)
        backoff = min(LONGEST_WAIT, first * 2 ** (tries - 1)) * random.uniform(0.5, 1.0)
        await asyncio.sleep(max(backoff, (asked or 0.0) * random.uniform(1.0, 1.1)))

    def answered(self) -> None:
        """One more answer: after a round of them, one more request may be in flight."""
        self._any_answer, self._failures = True, 0
        self._since_growth += 1
        if self._since_growth >= self.allowed and self.allowed < self.most:
            self.allowed, self._since_growth = self.allowed + 1, 0

    def troubled(self, busy: bool) -> None:
        """One try failed; a busy server gets half as many requests."""
        now = time.monotonic()
        if busy and now - self._last_cut > 1.0:
            self.allowed, self._since_growth, self._last_cut = max(1, self.allowed // 2), 0, now

    def failed(self, words: str, at_once: bool = False) -> None:
        """One question failed for good. Raises BadInput(words) when that happens again and again with no answer in between;
        `at_once` failures (the server refused the question) only count while there has been no answer at all."""
        if at_once and self._any_answer:
            return
        self._failures += 1
        if self._failures >= self._give_up_after:
            raise BadInput(words)
