"""The submissions that wait: the open pull requests of a store on the Hub, and what a verifier said of each.

See also: opening one (`eval_harness/store/submit.py`), verifying it (`eval_harness/store/verification.py`).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dataset_builders.errors import BadInput
from dataset_builders.hub.client import connect, hub_errors, quiet
from eval_harness.store.hub import open_pulls

RECHECK_SECONDS = 60.0
MOST_SHOWN = 30
"""Open submissions that are listed, the newest first."""
SAID = re.compile(r"(Refused|Its scores were derived).*\(medprobe verify, commit [0-9a-f]{12}\)", re.DOTALL)
STATES = {"Refused": "refused", "Its scores were derived": "waits for a person"}


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
    """The open pull requests of a Hub store, asked for at most once a minute, whatever came of it. Thread-safe."""

    def __init__(self, store: str) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._found: list[Waiting] | BadInput = []
        self._until = 0.0

    def forget(self) -> None:
        """Ask again next time: one was just opened."""
        self._until = 0.0

    def list(self) -> list[Waiting]:
        """The newest open pull requests. Raises BadInput when the Hub does not tell."""
        with self._lock:
            if time.monotonic() > self._until:
                self._until = time.monotonic() + RECHECK_SECONDS
                try:
                    with quiet(), hub_errors(self.store, "list its open submissions"):
                        self._found = list(_waiting(self.store))
                except BadInput as error:
                    self._found = error
                except Exception:  # who has just submitted must hear of it, whatever the Hub answers here
                    self._found = BadInput(f"{self.store}: the Hub's list of open submissions cannot be parsed.")
            if isinstance(self._found, BadInput):
                raise self._found
            return self._found


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
