"""A run folder: its files, its journals of answers, and the processes that share it.

RANK and WORLD_SIZE give the share of each process, as set by torchrun, accelerate or a job array.
Files, and which process writes them:

- `run.json`: what was asked of which model. `questions.parquet`: the questions, without images.
- `answers.jsonl`: with a single process, its journal; with several, their merged journals,
  rewritten whenever a process merges.
- `answers.rank0of2.0003-1a2b3c.jsonl`: the journal of one process, under a name that is never
  reused. It is removed once its answers are in `answers.jsonl` and its process has ended. The
  workers of a sweep on a Ray cluster write such journals as parts of `rank0of1`, whose lock the
  sweep holds (`sweep/execution.py`).
- `.rank0of2.lock`: held by a process while it lives, so that no other process takes its share.
- `.shards.lock`: held while a process begins, merges journals, or scores.

No process waits for another. If one is late, killed or restarted, no other loses answers. See also:
asking the model (`ask.py`), reading and scoring answers (`runner.py`).
"""

import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

import pandas as pd
from filelock import BaseFileLock, FileLock, Timeout

from dataset_builders.errors import BadInput
from dataset_builders.files import DISK_ERRNOS, Journal, encode_entry, read_journal, replace_file
from eval_harness.derive.run_files import read_question_file
from eval_harness.records.request import Response
from eval_harness.records.result import UNDELIVERED, RunRecord
from eval_harness.runs.requests import Instance

AnswerId = tuple[str, int]
"""(question id, sample number)."""
MERGED_JOURNAL = "answers.jsonl"
_SHARE_JOURNAL = re.compile(r"answers\.rank\d+of\d+\.(\d+)-\w+\.jsonl")


def write_run(folder: Path, run: RunRecord, questions: pd.DataFrame | None) -> None:
    """Write a run's record and questions; `questions` None keeps the existing ones."""
    if questions is not None:
        replace_file(folder / "questions.parquet", questions.to_parquet(index=False))
    # run.json is written last: a folder that has one also has the questions.
    replace_file(folder / "run.json", run.to_json().encode())


def read_run_questions(folder: Path) -> pd.DataFrame:
    """Read the questions of a run (columns of config `questions_text`; lists as Python lists).

    Raises:
        BadInput: the file is missing or unreadable.
    """
    path = folder / "questions.parquet"
    try:
        return read_question_file(path)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read ({error}). Run `medprobe eval` again with --no-resume.") from None


_EXPECTED = (
    "an answer (JSON with question_id, sample, response, status). Restore the file, or start over with --no-resume"
)


def read_answer_journal(path: Path) -> list[dict[str, Any]]:
    """Read the records of a run's journal; an incomplete last line is dropped.

    Raises BadInput if a line is not an answer.
    """
    return read_journal(path, answer_id, _EXPECTED)


def response_to_record(response: Response) -> dict[str, Any]:
    """Return the journal record of a response; empty fields are omitted."""
    # A plug-in's class may have fields of its own, which no journal holds.
    names = [field.name for field in fields(Response)]
    record = {"response" if name == "text" else name: getattr(response, name) for name in names}
    required = ("question_id", "sample", "response", "status", "seconds")
    return {name: value for name, value in record.items() if name in required or value not in (None, (), False)}


def answer_id(record: dict[str, Any]) -> AnswerId:
    """Return (question id, sample) of a journal record.

    Raises KeyError, TypeError or ValueError if it is not the record of an answer.
    """
    # Raises KeyError if one of them is missing.
    record["response"], record["status"]
    return str(record["question_id"]), int(record["sample"])


def journal_lock_path(journal: Path) -> Path:
    """Return the lock file that the writer of a journal holds."""
    return journal.with_name(f".{journal.name}.lock")


