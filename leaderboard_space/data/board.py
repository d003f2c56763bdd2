"""The results store behind the board, read into sections and reloaded when it changes; and the
datasets that its owner trusts, which accept submissions and retire results on earlier versions.

A result file is read again only after it changed. Results that no verifier accepted are never read
as submitted: the board derives them from their answers, once per content, and keeps them in its
cache folder.

See also: what a section is (`sections.py`), scoring selections (`outcomes.py`), drawing
(`views/`).
"""

import hashlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd

from dataset_builders.benchmarks import FORMATS
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.hub.repository import Repository, open_repository
from eval_harness.answer_files.untrusted import iter_parquet_rows
from eval_harness.derive.run_files import RESULT_FILE, RUN_FILE, SubmittedFiles
from eval_harness.records.result import DERIVE_VERSION, Benchmark, Result, read_result
from eval_harness.records.selection import Selection
from eval_harness.store.contents import ACCEPTANCE, WITHDRAWN, StoreReader, read_provenance, scan_store
from eval_harness.store.dataset_lookup import Dataset, find_vouched_dataset
from eval_harness.store.examine import examine_in_sandbox
from leaderboard_space.data.cache import READING, cached, keep
from leaderboard_space.data.outcomes import Outcomes, read_outcomes, read_questions
from leaderboard_space.data.sections import Entry, Section, Snapshot, group_entries
from leaderboard_space.data.standings import prepare_result, section_sights
from leaderboard_space.data.tree import Tree, build_published_tree, build_tree
from leaderboard_space.html import visible


def cache_folder() -> Path:
    """Return the folder of the results derived by the board.

    It is in MEDPROBE_BOARD_CACHE if set, else in XDG_CACHE_HOME or `~/.cache`.
    """
    configured = os.environ.get("MEDPROBE_BOARD_CACHE")
    home = os.environ.get("XDG_CACHE_HOME")
    board = Path(configured) if configured else (Path(home) if home else Path.home() / ".cache") / "medprobe" / "board"
    return board / "unverified"


def derive_unverified(store: Path, folder: Path, trusted: Sequence[str]) -> Path:
    """Derive an unverified result from its answers, unless the same files were derived before.

    Args:
        store: The store's folder.
        folder: The result's folder.
        trusted: Names of the datasets that the board's owner trusts.

    Returns:
        A folder with the rewritten answers and everything derived from them, under a store's file
        names.

    Raises:
        BadInput: If the questions are unavailable or the files are invalid.
    """
    if not (folder / RUN_FILE).is_file():
        raise BadInput(
            f"{folder / RESULT_FILE}: has not been verified, and contains no run from which scores could be derived."
        )
    sent = SubmittedFiles.from_folder(folder)
    # The version is part of the key, so that a new derivation does not reuse old results.
    parts = [str(DERIVE_VERSION), *(hashlib.sha256(content or b"").hexdigest() for content in sent)]
    target = cache_folder() / hashlib.sha256("".join(parts).encode()).hexdigest()
    # result.json is written last, so its presence means that the folder is complete.
    if not (target / RESULT_FILE).is_file():
        try:
            examination = examine_in_sandbox(sent, partial(_dataset, store, tuple(trusted)))
        except BadInput as error:
            raise BadInput(f"{folder / RUN_FILE}: has not been verified, and cannot be derived here: {error}") from None
        if examination.problems:
            raise BadInput(f"{folder / RUN_FILE}: has not been verified, and was refused: {examination.problems[0]}")
        target.mkdir(parents=True, exist_ok=True)
        for name, content in (
            examination.sent.content_by_name() | dict(examination.derived)
        ).items():  # result.json last
            replace_file(target / name, content)
    return target


def _dataset(store: Path, trusted: Sequence[str], benchmark: Benchmark) -> Dataset:
    """Load the questions from the store or a trusted dataset; an untrusted one is not
    downloaded.
    """
    path = store / "questions" / f"{benchmark.fingerprint}.parquet"
    if path.is_file():
        questions = pd.DataFrame(list(iter_parquet_rows(path)))
        return Dataset(
            benchmark.name, benchmark.split, benchmark.family, questions, benchmark.origin, None, is_vouched=True
        )
    dataset = find_vouched_dataset(benchmark, trusted)
    if dataset is None:
        raise BadInput("its questions are neither in the store nor in a dataset that the board's owner named")
    return dataset


FileState = tuple[int, int] | None
"""(modification time in nanoseconds, size in bytes); None if the file does not exist."""

UNVERIFIED_NOTE = "not verified by the store's owner; its numbers were derived by this board"
OUTDATED_NOTE = "its numbers were derived by another version of medprobe; `medprobe rescore` derives them again"


