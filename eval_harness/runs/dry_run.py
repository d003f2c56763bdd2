"""Estimate what a run would send (`--dry-run`), and check that it may be sent.

A dry run shows the first request. It sends nothing, and writes nothing but the first image. Custom
sets contain a hospital's own images: the user must agree before any of them is sent to another
machine (`models/http/chat_client.py` decides which addresses are local).
"""

import contextlib
import hashlib
import io
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import mean

from dataset_builders.images.lookup import ImageError
from dataset_builders.images.picture import encode_picture
from dataset_builders.schema import row_image_ids
from eval_harness.models.http.chat_client import OPENAI_URL, permit_sending, server_address
from eval_harness.models.interface import DEFAULT_REASONING_TOKENS
from eval_harness.models.load import CachingLoader
from eval_harness.records.request import Request
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.plan import Plan, comparison_arms, make_plan
from eval_harness.runs.requests import Instance

CHARACTERS_PER_TOKEN = 4
"""Approximate, for English text with any common tokenizer."""
PIXELS_PER_TOKEN = 750
"""Approximate; servers report between 600 and 1,000 (patches of 28 x 28 pixels are 784)."""
REASONING_NOTE = (
    f"a reasoning model on a server may use {DEFAULT_REASONING_TOKENS:,} tokens per answer, unless --max-tokens is set"
)
IMAGE_CHECK_NOTE = "not counted: two requests about one generated image, with and without it, after the first answer (--no-look skips them)"
JUDGE_NOTE = "not counted: requests to the judge, one per answer that the rules cannot read (with `ff`: per answer)"


@dataclass(frozen=True)
class RunSize:
    """The size and cost of a run.

    Attributes:
        requests: Number of requests; one per option if `ps` scores options on a server.
        images: Number of distinct images.
        characters: Characters of all prompts.
        tokens_in: Approximate number of input tokens.
        tokens_out: Maximum number of output tokens.
        cost_in: Cost of the input, in the currency of the price; 0 without a price.
        cost_out: Maximum cost of the output, likewise.
    """

    requests: int = 0
    images: int = 0
    characters: int = 0
    tokens_in: float = 0.0
    tokens_out: int = 0
    cost_in: float = 0.0
    cost_out: float = 0.0

    def __add__(self, addend: "RunSize") -> "RunSize":
        return RunSize(*(a + b for a, b in zip(astuple(self), astuple(addend), strict=True)))

    def __str__(self) -> str:
        tokens_in, tokens_out = round_to_two_digits(self.tokens_in), round_to_two_digits(self.tokens_out)
        cost = f"; cost: about {self.cost_in:.2f} for input, at most {self.cost_out:.2f} for output"
        return (
            f"in all: {self.requests:,} requests, {self.images:,} distinct images; "
            f"about {tokens_in} input tokens, at most {tokens_out} output tokens"
            f"{cost if self.cost_in or self.cost_out else ''}"
        )


def estimate_size(plan: Plan, instances: Sequence[Instance] | None = None, images: int = 64) -> RunSize:
    """Estimate the size of a run without sending anything.

    Args:
        plan: the run.
        instances: (row, sample) pairs to count; None counts all.
        images: how many of the first instances have their images measured; the mean number of
            pixels is taken for all.
    """
    from PIL import Image

    backend, instances = plan.backend, plan.instances if instances is None else instances
    requests = characters = max_output_tokens = 0
    # Prompts are counted exactly, as they can be built without images.
    for request in chain.from_iterable(plan.requests(instances, with_images=False)):
        texts = [request.prompt, request.system or "", *(shot.prompt + shot.answer for shot in request.shots)]
        # A server scores one candidate per request.
        calls = len(request.candidates) if backend.uses_http and request.scoring == "sequence" else 1
        requests += calls
        characters += calls * sum(map(len, texts))
        max_output_tokens += request.max_tokens if not request.candidates else calls if backend.uses_http else 0
    pixels: list[int] = []
    for request in chain.from_iterable(plan.requests(instances[:images])) if plan.shows_images else ():
        pixels.append(0)
        for image_bytes in request.all_images:
            # Only the header is read; an image that cannot be opened counts no pixels.
            with contextlib.suppress(OSError), Image.open(io.BytesIO(image_bytes)) as image:
                scale = min(1.0, (plan.config.settings.max_image_side or sys.maxsize) / max(image.size))
                pixels[-1] += int(image.width * scale) * int(image.height * scale)
    # An image shared by several questions of a case counts once.
    rows = plan.selection.questions.iloc[sorted({row for row, _ in instances})].to_dict("records")
    distinct = {(row["case_id"], name) for row in rows for name in row_image_ids(row)} if plan.shows_images else ()
    tokens_in = characters / CHARACTERS_PER_TOKEN + requests * (mean(pixels) if pixels else 0.0) / PIXELS_PER_TOKEN
    price = plan.config.settings.price or (0.0, 0.0)
    cost = tokens_in * price[0] / 1e6, max_output_tokens * price[1] / 1e6
    return RunSize(requests, len(distinct), characters, tokens_in, max_output_tokens, *cost)


