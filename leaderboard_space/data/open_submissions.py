"""The submissions that wait: the open pull requests of a store on the Hub, and what a verifier said of each.

See also: opening one (`eval_harness/store/submit.py`), verifying it (`eval_harness/store/verification.py`).
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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


Answer = tuple[list[Waiting], str | None]
"""The list, or what stood in its way."""


class OpenSubmissions:
    """The open pull requests of a Hub store, asked for at most once a minute. Thread-safe.

    The Hub is asked in one thread beside: a slow Hub holds up neither the page nor the word that a submission has landed, and many
    submissions at once are not as many lists.
    """

    def __init__(self, store: str) -> None:
        self.store = store
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="open submissions")
        self._lock = threading.Lock()
        self._asked: Future[Answer] | None = None
        self._until = 0.0

    def forget(self) -> None:
        """Ask again next time: one was just opened. A question that waits for its turn will find it."""
        with self._lock:
            if self._asked is not None and (self._asked.running() or self._asked.done()):
                self._asked = None

    def list(self) -> list[Waiting]:
        """The newest open pull requests. Raises BadInput when the Hub does not tell, or not yet."""
        with self._lock:
            if self._asked is None or (self._asked.done() and time.monotonic() > self._until):
                self._asked = self._beside.submit(self._look)
            asked = self._asked
        try:
            found, problem = asked.result(TIMEOUT)
        except TimeoutError:
            raise BadInput(f"{self.store}: the Hub is slow to list the open submissions. Try again soon.") from None
        if problem is not None:
            raise BadInput(problem)
        return list(found)

    def _look(self) -> Answer:
        answer = _found(self.store)
        self._until = time.monotonic() + RECHECK_SECONDS
        return answer


def _found(store: str) -> Answer:
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
