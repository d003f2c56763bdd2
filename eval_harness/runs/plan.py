"""Plan a run: the questions, the model, how it is asked, and the record in `run.json`.

Everything in a plan is known before the first question is sent.

See also: the options (`config.py`), the questions (`records/selection.py`), single requests
(`requests.py`), sizes and costs (`dry_run.py`).
"""

import hashlib
import platform
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput
from eval_harness.benchmarks import eval_spec, get_prompt
from eval_harness.benchmarks.spec import Prompt
from eval_harness.derive.reading import official_reader
from eval_harness.models.interface import (
    BACKEND_OPTIONS,
    DEFAULT_REASONING_TOKENS,
    Backend,
    Settings,
    json_description,
    short_digest,
)
from eval_harness.models.load import Recorded, load_backend
from eval_harness.reader.judge import NO_JUDGE_DEVIATION, judge_record
from eval_harness.records.limits import (
    MAX_FIELD_BYTES,
    limits_for,
    model_slug,
    normalize_name,
    printable_line,
    run_problems,
)
from eval_harness.records.request import Request, form_hash, get_form
from eval_harness.records.result import ARMS, Images, Method, RunRecord, RunRequest
from eval_harness.records.selection import Selection, select_questions
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.requests import (
    MAX_REQUESTS_PER_BATCH,
    Instance,
    Partners,
    RequestMaker,
    Row,
    assign_partners,
    example_rows,
    make_requests,
    with_example_images,
)


@dataclass(frozen=True)
class Plan:
    """A run before its first question.

    `examples`: questions that serve as worked examples; `partners`: in a run with swapped images,
    the case whose images each case shows.
    """

    config: EvalConfig
    selection: Selection
    backend: Backend
    examples: Sequence[Row]
    run: RunRecord
    partners: Partners | None = None

    @property
    def shows_images(self) -> bool:
        """True if requests contain images: the back end needs them and they are not withheld."""
        return self.backend.needs_images and self.run.request.image != "withheld"

    # Cached, as it is used once per answer.
    @cached_property
    def instances(self) -> list[Instance]:
        """All (row, sample) pairs of the run, in the order in which they are asked."""
        samples = range(self.run.request.samples)
        if self._order is not None:
            return [(row, n) for n in samples for row in self._order]
        return [(row, n) for row in range(len(self.selection.questions)) for n in samples]

    @cached_property
    def _order(self) -> Sequence[int] | None:
        return self.backend.order(self.selection.questions)

    def key(self, instance: Instance) -> tuple[str, int]:
        """Return (question id, sample), as in the journal."""
        return self._ids[instance[0]], instance[1]

    @cached_property
    def _ids(self) -> list[str]:
        return [str(name) for name in self.selection.questions["question_id"]]

    def requests(
        self, instances: Sequence[Instance], with_images: bool | None = None, at_once: int = MAX_REQUESTS_PER_BATCH
    ) -> Iterator[list[Request]]:
        """Yield the requests of these instances in batches, which limit the memory for images.

        Args:
            instances: (row, sample) pairs.
            with_images: whether requests contain images; None for `shows_images`.
            at_once: maximum batch size.
        """
        examples = with_example_images(self.selection, self.examples, self.shows_images)
        maker = RequestMaker(self.run.request, self.run.benchmark.family, examples)
        send_images = self.shows_images if with_images is None else with_images
        return make_requests(self.selection, maker, instances, send_images, at_once, self.partners)

    def stream(self, instances: Sequence[Instance]) -> Iterator[Request]:
        """Yield the requests of these instances one by one, in their order if the back end chose
        it, else as cases are stored.
        """
        groups = [instances] if self._order is None else [[instance] for instance in instances]
        return (request for group in groups for batch in self.requests(group, at_once=1) for request in batch)


BackendLoader = Callable[[str, Settings], Backend]
"""Function from a `--model` argument and settings to a back end."""


