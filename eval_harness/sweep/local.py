"""Run sweep tasks on this machine, one after the other, in one process per model.

The process keeps its model loaded for the model's other tasks. A process that dies (out of memory,
a crash in a library) fails only its current task; the next task gets a new process.
"""

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
from eval_harness.models.load import CachingLoader
from eval_harness.runs.runner import run_evaluation
from eval_harness.sweep.tasks import SweepTask

PROCESS_DIED = "the process died: out of memory, or a crash in a library"


@dataclass(frozen=True)
class TaskResult:
    """Outcome of a task. `error`: one line; None if the task is done."""

    task: SweepTask
    error: str | None = None


def run_tasks_locally(tasks: Iterable[SweepTask], max_questions: int | None = None) -> Iterator[TaskResult]:
    """Run tasks one after the other, in one process per model.

    Args:
        tasks: The tasks. They run in the order of their numbers, which puts those of one model next
            to each other.
        max_questions: Ask only this many questions of each task; None asks all.

    Yields:
        The outcome of each task.
    """
    for _, model_tasks in groupby(sorted(tasks, key=lambda task: task.number), key=lambda task: task.model):
        waiting = list(model_tasks)
        while waiting:
            # "spawn": CUDA cannot be used in a forked process.
            with ProcessPoolExecutor(1, get_context("spawn"), initializer=exit_with_parent) as process:
                while waiting:
                    task = waiting.pop(0)
                    try:
                        yield process.submit(run_task, task, max_questions).result()
                    except BrokenProcessPool:  # leave the pool; the outer loop starts a new one
                        yield TaskResult(task, PROCESS_DIED)
                        break


def exit_with_parent() -> None:
    """End this process as soon as its parent is gone.

    Otherwise a killed sweep would leave it running, with its memory and the run folder's lock.
    """
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)  # as if killed: the journal holds every answer

    threading.Thread(target=watch, daemon=True).start()


def run_task(task: SweepTask, max_questions: int | None = None) -> TaskResult:
    """Run one task in this process.

    The model stays loaded for the next task that uses it with the same settings.

    Args:
        task: The task.
        max_questions: Ask only this many questions; None asks all.

    Returns:
        The outcome. Never raises for a task that fails.
    """
    try:
        run_evaluation(task.config, _load_cached, max_questions)
    except Exception as error:
        return TaskResult(task, error_line(error, task))
    _traceback_file(task).unlink(missing_ok=True)
    return TaskResult(task)


def _traceback_file(task: SweepTask) -> Path:
    return task.folder.with_name(f"{task.folder.name}.error.txt")


def error_line(error: Exception, task: SweepTask) -> str:
    """Format an exception in one line.

    The message of a BadInput is returned unchanged. Any other exception is a defect: its traceback
    is written next to the run folder.

    Args:
        error: The exception.
        task: The task that raised it.

    Returns:
        The line, with the path of the traceback file if there is one.
    """
    if isinstance(error, BadInput):
        return str(error)
    path = _traceback_file(task)
    location = "the traceback could not be written"
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(traceback.format_exception(error)), "utf-8")
        location = f"traceback in {path}"
    return f"{describe_error(error)} ({location})"


# One cache for the life of the process: its tasks share the loaded model.
_load_cached = CachingLoader()
