"""Forecast the tasks of a sweep: questions, tokens, cost, and hours where the model has answered before.

No model is loaded: a stand-in takes its part. See also: the forecast of one run, `--dry-run` (`runs/dry_run.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from dataset_builders.errors import BadInput
from eval_harness.models.interface import Backend, Settings
from eval_harness.models.load import load_backend
from eval_harness.records.request import Request, Response
from eval_harness.records.result import UNDELIVERED, Model
from eval_harness.records.run import read_run
from eval_harness.runs.dry_run import JUDGED, REASONING, Size, rounded, size_of
from eval_harness.runs.plan import Plan, make_plan
from eval_harness.runs.requests import Instance
from eval_harness.runs.shards import answers_of
from eval_harness.sweep.tasks import SweepTask, label_of


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
    """What a plan is made with instead of the model; itself where that costs nothing (recorded answers, baselines that are rules)."""
    return load_backend(model, settings) if model.startswith(("baseline:", "recorded:")) else StandIn(model)


@dataclass(frozen=True)
class Forecast:
    """A task before it is run. `plan` is None, and `problem` says why, where it cannot be. `waiting`: what it has still to ask.

    `size`: what that is. `seconds`: of one answer, from those the task has already; None where it has none.
    """

    task: SweepTask
    plan: Plan | None = None
    waiting: Sequence[Instance] = ()
    size: Size | None = None
    seconds: float | None = None
    problem: str | None = None

    @property
    def is_done(self) -> bool:
        return self.problem is None and not self.waiting and self.task.is_done


def forecast(tasks: Sequence[SweepTask]) -> list[Forecast]:
    """What each task has still to ask. Reads datasets and journals; writes nothing."""
    return [_forecast(task) for task in tasks]


def _forecast(task: SweepTask) -> Forecast:
    try:
        plan = make_plan(task.config, stand_in)
        records = _answered(task, plan)
        waiting = [
            each for each in plan.instances if records.get(plan.key(each), {}).get("status", "missing") in UNDELIVERED
        ]
        planned = {plan.key(each) for each in plan.instances}
        if task.is_done and planned <= records.keys():
            waiting = []  # what failed was asked, and is told in the result
        size = size_of(plan, images=16, instances=waiting) if waiting else None
    except BadInput as error:
        return Forecast(task, problem=str(error))
    seconds = [record["seconds"] for record in records.values() if record.get("seconds")]
    at_once = task.config.settings.in_flight if plan.backend.is_api else 1
    return Forecast(task, plan, waiting, size, mean(seconds) / at_once if seconds else None)


def _answered(task: SweepTask, plan: Plan) -> dict[tuple[str, int], dict[str, Any]]:
    """What the task's run folder holds already; nothing where it holds another dataset's answers, which the run itself refuses."""
    if not (task.folder / "run.json").exists():
        return {}
    if read_run(task.folder).request.fingerprint != plan.selection.fingerprint:
        return {}
    return answers_of(task.folder)


def hours(each: Forecast, everything: Sequence[Forecast]) -> float | None:
    """Hours until a task is done, as fast as it went so far, or as the same model went elsewhere; None where it answered nothing yet."""
    if not each.waiting:
        return 0.0
    known = [other for other in everything if other.seconds and other.task.model == each.task.model]
    alike = [other for other in known if other.task.method == each.task.method] or known
    seconds = each.seconds or (mean(other.seconds or 0.0 for other in alike) if alike else None)
    return None if seconds is None else seconds * len(each.waiting) / 3600


def before(everything: Sequence[Forecast]) -> str:
    """The table that is printed before a sweep begins."""
    rows = [
        ("task", "model", "benchmark", "method", "to ask", "tokens in", "tokens out at most", "cost at most", "hours")
    ]
    totals = [0.0, 0.0, 0.0, 0.0, 0.0]
    priced = any(each.task.config.settings.price for each in everything)
    known_hours = [hours(each, everything) for each in everything]
    for each, time in zip(everything, known_hours, strict=True):
        task, size = each.task, each.size
        tokens_in, out = (sum(size.tokens_in), size.most_tokens_out) if size else (0.0, 0)
        price = task.config.settings.price
        cost = sum(size.cost(price)) if size and price else 0.0
        row = (len(each.waiting), size.requests if size else 0, tokens_in, out, cost)
        totals = [a + b for a, b in zip(totals, row, strict=True)]
        numbers = (
            (f"{len(each.waiting):,}", rounded(tokens_in), rounded(out), f"{cost:.2f}" if price else "", _time(time))
            if not each.problem and not each.is_done
            else ("done" if each.is_done else "cannot run", "", "", "", "")
        )
        rows.append((str(task.number), task.label, task.benchmark, task.how, *numbers))
    answers, requests, *tokens, in_money = totals
    in_all = (
        f"in all: {answers:,.0f} answers, about {rounded(tokens[0])} tokens in, at most {rounded(tokens[1])} tokens out"
    )
    in_all += f", at most {in_money:.2f} for the models with a price" if priced else ""
    in_all += f"; {requests:,.0f} requests: `ps` sends a server each option" if requests > answers else ""
    times = [time for each, time in zip(everything, known_hours, strict=True) if each.waiting]
    known = [time for time in times if time is not None]
    in_all += f"; {_time(sum(known))} hours, one task after the other" if known else ""
    if unknown := len(times) - len(known):
        in_all += f"; how long {unknown} of {len(times)} tasks take is unknown (--first 16 measures it)"
    lines = [*aligned(rows), in_all]
    roomy = [each for each in everything if each.size and each.size.if_reasoning > each.size.most_tokens_out]
    if roomy:
        lines.append(
            f"{REASONING}: {rounded(sum(_more_tokens(each) for each in roomy))} tokens more at most (tasks {_numbers(roomy)})"
        )
        dear = sum(
            _more_tokens(each) * each.task.config.settings.price[1] / 1e6
            for each in roomy
            if each.task.config.settings.price
        )
        lines[-1] += f", which cost {dear:.2f}" if dear else ""
    if judged := [each for each in everything if each.waiting and each.task.config.judge]:
        lines.append(f"{JUDGED} (tasks {_numbers(judged)})")
    return "\n".join(lines)


def _more_tokens(each: Forecast) -> int:
    """How many more tokens may come back where the model reasons."""
    return each.size.if_reasoning - each.size.most_tokens_out if each.size else 0


def _numbers(group: Sequence[Forecast]) -> str:
    return ", ".join(str(each.task.number) for each in group)


def _time(time: float | None) -> str:
    return "?" if time is None else f"{time:.2f}" if time < 10 else f"{time:.0f}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows with their columns under each other; numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numeric = [
        all(cell[:1].isdigit() or cell in ("", "?", "-") for cell in column[1:]) for column in zip(*rows, strict=True)
    ]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in rows
    ]
