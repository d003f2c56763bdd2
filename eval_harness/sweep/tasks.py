"""The tasks of a sweep: read them from its file, tell what remains to be done and what came out.

A task is one model on one benchmark with one method, with the options of `medprobe eval`. The
forecast counts questions, tokens, cost, and hours for models with timed answers. No model is
loaded; a stand-in takes its place. The report is a table of headline scores, failed tasks with
their reasons, and the command to resume. See also: the forecast of one run, `--dry-run`
(`runs/dry_run.py`), running the tasks (`execution.py`).
"""

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dataset_builders.errors import BadInput, first_validation_error
from dataset_builders.files import replace_file
from eval_harness.derive.metrics import HEADLINE_METRICS, NoScore, headline_score
from eval_harness.models.interface import Backend, Settings
from eval_harness.models.load import load_backend
from eval_harness.records.limits import model_slug
from eval_harness.records.request import Request, Response
from eval_harness.records.result import UNDELIVERED, Model, Result, read_result, read_run
from eval_harness.runs.config import EvalConfig, answer_changing_model_args, build_config, validate_options
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
from eval_harness.runs.run_folder import read_answer_records
from eval_harness.store.formatting import format_interval, format_score
from eval_harness.store.results_table import tidy_table

EXAMPLE_SWEEP = "models: [org/model, 'openai:NAME'], benchmarks: [mediconfusion, probmed], methods: [mc, gd]"
AXES = (("models", "model"), ("benchmarks", "benchmark"), ("methods", "method"), ("images", "image"))
"""List in the sweep file, and the option of `medprobe eval` that each of its entries sets."""
NON_DECIDING_OPTIONS = (
    "batch_size",
    "cache",
    "in_flight",
    "name",
    "no_look",
    "price",
    "send_to_provider",
    "timeout",
    "trust_remote_code",
    "wait_server",
)
"""Options that affect no answer. They may change mid-sweep, as a folder's digest omits them."""


@dataclass(frozen=True)
class SweepTask:
    """One run of a sweep."""

    number: int
    """Position in the sweep, from 1."""
    options: Mapping[str, Any]
    """Options of `medprobe eval` that the sweep file sets, by name."""
    out: Path
    """Folder of the sweep's run folders."""

    @property
    def model(self) -> str:
        return str(self.options["model"])

    @property
    def benchmark(self) -> str:
        return str(self.options["benchmark"])

    @property
    def method(self) -> str:
        return str(self.options.get("method", "mc"))

    @property
    def method_label(self) -> str:
        """The method as shown in tables, with the kind of images if they are not the real ones."""
        image = str(self.options.get("image", "real"))
        return self.method if image == "real" else f"{self.method}, {image} images"

    @property
    def label(self) -> str:
        """Display name of the model in tables."""
        return str(self.options.get("name") or model_label(self.model))

    @cached_property
    def folder(self) -> Path:
        """The run folder. Its name contains a digest of every option that affects an answer."""
        deciding = {name: value for name, value in self.options.items() if name not in NON_DECIDING_OPTIONS}
        # Some keys of --model-args affect speed only.
        if "model_args" in deciding:
            deciding["model_args"] = answer_changing_model_args(str(deciding["model_args"]))
        digest = hashlib.sha256(json.dumps(deciding, sort_keys=True, default=str).encode()).hexdigest()[:8]
        return self.out / "-".join([Path(self.benchmark).name, model_slug(self.label), self.method, digest])

    @property
    def config(self) -> EvalConfig:
        """The run's configuration, as `medprobe eval` makes it. Raises BadInput for bad options."""
        return build_config({**self.options, "out": self.folder}, self.arguments())

    def arguments(self) -> list[str]:
        """Return the arguments of the equivalent `medprobe eval` command.

        Returns:
            Subcommand, benchmark and options, one element per argument.
        """
        arguments = ["eval", self.benchmark]
        for name, value in {**self.options, "out": self.folder}.items():
            option = f"--{name.replace('_', '-')}"
            if name == "benchmark" or value is None or value is False:
                continue
            if value is True:
                arguments.append(option)
            else:
                for element in value if isinstance(value, list) else [value]:
                    arguments += [option, str(element)]
        return arguments

    @property
    def result(self) -> Result | None:
        """The task's result.

        None if it is absent or unreadable; it is then computed again from the answers.
        """
        try:
            return read_result(self.folder / "result.json")
        except BadInput:
            return None


