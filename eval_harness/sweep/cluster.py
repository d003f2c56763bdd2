"""Running tasks on a Ray cluster: workers take leases, each writes a journal of its own, and the sweep puts them together.

The folders are shared by the nodes. A worker is a Ray actor with one model; when it dies, what its journal lacks of its lease goes to
another one. This process holds the run folders (`Shard().taking_part`), reads the journals without writing to them while workers live,
and scores a task once all of it was asked. Killed, it goes on where the journals are.

See also: who has what (`leases.py`), running without Ray (`local.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput
from dataset_builders.ray_cluster import CHECK_AFTER, Cluster, check_nodes, connected
from eval_harness.runs.ask import ask
from eval_harness.runs.folder import AnswerJournal, disk_errors, make_run_folder
from eval_harness.runs.planning.permission import check_sending
from eval_harness.runs.planning.plan import Plan, make_plan
from eval_harness.runs.planning.requests import Instance
from eval_harness.runs.resume import begin, record_findings
from eval_harness.runs.scoring import score_run
from eval_harness.runs.shards import Shard, answers_of, case_numbers, folder_lock, put_together
from eval_harness.sweep.forecast import Forecast
from eval_harness.sweep.leases import MOST_DEATHS, Lease, Leases
from eval_harness.sweep.local import Outcome, in_one_line, keep_loaded
from eval_harness.sweep.tasks import Task


class Worker:
    """What runs in a worker's process: one model, and for each task it meets a journal."""

    def __init__(self, folder: str) -> None:
        os.chdir(folder)  # paths of the sweep file are those of the folder it was started in
        self._load = keep_loaded()
        self._begun: dict[int, tuple[Plan, Path]] = {}

    def answer(self, task: Task, instances: Sequence[Instance]) -> str | None:
        """Ask these instances of a task; returns why that cannot be done, None where it is done."""
        try:
            with disk_errors(task.folder):
                plan, path = self._begun.get(task.number) or self._begin(task)
                with AnswerJournal(path) as journal:
                    ask(plan, journal, list(instances))
                record_findings(task.folder, plan.run, plan.backend)
        except Exception as error:
            return in_one_line(error, task)
        return None

    def _begin(self, task: Task) -> tuple[Plan, Path]:
        plan = make_plan(task.config, self._load)
        check_sending(plan)
        with folder_lock(task.folder):
            found = begin(task.folder, plan, Shard()), Shard().new_journal(task.folder)
        self._begun[task.number] = found
        return found


def run_on_ray(expected: Sequence[Forecast], cluster: Cluster, first: int | None = None) -> Iterator[Outcome]:
    """Run the tasks that are not done. Raises BadInput where there is no cluster, or none of its nodes has what a worker needs."""
    with connected(cluster) as ray, ExitStack() as held:
        run = _Sweep(cluster, ray)
        for each in expected:
            if not each.is_done and not each.problem:
                yield from run.begin(each, held, first)
        yield from run.outcomes()


class _Sweep:
    """The sweep as this process sees it."""

    def __init__(self, cluster: Cluster, ray: Any) -> None:
        self.cluster, self._ray = cluster, ray
        self.leases = Leases()
        self.plans: dict[int, tuple[Task, Plan, dict[str, int], Sequence[Instance]]] = {}
        self.workers: dict[str, tuple[Any, str]] = {}
        """Name -> (actor, model)."""
        self.busy: dict[Any, str] = {}
        """Ray's reference to a lease's end -> name of the worker."""
        self._count = 0

    def begin(self, each: Forecast, held: ExitStack, first: int | None) -> Iterator[Outcome]:
        """Hold the run folder of a task and cut what it has still to ask into leases."""
        task, plan = each.task, each.plan
        assert plan is not None
        try:
            make_run_folder(task.folder)
            held.enter_context(Shard().taking_part(task.folder))
        except BadInput as error:
            yield Outcome(task, str(error))
            return
        cases = case_numbers(plan.selection.questions)
        waiting = list(each.waiting)[:first]
        self.plans[task.number] = task, plan, cases, waiting
        numbers = [cases[plan.key(instance)[0]] for instance in waiting]
        self.leases.add(task.number, task.model, waiting, numbers, self.cluster.workers)
        if not waiting:
            yield self._finish(task.number)

    def outcomes(self) -> Iterator[Outcome]:
        """Hand out leases until none is open; an outcome per task, as it ends."""
        self._hand_out()
        while self.busy:
            done, _ = self._ray.wait(list(self.busy), num_returns=1, timeout=CHECK_AFTER)
            if not done:
                check_nodes(self._ray, self.cluster)
                continue
            [ready] = done
            name = self.busy.pop(ready)
            try:
                error = self._ray.get(ready)
            except self._ray.exceptions.RayError as death:
                outcome = self._died(name, death)
            else:
                lease = self.leases.done(name)
                if error is not None and lease.task not in self.leases.failed:
                    self.leases.fail(lease.task)
                    outcome = Outcome(self.plans[lease.task][0], error)
                else:
                    outcome = None if lease.task in self.leases.failed else self._finish_if_last(lease)
            if outcome is not None:
                yield outcome
            self._hand_out()

    def _hand_out(self) -> None:
        """Give every free worker a lease; a worker whose model has none left makes room for another model's."""
        working = set(self.busy.values())
        for name in [name for name in self.workers if name not in working]:
            if not self._lend(name):
                self._stop(name)
        while len(self.workers) < self.cluster.workers:
            model = self.leases.next_model(model for _, model in self.workers.values())
            if model is None:
                return
            self._lend(self._start(model))

    def _lend(self, name: str) -> bool:
        actor, model = self.workers[name]
        lease = self.leases.take(name, model)
        if lease is None:
            return False
        self.busy[actor.answer.remote(self.plans[lease.task][0], lease.instances)] = name
        return True

    def _start(self, model: str) -> str:
        self._count += 1
        name = f"worker {self._count}"
        self.workers[name] = self._ray.remote(Worker).options(**self.cluster.resources).remote(str(Path.cwd())), model
        return name

    def _stop(self, name: str) -> None:
        self._ray.kill(self.workers.pop(name)[0])

    def _died(self, name: str, death: Exception) -> Outcome | None:
        """What the dead worker's journal lacks goes to another one; a lease that kills every worker fails its task."""
        lease = self.leases.held[name]
        self._stop(name)
        task, plan, cases, _ = self.plans[lease.task]
        answered = answers_of(task.folder, cases)
        left = [instance for instance in lease.instances if plan.key(instance) not in answered]
        if not left:
            self.leases.done(name)
            return None if lease.task in self.leases.failed else self._finish_if_last(lease)
        if self.leases.died(name, left) is None:
            return None
        why = str(death).strip().partition("\n")[0]
        return Outcome(task, f"{MOST_DEATHS} workers died on question {plan.key(left[0])[0]} or the next ones ({why})")

    def _finish_if_last(self, lease: Lease) -> Outcome | None:
        return None if self.leases.is_open(lease.task) else self._finish(lease.task)

    def _finish(self, number: int) -> Outcome:
        """Put the journals of a task together and score it, where all of it was asked."""
        task, plan, cases, _ = self.plans[number]
        try:
            with disk_errors(task.folder), folder_lock(task.folder):
                if put_together(task.folder, cases).issuperset(map(plan.key, plan.instances)):
                    score_run(task.folder)
        except Exception as error:
            return Outcome(task, in_one_line(error, task))
        return Outcome(task)
