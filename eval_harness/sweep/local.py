"""Running tasks on this machine, one after the other: a process for each model, which keeps it loaded for the model's other tasks.

A process that dies (out of memory, a crash in a library) fails only its task; the next task gets a new process.
"""

from __future__ import annotations

import contextlib
import os
import threading
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import groupby
from multiprocessing import get_context, parent_process
from pathlib import Path

from dataset_builders.errors import BadInput, describe_error
from eval_harness.models.load import keep_loaded
from eval_harness.runs.runner import run_evaluation
from eval_harness.sweep.tasks import SweepTask

DIED = "the process died: out of memory, or a crash in a library"


@dataclass(frozen=True)
class TaskResult:
    """Outcome of a task: `error` in one line, None if it is done."""

    task: SweepTask
    error: str | None = None


def run_locally(tasks: Iterable[SweepTask], first: int | None = None) -> Iterator[TaskResult]:
    """Run the tasks, those of a model after each other; `first`: only so many questions of each."""
    for _, group in groupby(sorted(tasks, key=lambda task: task.number), key=lambda task: task.model):
        waiting = list(group)
        while waiting:
            with ProcessPoolExecutor(1, get_context("spawn"), initializer=end_with_parent) as process:
                while waiting:
                    task = waiting.pop(0)
                    try:
                        yield process.submit(run_in_this_process, task, first).result()
                    except BrokenProcessPool:
                        yield TaskResult(task, DIED)
                        break


def end_with_parent() -> None:
    """End this process when the one that started it is gone: killed, it would leave this one with its memory and the run folder's lock."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)  # as if killed: the journal holds every answer

    threading.Thread(target=watch, daemon=True).start()


def run_in_this_process(task: SweepTask, first: int | None = None) -> TaskResult:
    """Run one task; the model stays loaded for the next one that takes it with the same settings."""
    try:
        run_evaluation(task.config, _kept_loaded, first)
    except Exception as error:
        return TaskResult(task, in_one_line(error, task))
    _traceback_file(task).unlink(missing_ok=True)
    return TaskResult(task)


def _traceback_file(task: SweepTask) -> Path:
    return task.folder.with_name(f"{task.folder.name}.error.txt")


def in_one_line(error: Exception, task: SweepTask) -> str:
    """Bad input as it says itself; for anything else, which is a defect, the traceback is kept beside the run folders."""
    if isinstance(error, BadInput):
        return str(error)
    path = _traceback_file(task)
    where = "the traceback could not be written"
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(traceback.format_exception(error)), "utf-8")
        where = f"traceback in {path}"
    return f"{describe_error(error)} ({where})"


_kept_loaded = keep_loaded()
