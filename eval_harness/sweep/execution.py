"""Run the tasks of a sweep: on this machine, on a Ray cluster, or as an array of Slurm.

On this machine they run one after the other, in one process per model. The process keeps its model
loaded for the model's other tasks. A process that dies (out of memory, a crash in a library) fails
only its current task; the next task gets a new process.

On a cluster, actors load the model and answer parts of its runs (`ray.util.ActorPool`). Ray
restarts an actor that dies and gives it the same part again. Each time an actor starts, it opens
its own journal and asks only questions that no journal of the run contains, so no question is asked
twice. All nodes must share the folders. This process holds the run folders' locks (`Shard.claim`);
once all parts of a model are done, it merges the journals and scores the runs. After a crash it
resumes from the journals.

See also: the forecast, which gives the remaining questions (`tasks.py`).
"""

import os
import shlex
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput, describe_error, first_line
from dataset_builders.ray_cluster import NODE_CHECK_INTERVAL_S, RayCluster, check_nodes, ray_connection
from eval_harness.models.load import CachingLoader
from eval_harness.runs.ask import ask, make_sender
from eval_harness.runs.dry_run import check_sending_allowed
from eval_harness.runs.plan import Plan, make_plan
from eval_harness.runs.requests import MAX_REQUESTS_PER_BATCH, Instance
from eval_harness.runs.run_folder import (
    AnswerJournal,
    Shard,
    folder_lock,
    make_run_folder,
    merge_journals,
    read_answer_records,
    report_disk_errors,
)
from eval_harness.runs.runner import begin_run, run_evaluation, score_run, update_run_record
from eval_harness.sweep.tasks import Forecast, SweepTask

PROCESS_DIED = "the process died: out of memory, or a crash in a library"


@dataclass(frozen=True)
class TaskResult:
    """Outcome of a task. `error`: one line; None if the task is done."""

    task: SweepTask
    error: str | None = None


# One cache for the life of a process: its tasks share the loaded model.
_load_cached = CachingLoader()


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
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(traceback.format_exception(error)), "utf-8")
        location = f"traceback in {path}"
    return f"{describe_error(error)} ({location})"


MAX_PART_RETRIES = 4
"""How many times a part is retried after an actor died while working on it."""

Part = tuple[SweepTask, list[Instance]]


class Worker:
    """An actor with one model, and a journal for each task it works on."""

    def __init__(self, folder: str) -> None:
        os.chdir(folder)  # relative paths in the sweep file start from the folder of the command
        self._started: dict[int, tuple[Plan, Path] | str] = {}
        """Task number -> its plan and journal, or why it cannot be run."""

    def answer(self, task: SweepTask, instances: Sequence[Instance]) -> tuple[int, str | None]:
        """Ask the questions of one part of a task, except those already in a journal.

        Args:
            task: The task that the part belongs to.
            instances: Questions and sample numbers of the part.

        Returns:
            (task number, error line), with None instead of an error when the part is done.
        """
        try:
            with report_disk_errors(task.folder):
                started = self._started.get(task.number) or self._start(task)
                if isinstance(started, str):
                    return task.number, started
                plan, path = started
                with AnswerJournal(path, read_answer_records(task.folder).values()) as journal:
                    ask(plan, journal, list(instances), make_sender(plan))
                update_run_record(task.folder, plan.run, plan.backend)
        except Exception as error:
            # Remembered, so that the task's other parts fail at once.
            self._started[task.number] = message = error_line(error, task)
            return task.number, message
        return task.number, None

    def _start(self, task: SweepTask) -> tuple[Plan, Path]:
        plan = make_plan(task.config, _load_cached)
        check_sending_allowed(plan)
        with folder_lock(task.folder):
            started = begin_run(task.folder, plan, Shard()), Shard().new_journal(task.folder)
        self._started[task.number] = started
        return started


def run_tasks_on_ray(
    forecasts: Sequence[Forecast], cluster: RayCluster, max_questions: int | None = None
) -> Iterator[TaskResult]:
    """Run the unfinished tasks on a Ray cluster.

    Args:
        forecasts: Every task of the sweep; finished ones and those with a problem are skipped.
        cluster: Address, number of workers and resources of each.
        max_questions: Ask only this many questions of each task; None asks all.

    Yields:
        The outcome of each task, once all parts of its model are done.

    Raises:
        BadInput: If there is no cluster, or none of its nodes has the resources of a worker.
    """
    unfinished = [forecast for forecast in forecasts if not forecast.is_done and not forecast.problem]
    with ray_connection(cluster) as ray:
        by_number = sorted(unfinished, key=lambda forecast: forecast.task.number)
        for model, model_forecasts in groupby(by_number, lambda forecast: forecast.task.model):
            # vLLM's server divides its work among GPUs itself, so one worker asks one server.
            workers = 1 if model.startswith("vllm:") else cluster.workers
            with ExitStack() as locks:
                started: list[Forecast] = []
                for forecast in model_forecasts:
                    try:
                        make_run_folder(forecast.task.folder)
                        locks.enter_context(Shard().claim(forecast.task.folder))
                    except BadInput as error:  # e.g. another process is working in the folder
                        yield TaskResult(forecast.task, str(error))
                    else:
                        started.append(forecast)

                parts = [part for forecast in started for part in split_into_parts(forecast, workers, max_questions)]
                errors, death = _answer_parts(ray, replace(cluster, workers=workers), parts)
                for forecast in started:
                    message = errors.get(forecast.task.number)
                    yield (
                        TaskResult(forecast.task, message) if message else _finish_task(forecast, max_questions, death)
                    )


