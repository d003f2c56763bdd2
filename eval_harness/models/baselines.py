"""Baselines: what a score means is seen against a guesser, a constant letter, and the key itself.

See also: the text-only baseline, which is a real model with its image withheld (`transformers_vlm.py`).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS
from eval_harness.models.interface import Backend
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

Chooser = Callable[[Request], tuple[int, ...]]


class Baseline(Backend):
    """Answers by a rule that never looks at the image."""

    needs_images = False
    several_images = True
    one_token = True
    sees_prompts = False
    options = ()

    def __init__(self, name: str, choose: Chooser) -> None:
        self.model = Model(name=name, kind="baseline", responder="oracle" if name == "Oracle" else "guessing")
        self.deviations: list[str] = []
        self._choose = choose

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        for request in requests:
            picks = self._choose(request)
            if not picks:
                yield Response(request.question_id, request.sample, "", "failed", error="the key is hidden")
            elif request.question_type == "yes_no":
                yield Response(request.question_id, request.sample, request.options[picks[0]])
            else:
                yield Response(request.question_id, request.sample, ",".join(LETTERS[pick] for pick in picks))

    def describe(self) -> dict[str, Any]:
        return {}


def _seeded(request: Request) -> random.Random:
    """A generator that depends only on the question, so that order, resume and shards change nothing."""
    text = f"{request.seed}\0{request.question_id}\0{request.sample}"
    return random.Random(hashlib.sha256(text.encode()).digest())


def _guess(request: Request) -> tuple[int, ...]:
    """One option, each as likely; for a multiple-choice question any non-empty set of options, each as likely."""
    rng, count = _seeded(request), len(request.options)
    if request.question_type != "multiple":
        return (rng.randrange(count),)
    chosen = rng.randrange(1, 2**count)
    return tuple(i for i in range(count) if chosen >> i & 1)


def load_baseline(name: str) -> Baseline:
    """`chance`, `oracle`, or `always-<letter>` (the last option where a question has fewer).

    Raises BadInput for any other name.
    """
    if name == "chance":
        return Baseline("Chance", _guess)
    if name == "oracle":
        return Baseline("Oracle", lambda request: request.answer)
    letter = name.removeprefix("always-")
    if letter != name and len(letter) == 1 and letter in LETTERS:
        position = LETTERS.index(letter)
        return Baseline(f"Always {letter}", lambda request: (min(position, len(request.options) - 1),))
    raise BadInput(
        f"--model baseline:{name}: no such baseline. Available: baseline:chance, baseline:always-A (any letter), "
        "baseline:text-only:MODEL, baseline:oracle."
    )
