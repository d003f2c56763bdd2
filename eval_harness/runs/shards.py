"""Share a run among several processes, each of which asks a share of the cases.

RANK and WORLD_SIZE give the share, as set by torchrun, accelerate or a job array. Files of a run
folder, and which process writes them:

- `answers.jsonl`: with a single process, its journal; with several, their merged journals,
  rewritten whenever a process merges.
- `answers.rank0of2.0003-1a2b3c.jsonl`: the journal of one process, under a name that is never
  reused. It is removed once its answers are in `answers.jsonl` and its process has ended. The
  workers of a sweep on a Ray cluster write such journals as parts of `rank0of1`, whose lock the
  sweep holds (`sweep/cluster.py`).
- `.rank0of2.lock`: held by a process while it lives, so that no other process takes its share.
- `.shards.lock`: held while a process begins, merges journals, or scores.

No process waits for another. If one is late, killed or restarted, no other loses answers.
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
    """The share of process `rank` of `world`; a single process is rank 0 of 1."""

    rank: int = 0
    world: int = 1

    @classmethod
    def of_this_process(cls) -> Shard:
        """Return the share given by RANK and WORLD_SIZE, as torchrun and accelerate set them.

        Raises BadInput if they are inconsistent.
        """
        rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        if not (rank.isdigit() and world.isdigit() and int(rank) < int(world)):
            raise BadInput(
                f"RANK={rank}, WORLD_SIZE={world}: not a valid share of a run. Start the processes with torchrun."
            )
        return cls(int(rank), int(world))

    def instances(self, questions: pd.DataFrame, instances: list[Instance]) -> list[Instance]:
        """Return this process's share of the (row, sample) instances: every `world`-th case."""
        if self.world == 1:
            return instances
        # Whole cases per process, so that the images of a case are read once.
        case = pd.factorize(questions["case_id"])[0]
        return [(row, sample) for row, sample in instances if case[row] % self.world == self.rank]

    @contextmanager
    def claim(self, folder: Path) -> Iterator[None]:
        """Hold this share for the duration of the context.

        Raises BadInput if another process holds it, or divides the run differently.
        """
        share_lock = FileLock(self._lock(folder))
        with folder_lock(folder):
            conflicts = [name for name in _living(folder) if name == self.name or _world(name) != self.world]
            if conflicts:
                raise BadInput(
                    f"{folder}: another process is writing this run ({conflicts[0]}). Wait for it, "
                    "or give another --out."
                )
            share_lock.acquire(blocking=False)
        try:
            yield
        finally:
            share_lock.release()

    def open_journal(self, folder: Path) -> AnswerJournal:
        """Open this process's journal, and pass it the answers of all other journals.

        Call inside `folder_lock` and `claim`.
        """
        # A single process appends to the merged journal itself.
        if self.world == 1:
            merge_journals(folder)
            return AnswerJournal(folder / MERGED_JOURNAL)
        return AnswerJournal(self.new_journal(folder), other_records=read_answer_records(folder).values())

    def new_journal(self, folder: Path) -> Path:
        """Create an empty journal under a name that was never used. Call inside `folder_lock`."""
        # The number gives the order; the random part keeps names of removed journals unused.
        number = 1 + max((_number(path) for path in _shares(folder)), default=0)
        path = folder / f"answers.{self.name}.{number:04d}-{uuid.uuid4().hex[:6]}.jsonl"
        path.touch()
        return path

    @property
    def name(self) -> str:
        return f"rank{self.rank}of{self.world}"

    def _lock(self, folder: Path) -> Path:
        return folder / f".{self.name}.lock"

    def other_processes_alive(self, folder: Path) -> bool:
        """Whether another process is working on the run. Call inside `folder_lock`."""
        return any(name != self.name for name in _living(folder))


def case_numbers(questions: pd.DataFrame) -> dict[str, int]:
    """Return the number of each question's case, by question id."""
    return dict(zip(questions["question_id"], pd.factorize(questions["case_id"])[0].tolist(), strict=True))


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Let one process of the run in at a time; if that process dies, the lock is released."""
    with FileLock(folder / ".shards.lock"):
        yield


def merge_journals(folder: Path) -> set[AnswerId]:
    """Merge all journals into `answers.jsonl` and remove those of processes that have ended.

    Call inside `folder_lock`. Merging is crash-safe: journals are deleted only after their answers
    are on disk, oldest first, and reading a journal again changes nothing.

    Returns:
        The ids of all questions and samples asked so far.
    """
    shares = _shares(folder)
    # Check liveness before reading: a process may append more before it exits.
    ended = [path for path in shares if lock_is_free(journal_lock_path(path))]
    answers = read_answer_records(folder)
    if shares:
        replace_file(folder / MERGED_JOURNAL, b"".join(map(encode_entry, answers.values())))
    for path in ended:
        path.unlink(missing_ok=True)
        journal_lock_path(path).unlink(missing_ok=True)
    return set(answers)


def archive_journals(folder: Path) -> None:
    """Move every journal into a hidden folder, so that the run starts over.

    Call inside `folder_lock`, while no other process works on the run.
    """
    journals = [path for path in (folder / MERGED_JOURNAL, *_shares(folder)) if path.exists()]
    if journals:
        archive = folder / f".before-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
        archive.mkdir()
        for path in journals:
            path.rename(archive / path.name)


def read_answer_records(folder: Path) -> dict[AnswerId, dict[str, Any]]:
    """Read the answers of all journals without writing; other processes may be appending.

    Returns:
        (question id, sample) -> its last delivered record, or its last record if none was
        delivered. Journals are read in the order in which they were created.
    """
    records: dict[AnswerId, dict[str, Any]] = {}
    for path in (folder / MERGED_JOURNAL, *_shares(folder)):
        for record in read_answer_journal(path):
            key = answer_id(record)
            # A failure never replaces an answer.
            if record["status"] not in UNDELIVERED or records.get(key, record)["status"] in UNDELIVERED:
                records[key] = record
    return records


def _shares(folder: Path) -> list[Path]:
    """Return the paths of the processes' journals, oldest first."""
    paths = [path for path in folder.glob("answers.rank*.jsonl") if _NAME.fullmatch(path.name)]
    return sorted(paths, key=lambda path: (_number(path), path.name))


def _number(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[2]) if match else 0


def _world(name: str) -> int:
    return int(name.rpartition("of")[2])


def _living(folder: Path) -> set[str]:
    """Return the names (`rank0of2`) of all live processes of the run.

    Call inside `folder_lock`: processes acquire their locks only there, so none appears meanwhile.
    """
    return {path.name[1:-5] for path in folder.glob(".rank*of*.lock") if not lock_is_free(path)}


def lock_is_free(path: Path) -> bool:
    """Whether no process holds this lock."""
    probe = FileLock(path)
    try:
        probe.acquire(blocking=False)
    except Timeout:
        return False
    probe.release()
    return True