def model_label(model: str) -> str:
    """Return the display name of a `--model` argument: for a model folder, the folder's name."""
    kind, _, name = model.partition(":")
    folder = Path(name if kind == "vllm" else model)
    return f"{kind}:{folder.name}" if kind == "vllm" and folder.is_dir() else folder.name if folder.is_dir() else model


class _SweepFile(BaseModel):
    """A sweep file.

    Each entry of a list is a name, or a mapping of options that includes the name.
    """

    model_config = ConfigDict(extra="forbid")

    models: list[str | dict[str, Any]] = Field(min_length=1)
    benchmarks: list[str | dict[str, Any]] = Field(min_length=1)
    methods: list[str | dict[str, Any]] = Field(["mc"], min_length=1)
    images: list[str | dict[str, Any]] = Field(["real"], min_length=1)
    options: dict[str, Any] = {}


def read_sweep(path: Path, out: Path) -> list[SweepTask]:
    """Read a sweep file.

    Args:
        path: The YAML file.
        out: Folder of the run folders.

    Returns:
        One task per combination, ordered by model, then benchmark, method and images.

    Raises:
        BadInput: If the file cannot be read, an entry is wrong (the message names it), or two
            entries give the same run.
    """
    import yaml

    try:
        document = _SweepFile.model_validate(yaml.safe_load(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error}). A sweep file has, e.g., {EXAMPLE_SWEEP}.") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: not YAML ({' '.join(str(error).split())}). Write, e.g., {EXAMPLE_SWEEP}.") from None
    except ValidationError as error:
        raise BadInput(f"{path}: {first_validation_error(error)}. Write, e.g., {EXAMPLE_SWEEP}.") from None

    shared = _entry_options(path, "options", document.options, None)
    axes = [
        [_entry_options(path, f"{key}[{n}]", entry, name) for n, entry in enumerate(getattr(document, key), 1)]
        for key, name in AXES
    ]
    tasks: dict[Path, SweepTask] = {}
    for number, (model, benchmark, method, image) in enumerate(product(*axes), 1):
        # A model's options take precedence over its benchmark's, and those over the shared ones.
        task = SweepTask(number, {**shared, **benchmark, **model, **method, **image}, out)
        if task.folder in tasks:
            raise BadInput(
                f"{path}: tasks {tasks[task.folder].number} and {number} are the same run. Remove one of them."
            )
        try:
            task.config  # noqa: B018  # raises for values that a run does not accept
        except BadInput as error:
            raise BadInput(f"{path}: {task.model} on {task.benchmark}: {error}") from None
        tasks[task.folder] = task
    return list(tasks.values())


def _entry_options(path: Path, location: str, entry: str | dict[str, Any], name: str | None) -> dict[str, Any]:
    """Check and return the options of one entry of the sweep file `path`.

    An entry that is a string sets the option `name`. Raises BadInput, which gives the entry's
    `location`, for an unknown option or a wrong type.
    """
    options = {str(name): entry} if isinstance(entry, str) else entry
    # The options of the other axes belong in their own lists.
    reserved = {axis_name for _, axis_name in AXES if axis_name != name} | {"out"}
    try:
        if name and name not in options:
            raise BadInput(f"a mapping must contain {name!r}.")
        if misplaced := reserved & {option.replace("-", "_") for option in options}:
            raise BadInput(f"{min(misplaced)}: not an option that can be set here.")
        return validate_options(options)
    except BadInput as error:
        raise BadInput(f"{path}: {location}: {error}") from None


