"""The result files of a store, each read once for every time that it changes."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from dataset_builders.errors import BadInput
from eval_harness.results.landing import LANDING, WITHDRAWN, read_provenance
from leaderboard_space.data.store.late_breakdown import read_possible
from leaderboard_space.data.store.sections import Entry

LARGEST_RESULT = 20_000_000
"""Bytes of a `result.json`; ours have some ten thousand."""
Stamp = tuple[int, int] | None
"""When a file was changed last (nanoseconds), and its size; None where there is none."""


class ResultFiles:
    """What was read of the files of a store, or what is wrong with each."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[tuple[object, ...], Entry | str]] = {}

    def read(self, store: Path, renewed: Callable[[Entry], Entry]) -> tuple[list[Entry], list[str]]:
        """All results, and one line per file that cannot be used. `renewed`: an entry as it is kept, the same one again if nothing is to be
        renewed (who asks sees by its identity whether a result is the one from before)."""
        seen: dict[Path, tuple[tuple[object, ...], Entry | str]] = {}
        for path in sorted((store / "results").glob("*/*/*/result.json")):
            try:
                status = path.stat()
                # What the store says of a result lies beside it; notes are new files, which the folder's own time tells.
                beside = (stamp_of(path.parent / name) for name in (LANDING, WITHDRAWN))
                stamp = (status.st_mtime_ns, status.st_size, path.parent.stat().st_mtime_ns, *beside)
                if path in self._seen and self._seen[path][0] == stamp:
                    seen[path] = self._seen[path]
                elif not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_RESULT:
                    raise BadInput(f"{path}: not a file of at most {LARGEST_RESULT // 1_000_000} MB.")
                else:
                    seen[path] = (stamp, _entry(store, path))
            except (BadInput, OSError, RecursionError) as error:
                # Readers see the path in the store, not where the store lies.
                seen[path] = ((0, 0), str(error).replace(f"{store}{os.sep}", ""))
        self._seen = {
            path: (stamp, renewed(value) if isinstance(value, Entry) else value)
            for path, (stamp, value) in seen.items()
        }
        found = [value for _, value in self._seen.values()]
        return [one for one in found if isinstance(one, Entry)], [one for one in found if isinstance(one, str)]


def _entry(store: Path, path: Path) -> Entry:
    result, notes = read_possible(path)
    return Entry(
        path.parent.relative_to(store / "results").as_posix(),
        result,
        path.parent,
        tuple(notes),
        read_provenance(path.parent),
    )


def stamp_of(path: Path | None) -> Stamp:
    """The stamp of a file as it is now."""
    try:
        status = path.stat() if path is not None else None
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if status is not None else None
