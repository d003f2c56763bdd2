"""Keep a private ledger, one small JSON file per user, whose changes never overlap.

The ledger is in a private dataset repository on the Hub, or in a folder. A change is computed from
the newest state and committed only if that has not changed meanwhile; otherwise it is computed
again. A change is applied completely or not at all.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from filelock import FileLock

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.hub.client import commit_files, connect_with_token, hide_progress_bars, hub_errors, with_retries
from eval_harness.store.adding import fetch_file, find_files
from eval_harness.store.contents import is_hub_store

if TYPE_CHECKING:
    from huggingface_hub import HfApi

T = TypeVar("T")
Document = dict[str, Any]
Change = Callable[[Document | None], tuple[T, Document | None]]
"""Function from the current document to the caller's result and the document to write.

The current document is None if there is none yet; a document to write of None changes nothing. The
function may be called several times.
"""

MAX_COMMIT_TRIES = 8
"""Maximum attempts per change, since another process may commit in between."""
_CHANGE_LOCK = threading.Lock()
"""Lets the threads of this process make changes one at a time, so that they cause no conflicts."""


def open_ledger(location: str, token: str | None = None) -> "HubLedger | FolderLedger":
    """Open the ledger in a folder, or in the private dataset repository ORG/NAME.

    An existing folder takes precedence over a repository of that name.
    """
    return HubLedger(location, token) if is_hub_store(location) else FolderLedger(Path(location))


def require_private_head(api: "HfApi", repo_id: str, content: str) -> str:
    """Return the newest commit of a dataset repository.

    Args:
        api: The Hub's client.
        repo_id: The repository.
        content: What it contains, for the message.

    Raises:
        BadInput: If the repository is public.
    """
    info = api.repo_info(repo_id, repo_type="dataset")
    if not info.private:
        raise BadInput(f"{repo_id}: contains {content} and is public. Make it private on the Hub.")
    return str(info.sha)


class HubLedger:
    """A ledger in a private repository.

    Every change is one commit on top of the state that it was computed from.
    """

    def __init__(self, repo_id: str, token: str | None = None) -> None:
        self.repo_id = repo_id
        self._token = token

    def look(self, path: str) -> Document | None:
        """Return the current document at a path, or None. Raises BadInput if it cannot be read."""
        with self._hub("read the ledger") as api:
            return with_retries(lambda: self._read(api, path)[1])

    def change(self, path: str, change: Change[T], message: str) -> T:
        """Compute a change from the newest state and commit it.

        Args:
            path: Path of the document.
            change: Computes the caller's result and the new document; may be called several times.
            message: Commit message.

        Returns:
            The caller's result.

        Raises:
            BadInput: If the change cannot be made; nothing is changed then.
        """

        def once() -> T:
            head, current = self._read(api, path)
            result, document = change(current)
            if document is not None:
                # `parent` makes the Hub refuse the commit if another one came in between.
                commit_files(api, self.repo_id, {path: _to_bytes(document)}, message, parent=head)
            return result

        with _CHANGE_LOCK, self._hub("write the ledger") as api:
            return with_retries(once, tries=MAX_COMMIT_TRIES)

    def _read(self, api: "HfApi", path: str) -> tuple[str, Document | None]:
        """Return the newest commit, and the document in it."""
        head = require_private_head(api, self.repo_id, "the ledger")
        # Not decided by the download: without a network it fails as if the file did not exist.
        if path not in find_files(api, self.repo_id, head, [path]):
            return head, None
        return head, _parse_document(fetch_file(api, self.repo_id, head, path), f"{self.repo_id}, {path}")

    @contextmanager
    def _hub(self, doing: str) -> "Iterator[HfApi]":
        api = connect_with_token(self._token)
        with hide_progress_bars(), hub_errors(self.repo_id, doing):
            yield api


class FolderLedger:
    """A ledger in a local folder; a file lock admits one process of this machine at a time.

    It has the same interface as `HubLedger`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def look(self, path: str) -> Document | None:
        """Return the current document at a path, or None."""
        file = self.folder / path
        with self._disk():
            return _parse_document(file.read_bytes(), str(file)) if file.exists() else None

    def change(self, path: str, change: Change[T], message: str) -> T:
        """Compute a change under the lock and write it; `message` is not used."""
        file = self.folder / path
        with self._disk():
            for folder in (self.folder, file.parent):
                # Readable by its owner only, since the documents name users.
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with FileLock(self.folder / ".lock"):
                result, document = change(self.look(path))
                if document is not None:
                    replace_file(file, _to_bytes(document))
                return result

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BadInput(
                f"{self.folder}: the ledger cannot be used ({error.strerror}). Give a writable folder."
            ) from None


def _to_bytes(document: Document) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _parse_document(content: bytes, location: str) -> Document:
    """Parse a document.

    A damaged document is an error: treating it as absent would reset a user's count.
    """
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise BadInput(
            f"{location}: not a document of the ledger. Restore it from the previous commit, then try again."
        )
    return document
