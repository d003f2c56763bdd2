"""The submissions that wait: the open pull requests of a store on the Hub, and what a verifier said of each.

See also: opening one (`eval_harness/store/submit.py`), verifying it (`eval_harness/store/verification.py`).
"""

from __future__ import annotations

import logging
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

log = logging.getLogger(__name__)

RECHECK_SECONDS = 60.0
TIMEOUT = 8.0
"""Seconds that a page waits for the list. The next one finds what came of it."""
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
    """The open pull requests of a Hub store, asked for at most once a minute. Thread-safe.

    The Hub is asked in one thread beside: a slow Hub holds up neither the page nor the word that a submission has landed, and many
    submissions at once are not as many lists.
    """

    def __init__(self, store: str) -> None:
        self.store = store
        self._found: list[Waiting] = []
        self._problem: str | None = None
        self._until = 0.0
        self._asked, self._answered = 1, 0  # what is known answers what was asked up to here
        self._is_looking = False
        self._turn = threading.Condition()

    def forget(self) -> None:
        """Ask again next time: one was just opened."""
        with self._turn:
            self._asked += 1

    def list(self) -> list[Waiting]:
        """The newest open pull requests. Raises BadInput when the Hub does not tell, or not yet."""
        with self._turn:
            if self._answered == self._asked and time.monotonic() > self._until:
                self._asked += 1
            wanted = self._asked
            if self._answered < wanted and not self._is_looking:
                self._is_looking = True
                threading.Thread(target=self._look, name="open submissions", daemon=True).start()
            if not self._turn.wait_for(lambda: self._answered >= wanted, TIMEOUT):
                raise BadInput(f"{self.store}: the Hub is slow to list the open submissions. Try again soon.")
            if self._problem is not None:
                raise BadInput(self._problem)
            return list(self._found)

    def _look(self) -> None:
        """Ask the Hub until what was asked last is answered."""
        while True:
            with self._turn:
                if self._answered == self._asked:
                    self._is_looking = False
                    return
                asked = self._asked
            found, problem = _found(self.store)
            with self._turn:
                self._found, self._problem, self._answered = found, problem, asked
                self._until = time.monotonic() + RECHECK_SECONDS
                self._turn.notify_all()


def _found(store: str) -> tuple[list[Waiting], str | None]:
    """The list, or what stood in its way: whatever it is, those who wait are told."""
    try:
        with quiet(), hub_errors(store, "list its open submissions"):
            return list(_waiting(store)), None
    except BadInput as error:
        return [], str(error)
    except Exception:
        log.exception("the open submissions of %s cannot be listed", store)
        return [], f"{store}: the Hub's list of open submissions cannot be parsed."


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
