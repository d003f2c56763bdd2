"""The plan of a run: which questions, put how, to which model. Everything here is known before the first question is asked.

See also: the options (`config.py`), the questions (`records/selection.py`), single requests (`requests.py`), what is written of it
(`description.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dataset_builders.errors import BadInput
from eval_harness.benchmarks import spec
from eval_harness.benchmarks.prompt import Prompt
from eval_harness.models.interface import Backend, Settings
from eval_harness.models.load import load_backend
from eval_harness.prompts import prompt_for
from eval_harness.records.limits import FREE_BYTES, limits_for
from eval_harness.records.request import Request
from eval_harness.records.run import Run
from eval_harness.records.run_checks import wrong_run
from eval_harness.records.selection import Selection, select_questions
from eval_harness.runs.planning.config import EvalConfig
from eval_harness.runs.planning.description import describe_run
from eval_harness.runs.planning.requests import (
    AT_ONCE,
    Instance,
    RequestMaker,
    Row,
    example_rows,
    make_requests,
    with_example_images,
)


@dataclass(frozen=True)
class Plan:
    """A run before its first question. `examples`: the questions that worked examples are taken from."""

    config: EvalConfig
    selection: Selection
    backend: Backend
    examples: Sequence[Row]
    run: Run

    @property
    def instances(self) -> list[Instance]:
        """Every (row, sample) that the run asks."""
        return [(row, n) for row in range(len(self.selection.questions)) for n in range(self.run.request.samples)]

    def key(self, instance: Instance) -> tuple[str, int]:
        """(question id, sample), as the journal has it."""
        return self._ids[instance[0]], instance[1]

    @cached_property
    def _ids(self) -> list[str]:
        return [str(name) for name in self.selection.questions["question_id"]]

    def requests(
        self, instances: Sequence[Instance], with_images: bool | None = None, at_once: int = AT_ONCE
    ) -> Iterator[list[Request]]:
        """The requests of these instances, in lists that bound the memory of their images.

        `with_images` None: as the back end needs them. Raises BadInput where an image of a worked example cannot be decoded.
        """
        examples = with_example_images(self.selection, self.examples, self.backend.needs_images)
        maker = RequestMaker(self.run.request, self.run.benchmark.family, examples)
        wanted = self.backend.needs_images if with_images is None else with_images
        return make_requests(self.selection, maker, instances, wanted, at_once)

    def with_run(self, run: Run) -> Plan:
        """The same plan, with what a run folder already says of it."""
        return replace(self, run=run)


Load = Callable[[str, Settings], Backend]
"""From a `--model` argument and settings to a back end."""


def make_plan(config: EvalConfig, load: Load = load_backend) -> Plan:
    """Pick the questions, load the model, and describe the run. Raises BadInput for anything the user can fix."""
    selection = select_questions(
        config.benchmark, config.data, config.split, config.branches, config.limit, config.facets
    )
    prompts = _prompts(config, selection)
    if config.permute and not all(prompt.shows_options for prompt in prompts):
        raise BadInput("--permute: the prompt shows no options, so there is no order to change. Leave it out.")
    if config.method == "ff" and config.judge and not spec(selection.repository.family).judged_free_form:
        raise BadInput(
            "--judge: the free-form judge compares MediConfusion's two options. Use --method mc, or leave --judge out."
        )
    examples = example_rows(selection, config.shots) if config.shots else []
    backend = load(config.model, config.model_settings)
    if not backend.sees_prompts and (config.form or config.system is not None):
        raise BadInput(f"--form, --system: --model {config.model} is sent no conversation. Leave them out.")
    if config.scores_options and not callable(getattr(backend, "score", None)):
        raise BadInput(f"--method {config.method}: {config.model} cannot score options. Use --method mc.")
    _check_images(config, backend, selection)
    samples = _samples(config, backend, selection)
    limits_for(len(selection.questions), samples)  # raises where no store takes so many answers
    run = describe_run(config, selection, backend, samples, prompts)
    _check_storable(run)
    return Plan(config, selection, backend, examples, run)


def _prompts(config: EvalConfig, selection: Selection) -> list[Prompt]:
    """The templates of the run, one per question type."""
    kinds = sorted(selection.questions["question_type"].unique(), reverse=True)
    return [prompt_for(selection.repository.family, config.prompt, kind, config.method) for kind in kinds]


def _check_images(config: EvalConfig, backend: Backend, selection: Selection) -> None:
    """Raise BadInput for questions that show more images than the model takes."""
    questions = selection.questions
    if "more_image_ids" not in questions.columns or not backend.needs_images:
        return
    several = questions["question_id"][questions["more_image_ids"].map(len, na_action="ignore") > 0]
    if len(several) and not backend.several_images:
        raise BadInput(
            f"--model {config.model}: takes one image per question, and {len(several)} of {len(questions)} questions show several "
            f"({several.iloc[0]} ...). Ask a model that takes several images."
        )


def _samples(config: EvalConfig, backend: Backend, selection: Selection) -> int:
    from eval_harness.models.recorded import Recorded

    if config.permute:
        return int(selection.questions["options"].map(len).max())
    if not isinstance(backend, Recorded):
        return config.samples or 1
    backend.check_questions(selection.in_split)
    if config.samples not in (None, backend.samples()):
        raise BadInput(f"--samples {config.samples}: the recorded file holds {backend.samples()} per question.")
    return backend.samples()


def _check_storable(run: Run) -> None:
    """Raise BadInput now for what no results store would take later, found by the very function that will judge the submission."""
    # Half of what a store takes: the environment is added to when the run is resumed elsewhere.
    wrong = next(wrong_run(run, FREE_BYTES // 2), None)
    if wrong:
        raise BadInput(f"--model {run.request.model}: no results store would take this run: {wrong.rstrip('.')}.")
