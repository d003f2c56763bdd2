"""Files and folders as several processes and killed ones may leave them: written whole or not at all, one writer at a time; temporary
folders that vanish at the end, after an error, and after a kill, when the next process makes one of the same name.

See also: the append-only journal of a run (`eval_harness/runs/run_folder.py`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dataset_builders.errors import BadInput

TEMP_SUFFIX = ".part"
"""How the name of an unfinished file ends; it starts with a dot, so that no listing takes it for a result."""

DISK_ERRNOS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
)
"""Numbers of an OSError that says of a disk or its rights what no program can help."""


def replace_file(path: Path, write: Callable[[Path], object] | bytes) -> None:
    """Write `path` through a sibling that is flushed to the disk and then renamed: a reader sees the old file or the new one, never half.

    `write` gets the sibling's path, or is the content; threads may write the same file. Raises OSError where the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{threading.get_native_id()}{TEMP_SUFFIX}")
    try:
        if path.is_file():  # the new file has the same readers as the old one
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
    """Replace a JSON file, the same bytes for the same document. `options`: of `json.dumps`, in place of `indent=1, ensure_ascii=False`."""
    text = json.dumps(document, **{"indent": 1, "ensure_ascii": False} | options)
    replace_file(path, (text + "\n").encode("utf-8"))


@contextmanager
def lock_folder(folder: Path, task: str) -> Iterator[None]:
    """Keep other processes out of one task in a folder (embed, search, write ...), which is made where absent.

    Raises BadInput if another process holds the lock, or a file lies there. A killed process holds none.
    """
    if folder.is_file():
        raise BadInput(f"{folder}: is a file. Give a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(folder / f".{task}.lock").acquire(timeout=0)
    except Timeout:
        raise BadInput(
            f"{folder}: another process is working on it ({task}). Wait until it is done, or stop it."
        ) from None
    with held:
        yield


def remove_temp_files(folder: Path) -> None:
    """Remove the unfinished files that killed processes left in a folder. Only a process that holds the folder's `lock_folder` may."""
    for temporary in folder.glob(f".*{TEMP_SUFFIX}"):
        temporary.unlink(missing_ok=True)


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A fresh folder `parent/PREFIX` + 8 characters, removed at the end unless it was moved away; those of processes that were killed
    are removed first. It belongs to the process that holds the lock beside it; the system gives the lock back when that process ends,
    however it ends.

    Raises OSError where `parent` cannot be written.
    """
    remove_abandoned_folders(parent, prefix)
    folder = parent / f"{prefix}{secrets.token_hex(4)}"
    try:
        # The name is new, so that no other process holds it: where no file can be made, as in /proc, FileLock would try for ever.
        held = FileLock(_lock_path(folder)).acquire(timeout=5)
    except Timeout:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(parent)) from None
    with held:
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            _lock_path(folder).unlink(missing_ok=True)


def remove_abandoned_folders(parent: Path, prefix: str) -> list[Path]:
    """Remove the temporary folders of this prefix that no living process holds; returns them. What cannot be removed stays."""
    ours = re.compile(re.escape(prefix) + r"[0-9a-f]{8}")
    removed = []
    with contextlib.suppress(OSError):
        for path in list(parent.iterdir()):
            # The lock is made first and goes last: a kill in between leaves it alone, and never the folder.
            folder = path.with_name(path.name.removesuffix(".lock"))
            if path == folder or not ours.fullmatch(folder.name):
                continue
            with contextlib.suppress(OSError, RuntimeError, Timeout), FileLock(_lock_path(folder), timeout=0):
                shutil.rmtree(folder, ignore_errors=True)
                _lock_path(folder).unlink(missing_ok=True)
                removed.append(folder)
    return removed


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")