def find_task(tasks: Sequence[SweepTask], name: str, path: Path) -> SweepTask:
    """Find a task by its number or by the name of its run folder.

    Args:
        tasks: The tasks of the sweep.
        name: Value of `--task`.
        path: The sweep file, for the message.

    Returns:
        The task.

    Raises:
        BadInput: If the sweep file has no such task.
    """
    match = next((task for task in tasks if name in (str(task.number), task.folder.name)), None)
    if match is None:
        raise BadInput(
            f"--task {name}: {path} has no such task, only 1 to {len(tasks)}. The file may have changed since."
        )
    return match


SCORES_FILE = "results.csv"
NO_WORK = RunSize()


class StandIn(Backend):
    """Stand in for a model that is not loaded: it has what a plan needs, but cannot answer."""

    several_images = True  # a model that takes one image per question is refused when it is loaded

    def __init__(self, model: str) -> None:
        self.model = Model(name=model_label(model))
        self.deviations: list[str] = []
        self.uses_http = model.startswith(("openai:", "azure:", "vllm:"))

    def generate(self, requests: Sequence[Request]) -> Any:
        raise NotImplementedError

    def score(self, requests: Sequence[Request]) -> Iterable[Response]:
        raise NotImplementedError


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
        # The run would refuse to continue answers to the questions of another dataset.
        has_run = (task.folder / "run.json").exists()
        is_same = has_run and read_run(task.folder).request.fingerprint == plan.selection.fingerprint
        records = read_answer_records(task.folder) if is_same else {}
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


def format_report(
    tasks: Sequence[SweepTask], results: Mapping[int, Result], errors: Mapping[int, str], command: str
) -> tuple[str, int]:
    """Format the table of finished tasks, followed by what failed and why.

    Args:
        tasks: Every task of the sweep.
        results: Task number -> its result.
        errors: Task number -> why it failed.
        command: The command that resumes the sweep.

    Returns:
        (report, number of tasks that are not done).
    """
    rows: list[tuple[str, ...]] = [
        ("task", "model", "benchmark", "method", "metric", "value", "95% interval", "n", "failed answers")
    ]
    tasks_by_error: dict[str, list[SweepTask]] = {}
    notes = []
    for task in tasks:
        result = results.get(task.number)
        if result is not None:
            rows.append(_row(task, result))
            # A finished task may still contain failed answers.
            if count := _undelivered_count(result):
                retry = shlex.join(["medprobe", *task.arguments()])
                notes.append(f"task {task.number}: {count} answers failed; to ask them again: {retry}")
        elif error := errors.get(task.number):
            tasks_by_error.setdefault(error, []).append(task)

    lines = [align_columns(rows)] if len(rows) > 1 else []
    lines += [f"failed: {_describe_tasks(group)}: {error}" for error, group in tasks_by_error.items()]
    missing = len(tasks) - len(results)
    if missing:
        lines.append(f"{len(results)} of {len(tasks)} tasks are done. To resume: {command}")
    return "\n".join([*lines, *notes]), missing


def _describe_tasks(tasks: Sequence[SweepTask]) -> str:
    numbers = ", ".join(str(task.number) for task in tasks)
    task = tasks[0]
    details = f"({task.label}, {task.benchmark}, {task.method_label})"
    return f"task {numbers} {details}" if len(tasks) == 1 else f"tasks {numbers}"


def _row(task: SweepTask, result: Result) -> tuple[str, ...]:
    metric = HEADLINE_METRICS[result.benchmark.family]
    score, headline = result.scores[metric], headline_score(result)
    return (
        str(task.number),
        task.label,
        result.benchmark.name,
        task.method_label,
        metric,
        str(headline) if isinstance(headline, NoScore) else format_score(headline.value),
        format_interval(score),
        str(score.n),
        str(_undelivered_count(result)),
    )


def _undelivered_count(result: Result) -> int:
    return sum(result.statuses.get(status, 0) for status in UNDELIVERED)


def write_scores_csv(results: Sequence[Result], out: Path) -> Path | None:
    """Write every score of some results as CSV, in the columns of `medprobe results`.

    Args:
        results: The results.
        out: Folder of the file `SCORES_FILE`, which is replaced.

    Returns:
        The file's path; None if there are no results.
    """
    if not results:
        return None
    replace_file(out / SCORES_FILE, tidy_table(results).to_csv(index=False).encode())
    return out / SCORES_FILE
