"""Faults on demand (an error status, a reset connection, a slow answer), and the record of what was asked."""

from __future__ import annotations

import re
import threading
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
    delay: float = 0.0
    message: str = "injected fault"
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def hits(self, method: str, path: str) -> bool:
        return self.times > 0 and self.method in ("*", method) and re.search(self.path, path) is not None


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    status: int
    """What was answered; RESET where the connection was cut."""
    received: int
    """Bytes of body that came with it."""


class Faults:
    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, path: str, status: int, **details: object) -> None:
        with self._lock:
            self._faults.append(Fault(path, status, **details))  # type: ignore[arg-type]

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def next(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.hits(method, path):
                    fault.times -= 1
                    return fault
        return None


class Record:
    def __init__(self) -> None:
        self._asked: list[Asked] = []
        self._lock = threading.Lock()

    def add(self, asked: Asked) -> None:
        with self._lock:
            self._asked.append(asked)

    def clear(self) -> None:
        with self._lock:
            self._asked.clear()

    def of(self, method: str = "*", path: str = "") -> list[Asked]:
        """What was asked so far, in order, of that method and with a raw path that matches."""
        with self._lock:
            return [a for a in self._asked if method in ("*", a.method) and re.search(path, a.path)]
