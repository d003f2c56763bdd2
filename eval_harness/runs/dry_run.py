"""Describe what a run sends: how much, the first request as it would be sent (`--dry-run`), and whether it may be sent. Asks nothing, and
writes nothing but the first image.

Custom sets hold a hospital's own images: before any of them is sent to another machine, the user is asked (`models/http/chat_client.py`
says which addresses stay on this machine).
"""

from __future__ import annotations

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
from eval_harness.models.load import caching_loader
from eval_harness.records.request import Request
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.plan import Plan, comparison_arms, make_plan
from eval_harness.runs.requests import Instance

CHARACTERS_PER_TOKEN = 4
"""Of English text, roughly, with every common tokenizer."""
PIXELS_PER_TOKEN = 750
"""Roughly; servers say between 600 and 1,000 (patches of 28 x 28 pixels are 784)."""
REASONING_NOTE = (
    f"a server's model that is seen to reason may write {DEFAULT_REASONING_TOKENS:,} tokens an answer, unless --max-tokens "
    "says otherwise"
)
IMAGE_CHECK_NOTE = (
    "not counted: one drawn picture, asked about with and without it after the first answer (--no-look leaves it out)"
)
JUDGE_NOTE = "not counted: what the judge is asked about answers that the rules cannot read, with `ff` about every one"


