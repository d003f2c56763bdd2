"""Append-only journals: JSON objects, one per line, each flushed as it is written, so that a killed process loses at most the line it
was writing. See also: files that are replaced whole, and locks (`files.py`); a journal has one writer at a time, who holds a lock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from dataset_builders.errors import BadInput

JournalEntry = dict[str, Any]
DEFAULT_EXPECTATION = "an entry of this journal. Take the line out, or restore the file from a copy"


def read_journal(
    path: Path, check: Callable[[JournalEntry], object] = bool, expected: str = DEFAULT_EXPECTATION
) -> list[JournalEntry]:
    """The entries of a journal; none where there is no file. Reading changes nothing: another process may be writing.

    A torn last line (its writer was killed) is left out. `check` raises KeyError, TypeError, AttributeError or ValueError for what is no
    entry. Raises BadInput naming any other line that is none, with what was `expected`.
    """
    return _read_entries(path, check, expected)[0]


class Journal:
    """A journal open for appending; a torn last line is dropped first. Use as a context manager.

    `entries` is what it held. Raises BadInput as `read_journal` does.
    """

    def __init__(
        self, path: Path, check: Callable[[JournalEntry], object] = bool, expected: str = DEFAULT_EXPECTATION
    ) -> None:
        self.entries, whole = _read_entries(path, check, expected)
        self._file = path.open("ab")
        self._file.truncate(whole)

    def append(self, entry: JournalEntry) -> None:
        """Write one entry and hand it to the operating system."""
        self._file.write(encode_entry(entry))
        self._file.flush()

    def sync(self) -> None:
        """Force what was written to the disk."""
        os.fsync(self._file.fileno())

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.sync()
        finally:
            self._file.close()


def encode_entry(entry: JournalEntry) -> bytes:
    """An entry as it stands in the file: ASCII, so that no sign in a text can be taken for the end of a line, or fail to be written."""
    return json.dumps(entry).encode() + b"\n"


def _read_entries(path: Path, check: Callable[[JournalEntry], object], expected: str) -> tuple[list[JournalEntry], int]:
    """The entries, and the number of bytes up to the end of the last whole line."""
    try:
        lines = path.read_bytes().split(b"\n")  # at line feeds only: a text may hold other signs that end a line
    except FileNotFoundError:
        return [], 0
    entries, whole = [], 0
    for number, line in enumerate(lines[:-1], 1):  # what follows the last line feed was torn
        try:
            entry = json.loads(line) if line.strip() else None
            if entry is not None:
                if not isinstance(entry, dict):
                    raise TypeError
                check(entry)
                entries.append(entry)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadInput(f"{path}, line {number}: not {expected}.") from None
        whole += len(line) + 1
    return entries, whole
