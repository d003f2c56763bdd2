"""Interface between the runner and a back end: a Request in, a Response out (`records/request.py`).

A back end is any object with the attributes and methods of `Backend`; a plug-in needs no base class
(`docs/plug_in.md`).
"""

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import pandas as pd
from pydantic import PositiveInt

from dataset_builders.errors import BadInput, describe_error, replace_surrogates
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

Thinking = Literal["on", "off"] | int
"""Reasoning on, off, or limited to this many tokens."""
DEFAULT_REASONING_TOKENS = 16384
"""Output tokens allowed for reasoning if no budget is given."""


class Backend(Protocol):
    """A model that answers requests.

    Attributes with a default are optional. A back end that can score options also has
    `score(requests) -> Iterator[Response]`, whose responses carry `scores`; without it the methods
    `gd` and `ps` are refused.

    Attributes:
        model: Description of the model for the result file.
        needs_images: Whether requests carry their images.
        one_token: Whether the model can stop after one token (`max_tokens=1`, required by
            HALT-MedVQA).
        deviations: Sentences that say where the protocol could not be followed. May grow in a run.
        options: The settings of `BACKEND_OPTIONS` that are supported. A plug-in class that takes
            the settings and has no `options` is given all of them.
        sees_prompts: False if answers do not come from the conversation.
        is_local: Whether the weights are loaded on this machine for the run. Such a model is kept
            loaded for the next run, and its replies are not cached.
        uses_http: Whether each request is an HTTP call (for `ps`, one per option). Several are then
            in flight, and the output limit is raised for a model that turns out to reason.
        takes_stream: True if `generate` consumes requests one by one, possibly from another thread,
            instead of taking a list; it then raises nothing but BadInput.
        template_hash: Hash of the chat template, if one is applied here.
        digest: Digest of the model's files or code (`load.py`, `local/pretrained.py`), which is
            stored as a run's `model_digest`.
    """

    model: Model
    deviations: list[str]
    needs_images: bool = True
    one_token: bool = True
    sees_prompts: bool = True
    is_local: bool = True
    uses_http: bool = False
    takes_stream: bool = False
    template_hash: str | None = None
    digest: str | None = None

    def close(self) -> None:
        """Release the resources of the loaded model, by default none."""
        return

    @property
    def several_images(self) -> bool:
        """True if a question may have several images (`Request.images`).

        Read only if a question of the run has several.
        """
        return False

    def order(self, questions: pd.DataFrame) -> Sequence[int] | None:
        """Return the rows in the order in which they are to be asked; None: as cases are stored."""
        return None

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Yield one Response per Request, as they finish, in any order."""
        ...

    def deviate(self, words: str) -> None:
        """Record a deviation from the protocol, once."""
        if words not in self.deviations:
            self.deviations.append(words)

    def describe(self) -> dict[str, Any]:
        """Return library versions, device, dtype and the like, for the result's `environment`."""
        return {}


class PromptlessBackend(Backend):
    """A back end that answers a question in its own way: a rule, a file or a person."""

    needs_images = False
    several_images = True
    sees_prompts = False
    takes_stream = True
    options: Collection[str] = ()


def json_description(backend: Backend) -> dict[str, Any]:
    """Return a back end's `describe()` as JSON types.

    Keys, and values of types that JSON lacks, become strings.

    Args:
        backend: The back end.

    Returns:
        The description, safe to store.

    Raises:
        BadInput: If `describe()` fails or does not return a dictionary that JSON can represent.
    """
    try:
        text = json.dumps(dict(backend.describe()), default=str, ensure_ascii=False)
    except Exception as error:  # a plug-in's code may raise anything
        why = describe_error(error)
        raise BadInput(
            "describe() of the model does not return a dictionary that JSON can represent "
            f"({why}). "
            "See docs/plug_in.md."
        ) from None
    description: dict[str, Any] = json.loads(replace_surrogates(text))
    return description


