"""Results in a store that no verifier accepted: what they are is derived here from their answers, never read from their files.

Derived once for the same files, then kept in the board's cache folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from eval_harness.derive.files import DERIVED, RESULT, RUN, Sent
from eval_harness.records.result import DERIVE_VERSION, Benchmark
from eval_harness.store.datasets import Dataset, vouched_dataset
from eval_harness.store.examine import examined
from eval_harness.store.untrusted import parquet_rows


def kept() -> Path:
    """Where it lies: under the user's cache folder (XDG_CACHE_HOME), or the folder named by MEDPROBE_BOARD_CACHE."""
    named = os.environ.get("MEDPROBE_BOARD_CACHE")
    home = os.environ.get("XDG_CACHE_HOME")
    board = Path(named) if named else (Path(home) if home else Path.home() / ".cache") / "medprobe" / "board"
    return board / "unverified"


def derived_folder(store: Path, folder: Path, trusted: Sequence[str]) -> Path:
    """The folder that holds what was derived from a result's answers, under the names that a store has. `trusted`: datasets that the
    board's owner named. Raises BadInput where its questions cannot be had, or its files are wrong."""
    if not (folder / RUN).is_file():
        raise BadInput(f"{folder / RESULT}: was not verified, and holds no run whose scores could be derived.")
    sent = Sent.read(folder)
    parts = [str(DERIVE_VERSION), *(hashlib.sha256(each or b"").hexdigest() for each in sent)]
    target = kept() / hashlib.sha256("".join(parts).encode()).hexdigest()
    if not (target / RESULT).is_file():
        try:
            found = examined(sent, partial(_dataset, store, tuple(trusted)))
        except BadInput as error:
            raise BadInput(f"{folder / RUN}: was not verified, and cannot be: {error}") from None
        if found.problems:
            raise BadInput(f"{folder / RUN}: was not verified, and is refused: {found.problems[0]}")
        target.mkdir(parents=True, exist_ok=True)
        for name in DERIVED:
            replace_file(target / name, found.derived[name])
    return target


def _dataset(store: Path, trusted: Sequence[str], benchmark: Benchmark) -> Dataset:
    """The questions of the store or of a trusted dataset; nothing is fetched for a stranger's."""
    path = store / "questions" / f"{benchmark.fingerprint}.parquet"
    if path.is_file():
        questions = pd.DataFrame(list(parquet_rows(path)))
        return Dataset(benchmark.name, benchmark.split, benchmark.family, questions, benchmark.origin, None, ours=True)
    dataset = vouched_dataset(benchmark, trusted)
    if dataset is None:
        raise BadInput("its questions are neither in the store nor in a dataset that the board's owner named")
    return dataset
