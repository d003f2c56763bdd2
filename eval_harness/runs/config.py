"""The options of `medprobe eval`, with the checks that need neither dataset nor model."""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from dataset_builders.errors import BadInput, first_validation_error
from eval_harness.models.interface import BACKEND_OPTIONS, MODEL_ARGS, Settings, parse_price, parse_thinking
from eval_harness.records.request import get_form
from eval_harness.records.result import ARMS, METHOD_NAMES, Images

IMAGE_MODES = ("real", *ARMS)
"""Values of `--image`: a question's own images, or those of an arm."""
SCORING_METHODS = ("gd", "ps", "ps_official")
"""Methods that compare the likelihoods of the options instead of reading generated text."""

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
"""Parameters that `--generation` may not set.

They have options of their own, or would change the form of a response.
"""


@dataclass(frozen=True)
class EvalConfig:
    """The options of `medprobe eval`. Raises BadInput if they are inconsistent."""

    benchmark: str
    model: str
    data: str | None = None
    revision: str | None = None
    """Tag, branch or commit of `data` on the Hub; None for main."""
    split: str | None = None
    branches: Sequence[str] = ()
    facets: Sequence[str] = ()
    method: str = "mc"
    prompt: str | None = None
    shots: int = 0
    samples: int | None = None
    permute: bool = False
    image: Images = "real"
    """The images shown with each question (`runs/requests.py`)."""
    form: str | None = None
    """Name of the conversation form (`request.FORMS`); None for the default."""
    system: str | None = None
    """System message instead of the form's; "" sends none."""
    max_tokens: int | None = None
    """Output-token limit per answer, including reasoning; None for the benchmark's limit."""
    cache: Path | None = None
    """Folder in which servers' replies are kept across runs."""
    extraction: str = "ours"
    judge: str | None = None
    out: Path | None = None
    limit: int | None = None
    name: str | None = None
    resume: bool = True
    send_to_provider: bool = False
    """True if a custom set may be sent to a model on another machine."""
    settings: Settings = field(default_factory=Settings)
    argv: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.method not in METHOD_NAMES:
            raise BadInput(f"--method {self.method}: unknown. Available: {', '.join(METHOD_NAMES)}.")
        if self.image not in IMAGE_MODES:
            raise BadInput(f"--image {self.image}: unknown. Available: {', '.join(IMAGE_MODES)}.")
        if self.permute and self.samples:
            raise BadInput("--permute: asks once per option order, so it cannot be combined with --samples.")
        if self.permute and self.judge:
            raise BadInput(
                "--judge: the judge sees the options in their original order, so it cannot be combined with --permute."
            )
        for name, minimum in MIN_VALUES.items():
            value = getattr(self if hasattr(self, name) else self.settings, name)
            if value is not None and not minimum <= value < math.inf:
                raise BadInput(f"--{name.replace('_', '-')} {value}: must be at least {minimum}.")
        temperature = self.settings.generation.get("temperature", 0)
        if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 0 <= temperature < math.inf:
            raise BadInput(f"--generation: temperature {temperature!r}: must be a number from 0.")
        # Not isinstance(): True and False are integers, too.
        if type(seed := self.settings.generation.get("seed", 0)) is not int:
            raise BadInput(f"--generation: seed {seed!r}: must be an integer.")
        # Likelihoods are deterministic, so further samples would be copies of the first.
        if self.scores_options and (self.samples or 1) > 1:
            raise BadInput(
                f"--samples {self.samples}: --method {self.method} is deterministic, so it takes one sample."
            )
        if reserved := sorted(self.settings.generation.keys() & RESERVED_GENERATION_KEYS):
            raise BadInput(
                f"--generation: {', '.join(reserved)} cannot be set there. Use --max-tokens and the other options."
            )
        get_form(self.form)

    @property
    def scores_options(self) -> bool:
        """True if the method compares the likelihoods of the options."""
        return self.method in SCORING_METHODS

    @property
    def model_settings(self) -> Settings:
        """The settings that are passed to the back end."""
        return replace(self.settings, max_tokens=self.max_tokens)