def _read_entry(store: Path, folder: Path, trusted: Sequence[str]) -> Entry:
    """Read a result as its verifier derived it, or derive it here if it was not verified."""
    provenance = read_provenance(folder)
    # Aggregates have no answers, and nothing to verify.
    is_measured = (folder / RUN_FILE).exists() or read_result(folder / RESULT_FILE).kind == "measured"
    is_verified = provenance.acceptance is not None or not is_measured
    derived = folder if is_verified else derive_unverified(store, folder, trusted)
    result, notes = read_result(derived / RESULT_FILE), list[str]()
    if not visible(result.model.name).strip():
        raise BadInput(f"{folder / RESULT_FILE}: its model has no name.")
    if not is_verified:
        notes = [*notes, UNVERIFIED_NOTE]
    if result.kind == "measured" and result.derive_version != DERIVE_VERSION:
        notes = [*notes, OUTDATED_NOTE]
    key = folder.relative_to(store / "results").as_posix()
    return Entry(key, prepare_result(result), folder, tuple(notes), provenance, derived=derived)


def file_state(path: Path | None) -> FileState:
    """Return the current state of a file."""
    try:
        status = path.stat() if path is not None else None
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if status is not None else None


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


Answers = tuple[Outcomes | None, Tree]

RESCAN_SECONDS = 5.0
"""Seconds between checks of the store for new files."""


