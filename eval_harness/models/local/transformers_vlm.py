"""Back end for any `AutoModelForImageTextToText` with its `AutoProcessor`, on GPUs or the CPU.

Loads the model, sorts requests into batches (requests with the same settings, questions of one
image next to each other, longest first), adapts the batch size, and runs each batch.

See also: the wording of prompts (`benchmarks/`), tokens and pixels (`model_inputs.py`), the network
itself (`network.py`).
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
import transformers
from transformers.utils import logging

from dataset_builders.errors import BadInput, describe_error
from eval_harness.models.answer_tokens import SCORED_IN_REASONING, nan_response, response_from_scores
from eval_harness.models.interface import BACKEND_OPTIONS, Backend, Settings
from eval_harness.models.local.model_inputs import (
    PLAIN_BY_DEFAULT,
    PreparedBatch,
    PromptProcessor,
    output_limit,
    sampling_seed,
)
from eval_harness.models.local.network import Network, ReasoningBudget, is_encoder_decoder
from eval_harness.models.local.pretrained import (
    check_generate_options,
    describe_source,
    load_pretrained,
)
from eval_harness.models.local.self_test import (
    SHARED_PREFIX_PATH,
    SelfTestResult,
    check_several_images,
    run_self_test,
)
from eval_harness.reader.reasoning import SplitResponse
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

PREFETCHED_BATCHES = 2
"""Batches to prepare (decode images, tokenize text) while the network runs the current one."""

INITIAL_BATCH_SIZE = 32
MAX_BATCH_SIZE_CPU = 64
MAX_BATCH_SIZE_GPU = 512
GROWTH_MEMORY_SHARE = 0.45
"""The batch size doubles only if the last batch used a smaller share of the memory.

