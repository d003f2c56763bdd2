"""Read and write a run folder.

It contains `run.json` (what was asked of which model), `questions.parquet` (the questions asked,
without images), the journal `answers.jsonl`, and a lock that keeps a second process out. See also:
asking the model (`ask.py`), reading and scoring answers (`run_scoring.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

from dataset_builders.errors import BadInput
from dataset_builders.files import DISK_ERRNOS, replace_file
from dataset_builders.journal import Journal, read_journal
from eval_harness.derive.run_files import read_question_file
from eval_harness.records.request import Response
from eval_harness.records.result import UNDELIVERED
from eval_harness.records.run import RunRecord

AnswerId = tuple[str, int]
"""(question id, sample number)."""


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
    record: dict[str, Any] = {
        "question_id": response.question_id,
        "sample": response.sample,
        "response": response.text,
        "status": response.status,
        "seconds": response.seconds,
    }
    for name in ("scores", "error", "usage", "reasoning", "finish_reason", "shown"):
        value = getattr(response, name)
        if value is not None and value != ():
            record[name] = value if isinstance(value, str) else list(value)
    if response.from_cache:
        record["from_cache"] = True
    return record


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

    def __enter__(self) -> AnswerJournal:
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
