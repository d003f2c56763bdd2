"""Group requests into batches: same settings, questions of one image side by side, longest first; choose the batch size.

See also: running them (`transformers_vlm.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from eval_harness.records.request import Request

FIRST = 32
LARGEST_ON_CPU = 64
LARGEST = 512
ROOM = 0.45
"""A batch may double while the last one used less than this share of the memory: twice the batch needs at most twice as much."""


class BatchSize:
    """The number of requests at a time: given, or found (doubles while there is room, halves when memory runs out)."""

    def __init__(self, given: int | None, on_cpu: bool) -> None:
        self.size = given or FIRST
        self._may_grow = given is None
        self._largest = LARGEST_ON_CPU if on_cpu else LARGEST
        self._worked = 1

    def halve(self, failed: int) -> None:
        """A batch of `failed` requests did not fit: half of it from now on, and no more growing."""
        self.size = max(1, failed // 2)
        self._may_grow = False

    def leave_out_one(self) -> None:
        """One request did not fit by itself: the others run in batches as large as the largest that did."""
        self.size = self._worked

    def went_well(self, count: int, used: float) -> None:
        """A batch of `count` requests used this share of the memory."""
        self._worked = max(self._worked, count)
        if self._may_grow and 4 * count >= 3 * self.size and used < ROOM:
            self.size = min(self._largest, self.size * 2)


class Queue:
    """Requests waiting to be batched. A unit is the requests that share images, examples and settings."""

    def __init__(self, requests: Iterable[Request]) -> None:
        units: dict[object, list[Request]] = {}
        for request in requests:
            key = (_settings(request), request.images, request.shots, request.system)
            units.setdefault(key, []).append(request)
        # Longest first: a batch holds prompts of similar length, and one that does not fit is met at once, not after hours.
        ordered = sorted(units.values(), key=lambda unit: -max(len(request.prompt) for request in unit))
        self._by_settings: dict[object, deque[list[Request]]] = {}
        for unit in ordered:
            self._by_settings.setdefault(_settings(unit[0]), deque()).append(unit)

    def __bool__(self) -> bool:
        return any(self._by_settings.values())

    def take(self, size: int) -> list[Request]:
        """Up to `size` requests of the same settings. A unit is only split where the batch would stay under three quarters full."""
        units = next(units for units in self._by_settings.values() if units)
        batch: list[Request] = []
        while units and len(batch) < size:
            unit = units.popleft()
            room = size - len(batch)
            if len(unit) > room and 4 * len(batch) >= 3 * size:
                units.appendleft(unit)
                break
            batch += unit[:room]
            if unit[room:]:
                units.appendleft(unit[room:])
        return batch

    def put_back(self, batch: Sequence[Request]) -> None:
        """Return a batch that was not run; it comes first again, in its old order, unit by unit."""
        units: list[list[Request]] = []
        for request in batch:
            if units and (units[-1][0].images, units[-1][0].shots) == (request.images, request.shots):
                units[-1].append(request)
            else:
                units.append([request])
        self._by_settings.setdefault(_settings(batch[0]), deque()).extendleft(reversed(units))


def _settings(request: Request) -> tuple[int, float, str | None]:
    """What one run of the network must share."""
    return request.max_tokens, request.temperature, request.scoring if request.candidates else None
