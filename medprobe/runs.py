"""Run a model on a benchmark, and return its scores and answers as tables or a plot."""

import os
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from dataset_builders.benchmarks import facets_of
from dataset_builders.errors import BadInput, missing_extra, require
from dataset_builders.schema import LETTERS
from eval_harness.derive.metrics import METRICS
from eval_harness.derive.run_files import READINGS_FILE, RESULT_FILE
from eval_harness.records.limits import model_slug
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
    """Any object with a method `generate`.

    It returns one Response per request, or one text per request in the order of the requests.
    """

    def generate(self, requests: list[Request], /) -> Iterable[Response] | Iterable[str]: ...


@dataclass(frozen=True, repr=False)
class Run:
    """A run of one model on one benchmark.

    `print(run)` shows the table that `medprobe eval` prints. Wherever a path is expected, a Run
    stands for its folder.

    `result` is the content of `result.json`. It is None if several processes shared the run
    (torchrun) and this one was not the last to finish; `scores` and `answers` then raise BadInput.
    """

    folder: Path
    result: Result | None

    @cached_property
    def scores(self) -> pd.DataFrame:
        """The scores in `result.json`, one row per metric in the same order.

        Columns: `metric`; `value` with its 95 % interval `low` to `high`, in percent (a count for
        metrics named `*_irrelevant`), missing where the metric is undefined; `n`, the denominator;
        `chance`, the score of guessing in percent; `verdict` against chance, which is better, no
        different, or worse.
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
        """The answers, one row per question and sample, including missing ones.

        Columns: `question_id`; `case_id` (questions that are scored together); `sample`, from 0;
        `question_type` (single, multiple, yes_no); `question`; `options`, a list whose first entry
        is option A; `key`, the letters of the correct options ("B", "AC"), missing if the key is
        hidden; `response`, the text; `choice`, the letters of the chosen options, missing if there
        are none; `status` (answered, irrelevant, refused, truncated, failed, missing); `rule`, by
        which the choice was read; `correct`, whether it counts as correct, missing if the key is
        hidden; then the benchmark's facets, of which `category` is a list.

        Letters always refer to `options`, except in `response`: in a run with permuted options,
        sample s showed them rotated by s positions.

        Raises:
            BadInput: the result has no answers, such as an aggregate or a published number.
        """
        _finished(self)
        # `list` returns no published results: a folder is never looked up among them.
        side = load_side(str(self.folder), list)
        if not side.has_answers:
            raise BadInput(
                f"{self.folder}: contains a result without answers and questions. Load the run folder itself."
            )
        return answer_table(side)

    @cached_property
    def sight(self) -> pd.DataFrame:
        """How much of each score comes from the images, for a run with `arms` (`docs/sight.md`).

        There is one row per metric. Columns: `metric`; `real`, `withheld`, `blank` and `swapped`,
        the score of each run in percent; `from_image`, the percentage points that need the image,
        with the 95 % interval `low` to `high`; `sees`, whether every arm is significantly below the
        run; `best_arm`, the arm that comes closest to it; `share_without`, the percentage of the
        score that remains without the image, with the interval `share_low` to `share_high`; `n`;
        `note`, why there is no number.

        Raises:
            BadInput: not a run folder.
        """
        from eval_harness.store.sight import load_arms, sight_table

        _finished(self)
        return sight_table(load_arms([self.folder])[0])

    def plot(self) -> "Figure":
        """Plot the metrics that are percentages, with 95 % intervals and chance.

        Returns:
            A matplotlib figure (extra `plot`); save it with `.savefig(FILE)`.
        """
        return plot_scores(self.scores, _finished(self))

    def __fspath__(self) -> str:
        return str(self.folder)

    def table(self, all_metrics: bool = False) -> str:
        """Return the table that `medprobe eval` prints.

        Args:
            all_metrics: also include the metrics that every benchmark has, such as the share of
                refusals or accuracy on answered questions.
        """
        if self.result is None:
            return f"{self.folder}: this process has finished its share; the last process to finish writes the result"
        # Aggregates and published numbers have no answers to quote.
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
        benchmark: name of the benchmark, or a dataset's location (data/my-set).
        model: a value of `--model` ("openai:NAME", a transformers id or folder, "baseline:chance"
            ...), or any object with `generate(requests)` (see `Generates`).
        data: dataset folder or Hub repository [data/<benchmark>].
        method: "mc", "gd", "ps", "ps_official" or "ff" (`medprobe list methods`).
        image: the images shown with each question: "real", "withheld" (none), "blank" (grey) or
            "swapped" (another case's).
        arms: also run with every other `image`, in folders next to this run's; `Run.sight` then
            shows what the images add.
        limit: only the first N questions, and the rest of their cases.
        base_url: address of an OpenAI-compatible server.
        out: run folder [runs/<run id>]. If the folder already has this run, only unanswered
            questions are asked. Without `out`, an object gets a new folder at each call, since it
            may have changed.
        resume: False starts over.
        argv: the command-line arguments, recorded as the result's `command`.
        options: other options of `medprobe eval` by name, with `_` for `-`: samples=3,
            permute=True, facet="modality=CT", generation={"top_p": 0.9}.

    Returns:
        The run, with its scores and answers.

    Raises:
        BadInput: anything that the caller can fix; the message is one line, and no incomplete file
            is left behind.
    """
    from eval_harness.models.load import CachingLoader, load_backend, wrap_plug_in
    from eval_harness.runs.runner import evaluate_arms, run_evaluation

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

        # The loader returns the given object, whatever the option `model` says.
        def load(_: str, settings: "Settings") -> "Backend":
            return wrap_plug_in(model, kind, f"model {kind}", settings)

        if out is None:
            description = getattr(model, "model", None)
            name = options.get("name") or (description.name if isinstance(description, Model) else kind)
            all_options["out"] = _new_folder(f"{Path(benchmark).name}-{model_slug(str(name))}-{method}")
    try:
        validated = validate_options({name: value for name, value in all_options.items() if value is not None})
        config = build_config({**validated, "benchmark": benchmark, "no_resume": not resume}, argv)
        with closing(CachingLoader(load)) as loader:
            result, folder = evaluate_arms(config, loader) if arms else run_evaluation(config, loader)
    # Name the extra to install, if the missing module belongs to one.
    except ModuleNotFoundError as error:
        raise (missing_extra(error) or error) from None
    finally:
        if out is None and all_options["out"] is not None:
            # Remove the new folder if nothing was written; rmdir fails if it is not empty.
            with suppress(OSError):
                Path(all_options["out"]).rmdir()
    return Run(folder, result)


