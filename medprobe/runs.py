"""Run a model on a benchmark; a run's scores and answers as tables, and a plot."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from dataset_builders.benchmarks import facets_of
from dataset_builders.errors import BadInput
from dataset_builders.extras import missing_extra, require
from dataset_builders.schema import LETTERS
from eval_harness.derive.metrics import METRICS
from eval_harness.derive.run_files import READINGS_FILE, RESULT_FILE
from eval_harness.records.names import model_slug
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model, Result, read_result
from eval_harness.runs.config import build_config, validate_options
from eval_harness.scores.grading import grade
from eval_harness.store.comparison import Side, load_side
from eval_harness.store.formatting import format_run, format_summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from eval_harness.models.interface import Backend, Settings
    from eval_harness.runs.plan import BackendLoader

Source = str | os.PathLike[str]
BLUE, GREY = "#2563eb", "#64748b"
SCORE_COLUMNS = ("value", "low", "high", "n", "chance", "verdict")
"""Columns of `Run.scores` after `metric`."""
QUESTION_COLUMNS = ("question_id", "case_id", "question_type", "question", "options")
"""Columns of `Run.answers` that come from the question."""
READING_COLUMNS = ("response", "choice", "status", "rule")
"""Columns of `Run.answers` that come from the answer and its reading."""


class Generates(Protocol):
    """Any object with `generate`, which returns a Response per request, or a text per request in
    order.
    """

    def generate(self, requests: list[Request], /) -> Iterable[Response] | Iterable[str]: ...


@dataclass(frozen=True, repr=False)
class Run:
    """A run of one model on one benchmark.

    `print(run)` shows the table that `medprobe eval` prints; used as a path, it is the run folder.

    `result`: the content of `result.json`; None if several processes shared the run (torchrun) and
    this one was not the last to finish, in which case `scores` and `answers` raise BadInput.
    """

    folder: Path
    result: Result | None

    @cached_property
    def scores(self) -> pd.DataFrame:
        """One row per metric, with the numbers of `result.json` in its order.

        Columns: `metric`; `value` with its 95 % interval `low` to `high`, in percent (a count for
        metrics named `*_irrelevant`), missing where the metric is undefined; `n`, the denominator;
        `chance`, the score of guessing in percent; `verdict` against chance: better, no different,
        or worse.
        """
        scores = _finished(self).scores
        columns = {name: pd.Series([getattr(score, name) for score in scores.values()]) for name in SCORE_COLUMNS}
        return pd.DataFrame({"metric": list(scores), **columns}).astype(
            {
                **dict.fromkeys(("value", "low", "high", "chance"), "float64"),
                "n": "int64",
                "verdict": "str",
            }
        )

    @cached_property
    def answers(self) -> pd.DataFrame:
        """One row per question and sample, in the benchmark's order, missing answers included.

        Columns: `question_id`; `case_id` (questions that are scored together); `sample`, from 0;
        `question_type` (single, multiple, yes_no); `question`; `options`, a list starting with A;
        `key`, the letters of the correct options ("B", "AC"), missing if the key is hidden;
        `response`, the text; `choice`, the letters of the chosen options, missing if none; `status`
        (answered, irrelevant, refused, truncated, failed, missing); `rule`, which determined the
        choice; `correct`, as counted in the scores, missing if the key is hidden; then the
        benchmark's facets, `category` as a list.

        Letters always refer to `options`: in a run with permuted options, sample s showed them
        rotated by s positions, and `response` names a letter as shown.

        Raises:
            BadInput: the result has no answers, such as an aggregate or a published number.
        """
        _finished(self)
        side = load_side(str(self.folder), list)  # no papers
        if side.answers is None or side.questions is None:
            raise BadInput(
                f"{self.folder}: contains a result without answers and questions. Load the run folder itself."
            )
        return answer_table(side)

    @cached_property
    def sight(self) -> pd.DataFrame:
        """Contribution of the images to each score, for a run made with `arms` (`docs/sight.md`).

        One row per metric. Columns: `metric`; `real`, `withheld`, `blank`, `swapped`: percent in
        each run; `from_image`, the percentage points that need the image, with the 95 % interval
        `low` to `high`; `sees`; `best_arm`; `share_without`, the percent of the score that remains
        without the image, with `share_low` to `share_high`; `n`; `note`, why there is no number.

        Raises:
            BadInput: not a run folder.
        """
        from eval_harness.store.sight_report import load_arms, sight_table

        _finished(self)
        return sight_table(load_arms([self.folder])[0])

    def plot(self) -> Figure:
        """Plot the percent metrics with 95 % intervals and chance.

        Returns:
            A matplotlib figure (extra `plot`); save it with `.savefig(FILE)`.
        """
        return plot_scores(self.scores, _finished(self))

    def __fspath__(self) -> str:
        return str(self.folder)

    def table(self, all_metrics: bool = False) -> str:
        """Return the table that `medprobe eval` prints: headline score and the benchmark's other
        metrics.

        Args:
            all_metrics: also finish reasons, accuracy over answered questions, and letter
                frequencies.
        """
        if self.result is None:
            return f"{self.folder}: this process has finished its share; the last process to finish writes the result"
        has_answers = self.result.kind == "measured" and (self.folder / READINGS_FILE).is_file()
        return (
            format_run(self.folder, self.result, all_metrics)
            if has_answers
            else format_summary(self.result, all_metrics)
        )

    def __repr__(self) -> str:
        return self.table()


def evaluate(
    benchmark: str,
    model: str | Generates,
    *,
    data: Source | None = None,
    method: str = "mc",
    image: str = "real",
    arms: bool = False,
    limit: int | None = None,
    base_url: str | None = None,
    out: Source | None = None,
    resume: bool = True,
    argv: Sequence[str] = (),
    **options: Any,
) -> Run:
    """Run a model on a benchmark, as `medprobe eval` does.

    Args:
        benchmark: its name, or a dataset's location (data/my-set).
        model: a value of `--model` ("openai:NAME", a transformers id or folder, "baseline:chance"
            ...), or any object with `generate(requests)` (see `Generates`).
        data: dataset folder or Hub repository [data/<benchmark>].
        method: "mc", "gd", "ps", "ps_official" or "ff" (`medprobe list methods`).
        image: the images shown with each question: "real", "withheld" (none), "blank" (grey) or
            "swapped" (another case's).
        arms: also run with every other `image`, in folders beside this run's; `Run.sight` then
            shows what the images add.
        limit: only the first N questions, completed to whole cases.
        base_url: address of an OpenAI-compatible server.
        out: run folder [runs/<run id>]. A run repeated into the same folder asks only unanswered
            questions. Without `out`, an object gets a new folder at each call, since it may have
            changed.
        resume: False starts over.
        argv: the arguments from which the result's `command` is composed.
        options: other options of `medprobe eval` by name, with `_` for `-`: samples=3,
            permute=True, facet="modality=CT", generation={"top_p": 0.9}.

    Returns:
        The run, with its scores and answers.

    Raises:
        BadInput: anything the caller can fix, in one line; no incomplete file is left behind.
    """
    from eval_harness.models.load import CachingLoader, load_backend, wrap_plug_in
    from eval_harness.runs.runner import evaluate_arms as run_arms
    from eval_harness.runs.runner import run_evaluation as run_model

    if not isinstance(benchmark, str):
        raise BadInput(
            f'benchmark {benchmark!r}: give its name, such as "mediconfusion"; a dataset\'s folder goes to data=...'
        )
    all_options = options | {
        "data": data,
        "method": method,
        "image": image,
        "limit": limit,
        "base_url": base_url,
        "out": out,
    }
    load: BackendLoader = load_backend
    if isinstance(model, str):
        all_options["model"] = model
    else:
        kind = getattr(model, "__name__", type(model).__name__)
        all_options["model"] = f"object:{kind}"
        if base_url is not None and "judge" not in options:
            raise BadInput("base_url: an object runs in this process, without a server. Omit it.")

        # The object replaces the model that `--model` would name.
        def load(_: str, settings: Settings) -> Backend:
            return wrap_plug_in(model, kind, f"model {kind}", settings)

        if out is None:
            description = getattr(model, "model", None)
            name = options.get("name") or (description.name if isinstance(description, Model) else kind)
            all_options["out"] = _new_folder(f"{Path(benchmark).name}-{model_slug(str(name))}-{method}")
    try:
        validated = validate_options({name: value for name, value in all_options.items() if value is not None})
        config = build_config({**validated, "benchmark": benchmark, "no_resume": not resume}, argv)
        with CachingLoader(load) as loader:
            result, folder = run_arms(config, loader) if arms else run_model(config, loader)
    except ModuleNotFoundError as error:
        raise (missing_extra(error) or error) from None
    finally:
        if out is None and all_options["out"] is not None:
            with suppress(OSError):  # not empty: it contains a run
                Path(all_options["out"]).rmdir()
    return Run(folder, result)


def load_run(folder: Source) -> Run:
    """Load a finished run from its folder, or a result from its folder in a store.

    Raises:
        BadInput: there is no readable result.
    """
    path = Path(folder)
    if path.is_file():
        raise BadInput(f"{path}: is a file. Give its folder.")
    return Run(path, read_result(path / RESULT_FILE))


def answer_table(side: Side) -> pd.DataFrame:
    """Build the table of `Run.answers`.

    Args:
        side: a result with its answers and questions.

    Returns:
        One row per question and sample.
    """
    readings, questions = side.answers, side.questions
    assert readings is not None and questions is not None
    family = side.result.benchmark.family
    # Graded here rather than stored: correctness follows from the key, which may be corrected.
    graded = grade(family, questions, readings)
    # Recorded answers may lack questions: align by id.
    row_of = {name: row for row, name in enumerate(graded.columns["question_id"].tolist())}
    correct = [
        bool(graded.right[row_of[name], sample]) if name in row_of else None
        for name, sample in zip(readings["question_id"], readings["sample"], strict=True)
    ]
    asked_questions = questions.set_index("question_id", drop=False).loc[readings["question_id"]].reset_index(drop=True)
    table = asked_questions[list(QUESTION_COLUMNS)]
    table.insert(2, "sample", readings["sample"].astype("int64"))
    table["key"] = _letters(asked_questions["answer"])
    for name in READING_COLUMNS:
        table[name] = _letters(readings[name]) if name == "choice" else readings[name].astype("str")
    table["correct"] = pd.array(correct, dtype="boolean")
    for facet in facets_of(family, asked_questions.columns):
        column = "categories" if facet == "category" else facet
        if column in asked_questions.columns:
            table[facet] = asked_questions[column]
    return table


def plot_scores(scores: pd.DataFrame, result: Result) -> Figure:
    """Plot each percent metric as a point with its 95 % interval, and a tick at chance.

    Args:
        scores: see `Run.scores`.
        result: provides the title.

    Returns:
        A matplotlib figure.
    """
    require("matplotlib")
    from matplotlib import pyplot

    is_count = [name in METRICS and METRICS[name].unit == "count" for name in scores["metric"]]
    # Counts have no percent axis.
    rows = scores[scores["value"].notna() & ~pd.Series(is_count, index=scores.index)]
    figure, axes = pyplot.subplots(figsize=(7, 1.2 + 0.32 * len(rows)), layout="constrained")
    places = range(len(rows))
    axes.hlines(places, rows["low"], rows["high"], color=BLUE)
    axes.plot(rows["value"], places, "o", color=BLUE, label="score, 95 % interval")
    axes.plot(rows["chance"], places, "|", color=GREY, markersize=14, label="chance")
    axes.set(yticks=places, yticklabels=rows["metric"], xlim=(-2, 102), xlabel="percent")
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.set_title(f"{result.model.name} on {result.benchmark.name}")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    pyplot.close(figure)  # a notebook displays the returned figure, and would display an open one twice
    return figure


def _letters(positions: Iterable[Iterable[int]]) -> pd.Series:
    """Convert option positions to letters; missing where there are none."""
    texts = ["".join(LETTERS[position] for position in sorted(map(int, chosen))) or None for chosen in positions]
    return pd.Series(texts, dtype="str")


def _finished(run: Run) -> Result:
    if run.result is None:
        raise BadInput(
            f"{run.folder}: other processes are still answering. Load it with load_run when the last one has finished."
        )
    return run.result


def _new_folder(name: str) -> Path:
    """Create the first of runs/NAME, runs/NAME-2 ... that does not exist.

    Raises BadInput if several processes share the run.
    """
    from eval_harness.runs.shards import Shard

    # Each process would otherwise create a folder of its own.
    if Shard.of_this_process().world > 1:
        raise BadInput("evaluate: several processes share a run folder. Name it: out=...")
    number, folder = 1, Path("runs") / name
    while True:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            folder = Path("runs") / f"{name}-{number}"
        else:
            return folder
