"""Faults on demand (an error status, a reset connection), and the record of what was asked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

RESET = 0
"""The "status" of a connection that is cut without an answer."""


@dataclass
class Fault:
    """Hits requests of `method` whose raw path matches the regular expression `path`, `times` times.

    `after` lets the request do its work first and loses only the answer: the case in which a client cannot know.
    """

    path: str
    status: int
    method: str = "*"
    times: int = 1
    after: bool = False
    message: str = "injected fault"
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


class Faults:
    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, path: str, status: int, **details: object) -> None:
        self._faults.append(Fault(path, status, **details))  # type: ignore[arg-type]

    def clear(self) -> None:
        self._faults.clear()

    def next(self, method: str, path: str) -> Fault | None:
        for fault in self._faults:
            if fault.times > 0 and fault.method in ("*", method) and re.search(fault.path, path):
                fault.times -= 1
                return fault
        return None


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    status: int
    """What was answered; RESET where the connection was cut."""


class Record:
    def __init__(self) -> None:
        self._asked: list[Asked] = []

    def add(self, asked: Asked) -> None:
        self._asked.append(asked)

    def clear(self) -> None:
        self._asked.clear()

    def of(self, method: str = "*", path: str = "") -> list[Asked]:
        """What was asked so far, in order, of that method and with a raw path that matches."""
        return [a for a in self._asked if method in ("*", a.method) and re.search(path, a.path)]