class Board:
    """The results store behind the board.

    Readers use `snapshot`, which is replaced atomically when files are added or change.
    """

    def __init__(
        self, store: str | Path | None, published: Sequence[Result] = (), trusted: TrustedData | None = None
    ) -> None:
        self.trusted = trusted or TrustedData()
        self._source = StoreReader(store) if store is not None else None
        self.store: Path | None = None
        self._published = [
            Entry(f"published/{number}", prepare_result(result)) for number, result in enumerate(published)
        ]
        self._seen: dict[Path, tuple[tuple[object, ...], Entry | str]] = {}
        """Result file -> states of the files beside it, and its entry or the problem with it."""
        self._scanning = threading.Lock()
        self.snapshot = Snapshot("", {}, ())
        if self._source is not None:
            folder = self._source.folder()
            if not self._source.is_on_hub and not (folder / "results").is_dir():
                scan_store(folder)  # reports problems; a new Hub repository may still be empty
        self.snapshot = self._scan()

    def refresh(self) -> Snapshot:
        """Rescan the store and read new files. Unchanged sections keep their cached results.

        Returns:
            The current snapshot; the same object if nothing changed.

        Raises:
            OSError: If the store is unavailable. The last snapshot stays in use.
        """
        with self._scanning:
            snapshot = self._scan()
            self.prepare(snapshot)
            # Publish first, then drop: no request may find neither the old results nor the new
            # section.
            if snapshot.stamp != self.snapshot.stamp:
                self.snapshot = snapshot
                keep({snapshot, *snapshot.all_sections})
        return self.snapshot

    def watch(self) -> None:
        """Start a daemon thread that reads all answers, then refreshes every RESCAN_SECONDS."""

        def loop() -> None:
            self.prepare(self.snapshot)
            while True:
                time.sleep(RESCAN_SECONDS)
                try:
                    self.trusted.refresh()
                    self.refresh()
                except (OSError, BadInput):  # the store is temporarily unavailable: keep showing the last snapshot
                    continue

        threading.Thread(target=loop, daemon=True, name="watch-store").start()

    def prepare(self, snapshot: Snapshot) -> None:
        """Read the answers of all sections in advance, so that no visitor waits for them."""
        # Also marks the answers as recently used, so that the cache never evicts those of a current
        # section.
        for section in snapshot.all_sections:
            self.outcomes(section)
            section_sights(section)

    def outcomes(self, section: Section) -> Answers:
        """Return the aligned answers of a section and its tree, cached.

        Returns:
            The answers, None if there are none; and the tree of the section's labels.
        """
        return self._answers(section)[0]

    def notes(self, section: Section) -> tuple[str, ...]:
        """Return one line for each file of a section that could not be read."""
        return self._answers(section)[1]

    @cached(READING)
    def _answers(self, section: Section) -> tuple[Answers, tuple[str, ...]]:
        nothing = None, build_published_tree(section.family, [entry.result.breakdown for entry in section.entries])
        measured = {entry.key: entry for entry in section.entries if entry.result.kind == "measured"}
        if not measured or section.fingerprint is None or self.store is None:
            return nothing, ()
        try:
            questions = self.questions(section.fingerprint)
        except BadInput as error:
            return nothing, (f"{error} Scores are shown as stored, since the questions are not known.",)
        official = {key for key, entry in measured.items() if entry.result.method.extraction == "official"}
        paths = {key: entry.units for key, entry in measured.items() if entry.units is not None}
        outcomes, problems = read_outcomes(section.family, questions, paths, official)
        notes = (
            f"{measured[key].result.model.name}: {problem} Its scores are shown as stored."
            for key, problem in problems.items()
        )
        return (outcomes, build_tree(section.family, questions)), tuple(notes)

    def questions(self, fingerprint: str) -> pd.DataFrame:
        """Read the questions with a fingerprint from the store, or else from a trusted dataset.

        Raises BadInput if neither has them.
        """
        path = self.questions_path(fingerprint)
        assert path is not None
        if not path.is_file():
            for split in self.trusted.splits:
                if split.benchmark.fingerprint == fingerprint:
                    return split.repository.questions(split.benchmark.split)
        return read_questions(path, fingerprint)

    def questions_path(self, fingerprint: str | None) -> Path | None:
        """Return the path of the store's questions file; None without a store or a fingerprint."""
        return self.store / "questions" / f"{fingerprint}.parquet" if self.store and fingerprint else None

    def _scan(self) -> Snapshot:
        if self._source is not None:
            self.store = self._source.folder()
            # A store that was readable before is unavailable, not empty: keep the last snapshot.
            if self.snapshot.stamp and not self._source.is_on_hub and not (self.store / "results").is_dir():
                raise FileNotFoundError("the results store is unavailable")
        stored, problems = self._read_results(self.store) if self.store is not None else ([], [])
        # Keep the object of an unchanged section: cached results are found by it.
        known_sections = {
            (section.family, section.key, section.stamp): section for section in self.snapshot.all_sections
        }
        sections: dict[str, list[Section]] = {family: [] for family in FORMATS}
        for section in group_entries([*stored, *self._published], self.trusted.is_replaced):
            if section.family in sections:
                section = replace(section, stamp=self._stamp(section))
                sections[section.family].append(
                    known_sections.get((section.family, section.key, section.stamp), section)
                )
            else:
                problems.append(f"{section.benchmark}: unknown benchmark format {section.family!r}.")
        stamps = [(section.family, section.key, section.stamp) for group in sections.values() for section in group]
        return Snapshot(
            _digest(stamps, problems), {family: tuple(group) for family, group in sections.items()}, tuple(problems)
        )

    def _read_results(self, store: Path) -> tuple[list[Entry], list[str]]:
        """Read all results of the store.

        Returns:
            The entries, the same objects as before if their files are unchanged; and one line per
            unusable file.
        """
        seen: dict[Path, tuple[tuple[object, ...], Entry | str]] = {}
        folders = {
            path.parent for name in (RESULT_FILE, RUN_FILE) for path in (store / "results").glob(f"*/*/*/{name}")
        }
        for folder in sorted(folders):
            path = folder / RESULT_FILE if (folder / RESULT_FILE).exists() else folder / RUN_FILE
            try:
                # Acceptance and withdrawal are files beside the result; a file that is added or
                # replaced changes the folder's own time.
                states = map(file_state, (path, folder / ACCEPTANCE, folder / WITHDRAWN))
                stamp = (folder.stat().st_mtime_ns, *states)
                if path in self._seen and self._seen[path][0] == stamp:
                    seen[path] = self._seen[path]
                else:
                    seen[path] = (stamp, _read_entry(store, folder, self.trusted.names))
            except (BadInput, OSError, RecursionError) as error:
                # Visitors see paths within the store, not the store's location.
                seen[path] = ((0, 0), str(error).replace(f"{store}{os.sep}", ""))
        self._seen = seen
        contents = [value for _, value in seen.values()]
        return [entry for entry in contents if isinstance(entry, Entry)], [
            problem for problem in contents if isinstance(problem, str)
        ]

    def _stamp(self, section: Section) -> str:
        """Digest of a section's kind, its files' states, and the source of its questions."""
        files = [
            (
                entry.key,
                entry.provenance,
                entry.derived,
                file_state(entry.folder and entry.folder / RESULT_FILE),
                file_state(entry.units),
            )
            for entry in (*section.entries, *section.arms)
        ]
        trusted = any(split.benchmark.fingerprint == section.fingerprint for split in self.trusted.splits)
        return _digest(section.kind, files, file_state(self.questions_path(section.fingerprint)), trusted)


def _digest(*content: object) -> str:
    return hashlib.sha256(repr(content).encode("utf-8", "replace")).hexdigest()[:16]
