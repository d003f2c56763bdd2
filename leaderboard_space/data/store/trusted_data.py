"""The datasets that the board's owner vouches for. Answers can be handed in for them, and results on an earlier version are retired.

See also: which results there are (`sections.py`), what is done with answers (`submitting/`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dataset_builders.hub.repository import Repository, open_repository
from eval_harness.records.result import Benchmark, Result
from eval_harness.records.selection import Selection

log = logging.getLogger(__name__)

RECHECK_SECONDS = 60.0
"""How often a dataset is looked at for a new version."""


@dataclass(frozen=True)
class TrustedSplit:
    """A split of a trusted dataset as it is now. `has_answers` is False where the answers are kept apart (GMAI-MMBench's test)."""

    repository: Repository
    benchmark: Benchmark
    has_answers: bool


class TrustedData:
    """Datasets by their names (folders, or ORG/NAME on the Hub), looked at again now and then. Thread-safe."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.splits: tuple[TrustedSplit, ...] = ()
        self._read: dict[str, tuple[object, tuple[TrustedSplit, ...]]] = {}
        self._looked: float | None = None
        self._lock = threading.Lock()

    def refresh(self) -> bool:
        """Look at the datasets again, at most every `RECHECK_SECONDS`; whether anything changed. One that is away stays as it was."""
        with self._lock:
            if self._looked is not None and time.monotonic() - self._looked < RECHECK_SECONDS:
                return False
            self._looked = time.monotonic()
            before = self.splits
            for name in self.names:
                try:
                    version = _version(name)
                    if name not in self._read or self._read[name][0] != version:
                        self._read[name] = (version, _splits(name))
                except Exception:  # a dataset that cannot be read must not take the board down
                    log.exception("dataset %s cannot be read", name)
            self.splits = tuple(split for name in self.names if name in self._read for split in self._read[name][1])
            return self.splits != before

    def is_replaced(self, result: Result) -> bool:
        """True if a result answers other questions than a trusted dataset has now, of the same repository (or name) and split.

        The fingerprint is over questions, options and key: a new revision that leaves them alone retires nothing. A part of a set
        (`selection`) has a fingerprint of its own and is left alone.
        """
        theirs = result.benchmark
        if result.kind != "measured" or theirs.selection is not None or theirs.fingerprint is None:
            return False
        current = [
            split.benchmark.fingerprint
            for split in self.splits
            if split.benchmark.split == theirs.split
            # the same repository, or asked from a folder that holds one of this name
            and (split.benchmark.repo == theirs.repo if theirs.repo else split.benchmark.name == theirs.name)
        ]
        return bool(current) and theirs.fingerprint not in current


def _version(name: str) -> object:
    """Something that differs when the dataset does: the commit on the Hub, or the state of a folder's manifest."""
    folder = Path(name)
    if folder.is_dir():
        manifest = folder / "manifest.json"
        return manifest.stat().st_mtime_ns if manifest.is_file() else folder.stat().st_mtime_ns
    from dataset_builders.hub.client import connect

    return connect().dataset_info(name).sha


def _splits(name: str) -> tuple[TrustedSplit, ...]:
    repository = open_repository(name)
    found = []
    for split in repository.splits:
        selection = Selection(repository, split, repository.questions(split), repository.partial)
        if selection.questions.empty:
            continue
        has_answers = bool(selection.questions["answer"].map(len).gt(0).all())
        found.append(TrustedSplit(repository, selection.benchmark(), has_answers))
    return tuple(found)
