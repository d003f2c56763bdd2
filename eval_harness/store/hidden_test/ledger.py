"""A private ledger: small JSON files in a private dataset repository on the Hub, or in a folder, changed one change at a time.

A change is computed from the newest state and lands only if nothing came in between; otherwise it is computed again from what is there
then. Whatever happens on the way, a change has landed whole or not at all. The documents say which user had which file scored on which day:
a scoring is booked before it is computed, so that neither a crash nor many requests at once give more of them.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from filelock import FileLock

from dataset_builders.errors import BadInput, clip
from dataset_builders.files import replace_file
from dataset_builders.hub.client import connect_with_token, endpoint, hub_errors, quiet, with_retries
from dataset_builders.hub.commits import commit_files
from eval_harness.store.hub import fetched, files_at
from eval_harness.store.scan import is_hub_store

if TYPE_CHECKING:
    from huggingface_hub import HfApi

T = TypeVar("T")
Document = dict[str, Any]
Read = Callable[[str], Document | None]
"""The document at a path (None where there is none), all of one state."""
Change = Callable[[Read], tuple[T, Mapping[str, Document]]]
"""From a state to what it means for the caller, and the documents to write (none: nothing changes). May be called several times."""

TRIES = 12
RETRY_FOR = 60.0
"""Seconds after which no further try is begun. A Hub with problems is asked several times by its client as well, in each of ours."""
_turns: dict[str, threading.Lock] = {}
"""One at a time per ledger in this process, so that only processes meet on the Hub."""
_turns_lock = threading.Lock()


def open_ledger(where: str, token: str | None = None) -> HubLedger | FolderLedger:
    """The ledger in a folder, or in the private dataset repository ORG/NAME of the Hub (an existing folder wins)."""
    return HubLedger(where, token) if is_hub_store(where) else FolderLedger(Path(where))


def private_head(api: HfApi, repo_id: str, what: str) -> str:
    """The newest commit of a dataset repository. Raises BadInput unless it is private."""
    info = api.repo_info(repo_id, repo_type="dataset")
    if not info.private:
        raise BadInput(f"{repo_id}: holds {what} and is public. Make it private on the Hub.")
    return str(info.sha)


class HubLedger:
    """A ledger in a private repository: every change is a commit on top of the state it was computed from, or none."""

    def __init__(self, repo_id: str, token: str | None = None) -> None:
        self.repo_id = repo_id
        self._token = token

    def look(self, path: str) -> Document | None:
        """The document at a path as it is now; None where there is none. Raises BadInput when it cannot be read."""
        with self._hub("read the ledger") as api:
            return with_retries(lambda: self._read(api, private_head(api, self.repo_id, "the ledger"), path))

    def change(self, change: Change[T], message: str) -> T:
        """Compute a change from the newest state and make it. Raises BadInput when it cannot be made; then nothing was changed."""
        with _locked(f"{endpoint()}/{self.repo_id}"), self._hub("write the ledger") as api:
            until = time.monotonic() + RETRY_FOR
            return with_retries(lambda: self._once(api, change, message, until), tries=TRIES)

    def _once(self, api: HfApi, change: Change[T], message: str, until: float) -> T:
        if time.monotonic() > until:
            raise BadInput(f"{self.repo_id}: the Hub is unavailable or too busy. Try again in a few minutes.")
        head = private_head(api, self.repo_id, "the ledger")
        meaning, documents = change(lambda path: self._read(api, head, path))
        if documents:
            files = {path: _content(document) for path, document in documents.items()}
            commit_files(api, self.repo_id, files, message, parent=head)
        return meaning

    def _read(self, api: HfApi, head: str, path: str) -> Document | None:
        # Asked for by its path first: a download that fails for want of a network looks much like one of a file that is not there.
        entry = files_at(api, self.repo_id, head, [path]).get(path)
        if entry is None:
            return None
        return _document(fetched(api, self.repo_id, head, path), f"{self.repo_id}, {path}")

    @contextmanager
    def _hub(self, doing: str) -> Iterator[HfApi]:
        api = connect_with_token(self._token)
        with quiet(), hub_errors(self.repo_id, doing):
            yield api


class FolderLedger:
    """A ledger in a folder of this machine, for one machine: a file lock keeps its processes apart. Used as `HubLedger`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def look(self, path: str) -> Document | None:
        with self._disk():
            return self._read(path)

    def change(self, change: Change[T], message: str) -> T:
        with self._disk():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with FileLock(self.folder / ".lock"):
                meaning, documents = change(self._read)
                for path, document in documents.items():
                    (self.folder / path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                    replace_file(self.folder / path, _content(document))
                return meaning

    def _read(self, path: str) -> Document | None:
        file = self.folder / path
        return _document(file.read_bytes(), str(file)) if file.exists() else None

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BadInput(
                f"{self.folder}: the ledger cannot be used ({error.strerror}). Give a folder to write to."
            ) from None


def _content(document: Document) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _document(content: bytes, where: str) -> Document:
    """A damaged document is never taken for an absent one: that would forget what it counts."""
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise BadInput(f"{where}: is not a document of the ledger. Restore it from the commit before, then try again.")
    return document


def _locked(name: str) -> threading.Lock:
    with _turns_lock:
        return _turns.setdefault(name, threading.Lock())


USER_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,95}", re.ASCII)
"""What the Hub allows in a user name, and a little more; it becomes a file name, so no slash and no dot in front."""


