"""Several processes of one run on one machine (`torchrun`, `accelerate launch`): each asks its share of the cases and keeps its own
journal; the last one to finish puts the journals together. Nobody waits for anybody, so a late or dead process harms no other.

Not here: starting the processes.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.runs import read_journal, write_atomically

LOCK = ".shards.lock"


@dataclass(frozen=True)
class Shard:
    """Process `rank` of `world`. One process alone is rank 0 of 1."""

    rank: int = 0
    world: int = 1

    @classmethod
    def of_this_process(cls) -> Shard:
        """From RANK and WORLD_SIZE, as torchrun and accelerate set them. Raises BadInput when they make no sense."""
        rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        if not (rank.isdigit() and world.isdigit() and int(rank) < int(world)):
            raise BadInput(f"RANK={rank}, WORLD_SIZE={world}: not a share of a run. Start the processes with torchrun.")
        return cls(int(rank), int(world))

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def places(self, questions: pd.DataFrame, places: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """This process's share of the (row, sample) places: every `world`-th case."""
        if self.world == 1:
            return places
        case = pd.factorize(questions["case_id"])[0]
        return [(row, sample) for row, sample in places if case[row] % self.world == self.rank]

    def journal(self, folder: Path) -> Path:
        """The journal this process writes."""
        return folder / ("answers.jsonl" if self.world == 1 else f"answers.rank{self.rank}.jsonl")

    def others(self, folder: Path) -> list[Path]:
        """The other journals of the run, also of an earlier attempt with another number of processes."""
        own = self.journal(folder)
        return [path for path in _journals(folder) if path != own]

    def start_over(self, folder: Path) -> None:
        """Forget what earlier processes answered."""
        for path in [*folder.glob("answers.rank*.jsonl"), *folder.glob(".rank*.done")]:
            path.unlink(missing_ok=True)

    def finish(self, folder: Path) -> bool:
        """Say that this share is done; True for the process that finds all done, after it has put the journals together."""
        with self.alone(folder):
            (folder / f".rank{self.rank}of{self.world}.done").touch()
            done = [folder / f".rank{rank}of{self.world}.done" for rank in range(self.world)]
            if not all(path.exists() for path in done):
                return False
            _merge(folder)
            for path in folder.glob(".rank*.done"):
                path.unlink(missing_ok=True)
            return True

    @contextmanager
    def alone(self, folder: Path) -> Iterator[None]:
        """One process of the run at a time. The lock dies with its holder."""
        with (folder / LOCK).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _journals(folder: Path) -> list[Path]:
    return [path for path in (folder / "answers.jsonl", *sorted(folder.glob("answers.rank*.jsonl"))) if path.exists()]


def _merge(folder: Path) -> None:
    """Append the shares' whole lines to `answers.jsonl`, then drop the shares. A kill in between loses nothing: lines of a share that
    are there twice are the same answer."""
    shares = sorted(folder.glob("answers.rank*.jsonl"))
    if not shares:
        return
    parts = []
    for path in (folder / "answers.jsonl", *shares):
        if path.exists():
            whole = read_journal(path)[1]
            parts.append(path.read_bytes()[:whole])
    write_atomically(folder / "answers.jsonl", b"".join(parts))
    for path in shares:
        path.unlink(missing_ok=True)