def load_run(folder: Source) -> Run:
    """Load a finished run from its folder, or a result from its folder in a store.

    Raises:
        BadInput: the folder has no result that can be read.
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
    family = side.result.benchmark.family
    # Not stored but graded here, since the key may have been corrected.
    graded = grade(family, questions, readings)
    # Grading leaves out questions with a hidden key, so rows are matched by id.
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


def plot_scores(scores: pd.DataFrame, result: Result) -> "Figure":
    """Plot each percentage as a point with its 95 % interval, and a tick at chance.

    Args:
        scores: see `Run.scores`.
        result: the result, for the title.

    Returns:
        A matplotlib figure.
    """
    require("matplotlib")
    from matplotlib import pyplot

    is_count = [name in METRICS and METRICS[name].unit == "count" for name in scores["metric"]]
    # Counts cannot be shown on an axis in percent.
    rows = scores[scores["value"].notna() & ~pd.Series(is_count, index=scores.index)]
    figure, axes = pyplot.subplots(figsize=(7, 1.2 + 0.32 * len(rows)), layout="constrained")
    places = range(len(rows))
    axes.hlines(places, rows["low"], rows["high"], color=BLUE)
    axes.plot(rows["value"], places, "o", color=BLUE, label="score, 95 % interval")
    axes.plot(rows["chance"], places, "|", color=GREY, markersize=14, label="chance")
    axes.set(yticks=places, yticklabels=rows["metric"], xlim=(-2, 102), xlabel="percent")
    # Inverted, so that the first metric is at the top.
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.set_title(f"{result.model.name} on {result.benchmark.name}")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    # A notebook displays the returned figure; if it were still open, it would appear twice.
    pyplot.close(figure)
    return figure


def _letters(positions: Iterable[Iterable[int]]) -> pd.Series:
    """Convert lists of option positions to letters; an empty list becomes a missing value."""
    texts = ["".join(LETTERS[position] for position in sorted(map(int, chosen))) or None for chosen in positions]
    return pd.Series(texts, dtype="str")


def _finished(run: Run) -> Result:
    if run.result is None:
        raise BadInput(
            f"{run.folder}: other processes are still answering. Load it with load_run when the last one has finished."
        )
    return run.result


def _new_folder(name: str) -> Path:
    """Create and return the first folder of runs/NAME, runs/NAME-2 ... that does not exist.

    Raises BadInput if several processes share the run.
    """
    from eval_harness.runs.run_folder import Shard

    # Otherwise each process would create a folder of its own.
    if Shard.of_this_process().world > 1:
        raise BadInput("evaluate: several processes share a run folder. Name it: out=...")
    for number in count(1):
        folder = Path("runs") / (name if number == 1 else f"{name}-{number}")
        # mkdir fails if the folder exists, so two processes never get the same one.
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError("unreachable")
