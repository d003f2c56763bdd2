"""Scored answers and checked results kept on disk, so that a board that starts again has its numbers at once.

One Arrow file per run of answers with the numbers of its units, named by what they follow from: the bytes of the answers, the
questions, the format and the code that scores. What the units are (the same for most runs on the same questions) stands once, in a file
named by its own digest. All runs of a section together stand once more, in one file that is read at once. Nothing here is a source: any
file may be deleted, one that cannot be read is made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import IO

import numpy as np
import pandas as pd
import pyarrow as pa

from dataset_builders import fingerprints
from eval_harness import answer_reading, benchmarks, results, scores
from leaderboard_space.data.store import stored_units
from leaderboard_space.data.store.stored_units import Column, compact

NAMED, VALUES = b"medprobe.units", b"medprobe.values"
KEEP_DAYS = 30
"""A file that nobody asked for in so many days is deleted."""


def folder() -> Path:
    """Where the files lie: under the user's cache folder (XDG_CACHE_HOME), or the folder named by MEDPROBE_BOARD_CACHE."""
    named = os.environ.get("MEDPROBE_BOARD_CACHE")
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(named) if named else (Path(home) if home else Path.home() / ".cache") / "medprobe" / "board"


def key_of(family: str, questions: str, answers: bytes) -> str:
    """The name of a scored run: a digest over everything its units follow from. `questions`: their own digest."""
    return hashlib.sha256(f"{family}:{_code()}:{questions}:".encode() + answers).hexdigest()


def load(key: str) -> tuple[str, dict[str, Column]] | None:
    """What `save` kept under `key`: the name of the units, and their numbers, each column in bytes where it fits."""
    table = _read(key)
    if table is None:
        return None
    about = table.schema.metadata or {}
    try:
        named, values = about[NAMED].decode(), json.loads(about[VALUES])
        columns = {name: table.column(name).to_numpy() for name in table.column_names}
        coded = {name: np.array(held, dtype=float).take(columns[name]) for name, held in values.items()}
    except (KeyError, ValueError, IndexError, TypeError):  # not as `save` writes them
        return None
    return named, columns | coded


def load_names(named: str) -> pd.DataFrame | None:
    """What the units of that name are."""
    table = _read(named)
    return table.to_pandas() if table is not None else None


def name_of(names: pd.DataFrame) -> str:
    """The name of units: a digest of what they are."""
    found = hashlib.sha256(",".join(names.columns).encode())
    found.update(pd.util.hash_pandas_object(names, index=False).to_numpy().tobytes())
    return f"units-{found.hexdigest()}"


def save(key: str, named: str, names: pd.DataFrame, numbers: pd.DataFrame) -> None:
    """Keep a run's units: what they are (under `named`, see `name_of`), and their numbers under `key`.

    Where nothing can be written, nothing is kept.
    """
    if not (folder() / f"{named}.arrow").exists():
        _write(named, pa.Table.from_pandas(names, preserve_index=False))
    columns: dict[str, Column] = {}
    values: dict[str, list[float]] = {}
    for name in numbers.columns:
        columns[name] = compact(numbers[name].to_numpy(float))
        if columns[name].dtype != np.uint8:
            different, codes = np.unique(columns[name], return_inverse=True)
            if different.size <= np.iinfo(np.uint16).max:  # a number for each number of options, say
                columns[name], values[name] = codes.astype(np.uint16), different.tolist()
    table = pa.table(columns)
    _write(key, table.replace_schema_metadata({NAMED: named.encode(), VALUES: json.dumps(values).encode()}))


def load_stacked(name: str, follows: str) -> tuple[str, dict[str, Column]] | None:
    """What `save_stacked` kept under `name`, where it follows from the same: the name of the units, and the arrays."""
    try:
        with np.load(folder() / f"{name}.npz", allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            if about["follows"] != follows:
                return None
            found = {key: file[key] for key in file.files if key != "about"}
        os.utime(folder() / f"{name}.npz")
        for key, (width, kind) in about["bits"].items():
            found[key] = np.unpackbits(found[key], axis=1, count=width).view(kind)
        return str(about["named"]), found
    except Exception:  # missing, cut off or not ours: the caller reads the runs one by one
        return None


def save_stacked(name: str, follows: str, named: str, arrays: dict[str, Column]) -> None:
    """Keep the arrays (., .) of all runs of a section under its `name`, instead of those it had before; zeros and ones as bits."""
    bits = {
        key: (held.shape[1], held.dtype.name)
        for key, held in arrays.items()
        if held.dtype == bool or (held.dtype == np.uint8 and held.max(initial=0) <= 1)
    }
    kept = {key: np.packbits(held, axis=1) if key in bits else held for key, held in arrays.items()}
    about = json.dumps({"follows": follows, "named": named, "bits": bits})
    _replace(f"{name}.npz", lambda part: np.savez(part, about=np.array(about), **kept))  # type: ignore[arg-type]


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
    """Whether `note` was called for this key: something that costs time was found to hold of the bytes it is made of."""
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


def _read(name: str) -> pa.Table | None:
    path = folder() / f"{name}.arrow"
    try:
        with pa.OSFile(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        os.utime(path)
    except Exception:  # missing, cut off or not ours: the caller scores anew
        return None
    return table


def _write(name: str, table: pa.Table) -> None:
    def write(part: IO[bytes]) -> None:
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(part, table.schema, options=options) as writer:
            writer.write_table(table)

    _replace(f"{name}.arrow", write)


def _replace(name: str, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file whole or not at all; where nothing can be written, nothing is kept."""
    target = folder() / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".part", delete=False) as part:
            write(part)
        Path(part.name).replace(target)
    except (OSError, pa.ArrowException):
        return


def prune() -> None:
    """Delete what has long not been asked for."""
    oldest = time.time() - KEEP_DAYS * 86_400
    try:
        for path in folder().iterdir():
            if (
                path.suffix in (".arrow", ".noted", ".npz", ".json", ".parquet", ".part")
                and path.stat().st_mtime < oldest
            ):
                path.unlink(missing_ok=True)
    except OSError:
        return


@cache
def _code() -> str:
    """A digest of the code that reads and scores: another version of it makes other files."""
    digest = hashlib.sha256()
    paths = [Path(str(module.__file__)) for module in (fingerprints, stored_units)]
    for package in (answer_reading, benchmarks, results, scores):
        paths += sorted(Path(str(package.__file__)).parent.rglob("*.py"))
    for path in (*paths, Path(__file__), Path(__file__).parents[1] / "ranks" / "possible.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()
