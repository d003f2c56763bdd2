"""The benchmarks as tasks of inspect-ai.

    inspect eval medprobe/mediconfusion --model ... -T data=data/mediconfusion

The prompts are the benchmark's own (a template per question type), and answers are read by our
reader. Metrics are computed by our scoring from the samples' metadata, so that the same answers
give the same numbers as `medprobe score`. inspect-ai loads this module through the entry point
group `inspect_ai`; needs the extra `inspect`.

See also: the Hub's own tasks (`dataset_builders/contents/card.py`), reading a log
(`answer_files/harness_formats.py`).
"""

import importlib
from collections.abc import Callable
from typing import Any

from inspect_ai import Epochs, Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessage, ChatMessageSystem, ChatMessageUser, ContentImage, ContentText, GenerateConfig
from inspect_ai.scorer import (
    CORRECT,
    INCORRECT,
    Metric,
    SampleScore,
    Score,
    Scorer,
    ScoreReducer,
    Target,
    metric,
    score_reducer,
    scorer,
)
from inspect_ai.solver import TaskState, generate

from dataset_builders.benchmarks import FORMATS
from dataset_builders.images.picture import encode_data_uri
from eval_harness.answer_files.harness_formats import parse_inspect_output
from eval_harness.benchmarks import eval_spec, get_prompt
from eval_harness.interop.exports import format_letters, metric_scores, question_metadata, read_sample_answer
from eval_harness.records.request import DEFAULT_FORM
from eval_harness.records.result import RunRequest
from eval_harness.records.selection import select_questions
from eval_harness.runs.requests import RequestMaker, make_requests

PACKAGE = "medprobe"


def _claim_for_package(function: Callable[..., Any]) -> Callable[..., Any]:
    """Set a function's module to `medprobe`, which inspect-ai uses as the prefix of its name."""
    importlib.import_module(PACKAGE)  # inspect-ai looks the module up in sys.modules
    function.__module__ = PACKAGE
    return function


@metric
def medprobe_scores(format: str) -> Metric:  # inspect-ai writes the parameter's name into its logs
    """Compute every metric of a benchmark, in percent, as `medprobe score` does.

    Args:
        format: The benchmark.

    Returns:
        A metric of inspect-ai that also gives `<metric>_stderr`, clustered by shared images.
    """

    def compute(scores: list[SampleScore]) -> dict[str, float]:
        questions = [score.sample_metadata or {} for score in scores]
        answers = [answer for score in scores for answer in (score.score.metadata or {}).get("medprobe", [])]
        values, errors = metric_scores(format, questions, answers)
        return values | {f"{name}_stderr": errors[name] for name in values if name in errors}

    return compute


@score_reducer(name="medprobe_every_answer")
def medprobe_every_answer() -> ScoreReducer:
    """Reduce the epochs of a question to their mean value, with every epoch's answer as metadata.

    A pair is right or wrong within one epoch, so the metrics need each epoch's answers.
    """

    def reduce(scores: list[Score]) -> Score:
        answers = [answer for score in scores for answer in (score.metadata or {}).get("medprobe", [])]
        share_correct = sum(score.value == CORRECT for score in scores) / len(scores)
        # A single epoch keeps its own value, CORRECT or INCORRECT.
        value = scores[0].value if len(scores) == 1 else share_correct
        return Score(
            value=value, answer=scores[0].answer, explanation=scores[0].explanation, metadata={"medprobe": answers}
        )

    return reduce


def _make_scorer(family: str) -> Callable[..., Scorer]:
    # inspect-ai's `accuracy` is omitted: a benchmark may have a metric of that name, in percent.
    @scorer(metrics=[medprobe_scores(family)], name=f"medprobe_{family}")
    def medprobe_reader() -> Scorer:
        """Read the answer of a sample as `medprobe score` does and compare it with the key."""

        async def score_sample(state: TaskState, target: Target) -> Score:
            question = state.metadata
            record = {"question_id": str(question["question_id"]), "sample": state.epoch - 1}
            reading = read_sample_answer(family, question, record | parse_inspect_output(state.output, failed=False))
            return Score(
                value=CORRECT if reading["right"] else INCORRECT,
                answer=format_letters(reading["choice"]),
                explanation=f"{reading['status']} ({reading['rule']})",
                metadata={"medprobe": [record | reading]},
            )

        return score_sample

    return medprobe_reader


SCORERS = {family: _make_scorer(family) for family in FORMATS}
"""Benchmark -> its scorer, with its metrics."""


def _make_task(benchmark: str) -> Callable[..., Task]:
    def make(
        data: str | None = None,
        split: str | None = None,
        limit: int | None = None,
        prompt: str | None = None,
        form: str = DEFAULT_FORM,
    ) -> Task:
        """Make the task of a benchmark.

        Args:
            data: Dataset folder or Hub repository (default: data/<benchmark>).
            split: Split of the dataset.
            limit: Number of questions, rounded up to complete cases (inspect's --limit splits
                cases).
            prompt: Name of a prompt template.
            form: Conversation format.

        Raises:
            BadInput: If `medprobe eval` would reject the arguments.
        """
        selection = select_questions(benchmark, data, split, limit=limit)
        family = selection.repository.family
        generation = {
            "max_tokens": eval_spec(family).max_tokens,
            "temperature": 0.0,
            "seed": 0,
            "form": form,
            "system": None,
        }
        dataset: dict[str, Any] = {
            "benchmark": selection.repository.name,
            "data": str(selection.repository.data),
            "split": selection.split,
            "fingerprint": selection.fingerprint,
        }
        run_request = RunRequest(
            **dataset, model="inspect-ai", method="mc", prompt=prompt, samples=1, generation=generation
        )
        provenance = dataset | {
            "revision": selection.repository.revision,
            "left_out": selection.left_out,
            "form": form,
        }
        rows = {row["question_id"]: row for row in selection.questions.to_dict("records")}
        maker = RequestMaker(run_request, family)
        instances = [(row, 0) for row in range(len(selection.questions))]

        # Requests are made case by case to read each image once; the task keeps the dataset's
        # order.
        samples = {}
        for batch in make_requests(selection, maker, instances, selection.repository.has_images):
            for request in batch:
                row = rows[request.question_id]
                content = [ContentText(text=request.prompt)]
                pictures = [ContentImage(image=encode_data_uri(image)) for image in request.images]
                messages: list[ChatMessage] = [ChatMessageSystem(content=request.system)] if request.system else []
                messages.append(
                    ChatMessageUser(content=[*pictures, *content] if request.image_first else [*content, *pictures])
                )
                question_type = str(row["question_type"])
                samples[request.question_id] = Sample(
                    id=request.question_id,
                    input=messages,
                    target=format_letters(row["answer"]),
                    choices=[str(option) for option in row["options"]],
                    metadata=question_metadata(row)
                    | {"prompt": get_prompt(family, prompt, question_type).name, "asked": provenance},
                )
        return Task(
            dataset=MemoryDataset([samples[name] for name in rows], name=selection.repository.name),
            solver=generate(),
            scorer=SCORERS[family](),
            epochs=Epochs(1, "medprobe_every_answer"),
            config=GenerateConfig(max_tokens=generation["max_tokens"], temperature=0.0, seed=0),
            metadata={"medprobe": provenance},
        )

    return task(_claim_for_package(make), name=benchmark)


INSPECT_TASKS = {benchmark: _make_task(benchmark) for benchmark in FORMATS}
