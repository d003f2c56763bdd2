"""Read a results store: a folder, or a dataset repository on the Hub with an updated local copy.

Nothing is written to the store.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from dataset_builders.errors import BadInput, first_line
from dataset_builders.hub.client import connect, is_repo_id
from eval_harness.records.result import Result, read_result
from eval_harness.store.acceptance import Withdrawal, read_withdrawal

HUB_RECHECK_SECONDS = 30.0
"""Minimum seconds between two checks for changes of the repository on the Hub."""


class StoreReader:
    """A store: a folder, or a dataset repository on the Hub.

    Only the changes to a repository are downloaded; while the Hub is unreachable, the last copy is
    used.
    """

    def __init__(self, store: str | Path) -> None:
        self.name = str(store)
        self.is_on_hub = is_hub_store(store)
        self._revision: str | None = None
        self._path = None if self.is_on_hub else Path(store)
        self._checked_at = 0.0

    def folder(self) -> Path:
        """Return the folder that contains `results/`; for the Hub, the newest copy.

        The copy's path may change from call to call.

        Raises:
            BadInput: If there is no copy and none can be downloaded.
        """
        if self._path is not None and not self.is_on_hub:
            return self._path
        from huggingface_hub.errors import HfHubHTTPError

        if self._path is not None and time.monotonic() - self._checked_at < HUB_RECHECK_SECONDS:
            return self._path
        # Set before the request, so that an unreachable Hub is not asked on every call.
        self._checked_at = time.monotonic()

        try:
            api = connect()
            revision = api.dataset_info(self.name).sha
            # Snapshots are content-addressed: unchanged files are not downloaded again.
            if revision != self._revision or self._path is None:
                copy = api.snapshot_download(
                    self.name,
                    repo_type="dataset",
                    revision=revision,
                    allow_patterns=["results/**", "questions/**"],
                )
                self._path, self._revision = Path(copy), revision
        except (HfHubHTTPError, OSError, ValueError) as error:
            if self._path is None:
                raise BadInput(
                    f"results store {self.name}: neither a folder here nor a dataset repository "
                    f"that can be read ({first_line(error) or type(error).__name__}). Check the name, and HF_TOKEN for a private one."
                ) from None

        assert self._path is not None
        return self._path


def is_hub_store(store: str | Path) -> bool:
    """Return True for ORG/NAME, a dataset repository on the Hub, unless such a folder exists."""
    return isinstance(store, str) and not Path(store).is_dir() and is_repo_id(store)


@dataclass(frozen=True)
class StoredResult:
    """A result and its folder, which also contains `answers.parquet` if the result was measured."""

    result: Result
    folder: Path
    run_id: str
    withdrawal: Withdrawal | None = None

    @classmethod
    def read(cls, path: Path) -> StoredResult:
        """Read a result.json and its withdrawal, if any. Raises BadInput if one is damaged."""
        return cls(read_result(path), path.parent, path.parent.name, read_withdrawal(path.parent))


def result_paths(root: Path) -> list[Path]:
    """Return every result.json of a folder store, sorted.

    Raises:
        BadInput: If the folder has no `results/`.
    """
    if not (root / "results").is_dir():
        # A common mistake is to give the folder `results` itself.
        hint = " Did you mean its parent folder?" if root.name == "results" else ""
        raise BadInput(
            f"{root}: not a results store (a folder that contains `results/`).{hint} "
            f"`medprobe submit RUN_DIR --to {root}` makes one."
        )
    return sorted(root.glob("results/*/*/*/result.json"))


def scan_store(store: str | Path) -> tuple[list[StoredResult], list[str]]:
    """Read every result of a store; files that cannot be read are skipped.

    Args:
        store: A folder, or ORG/NAME on the Hub.

    Returns:
        The results, sorted by path, and one line per skipped file. Both are empty for a repository
            without `results/`.

    Raises:
        BadInput: If the folder has no `results/`, or the store is neither a folder nor a readable
            repository.
    """
    source = StoreReader(store)
    root = source.folder()
    if source.is_on_hub and not (root / "results").is_dir():
        return [], []
    results: list[StoredResult] = []
    problems: list[str] = []

    for path in result_paths(root):
        try:
            results.append(StoredResult.read(path))
        except (BadInput, OSError) as error:
            problems.append(str(error))

    return results, problems
