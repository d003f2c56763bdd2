"""The results store behind the board, read into sections and reloaded when it changes.

See also: what a section is (`store/sections.py`), scoring selections (`scoring.py`), drawing (`views/`).
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.errors import BadInput
from eval_harness.records.result import Result
from eval_harness.store.scan import StoreReader, scan_store
from leaderboard_space.data.outcomes import read_outcomes, read_questions
from leaderboard_space.data.ranks.sight import read_sights
from leaderboard_space.data.ranks.standings import for_board
from leaderboard_space.data.result_files import ResultFiles, stamp_of
from leaderboard_space.data.store.sections import Entry, Loaded, Section, Snapshot, group
from leaderboard_space.data.store.trusted_data import TrustedData
from leaderboard_space.data.tree import published_tree, tree_of

RESCAN_SECONDS = 5.0
"""Seconds between checks of the store for new files."""


class Board:
    """The store behind the board. Readers use `snapshot`, which is replaced atomically when files are added or change."""

    def __init__(
        self, store: str | Path | None, published: Sequence[Result] = (), trusted: TrustedData | None = None
    ) -> None:
        self.trusted = trusted or TrustedData()
        self._source = StoreReader(store) if store is not None else None
        self.store: Path | None = None
        self._published = [Entry(f"published/{number}", for_board(result)) for number, result in enumerate(published)]
        self._files = ResultFiles()
        self._reading, self._scanning = threading.Lock(), threading.Lock()
        if self._source is not None:
            folder = self._source.folder()
            if not self._source.is_on_hub and not (folder / "results").is_dir():
                scan_store(folder)  # reports problems; a new Hub repository may still be empty
        self.snapshot = self._scan()

    def refresh(self) -> Snapshot:
        """Look at the store again, and read what is new; sections whose files are the same are kept with what was computed for them.

        Raises OSError while the store is away; what was read stays on show.
        """
        with self._scanning:
            found = self._scan()
            self._prepare(found)
            self.snapshot = found
        return self.snapshot

    def watch(self) -> None:
        """Read all answers, then refresh every few seconds, in a thread that ends with the process."""

        def loop() -> None:
            self.prepare()
            while True:
                time.sleep(RESCAN_SECONDS)
                try:
                    self.trusted.refresh()
                    self.refresh()
                except (OSError, BadInput):  # the store is temporarily unavailable: keep showing the last snapshot
                    continue

        threading.Thread(target=loop, daemon=True, name="watch-store").start()

    def prepare(self) -> None:
        """Read the answers of all sections, so that the first reader does not wait for them."""
        self._prepare(self.snapshot)

    def _prepare(self, snapshot: Snapshot) -> None:
        for section in [section for sections in snapshot.sections.values() for section in sections]:
            self.outcomes(section)

    def outcomes(self, section: Section) -> Loaded:
        """The aligned answers of a section (None where there are none), and its tree. Read once, then kept."""
        if section.loaded is None:  # do not block readers of other sections
            with self._reading:
                if section.loaded is None:
                    loaded = self._load(section)
                    read_sights(section)
                    section.loaded = loaded
        return section.loaded

    def _load(self, section: Section) -> Loaded:
        nothing = None, published_tree(section.family, [entry.result.breakdown for entry in section.entries])
        measured = {entry.key: entry for entry in section.entries if entry.result.kind == "measured"}
        if not measured or section.fingerprint is None or self.store is None:
            return nothing
        try:
            questions = self._questions(section.fingerprint)
        except BadInput as error:
            section.notes.append(f"{error} Scores are shown as they were derived; the questions are not known.")
            return nothing
        official = {key for key, entry in measured.items() if entry.result.method.extraction == "official"}
        paths = {key: entry.units for key, entry in measured.items() if entry.units is not None}
        outcomes, problems = read_outcomes(section.family, questions, paths, official)
        for key, problem in problems.items():
            name = measured[key].result.model.name
            section.notes.append(f"{name}: {problem} Its scores are shown as they were derived.")
        return outcomes, tree_of(section.family, questions)

    def _questions(self, fingerprint: str) -> pd.DataFrame:
        """The questions of a fingerprint, as the store keeps them, else those of a trusted dataset. Raises BadInput without either."""
        path = self.questions_path(fingerprint)
        assert path is not None
        if not path.is_file():
            for split in self.trusted.splits:
                if split.benchmark.fingerprint == fingerprint:
                    return split.repository.questions(split.benchmark.split)
        return read_questions(path, fingerprint)

    def questions_path(self, fingerprint: str) -> Path | None:
        """The store's file with the questions of a fingerprint, if there is one."""
        return self.store / "questions" / f"{fingerprint}.parquet" if self.store is not None else None

    def _scan(self) -> Snapshot:
        if self._source is not None:
            self.store = self._source.folder()
            known = hasattr(self, "snapshot") and not self._source.is_on_hub
            if known and not (self.store / "results").is_dir():
                raise FileNotFoundError("the results store is unavailable")  # as opposed to an empty store
        read, problems = self._files.read(self.store, self.trusted.names) if self.store is not None else ([], [])
        entries = [*read, *self._published]
        before = {}
        if hasattr(self, "snapshot"):
            before = {(s.family, s.key): s for found in self.snapshot.sections.values() for s in found}
        sections: dict[str, list[Section]] = {family: [] for family in BENCHMARKS}
        for section in group(entries, self.trusted.is_replaced):
            if section.family not in sections:
                problems.append(f"{section.benchmark}: unknown benchmark format {section.family!r}.")
                continue
            section.marks = self._marks(section)
            old = before.get((section.family, section.key))
            same = (
                old is not None
                and old.marks == section.marks
                and all(a.result is b.result for a, b in zip(old.entries, section.entries, strict=True))
                and old.kind == section.kind
            )
            sections[section.family].append(old if same and old is not None else section)
        whole = [(s.family, s.key, s.kind, s.marks) for found in sections.values() for s in found]
        stamp = hashlib.sha256(repr((whole, problems)).encode("utf-8", "replace")).hexdigest()[:16]
        return Snapshot(stamp, sections, problems)

    def _marks(self, section: Section) -> tuple[object, ...]:
        """The files of a section as they are now: results, answers, and where its questions come from."""
        files = [(entry.key, entry.provenance, stamp_of(entry.folder / "result.json" if entry.folder else None), stamp_of(entry.units))
                 for entry in (*section.entries, *section.arms)]  # fmt: skip
        measured = any(entry.result.kind == "measured" for entry in section.entries)
        if self.store is None or section.fingerprint is None or not measured:
            return (*files,)
        trusted = any(split.benchmark.fingerprint == section.fingerprint for split in self.trusted.splits)
        return (*files, stamp_of(self.questions_path(section.fingerprint)), trusted)
