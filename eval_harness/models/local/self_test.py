"""Test a freshly loaded model with three small questions: which fast paths give the numbers of its own `generate`.

The reference is one request at a time through `generate`, made to write given tokens. A path that differs, or fails, is not used, and
the result says so. See also: the paths themselves (`network.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from dataset_builders.errors import describe_error
from dataset_builders.images.lookup import encode_png
from eval_harness.models.local.model_inputs import InputMaker
from eval_harness.models.local.network import Network, UncontrolledGenerate, logit_difference
from eval_harness.records.request import Request

TOKENS_PER_PROMPT = 3
"""Tokens written after each prompt: one for the first pass, two for what continues it."""


SHARED_PREFIX_PATH = "shared image prefix"


@dataclass(slots=True)
class SelfTestResult:
    """`paths`: for each way of running "equal", by how much it differs, or why it failed. `batches`: several requests may run
    together."""

    paths: dict[str, str] = field(default_factory=dict)
    batches: bool = True
    sees_images: bool = True


def run_self_test(network: Network, inputs: InputMaker) -> SelfTestResult:
    """Try every path and leave `network.reads` and `network.may_share` on where they are right.

    Raises what the reference raises: a model that cannot take one request through its own `generate` cannot be used.
    """
    requests = probe_requests()
    tokens = _forced_token_ids(inputs.processor.tokenizer, len(requests))
    found = SelfTestResult()
    with torch.inference_mode():

        def written() -> torch.Tensor:
            return torch.cat(
                [network.forced_logits(inputs.whole([r]), [t]) for r, t in zip(requests, tokens, strict=True)]
            )

        try:
            reference = written()
        except UncontrolledGenerate:
            network.plain_generate = True  # what the class adds to `generate` of transformers it does not need for text
            reference = written()
        if reference.isnan().any():
            raise ValueError("its logits are not numbers; another dtype (--model-args), such as float32, may help")

        def changes(other: Request) -> bool:
            return not torch.equal(network.forced_logits(inputs.whole([other]), [tokens[0]]), reference[:1])

        if not changes(replace(requests[0], prompt=requests[1].prompt)):
            raise ValueError("its logits do not depend on the question")
        found.sees_images = changes(replace(requests[0], image=requests[2].image))

        def check(name: str, run: Callable[[], torch.Tensor], expected: torch.Tensor = reference) -> bool:
            try:
                apart = logit_difference(run(), expected)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # whatever a model's own code raises on a path that is only tried
                found.paths[name] = f"failed ({describe_error(error)})"
                return False
            found.paths[name] = (
                "equal" if apart <= network.tolerance else f"differs by {apart:.2g} of the logits' spread"
            )
            return apart <= network.tolerance

        found.batches = check("batch 1 = batch 3", lambda: network.forced_logits(inputs.whole(requests), tokens))
        if network.reads:
            some = slice(None) if found.batches else slice(1)
            network.reads = check(
                "options scored = written by generate",
                lambda: next(network.continued_logits(inputs.whole(requests[some]), [tokens[some]])),
                reference[some],
            )
        if not (network.may_share and network.reads and found.batches):
            network.may_share = False
            found.paths[SHARED_PREFIX_PATH] = "not possible for this class"
        else:
            # A cache is used up by what continues it, so every try begins with a prefix of its own.
            shared, again = inputs.shared(requests), inputs.shared(requests)
            if shared is None or again is None:
                network.may_share = False
                found.paths[SHARED_PREFIX_PATH] = "the prompts cannot be split"
            elif not network.within_window(shared, TOKENS_PER_PROMPT):
                network.may_share = False
                found.paths[SHARED_PREFIX_PATH] = f"does not fit into the attention window of {network.window} tokens"
            else:
                network.may_share = check(SHARED_PREFIX_PATH, lambda: network.forced_logits(shared, tokens)) and check(
                    "options after a shared image prefix", lambda: next(network.continued_logits(again, [tokens]))
                )
    return found


def check_several_images(network: Network, inputs: InputMaker, found: SelfTestResult) -> bool:
    """True if a prompt with two images goes through `generate` and its second image counts. Batches that are not the same for such prompts
    are switched off in `found`."""
    one, _, other = probe_requests()
    both = replace(one, more_images=(other.images[0],))
    tokens = _forced_token_ids(inputs.processor.tokenizer, 2)
    path = "two images"
    with torch.inference_mode():

        def written(requests: list[Request]) -> torch.Tensor:
            return network.forced_logits(inputs.whole(requests), tokens[: len(requests)])

        try:
            alone = written([both])
            seen = not torch.equal(alone, written([replace(one, more_images=(one.images[0],))]))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a processor or a model's own code raises
            found.paths[path] = f"failed ({describe_error(error)})"
            return False
        found.paths[path] = "seen" if seen else "the second one changes nothing"
        if not seen:
            return False
        if found.batches:
            expected = torch.cat([alone, network.forced_logits(inputs.whole([other]), tokens[1:])])
            found.batches = logit_difference(written([both, other]), expected) <= network.tolerance
            found.paths["two images in a batch"] = "equal" if found.batches else "differs"
    return True


def probe_requests() -> list[Request]:
    """Three prompts of different lengths, the first two on one image."""
    from PIL import Image

    drawn = Image.radial_gradient("L")
    pictures = [
        encode_png(drawn.resize(size).rotate(turn).convert("RGB")) for size, turn in (((96, 64), 0), ((72, 80), 10))
    ]
    prompts = (
        "Which side is shown?",
        "Is there a fracture in this image of the chest, on the left or on the right side?",
        "A or B? Answer with the letter.",
    )
    return [
        Request(str(i), 0, prompt, pictures[i // 2], ("left", "right"), "single") for i, prompt in enumerate(prompts)
    ]


def _forced_token_ids(tokenizer: Any, rows: int) -> list[list[int]]:
    """Ordinary tokens to write, `TOKENS` for each row, other ones in each."""
    ids = tokenizer("left or right, yes no A B C", add_special_tokens=False)["input_ids"]
    ids = [token for token in ids if token not in tokenizer.all_special_ids]
    return [[ids[(row + step) % len(ids)] for step in range(TOKENS_PER_PROMPT)] for row in range(rows)]
