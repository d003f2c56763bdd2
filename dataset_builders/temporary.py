"""Temporary folders that vanish: at the end, after an error, and after a kill, when the next process makes one of the same name.

A folder belongs to the process that holds the lock beside it; the system gives the lock back when that process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

OLD_SECONDS = 86_400.0
"""A folder without a lock was made before there were locks; it is taken for abandoned when nothing changed in it for a day."""


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A fresh folder `parent/PREFIX` + 8 characters, removed at the end unless it was moved away; those of processes that were killed
    are removed first.

    Raises OSError where `parent` cannot be written.
    """
    remove_abandoned(parent, prefix)
    folder = parent / f"{prefix}{secrets.token_hex(4)}"
    with FileLock(_lock_of(folder)):
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            _lock_of(folder).unlink(missing_ok=True)


def remove_abandoned(parent: Path, prefix: str) -> list[Path]:
    """Remove the temporary folders of this prefix that no living process holds; returns them. What cannot be removed stays."""
    ours = re.compile(re.escape(prefix) + r"([a-z0-9_]{8}|[0-9a-f]{32})")
    removed = []
    with contextlib.suppress(OSError):
        for lock in list(parent.iterdir()):
            # A kill between making the lock and the folder leaves the lock alone.
            folder = lock.with_name(lock.name.removesuffix(".lock"))
            if not ours.fullmatch(folder.name) or (lock == folder and _lock_of(folder).exists()):
                continue
            if lock == folder and (not folder.is_dir() or time.time() - folder.stat().st_mtime < OLD_SECONDS):
                continue
            with contextlib.suppress(OSError, RuntimeError, Timeout), FileLock(_lock_of(folder), timeout=0):
                shutil.rmtree(folder, ignore_errors=True)
                _lock_of(folder).unlink(missing_ok=True)
                removed.append(folder)
    return removed


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")
