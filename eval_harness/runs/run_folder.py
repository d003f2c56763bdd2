"""The run folder: `run.json` (what was asked of which model), `questions.parquet` (the questions asked, without images), the journal
`answers.jsonl`, and the lock that keeps two processes out of one folder.

See also: asking the model (`ask.py`), reading and scoring answers (`scoring.py`).
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


def write_run(folder: Path, run: RunRecord, questions: pd.DataFrame | None) -> None:
    """Begin a run folder: the questions first, `run.json` last, so that a folder with a `run.json` is complete.

    `questions` None leaves the ones that are there.
    """
    if questions is not None:
        replace_file(folder / "questions.parquet", questions.to_parquet(index=False))
    replace_file(folder / "run.json", run.to_json().encode())


def read_run_questions(folder: Path) -> pd.DataFrame:
    """The questions of a run, as asked (columns of the config `questions_text`; lists as Python lists).

    Raises BadInput if the file is missing or unreadable.
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
    """The lines of a run's journal. Raises BadInput for one that is no answer; a torn last line is left out."""
    return read_journal(path, answer_id, _EXPECTED)


def response_to_record(response: Response) -> dict[str, Any]:
    """The journal line of a response."""
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
    """(question id, sample) of a journal line; KeyError, TypeError or AttributeError where it is not one."""
    record["response"], record["status"]
    return str(record["question_id"]), int(record["sample"])


def journal_lock_path(journal: Path) -> Path:
    """The file whose lock the writer of a journal holds."""
    return journal.with_name(f".{journal.name}.lock")


class AnswerJournal:
    """The append-only answers of a run: one JSON object per line, held under a lock."""

    def __init__(self, path: Path, known: Iterable[dict[str, Any]] = ()) -> None:
        """Open for appending. `known`: records that other journals of the run hold.

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
        records = (*known, *self._journal.entries)
        self.statuses: dict[AnswerId, str] = {answer_id(record): str(record["status"]) for record in records}

    def is_answered(self, key: AnswerId) -> bool:
        """True if this question needs no more asking; one that was not delivered does."""
        return self.statuses.get(key, "missing") not in UNDELIVERED

    def append(self, response: Response) -> None:
        """Write one response. What was not delivered before and again is not adds nothing."""
        key = (response.question_id, response.sample)
        if response.status in UNDELIVERED and self.statuses.get(key) == response.status:
            return
        self._journal.append(response_to_record(response))
        self.statuses[key] = response.status

    def sync(self) -> None:
        """Force what was written to the disk."""
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
    """Make the folder where absent. Raises BadInput if it is a file, cannot be written, or holds something else."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    except FileExistsError:
        raise BadInput(f"--out {folder}: is a file. Give a folder.") from None
    except OSError as error:
        raise BadInput(f"--out {folder}: cannot be written ({error.strerror}). Give another folder.") from None
    strange = sorted(others - {"questions.parquet"})  # a run that was killed as it began has that alone
    if strange and "run.json" not in others:
        raise BadInput(f"--out {folder}: holds other files ({', '.join(strange[:3])}). Give an empty or new folder.")


@contextmanager
def report_disk_errors(folder: Path) -> Iterator[None]:
    """A full disk or a read-only folder ends in one clear line; the journal keeps every whole line it has."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_ERRNOS:
            raise
        raise BadInput(
            f"{folder}: cannot be written ({error.strerror}). Answers written so far are whole; make room, or give a folder you may "
            "write to, and run the same command again."
        ) from None
