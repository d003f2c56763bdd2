"""Scored answers and checked results kept on disk, so that a board that starts again has its numbers at once.

One file per section holds the numbers of the units of all its runs, each under a key made of what they follow from: the bytes of the
answers, the questions, the format and the code that scores; and, once, what the units are (the same for every run on the same
questions). Nothing here is a source: any file may be deleted, one that cannot be read is made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import IO

import numpy as np
import pandas as pd
import pyarrow as pa

from dataset_builders import fingerprints
from eval_harness import benchmarks, reader, results, scores
from leaderboard_space.data.store import stored_units
from leaderboard_space.data.store.stored_units import Column

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


def load_runs(name: str) -> tuple[list[str], pd.DataFrame, dict[str, Column]] | None:
    """What `save_runs` kept under `name`: the keys of the runs, what their units are, and the arrays."""
    try:
        with np.load(folder() / f"{name}.npz", allow_pickle=False) as file:
            found = {key: file[key] for key in file.files}
        os.utime(folder() / f"{name}.npz")
        about = json.loads(str(found.pop("about")))
        names = pa.ipc.open_file(pa.py_buffer(found.pop("names"))).read_all().to_pandas()
        for key, (width, kind) in about["bits"].items():
            found[key] = np.unpackbits(found[key], axis=1, count=width).view(kind)
        return list(about["keys"]), names, found
    except Exception:  # missing, cut off or not ours: the caller scores anew
        return None


def save_runs(name: str, keys: Sequence[str], names: pd.DataFrame, arrays: dict[str, Column]) -> None:
    """Keep the arrays (., .) of all runs of a section under its `name`, instead of those it had before; zeros and ones as bits. `keys`: of
    the runs, as `key_of` makes them; `names`: what their units are. Where nothing can be written, nothing is kept."""
    bits = {
        key: (held.shape[1], held.dtype.name)
        for key, held in arrays.items()
        if held.dtype == bool or (held.dtype == np.uint8 and held.max(initial=0) <= 1)
    }
    kept = {key: np.packbits(held, axis=1) if key in bits else held for key, held in arrays.items()}
    about = json.dumps({"keys": list(keys), "bits": bits})
    table, sink = pa.Table.from_pandas(names, preserve_index=False), pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    said = np.frombuffer(sink.getvalue(), np.uint8)
    _replace(f"{name}.npz", lambda part: np.savez(part, about=np.array(about), names=said, **kept))  # type: ignore[arg-type]


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
            if path.suffix in (".noted", ".npz", ".json", ".part") and path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)
    except OSError:
        return


@cache
def _code() -> str:
    """A digest of the code that reads and scores: another version of it makes other files."""
    digest = hashlib.sha256()
    paths = [Path(str(module.__file__)) for module in (fingerprints, stored_units)]
    for package in (benchmarks, reader, results, scores):
        paths += sorted(Path(str(package.__file__)).parent.rglob("*.py"))
    for path in (*paths, Path(__file__), Path(__file__).parents[1] / "ranks" / "possible.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()
