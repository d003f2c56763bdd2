"""Forecast the tasks of a sweep: questions, tokens, cost, and hours for models with timed answers.

No model is loaded; a stand-in takes its place. See also: the forecast of one run, `--dry-run`
(`runs/dry_run.py`).
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
from eval_harness.sweep.tasks import SweepTask, model_label

NO_WORK = RunSize()


class StandIn(Backend):
    """Stand in for a model that is not loaded: it has what a plan needs, but cannot answer."""

    needs_images = True
    one_token = True
    several_images = True  # a model that takes one image per question is refused when it is loaded

    def __init__(self, model: str) -> None:
        self.model = Model(name=model_label(model))
        self.deviations: list[str] = []
        self.uses_http = model.startswith(("openai:", "azure:", "vllm:"))

    def generate(self, requests: Sequence[Request]) -> Any:
        raise NotImplementedError

    def score(self, requests: Sequence[Request]) -> Iterable[Response]:
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        return {}


def stand_in(model: str, settings: Settings) -> Backend:
    """Return a back end with which a run can be planned.

    Args:
        model: A `--model` argument.
        settings: Model options of the run.

    Returns:
        A stand-in, or the model itself if loading it is cheap (recorded answers, baselines).

    Raises:
        BadInput: If a recorded file or a baseline cannot be loaded.
    """
    return load_backend(model, settings) if model.startswith(("baseline:", "recorded:")) else StandIn(model)


@dataclass(frozen=True)
class Forecast:
    """A task and the work that remains to be done for it."""

    task: SweepTask
    plan: Plan | None = None
    """None if the task cannot be run (see `problem`)."""
    waiting: Sequence[Instance] = ()
    """Questions that have no answer yet."""
    size: RunSize = NO_WORK
    """Tokens, images and cost of the waiting questions."""
    seconds: float | None = None
    """Mean seconds per answer so far; None if the task has no timed answers."""
    problem: str | None = None
    """Why the task cannot be run."""

    @property
    def is_done(self) -> bool:
        """True if every question was asked and the task has a result."""
        return self.problem is None and not self.waiting and self.task.result is not None


def forecast_tasks(tasks: Sequence[SweepTask]) -> list[Forecast]:
    """Forecast the remaining work of each task. Reads datasets and journals; writes nothing."""
    return [_forecast_task(task) for task in tasks]


def _forecast_task(task: SweepTask) -> Forecast:
    try:
        plan = make_plan(task.config, stand_in)
        records = _stored_answers(task, plan)
        waiting = [
            instance
            for instance in plan.instances
            if records.get(plan.key(instance), {}).get("status", "missing") in UNDELIVERED
        ]
        planned_keys = {plan.key(instance) for instance in plan.instances}
        if task.result is not None and planned_keys <= records.keys():
            # Failed questions were asked as well; the result reports them.
            waiting = []
        size = estimate_size(plan, waiting, images=16) if waiting else NO_WORK
    except BadInput as error:
        return Forecast(task, problem=str(error))

    seconds = [record["seconds"] for record in records.values() if record.get("seconds")]
    # A server answers several questions at once, so the wall-clock time per answer is shorter.
    concurrency = task.config.settings.in_flight if plan.backend.uses_http else 1
    return Forecast(task, plan, waiting, size, mean(seconds) / concurrency if seconds else None)


def _stored_answers(task: SweepTask, plan: Plan) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the answers that are already in the task's run folder.

    If they belong to another dataset, nothing is returned: the run would refuse to continue them.
    """
    has_run = (task.folder / "run.json").exists()
    if not has_run or read_run(task.folder).request.fingerprint != plan.selection.fingerprint:
        return {}
    return read_answer_records(task.folder)


def remaining_hours(forecast: Forecast, all_forecasts: Sequence[Forecast]) -> float | None:
    """Estimate the hours until a task is done.

    Args:
        forecast: The task.
        all_forecasts: Forecasts of every task of the sweep. If this task has no timed answers, the
            model's speed is taken from its other tasks.

    Returns:
        Hours; None if the model has no timed answers yet.
    """
    if not forecast.waiting:
        return 0.0
    model = forecast.task.model
    model_seconds = [task.seconds for task in all_forecasts if task.seconds and task.task.model == model]
    seconds = forecast.seconds or (mean(model_seconds) if model_seconds else None)
    return None if seconds is None else seconds * len(forecast.waiting) / 3600


def format_forecast(forecasts: Sequence[Forecast]) -> str:
    """Format the table that is printed before a sweep starts, with totals below it."""
    header = (
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
    rows, hours = [header], []
    for forecast in forecasts:
        task, size = forecast.task, forecast.size
        # A task without remaining work has one cell of text and four empty ones.
        cells = ("done" if forecast.is_done else "cannot run", "", "", "", "")
        if not forecast.problem and not forecast.is_done:
            hours.append(remaining_hours(forecast, forecasts))
            cost = f"{size.cost_in + size.cost_out:.2f}" if task.config.settings.price else ""
            duration = "?" if hours[-1] is None else f"{hours[-1]:.2f}"
            cells = (
                f"{len(forecast.waiting):,}",
                round_to_two_digits(size.tokens_in),
                round_to_two_digits(size.tokens_out),
                cost,
                duration,
            )
        rows.append((str(task.number), task.label, task.benchmark, task.method_label, *cells))

    lines = [align_columns(rows), str(sum((forecast.size for forecast in forecasts), NO_WORK))]
    estimates = [estimate for estimate in hours if estimate is not None]
    lines[-1] += f"; {sum(estimates):.2f} hours, one task after the other" if estimates else ""
    if unknown := len(hours) - len(estimates):
        lines[-1] += f"; the duration of {unknown} of {len(hours)} tasks is unknown (--first 16 measures it)"

    unfinished = [forecast for forecast in forecasts if forecast.waiting and forecast.plan]
    if any(may_reason(forecast.plan) for forecast in unfinished if forecast.plan):
        lines.append(REASONING_NOTE)
    if any(forecast.task.config.judge for forecast in unfinished):
        lines.append(JUDGE_NOTE)
    return "\n".join(lines)


def align_columns(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as an aligned text table. The first row holds the column names."""
    return pd.DataFrame(rows[1:], columns=list(rows[0])).to_string(index=False)
