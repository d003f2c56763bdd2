"""Forecast the tasks of a sweep: questions, tokens, cost, and hours where the model has answered before.

No model is loaded: a stand-in takes its part. See also: the forecast of one run, `--dry-run` (`runs/dry_run.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.models.interface import Backend, Settings
from eval_harness.models.load import load_backend
from eval_harness.records.request import Request, Response
from eval_harness.records.result import UNDELIVERED, Model
from eval_harness.records.run import read_run
from eval_harness.runs.dry_run import (
    JUDGE_NOTE,
    REASONING_NOTE,
    RunSize,
    estimate_size,
    may_reason,
    round_to_two_digits,
)
from eval_harness.runs.plan import Plan, make_plan
from eval_harness.runs.requests import Instance
from eval_harness.runs.shards import read_answer_records
from eval_harness.sweep.tasks import SweepTask, label_of

NOTHING = RunSize()


class StandIn(Backend):
    """Says of a model what a plan needs to know before the model is loaded; answers nothing."""

    needs_images = True
    one_token = True
    several_images = True  # a model that takes one image a question says so when it is loaded

    def __init__(self, model: str) -> None:
        self.model = Model(name=label_of(model))
        self.deviations: list[str] = []
        self.is_api = model.startswith(("openai:", "azure:"))

    def generate(self, requests: Sequence[Request]) -> Any:
        raise NotImplementedError

    def score(self, requests: Sequence[Request]) -> Iterable[Response]:
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        return {}


def stand_in(model: str, settings: Settings) -> Backend:
    """Stand-in for the model when planning; the model itself if it costs nothing (recorded answers, rule-based baselines)."""
    return load_backend(model, settings) if model.startswith(("baseline:", "recorded:")) else StandIn(model)


@dataclass(frozen=True)
class Forecast:
    """A task before it is run. `plan` is None, and `problem` says why, where it cannot be. `waiting`: what it has still to ask.

    `size`: what that is. `seconds`: of one answer, from those the task has already; None where it has none.
    """

    task: SweepTask
    plan: Plan | None = None
    waiting: Sequence[Instance] = ()
    size: RunSize = NOTHING
    seconds: float | None = None
    problem: str | None = None

    @property
    def is_done(self) -> bool:
        return self.problem is None and not self.waiting and self.task.result is not None


def forecast(tasks: Sequence[SweepTask]) -> list[Forecast]:
    """The remaining work of each task. Reads datasets and journals; writes nothing."""
    return [_forecast(task) for task in tasks]


def _forecast(task: SweepTask) -> Forecast:
    try:
        plan = make_plan(task.config, stand_in)
        records = _answered(task, plan)
        waiting = [
            each for each in plan.instances if records.get(plan.key(each), {}).get("status", "missing") in UNDELIVERED
        ]
        planned = {plan.key(each) for each in plan.instances}
        if task.result is not None and planned <= records.keys():
            waiting = []  # failed questions were asked, and are reported in the result
        size = estimate_size(plan, waiting, images=16) if waiting else NOTHING
    except BadInput as error:
        return Forecast(task, problem=str(error))
    seconds = [record["seconds"] for record in records.values() if record.get("seconds")]
    at_once = task.config.settings.in_flight if plan.backend.is_api else 1
    return Forecast(task, plan, waiting, size, mean(seconds) / at_once if seconds else None)


def _answered(task: SweepTask, plan: Plan) -> dict[tuple[str, int], dict[str, Any]]:
    """The answers already in the task's run folder; none if they are for another dataset, which the run itself refuses."""
    if not (task.folder / "run.json").exists():
        return {}
    if read_run(task.folder).request.fingerprint != plan.selection.fingerprint:
        return {}
    return read_answer_records(task.folder)


def hours(each: Forecast, everything: Sequence[Forecast]) -> float | None:
    """Hours until a task is done, as fast as it went so far, or as the same model went elsewhere; None where it answered nothing yet."""
    if not each.waiting:
        return 0.0
    known = [other.seconds for other in everything if other.seconds and other.task.model == each.task.model]
    seconds = each.seconds or (mean(known) if known else None)
    return None if seconds is None else seconds * len(each.waiting) / 3600


def before(everything: Sequence[Forecast]) -> str:
    """The table that is printed before a sweep begins."""
    heads = (
        "task",
        "model",
        "benchmark",
        "method",
        "to ask",
        "tokens in",
        "tokens out at most",
        "cost at most",
        "hours",
    )
    rows, times = [heads], []
    for each in everything:
        task, size = each.task, each.size
        numbers = ("done" if each.is_done else "cannot run", "", "", "", "")
        if not each.problem and not each.is_done:
            times.append(hours(each, everything))
            cost = f"{size.cost_in + size.cost_out:.2f}" if task.config.settings.price else ""
            said = "?" if times[-1] is None else f"{times[-1]:.2f}"
            numbers = (
                f"{len(each.waiting):,}",
                round_to_two_digits(size.tokens_in),
                round_to_two_digits(size.tokens_out),
                cost,
                said,
            )
        rows.append((str(task.number), task.label, task.benchmark, task.how, *numbers))
    lines = [aligned(rows), str(sum((each.size for each in everything), NOTHING))]
    known = [time for time in times if time is not None]
    lines[-1] += f"; {sum(known):.2f} hours, one task after the other" if known else ""
    if unknown := len(times) - len(known):
        lines[-1] += f"; how long {unknown} of {len(times)} tasks take is unknown (--first 16 measures it)"
    asking = [each for each in everything if each.waiting and each.plan]
    if any(may_reason(each.plan) for each in asking if each.plan):
        lines.append(REASONING_NOTE)
    if any(each.task.config.judge for each in asking):
        lines.append(JUDGE_NOTE)
    return "\n".join(lines)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """The rows, whose first one has the names of the columns, under each other."""
    return pd.DataFrame(rows[1:], columns=list(rows[0])).to_string(index=False)