@dataclass(slots=True)
class Settings:
    """Command-line options for running a model. None: chosen automatically."""

    batch_size: int | None = None
    base_url: str | None = None
    trust_remote_code: bool = False
    allow_missing_weights: bool = False
    """Accept a checkpoint that lacks weights of the model; those are initialised randomly."""
    dtype: str | None = None
    attn_implementation: str | None = None
    """Attention implementation of transformers: sdpa, flash_attention_2 ..."""
    device_map: str | dict[str, Any] | None = None
    max_image_side: int | None = None
    """Maximum length of an image's longer side in pixels; larger images are shrunk."""
    in_flight: int = 16
    """Maximum number of concurrent requests to a server; fewer while it reports being busy."""
    timeout: float = 120.0
    """Timeout of one request to a server, in seconds."""
    wait_server: float | None = None
    """How long to wait for a server that does not answer, in seconds.

    None: ten minutes, but no wait for a server that cannot be connected to at all.
    """
    no_look: bool = False
    """Skip the test question about a drawn picture, which shows whether a server drops images."""
    price: tuple[float, float] | None = None
    """Price of a million input and output tokens, for the cost in `environment`."""
    max_tokens: int | None = None
    """Output-token limit from --max-tokens.

    If set, it is not lowered to the limit in the model's generation config, nor raised for a model
    that turns out to reason.
    """
    thinking: Thinking | None = None
    """Reasoning before the answer: on, off, or at most this many tokens. None: model's default."""
    chat_template: str | None = None
    """Jinja chat template that replaces the model's own."""
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)
    """Further generation parameters under the back end's names (top_p, repetition_penalty ...).

    Temperature and seed are in the requests.
    """
    quantization: str | None = None
    adapter: str | None = None
    """Folder or Hub id of a peft adapter to load on the model."""
    engine: dict[str, Any] = field(default_factory=dict)
    """Flags of `vllm serve` (tensor_parallel_size, gpu_memory_utilization ...).

    They affect how a model runs, not what it answers.
    """
    min_pixels: PositiveInt | None = None
    max_pixels: PositiveInt | None = None


BACKEND_OPTIONS = (
    "thinking",
    "chat_template",
    "chat_template_kwargs",
    "generation",
    "quantization",
    "adapter",
    "min_pixels",
    "max_pixels",
)
"""Settings that affect answers and are not supported by every back end (`Backend.options`)."""

MODEL_ARGS = ("dtype", "attn_implementation", "device_map", "quantization", "adapter", "min_pixels", "max_pixels")
"""Settings that `--model-args` sets; its other keys become flags of `vllm serve`."""


def check_options(model: str, settings: Settings, options: Collection[str]) -> None:
    """Check that a back end supports the settings that are given.

    Args:
        model: The `--model` argument, for the message.
        settings: Settings of the run.
        options: The `BACKEND_OPTIONS` that the back end supports.

    Raises:
        BadInput: If another one of `BACKEND_OPTIONS` is set.
    """
    for name in BACKEND_OPTIONS:
        if getattr(settings, name) not in (None, {}) and name not in options:
            option = f"--model-args {name}" if name in MODEL_ARGS else f"--{name.replace('_', '-')}"
            raise BadInput(f"{option}: --model {model} does not support it. Leave it out.")


def short_digest(content: bytes) -> str:
    """Return the hex digest by which models and templates are told apart (`Backend.digest`)."""
    return hashlib.sha256(content).hexdigest()[:16]


def parse_thinking(text: str | None) -> Thinking | None:
    """Parse `--thinking`: `on`, `off`, or a budget of at least one token. Raises BadInput."""
    if text is None or text in ("on", "off"):
        return text  # type: ignore[return-value]
    # isdigit() alone is also true for digits of other scripts.
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise BadInput(f"--thinking {text}: give on, off, or the maximum number of reasoning tokens, e.g. 4096.")


def parse_price(text: str | None) -> tuple[float, float] | None:
    """Parse `--price`.

    Args:
        text: Price of a million input and output tokens, e.g. "2.5,10"; or None.

    Returns:
        (input price, output price); None if `text` is None.

    Raises:
        BadInput: If it is not two finite numbers of at least 0.
    """
    if text is None:
        return None
    try:
        price_in, price_out = map(float, text.split(","))
        if not (0 <= price_in < math.inf and 0 <= price_out < math.inf):
            raise ValueError
    except ValueError:
        raise BadInput(f"--price {text}: give two non-negative numbers separated by a comma, e.g. 2.5,10.") from None
    return price_in, price_out