class AnswerJournal:
    """The journal of a run's answers: append-only, one JSON object per line, under a lock."""

    def __init__(self, path: Path, other_records: Iterable[dict[str, Any]] = ()) -> None:
        """Open the journal for appending.

        Args:
            path: the file, which is created if needed.
            other_records: records in other journals of the run, which count as answered.

        Raises:
            BadInput: another process holds the journal, or it is damaged.
        """
        self.path = path
        self._lock = FileLock(journal_lock_path(path))
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise BadInput(
                f"{path.parent}: another process is writing this run. Wait for it, or give another --out."
            ) from None
        try:
            self._journal = Journal(path, answer_id, _EXPECTED)
        except BaseException:
            self._lock.release()
            raise
        records = (*other_records, *self._journal.entries)
        self.statuses: dict[AnswerId, str] = {answer_id(record): str(record["status"]) for record in records}

    def is_answered(self, key: AnswerId) -> bool:
        """Whether a response was delivered; otherwise the question is asked again."""
        return self.statuses.get(key, "missing") not in UNDELIVERED

    def append(self, response: Response) -> None:
        """Write one response, unless it repeats a delivery failure that is already recorded."""
        key = (response.question_id, response.sample)
        # Otherwise every attempt to resume with a dead server would make the journal longer.
        if response.status in UNDELIVERED and self.statuses.get(key) == response.status:
            return
        self._journal.append(response_to_record(response))
        self.statuses[key] = response.status

    def sync(self) -> None:
        """Flush to disk."""
        self._journal.sync()

    def __enter__(self) -> "AnswerJournal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._journal.__exit__(kind, error, trace)
        finally:
            self._lock.release()


def make_run_folder(folder: Path) -> None:
    """Create the folder if needed.

    Raises BadInput if it is a file, cannot be written, or contains unrelated files.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file_names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    except FileExistsError:
        raise BadInput(f"--out {folder}: is a file. Give a folder.") from None
    except OSError as error:
        raise BadInput(f"--out {folder}: cannot be written ({error.strerror}). Give another folder.") from None
    # A run that is killed at its start leaves only this file behind.
    unexpected = sorted(file_names - {"questions.parquet"})
    if unexpected and "run.json" not in file_names:
        raise BadInput(
            f"--out {folder}: contains other files ({', '.join(unexpected[:3])}). Give an empty or new folder."
        )


@contextmanager
def report_disk_errors(folder: Path) -> Iterator[None]:
    """Turn a disk error (disk full, no permission) into a BadInput of one line."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_ERRNOS:
            raise
        raise BadInput(
            f"{folder}: cannot be written ({error.strerror}). Answers written so far are complete; "
            "free some space, or give a folder you may "
            "write to, and run the same command again."
        ) from None


@dataclass(frozen=True)
class Shard:
    """The share of process `rank` of `world`; a single process is rank 0 of 1."""

    rank: int = 0
    world: int = 1

    @classmethod
    def of_this_process(cls) -> "Shard":
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
        share_lock = FileLock(folder / f".{self.name}.lock")
        with folder_lock(folder):
            # Shares of another number of processes overlap with this one.
            conflicts = [name for name in _living(folder) if name == self.name or not name.endswith(f"of{self.world}")]
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
        number = max(_share_numbers(folder).values(), default=0) + 1
        path = folder / f"answers.{self.name}.{number:04d}-{uuid.uuid4().hex[:6]}.jsonl"
        path.touch()
        return path

    @property
    def name(self) -> str:
        return f"rank{self.rank}of{self.world}"

    def other_processes_alive(self, folder: Path) -> bool:
        """Whether another process is working on the run. Call inside `folder_lock`."""
        return any(name != self.name for name in _living(folder))


def folder_lock(folder: Path) -> BaseFileLock:
    """Return a lock that one process of the run holds at a time; one that dies releases it."""
    return FileLock(folder / ".shards.lock")


def merge_journals(folder: Path) -> set[AnswerId]:
    """Merge all journals into `answers.jsonl` and remove those of processes that have ended.

    Call inside `folder_lock`. Merging is crash-safe: journals are deleted only after their answers
    are on disk, oldest first, and reading a journal again changes nothing.

    Returns:
        The ids of all questions and samples asked so far.
    """
    shares = list(_share_numbers(folder))
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
    journals = [path for path in (folder / MERGED_JOURNAL, *_share_numbers(folder)) if path.exists()]
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
    for path in (folder / MERGED_JOURNAL, *_share_numbers(folder)):
        for record in read_answer_journal(path):
            key = answer_id(record)
            # A failure never replaces an answer.
            if record["status"] not in UNDELIVERED or records.get(key, record)["status"] in UNDELIVERED:
                records[key] = record
    return records


def _share_numbers(folder: Path) -> dict[Path, int]:
    """Return the journals of the processes with their numbers, oldest first."""
    matches = {path: _SHARE_JOURNAL.fullmatch(path.name) for path in folder.glob("answers.rank*.jsonl")}
    numbers = {path: int(match[1]) for path, match in matches.items() if match}
    return dict(sorted(numbers.items(), key=lambda item: (item[1], item[0])))


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