def split_into_parts(forecast: Forecast, workers: int, max_questions: int | None = None) -> list[Part]:
    """Split the remaining questions of a task into parts for the actors.

    A part holds whole cases, so that an actor reads each image once.

    Args:
        forecast: The task with its plan and remaining questions.
        workers: Number of actors; each gets about four parts.
        max_questions: Take only this many questions; None takes all.

    Returns:
        Parts of at most about `MAX_REQUESTS_PER_BATCH` questions, in the order of the plan.
    """
    assert forecast.plan is not None
    cases = forecast.plan.selection.questions["case_id"].tolist()
    waiting = list(forecast.waiting)[:max_questions]
    size = max(1, min(MAX_REQUESTS_PER_BATCH, -(-len(waiting) // (4 * workers))))
    parts: list[Part] = []
    for _, case in groupby(waiting, lambda instance: cases[instance[0]]):
        if not parts or len(parts[-1][1]) >= size:
            parts.append((forecast.task, []))
        parts[-1][1].extend(case)
    return parts


def _answer_parts(ray: Any, cluster: RayCluster, parts: Sequence[Part]) -> tuple[dict[int, str], str | None]:
    """Let actors answer the parts.

    Returns (errors, death): `errors` maps task numbers to why the task cannot be run; `death` is
    Ray's last message about a part on which too many actors died, None if there was none.
    """
    errors: dict[int, str] = {}
    death: str | None = None
    options = {**cluster.resources, "max_restarts": -1, "max_task_retries": MAX_PART_RETRIES}
    actors = [
        ray.remote(Worker).options(**options).remote(str(Path.cwd())) for _ in range(min(cluster.workers, len(parts)))
    ]
    pool = ray.util.ActorPool(actors)

    # The pool gives each part to the next actor that becomes free.
    for part in parts:
        pool.submit(lambda actor, arguments: actor.answer.remote(*arguments), part)
    while pool.has_next():
        try:
            number, error = pool.get_next_unordered(timeout=NODE_CHECK_INTERVAL_S)
        except TimeoutError:
            # Ray waits forever for an actor that fits on none of the remaining nodes.
            check_nodes(ray, cluster)
        except ray.exceptions.RayError as ray_error:
            death = first_line(ray_error)
        else:
            if error is not None:
                errors[number] = error

    for actor in actors:
        ray.kill(actor)
    return errors, death


def _finish_task(forecast: Forecast, max_questions: int | None, death: str | None) -> TaskResult:
    """Merge the journals of a task, and score it if all of its questions were asked."""
    task, plan = forecast.task, forecast.plan
    assert plan is not None
    try:
        with report_disk_errors(task.folder), folder_lock(task.folder):
            answered_keys = merge_journals(task.folder)
            if answered_keys.issuperset(map(plan.key, plan.instances)):
                score_run(task.folder)
                return TaskResult(task)

            # With --first, questions that were never handed out are not missing.
            requested = [plan.key(instance) for instance in list(forecast.waiting)[:max_questions]]
            if missing := [name for name, sample in requested if (name, sample) not in answered_keys]:
                cause = f"{1 + MAX_PART_RETRIES} workers died on question {missing[0]} or one soon after it"
                return TaskResult(task, f"{cause} ({death}); all answers so far are stored")
    except Exception as error:
        return TaskResult(task, error_line(error, task))
    return TaskResult(task)


def slurm_script(tasks: Sequence[SweepTask], sweep_file: Path, out: Path, max_questions: int | None = None) -> str:
    """Write a batch script for `sbatch`: an array with one element per task.

    All nodes must share the folders. The script names tasks by their run folders, because their
    numbers change if the sweep file is edited while the job is queued.

    Args:
        tasks: The tasks to run.
        sweep_file: The sweep file.
        out: Folder of the run folders and of Slurm's logs.
        max_questions: Ask only this many questions of each task; None asks all.

    Returns:
        The script.
    """
    command = shlex.join(
        [
            "medprobe",
            "sweep",
            str(sweep_file),
            "--out",
            str(out),
            *(["--first", str(max_questions)] if max_questions else []),
        ]
    )
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --job-name={shlex.quote(f'medprobe-{sweep_file.stem}')}",
            f"#SBATCH --array={','.join(str(task.number) for task in tasks)}",
            f"#SBATCH --output={shlex.quote(f'{out}/slurm-%A_%a.log')}",
            "#SBATCH --requeue",
            "# Add what a model needs: --gres=gpu:1, --mem, --time, --partition.",
            f"cd {shlex.quote(str(Path.cwd()))}",
            "TASKS=(",
            *(f"    [{task.number}]={shlex.quote(task.folder.name)}" for task in tasks),
            ")",
            f'srun {command} --task "${{TASKS[$SLURM_ARRAY_TASK_ID]}}"',
        ]
    )
