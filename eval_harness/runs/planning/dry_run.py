"""`--dry-run`: the first request as it would be sent, in words; asks nothing and writes nothing but its image."""

from __future__ import annotations

import contextlib
import hashlib
import io
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import mean

from eval_harness.models.interface import Request
from eval_harness.runs.broken_images import broken_images
from eval_harness.runs.planning.config import EvalConfig
from eval_harness.runs.planning.plan import Plan, make_plan
from eval_harness.runs.planning.requests import Instance

CHARACTERS_PER_TOKEN = 4
"""Of English text, roughly, with every common tokenizer."""
PIXELS_PER_TOKEN = 750
"""Roughly; servers say between 600 and 1,000 (patches of 28 x 28 pixels are 784)."""


@dataclass(frozen=True)
class Size:
    """How much a run would ask: requests, distinct images, characters of all prompts, pixels of the images of the first requests, and
    the most tokens that may come back."""

    requests: int
    images: int
    characters: int
    pixels: tuple[int, ...]
    most_tokens_out: int

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
    characters = most = 0
    for request in chain.from_iterable(plan.requests(instances, with_images=False)):
        texts = [request.prompt, request.system or "", *(shot.prompt + shot.answer for shot in request.shots)]
        characters += sum(map(len, texts))
        most += 0 if request.candidates and not backend.is_api else request.max_tokens
    pixels: list[int] = []
    if backend.needs_images:
        for request in chain.from_iterable(plan.requests(instances[:images])):
            if request.image is not None:
                with contextlib.suppress(OSError), Image.open(io.BytesIO(request.image)) as image:
                    pixels.append(image.width * image.height)
    asked = plan.selection.questions.iloc[sorted({row for row, _ in instances})]
    distinct = len(asked[["case_id", "image_id"]].drop_duplicates()) if backend.needs_images else 0
    return Size(len(instances), distinct, characters, tuple(pixels), most)


def first_request(plan: Plan) -> Request:
    """The first request as it would be sent, with its image; asks nothing."""
    return next(plan.requests(plan.instances[:1]))[0]


def describe_first_request(config: EvalConfig) -> str:
    """The prompt, its image (saved in the temporary folder), and how the answer would be got. Raises BadInput as `evaluate` does."""
    plan = make_plan(config)
    request, run = first_request(plan), plan.run
    generation = ", ".join(f"{name} {value}" for name, value in run.method.generation.items())
    lines = [
        f"{run.model.name} on {run.benchmark.name} · {run.benchmark.split} · {run.benchmark.questions} questions, "
        f"{run.request.samples} answer(s) each",
        f"method {run.method.name}, prompt {run.method.prompt}, {generation}",
        *(f"deviation: {words}" for words in run.deviations),
        f"first question: {request.question_id}; image: {_saved(request)}",
    ]
    if request.system:
        lines += ["--- system", request.system]
    for number, shot in enumerate(request.shots, 1):
        lines += [f"--- example {number}", shot.prompt, f"--- its answer: {shot.answer}"]
    lines += ["--- prompt", request.prompt, "---"]
    if request.candidates:
        lines.append("scored: " + " | ".join(request.candidates))
    lines += _cost(size_of(plan), config.settings.price)
    return "\n".join(lines)


def _cost(size: Size, price: tuple[float, float] | None) -> list[str]:
    """Questions, images and tokens of the whole run, and what they would cost at most."""
    texts, images = size.tokens_in
    lines = [
        f"in all: {size.requests} requests, {size.images} distinct images; about {rounded(texts + images)} tokens in "
        f"({rounded(texts)} of text, {rounded(images)} of images: servers count images in ways of their own), at most "
        f"{rounded(size.most_tokens_out)} tokens out"
    ]
    if price:
        tokens_in, tokens_out = size.cost(price)
        lines.append(f"cost: about {tokens_in:.2f} for what goes in, at most {tokens_out:.2f} for what comes out")
    return lines


def rounded(number: float) -> str:
    """With two digits that mean something: 12,345 is 12,000."""
    digits = max(0, len(str(int(number))) - 2)
    return f"{round(number / 10**digits) * 10**digits:,}"


def _saved(request: Request) -> str:
    """Where the image was saved, with its form and size."""
    if request.image is None:
        return "none is sent"
    from PIL import Image

    broken = broken_images([request.image])
    if broken:
        return f"cannot be shown: {broken[request.image]}"
    with Image.open(io.BytesIO(request.image)) as image:
        kind, size = image.format or "image", image.size
    digest = hashlib.sha256(request.image).hexdigest()[:12]
    path = Path(tempfile.gettempdir()) / f"medprobe-{digest}.{kind.lower()}"
    path.write_bytes(request.image)
    return f"{path} ({kind}, {size[0]} x {size[1]} pixels)"
