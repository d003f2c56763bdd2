"""Read the result files of a store, each again only after it changed.

Results that no verifier accepted are never read as submitted: the board derives them from their
answers, once per content, and keeps them in its cache folder.
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
from eval_harness.store.contents import ACCEPTANCE, WITHDRAWN, read_provenance
from eval_harness.store.dataset_lookup import Dataset, find_vouched_dataset
from eval_harness.store.examine import examine_in_sandbox
from leaderboard_space.data.ranks.standings import prepare_result
from leaderboard_space.data.store.sections import Entry
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


class ResultFiles:
    """Reads a store's files: each becomes an entry, or a line on the problem with it."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[tuple[object, ...], Entry | str]] = {}

    def read(self, store: Path, trusted: Sequence[str] = ()) -> tuple[list[Entry], list[str]]:
        """Read all results of a store.

        Args:
            store: The store's folder.
            trusted: Names of the datasets that the board's owner trusts.

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
                status = path.stat()
                # Acceptance and withdrawal are files beside the result; new notes change the
                # folder's own time.
                acceptance_states = (file_state(path.parent / name) for name in (ACCEPTANCE, WITHDRAWN))
                stamp = (status.st_mtime_ns, status.st_size, path.parent.stat().st_mtime_ns, *acceptance_states)
                if path in self._seen and self._seen[path][0] == stamp:
                    seen[path] = self._seen[path]
                else:
                    seen[path] = (stamp, _read_entry(store, folder, trusted))
            except (BadInput, OSError, RecursionError) as error:
                # Visitors see paths within the store, not the store's location.
                seen[path] = ((0, 0), str(error).replace(f"{store}{os.sep}", ""))
        self._seen = seen
        contents = [value for _, value in self._seen.values()]
        return [entry for entry in contents if isinstance(entry, Entry)], [
            problem for problem in contents if isinstance(problem, str)
        ]


UNVERIFIED_NOTE = "not verified by the store's owner; its numbers were derived by this board"
OUTDATED_NOTE = "its numbers were derived by another version of medprobe; `medprobe rescore` derives them again"


def _read_entry(store: Path, folder: Path, trusted: Sequence[str]) -> Entry:
    """Read a result as its verifier derived it, or derive it here if it was not verified."""
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
    """Return True if a folder has answers or a measured result; aggregates have neither."""
    if (folder / RUN_FILE).exists():
        return True
    return read_result(folder / RESULT_FILE).kind == "measured"


def file_state(path: Path | None) -> FileState:
    """Return the current state of a file."""
    try:
        status = path.stat() if path is not None else None
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if status is not None else None