def user_name(user: str) -> str:
    """A user's name as the ledger writes it. BadInput for an empty name, and for one that could be a path."""
    if not isinstance(user, str) or not user.strip():
        raise BadInput("not signed in: sign in with your Hugging Face account, then ask again.")
    if not USER_NAME.fullmatch(user):
        raise BadInput(f"user {clip(user)}: is not a Hugging Face user name. Sign in again.")
    return user.lower()  # the Hub does not tell Ann from ann


def path_of(user: str) -> str:
    return f"users/{user}.json"


def scorings_of(document: Document | None) -> list[Document]:
    """The scorings of a user, oldest first. BadInput for a document that somebody has damaged: it is not taken for an empty one."""
    if document is None:
        return []
    scorings = document.get("scorings")
    needed = {"day", "sha256", "choices", "test", "score", "questions"}
    if not isinstance(scorings, list) or not all(isinstance(each, dict) and needed <= each.keys() for each in scorings):
        raise BadInput("hidden test: the ledger of this user is damaged. Tell the board's owner; nothing was counted.")
    return list(scorings)


def remember(look: Read, user: str, booked: Document, value: float, count: int) -> tuple[None, dict[str, Document]]:
    """Write the score to its booking; once it stands there it stays."""
    document = look(path_of(user))
    scorings = scorings_of(document)
    for number, entry in enumerate(scorings):
        if entry["test"] == booked["test"] and entry["sha256"] == booked["sha256"] and entry["score"] is None:
            scorings[number] = entry | {"score": value, "questions": count}
            return None, {path_of(user): {"user": user, "scorings": scorings}}
    return None, {}


def left(scorings: list[Document], per_day: int, now: datetime) -> int:
    """Scorings that are left on the day of `now` (UTC)."""
    return max(0, per_day - sum(entry["day"] == day_of(now) for entry in scorings))


def book(look: Read, user: str, entry: Document, per_day: int) -> tuple[tuple[Document, int, str], dict[str, Document]]:
    """Find the booking of this file, or make one. A booking without a score is of a scoring that was cut short: it is used again."""
    now = now_utc()
    scorings = scorings_of(look(path_of(user)))
    for known in scorings:
        if known["test"] == entry["test"] and (
            known["sha256"] == entry["sha256"] or known["choices"] == entry["choices"]
        ):
            return (known, left(scorings, per_day, now), day_of(now)), {}
    if left(scorings, per_day, now) == 0:
        raise BadInput(
            f"{user}: {'the one scoring' if per_day == 1 else f'the {per_day} scorings'} of {day_of(now)} (UTC) "
            f"{'is' if per_day == 1 else 'are'} used up. The next is possible on {day_of(now + timedelta(days=1))} from "
            "00:00 UTC; a file that was scored before can be asked for again at any time."
        )
    booked = entry | {
        "time": now.isoformat(timespec="seconds"),
        "day": day_of(now),
        "questions": None,
        "score": None,
    }
    scorings.append(booked)
    document: Document = {"user": user, "scorings": scorings}
    return (booked, left(scorings, per_day, now), day_of(now)), {path_of(user): document}


def now_utc() -> datetime:
    return datetime.now(UTC)


def day_of(now: datetime) -> str:
    return now.date().isoformat()
