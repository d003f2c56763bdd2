"""Datasets trusted by the board's owner: they accept submissions, and results on earlier versions
are retired.

See also: grouping results (`sections.py`), submissions (`submitting/`).
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
"""Seconds between checks of a dataset for a new version."""


@dataclass(frozen=True)
class TrustedSplit:
    """A split of a trusted dataset.

    `has_answers`: False if the answers are hidden (GMAI-MMBench's test).
    """

    repository: Repository
    benchmark: Benchmark
    has_answers: bool


class TrustedData:
    """Datasets by name (folder, or ORG/NAME on the Hub), checked periodically for new versions.

    Thread-safe.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.splits: tuple[TrustedSplit, ...] = ()
        self._read: dict[str, tuple[object, tuple[TrustedSplit, ...]]] = {}
        self._looked: float | None = None
        self._lock = threading.Lock()

    def refresh(self) -> bool:
        """Check the datasets for new versions, at most every RECHECK_SECONDS.

        A dataset that cannot be read keeps the splits that were last read.

        Returns:
            True if any split changed.
        """
        with self._lock:
            if self._looked is not None and time.monotonic() - self._looked < RECHECK_SECONDS:
                return False
            self._looked = time.monotonic()
            previous_splits = self.splits
            for name in self.names:
                try:
                    version = _version(name)
                    if name not in self._read or self._read[name][0] != version:
                        self._read[name] = (version, _splits(name))
                except Exception:  # a dataset that cannot be read must not take the board down
                    log.exception("dataset %s cannot be read", name)
            self.splits = tuple(split for name in self.names if name in self._read for split in self._read[name][1])
            return self.splits != previous_splits

    def is_replaced(self, result: Result) -> bool:
        """Return True if a trusted dataset of the same repository (or name) and split now has other
        questions.

        The fingerprint covers questions, options and key: revisions that leave them unchanged
        retire nothing. Selections have fingerprints of their own and are never retired.
        """
        benchmark = result.benchmark
        if result.kind != "measured" or benchmark.selection is not None or benchmark.fingerprint is None:
            return False
        current = [
            split.benchmark.fingerprint
            for split in self.splits
            if split.benchmark.split == benchmark.split
            # the same repository or, for results from a local folder, the same name
            and (split.benchmark.repo == benchmark.repo if benchmark.repo else split.benchmark.name == benchmark.name)
        ]
        return bool(current) and benchmark.fingerprint not in current


def _version(name: str) -> object:
    """Return the version of a dataset: commit on the Hub, or modification time of its manifest."""
    folder = Path(name)
    if folder.is_dir():
        manifest = folder / "manifest.json"
        return manifest.stat().st_mtime_ns if manifest.is_file() else folder.stat().st_mtime_ns
    from dataset_builders.hub.client import connect

    return connect().dataset_info(name).sha


def _splits(name: str) -> tuple[TrustedSplit, ...]:
    repository = open_repository(name)
    splits = []
    for split in repository.splits:
        selection = Selection(repository, split, repository.questions(split), repository.partial)
        if selection.questions.empty:
            continue
        has_answers = bool(selection.questions["answer"].map(len).gt(0).all())
        splits.append(TrustedSplit(repository, selection.benchmark(), has_answers))
    return tuple(splits)
