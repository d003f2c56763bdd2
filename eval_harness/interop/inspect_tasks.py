"""The benchmarks as tasks of inspect-ai: `inspect eval medprobe/mediconfusion --model ... -T data=data/mediconfusion`.

The prompts are ours (a template per question type), the scorer is our reader, and the metrics are computed by our scoring from the samples'
metadata, so that the same answers give the same numbers as `medprobe score`. Loaded by the entry point group `inspect_ai`; needs the extra
`inspect`. See also: the Hub's own tasks (`dataset_builders/contents/eval_yaml.py`), reading a log (`inspect_log.py`).
"""

from __future__ import annotations

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

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.images.picture import encode_data_uri
from eval_harness.answer_files.inspect_log import parse_output
from eval_harness.benchmarks import eval_spec
from eval_harness.interop.harness_file import format_letters, kept_columns, read_answer, scores_of
from eval_harness.prompts import get_prompt
from eval_harness.records.conversation import DEFAULT_FORM
from eval_harness.records.run import RunRequest
from eval_harness.records.selection import select_questions
from eval_harness.runs.requests import RequestMaker, make_requests

PACKAGE = "medprobe"


def _of_package(function: Callable[..., Any]) -> Callable[..., Any]:
    """Say that a function belongs to the module `medprobe`: inspect-ai takes the first part of `medprobe/...` from there."""
    importlib.import_module(PACKAGE)
    function.__module__ = PACKAGE
    return function


@metric
def medprobe_scores(format: str) -> Metric:  # inspect-ai writes the parameter's name into its logs
    """Every metric of the benchmark in percent, as `medprobe score` prints it, and `<metric>_stderr`, clustered by shared images."""

    def compute(scores: list[SampleScore]) -> dict[str, float]:
        questions = [each.sample_metadata or {} for each in scores]
        answers = [answer for each in scores for answer in (each.score.metadata or {}).get("medprobe", [])]
        values, errors = scores_of(format, questions, answers)
        return values | {f"{name}_stderr": errors[name] for name in values if name in errors}

    return compute


@score_reducer(name="medprobe_every_answer")
def medprobe_every_answer() -> ScoreReducer:
    """Epochs as samples of a question: the mean value, and every answer kept, since a pair is right or wrong within one epoch."""

    def reduce(scores: list[Score]) -> Score:
        kept = [answer for each in scores for answer in (each.metadata or {}).get("medprobe", [])]
        right = sum(each.value == CORRECT for each in scores) / len(scores)
        value = scores[0].value if len(scores) == 1 else right
        return Score(
            value=value, answer=scores[0].answer, explanation=scores[0].explanation, metadata={"medprobe": kept}
        )

    return reduce


def _scorer_of(family: str) -> Callable[..., Scorer]:
    # inspect-ai's own `accuracy` is left out: a benchmark may have a metric of that name, in percent.
    @scorer(metrics=[medprobe_scores(family)], name=f"medprobe_{family}")
    def medprobe_reader() -> Scorer:
        """Reads the answer of a sample as `medprobe score` does and sets it against the key."""

        async def read(state: TaskState, target: Target) -> Score:
            question = state.metadata
            line = {"question_id": str(question["question_id"]), "sample": state.epoch - 1}
            found = read_answer(family, question, line | parse_output(state.output, failed=False))
            return Score(
                value=CORRECT if found["right"] else INCORRECT,
                answer=format_letters(found["choice"]),
                explanation=f"{found['status']} ({found['rule']})",
                metadata={"medprobe": [line | found]},
            )

        return read

    return medprobe_reader


SCORERS = {family: _scorer_of(family) for family in BENCHMARKS}
"""The scorer of each benchmark, with its metrics."""


def _task_of(benchmark: str) -> Callable[..., Task]:
    def make(
        data: str | None = None,
        split: str | None = None,
        limit: int | None = None,
        prompt: str | None = None,
        form: str = DEFAULT_FORM,
    ) -> Task:
        """The task of a benchmark.

        `data`: dataset folder or Hub repository (data/<benchmark> if not said), `split` of it; `limit`: only the first questions, with the
        rest of their cases (inspect's own --limit cuts cases in two); `prompt`: name of a template; `form`: of the conversation. Raises
        BadInput as `medprobe eval` does.
        """
        chosen = select_questions(benchmark, data, split, limit=limit)
        family = chosen.repository.family
        generation = {
            "max_tokens": eval_spec(family).max_tokens,
            "temperature": 0.0,
            "seed": 0,
            "form": form,
            "system": None,
        }
        asked: dict[str, Any] = {
            "benchmark": chosen.repository.name,
            "data": str(chosen.repository.data),
            "split": chosen.split,
            "fingerprint": chosen.fingerprint,
        }
        request = RunRequest(**asked, model="inspect-ai", method="mc", prompt=prompt, samples=1, generation=generation)
        about = asked | {"revision": chosen.repository.revision, "left_out": chosen.left_out, "form": form}
        rows = {row["question_id"]: row for row in chosen.questions.to_dict("records")}
        maker = RequestMaker(request, family)
        instances = [(row, 0) for row in range(len(chosen.questions))]
        samples = {}
        for batch in make_requests(chosen, maker, instances, chosen.repository.has_images):
            for ours in batch:
                row = rows[ours.question_id]
                content = [ContentText(text=ours.prompt)]
                pictures = [ContentImage(image=encode_data_uri(image)) for image in ours.images]
                messages: list[ChatMessage] = [ChatMessageSystem(content=ours.system)] if ours.system else []
                messages.append(
                    ChatMessageUser(content=[*pictures, *content] if ours.image_first else [*content, *pictures])
                )
                kind = str(row["question_type"])
                samples[ours.question_id] = Sample(
                    id=ours.question_id,
                    input=messages,
                    target=format_letters(row["answer"]),
                    choices=[str(option) for option in row["options"]],
                    metadata=kept_columns(row) | {"prompt": get_prompt(family, prompt, kind).name, "asked": about},
                )
        return Task(
            dataset=MemoryDataset([samples[name] for name in rows], name=chosen.repository.name),
            solver=generate(),
            scorer=SCORERS[family](),
            epochs=Epochs(1, "medprobe_every_answer"),
            config=GenerateConfig(max_tokens=generation["max_tokens"], temperature=0.0, seed=0),
            metadata={"medprobe": about},
        )

    return task(_of_package(make), name=benchmark)


TASKS = {benchmark: _task_of(benchmark) for benchmark in BENCHMARKS}
