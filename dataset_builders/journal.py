"""Keep append-only journals: one JSON object per line, flushed as it is written.

A killed process loses at most the line it was writing. A journal has one writer at a time, which
must hold a lock.

See also: files that are replaced as a whole, and locks (`files.py`).
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from dataset_builders.errors import BadInput

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


class Journal:
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

    def __enter__(self) -> "Journal":
        return self

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
