"""Which results may be ranked together: the store read into sections, one per set of questions, and read again when it changes.

Not here: scoring selections (`ranking.py`), drawing (`views/`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from dataset_builders import schema
from dataset_builders.errors import BadInput
from dataset_builders.schema import DEFAULT_SPLIT, FORMATS
from eval_harness.results import Result, StoredResult, read_result, scan_store
from leaderboard_space.outcomes import Layout, Outcomes, RunUnits, align, read_questions, read_run
from leaderboard_space.store_source import open_store
from leaderboard_space.tree import Tree, published_tree, tree_of

Loaded = tuple[Outcomes | None, Tree]
RESCAN_SECONDS = 5.0
"""How often the store is looked at for new files."""


@dataclass(frozen=True)
class Entry:
    """A result on the board. `key` is its place in the store (`benchmark/model/run`), or its number among the published ones."""

    key: str
    result: Result
    folder: Path | None = None

    @property
    def answers(self) -> Path | None:
        return self.folder / "answers.parquet" if self.folder is not None else None


@dataclass
class Section:
    """Results on exactly the same questions. `kind`: complete, phantom, custom, partial, or sample (of an official source)."""

    key: str
    format: str
    benchmark: str
    split: str
    kind: str
    questions: int
    fingerprint: str | None
    entries: list[Entry]
    selection: str | None = None
    notes: list[str] = field(default_factory=list)
    loading: Future[Loaded] | None = None

    @property
    def ready(self) -> bool:
        """Whether the answers have been read, so that asking for them costs no time."""
        return self.loading is not None and self.loading.done()

    def title(self) -> str:
        names = {
            "complete": "Complete official set",
            "phantom": "Phantoms (drawn images)",
            "custom": self.benchmark,
            "partial": "Part of the official set",
            "sample": "Sample (not the complete official set)",
        }
        return names[self.kind]


@dataclass(frozen=True)
class Snapshot:
    """The board at one moment: sections per format, and a line for every file set aside."""

    stamp: str
    sections: dict[str, list[Section]]
    problems: list[str]

    def section(self, format: str, key: str | None) -> Section | None:
        """The section of that key, else the first of the format; None where there is none."""
        found = self.sections.get(format, [])
        return next((section for section in found if section.key == key), found[0] if found else None)


class Board:
    """The store behind the board. Readers take `snapshot`; a new one replaces it whole when files come or change."""

    def __init__(self, store: str | Path | None, published: Sequence[Result] = ()) -> None:
        self._source = open_store(store) if store is not None else None
        self.store: Path | None = None
        self._published = [Entry(f"published/{number}", result) for number, result in enumerate(published)]
        self._read: dict[Path, tuple[tuple[int, int], Entry | str]] = {}
        self._units: dict[tuple[str, str, int], RunUnits] = {}
        self._lock, self._scanning = threading.Lock(), threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="read-answers")
        if self._source is not None:
            folder = self._source.folder()
            if not (folder / "results").is_dir():
                scan_store(folder)  # says what is wrong with it
        self.snapshot = self._scan()

    def refresh(self) -> Snapshot:
        """Look at the store again; sections whose files are the same are kept with what was computed for them."""
        with self._scanning:
            self.snapshot = self._scan()
        return self.snapshot

    def watch(self) -> None:
        """Refresh every few seconds, in a thread that ends with the process."""

        def loop() -> None:
            while True:
                self.prepare()
                time.sleep(RESCAN_SECONDS)
                try:
                    self.refresh()
                except (OSError, BadInput):  # the store is away for a moment: what was read stays on show
                    continue

        threading.Thread(target=loop, daemon=True, name="watch-store").start()

    def prepare(self) -> None:
        """Read the answers of all sections, so that the first reader does not wait for them."""
        for sections in self.snapshot.sections.values():
            for section in sections:
                self.outcomes(section)

    def outcomes(self, section: Section, patience: float | None = None) -> Loaded | None:
        """The aligned answers of a section (None where there are none), and its tree. Read once, then kept.

        None when reading them takes longer than `patience` seconds; it goes on meanwhile.
        """
        with self._lock:
            if section.loading is None:
                section.loading = self._pool.submit(self._load, section)
        try:
            return section.loading.result(timeout=patience)
        except TimeoutError:
            return None

    def outline(self, section: Section) -> Loaded:
        """What is known of a section without its answers."""
        return None, published_tree(section.format, [entry.result.breakdown for entry in section.entries])

    def _load(self, section: Section) -> Loaded:
        measured = [entry for entry in section.entries if entry.result.kind == "measured"]
        known = self.outline(section)
        if not measured or section.fingerprint is None or self.store is None:
            return known
        try:
            questions = read_questions(self.store / "questions" / f"{section.fingerprint}.parquet", section.fingerprint)
        except BadInput as error:
            section.notes.append(f"{error} Scores are shown as they were handed in; no finer answers are known.")
            return known
        runs: dict[str, RunUnits] = {}
        for entry in measured:
            try:
                layout = next(iter(runs.values())).layout if runs else None
                found = self._run(section, questions, entry, layout)
                if layout is not None and not layout.fits(found.layout.metric, found.layout.unit):
                    raise BadInput("it was scored on other units than the others.")
                runs[entry.key] = found
            except BadInput as error:
                section.notes.append(f"{entry.result.model.name}: {error} Its scores are shown as handed in.")
        tree = tree_of(section.format, questions)
        return (align(section.format, questions, runs) if runs else None), tree

    def _run(self, section: Section, questions: pd.DataFrame, entry: Entry, layout: Layout | None) -> RunUnits:
        path = entry.answers
        assert path is not None
        try:
            stamp = path.stat().st_mtime_ns
        except OSError:
            raise BadInput("its answers are not in the store.") from None
        place = (section.key, entry.key, stamp)
        if place not in self._units:
            self._units[place] = read_run(section.format, questions, path, layout)
        return self._units[place]

    def _scan(self) -> Snapshot:
        if self._source is not None:
            self.store = self._source.folder()
        entries, problems = self._entries()
        before = {}
        if hasattr(self, "snapshot"):
            before = {(s.format, s.key): s for found in self.snapshot.sections.values() for s in found}
        sections: dict[str, list[Section]] = {format: [] for format in FORMATS}
        for section in group(entries):
            if section.format not in sections:
                problems.append(f"{section.benchmark}: the format {section.format!r} is not one this board knows.")
                continue
            old = before.get((section.format, section.key))
            same = (
                old is not None
                and [e.key for e in old.entries] == [e.key for e in section.entries]
                and all(a.result is b.result for a, b in zip(old.entries, section.entries, strict=True))
            )
            sections[section.format].append(old if same and old is not None else section)
        stamp = f"{len(entries)}-{max((value[0][0] for value in self._read.values()), default=0)}-{len(problems)}"
        return Snapshot(stamp, sections, problems)

    def _entries(self) -> tuple[list[Entry], list[str]]:
        """All results, each file read once per change; one line per file that cannot be used."""
        found: list[Entry] = []
        problems: list[str] = []
        seen: dict[Path, tuple[tuple[int, int], Entry | str]] = {}
        paths = sorted((self.store / "results").glob("*/*/*/result.json")) if self.store is not None else []
        for path in paths:
            try:
                status = path.stat()
                stamp = (status.st_mtime_ns, status.st_size)
                if path in self._read and self._read[path][0] == stamp:
                    seen[path] = self._read[path]
                else:
                    seen[path] = (stamp, self._entry(path))
            except (BadInput, OSError, RecursionError) as error:
                seen[path] = ((0, 0), str(error))
            value = seen[path][1]
            problems.append(value) if isinstance(value, str) else found.append(value)
        self._read = seen
        return found + self._published, problems

    def _entry(self, path: Path) -> Entry:
        assert self.store is not None
        key = path.parent.relative_to(self.store / "results").as_posix()
        return Entry(key, StoredResult(read_result(path), path.parent, path.parent.name).result, path.parent)


def group(entries: Iterable[Entry]) -> list[Section]:
    """Sections from entries: one per benchmark, split and set of questions; the complete official set comes first."""
    sections: dict[tuple[str, str, str], Section] = {}
    for entry in entries:
        benchmark = entry.result.benchmark
        kind = kind_of(entry.result)
        known = benchmark.fingerprint[:12] if benchmark.fingerprint else None
        which = (
            "complete"
            if kind == "complete"
            else known or ("published" if entry.result.kind == "published" else entry.key)
        )
        key = (
            f"{benchmark.split}.{which}" if benchmark.name in FORMATS else f"{benchmark.name}.{benchmark.split}.{which}"
        )
        section = sections.get((benchmark.format, benchmark.name, key))
        if section is None:
            section = sections[(benchmark.format, benchmark.name, key)] = Section(
                key=key,
                format=benchmark.format,
                benchmark=benchmark.name,
                split=benchmark.split,
                kind=kind,
                questions=benchmark.questions,
                fingerprint=benchmark.fingerprint,
                entries=[],
                selection=benchmark.selection,
            )
        section.fingerprint = section.fingerprint or benchmark.fingerprint
        section.questions = max(section.questions, benchmark.questions)
        section.entries.append(entry)
    order = {"complete": 0, "sample": 1, "partial": 2, "custom": 3, "phantom": 4}
    return sorted(
        sections.values(),
        key=lambda s: (order[s.kind], s.split != DEFAULT_SPLIT.get(s.format), -len(s.entries), s.key),
    )


def kind_of(result: Result) -> str:
    """What a set of questions is. Only a released fingerprint, or a paper's own table, is the complete official set."""
    benchmark = result.benchmark
    if benchmark.name != benchmark.format:
        return "phantom" if benchmark.origin == "phantom" else "custom"
    released = schema.RELEASED_FINGERPRINTS.get((benchmark.format, benchmark.split))
    if benchmark.fingerprint is not None and benchmark.fingerprint == released:
        return "complete"
    if result.kind == "published" and benchmark.origin in (None, "official") and benchmark.selection is None:
        return "complete"
    if benchmark.origin == "phantom":
        return "phantom"
    # It carries the official name but not the released questions: some of them (a part, said by its selection), or a sample.
    return "partial" if benchmark.selection else "sample"