def make_plan(config: EvalConfig, load: BackendLoader = load_backend) -> Plan:
    """Select the questions, load the model and describe the run.

    Args:
        config: the run's options.
        load: function from a `--model` argument and settings to a back end.

    Raises:
        BadInput: anything that the user can fix.
    """
    selection = select_questions(
        config.benchmark, config.data, config.split, config.branches, config.limit, config.facets, config.revision
    )
    if config.extraction == "official":
        # Raises if the benchmark has no official reader.
        official_reader(selection.repository.family)
    question_types = sorted(selection.questions["question_type"].unique(), reverse=True)
    prompts = [
        get_prompt(selection.repository.family, config.prompt, question_type, config.method)
        for question_type in question_types
    ]
    if config.permute and not all(prompt.shows_options for prompt in prompts):
        raise BadInput("--permute: the prompt shows no options, so their order cannot matter. Omit it.")
    if config.method == "ff" and config.judge and not eval_spec(selection.repository.family).judged_free_form:
        raise BadInput(
            "--judge: the free-form judge compares MediConfusion's two options. Use --method mc, or omit --judge."
        )
    examples = example_rows(selection, config.shots) if config.shots else []
    # Loading a model may take minutes, so the options are checked first.
    backend = load(config.model, config.model_settings)
    if not backend.sees_prompts and (config.form or config.system is not None):
        raise BadInput(f"--form, --system: --model {config.model} does not receive a conversation. Omit them.")
    if config.scores_options and not callable(getattr(backend, "score", None)):
        raise BadInput(f"--method {config.method}: {config.model} cannot score options. Use --method mc.")
    if config.image != "withheld":
        _check_images(config, backend, selection)
    case_partners = None
    if config.image == "swapped":
        case_partners = assign_partners(selection.repository.questions(selection.split))
        case_partners.check(selection.questions["case_id"].tolist())
    samples = _samples(config, backend, selection)
    # Raises if no store would accept so many answers.
    limits_for(len(selection.questions), samples)
    run = describe_run(config, selection, backend, samples, prompts)
    # Half of a store's limit, as the environment grows if the run is resumed elsewhere.
    problem = next(run_problems(run, MAX_FIELD_BYTES // 2), None)
    if problem:
        raise BadInput(f"--model {config.model}: no results store would accept this run: {problem.rstrip('.')}.")
    return Plan(config, selection, backend, examples, run, case_partners)


def comparison_arms(plan: Plan) -> list[Images]:
    """Return the arms that the benchmark's metrics are compared with, `withheld` last.

    Raises BadInput if there are none, if the plan is an arm itself, or if its answers are recorded.
    """
    if plan.config.image != "real":
        raise BadInput(f"--arms: runs all arms, so it cannot be combined with --image {plan.config.image}.")
    if plan.config.model.startswith("recorded:"):
        raise BadInput(
            "--arms: recorded answers do not depend on what is shown. Give each run its own file and --image."
        )
    metrics = eval_spec(plan.run.benchmark.family).metrics.values()
    arms: list[Images] = [arm for arm in reversed(ARMS) if any(arm in info.compared for info in metrics)]
    if not arms:
        reason = next((info.no_arm for info in metrics if info.no_arm), "")
        raise BadInput(
            f"--arms: no score of {plan.run.benchmark.name} can be compared with one without images: {reason}."
        )
    return arms


def _check_images(config: EvalConfig, backend: Backend, selection: Selection) -> None:
    """Raise BadInput if some questions show several images and the model takes only one."""
    questions = selection.questions
    if "more_image_ids" not in questions.columns or not backend.needs_images:
        return
    multi_image_ids = questions["question_id"][questions["more_image_ids"].map(len, na_action="ignore") > 0]
    if len(multi_image_ids) and not backend.several_images:
        raise BadInput(
            f"--model {config.model}: takes one image per question, and {len(multi_image_ids)} of "
            f"{len(questions)} questions show several "
            f"({multi_image_ids.iloc[0]} ...). Use a model that takes several images."
        )


def _samples(config: EvalConfig, backend: Backend, selection: Selection) -> int:
    """Return the number of samples per question."""
    # One sample per rotation of the longest list of options.
    if config.permute:
        return int(selection.questions["options"].map(len).max())
    if not isinstance(backend, Recorded):
        return config.samples or 1
    samples = backend.read(selection.repository.questions(selection.split))
    if config.samples not in (None, samples):
        raise BadInput(f"--samples {config.samples}: the recorded file has {samples} per question.")
    return samples


FREE_FORM_TOKENS = 512
"""Output-token limit for free-form answers (`ff`) and for models that cannot stop at one token."""

SAMPLING_TEMPERATURE = 0.7
"""Temperature for `--samples N` with N > 1; a single sample is greedy (temperature 0).

It is MediConfusion's setting for GPT-4o.
"""


def describe_run(
    config: EvalConfig, selection: Selection, backend: Backend, samples: int, prompts: Sequence[Prompt]
) -> RunRecord:
    """Build the run's record; its id contains a digest of everything that determines the answers.

    Args:
        config: the run's options.
        selection: the questions.
        backend: the loaded model.
        samples: answers per question.
        prompts: the prompt templates, one per question type.
    """
    benchmark = selection.benchmark()
    deviations = _deviations(config, backend, selection)
    max_tokens = _max_tokens(config, backend, benchmark.family, deviations)
    generation = _generation(config, backend, max_tokens, sampled=samples > 1 and not config.permute)
    # Everything in the request is compared when a run is resumed.
    request = RunRequest(
        benchmark=benchmark.name,
        data=benchmark.repo or "",
        split=benchmark.split,
        fingerprint=selection.fingerprint,
        model=config.model,
        method=config.method,
        prompt=config.prompt,
        shots=config.shots,
        samples=samples,
        permute=config.permute,
        generation=generation,
        branches=tuple(config.branches),
        facets=tuple(config.facets),
        limit=config.limit,
        image=config.image,
        model_digest=backend.digest,
    )
    model = backend.model.model_copy(update={"name": normalize_name(config.name or backend.model.name)})
    # The digest distinguishes runs whose names are equal.
    digest = hashlib.sha256(request.model_dump_json().encode()).hexdigest()[:8]
    arm = [config.image] if config.image != "real" else []
    hashes = {"prompt_hash": "+".join(dict.fromkeys(prompt.text_hash for prompt in prompts))}
    if backend.template_hash:
        hashes["template_hash"] = backend.template_hash
    if backend.sees_prompts:
        # The hash of the form shows whether two runs presented their prompts in the same way.
        maker = RequestMaker(request, benchmark.family)
        systems = [maker.system(prompt, with_examples=config.shots > 0) for prompt in prompts]
        template, kwargs = generation.get("chat_template"), generation.get("chat_template_kwargs", {})
        hashes["form_hash"] = form_hash(maker.form, systems, backend.needs_images, template, kwargs)
    return RunRecord(
        run_id="-".join([benchmark.name, model_slug(model.name), config.method, *arm, digest]),
        request=request,
        benchmark=benchmark,
        model=model,
        method=Method(
            name=config.method,
            prompt="+".join(dict.fromkeys(prompt.name for prompt in prompts)),
            shots=config.shots,
            samples=samples,
            image=config.image,
            extraction=config.extraction,
            judge=judge_record(config.judge, config.settings.base_url, config.method) if config.judge else None,
            generation=generation | hashes,
        ),
        deviations=deviations,
        environment={
            **collect_environment(),
            "python": platform.python_version(),
            **json_description(backend),
            **({"price_per_million_tokens": list(config.settings.price)} if config.settings.price else {}),
        },
        command=shlex.join(["medprobe", *config.argv]) if config.argv else None,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _deviations(config: EvalConfig, backend: Backend, selection: Selection) -> list[str]:
    deviations = list(map(printable_line, backend.deviations))
    if config.shots:
        deviations.append("the worked examples are questions of the benchmark itself (the paper took PMC-VQA's)")
    if config.scores_options and (selection.questions["question_type"] == "multiple").any():
        deviations.append("questions with several correct options were answered with the one of highest likelihood")
    if config.method == "ff" and not config.judge:
        deviations.append(NO_JUDGE_DEVIATION)
    return deviations


def _max_tokens(config: EvalConfig, backend: Backend, family: str, deviations: list[str]) -> int:
    """Return the output-token limit, and add to `deviations` if it is not the benchmark's.

    It is --max-tokens if given; otherwise the benchmark's limit, plus the tokens for reasoning if
    --thinking asks for it.
    """
    protocol = eval_spec(family).max_tokens if config.method != "ff" else FREE_FORM_TOKENS
    thinking = config.settings.thinking
    if config.max_tokens is not None:
        limit = config.max_tokens
    elif thinking not in (None, "off"):
        limit = protocol + (DEFAULT_REASONING_TOKENS if thinking == "on" else int(thinking))
    # The benchmark reads one token, but this model cannot be made to stop there.
    elif protocol == 1 and not backend.one_token:
        deviations.append("the model cannot be limited to one output token")
        return FREE_FORM_TOKENS
    else:
        return protocol
    if protocol == 1 and limit > 1:
        deviations.append(f"{limit} output tokens were allowed where the protocol allows 1")
    return limit


def _generation(config: EvalConfig, backend: Backend, max_tokens: int, sampled: bool) -> dict[str, Any]:
    """Return the generation settings that determine the answers.

    Apart from the first four and the form, a setting is present only if it was given.
    """
    settings = config.settings
    extra = dict(settings.generation)
    generation: dict[str, Any] = {
        "max_tokens": max_tokens,
        "temperature": extra.pop("temperature", SAMPLING_TEMPERATURE if sampled else 0.0),
        "seed": extra.pop("seed", 0),
        "permute": config.permute,
    }
    if backend.sees_prompts:
        generation["form"] = get_form(config.form).name
    template = settings.chat_template
    optional = {
        "system": config.system,
        # A reasoning model on a server may exceed the benchmark's limit, but not the user's.
        "fixed_limit": True if config.max_tokens is not None and backend.uses_http else None,
        "max_image_side": settings.max_image_side,
        **{name: getattr(settings, name) for name in BACKEND_OPTIONS},
        "chat_template": template and short_digest(template.encode()),
        "generation": extra,
        "dtype": settings.dtype,
    }
    return generation | {name: value for name, value in optional.items() if value not in (None, {})}


VERSIONED_LIBRARIES = ("datasets", "numpy", "pandas", "pillow")
"""Libraries that affect the numbers; their versions are recorded."""


@cache
def collect_environment() -> dict[str, Any]:
    """Return the versions of medprobe and its libraries, and the git commit of this code.

    `git_commit` and `git_dirty` are None outside a checkout. The result is cached, since this
    process keeps running the code it has loaded even if the checkout changes.
    """
    commit, dash, _ = _described().partition("-")
    return {
        "medprobe": _version("medprobe"),
        "git_commit": commit or None,
        "git_dirty": bool(dash) if commit else None,
        **{name: _version(name) for name in VERSIONED_LIBRARIES},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _described() -> str:
    """Return the commit of this code, with `-dirty` if tracked files changed; "" if it is unknown.

    `--no-optional-locks` keeps a run that is killed meanwhile from leaving the repository locked.
    """
    here = Path(__file__).resolve().parents[2]
    # An installed package has no repository, but may be inside that of another project.
    if not (here / ".git").exists():
        return ""
    command = [
        "git",
        "--no-optional-locks",
        "-C",
        str(here),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
        "--exclude=*",
    ]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
