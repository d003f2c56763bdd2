"""Any `AutoModelForImageTextToText` with its `AutoProcessor`, on GPUs or the CPU: loading, which requests go together (same settings,
questions of one image side by side, longest first), how many, and the way of a batch through it.

See also: what is asked (`prompts.py`), tokens and pixels (`model_inputs.py`), the network itself (`network.py`).
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dataset_builders.errors import BadInput, describe_error
from eval_harness.models.interface import BACKEND_OPTIONS, Backend, Settings, nan_response, response_from_scores
from eval_harness.models.local.model_inputs import (
    PLAIN_BY_DEFAULT,
    PreparedBatch,
    PromptProcessor,
    output_limit,
    sampling_seed,
)
from eval_harness.models.local.pretrained import check_generate_options, describe_source, load_pretrained
from eval_harness.models.option_tokens import SCORED_IN_REASONING
from eval_harness.models.thinking import DecodedOutput
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

if TYPE_CHECKING:
    from eval_harness.models.local.network import Network
    from eval_harness.models.local.self_test import SelfTestResult

PREFETCHED_BATCHES = 2
"""Batches prepared (images decoded, text tokenised) while the network works on the one before."""

INITIAL_BATCH_SIZE = 32
MAX_BATCH_SIZE_CPU = 64
MAX_BATCH_SIZE_GPU = 512
GROWTH_MEMORY_SHARE = 0.45
"""A batch may double while the last one used less than this share of the memory: twice the batch needs at most twice as much."""


class TransformersVLM(Backend):
    """A local model. Batches are padded on the left: right padding makes a decoder continue from padding."""

    needs_images = True
    one_token = True
    options: tuple[str, ...] = BACKEND_OPTIONS
    """The `interface.OPTIONS` that it supports."""

    def __init__(self, model_id: str, settings: Settings) -> None:
        """Load the model and its processor.

        Raises BadInput if the id or folder cannot be loaded, cannot take images, or its template cannot do what the settings ask.
        """
        import torch
        from transformers.utils import logging

        from eval_harness.models.local.network import Network, is_encoder_decoder
        from eval_harness.models.local.self_test import SHARED_PREFIX_PATH

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.model_id = model_id
        check_generate_options(settings.generation)
        self.processor, loaded, odd = load_pretrained(model_id, settings)
        for words in odd:
            print(f"--model {model_id}: {words}", file=sys.stderr)
        tokenizer = self.processor.tokenizer
        encoder_decoder = is_encoder_decoder(loaded.config)
        # A decoder must end with its prompt's last token; an encoder was trained with padding at the end.
        for each in (tokenizer, getattr(self.processor, "qformer_tokenizer", None)):
            if each is not None:
                each.padding_side = "right" if encoder_decoder or each is not tokenizer else "left"
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        self.network: Network = Network(loaded, int(tokenizer.pad_token_id), settings.generation)
        ends = loaded.generation_config.eos_token_id
        self._ends = set(ends if isinstance(ends, list) else [ends])
        self._settings = settings
        self.on_cpu = torch.device(self.network.device).type == "cpu"
        self.processing = PromptProcessor(model_id, self.processor, settings)
        self.template_hash = self.processing.template_hash
        self._inputs = self.processing.inputs
        self.findings = self._self_tested()
        self._shares = self.network.may_share
        self._shown_equal = False
        self.batch_size = BatchSize(settings.batch_size if self.findings.batches else 1, self.on_cpu)
        self.deviations: list[str] = [*odd]
        if self.processing.plain and loaded.config.model_type not in PLAIN_BY_DEFAULT:
            self.deviate("the processor has no chat template, so prompts were sent as they stand")
            print(f"--model {model_id}: {self.deviations[-1]}; --chat-template FILE gives it one", file=sys.stderr)
        if not self._shares:
            self._say_fast_path_off(self.findings.paths[SHARED_PREFIX_PATH])
        if not self.findings.sees_images:
            self.deviations.append("the model's logits do not depend on the image")
        name, revision = describe_source(model_id)
        self.model = Model(name=name, revision=revision, kind="open", parameters=loaded.num_parameters())

    @cached_property
    def several_images(self) -> bool:
        """True if the model takes several images a question, tried out when first asked."""
        from eval_harness.models.local.self_test import check_several_images

        takes = check_several_images(self.network, self._inputs, self.findings)
        if not self.findings.batches:
            self.batch_size = BatchSize(1, self.on_cpu)
        return takes

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Answer in batches; one that does not fit into memory is halved, never lost."""
        return self._in_batches(requests, self._answer)

    def score(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Score each request's candidates (methods `gd` and `ps`); never calls the model's `generate`.

        Raises NotScorable where two options begin with the same token (`gd`).
        """
        if self.processing.opened:
            self.deviate(SCORED_IN_REASONING)
        return self._in_batches(requests, self._score)

    def _self_tested(self) -> SelfTestResult:
        """The paths of the network that pass the self-test. Raises BadInput for a model that cannot answer questions about images."""
        import torch

        from eval_harness.models.local.self_test import run_self_test

        try:
            return run_self_test(self.network, self._inputs)
        except torch.OutOfMemoryError:
            raise BadInput(
                f"--model {self.model_id}: one small question does not fit into memory. Use a smaller or quantized model, or a "
                "larger device."
            ) from None
        except Exception as error:  # whatever a model's own code raises
            raise BadInput(
                f"--model {self.model_id}: cannot answer a question about an image ({describe_error(error)})."
            ) from error

    def _in_batches(
        self, requests: Sequence[Request], run: Callable[[PreparedBatch], list[Response]]
    ) -> Iterator[Response]:
        """Batches through `run`, with the next ones prepared meanwhile in another thread."""
        queue = sort_for_batching(requests)
        waiting: deque[tuple[list[Request], Future[PreparedBatch]]] = deque()
        with ThreadPoolExecutor(1, thread_name_prefix="prepare") as preparing:
            try:
                while queue or waiting:
                    while queue and len(waiting) < PREFETCHED_BATCHES:
                        batch = take_batch(queue, self.batch_size.size)
                        waiting.append((batch, preparing.submit(self._prepare, batch)))
                    batch, future = waiting.popleft()
                    responses = self._within_memory(run, future.result())
                    if responses is None:
                        if len(batch) == 1:
                            self.batch_size.leave_out_one()
                            raise MemoryError(
                                "alone it does not fit into memory; use a smaller model, --max-image-side, or a larger device"
                            )
                        self.batch_size.halve(len(batch))
                        for later, prepared in reversed(waiting):
                            prepared.cancel()
                            queue.extendleft(reversed(later))
                        waiting.clear()
                        queue.extendleft(reversed(batch))
                        continue
                    self.batch_size.went_well(len(batch), self._memory_used())
                    yield from responses
            finally:
                for _, prepared in waiting:
                    prepared.cancel()

    def _prepare(self, batch: list[Request]) -> PreparedBatch:
        shared = self._inputs.shared(batch) if self._shares else None
        return shared if shared and self.network.within_window(shared) else self._inputs.whole(batch)

    def _within_memory(
        self, run: Callable[[PreparedBatch], list[Response]], prepared: PreparedBatch
    ) -> list[Response] | None:
        """The responses of one batch with its share of the time in each, None when it does not fit into memory."""
        import torch

        start = time.perf_counter()
        try:
            with torch.inference_mode():
                responses = run(self._checked(prepared))
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
                raise
            if not self.on_cpu:
                torch.cuda.empty_cache()
            return None
        seconds = round((time.perf_counter() - start) / len(responses), 4)
        return [replace(response, seconds=seconds) for response in responses]

    def _checked(self, prepared: PreparedBatch) -> PreparedBatch:
        """The batch as it is; before the first shared one is trusted, it is compared with whole prompts, and given up if they differ."""
        if prepared.rows is None or (self._shares and self._shown_equal):
            return prepared
        whole = self._inputs.whole(prepared.requests)
        if self._shares and self.network.agrees(prepared, whole):
            self._shown_equal = True
            return prepared
        if self._shares:
            self._say_fast_path_off("the first batch differs from whole prompts")
        self._shares = False
        return whole

    def _say_fast_path_off(self, why: str) -> None:
        print(f"--model {self.model_id}: fast path off: each question reads its own image ({why})", file=sys.stderr)

    def _answer(self, prepared: PreparedBatch) -> list[Response]:
        from eval_harness.models.local.network import ReasoningBudget

        first = prepared.requests[0]
        limit = self._limit(first)
        seeds = [sampling_seed(request) for request in prepared.requests]
        budget = self.processing.budget
        processors = [ReasoningBudget(*budget, self.processing.opened, len(seeds))] if budget else []
        tokens, broken = self.network.generate(prepared, limit, first.temperature, seeds, processors)
        rows: list[list[int]] = tokens.tolist()
        return [
            nan_response(request) if is_broken else self._response(request, row, read, length)
            for request, row, read, length, is_broken in zip(
                prepared.requests, rows, self.processing.reader.read(rows), prepared.lengths(), broken, strict=True
            )
        ]

    def _response(self, request: Request, row: list[int], read: DecodedOutput, prompt_length: int) -> Response:
        """A row of new tokens, padded after the one that ends the text, as it was read."""
        ended = next((count for count, token in enumerate(row, 1) if token in self._ends), None)
        return Response(
            request.question_id,
            request.sample,
            read.text,
            reasoning=read.reasoning,
            finish_reason="length" if ended is None else "stop",
            usage=(prompt_length, ended or len(row)),
        )

    def _score(self, prepared: PreparedBatch) -> list[Response]:
        requests = prepared.requests
        if requests[0].scoring == "next_token":
            log_probabilities = self.network.next_logits(prepared).log_softmax(-1)
            scores = [
                [
                    float(log_probabilities[row, forms].logsumexp(-1))
                    for forms in self.processing.next_token_forms(request)
                ]
                for row, request in enumerate(requests)
            ]
        else:
            tokens = [[self.processing.continuation(text) for text in request.candidates] for request in requests]
            scores = self.network.candidate_scores(prepared, tokens, requests[0].scoring == "sequence_official")
        return [response_from_scores(request, found) for request, found in zip(requests, scores, strict=True)]

    def _limit(self, request: Request) -> int:
        limit, said = output_limit(request, self.network.model.generation_config.max_new_tokens, self._settings)
        if said:
            self.deviate(said)
        return limit

    def _memory_used(self) -> float:
        """The largest share of a GPU's memory that was in use since the last call; 0 on the CPU."""
        import torch

        if self.on_cpu:
            return 0.0
        used = []
        for device in range(torch.cuda.device_count()):
            used.append(torch.cuda.max_memory_allocated(device) / torch.cuda.get_device_properties(device).total_memory)
            torch.cuda.reset_peak_memory_stats(device)
        return max(used)

    def describe(self) -> dict[str, Any]:
        import torch
        import transformers

        model = self.network.model
        return {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "device": "cpu" if self.on_cpu else torch.cuda.get_device_name(),
            "dtype": str(model.dtype).removeprefix("torch."),
            "attention": self._settings.attn_implementation,
            "max_new_tokens_of_model": model.generation_config.max_new_tokens,
            "prompt_form": "plain text" if self.processing.plain else "chat template",
            "shared_image_prefix": self._shares,
            "self_test": self.findings.paths,
        }


class BatchSize:
    """The number of requests at a time: given, or found (doubles while there is room, halves when memory runs out)."""

    def __init__(self, given: int | None, on_cpu: bool) -> None:
        self.size = given or INITIAL_BATCH_SIZE
        self._may_grow = given is None
        self._largest = MAX_BATCH_SIZE_CPU if on_cpu else MAX_BATCH_SIZE_GPU
        self._worked = 1

    def halve(self, failed: int) -> None:
        """A batch of `failed` requests did not fit: half of it from now on, and no more growing."""
        self.size = max(1, failed // 2)
        self._may_grow = False

    def leave_out_one(self) -> None:
        """One request did not fit by itself: the others run in batches as large as the largest that did."""
        self.size = self._worked

    def went_well(self, count: int, used: float) -> None:
        """A batch of `count` requests used this share of the memory."""
        self._worked = max(self._worked, count)
        if self._may_grow and 4 * count >= 3 * self.size and used < GROWTH_MEMORY_SHARE:
            self.size = min(self._largest, self.size * 2)


def sort_for_batching(requests: Iterable[Request]) -> deque[Request]:
    """Requests of the same settings together, the questions of an image side by side; longest first: a batch holds prompts of similar
    length, and one that does not fit is met at once, not after hours."""
    units: dict[object, list[Request]] = {}
    for request in requests:
        key = (_batch_key(request), request.images, request.shots, request.system)
        units.setdefault(key, []).append(request)

    def place(unit: list[Request]) -> tuple[str, int]:
        return str(_batch_key(unit[0])), -max(len(request.prompt) for request in unit)

    return deque(request for unit in sorted(units.values(), key=place) for request in unit)


def take_batch(queue: deque[Request], size: int) -> list[Request]:
    """Up to `size` requests of the same settings, off the front."""
    batch = [queue.popleft()]
    while queue and len(batch) < size and _batch_key(queue[0]) == _batch_key(batch[0]):
        batch.append(queue.popleft())
    return batch


def _batch_key(request: Request) -> tuple[int, float, str | None]:
    """The properties that all requests of one forward pass must share."""
    return request.max_tokens, request.temperature, request.scoring if request.candidates else None
