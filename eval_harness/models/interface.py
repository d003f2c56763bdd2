"""The interface between the runner and a back end: a Request goes in, a Response comes out (`records/request.py`).

A back end is any object with the attributes and the methods of `Backend`; a plug-in needs no base class (`docs/plug_in.md`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dataset_builders.errors import BadInput, describe_error
from eval_harness.records.names import replace_surrogates
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

Thinking = Literal["on", "off"] | int
THINKING_ROOM = 16384
"""Output tokens allowed for reasoning where no budget is given."""


class Backend(Protocol):
    """A model that answers requests.

    `model`: what the result file says of it. `needs_images`: whether requests must carry their image. `one_token`: whether it can be
    held to `max_tokens=1` (HALT-MedVQA asks for that). `deviations`: what it could not do as the protocol says, in words; a back end
    may add to it while it runs.

    What has a value here need not be given. `options`: the settings of `OPTIONS` it honours (a plug-in without it is given them all and
    trusted). `sees_prompts`: False where answers do not come from the conversation. `is_api`: whether the model is behind a server.
    `takes_stream`: True where `generate` takes requests one by one, possibly from another thread, instead of a list; it raises nothing but
    BadInput then.
    `template_hash`: of the chat template it applies. `digest`: of what answers (`load.py`), part of the run's request.

    A back end that can score options also has `score(requests) -> Iterator[Response]`, whose responses carry `scores`; without it the
    methods `gd` and `ps` are refused.
    """

    model: Model
    needs_images: bool
    one_token: bool
    deviations: list[str]
    sees_prompts: bool = True
    is_api: bool = False
    takes_stream: bool = False
    template_hash: str | None = None
    digest: str | None = None

    @property
    def several_images(self) -> bool:
        """True if a question may show more than one image (`Request.images`); asked only where one does."""
        return False

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Yield one Response per Request, as they finish, in any order."""
        ...

    def deviate(self, words: str) -> None:
        """Say once that something was not done as the protocol says."""
        if words not in self.deviations:
            self.deviations.append(words)

    def describe(self) -> dict[str, Any]:
        """Library versions, device, dtype and the like, for the result's `environment`."""
        ...


def description_of(backend: Backend) -> dict[str, Any]:
    """A back end's description of itself in JSON types: keys are texts, and so are values of other types.

    Raises BadInput if it is no dictionary that JSON could hold.
    """
    try:
        text = json.dumps(dict(backend.describe()), default=str, ensure_ascii=False)
    except Exception as error:  # whatever a model's own code raises
        why = describe_error(error)
        raise BadInput(
            f"describe() of the model gives nothing that JSON can hold ({why}). See docs/plug_in.md."
        ) from None
    described: dict[str, Any] = json.loads(replace_surrogates(text))
    return described


@dataclass(slots=True)
class Settings:
    """The options of the command line for running a model. None: determined automatically."""

    batch_size: int | None = None
    base_url: str | None = None
    trust_remote_code: bool = False
    allow_missing_weights: bool = False
    """True if a checkpoint may lack weights of the model, which are then drawn at random."""
    dtype: str | None = None
    attn_implementation: str | None = None
    """Of transformers: sdpa, flash_attention_2 ..."""
    device_map: str | dict[str, Any] | None = None
    max_image_side: int | None = None
    """Images whose longer side has more pixels are shrunk to it."""
    in_flight: int = 16
    """Most requests a server is sent at a time; fewer when it says it is busy."""
    timeout: float = 120.0
    """Seconds to wait for one answer of a server."""
    wait_server: float | None = None
    """Seconds to wait for a server that answers nothing; None: ten minutes, but not for one that cannot be connected to at all."""
    no_look: bool = False
    """True to ask a server no question about a drawn picture, which tells whether it drops images."""
    price: tuple[float, float] | None = None
    """Price of a million tokens in and out, for the cost in `environment`."""
    max_tokens: int | None = None
    """Most output tokens as told on the command line: a limit in the model's own generation config does not lower it, and a model that is
    seen to reason gets no more."""
    thinking: Thinking | None = None
    """Whether a reasoning model reasons before it answers, or with how many tokens at most; None: as the model does by itself."""
    chat_template: str | None = None
    """Text of a Jinja chat template that replaces the model's own."""
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)
    """Further generation parameters under the names of the back end (top_p, repetition_penalty ...); temperature and seed are in the
    requests."""
    quantization: str | None = None
    adapter: str | None = None
    """Folder or Hub id of a peft adapter to load on the model."""
    engine: dict[str, Any] = field(default_factory=dict)
    """Further arguments of vLLM's engine (tensor_parallel_size, gpu_memory_utilization ...): how a model is run, not what it answers."""
    min_pixels: int | None = None
    max_pixels: int | None = None


OPTIONS = (
    "thinking",
    "chat_template",
    "chat_template_kwargs",
    "generation",
    "quantization",
    "adapter",
    "min_pixels",
    "max_pixels",
)
"""Settings that change the answers and that not every back end can honour: one that can says so in its `options`."""


MODEL_ARGS = ("dtype", "attn_implementation", "device_map", "quantization", "adapter", "min_pixels", "max_pixels")
"""Settings that `--model-args` sets; what else it sets goes to vLLM's engine as it is."""


def check_options(model: str, settings: Settings, options: Collection[str]) -> None:
    """Raise BadInput where a setting of `OPTIONS` is given that the back end of `model` does not honour."""
    for name in OPTIONS:
        if getattr(settings, name) not in (None, {}) and name not in options:
            option = f"--model-args {name}" if name in MODEL_ARGS else f"--{name.replace('_', '-')}"
            raise BadInput(f"{option}: --model {model} does not take it. Leave it out.")


def read_thinking(text: str | None) -> Thinking | None:
    """`on`, `off`, or a budget in tokens from 1. Raises BadInput for anything else."""
    if text is None or text in ("on", "off"):
        return text  # type: ignore[return-value]
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise BadInput(f"--thinking {text}: give on, off, or the maximum number of reasoning tokens, e.g. 4096.")


def read_price(text: str | None) -> tuple[float, float] | None:
    """The price of a million tokens in and out from "2.5,10"; None stays None. Raises BadInput for anything else."""
    if text is None:
        return None
    try:
        tokens_in, tokens_out = map(float, text.split(","))
        if not (0 <= tokens_in < math.inf and 0 <= tokens_out < math.inf):
            raise ValueError
    except ValueError:
        raise BadInput(f"--price {text}: give two numbers from 0 with a comma between, e.g. 2.5,10.") from None
    return tokens_in, tokens_out


def not_numbers(request: Request) -> Response:
    """The response to a question at which a network computed NaN."""
    return Response(request.question_id, request.sample, "", "failed", error="its logits are not numbers")


def chosen(request: Request, scores: Sequence[float], usage: tuple[int, int] | None = None) -> Response:
    """The response of a method that scores options: the first best one, as its letter (or its text, for a yes/no question); `failed`
    where a score is NaN."""
    from dataset_builders.schema import LETTERS

    if any(map(math.isnan, scores)):
        return not_numbers(request)
    best = max(range(len(scores)), key=lambda position: scores[position])
    text = request.options[best] if request.question_type == "yes_no" else LETTERS[best]
    return Response(request.question_id, request.sample, text, scores=tuple(map(float, scores)), usage=usage)
