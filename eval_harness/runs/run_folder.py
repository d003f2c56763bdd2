"""Read and write a run folder: `run.json` (what was asked of which model), `questions.parquet` (the
questions asked, without images), the journal `answers.jsonl`, and the lock that keeps a second
process out.

See also: asking the model (`ask.py`), reading and scoring answers (`run_scoring.py`).
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
    """Begin a run folder. `run.json` is written last, so a folder that has one is complete.

    `questions` None keeps the existing ones.
    """
    if questions is not None:
        replace_file(folder / "questions.parquet", questions.to_parquet(index=False))
    # Last: its presence marks the folder as complete.
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
    """Read the lines of a run's journal; an incomplete last line is dropped.

    Raises BadInput if a line is not an answer.
    """
    return read_journal(path, answer_id, _EXPECTED)


def response_to_record(response: Response) -> dict[str, Any]:
    """Return the journal line of a response; empty fields are omitted."""
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
    """Return (question id, sample) of a journal line.

    Raises KeyError, TypeError or AttributeError if it is not one.
    """
    record["response"], record["status"]
    return str(record["question_id"]), int(record["sample"])


def journal_lock_path(journal: Path) -> Path:
    """Return the file whose lock the journal's writer holds."""
    return journal.with_name(f".{journal.name}.lock")


class AnswerJournal:
    """The append-only answers of a run, one JSON object per line, written under a lock."""

    def __init__(self, path: Path, other_records: Iterable[dict[str, Any]] = ()) -> None:
        """Open for appending. `other_records`: records in other journals of the run.

        Raises BadInput if another process holds the journal, or it is damaged.
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
        """Whether the question is done; one without a delivered response is asked again."""
        return self.statuses.get(key, "missing") not in UNDELIVERED

    def append(self, response: Response) -> None:
        """Write one response. A repeated delivery failure of the same kind adds nothing."""
        key = (response.question_id, response.sample)
        # A resumed run with a dead server must not grow the journal.
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

    Raises BadInput if it is a file, cannot be written, or holds unrelated files.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file_names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    except FileExistsError:
        raise BadInput(f"--out {folder}: is a file. Give a folder.") from None
    except OSError as error:
        raise BadInput(f"--out {folder}: cannot be written ({error.strerror}). Give another folder.") from None
    unexpected = sorted(file_names - {"questions.parquet"})  # all that a run killed at its start leaves
    if unexpected and "run.json" not in file_names:
        raise BadInput(
            f"--out {folder}: contains other files ({', '.join(unexpected[:3])}). Give an empty or new folder."
        )


@contextmanager
def report_disk_errors(folder: Path) -> Iterator[None]:
    """Turn a full disk or missing permission into one line; complete journal lines are kept."""
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
