"""Keep checked result files and derived answers on disk, so that the board starts sooner.

Nothing here is a source: any file may be deleted, one that cannot be read is made again.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

VERSION = 1
"""Counts up where what is kept is made in another way."""
KEEP_DAYS = 30
"""A file that was not requested in so many days is deleted."""


def folder() -> Path:
    """Where the files lie: under the user's cache folder (XDG_CACHE_HOME), or the folder named by MEDPROBE_BOARD_CACHE."""
    named = os.environ.get("MEDPROBE_BOARD_CACHE")
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(named) if named else (Path(home) if home else Path.home() / ".cache") / "medprobe" / "board"


def key_of(kind: str, content: bytes) -> str:
    """The name of what is kept of a file: a digest over its bytes. `kind`: of what is kept."""
    return hashlib.sha256(f"{VERSION}:{kind}:".encode() + content).hexdigest()


def load_text(key: str) -> str | None:
    """What `save_text` kept; None where nothing is."""
    try:
        os.utime(folder() / f"{key}.json")
        return (folder() / f"{key}.json").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def save_text(key: str, text: str) -> None:
    """Keep a text."""
    _replace(f"{key}.json", lambda part: part.write(text.encode()))


def is_noted(key: str) -> bool:
    """True if `note` was called for this key: something that costs time was found to hold of the bytes it is made of."""
    try:
        os.utime(folder() / f"{key}.noted")
    except OSError:
        return False
    return True


def note(key: str) -> None:
    """Write down that it holds; where nothing can be written, nothing is."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        (folder() / f"{key}.noted").touch()
    except OSError:
        return


def _replace(name: str, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file whole or not at all; where nothing can be written, nothing is kept."""
    target = folder() / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".part", delete=False) as part:
            write(part)
        Path(part.name).replace(target)
    except OSError:
        return


def prune() -> None:
    """Delete what has long not been asked for."""
    oldest = time.time() - KEEP_DAYS * 86_400
    try:
        for path in folder().iterdir():
            if path.suffix in (".noted", ".json", ".part") and path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)
    except OSError:
        return