def _optional(types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a pydantic model in which every one of these options is optional."""
    return {name: (kind, None) for name, kind in types.items()}


def validate_options(raw_options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert options given in Python or YAML to the form that they have on the command line.

    Names: `-` becomes `_`. Values: a mapping becomes JSON, a pair of prices "IN,OUT", a path a
    string, a single branch or facet a list of one, and a Boolean `thinking` "on" or "off".

    Raises:
        BadInput: an unknown name, or a value of the wrong type.
    """
    options = {name.replace("-", "_"): value for name, value in raw_options.items()}
    for name in options:
        if name not in OPTION_TYPES:
            close_matches = get_close_matches(name, OPTION_TYPES, 1)
            hint = f" Did you mean {close_matches[0]}?" if close_matches else ""
            raise BadInput(f"{name}: not an option of a run.{hint} `medprobe eval --help` lists them.")
    try:
        values = {name: _as_text(name, value) for name, value in options.items()}
        return _Options(**values).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise BadInput(f"{first_validation_error(error)}.") from None


def _as_text(name: str, value: Any) -> Any:
    if name == "thinking" and isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        try:
            return json.dumps(value)
        except (TypeError, ValueError) as error:
            raise BadInput(f"{name}: contains a value that JSON cannot represent ({error}).") from None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if name == "price" and isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return [value] if name in ("branch", "facet") and isinstance(value, str) else value


def build_config(options: Mapping[str, Any], argv: Sequence[str]) -> EvalConfig:
    """Build the configuration from options in the form that they have on the command line.

    Args:
        options: name -> value; an absent option takes its default.
        argv: the command-line arguments, which are recorded as the run's command.

    Raises:
        BadInput: a value that cannot be used.
    """
    values = {name: OPTION_PARSERS.get(name, lambda value: value)(value) for name, value in options.items()}
    values |= {
        "branches": tuple(options.get("branch") or ()),
        "facets": tuple(options.get("facet") or ()),
        "resume": not options.get("no_resume"),
        "argv": argv,
        **parse_model_args(options.get("model_args")),
    }

    # Each of the two dataclasses takes the options for which it has a field.
    def fields_of(kind: type) -> dict[str, Any]:
        return {field.name: values[field.name] for field in fields(kind) if field.name in values}

    return EvalConfig(**fields_of(EvalConfig), settings=Settings(**fields_of(Settings)))


ModelArgs = create_model(
    "ModelArgs",
    __config__=ConfigDict(extra="allow", protected_namespaces=()),
    **_optional({name: get_type_hints(Settings, include_extras=True)[name] for name in MODEL_ARGS}),
)
"""The named model arguments (`interface.MODEL_ARGS`), with the types that `Settings` declares."""


def parse_model_args(text: str | None) -> dict[str, Any]:
    """Parse `--model-args` into settings; keys other than `MODEL_ARGS` are for vLLM's engine.

    Raises BadInput if it is not a JSON object or a value has the wrong type.
    """
    try:
        arguments = ModelArgs(**_json_object("--model-args", text))
    except ValidationError as error:
        raise BadInput(f"--model-args: {first_validation_error(error)}.") from None
    return {**{name: getattr(arguments, name) for name in MODEL_ARGS}, "engine": arguments.model_extra or {}}


def answer_changing_model_args(text: str) -> dict[str, Any]:
    """Return the model arguments that change answers, not those that only affect speed."""
    return {name: value for name, value in parse_model_args(text).items() if name == "dtype" or name in BACKEND_OPTIONS}


def _batch_size(text: str) -> int | None:
    if text == "auto":
        return None
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise BadInput(f"--batch-size {text}: give a positive integer, or auto.")


def _json_object(option: str, text: str | None) -> dict[str, Any]:
    try:
        document = json.loads(text) if text is not None else {}
    except ValueError as error:
        raise BadInput(f"{option} {text}: not JSON ({error}). Give an object, e.g. '{{\"top_p\": 0.9}}'.") from None
    if not isinstance(document, dict):
        raise BadInput(f"{option} {text}: not a JSON object. Give one, e.g. '{{\"top_p\": 0.9}}'.")
    return document


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
"""Option -> function that parses its text."""

SET_BY_OTHER_OPTIONS = {"settings", "argv", "resume", "branches", "facets", "engine", *MODEL_ARGS}
"""Fields that are set by options of other names, or by none."""
OPTION_TYPES: dict[str, Any] = {
    name: kind
    for name, kind in (get_type_hints(EvalConfig) | get_type_hints(Settings)).items()
    if name not in SET_BY_OTHER_OPTIONS
}
OPTION_TYPES |= dict.fromkeys(OPTION_PARSERS, str | None) | dict.fromkeys(("branch", "facet"), list[str] | None)
OPTION_TYPES |= {"image": str, "batch_size": str, "chat_template": Path | None, "model_args": str | None}
"""The run options of `medprobe eval`: name -> type, as given on the command line."""

_Options = create_model(
    "Options",
    __config__=ConfigDict(extra="forbid", coerce_numbers_to_str=True),
    **_optional(OPTION_TYPES),
)
"""All options, each of which may be absent."""
