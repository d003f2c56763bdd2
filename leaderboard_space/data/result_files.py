"""The result files of a store, each read once for every time that it changes.

Of a result that no verifier accepted, what it is is derived here from its answers, never read from its files: once for the same files, then
kept in the board's cache folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from eval_harness.answer_files.untrusted import iter_parquet_rows
from eval_harness.derive.run_files import RESULT_FILE, RUN_FILE, SubmittedFiles
from eval_harness.records.result import DERIVE_VERSION, Benchmark, read_result
from eval_harness.store.acceptance import ACCEPTANCE, WITHDRAWN, read_provenance
from eval_harness.store.dataset_lookup import Dataset, find_vouched_dataset
from eval_harness.store.examine import examine_in_sandbox
from leaderboard_space.data.ranks.standings import prepare_result
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.html import visible


def cache_folder() -> Path:
    """Folder of the results derived here: below the user's cache folder (XDG_CACHE_HOME), or the one that MEDPROBE_BOARD_CACHE names."""
    named = os.environ.get("MEDPROBE_BOARD_CACHE")
    home = os.environ.get("XDG_CACHE_HOME")
    board = Path(named) if named else (Path(home) if home else Path.home() / ".cache") / "medprobe" / "board"
    return board / "unverified"


def derive_unverified(store: Path, folder: Path, trusted: Sequence[str]) -> Path:
    """The folder that holds a result's answers as they were written anew, and what was derived from them, under the names that a store
    has. `trusted`: datasets that the board's owner named. Raises BadInput if its questions cannot be had, or its files are wrong."""
    if not (folder / RUN_FILE).is_file():
        raise BadInput(f"{folder / RESULT_FILE}: was not verified, and holds no run whose scores could be derived.")
    sent = SubmittedFiles.from_folder(folder)
    parts = [str(DERIVE_VERSION), *(hashlib.sha256(each or b"").hexdigest() for each in sent)]
    target = cache_folder() / hashlib.sha256("".join(parts).encode()).hexdigest()
    if not (target / RESULT_FILE).is_file():
        try:
            found = examine_in_sandbox(sent, partial(_dataset, store, tuple(trusted)))
        except BadInput as error:
            raise BadInput(f"{folder / RUN_FILE}: was not verified, and cannot be: {error}") from None
        if found.problems:
            raise BadInput(f"{folder / RUN_FILE}: was not verified, and is refused: {found.problems[0]}")
        target.mkdir(parents=True, exist_ok=True)
        for name, content in (found.sent.content_by_name() | dict(found.derived)).items():  # result.json last
            replace_file(target / name, content)
    return target


def _dataset(store: Path, trusted: Sequence[str], benchmark: Benchmark) -> Dataset:
    """The questions of the store or of a trusted dataset; nothing is fetched for an untrusted one."""
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
"""When a file was changed last (nanoseconds), and its size; None where there is none."""


class ResultFiles:
    """Contents of a store's files, or the problem with each."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[tuple[object, ...], Entry | str]] = {}

    def read(self, store: Path, trusted: Sequence[str] = ()) -> tuple[list[Entry], list[str]]:
        """All results, and one line per file that cannot be used. An entry whose files are unchanged is the same object as before.
        `trusted`: datasets that the board's owner named."""
        seen: dict[Path, tuple[tuple[object, ...], Entry | str]] = {}
        folders = {
            path.parent for name in (RESULT_FILE, RUN_FILE) for path in (store / "results").glob(f"*/*/*/{name}")
        }
        for folder in sorted(folders):
            path = folder / RESULT_FILE if (folder / RESULT_FILE).exists() else folder / RUN_FILE
            try:
                status = path.stat()
                # What the store says of a result lies beside it; notes are new files, which the folder's own time tells.
                beside = (file_state(path.parent / name) for name in (ACCEPTANCE, WITHDRAWN))
                stamp = (status.st_mtime_ns, status.st_size, path.parent.stat().st_mtime_ns, *beside)
                if path in self._seen and self._seen[path][0] == stamp:
                    seen[path] = self._seen[path]
                else:
                    seen[path] = (stamp, _read_entry(store, folder, trusted))
            except (BadInput, OSError, RecursionError) as error:
                # Readers see the path in the store, not where the store lies.
                seen[path] = ((0, 0), str(error).replace(f"{store}{os.sep}", ""))
        self._seen = seen
        found = [value for _, value in self._seen.values()]
        return [one for one in found if isinstance(one, Entry)], [one for one in found if isinstance(one, str)]


UNVERIFIED_NOTE = "not verified by the store's owner; its numbers were derived by this board"
OUTDATED_NOTE = "its numbers were derived by another version of medprobe; `medprobe rescore` derives them again"


def _read_entry(store: Path, folder: Path, trusted: Sequence[str]) -> Entry:
    """A result as the board shows it: as its verifier derived it, or as it is derived here where there was none."""
    provenance = read_provenance(folder)
    is_verified = provenance.acceptance is not None or not _is_measured(folder)
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


def _is_measured(folder: Path) -> bool:
    """True if a folder holds answers, or says so; an aggregate has none."""
    if (folder / RUN_FILE).exists():
        return True
    return read_result(folder / RESULT_FILE).kind == "measured"


def file_state(path: Path | None) -> FileState:
    """The stamp of a file as it is now."""
    try:
        status = path.stat() if path is not None else None
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if status is not None else None