@dataclass(frozen=True)
class RunSize:
    """How much a run would ask: requests (a server gets one for each option that `ps` scores), distinct images, characters of all
    prompts, roughly the tokens that go in, the most that may come back, and what both cost where there is a price."""

    requests: int = 0
    images: int = 0
    characters: int = 0
    tokens_in: float = 0.0
    tokens_out: int = 0
    cost_in: float = 0.0
    cost_out: float = 0.0

    def __add__(self, other: RunSize) -> RunSize:
        return RunSize(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        tokens_in, tokens_out = round_to_two_digits(self.tokens_in), round_to_two_digits(self.tokens_out)
        description = (
            f"in all: {self.requests:,} requests, {self.images:,} distinct images; "
            f"about {tokens_in} input tokens, at most {tokens_out} output tokens"
        )
        if self.cost_in or self.cost_out:
            description += f"; cost: about {self.cost_in:.2f} for input, at most {self.cost_out:.2f} for output"
        return description


def estimate_size(plan: Plan, instances: Sequence[Instance] | None = None, images: int = 64) -> RunSize:
    """Size of the requests of a run (or of these instances of it), measured on its prompts and first `images` images; asks nothing."""
    from PIL import Image

    backend, instances = plan.backend, plan.instances if instances is None else instances
    requests = characters = out = 0
    for request in chain.from_iterable(plan.requests(instances, with_images=False)):
        texts = [request.prompt, request.system or "", *(shot.prompt + shot.answer for shot in request.shots)]
        times = len(request.candidates) if backend.is_api and request.scoring == "sequence" else 1
        requests += times
        characters += times * sum(map(len, texts))
        out += request.max_tokens if not request.candidates else times if backend.is_api else 0
    pixels: list[int] = []
    for request in chain.from_iterable(plan.requests(instances[:images])) if plan.shows_images else ():
        pixels.append(0)
        for shown in request.all_images:
            with contextlib.suppress(OSError), Image.open(io.BytesIO(shown)) as image:
                shrunk = min(1.0, (plan.config.settings.max_image_side or sys.maxsize) / max(image.size))
                pixels[-1] += int(image.width * shrunk) * int(image.height * shrunk)
    rows = plan.selection.questions.iloc[sorted({row for row, _ in instances})].to_dict("records")
    distinct = {(row["case_id"], name) for row in rows for name in row_image_ids(row)} if plan.shows_images else ()
    tokens_in = characters / CHARACTERS_PER_TOKEN + requests * (mean(pixels) if pixels else 0.0) / PIXELS_PER_TOKEN
    price = plan.config.settings.price or (0.0, 0.0)
    cost = tokens_in * price[0] / 1e6, out * price[1] / 1e6
    return RunSize(requests, len(distinct), characters, tokens_in, out, *cost)


def may_reason(plan: Plan) -> bool:
    """True if a run's model gets more room where it is seen to reason."""
    return plan.backend.is_api and plan.config.max_tokens is None and not plan.config.scores_options


def describe_first_request(config: EvalConfig, arms: bool = False) -> str:
    """The prompt, its image (saved in the temporary folder), and how the answer would be got; with `arms` what each of them shows first.
    Raises BadInput as `evaluate` does."""
    load = caching_loader()
    plan = make_plan(config, load)
    others = [make_plan(replace(config, image=image), load) for image in comparison_arms(plan)] if arms else []
    request, run = next(plan.requests(plan.instances[:1]))[0], plan.run
    generation = ", ".join(f"{name} {value}" for name, value in run.method.generation.items())
    lines = [
        f"{run.model.name} on {run.benchmark.name} · {run.benchmark.split} · {run.benchmark.questions} questions, "
        f"{run.request.samples} answer(s) each",
        f"method {run.method.name}, prompt {run.method.prompt}, {generation}",
        *(f"deviation: {words}" for words in run.deviations),
        f"first question: {request.question_id}; image: {_images(request)}",
        *(f"{each.run.request.image}: {_images(_request_of(each, request.question_id))}" for each in others),
    ]
    if request.system:
        lines += ["--- system", request.system]
    for number, shot in enumerate(request.shots, 1):
        lines += [f"--- example {number}", shot.prompt, f"--- its answer: {shot.answer}"]
    lines += ["--- prompt", request.prompt, "---"]
    if request.candidates:
        lines.append("scored: " + " | ".join(request.candidates))
    for each in (plan, *others):
        lines += [f"{each.run.request.image}:"] if others else []
        lines.append(str(estimate_size(each)))
    if may_reason(plan):
        lines.append(REASONING_NOTE)
    if hasattr(plan.backend, "look") and plan.shows_images and not config.settings.no_look:
        lines.append(IMAGE_CHECK_NOTE)
    if config.judge:
        lines.append(f"{JUDGE_NOTE}: {config.judge}")
    return "\n".join(lines)


def _images(request: Request) -> str:
    """The paths of its saved images, with the ids of those of another case."""
    ids = f" ({', '.join(request.shown)})" if request.shown else ""
    return ("; ".join(map(_saved, request.images)) or "none is sent") + ids


def _request_of(plan: Plan, question_id: str) -> Request:
    """The first request about a question; asks nothing."""
    row = plan.selection.questions["question_id"].tolist().index(question_id)
    return next(plan.requests([(row, 0)]))[0]


def round_to_two_digits(number: float) -> str:
    """With two digits that mean something: 12,345 is 12,000."""
    digits = max(0, len(str(int(number))) - 2)
    return f"{round(number / 10**digits) * 10**digits:,}"


def _saved(data: bytes) -> str:
    """The path of a saved image, with its format and size."""
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
    """Raise BadInput, before anything is sent, where a run would send a custom set's questions or answers to a model that is not on this
    machine and `--send-to-provider` was not given; say on stderr what is sent where it was."""
    repository, config = plan.selection.repository, plan.config
    if repository.origin != "custom" or repository.name == repository.family:
        return  # published by its authors, or drawn by us

    def questions() -> str:
        size = estimate_size(plan, images=0)
        return f"up to {size.requests:,} prompts of {repository.name} ({size.characters:,} characters) with {size.images:,} images"

    if plan.backend.is_api:
        address = getattr(plan.backend, "base_url", OPENAI_URL)
        permit_sending(plan.backend.model.name, address, questions, config.send_to_provider)
    if config.judge:
        answers = f"up to {len(plan.instances):,} answers to questions of {repository.name}, with the questions"
        address = server_address(config.judge, config.settings.base_url)
        permit_sending(f"--judge {config.judge}", address, lambda: answers, config.send_to_provider)