def may_reason(plan: Plan) -> bool:
    """Whether the output limit will be raised if the model turns out to reason."""
    return plan.backend.uses_http and plan.config.max_tokens is None and not plan.config.scores_options


def describe_first_request(config: EvalConfig, arms: bool = False) -> str:
    """Describe a run: settings, prompt, image (saved in the temporary folder), size.

    Args:
        config: the run's options.
        arms: also show the first image of every arm.

    Raises:
        BadInput: see `run_evaluation`.
    """
    load = CachingLoader()
    plan = make_plan(config, load)
    arm_plans = [make_plan(replace(config, image=image), load) for image in comparison_arms(plan)] if arms else []
    request, run = _first_request(plan), plan.run
    generation = ", ".join(f"{name} {value}" for name, value in run.method.generation.items())
    lines = [
        f"{run.model.name} on {run.benchmark.name} · {run.benchmark.split} · "
        f"{run.benchmark.questions} questions, "
        f"{run.request.samples} answer(s) each",
        f"method {run.method.name}, prompt {run.method.prompt}, {generation}",
        *(f"deviation: {words}" for words in run.deviations),
        f"first question: {request.question_id}; image: {_images(request)}",
        *(f"{arm_plan.run.request.image}: {_images(_first_request(arm_plan))}" for arm_plan in arm_plans),
    ]
    if request.system:
        lines += ["--- system", request.system]
    for number, shot in enumerate(request.shots, 1):
        lines += [f"--- example {number}", shot.prompt, f"--- its answer: {shot.answer}"]
    lines += ["--- prompt", request.prompt, "---"]
    if request.candidates:
        lines.append("scored: " + " | ".join(request.candidates))
    for sized_plan in (plan, *arm_plans):
        lines += [f"{sized_plan.run.request.image}:"] if arm_plans else []
        lines.append(str(estimate_size(sized_plan)))
    if may_reason(plan):
        lines.append(REASONING_NOTE)
    if hasattr(plan.backend, "probe_images") and plan.shows_images and not config.settings.no_look:
        lines.append(IMAGE_CHECK_NOTE)
    if config.judge:
        lines.append(f"{JUDGE_NOTE}: {config.judge}")
    return "\n".join(lines)


def _images(request: Request) -> str:
    """Save the images and return their paths, with their ids if they belong to another case."""
    ids = f" ({', '.join(request.shown)})" if request.shown else ""
    return ("; ".join(map(_saved, request.images)) or "none is sent") + ids


def _first_request(plan: Plan) -> Request:
    return next(plan.requests(plan.instances[:1]))[0]


def round_to_two_digits(number: float) -> str:
    """Format with two significant digits: 12,345 is "12,000"."""
    digits = max(0, len(str(int(number))) - 2)
    return f"{round(number / 10**digits) * 10**digits:,}"


def _saved(data: bytes) -> str:
    """Save an image in the temporary folder, and return its path, format and size."""
    from PIL import Image

    try:
        data = encode_picture(data)
    except ImageError as error:
        return f"cannot be shown: {error}"
    with Image.open(io.BytesIO(data)) as image:
        kind, size = image.format or "image", image.size
    digest = hashlib.sha256(data).hexdigest()[:12]
    path = Path(tempfile.gettempdir()) / f"medprobe-{digest}.{kind.lower()}"
    path.write_bytes(data)
    return f"{path} ({kind}, {size[0]} x {size[1]} pixels)"


def check_sending_allowed(plan: Plan) -> None:
    """Refuse to send a custom set to another machine without `--send-to-provider`.

    With the option, report what is sent.

    Raises:
        BadInput: the run would send a custom set and the user did not allow it.
    """
    repository, config = plan.selection.repository, plan.config
    # Other sets are published by their authors, or contain generated images.
    if repository.origin != "custom" or repository.name == repository.family:
        return

    def questions() -> str:
        size = estimate_size(plan, images=0)
        return f"up to {size.requests:,} prompts of {repository.name} ({size.characters:,} characters) with {size.images:,} images"

    if not plan.backend.is_local:
        address = getattr(plan.backend, "base_url", OPENAI_URL)
        permit_sending(plan.backend.model.name, address, questions, config.send_to_provider)
    if config.judge:
        answers = f"up to {len(plan.instances):,} answers to questions of {repository.name}, with the questions"
        address = server_address(config.judge, config.settings.base_url)
        permit_sending(f"--judge {config.judge}", address, lambda: answers, config.send_to_provider)
