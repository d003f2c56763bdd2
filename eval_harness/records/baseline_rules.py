"""Answer questions by a rule instead of a model: at random, with a fixed letter, or with the key.

See also: running a baseline (`models/load.py`), reproducing a submitted one
(`store/checks.py`).
"""

import hashlib
import random
from collections.abc import Callable

from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS
from eval_harness.records.request import Request, Response

Chooser = Callable[[Request], tuple[int, ...]]
"""Function from a request to the positions of the options that the baseline chooses."""


def make_baseline(name: str) -> tuple[str, Callable[[Request], Response]]:
    """Return the display name and the rule of a baseline.

    Args:
        name: "chance", "oracle", or "always-<letter>" (the last option where a question has fewer).

    Raises:
        BadInput: any other name.
    """
    letter = name.removeprefix("always-")
    if name == "chance":
        return "Chance", _rule(_guess)
    if name == "oracle":
        return "Oracle", _rule(lambda request: request.answer)
    if letter != name and len(letter) == 1 and letter in LETTERS:
        position = LETTERS.index(letter)
        return f"Always {letter}", _rule(lambda request: (min(position, len(request.options) - 1),))
    raise BadInput(
        f"--model baseline:{name}: no such baseline. Available: baseline:chance, baseline:always-A "
        "(any letter), "
        "baseline:oracle."
    )


def _rule(choose: Chooser) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        picks = choose(request)
        # Only the oracle can end up without a choice.
        if not picks:
            return Response(request.question_id, request.sample, "", "failed", error="the key is hidden")
        # Yes/no questions show no letters, so the answer is the option itself.
        if request.question_type == "yes_no":
            return Response(request.question_id, request.sample, request.options[picks[0]])
        return Response(request.question_id, request.sample, ",".join(LETTERS[pick] for pick in picks))

    return answer


def _guess(request: Request) -> tuple[int, ...]:
    """Choose one option uniformly; for a multiple-answer question any non-empty set, uniformly.

    The generator is seeded by the question alone: the choice is the same in any order, after
    resuming, and in any process of the run.
    """
    text = f"{request.seed}\0{request.question_id}\0{request.sample}"
    rng, count = random.Random(hashlib.sha256(text.encode()).digest()), len(request.options)
    if request.question_type != "multiple":
        return (rng.randrange(count),)
    # Each bit of the number stands for one option, so all non-empty sets are equally likely.
    chosen = rng.randrange(1, 2**count)
    return tuple(i for i in range(count) if chosen >> i & 1)
