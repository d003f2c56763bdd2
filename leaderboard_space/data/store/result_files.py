"""The result files of a store, each read once for every time that it changes; what a large measured one says of its categories, only when
it is asked for: the board computes these numbers from the units, and those of hundreds of results would take a second and a gigabyte.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from dataset_builders.errors import BadInput
from eval_harness.derive.files import RESULT, RUN
from eval_harness.derive.metrics import METRICS
from eval_harness.records.result import DERIVE_VERSION, Breakdown, Result, Score, Scores, read_result
from eval_harness.store.acceptance import ACCEPTANCE, WITHDRAWN, read_provenance
from leaderboard_space.data.published_tables import ONLY_PRINTED, errors_named
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.data.store.unverified import derived_folder
from leaderboard_space.html import visible

LARGEST_RESULT = 20_000_000
"""Bytes of a `result.json`; ours have some ten thousand."""
Stamp = tuple[int, int] | None
"""When a file was changed last (nanoseconds), and its size; None where there is none."""


class ResultFiles:
    """What was read of the files of a store, or what is wrong with each."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[tuple[object, ...], Entry | str]] = {}

    def read(self, store: Path, trusted: Sequence[str] = ()) -> tuple[list[Entry], list[str]]:
        """All results, and one line per file that cannot be used. An entry whose files are unchanged is the same object as before.
        `trusted`: datasets that the board's owner named."""
        seen: dict[Path, tuple[tuple[object, ...], Entry | str]] = {}
        folders = {path.parent for name in (RESULT, RUN) for path in (store / "results").glob(f"*/*/*/{name}")}
        for folder in sorted(folders):
            path = folder / RESULT if (folder / RESULT).exists() else folder / RUN
            try:
                status = path.stat()
                # What the store says of a result lies beside it; notes are new files, which the folder's own time tells.
                beside = (stamp_of(path.parent / name) for name in (ACCEPTANCE, WITHDRAWN))
                stamp = (status.st_mtime_ns, status.st_size, path.parent.stat().st_mtime_ns, *beside)
                if path in self._seen and self._seen[path][0] == stamp:
                    seen[path] = self._seen[path]
                elif not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_RESULT:
                    raise BadInput(f"{path}: not a file of at most {LARGEST_RESULT // 1_000_000} MB.")
                else:
                    seen[path] = (stamp, _entry(store, folder, trusted))
            except (BadInput, OSError, RecursionError) as error:
                # Readers see the path in the store, not where the store lies.
                seen[path] = ((0, 0), str(error).replace(f"{store}{os.sep}", ""))
        self._seen = seen
        found = [value for _, value in self._seen.values()]
        return [one for one in found if isinstance(one, Entry)], [one for one in found if isinstance(one, str)]


UNVERIFIED = "not verified by the store's owner; its numbers were derived by this board"
OUTDATED = "its numbers were derived by another version of medprobe; `medprobe rescore` derives them again"


def _entry(store: Path, folder: Path, trusted: Sequence[str]) -> Entry:
    """A result as the board shows it: as its verifier derived it, or as it is derived here where there was none."""
    provenance = read_provenance(folder)
    is_verified = provenance.acceptance is not None or not _is_measured(folder)
    derived = folder if is_verified else derived_folder(store, folder, trusted)
    result, notes = _read(derived / RESULT), list[str]()
    if result.kind == "measured" and (derived / RESULT).stat().st_size >= LARGE:
        result = result.model_copy(update={"breakdown": LateBreakdown(derived / RESULT, list(result.breakdown))})
    if not visible(result.model.name).strip():
        raise BadInput(f"{folder / RESULT}: its model has no name.")
    if not is_verified:
        notes = [*notes, UNVERIFIED]
    if result.kind == "measured" and result.derive_version != DERIVE_VERSION:
        notes = [*notes, OUTDATED]
    key = folder.relative_to(store / "results").as_posix()
    return Entry(key, result, folder, tuple(notes), provenance, derived=derived)


def _is_measured(folder: Path) -> bool:
    """True if a folder holds answers, or says so; an aggregate has none."""
    if (folder / RUN).exists():
        return True
    return read_result(folder / RESULT).kind == "measured"


def stamp_of(path: Path | None) -> Stamp:
    """The stamp of a file as it is now."""
    try:
        status = path.stat() if path is not None else None
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if status is not None else None


LARGE = 50_000
"""Bytes of a `result.json` from which on its breakdown is left to be read later."""


class LateBreakdown(Mapping[str, Mapping[str, Scores]]):
    """A `Breakdown` whose facets are known, and whose numbers are read from the result's file; empty where the file is another by then."""

    def __init__(self, path: Path, facets: list[str]) -> None:
        self._path, self._stamp, self._facets = path, stamp_of(path), facets

    @cached_property
    def _whole(self) -> Breakdown:
        try:
            return _read(self._path).breakdown if stamp_of(self._path) == self._stamp else {}
        except (OSError, BadInput):
            return {}

    def __getitem__(self, facet: str) -> Mapping[str, Scores]:
        if facet not in self._facets:
            raise KeyError(facet)
        return self._whole.get(facet, {})

    def __iter__(self) -> Iterator[str]:
        return iter(self._facets)

    def __len__(self) -> int:
        return len(self._facets)


SLACK = 1e-6
"""Rounding may carry a percentage over its end by this much."""
MOST = 10**12
"""More questions than any benchmark has."""


def _read(path: Path) -> Result:
    """A result with all of its numbers. Raises BadInput as `read_result` does, and for a number that no answers could give."""
    result = read_result(path)
    cells = (cell for held in result.breakdown.values() for cell in held.values())
    for metric, score in (pair for held in (result.scores, *cells) for pair in held.items()):
        if not is_possible(metric, score):
            raise BadInput(f"{path}: {metric} {score.value} of n {score.n} is impossible.")
    return result.model_copy(update={"breakdown": errors_named(result.breakdown)})


def is_possible(metric: str, score: Score) -> bool:
    """True if a score can be what its metric says: a percentage within 0 and 100, a count that is not negative.

    >>> is_possible("set_accuracy", Score(value=101.0, n=1, n_cases=1)), is_possible("set_accuracy", Score(value=None, n=0, n_cases=0))
    (False, True)
    """
    if not (0 <= score.n <= MOST and 0 <= score.n_cases <= MOST):
        return False
    if score.n_effective is not None and not 0 < score.n_effective <= MOST:
        return False
    info = METRICS.get(metric) or ONLY_PRINTED.get(metric)
    if info is None and not metric.startswith("share_"):
        return True  # of a metric that this board does not know
    highest = float(MOST) if info is not None and info.unit == "count" else 100.0
    numbers = (number for number in (score.value, score.low, score.high, score.chance) if number is not None)
    ordered = score.low is None or score.high is None or score.low <= score.high + SLACK
    return ordered and all(-SLACK <= number <= highest + SLACK for number in numbers)
