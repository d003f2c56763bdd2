"""Several processes on one run (torchrun, accelerate, a cluster's array job: RANK of WORLD_SIZE): each asks its share of the cases.

Files of a run folder, and who writes them:

- `answers.jsonl`: the journal of a process that runs alone; else what the processes have answered together, put together from their
  journals whenever one of them begins or finishes.
- `answers.rank0of2.0003-1a2b3c.jsonl`: the journal of one process. The name is never used again. It is removed once its answers are in
  `answers.jsonl` and its process has ended.
  The workers of a sweep on a Ray cluster write such journals as parts of `rank0of1`, whose lock the sweep holds (`sweep/cluster.py`).
- `.rank0of2.lock`: held by a process as long as it lives; so each share has one process, and a live process's journal is left alone.
- `.shards.lock`: held while a process begins, puts journals together, or scores.

No process waits for another, so a late, killed or restarted process loses no other's answers.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.journal import encode_entry
from eval_harness.records.result import UNDELIVERED
from eval_harness.runs.requests import Instance
from eval_harness.runs.run_folder import AnswerId, AnswerJournal, answer_id, journal_lock_path, read_answer_journal

MERGED_JOURNAL = "answers.jsonl"
_NAME = re.compile(r"answers\.(rank\d+of\d+)\.(\d+)-\w+\.jsonl")


@dataclass(frozen=True)
class Shard:
    """Process `rank` of `world`. One process alone is rank 0 of 1."""

    rank: int = 0
    world: int = 1

    @classmethod
    def of_this_process(cls) -> Shard:
        """From RANK and WORLD_SIZE, as torchrun and accelerate set them. Raises BadInput if they make no sense."""
        rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        if not (rank.isdigit() and world.isdigit() and int(rank) < int(world)):
            raise BadInput(f"RANK={rank}, WORLD_SIZE={world}: not a share of a run. Start the processes with torchrun.")
        return cls(int(rank), int(world))

    def instances(self, questions: pd.DataFrame, instances: list[Instance]) -> list[Instance]:
        """This process's share of the (row, sample) instances: every `world`-th case."""
        if self.world == 1:
            return instances
        case = pd.factorize(questions["case_id"])[0]
        return [(row, sample) for row, sample in instances if case[row] % self.world == self.rank]

    @contextmanager
    def taking_part(self, folder: Path) -> Iterator[None]:
        """Hold this share. Raises BadInput if another process has it, or others share the run in another way."""
        held = FileLock(self._lock(folder))
        with folder_lock(folder):
            busy = [name for name in _living(folder) if name == self.name or _world(name) != self.world]
            if busy:
                raise BadInput(
                    f"{folder}: another process is writing this run ({busy[0]}). Wait for it, or give another --out."
                )
            held.acquire(blocking=False)
        try:
            yield
        finally:
            held.release()

    def open_journal(self, folder: Path) -> AnswerJournal:
        """The journal this process writes, which knows what was answered before. Call inside `folder_lock` and `taking_part`."""
        if self.world == 1:
            merge_journals(folder)
            return AnswerJournal(folder / MERGED_JOURNAL)
        return AnswerJournal(self.new_journal(folder), known=read_answer_records(folder).values())

    def new_journal(self, folder: Path) -> Path:
        """An empty journal under a name that was never used. Call inside `folder_lock`."""
        number = 1 + max((_number(path) for path in _shares(folder)), default=0)
        path = folder / f"answers.{self.name}.{number:04d}-{uuid.uuid4().hex[:6]}.jsonl"
        path.touch()
        return path

    @property
    def name(self) -> str:
        return f"rank{self.rank}of{self.world}"

    def _lock(self, folder: Path) -> Path:
        return folder / f".{self.name}.lock"

    def others_live(self, folder: Path) -> bool:
        """True if another process takes part in the run. Call inside `folder_lock`."""
        return any(name != self.name for name in _living(folder))


def case_numbers(questions: pd.DataFrame) -> dict[str, int]:
    """Question id -> number of its case."""
    return dict(zip(questions["question_id"], pd.factorize(questions["case_id"])[0].tolist(), strict=True))


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """One process of the run at a time. The lock dies with its holder."""
    with FileLock(folder / ".shards.lock"):
        yield


def merge_journals(folder: Path) -> set[AnswerId]:
    """Write what all journals hold into `answers.jsonl`, remove those of processes that have ended, and return what was asked so far.

    Call inside `folder_lock`. Killed in between, nothing is lost: a journal goes after its answers are on the disk, the oldest first,
    and read once more it says the same.
    """
    shares = _shares(folder)
    # Which have ended is asked before they are read: one that ends meanwhile has more to say.
    ended = [path for path in shares if lock_is_free(journal_lock_path(path))]
    answers = read_answer_records(folder)
    if shares:
        replace_file(folder / MERGED_JOURNAL, b"".join(map(encode_entry, answers.values())))
    for path in ended:
        path.unlink(missing_ok=True)
        journal_lock_path(path).unlink(missing_ok=True)
    return set(answers)


def archive_journals(folder: Path) -> None:
    """Move every journal into a hidden folder: the run starts over. Call inside `folder_lock`, where no other process takes part."""
    journals = [path for path in (folder / MERGED_JOURNAL, *_shares(folder)) if path.exists()]
    if journals:
        aside = folder / f".before-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
        aside.mkdir()
        for path in journals:
            path.rename(aside / path.name)


def read_answer_records(folder: Path) -> dict[AnswerId, dict[str, Any]]:
    """The journals' records, one per question and sample: the last one that did not fail, in the order in which journals were begun.

    Reads only: processes may be writing."""
    found: dict[AnswerId, dict[str, Any]] = {}
    for path in (folder / MERGED_JOURNAL, *_shares(folder)):
        for record in read_answer_journal(path):
            key = answer_id(record)
            if record["status"] not in UNDELIVERED or found.get(key, record)["status"] in UNDELIVERED:
                found[key] = record
    return found


def _shares(folder: Path) -> list[Path]:
    """The journals of the processes, the oldest first."""
    found = [path for path in folder.glob("answers.rank*.jsonl") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (_number(path), path.name))


def _number(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[2]) if match else 0


def _world(name: str) -> int:
    return int(name.rpartition("of")[2])


def _living(folder: Path) -> set[str]:
    """`rank0of2` of every process that takes part in the run. Call inside `folder_lock`, in which alone these locks are taken."""
    return {path.name[1:-5] for path in folder.glob(".rank*of*.lock") if not lock_is_free(path)}


def lock_is_free(path: Path) -> bool:
    """True if no process holds this lock."""
    probe = FileLock(path)
    try:
        probe.acquire(blocking=False)
    except Timeout:
        return False
    probe.release()
    return True
