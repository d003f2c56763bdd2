"""Test a freshly loaded model with three small questions.

The test finds out which fast paths give the same numbers as the model's own `generate`. The
reference is one request at a time through `generate`, which is forced to write given tokens. A path
that differs or fails is not used, and the result says so. See also: the paths themselves
(`network.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from dataset_builders.errors import describe_error
from dataset_builders.images.lookup import encode_png
from eval_harness.models.local.model_inputs import PromptProcessor
from eval_harness.models.local.network import Network, UncontrolledGenerate, logit_difference
from eval_harness.records.request import Request

TOKENS_PER_PROMPT = 3
"""Tokens written after each prompt: one from the prompt's forward pass, two from continuing it."""

SHARED_PREFIX_PATH = "shared image prefix"


@dataclass(slots=True)
class SelfTestResult:
    """Outcomes of the self-test."""

    paths: dict[str, str] = field(default_factory=dict)
    """Execution path (batches, shared prefixes ...) -> "equal", by how much it differs, or why it
    failed.
    """
    batches: bool = True
    """Whether several requests may run together."""
    sees_images: bool = True
    """Whether the logits depend on the image."""


def run_self_test(network: Network, inputs: PromptProcessor) -> SelfTestResult:
    """Test every path; `network.reads` and `network.may_share` stay on only if they are correct.

    Args:
        network: The model; its switches are changed.
        inputs: Makes its prompts.

    Returns:
        The outcome of each path.

    Raises:
        Exception: Whatever the reference raises: a model that cannot process one request with its
            own `generate` cannot be used.
        ValueError: If logits are NaN or do not depend on the question.
    """
    requests = probe_requests()
    tokens = _forced_token_ids(inputs.processor.tokenizer, len(requests))
    result = SelfTestResult()
    with torch.inference_mode():

        def reference_logits() -> torch.Tensor:
            return torch.cat(
                [
                    network.forced_logits(inputs.full_prompts([request]), [ids])
                    for request, ids in zip(requests, tokens, strict=True)
                ]
            )

        try:
            reference = reference_logits()
        except UncontrolledGenerate:
            network.plain_generate = True  # a text answer needs nothing that the class's override adds
            reference = reference_logits()
        if reference.isnan().any():
            raise ValueError("its logits are NaN; another dtype (--model-args), such as float32, may help")

        def changes_logits(request: Request) -> bool:
            return not torch.equal(network.forced_logits(inputs.full_prompts([request]), [tokens[0]]), reference[:1])

        if not changes_logits(replace(requests[0], prompt=requests[1].prompt)):
            raise ValueError("its logits do not depend on the question")
        # A model that ignores the image is not rejected here: the run reports it as a deviation.
        result.sees_images = changes_logits(replace(requests[0], image=requests[2].image))

        def check(name: str, run: Callable[[], torch.Tensor], expected: torch.Tensor = reference) -> bool:
            try:
                difference = logit_difference(run(), expected)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # a model's own code may raise anything on an optional path
                result.paths[name] = f"failed ({describe_error(error)})"
                return False
            result.paths[name] = (
                "equal" if difference <= network.tolerance else f"differs by {difference:.2g} of the logits' spread"
            )
            return difference <= network.tolerance

        result.batches = check(
            "batch 1 = batch 3",
            lambda: network.forced_logits(inputs.full_prompts(requests), tokens),
        )
        if network.reads:
            rows = slice(None) if result.batches else slice(1)
            network.reads = check(
                "options scored = written by generate",
                lambda: next(network.continued_logits(inputs.full_prompts(requests[rows]), [tokens[rows]])),
                reference[rows],
            )
        is_possible = network.may_share and network.reads and result.batches
        network.may_share = False
        shared = inputs.shared_prefixes(requests) if is_possible else None
        if not is_possible:
            result.paths[SHARED_PREFIX_PATH] = "not possible for this class"
        elif shared is None:
            result.paths[SHARED_PREFIX_PATH] = "the prompts cannot be split"
        elif not network.within_window(shared, TOKENS_PER_PROMPT):
            result.paths[SHARED_PREFIX_PATH] = f"does not fit into the attention window of {network.window} tokens"
        else:
            network.may_share = check(SHARED_PREFIX_PATH, lambda: network.forced_logits(shared, tokens)) and check(
                "options after a shared image prefix",
                lambda: next(network.continued_logits(shared, [tokens])),
            )
    return result


def check_several_images(network: Network, inputs: PromptProcessor, result: SelfTestResult) -> bool:
    """Test whether a model reads the second image of a prompt.

    Args:
        network: The model.
        inputs: Makes its prompts.
        result: Outcomes of the self-test; the outcome of this test is added. Batches are switched
            off if they change the logits of prompts with two images.

    Returns:
        True if such a prompt runs through `generate` and its second image changes the logits.
    """
    request, _, other_request = probe_requests()
    two_images, same_image_twice = (
        replace(request, more_images=(image,)) for image in (other_request.images[0], request.images[0])
    )
    tokens = _forced_token_ids(inputs.processor.tokenizer, 2)
    path = "two images"
    with torch.inference_mode():

        def forced_logits(requests: list[Request]) -> torch.Tensor:
            return network.forced_logits(inputs.full_prompts(requests), tokens[: len(requests)])

        try:
            single_logits = forced_logits([two_images])
            is_seen = not torch.equal(single_logits, forced_logits([same_image_twice]))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a processor or a model's own code may raise anything
            result.paths[path] = f"failed ({describe_error(error)})"
            return False
        result.paths[path] = "seen" if is_seen else "the second one changes nothing"
        if not is_seen:
            return False
        if result.batches:
            expected = torch.cat(
                [
                    single_logits,
                    network.forced_logits(inputs.full_prompts([other_request]), tokens[1:]),
                ]
            )
            result.batches = logit_difference(forced_logits([two_images, other_request]), expected) <= network.tolerance
            result.paths["two images in a batch"] = "equal" if result.batches else "differs"
    return True


def probe_requests() -> list[Request]:
    """Make three prompts of different lengths; the first two show the same image."""
    from PIL import Image

    gradient = Image.radial_gradient("L")
    pictures = [
        encode_png(gradient.resize(size).rotate(angle).convert("RGB"))
        for size, angle in (((96, 64), 0), ((72, 80), 10))
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
    """Return ordinary tokens to write, `TOKENS_PER_PROMPT` for each row, different in each."""
    ids = tokenizer("left or right, yes no A B C", add_special_tokens=False)["input_ids"]
    ids = [token for token in ids if token not in tokenizer.all_special_ids]
    return [[ids[(row + step) % len(ids)] for step in range(TOKENS_PER_PROMPT)] for row in range(rows)]