Twice the batch needs at most twice as much memory.
"""


class TransformersVLM(Backend):
    """A local model.

    Batches are padded on the left: after padding on the right, a decoder would continue the
    padding.
    """

    options: tuple[str, ...] = BACKEND_OPTIONS
    """The `interface.BACKEND_OPTIONS` that are supported."""

    def __init__(self, model_id: str, settings: Settings) -> None:
        """Load the model and its processor, and run the self-test.

        Args:
            model_id: Hub id or folder.
            settings: Options for loading and generation.

        Raises:
            BadInput: If the model cannot be loaded or accepts no images, or its template does not
                support the settings.
        """
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.model_id = model_id
        check_generate_options(settings.generation)
        self.processor, loaded, loading_deviations = load_pretrained(model_id, settings)
        for deviation in loading_deviations:
            print(f"--model {model_id}: {deviation}", file=sys.stderr)

        main_tokenizer = self.processor.tokenizer
        encoder_decoder = is_encoder_decoder(loaded.config)
        # A decoder must end with its prompt's last token; encoders were trained with right padding.
        for tokenizer in (main_tokenizer, getattr(self.processor, "qformer_tokenizer", None)):
            if tokenizer is not None:
                tokenizer.padding_side = "right" if encoder_decoder or tokenizer is not main_tokenizer else "left"
        # Padding is masked, so any token will do.
        if main_tokenizer.pad_token_id is None:
            main_tokenizer.pad_token = main_tokenizer.eos_token
        self.network: Network = Network(loaded, int(main_tokenizer.pad_token_id), settings.generation)
        end_ids = loaded.generation_config.eos_token_id
        self._end_ids = set(end_ids if isinstance(end_ids, list) else [end_ids])
        self._settings = settings
        self.on_cpu = torch.device(self.network.device).type == "cpu"
        self.processing = PromptProcessor(model_id, self.processor, settings)
        self.template_hash = self.processing.template_hash

        self.findings = self._run_self_test()
        self._shares = self.network.may_share
        self._sharing_verified = False
        self.batch_size = BatchSize(settings.batch_size if self.findings.batches else 1, self.on_cpu)
        self.deviations: list[str] = [*loading_deviations]
        if self.processing.plain and loaded.config.model_type not in PLAIN_BY_DEFAULT:
            self.deviate("the processor has no chat template, so prompts were sent as plain text")
            print(
                f"--model {model_id}: {self.deviations[-1]}; set one with --chat-template FILE",
                file=sys.stderr,
            )
        if not self._shares:
            self._report_fast_path_off(self.findings.paths[SHARED_PREFIX_PATH])
        if not self.findings.sees_images:
            self.deviations.append("the model's logits do not depend on the image")
        name, revision = describe_source(model_id)
        self.model = Model(name=name, revision=revision, kind="open", parameters=loaded.num_parameters())

    @cached_property
    def several_images(self) -> bool:
        """True if the model reads several images per question; tested on first access."""
        is_supported = check_several_images(self.network, self.processing, self.findings)
        if not self.findings.batches:
            self.batch_size = BatchSize(1, self.on_cpu)
        return is_supported

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Answer in batches of a size that adapts to the memory.

        Args:
            requests: The requests.

        Yields:
            One response per request, in any order.

        Raises:
            MemoryError: If a batch does not fit into memory; further calls use smaller ones.
        """
        return self._in_batches(requests, self._answer)

    def score(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Score each request's candidates (methods `gd` and `ps`) without calling `generate`.

        Args:
            requests: Requests with candidates.

        Yields:
            One response with scores per request, in any order.

        Raises:
            NotScorable: If two options begin with the same token (`gd`).
        """
        if self.processing.opened:
            self.deviate(SCORED_IN_REASONING)
        return self._in_batches(requests, self._score)

    def _run_self_test(self) -> SelfTestResult:
        """Test which ways of running the network give equal results.

        Raises BadInput for a model that cannot answer questions about images.
        """
        try:
            return run_self_test(self.network, self.processing)
        except torch.OutOfMemoryError:
            raise BadInput(
                f"--model {self.model_id}: one small question does not fit into memory. Use a "
                "smaller or quantized model, or a "
                "larger device."
            ) from None
        except Exception as error:  # a model's own code may raise anything
            raise BadInput(
                f"--model {self.model_id}: cannot answer a question about an image ({describe_error(error)})."
            ) from error

    def _in_batches(
        self, requests: Sequence[Request], run: Callable[[PreparedBatch], list[Response]]
    ) -> Iterator[Response]:
        """Run the requests in batches; the next batches are prepared in another thread.

        Raises MemoryError for a batch that does not fit into memory. The runner then sends its
        unanswered requests again (`runs/ask.py`), in the batches of half the size that are used
        from then on.
        """
        queue = sort_for_batching(requests)
        waiting: deque[Future[PreparedBatch]] = deque()
        with ThreadPoolExecutor(1, thread_name_prefix="prepare") as preparing:
            try:
                while queue or waiting:
                    while queue and len(waiting) < PREFETCHED_BATCHES:
                        batch = take_batch(queue, self.batch_size.size)
                        waiting.append(preparing.submit(self._prepare, batch))
                    responses = self._within_memory(run, waiting.popleft().result())
                    self.batch_size.record_success(len(responses), self._memory_share())
                    yield from responses
            finally:
                # The caller may stop iterating at any time.
                for prepared in waiting:
                    prepared.cancel()

    def _prepare(self, batch: list[Request]) -> PreparedBatch:
        shared = self.processing.shared_prefixes(batch) if self._shares else None
        return shared if shared and self.network.within_window(shared) else self.processing.full_prompts(batch)

    def _within_memory(self, run: Callable[[PreparedBatch], list[Response]], prepared: PreparedBatch) -> list[Response]:
        """Run a batch and return its responses, each with an equal share of the time.

        If it does not fit into memory, the next batches are smaller, and MemoryError is raised.
        """
        start = time.perf_counter()
        responses: list[Response] = []
        try:
            with torch.inference_mode():
                responses = run(self._verify_sharing(prepared))
        except (torch.OutOfMemoryError, RuntimeError) as error:
            # On the CPU, torch raises a plain RuntimeError.
            if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
                raise
        # Not in the handler: the caught error's traceback keeps the batch's tensors in memory.
        if not responses:
            if not self.on_cpu:
                torch.cuda.empty_cache()
            count = len(prepared.requests)
            self.batch_size.shrink(count)
            if count > 1:
                raise MemoryError(f"a batch of {count} questions does not fit into memory; send them in smaller ones")
            raise MemoryError(
                "even alone it does not fit into memory; use a smaller model, --max-image-side, or a larger device"
            )
        seconds = round((time.perf_counter() - start) / len(responses), 4)
        return [replace(response, seconds=seconds) for response in responses]

    def _verify_sharing(self, prepared: PreparedBatch) -> PreparedBatch:
        """Compare the first batch of shared prefixes with full prompts.

        Returns the batch; or its full prompts if they differ, and then prefixes are never shared
        again.
        """
        if not prepared.continuations or (self._shares and self._sharing_verified):
            return prepared
        full = self.processing.full_prompts(prepared.requests)
        if self._shares and self.network.agrees(prepared, full):
            self._sharing_verified = True
            return prepared
        if self._shares:
            self._report_fast_path_off("the first batch differs from full prompts")
        self._shares = False
        return full

    def _report_fast_path_off(self, why: str) -> None:
        print(
            f"--model {self.model_id}: fast path off: the image is read again for each question ({why})",
            file=sys.stderr,
        )

    def _answer(self, prepared: PreparedBatch) -> list[Response]:
        # All requests of a batch have the same limit and temperature.
        template_request = prepared.requests[0]
        model_limit = self.network.model.generation_config.max_new_tokens
        limit, deviation = output_limit(template_request, model_limit, self._settings)
        if deviation:
            self.deviate(deviation)
        seeds = [sampling_seed(request) for request in prepared.requests]
        budget = self.processing.budget
        processors = [ReasoningBudget(*budget, self.processing.opened, len(seeds))] if budget else []
        tokens, broken = self.network.generate(prepared, limit, template_request.temperature, seeds, processors)
        rows: list[list[int]] = tokens.tolist()
        return [
            nan_response(request) if is_broken else self._response(request, row, output, length)
            for request, row, output, length, is_broken in zip(
                prepared.requests,
                rows,
                self.processing.reader.read(rows),
                prepared.lengths(),
                broken,
                strict=True,
            )
        ]

    def _response(self, request: Request, row: list[int], output: SplitResponse, prompt_length: int) -> Response:
        """Make the response for a row of new tokens, which is padded after its end token."""
        length = next((count for count, token in enumerate(row, 1) if token in self._end_ids), None)
        return Response(
            request.question_id,
            request.sample,
            output.answer,
            reasoning=output.reasoning,
            finish_reason="length" if length is None else "stop",
            usage=(prompt_length, length or len(row)),
        )

    def _score(self, prepared: PreparedBatch) -> list[Response]:
        requests = prepared.requests
        if requests[0].scoring == "next_token":
            log_probabilities = self.network.next_logits(prepared).log_softmax(-1)
            scores = [
                [
                    float(log_probabilities[row, token_ids].logsumexp(-1))
                    for token_ids in self.processing.candidate_first_tokens(request)
                ]
                for row, request in enumerate(requests)
            ]
        else:
            tokens = [[self.processing.continuation_ids(text) for text in request.candidates] for request in requests]
            scores = self.network.candidate_scores(prepared, tokens, requests[0].scoring == "sequence_official")
        return [response_from_scores(request, row) for request, row in zip(requests, scores, strict=True)]

    def _memory_share(self) -> float:
        """Return the peak share of a GPU's memory used since the last call; 0 on the CPU."""
        if self.on_cpu:
            return 0.0
        shares = []
        for device in range(torch.cuda.device_count()):
            shares.append(
                torch.cuda.max_memory_allocated(device) / torch.cuda.get_device_properties(device).total_memory
            )
            torch.cuda.reset_peak_memory_stats(device)
        return max(shares)

    def describe(self) -> dict[str, Any]:
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
    """Number of requests per batch.

    Set by the user, or adapted: it doubles while memory allows and halves when memory runs out.
    """

    def __init__(self, requested: int | None, on_cpu: bool) -> None:
        self.size = requested or INITIAL_BATCH_SIZE
        self._may_grow = requested is None
        self._max_size = MAX_BATCH_SIZE_CPU if on_cpu else MAX_BATCH_SIZE_GPU
        self._largest_working = 1

    def shrink(self, failed: int) -> None:
        """Use half the size of a batch of `failed` requests that did not fit, and stop growing.

        If one request alone did not fit, return to the largest size that worked: one long question
        says nothing about the others, so the size may go on growing.
        """
        self.size = failed // 2 or self._largest_working
        self._may_grow = self._may_grow and failed == 1

    def record_success(self, count: int, memory_share: float) -> None:
        """Record that a batch of `count` requests used this peak share of the memory."""
        self._largest_working = max(self._largest_working, count)
        # A batch much smaller than `size` says little about the memory that `size` needs.
        if self._may_grow and 4 * count >= 3 * self.size and memory_share < GROWTH_MEMORY_SHARE:
            self.size = min(self._max_size, self.size * 2)


def sort_for_batching(requests: Iterable[Request]) -> deque[Request]:
    """Sort requests by their settings, with the questions of an image next to each other.

    The longest come first: a batch then holds prompts of similar length, and a prompt that does not
    fit into memory is found at once, not after hours.

    Args:
        requests: The requests.

    Returns:
        The sorted requests.
    """
    groups: dict[object, list[Request]] = {}
    for request in requests:
        key = (_batch_key(request), request.images, request.shots, request.system)
        groups.setdefault(key, []).append(request)

    def sort_key(group: list[Request]) -> tuple[str, int]:
        return str(_batch_key(group[0])), -max(len(request.prompt) for request in group)

    return deque(request for group in sorted(groups.values(), key=sort_key) for request in group)


def take_batch(queue: deque[Request], size: int) -> list[Request]:
    """Remove a batch from the front of a queue.

    Args:
        queue: Sorted requests.
        size: Maximum number of requests.

    Returns:
        Up to `size` requests with the same settings.
    """
    batch = [queue.popleft()]
    while queue and len(batch) < size and _batch_key(queue[0]) == _batch_key(batch[0]):
        batch.append(queue.popleft())
    return batch


def _batch_key(request: Request) -> tuple[int, float, str | None]:
    """Return the properties that all requests of one forward pass must share."""
    return request.max_tokens, request.temperature, request.scoring if request.candidates else None
