"""Write files, folders and journals safely when processes run in parallel or are killed.

Files are replaced atomically, tasks in a folder are locked, and temporary folders are removed when
the process ends. Those of a killed process are removed the next time one with the same name is
created.

A journal has one JSON object per line and is only appended to; each line is flushed as it is
written. A killed process loses at most the line it was writing. A journal has one writer at a time,
which must hold a lock.
"""

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from dataset_builders.errors import BadInput

TEMP_SUFFIX = ".part"
"""Suffix of an unfinished file. Its name also starts with a dot, so that listings ignore it."""

DISK_ERRNOS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
)
"""errno values for disk-full, permission and I/O errors, which no retry fixes."""


def replace_file(path: Path, write: Callable[[Path], object] | bytes) -> None:
    """Replace a file atomically: readers see the old content or the new, never a mixture.

    The content goes to a sibling file, is flushed to disk, and is renamed. Several threads may
    replace the same file.

    Args:
        path: the file to create or replace.
        write: the new content, or a function that writes it to the path it is given.

    Raises:
        OSError: the folder is not writable.
    """
    # A sibling is on the same file system, so `replace` is atomic; a random part keeps writers
    # apart, also those of other machines.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMP_SUFFIX}")
    try:
        if path.is_file():  # keep the mode: a private file must not become readable by others
            temporary.touch()
            temporary.chmod(path.stat().st_mode & 0o777)
        if isinstance(write, bytes):
            temporary.write_bytes(write)
        else:
            write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, document: Any, **options: Any) -> None:
    """Replace a JSON file; equal documents give equal bytes.

    Args:
        path: the file to create or replace.
        document: any JSON-serialisable object.
        options: arguments of `json.dumps` that override `indent=1, ensure_ascii=False`.
    """
    text = json.dumps(document, **{"indent": 1, "ensure_ascii": False} | options)
    replace_file(path, (text + "\n").encode("utf-8"))


@contextmanager
def lock_folder(folder: Path, task: str) -> Iterator[None]:
    """Let one process at a time do a task (embed, search, write ...) in a folder.

    The folder is created if it does not exist. The lock is released when the process ends, even if
    it is killed.

    Args:
        folder: the folder to lock.
        task: name of the task; each task has its own lock.

    Raises:
        BadInput: another process holds the lock, or `folder` is a file.
    """
    if folder.is_file():
        raise BadInput(f"{folder}: is a file. Give a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        acquired = FileLock(folder / f".{task}.lock").acquire(timeout=0)
    except Timeout:
        raise BadInput(
            f"{folder}: another process is working on it ({task}). Wait until it is done, or stop it."
        ) from None

    with acquired:
        yield


def remove_temp_files(folder: Path) -> None:
    """Remove the unfinished files of killed processes; the caller must hold the folder's lock."""
    for temporary in folder.glob(f".*{TEMP_SUFFIX}"):
        temporary.unlink(missing_ok=True)


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Create a folder that is removed at the end, unless it was moved away.

    Folders that killed processes left behind are removed first. A lock file beside the folder marks
    it as in use; the operating system releases the lock when the process ends for any reason.

    Args:
        parent: where the folder is created.
        prefix: start of its name; eight hexadecimal digits follow.

    Yields:
        Path of the new folder.

    Raises:
        OSError: `parent` is not writable.
    """
    remove_abandoned_folders(parent, prefix)
    folder = parent / f"{prefix}{secrets.token_hex(4)}"
    try:
        # The name is new, so no other process holds the lock. The timeout is for places such as
        # /proc, where no file can be created and FileLock would retry forever.
        acquired = FileLock(_lock_path(folder)).acquire(timeout=5)
    except Timeout:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(parent)) from None

    with acquired:
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            _lock_path(folder).unlink(missing_ok=True)


def remove_abandoned_folders(parent: Path, prefix: str) -> None:
    """Remove temporary folders that no running process holds; skip those that cannot be removed.

    Args:
        parent: the folder to search.
        prefix: start of the folders' names, as in `temporary_folder`.
    """
    temporary_name = re.compile(re.escape(prefix) + r"[0-9a-f]{8}")

    # Best effort: a folder that cannot be listed or removed must not stop the caller.
    with contextlib.suppress(OSError):
        for path in list(parent.iterdir()):
            # The lock file is created first and deleted last, so a killed process may leave a lock
            # without a folder but never a folder without a lock.
            folder = path.with_name(path.name.removesuffix(".lock"))
            if path == folder or not temporary_name.fullmatch(folder.name):
                continue
            with (
                contextlib.suppress(OSError, RuntimeError, Timeout),
                FileLock(_lock_path(folder), timeout=0),
            ):
                shutil.rmtree(folder, ignore_errors=True)
                _lock_path(folder).unlink(missing_ok=True)


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


JournalEntry = dict[str, Any]
DEFAULT_EXPECTATION = "an entry of this journal. Delete the line, or restore the file from a backup"


def read_journal(
    path: Path, check: Callable[[JournalEntry], object] = bool, expected: str = DEFAULT_EXPECTATION
) -> list[JournalEntry]:
    """Read the entries of a journal without changing it; another process may be writing to it.

    A torn last line, left by a killed writer, is ignored.

    Args:
        path: the journal; a missing file has no entries.
        check: raises KeyError, TypeError, AttributeError or ValueError if an entry is invalid.
        expected: what a line should be, for the error message.

    Raises:
        BadInput: names a line that is not a valid entry.
    """
    return _read_entries(path, check, expected)[0]


class Journal(contextlib.AbstractContextManager["Journal"]):
    """A journal open for appending; a torn last line is removed first. Use as a context manager.

    `entries` are those it already had. Raises BadInput as `read_journal` does.
    """

    def __init__(
        self,
        path: Path,
        check: Callable[[JournalEntry], object] = bool,
        expected: str = DEFAULT_EXPECTATION,
    ) -> None:
        self.entries, valid_bytes = _read_entries(path, check, expected)
        self._file = path.open("ab")

        # Without this, the next entry would be appended to the torn line and both would be lost.
        self._file.truncate(valid_bytes)

    def append(self, entry: JournalEntry) -> None:
        """Write one entry and flush it to the operating system."""
        self._file.write(encode_entry(entry))
        self._file.flush()

    def sync(self) -> None:
        """Flush everything written to the disk."""
        os.fsync(self._file.fileno())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.sync()
        finally:
            self._file.close()


def encode_entry(entry: JournalEntry) -> bytes:
    """Encode an entry as a line of ASCII, so that no character can be mistaken for a line break."""
    return json.dumps(entry).encode() + b"\n"


def _read_entries(path: Path, check: Callable[[JournalEntry], object], expected: str) -> tuple[list[JournalEntry], int]:
    """Return the entries, and the offset in bytes of the end of the last complete line."""
    try:
        lines = path.read_bytes().split(b"\n")  # not splitlines(): text may contain other line separators
    except FileNotFoundError:
        return [], 0

    entries, valid_bytes = [], 0
    for number, line in enumerate(lines[:-1], 1):  # the part after the last line feed is incomplete
        try:
            entry = json.loads(line) if line.strip() else None
            if entry is not None:
                if not isinstance(entry, dict):
                    raise TypeError
                check(entry)
                entries.append(entry)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadInput(f"{path}, line {number}: not {expected}.") from None
        valid_bytes += len(line) + 1

    return entries, valid_bytes
