"""The options of `medprobe eval`, with the checks that need neither dataset nor model."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError, create_model

from dataset_builders.errors import BadInput, first_validation_error
from eval_harness.models.interface import BACKEND_OPTIONS, MODEL_ARGS, Settings, parse_price, parse_thinking
from eval_harness.records.conversation import get_form
from eval_harness.records.result import ARMS, Images
from eval_harness.records.run_checks import METHOD_NAMES

IMAGE_MODES = ("real", *ARMS)
SCORING_METHODS = ("gd", "ps", "ps_official")
"""The methods that compare likelihoods of the options instead of reading an answer."""

MIN_VALUES = {
    "shots": 0,
    "samples": 1,
    "max_tokens": 1,
    "max_image_side": 1,
    "in_flight": 1,
    "timeout": 0.1,
    "wait_server": 0,
}
"""Minimum of each numeric option; none of them may be infinite or NaN."""

RESERVED_GENERATION_KEYS = {
    "model",
    "messages",
    "stream",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "max_new_tokens",
    "logprobs",
    "top_logprobs",
}
"""Parameters that `--generation` may not set: they have their own option, or would change what an answer is."""


@dataclass(frozen=True)
class EvalConfig:
    """The options of `medprobe eval`. Raises BadInput if they are inconsistent."""

    benchmark: str
    model: str
    data: str | None = None
    revision: str | None = None
    """Tag, branch or commit of `data` on the Hub; None: main."""
    split: str | None = None
    branches: Sequence[str] = ()
    facets: Sequence[str] = ()
    method: str = "mc"
    prompt: str | None = None
    shots: int = 0
    samples: int | None = None
    permute: bool = False
    image: Images = "real"
    """The images shown with each question (`runs/images.py`)."""
    form: str | None = None
    """Name of the conversation form (`forms.FORMS`); None: the default, or the one a resumed run was begun in."""
    system: str | None = None
    """System message instead of the form's; "" sends none."""
    max_tokens: int | None = None
    """Most output tokens of an answer, reasoning included, instead of the benchmark's."""
    cache: Path | None = None
    """Folder of replies kept across runs."""
    extraction: str = "ours"
    judge: str | None = None
    out: Path | None = None
    limit: int | None = None
    name: str | None = None
    resume: bool = True
    send_to_provider: bool = False
    """True if a custom set may be sent to a model that is not on this machine."""
    settings: Settings = field(default_factory=Settings)
    argv: Sequence[str] = ()
    track: str | None = None
    """LIBRARY:PROJECT of a tracker (`runs/tracking.py`); it has no part in the request."""

    def __post_init__(self) -> None:
        if self.method not in METHOD_NAMES:
            raise BadInput(f"--method {self.method}: unknown. Available: {', '.join(METHOD_NAMES)}.")
        if self.image not in IMAGE_MODES:
            raise BadInput(f"--image {self.image}: unknown. Available: {', '.join(IMAGE_MODES)}.")
        if self.permute and self.samples:
            raise BadInput("--permute: takes one answer per option order, so it goes without --samples.")
        if self.permute and self.judge:
            raise BadInput("--judge: a judge reads the options as the question has them, so it goes without --permute.")
        for name, least in MIN_VALUES.items():
            value = getattr(self if hasattr(self, name) else self.settings, name)
            if value is not None and not least <= value < math.inf:
                raise BadInput(f"--{name.replace('_', '-')} {value}: must be at least {least}.")
        drawn = self.settings.generation.get("temperature", 0)
        if isinstance(drawn, bool) or not isinstance(drawn, int | float) or not 0 <= drawn < math.inf:
            raise BadInput(f"--generation: temperature {drawn!r}: must be a number from 0.")
        if type(seed := self.settings.generation.get("seed", 0)) is not int:
            raise BadInput(f"--generation: seed {seed!r}: must be an integer.")
        if self.scores_options and (self.samples or 1) > 1:
            raise BadInput(
                f"--samples {self.samples}: --method {self.method} draws nothing, so one sample is all there is."
            )
        if wrong := sorted(self.settings.generation.keys() & RESERVED_GENERATION_KEYS):
            raise BadInput(
                f"--generation: {', '.join(wrong)} cannot be set there. Use --max-tokens and the other options."
            )
        get_form(self.form)

    @property
    def scores_options(self) -> bool:
        """True if the method compares likelihoods of the options."""
        return self.method in SCORING_METHODS

    @property
    def model_settings(self) -> Settings:
        """The settings as the back end gets them."""
        return replace(self.settings, max_tokens=self.max_tokens)


