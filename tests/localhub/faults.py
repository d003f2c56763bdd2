"""Inject faults (an error status, a reset connection), and record requests."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

RESET = 0
"""The "status" of a connection that is cut without a response."""


@dataclass
class Fault:
    """A fault for requests with this method whose raw path matches the regular expression `path`,
    `times` times.

    `lose_response` lets the request succeed and drops only the response, so the client cannot know.
    """

    path: str
    status: int
    method: str = "*"
    times: int = 1
    lose_response: bool = False
    message: str = "injected fault"
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


class Faults(list[Fault]):
    def add(self, path: str, status: int, **details: object) -> None:
        self.append(Fault(path, status, **details))  # type: ignore[arg-type]

    def next(self, method: str, path: str) -> Fault | None:
        for fault in self:
            if fault.times > 0 and fault.method in ("*", method) and re.search(fault.path, path):
                # Each fault applies a limited number of times, so that retries can succeed.
                fault.times -= 1
                return fault
        return None


@dataclass(frozen=True)
class RecordedRequest:
    method: str
    path: str
    status: int
    """Status of the response; RESET if the connection was cut."""


class Record(list[RecordedRequest]):
    def requests(self, method: str = "*", path: str = "") -> list[RecordedRequest]:
        """Return the recorded requests with this method whose raw path matches, in order."""
        return [a for a in self if method in ("*", a.method) and re.search(path, a.path)]
