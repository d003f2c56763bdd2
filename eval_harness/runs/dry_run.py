"""Describe what a run sends: how much, the first request as it would be sent (`--dry-run`), and whether it may be sent. Asks nothing, and
writes nothing but the first image.

Custom sets hold a hospital's own images: before any of them is sent to another machine, the user is asked (`models/http/client.py` says
which addresses stay on this machine).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import mean

from dataset_builders.schema import image_ids
from eval_harness.models.http.client import PROVIDER, permit_sending, server_address
from eval_harness.models.interface import THINKING_ROOM, Backend
from eval_harness.models.load import keep_loaded
from eval_harness.records.request import Request
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.plan import Plan, arms_of, make_plan
from eval_harness.runs.refusals import broken_images
from eval_harness.runs.requests import Instance

CHARACTERS_PER_TOKEN = 4
"""Of English text, roughly, with every common tokenizer."""
PIXELS_PER_TOKEN = 750
"""Roughly; servers say between 600 and 1,000 (patches of 28 x 28 pixels are 784)."""
REASONING = f"a server's model that is seen to reason may write {THINKING_ROOM:,} tokens an answer, unless --max-tokens says otherwise"
JUDGED = "not counted: what the judge is asked about answers that the rules cannot read, with `ff` about every one"


@dataclass(frozen=True)
class Size:
    """How much a run would ask: requests (a server gets one for each option that `ps` scores), distinct images, characters of all
    prompts, pixels that each of the first requests shows, and the most tokens that may come back; `if_reasoning`: where a server's model
    is seen to reason, which gives it more room."""

    requests: int
    images: int
    characters: int
    pixels: tuple[int, ...]
    most_tokens_out: int
    if_reasoning: int

    @property
    def tokens_in(self) -> tuple[float, float]:
        """Roughly how many tokens go in: of text, of images."""
        images = self.requests * mean(self.pixels) / PIXELS_PER_TOKEN if self.pixels else 0.0
        return self.characters / CHARACTERS_PER_TOKEN, images

    def cost(self, price: tuple[float, float]) -> tuple[float, float]:
        """What goes in costs about, and what comes out at most, at this price of a million tokens in and out."""
        return sum(self.tokens_in) * price[0] / 1e6, self.most_tokens_out * price[1] / 1e6


def size_of(plan: Plan, images: int = 64, instances: Sequence[Instance] | None = None) -> Size:
    """What a run would ask (or these instances of it), measured on its prompts and on its first `images` images; asks nothing."""
    from PIL import Image

    backend, instances = plan.backend, plan.instances if instances is None else instances
    fixed = not backend.is_api or plan.config.max_tokens is not None
    requests = characters = most = if_reasoning = 0
    for request in chain.from_iterable(plan.requests(instances, with_images=False)):
        texts = [request.prompt, request.system or "", *(shot.prompt + shot.answer for shot in request.shots)]
        times = _times_sent(request, backend)
        requests += times
        characters += times * sum(map(len, texts))
        out = request.max_tokens if not request.candidates else times if backend.is_api else 0
        most += out
        if_reasoning += out if fixed or request.candidates else max(out, THINKING_ROOM)
    pixels: list[int] = []
    if plan.shows_images:
        for request in chain.from_iterable(plan.requests(instances[:images])):
            of_request = 0
            for shown in request.all_images:
                with contextlib.suppress(OSError), Image.open(io.BytesIO(shown)) as image:
                    shrunk = min(1.0, (plan.config.settings.max_image_side or sys.maxsize) / max(image.size))
                    of_request += int(image.width * shrunk) * int(image.height * shrunk)
            pixels += [of_request] * _times_sent(request, backend) if of_request else []
    rows = plan.selection.questions.iloc[sorted({row for row, _ in instances})].to_dict("records")
    distinct = {(row["case_id"], name) for row in rows for name in image_ids(row)} if plan.shows_images else ()
    return Size(requests, len(distinct), characters, tuple(pixels), most, if_reasoning)


def _times_sent(request: Request, backend: Backend) -> int:
    """How often a request goes to a server: with each of the options that are scored whole (`ps`), else once."""
    return len(request.candidates) if backend.is_api and request.scoring == "sequence" else 1


def first_request(plan: Plan) -> Request:
    """The first request as it would be sent, with its image; asks nothing."""
    return next(plan.requests(plan.instances[:1]))[0]


def describe_first_request(config: EvalConfig, arms: bool = False) -> str:
    """The prompt, its image (saved in the temporary folder), and how the answer would be got; with `arms` what each of them shows first.
    Raises BadInput as `evaluate` does."""
    load = keep_loaded()
    plan = make_plan(config, load)
    others = [make_plan(replace(config, image=image), load) for image in arms_of(plan)] if arms else []
    request, run = first_request(plan), plan.run
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
        lines += _cost(size_of(each), config.settings.price)
    if config.judge:
        lines.append(f"{JUDGED}: {config.judge}")
    return "\n".join(lines)


def _images(request: Request) -> str:
    """Where its images were saved, with the ids of those of another case."""
    ids = f" ({', '.join(request.shown)})" if request.shown else ""
    return ("; ".join(map(_saved, request.images)) or "none is sent") + ids


def _request_of(plan: Plan, question_id: str) -> Request:
    """The first request about a question; asks nothing."""
    row = plan.selection.questions["question_id"].tolist().index(question_id)
    return next(plan.requests([(row, 0)]))[0]


def _cost(size: Size, price: tuple[float, float] | None) -> list[str]:
    """Questions, images and tokens of the whole run, and what they would cost at most."""
    texts, images = size.tokens_in
    lines = [
        f"in all: {size.requests} requests, {size.images} distinct images; about {rounded(texts + images)} tokens in "
        f"({rounded(texts)} of text, {rounded(images)} of images: servers count images in ways of their own), at most "
        f"{rounded(size.most_tokens_out)} tokens out"
    ]
    more = size.if_reasoning > size.most_tokens_out
    if more:
        lines.append(f"{REASONING}: at most {rounded(size.if_reasoning)} tokens out")
    if price:
        tokens_in, tokens_out = size.cost(price)
        if_reasoning = f" ({size.if_reasoning * price[1] / 1e6:.2f} if it reasons)" if more else ""
        lines.append(
            f"cost: about {tokens_in:.2f} for what goes in, at most {tokens_out:.2f} for what comes out{if_reasoning}"
        )
    return lines


def rounded(number: float) -> str:
    """With two digits that mean something: 12,345 is 12,000."""
    digits = max(0, len(str(int(number))) - 2)
    return f"{round(number / 10**digits) * 10**digits:,}"


def _saved(data: bytes) -> str:
    """Where an image was saved, with its form and size."""
    from PIL import Image

    broken = broken_images([data])
    if broken:
        return f"cannot be shown: {broken[data]}"
    with Image.open(io.BytesIO(data)) as image:
        kind, size = image.format or "image", image.size
    digest = hashlib.sha256(data).hexdigest()[:12]
    path = Path(tempfile.gettempdir()) / f"medprobe-{digest}.{kind.lower()}"
    path.write_bytes(data)
    return f"{path} ({kind}, {size[0]} x {size[1]} pixels)"


def check_sending(plan: Plan) -> None:
    """Raise BadInput, before anything is sent, where a run would send a custom set's questions or answers to a model that is not on this
    machine and `--send-to-provider` was not given; say on stderr what is sent where it was."""
    repository, config = plan.selection.repository, plan.config
    if repository.origin != "custom" or repository.name == repository.family:
        return  # published by its authors, or drawn by us

    def questions() -> str:
        size = size_of(plan, images=0)
        return f"up to {size.requests:,} prompts of {repository.name} ({size.characters:,} characters) with {size.images:,} images"

    if plan.backend.is_api:
        address = getattr(plan.backend, "base_url", PROVIDER)
        permit_sending(plan.backend.model.name, address, questions, config.send_to_provider)
    if config.judge:
        answers = f"up to {len(plan.instances):,} answers to questions of {repository.name}, with the questions"
        address = server_address(config.judge, config.settings.base_url)
        permit_sending(f"--judge {config.judge}", address, lambda: answers, config.send_to_provider)
