"""A private ledger with serialized changes: a small JSON file per user, in a private dataset repository on the Hub or in a folder.

A change is computed from the newest state and lands only if nothing came in between; otherwise it is computed again from what is there
then. Whatever happens on the way, a change has landed whole or not at all.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from filelock import FileLock

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.hub.client import connect_with_token, hide_progress_bars, hub_errors, with_retries
from dataset_builders.hub.commits import commit_files
from eval_harness.store.hub_store import fetch_file, find_files
from eval_harness.store.scan import is_hub_store

if TYPE_CHECKING:
    from huggingface_hub import HfApi

T = TypeVar("T")
Document = dict[str, Any]
Change = Callable[[Document | None], tuple[T, Document | None]]
"""Maps the current document (None if there is none) to the caller's result and the document to write (None: no change). May be called
several times."""

MAX_COMMIT_TRIES = 8
_CHANGE_LOCK = threading.Lock()
"""Serializes changes within this process, so that conflicts on the Hub arise only between processes."""


def open_ledger(where: str, token: str | None = None) -> HubLedger | FolderLedger:
    """The ledger in a folder, or in the private dataset repository ORG/NAME of the Hub (an existing folder wins)."""
    return HubLedger(where, token) if is_hub_store(where) else FolderLedger(Path(where))


def require_private_head(api: HfApi, repo_id: str, what: str) -> str:
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
        """The document at a path as it is now; None where there is none. Raises BadInput if it cannot be read."""
        with self._hub("read the ledger") as api:
            return with_retries(lambda: self._read(api, path)[1])

    def change(self, path: str, change: Change[T], message: str) -> T:
        """Compute a change from the newest state and make it. Raises BadInput if it cannot be made; then nothing was changed."""

        def once() -> T:
            head, before = self._read(api, path)
            meaning, document = change(before)
            if document is not None:
                commit_files(api, self.repo_id, {path: _to_bytes(document)}, message, parent=head)
            return meaning

        with _CHANGE_LOCK, self._hub("write the ledger") as api:
            return with_retries(once, tries=MAX_COMMIT_TRIES)

    def _read(self, api: HfApi, path: str) -> tuple[str, Document | None]:
        """The newest commit, and the document in it."""
        head = require_private_head(api, self.repo_id, "the ledger")
        # Check that the path exists first: a download that fails without a network looks much like one of a missing file.
        if path not in find_files(api, self.repo_id, head, [path]):
            return head, None
        return head, _parse_document(fetch_file(api, self.repo_id, head, path), f"{self.repo_id}, {path}")

    @contextmanager
    def _hub(self, doing: str) -> Iterator[HfApi]:
        api = connect_with_token(self._token)
        with hide_progress_bars(), hub_errors(self.repo_id, doing):
            yield api


class FolderLedger:
    """A ledger in a local folder, for one machine: a file lock serializes its processes. Same interface as `HubLedger`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def look(self, path: str) -> Document | None:
        file = self.folder / path
        with self._disk():
            return _parse_document(file.read_bytes(), str(file)) if file.exists() else None

    def change(self, path: str, change: Change[T], message: str) -> T:
        file = self.folder / path
        with self._disk():
            for folder in (self.folder, file.parent):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with FileLock(self.folder / ".lock"):
                meaning, document = change(self.look(path))
                if document is not None:
                    replace_file(file, _to_bytes(document))
                return meaning

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BadInput(
                f"{self.folder}: the ledger cannot be used ({error.strerror}). Give a folder to write to."
            ) from None


def _to_bytes(document: Document) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _parse_document(content: bytes, where: str) -> Document:
    """Parse a document. A damaged one is an error and never treated as absent, which would reset its counts."""
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise BadInput(f"{where}: is not a document of the ledger. Restore it from the commit before, then try again.")
    return document