def option_types() -> dict[str, Any]:
    """The options of `medprobe eval` that make a configuration, by name, with the type of what is given there."""
    types = get_type_hints(EvalConfig) | get_type_hints(Settings)
    for name in ("settings", "argv", "resume", "branches", "facets", "engine", *MODEL_ARGS):
        del types[name]
    types |= dict.fromkeys(OPTION_PARSERS, str | None) | dict.fromkeys(("branch", "facet"), list[str] | None)
    return types | {"image": str, "batch_size": str, "chat_template": Path | None, "model_args": str | None}


@lru_cache
def _options_model() -> type[BaseModel]:
    """The options of `medprobe eval` with their types, none of them required."""
    options: dict[str, Any] = {name: (kind, None) for name, kind in option_types().items()}
    return create_model("Options", __config__=ConfigDict(extra="forbid", coerce_numbers_to_str=True), **options)


def validate_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name, in Python's or YAML's forms, in those of the command line: `-` in a name is `_`, a mapping is JSON, a pair of prices
    two numbers with a comma, a path a text; one label may stand for a list of one; `thinking` may be true or false.

    Raises BadInput for an unknown name, or a value of another type.
    """
    known = option_types()
    options = {name.replace("-", "_"): value for name, value in given.items()}
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise BadInput(f"{name}: not an option of a run.{hint} `medprobe eval --help` lists them.")
    try:
        typed = {name: _as_text(name, value) for name, value in options.items()}
        return _options_model()(**typed).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise BadInput(f"{first_validation_error(error)}.") from None


def _as_text(name: str, value: Any) -> Any:
    if name == "thinking" and isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        try:
            return json.dumps(value)
        except (TypeError, ValueError) as error:
            raise BadInput(f"{name}: holds what JSON cannot ({error}).") from None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if name == "price" and isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return [value] if name in ("branch", "facet") and isinstance(value, str) else value


def build_config(options: Mapping[str, Any], argv: Sequence[str]) -> EvalConfig:
    """The configuration that options of `medprobe eval` make, by name, in the forms the command line has; what is left out is the default.

    Raises BadInput for a value that cannot be used.
    """
    values = {name: OPTION_PARSERS.get(name, lambda value: value)(value) for name, value in options.items()}
    values |= {
        "branches": tuple(options.get("branch") or ()),
        "facets": tuple(options.get("facet") or ()),
        "resume": not options.get("no_resume"),
        "argv": argv,
        **parse_model_args(options.get("model_args")),
    }

    def given(kind: type) -> dict[str, Any]:
        return {field.name: values[field.name] for field in fields(kind) if field.name in values}

    return EvalConfig(**given(EvalConfig), settings=Settings(**given(Settings)))


class ModelArgs(BaseModel):
    """The library's own arguments that are known by name (`interface.MODEL_ARGS`); any other is for vLLM's engine."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    dtype: str | None = None
    attn_implementation: str | None = None
    device_map: str | dict[str, Any] | None = None
    quantization: str | None = None
    adapter: str | None = None
    min_pixels: PositiveInt | None = None
    max_pixels: PositiveInt | None = None


def parse_model_args(text: str | None) -> dict[str, Any]:
    """The settings that `--model-args` makes. Raises BadInput if it is no JSON object, or a value is of another type."""
    try:
        given = ModelArgs(**_json_object("--model-args", text))
    except ValidationError as error:
        raise BadInput(f"--model-args: {first_validation_error(error)}.") from None
    return {**{name: getattr(given, name) for name in MODEL_ARGS}, "engine": given.model_extra or {}}


def answer_changing_model_args(text: str) -> dict[str, Any]:
    """Those of `--model-args` that change answers; the others say how a model is run."""
    return {name: value for name, value in parse_model_args(text).items() if name == "dtype" or name in BACKEND_OPTIONS}


def _batch_size(text: str) -> int | None:
    if text == "auto":
        return None
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise BadInput(f"--batch-size {text}: give a positive integer, or auto.")


def _json_object(option: str, text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text) if text is not None else {}
    except ValueError as error:
        raise BadInput(f"{option} {text}: not JSON ({error}). Give an object, e.g. '{{\"top_p\": 0.9}}'.") from None
    if not isinstance(found, dict):
        raise BadInput(f"{option} {text}: not a JSON object. Give one, e.g. '{{\"top_p\": 0.9}}'.")
    return found


def _chat_template(path: Path | None) -> str | None:
    try:
        return path.read_text("utf-8") if path is not None else None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--chat-template {path}: cannot be read as UTF-8 text ({error}).") from None


OPTION_PARSERS: dict[str, Callable[[Any], Any]] = {
    "batch_size": _batch_size,
    "price": parse_price,
    "thinking": parse_thinking,
    "generation": partial(_json_object, "--generation"),
    "chat_template": _chat_template,
    "chat_template_kwargs": partial(_json_object, "--chat-template-kwargs"),
}
"""Options that are given in another form than the configuration holds -> how they are read."""
