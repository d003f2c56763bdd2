"""The submissions that wait: the open pull requests of a store on the Hub, and what a verifier said of each.

Not here: opening one (`eval_harness/submissions/submit.py`), verifying it (`eval_harness/submissions/verification.py`).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dataset_builders.hub import connect, hub_errors, quiet
from eval_harness.submissions.hub_store import open_pulls

RECHECK_SECONDS = 60.0
MOST_SHOWN = 30
"""Open submissions that are listed, the newest first."""
SAID = re.compile(r"(Refused|The scores follow).*\(medprobe verify, commit [0-9a-f]{12}\)", re.DOTALL)
STATES = {"Refused": "refused", "The scores follow": "waits for a person"}


@dataclass(frozen=True)
class Waiting:
    """A pull request that waits. `state`: not yet verified, refused, or waits for a person (by the newest word of a verifier)."""

    number: int
    title: str
    author: str
    opened: str
    url: str
    state: str


class OpenSubmissions:
    """The open pull requests of a Hub store, asked for at most once a minute. Thread-safe."""

    def __init__(self, store: str) -> None:
        self.store = store
        self._known: list[Waiting] = []
        self._looked: float | None = None
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Ask again next time: one was just opened."""
        self._looked = None

    def list(self) -> list[Waiting]:
        """The newest open pull requests. Raises BadInput when the Hub does not tell."""
        with self._lock:
            if self._looked is None or time.monotonic() - self._looked > RECHECK_SECONDS:
                with quiet(), hub_errors(self.store, "list its open submissions"):
                    self._known = list(_waiting(self.store))
                self._looked = time.monotonic()
            return list(self._known)


def _waiting(store: str) -> Iterator[Waiting]:
    api = connect()
    for each in islice(open_pulls(api, store), MOST_SHOWN):
        details = api.get_discussion_details(store, each.num, repo_type="dataset")
        yield Waiting(
            each.num,
            each.title,
            str(each.author),
            each.created_at.date().isoformat(),
            details.url,
            _state(details.events),
        )


def _state(events: list[Any]) -> str:
    for event in reversed(events):
        found = SAID.match(str(getattr(event, "content", "")))
        if found:
            return f"{STATES[found[1]]} (says {event.author})"
    return "not yet verified"
