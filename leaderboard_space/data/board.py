"""The results store behind the board: read into sections, and read again when it changes.

See also: what a section is (`sections.py`), scoring selections (`ranking.py`), drawing (`views/`).
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.errors import BadInput
from eval_harness.records.result import Result
from eval_harness.store.scan import Folder, open_store, scan_store
from leaderboard_space.data.answers_shown import tokens_of
from leaderboard_space.data.ranks.sight import read_sights
from leaderboard_space.data.store import unverified
from leaderboard_space.data.store.result_files import ResultFiles, Stamp, stamp_of
from leaderboard_space.data.store.sections import Entry, Loaded, Section, Snapshot, group
from leaderboard_space.data.store.trusted_data import TrustedData
from leaderboard_space.data.tree import published_tree, tree_of
from leaderboard_space.data.units.outcomes import (
    Layout,
    RunUnits,
    align,
    apart,
    read_questions,
    read_run,
    stacked,
)

RESCAN_SECONDS = 5.0
"""How often the store is looked at for new files."""


class Board:
    """The store behind the board. Readers take `snapshot`; a new one replaces it whole when files come or change."""

    def __init__(
        self, store: str | Path | None, published: Sequence[Result] = (), trusted: TrustedData | None = None
    ) -> None:
        self.trusted = trusted or TrustedData()
        self._source = open_store(store) if store is not None else None
        self.store: Path | None = None
        self._published = [Entry(f"published/{number}", result) for number, result in enumerate(published)]
        self._files = ResultFiles()
        self._units: dict[tuple[str, str, Stamp], RunUnits] = {}
        self._lock, self._scanning = threading.Lock(), threading.Lock()
        # Two: one reads all sections in turn, the other the one a reader has opened before its turn came.
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="read-answers")
        if self._source is not None:
            folder = self._source.folder()
            if isinstance(self._source, Folder) and not (folder / "results").is_dir():
                scan_store(
                    folder
                )  # says what is wrong with it; a repository of the Hub may be new, with nothing in it yet
        self.snapshot = self._scan()

    def refresh(self) -> Snapshot:
        """Look at the store again; sections whose files are the same are kept with what was computed for them. One that replaces another,
        whose answers have been read, comes on show when its own have been.

        Raises OSError while the store is away; what was read stays on show.
        """
        with self._scanning:
            found = self._scan()
            for section in (section for held in found.sections.values() for section in held):
                before = self.snapshot.section(section.family, section.key)
                if section.loading is None and before is not None and before.key == section.key and before.ready:
                    self.outcomes(section)
            self.snapshot = found
        return self.snapshot

    def watch(self) -> None:
        """Refresh every few seconds, in a thread that ends with the process."""

        def loop() -> None:
            unverified.prune()
            self.prepare()
            while True:
                self.prepare()
                time.sleep(RESCAN_SECONDS)
                try:
                    self.trusted.refresh()
                    self.refresh()
                except (OSError, BadInput):  # the store is away for a moment: what was read stays on show
                    continue

        threading.Thread(target=loop, daemon=True, name="watch-store").start()

    def prepare(self) -> None:
        """Read the answers of all sections, so that the first reader does not wait for them."""
        for section in [section for sections in self.snapshot.sections.values() for section in sections]:
            is_new = section.loading is None
            self.outcomes(section)
            if is_new:
                tokens_of(
                    section.entries
                )  # kept from now on: reading them for the first plot by cost takes as long as all the rest

    def outcomes(self, section: Section, timeout: float | None = None) -> Loaded | None:
        """The aligned answers of a section (None where there are none), and its tree. Read once, then kept.

        None when reading them takes longer than `timeout` seconds; it goes on meanwhile.
        """
        with self._lock:
            if section.loading is None:
                section.loading = self._pool.submit(self._load, section)
        try:
            return section.loading.result(timeout=timeout)
        except TimeoutError:
            return None

    def outline(self, section: Section) -> Loaded:
        """What is known of a section before its answers are read: what papers print, and what the first of those on its questions says."""
        measured = [entry for entry in section.entries if entry.result.kind == "measured"]
        others = [entry for entry in section.entries if entry.result.kind != "measured"]
        return self._as_handed_in([*others, *measured[: 1 if section.fingerprint else None]], section.family)

    def _load(self, section: Section) -> Loaded:
        found = self._read_answers(section)
        read_sights(section)
        return found

    def _read_answers(self, section: Section) -> Loaded:
        measured = [entry for entry in section.entries if entry.result.kind == "measured"]
        if not measured or section.fingerprint is None or self.store is None:
            return self._as_handed_in(section.entries, section.family)
        try:
            questions = self._questions(section.fingerprint)
        except BadInput as error:
            section.notes.append(f"{error} Scores are shown as they were derived; the questions are not known.")
            return self._as_handed_in(section.entries, section.family)
        tree = tree_of(section.family, questions)
        official = {entry.key for entry in measured if entry.result.method.extraction == "official"}
        runs = self._read_runs(section, measured)
        if not runs:
            return None, tree
        keys, layout, numbers = list(runs), next(iter(runs.values())).layout, stacked(list(runs.values()))
        by_key = {entry.key: entry for entry in measured}
        for key, run in zip(keys, apart(numbers, layout, len(keys)), strict=True):
            self._units[self._run_key(section, by_key[key])] = run
        return align(section.family, questions, keys, layout, numbers, official), tree

    def _read_runs(self, section: Section, measured: Sequence[Entry]) -> dict[str, RunUnits]:
        """Entry key -> the units of its run; of one that cannot be read a note."""
        runs: dict[str, RunUnits] = {}
        known = (self._units.get(self._run_key(section, entry)) for entry in measured)
        layout = next((run.layout for run in known if run is not None), None)
        for entry in measured:
            try:
                found = self._run(section, entry, layout)
                if layout is not None and found.layout is not layout:
                    raise BadInput("it was scored on different units than the others.")
                runs[entry.key], layout = found, found.layout
            except BadInput as error:
                section.notes.append(f"{entry.result.model.name}: {error} Its scores are shown as they were derived.")
        return runs

    def _run_key(self, section: Section, entry: Entry) -> tuple[str, str, Stamp]:
        """Where the units of a run are kept in memory, as long as they are the same."""
        return (section.key, entry.key, stamp_of(entry.units))

    def _as_handed_in(self, entries: Sequence[Entry], family: str) -> Loaded:
        return None, published_tree(family, [entry.result.breakdown for entry in entries])

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
        """Where the store keeps the questions of a fingerprint, if it does."""
        return self.store / "questions" / f"{fingerprint}.parquet" if self.store is not None else None

    def _run(self, section: Section, entry: Entry, layout: Layout | None) -> RunUnits:
        key = self._run_key(section, entry)
        if key not in self._units:
            if entry.units is None or key[2] is None:
                raise BadInput("its answers are not in the store.")
            self._units[key] = read_run(entry.units, layout)
        return self._units[key]

    def _scan(self) -> Snapshot:
        if self._source is not None:
            self.store = self._source.folder()
            known = hasattr(self, "snapshot") and isinstance(self._source, Folder)
            if known and not (self.store / "results").is_dir():
                raise FileNotFoundError("the results store is away")  # not the same as a store with nothing in it
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
        there = {entry.key for entry in entries}
        self._units = {key: units for key, units in list(self._units.items()) if key[1] in there}
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
