"""What `run.json` says of a run before it begins: its request, method, deviations from the protocol and environment."""

from __future__ import annotations

import hashlib
import platform
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from eval_harness.benchmarks import spec
from eval_harness.benchmarks.prompt import Prompt
from eval_harness.models.interface import OPTIONS, Backend, description_of
from eval_harness.reader.judge import NO_JUDGE, judge_named
from eval_harness.records.conversation import form_hash, form_named
from eval_harness.records.names import model_slug, normal_name, storable
from eval_harness.records.result import Method
from eval_harness.records.run import Run, RunRequest
from eval_harness.records.selection import Selection
from eval_harness.runs.planning.config import EvalConfig
from eval_harness.runs.planning.environment import collect_environment
from eval_harness.runs.planning.requests import RequestMaker

THINKING_TOKENS = 16384
"""Room for reasoning where it is asked for and no budget is given."""

FREE_FORM_TOKENS = 512
"""Output tokens of an answer that is not held to one token, or is written freely (`ff`)."""

SAMPLING_TEMPERATURE = 0.7
"""Used for `--samples N` with N > 1 (MediConfusion's setting for GPT-4o); a single sample is always greedy (temperature 0)."""


def describe_run(
    config: EvalConfig, selection: Selection, backend: Backend, samples: int, prompts: Sequence[Prompt]
) -> Run:
    """The run as it would be written; its id is over everything that decides the answers."""
    benchmark = selection.benchmark()
    deviations = _deviations(config, backend, selection)
    max_tokens = _max_tokens(config, backend, benchmark.family, deviations)
    generation = _generation(config, backend, max_tokens, sampled=samples > 1 and not config.permute)
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
    )
    model = backend.model.model_copy(update={"name": _name(config, backend)})
    digest = hashlib.sha256(request.model_dump_json().encode()).hexdigest()[:8]
    hashes = {"prompt_hash": "+".join(dict.fromkeys(prompt.text_hash for prompt in prompts))}
    if backend.template_hash:
        hashes["template_hash"] = backend.template_hash
    if backend.sees_prompts:
        maker = RequestMaker(request, benchmark.family)
        systems = [maker.system(prompt, with_examples=config.shots > 0) for prompt in prompts]
        template, kwargs = generation.get("chat_template"), generation.get("chat_template_kwargs", {})
        hashes["form_hash"] = form_hash(maker.form, systems, backend.needs_images, template, kwargs)
    return Run(
        run_id="-".join([benchmark.name, model_slug(model.name), config.method, digest]),
        request=request,
        benchmark=benchmark,
        model=model,
        method=Method(
            name=config.method,
            prompt="+".join(dict.fromkeys(prompt.name for prompt in prompts)),
            shots=config.shots,
            samples=samples,
            extraction=config.extraction,
            judge=judge_named(config.judge, config.settings.base_url, config.method) if config.judge else None,
            generation=generation | hashes,
        ),
        deviations=deviations,
        environment={
            **collect_environment(),
            "python": platform.python_version(),
            **description_of(backend),
            **({"price_per_million_tokens": list(config.settings.price)} if config.settings.price else {}),
        },
        command=shlex.join(["medprobe", *config.argv]) if config.argv else None,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _name(config: EvalConfig, backend: Backend) -> str:
    """The display name; that of a model without its image says so."""
    name = normal_name(config.name or backend.model.name)
    is_named_so = backend.model.responder != "model without image" or "text only" in name.lower()
    return name if is_named_so else f"{name} (text only)"


def _deviations(config: EvalConfig, backend: Backend, selection: Selection) -> list[str]:
    found = list(map(storable, backend.deviations))
    if config.shots:
        found.append("the worked examples are questions of the benchmark itself (the paper took PMC-VQA's)")
    if config.scores_options and (selection.questions["question_type"] == "multiple").any():
        found.append("questions with several right options were answered with the one of highest likelihood")
    if config.method == "ff" and not config.judge:
        found.append(NO_JUDGE)
    return found


def _max_tokens(config: EvalConfig, backend: Backend, family: str, deviations: list[str]) -> int:
    """The most output tokens of an answer: the option's, or the benchmark's, with room for the reasoning that was asked for."""
    protocol = spec(family).max_tokens if config.method != "ff" else FREE_FORM_TOKENS
    thinking = config.settings.thinking
    if config.max_tokens is not None:
        wanted = config.max_tokens
    elif thinking not in (None, "off"):
        wanted = protocol + (THINKING_TOKENS if thinking == "on" else int(thinking))
    elif protocol == 1 and not backend.one_token:
        deviations.append("the model cannot be held to one output token")
        return FREE_FORM_TOKENS
    else:
        return protocol
    if protocol == 1 and wanted > 1:
        deviations.append(f"{wanted} output tokens were allowed where the protocol has 1")
    return wanted


def _generation(config: EvalConfig, backend: Backend, max_tokens: int, sampled: bool) -> dict[str, Any]:
    """Everything about how answers are generated that decides them. Keys beyond the first four stand only where they were given."""
    settings = config.settings
    further = dict(settings.generation)
    generation: dict[str, Any] = {
        "max_tokens": max_tokens,
        "temperature": further.pop("temperature", SAMPLING_TEMPERATURE if sampled else 0.0),
        "seed": further.pop("seed", 0),
        "permute": config.permute,
    }
    if backend.sees_prompts:
        generation["form"] = form_named(config.form).name
    template = settings.chat_template
    given = {
        "system": config.system,
        # A server's model that reasons is given more room than the benchmark's, but not more than the user's.
        "fixed_limit": True if config.max_tokens is not None and backend.is_api else None,
        "max_image_side": settings.max_image_side,
        **{name: getattr(settings, name) for name in OPTIONS},
        "chat_template": template and hashlib.sha256(template.encode()).hexdigest()[:16],
        "generation": further,
        "dtype": settings.dtype,
    }
    return generation | {name: value for name, value in given.items() if value not in (None, {})}
