"""Back end for vLLM's engine in this process (`--model vllm:ID`).

Runs any model with images that vLLM supports, on one GPU or several, with its prefix cache.

The engine gets token ids made by the same code as for transformers (`model_inputs.py`), so both get
the same prompts. For `gd` it returns the log-probabilities of the options' first tokens; for `ps`
each option is appended to the prompt, and its log-probabilities are read there. See also: a running
vLLM server, used with `openai:NAME` (`http/openai_chat.py`).
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput, describe_error, first_line
from dataset_builders.extras import require
from eval_harness.models.interface import BACKEND_OPTIONS, Backend, Settings, response_from_scores
from eval_harness.models.local.model_inputs import PromptProcessor, decode_rgb_image, output_limit, sampling_seed
from eval_harness.models.local.pretrained import check_adapter, describe_source, load_processor
from eval_harness.models.option_tokens import SCORED_IN_REASONING, first_position_ids, first_position_scores
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

NO_ROOM = "the engine's context (max_model_len) had no room for {} output tokens after some prompts, so answers were cut earlier"

VLLM_SAMPLING_OPTIONS = {
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "min_new_tokens": "min_tokens",
}
"""Parameters that `--generation` may set: the name in transformers -> the name in vLLM."""


class VllmVLM(Backend):
    """A local model run by vLLM. Answers arrive as they finish; the engine makes the batches."""

    needs_images = True
    one_token = True
    options: tuple[str, ...] = BACKEND_OPTIONS

    def __init__(self, model_id: str, settings: Settings) -> None:
        """Start the engine.

        Args:
            model_id: Hub id or folder.
            settings: Options for loading and generation.

        Raises:
            BadInput: If vLLM is not installed, or cannot load the model with these settings.
        """
        require("vllm", "transformers")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        self.model_id, self._settings = model_id, settings
        check_settings(settings)
        processor, self._own_limit = read_model(model_id, settings)
        self.processing = PromptProcessor(model_id, processor, settings)
        self.template_hash = self.processing.template_hash
        if self.processing.plain:
            raise BadInput(
                f"--model vllm:{model_id}: its processor has no chat template. Give one with --chat-template."
            )
        self.deviations: list[str] = []
        self._adapter = load_adapter(settings.adapter)
        self._engine = start_engine(model_id, settings, processor, self._adapter)
        name, revision = describe_source(model_id)
        self.model = Model(name=name, revision=revision, kind="open")
        self._check_it_sees()

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Yield answers in the order in which they finish."""
        return _timed(self._generate(requests))

    def _generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        params = [self._sampling(request) for request in requests]
        for number, output in self._run(self._prompts(requests), params):
            if isinstance(output, str):
                yield _failed(requests[number], output)
                continue
            [completion] = output.outputs
            if completion.finish_reason == "length" and len(completion.token_ids) < params[number].max_tokens:
                self.deviate(NO_ROOM.format(params[number].max_tokens))
            [decoded] = self.processing.reader.read([list(completion.token_ids)])
            yield Response(
                requests[number].question_id,
                requests[number].sample,
                decoded.text,
                reasoning=decoded.reasoning,
                finish_reason=completion.finish_reason,
                usage=(len(output.prompt_token_ids), len(completion.token_ids)),
            )

    def score(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Score each request's candidates (methods `gd` and `ps`).

        Raises NotScorable if two options begin with the same token (`gd`).
        """
        if self.processing.opened:
            self.deviate(SCORED_IN_REASONING)
        by_sequence = bool(requests) and requests[0].scoring == "sequence"
        return _timed(self._by_sequence(requests) if by_sequence else self._by_first_token(requests))

    def _by_first_token(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Score candidates by the probabilities at the first position after the prompt.

        `gd` sums the probabilities of a candidate's possible first tokens; `ps_official` takes the
        mean log-probability of all its tokens at that position (see `network.py`).
        """
        from vllm import SamplingParams

        official = bool(requests) and requests[0].scoring == "sequence_official"
        tokens = [
            [self.processing.continuation_ids(text) for text in request.candidates]
            if official
            else self.processing.candidate_first_tokens(request)
            for request in requests
        ]
        params = [
            SamplingParams(
                max_tokens=1, temperature=0, detokenize=False, logprob_token_ids=first_position_ids(candidate_ids)
            )
            for candidate_ids in tokens
        ]
        for number, output in self._run(self._prompts(requests), params):
            if isinstance(output, str):
                yield _failed(requests[number], output)
                continue
            logprobs = {token: entry.logprob for token, entry in output.outputs[0].logprobs[0].items()}
            yield response_from_scores(requests[number], first_position_scores(logprobs, tokens[number], official))

    def _by_sequence(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Score candidates by the mean log-probability of their tokens when appended to the prompt.

        Tokens read from the prefix cache would have no log-probability, so the cache is not read
        here.
        """
        from vllm import SamplingParams

        tokens = [[self.processing.continuation_ids(text) for text in request.candidates] for request in requests]
        prompts = self._prompts(requests)
        positions = [(row, column) for row, texts in enumerate(tokens) for column in range(len(texts))]
        continued_prompts = [
            prompts[row] | {"prompt_token_ids": prompts[row]["prompt_token_ids"] + tokens[row][column]}
            for row, column in positions
        ]
        params = SamplingParams(
            max_tokens=1, temperature=0, detokenize=False, prompt_logprobs=0, skip_reading_prefix_cache=True
        )
        scores: list[dict[int, float]] = [{} for _ in requests]
        refused: set[int] = set()
        for number, output in self._run(continued_prompts, [params] * len(continued_prompts)):
            row, column = positions[number]
            if row in refused:
                continue
            if isinstance(output, str):
                refused.add(row)
                yield _failed(requests[row], output)
                continue
            ids = tokens[row][column]
            token_positions = zip(ids, output.prompt_logprobs[-len(ids) :], strict=True)
            scores[row][column] = math.fsum(position[token].logprob for token, position in token_positions) / len(ids)
            if len(scores[row]) == len(tokens[row]):
                yield response_from_scores(requests[row], [scores[row][column] for column in range(len(tokens[row]))])

    def _prompts(self, requests: Sequence[Request]) -> list[dict[str, Any]]:
        """Return each request's token ids, with one marker per image, and its images."""
        side = self._settings.max_image_side
        return [
            {
                "prompt_token_ids": list(ids),
                **(
                    {"multi_modal_data": {"image": [decode_rgb_image(image, side) for image in images]}}
                    if images
                    else {}
                ),
            }
            for images, ids in zip(
                [request.all_images for request in requests], self.processing.inputs.raw_ids(requests), strict=True
            )
        ]

    def _sampling(self, request: Request) -> Any:
        from vllm import SamplingParams

        limit, deviation = output_limit(request, self._own_limit, self._settings)
        if deviation:
            self.deviate(deviation)
        options = {VLLM_SAMPLING_OPTIONS[name]: value for name, value in self._settings.generation.items()}
        seed = sampling_seed(request) if request.temperature > 0 else None
        return SamplingParams(max_tokens=limit, temperature=request.temperature, seed=seed, detokenize=False, **options)

    def _run(self, prompts: Sequence[Mapping[str, Any]], params: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield (number of the prompt, output of the engine) as prompts finish.

        For a prompt that the engine rejects, the output is the reason as a string.
        """
        from vllm.exceptions import VLLMClientError

        engine = self._engine.llm_engine
        numbers: dict[str, int] = {}
        try:
            for number, (prompt, param) in enumerate(zip(prompts, params, strict=True)):
                try:
                    [name] = self._engine.enqueue([prompt], [param], lora_request=self._adapter, use_tqdm=False)
                except VLLMClientError as error:  # longer than the context, or too many images
                    yield number, first_line(error)
                    continue
                # Outputs carry only the engine's counter; enqueue() returns it with a suffix.
                numbers[name.partition("-")[0]] = number
            while engine.has_unfinished_requests():
                for output in engine.step():
                    if output.finished:
                        yield numbers.pop(output.request_id), output
        finally:
            if numbers:
                engine.abort_request(list(numbers))

    def _check_it_sees(self) -> None:
        """Record a deviation if the model's logits do not depend on the image.

        Raises BadInput for a model that cannot answer a question about an image.
        """
        from eval_harness.models.local.self_test import probe_requests

        request, _, other_request = probe_requests()
        try:
            is_equal = self._are_equal(request, replace(request, image=other_request.image))
        except Exception as error:  # whatever the engine or a model's code raises
            raise BadInput(
                f"--model vllm:{self.model_id}: cannot answer a question about an image ({describe_error(error)})."
            ) from error
        if is_equal:
            self.deviate("the model's logits do not depend on the image")

    @cached_property
    def several_images(self) -> bool:
        """True if the model reads several images per question; tested on first access."""
        from eval_harness.models.local.self_test import probe_requests

        request, _, other_request = probe_requests()
        assert request.image is not None
        assert other_request.image is not None
        try:
            return not self._are_equal(
                replace(request, more_images=(request.image,)), replace(request, more_images=(other_request.image,))
            )
        except Exception:  # the engine or the model's code may raise anything at a second image
            return False

    def _are_equal(self, request: Request, other_request: Request) -> bool:
        """Return True if the probabilities of the first token are equal after two prompts."""
        from vllm import SamplingParams

        params = [SamplingParams(max_tokens=1, temperature=0, detokenize=False, logprobs=1)] * 2
        outputs = dict(self._run(self._prompts([request, other_request]), params))
        if why := next((output for output in outputs.values() if isinstance(output, str)), None):
            raise BadInput(f"--model vllm:{self.model_id}: rejects even a small question: {why}")
        logprobs, other_logprobs = (
            {k: v.logprob for k, v in outputs[n].outputs[0].logprobs[0].items()} for n in (0, 1)
        )
        return bool(logprobs == other_logprobs)

    def describe(self) -> dict[str, Any]:
        import torch
        import transformers
        import vllm

        config = self._engine.llm_engine.vllm_config
        return {
            "vllm": vllm.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "engine": self._settings.engine,
            "prompt_form": "chat template",
        }


def _failed(request: Request, why: str) -> Response:
    """Make the response to a question that the engine rejects."""
    return Response(request.question_id, request.sample, "", "failed", error=f"vLLM rejects the question: {why}")


def _timed(responses: Iterator[Response]) -> Iterator[Response]:
    """Yield the responses with the seconds since the previous one.

    The engine works on many questions at once, so only these differences add up to the total time.
    """
    previous_time = time.perf_counter()
    for response in responses:
        current_time = time.perf_counter()
        yield replace(response, seconds=round(current_time - previous_time, 4))
        previous_time = current_time


def check_settings(settings: Settings) -> None:
    """Raise BadInput for settings that vLLM does not support."""
    if wrong := sorted(settings.generation.keys() - VLLM_SAMPLING_OPTIONS.keys()):
        raise BadInput(
            f"--generation: {', '.join(wrong)} cannot be set for vLLM. Available: {', '.join(VLLM_SAMPLING_OPTIONS)}."
        )
    if isinstance(settings.thinking, int):
        raise BadInput(
            f"--thinking {settings.thinking}: for --model vllm: give on or off, and limit answers with --max-tokens."
        )
    for name in ("attn_implementation", "device_map"):
        if getattr(settings, name) is not None:
            raise BadInput(f"--model-args {name}: only for transformers. Leave it out, or give vLLM's own argument.")


def read_model(model_id: str, settings: Settings) -> tuple[Any, int | None]:
    """Return (processor, output limit in the model's generation config).

    Raises BadInput if the processor cannot be loaded.
    """
    from transformers import GenerationConfig

    processor, _ = load_processor(f"vllm:{model_id}", model_id, settings)
    try:
        limit = GenerationConfig.from_pretrained(model_id).max_new_tokens
    except OSError:
        limit = None
    return processor, limit


def load_adapter(adapter: str | None) -> Any:
    """Load the LoRA adapter for the engine. Raises BadInput if it cannot be loaded."""
    if adapter is None:
        return None
    from huggingface_hub import snapshot_download
    from vllm.lora.request import LoRARequest

    if not Path(adapter).is_dir():
        try:
            adapter = snapshot_download(adapter)
        except (OSError, ValueError) as error:
            raise BadInput(f"--model-args adapter {adapter}: cannot be loaded ({first_line(error)}).") from None
    check_adapter(adapter)
    return LoRARequest("adapter", 1, str(adapter))


def start_engine(model_id: str, settings: Settings, processor: Any, adapter: Any) -> Any:
    """Start the engine. If it does not start, raises BadInput with vLLM's own message."""
    from vllm import LLM

    # The user's engine arguments come last, so they win.
    options: dict[str, Any] = {"enable_prefix_caching": True, "disable_log_stats": True, **settings.engine}
    if adapter is not None:
        options |= {"enable_lora": True, "max_lora_rank": _rank(Path(adapter.lora_path))}
    if settings.quantization:
        options["quantization"] = "bitsandbytes" if settings.quantization == "4bit" else settings.quantization
    if settings.min_pixels is not None or settings.max_pixels is not None:
        options["mm_processor_kwargs"] = {"size": dict(processor.image_processor.size)}
    try:
        return LLM(
            model=model_id, dtype=settings.dtype or "auto", trust_remote_code=settings.trust_remote_code, **options
        )
    except Exception as error:  # vLLM passes on whatever its parts raise, in any of its processes
        raise BadInput(f"--model vllm:{model_id}: vLLM cannot start: {describe_error(error)}") from error


def _rank(adapter: Path) -> int:
    """Return the smallest maximum rank that the engine offers and that the adapter fits into."""
    rank = int(json.loads((adapter / "adapter_config.json").read_bytes())["r"])
    return next((size for size in (8, 16, 32, 64, 128, 256, 320, 512) if size >= rank), 512)
