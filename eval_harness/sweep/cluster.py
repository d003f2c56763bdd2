"""Running tasks on a Ray cluster, one model after the other: actors hold the model and take parts of its runs (`ray.util.ActorPool`).

Ray restarts an actor that dies and gives it its part again. Each time it begins, an actor writes a journal of its own and asks what no
journal of the run holds, so that nothing is asked twice. The folders are shared by the nodes; this process holds the run folders
(`Shard().taking_part`), and puts the journals together and scores once a model's parts are done. Killed, it goes on where the journals are.

See also: the forecast that says what is left (`forecast.py`), running without Ray (`local.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput, first_line
from dataset_builders.ray_cluster import NODE_CHECK_INTERVAL_S, RayCluster, check_nodes, ray_connection
from eval_harness.models.load import keep_loaded
from eval_harness.runs.ask import ask
from eval_harness.runs.dry_run import check_sending_allowed
from eval_harness.runs.plan import Plan, make_plan
from eval_harness.runs.reply_cache import make_sender
from eval_harness.runs.requests import MAX_REQUESTS_PER_BATCH, Instance
from eval_harness.runs.run_folder import AnswerJournal, make_run_folder, report_disk_errors
from eval_harness.runs.run_scoring import score_run
from eval_harness.runs.runner import begin_run, update_run_record
from eval_harness.runs.shards import Shard, case_numbers, folder_lock, merge_journals, read_answer_records
from eval_harness.sweep.forecast import Forecast
from eval_harness.sweep.local import TaskResult, in_one_line
from eval_harness.sweep.tasks import SweepTask

RETRIES = 4
"""How often a part is given to an actor again after one has died on it."""

Part = tuple[SweepTask, list[Instance]]


class Worker:
    """An actor: one model, and for each task it meets a journal."""

    def __init__(self, folder: str) -> None:
        os.chdir(folder)  # paths of the sweep file are those of the folder it was started in
        self._load = keep_loaded()
        self._begun: dict[int, tuple[Plan, Path] | str] = {}
        """Number of a task -> its plan and journal, or why it cannot be run."""

    def answer(self, task: SweepTask, instances: Sequence[Instance]) -> tuple[int, str | None]:
        """Ask what no journal holds of a part of a task; returns the task's number, and why that cannot be done, None where it is done."""
        try:
            with report_disk_errors(task.folder):
                begun = self._begun.get(task.number) or self._begin(task)
                if isinstance(begun, str):
                    return task.number, begun
                plan, path = begun
                with AnswerJournal(path, read_answer_records(task.folder).values()) as journal:
                    ask(plan, journal, list(instances), make_sender(plan))
                update_run_record(task.folder, plan.run, plan.backend)
        except Exception as error:
            self._begun[task.number] = said = in_one_line(error, task)
            return task.number, said
        return task.number, None

    def _begin(self, task: SweepTask) -> tuple[Plan, Path]:
        plan = make_plan(task.config, self._load)
        check_sending_allowed(plan)
        with folder_lock(task.folder):
            found = begin_run(task.folder, plan, Shard()), Shard().new_journal(task.folder)
        self._begun[task.number] = found
        return found


def run_on_ray(expected: Sequence[Forecast], cluster: RayCluster, first: int | None = None) -> Iterator[TaskResult]:
    """Run the tasks that are not done. Raises BadInput if there is no cluster, or none of its nodes has what a worker needs."""
    open_tasks = [each for each in expected if not each.is_done and not each.problem]
    with ray_connection(cluster) as ray:
        for _, group in groupby(sorted(open_tasks, key=lambda each: each.task.number), lambda each: each.task.model):
            with ExitStack() as held:
                begun: list[Forecast] = []
                for each in group:
                    try:
                        make_run_folder(each.task.folder)
                        held.enter_context(Shard().taking_part(each.task.folder))
                    except BadInput as error:
                        yield TaskResult(each.task, str(error))
                    else:
                        begun.append(each)
                parts = [part for each in begun for part in parts_of(each, cluster.workers, first)]
                errors, death = _answered(ray, cluster, parts)
                for each in begun:
                    said = errors.get(each.task.number)
                    yield TaskResult(each.task, said) if said else _finished(each, first, death)


def parts_of(each: Forecast, workers: int, first: int | None = None) -> list[Part]:
    """The remaining questions of a task, in parts of whole cases, so that an actor reads each image once."""
    assert each.plan is not None
    cases = case_numbers(each.plan.selection.questions)
    waiting = list(each.waiting)[:first]
    size = max(1, min(MAX_REQUESTS_PER_BATCH, -(-len(waiting) // (4 * workers))))
    parts: list[Part] = []
    for _, case in groupby(waiting, lambda instance: cases[each.plan.key(instance)[0]]):  # type: ignore[union-attr]
        if not parts or len(parts[-1][1]) >= size:
            parts.append((each.task, []))
        parts[-1][1].extend(case)
    return parts


def _answered(ray: Any, cluster: RayCluster, parts: Sequence[Part]) -> tuple[dict[int, str], str | None]:
    """Let actors answer the parts; returns number of a task -> why it cannot be run, and what Ray said last of a part on which actors died
    too often."""
    errors: dict[int, str] = {}
    death: str | None = None
    options = {**cluster.resources, "max_restarts": -1, "max_task_retries": RETRIES}
    count = min(cluster.workers, len(parts))
    actors = [ray.remote(Worker).options(**options).remote(str(Path.cwd())) for _ in range(count)]
    pool = ray.util.ActorPool(actors)

    for part in parts:
        pool.submit(lambda actor, given: actor.answer.remote(*given), part)
    while pool.has_next():
        try:
            number, error = pool.get_next_unordered(timeout=NODE_CHECK_INTERVAL_S)
        except TimeoutError:
            check_nodes(ray, cluster)
        except ray.exceptions.RayError as died:
            death = first_line(died)
        else:
            if error is not None:
                errors[number] = error
    for actor in actors:
        ray.kill(actor)
    return errors, death


def _finished(each: Forecast, first: int | None, death: str | None) -> TaskResult:
    """Put the journals of a task together and score it, where all of it was asked."""
    task, plan = each.task, each.plan
    assert plan is not None
    try:
        with report_disk_errors(task.folder), folder_lock(task.folder):
            asked = merge_journals(task.folder)
            if asked.issuperset(map(plan.key, plan.instances)):
                score_run(task.folder)
                return TaskResult(task)
            left = [plan.key(instance) for instance in list(each.waiting)[:first]]
            if missing := [name for name, sample in left if (name, sample) not in asked]:
                died = f"{1 + RETRIES} workers died on question {missing[0]} or the next ones"
                return TaskResult(task, f"{died} ({death}); the answers so far are kept")
    except Exception as error:
        return TaskResult(task, in_one_line(error, task))
    return TaskResult(task)
