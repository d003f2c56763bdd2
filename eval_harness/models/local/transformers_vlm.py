"""Any `AutoModelForImageTextToText` with its `AutoProcessor`, on GPUs or the CPU: loading, and the road of a batch.

The text-only baseline is the same model with the image withheld. See also: what is asked (`prompts.py`), tokens and pixels
(`model_inputs.py`), the network itself (`network.py`), which requests go together (`batching.py`).
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataset_builders.errors import BadInput
from eval_harness.models.interface import OPTIONS, Backend, Request, Response, Settings, chosen
from eval_harness.models.local.batching import BatchSize, Queue
from eval_harness.models.local.chat_form import plain_template
from eval_harness.models.local.model_inputs import InputMaker, Prepared
from eval_harness.models.local.pretrained import first_line, load_pretrained
from eval_harness.models.thinking import OutputReader, Reading, budget_tokens, opens_reasoning, template_switch
from eval_harness.results import Model

if TYPE_CHECKING:
    from eval_harness.models.local.network import Network
    from eval_harness.models.local.self_test import Findings

AHEAD = 2
"""Batches prepared (images decoded, text tokenised) while the network works on the one before."""


class TransformersVLM(Backend):
    """A local model. Batches are padded on the left: right padding makes a decoder continue from padding."""

    one_token = True
    options: tuple[str, ...] = OPTIONS
    """Which of `interface.OPTIONS` it honours."""

    def __init__(self, model_id: str, settings: Settings, text_only: bool = False) -> None:
        """Load the model and its processor.

        Raises BadInput when the id or folder cannot be loaded, cannot take images, or its prompt form is unknown.
        """
        import torch
        from transformers.utils import logging

        from eval_harness.models.local.network import Network, is_encoder_decoder

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.model_id = model_id
        self.processor, loaded, odd = load_pretrained(model_id, settings)
        tokenizer = self.processor.tokenizer
        encoder_decoder = is_encoder_decoder(loaded.config)
        # A decoder must end with its prompt's last token; an encoder was trained with padding at the end.
        for each in (tokenizer, getattr(self.processor, "qformer_tokenizer", None)):
            if each is not None:
                each.padding_side = "right" if encoder_decoder or each is not tokenizer else "left"
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        _check_generation(settings.generation)
        self.network: Network = Network(loaded, int(tokenizer.pad_token_id), settings.generation)
        ends = loaded.generation_config.eos_token_id
        self._ends = set(ends if isinstance(ends, list) else [ends])
        self._told_limit = settings.max_tokens is not None or settings.thinking is not None
        self.on_cpu = torch.device(self.network.device).type == "cpu"
        self.needs_images = not text_only
        self._template = None
        if settings.chat_template:
            self.processor.chat_template = settings.chat_template
        if not getattr(self.processor, "chat_template", None):
            self._template = plain_template(settings.plain_template, loaded.config.model_type, model_id)
        elif settings.plain_template:
            self._template = plain_template(settings.plain_template, "", model_id)
        self._inputs = InputMaker(self.processor, settings, not text_only, self._template)
        template = self._template or str(self.processor.chat_template)
        self.template_hash = hashlib.sha256(template.encode()).hexdigest()[:16]
        end = self._switch_thinking(settings, template)
        self.opened = opens_reasoning(end)
        self._space = "" if end[-1:].isspace() else " "
        self._decoder = copy.deepcopy(tokenizer)  # the other one is in use in the preparing thread
        self._reader = OutputReader(self._decoder, self.opened)
        self.findings = self._self_tested()
        self._shares = self.network.may_share
        self._shown_equal = False
        self.batch_size = BatchSize(settings.batch_size if self.findings.batches else 1, self.on_cpu)
        self.deviations: list[str] = ["the image was withheld (text-only baseline)"] if text_only else []
        self.deviations += odd
        if not self.findings.sees_images:
            self.deviations.append("the model's logits do not depend on the image")
        name = Path(model_id).name if Path(model_id).is_dir() else model_id
        self.model = Model(
            name=f"{name} (text only)" if text_only else name,
            revision=getattr(loaded.config, "_commit_hash", None),
            kind="baseline" if text_only else "open",
            parameters=loaded.num_parameters(),
        )

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Answer in batches; one that does not fit into memory is halved, never lost."""
        return self._in_batches(requests, self._answer)

    def score(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Score each request's candidates (methods `gd` and `ps`); never calls the model's `generate`.

        Raises BadInput where two options begin with the same token (`gd`).
        """
        if self.opened:
            self._deviate("options were scored where the chat template has begun the model's reasoning")
        return self._in_batches(requests, self._score)

    def _deviate(self, words: str) -> None:
        if words not in self.deviations:
            self.deviations.append(words)

    def _switch_thinking(self, settings: Settings, template: str) -> str:
        """Set the template variables that `--thinking` asks for; returns what the template then writes after a question.

        Raises BadInput where the template cannot do what is asked, or cannot be rendered.
        """
        import jinja2

        self._budget: tuple[int, int, int] | None = None
        variables, render = self._inputs.template_variables, self._inputs.rendered_end
        try:
            variables |= template_switch(render, variables, settings.thinking)
            end = render(variables)
        except jinja2.TemplateError as error:
            raise BadInput(
                f"--model {self.model_id}: its chat template cannot be used ({first_line(error)})."
            ) from None
        if isinstance(settings.thinking, int):
            self._budget = (settings.thinking, *budget_tokens(self.processor.tokenizer, template))
        return end

    def _self_tested(self) -> Findings:
        """Which paths of the network are right. Raises BadInput for a model that cannot answer a question about an image at all."""
        import torch

        from eval_harness.models.local.self_test import self_test

        try:
            return self_test(self.network, self._inputs, self.needs_images)
        except torch.OutOfMemoryError:
            raise BadInput(
                f"--model {self.model_id}: one small question does not fit into memory. Use a smaller model, --quantization, or a "
                "larger device."
            ) from None
        except Exception as error:  # whatever a model's own code raises
            raise BadInput(
                f"--model {self.model_id}: cannot answer a question about an image ({type(error).__name__}: {first_line(error)})."
            ) from error

    def _in_batches(self, requests: Sequence[Request], run: Callable[[Prepared], list[Response]]) -> Iterator[Response]:
        """Batches through `run`, with the next ones prepared meanwhile in another thread."""
        queue = Queue(requests)
        waiting: deque[tuple[list[Request], Future[Prepared]]] = deque()
        with ThreadPoolExecutor(1, thread_name_prefix="prepare") as preparing:
            try:
                while queue or waiting:
                    while queue and len(waiting) < AHEAD:
                        batch = queue.take(self.batch_size.size)
                        waiting.append((batch, preparing.submit(self._prepare, batch)))
                    batch, future = waiting.popleft()
                    responses = self._within_memory(run, future.result())
                    if responses is None:
                        if len(batch) == 1:
                            raise BadInput(
                                f"--model {self.model_id}: question {batch[0].question_id} alone does not fit into memory. "
                                "Use a smaller model, --max-image-side, or a larger device."
                            )
                        self.batch_size.halve(len(batch))
                        for later, prepared in reversed(waiting):
                            prepared.cancel()
                            queue.put_back(later)
                        waiting.clear()
                        queue.put_back(batch)
                        continue
                    self.batch_size.went_well(len(batch), self._memory_used())
                    yield from responses
            finally:
                for _, prepared in waiting:
                    prepared.cancel()

    def _prepare(self, batch: list[Request]) -> Prepared:
        shared = self._inputs.shared(batch) if self._shares else None
        return shared if shared and self.network.within_window(shared) else self._inputs.whole(batch)

    def _within_memory(self, run: Callable[[Prepared], list[Response]], prepared: Prepared) -> list[Response] | None:
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
        return [_with_seconds(response, seconds) for response in responses]

    def _checked(self, prepared: Prepared) -> Prepared:
        """The batch as it is; before the first shared one is trusted, it is compared with whole prompts, and given up if they differ."""
        if prepared.rows is None or (self._shares and self._shown_equal):
            return prepared
        whole = self._inputs.whole(prepared.requests)
        if self._shares and self.network.agrees(prepared, whole):
            self._shown_equal = True
            return prepared
        self._shares = False
        return whole

    def _answer(self, prepared: Prepared) -> list[Response]:
        from eval_harness.models.local.logits_processors import EndOfReasoning

        first = prepared.requests[0]
        limit = self._limit(first)
        seeds = [_seed(request) for request in prepared.requests]
        if limit == 1 and self._budget is None:
            tokens = self.network.next_tokens(prepared, first.temperature, seeds)
        else:
            processors = [EndOfReasoning(*self._budget, self.opened, len(seeds))] if self._budget else []
            tokens = self.network.generate(prepared, limit, first.temperature, seeds, processors)
        rows: list[list[int]] = tokens.tolist()
        return [
            self._response(request, row, read, length)
            for request, row, read, length in zip(
                prepared.requests, rows, self._reader.read(rows), prepared.lengths(), strict=True
            )
        ]

    def _response(self, request: Request, row: list[int], read: Reading, prompt_length: int) -> Response:
        """A row of new tokens, padded after the one that ends the text, as it was read."""
        ended = next((place for place, token in enumerate(row, 1) if token in self._ends), None)
        return Response(
            request.question_id,
            request.sample,
            read.text,
            reasoning=read.reasoning,
            finish_reason="length" if ended is None else "stop",
            usage=(prompt_length, ended or len(row)),
        )

    def _score(self, prepared: Prepared) -> list[Response]:
        requests = prepared.requests
        if requests[0].scoring == "next_token":
            log_probabilities = self.network.next_logits(prepared).log_softmax(-1)
            scores = [
                [float(log_probabilities[row, forms].logsumexp(-1)) for forms in self._next_token_forms(request)]
                for row, request in enumerate(requests)
            ]
        else:
            tokens = [[self._continuation(text) for text in request.candidates] for request in requests]
            scores = self.network.candidate_scores(prepared, tokens, requests[0].scoring == "sequence_official")
        return [chosen(request, found) for request, found in zip(requests, scores, strict=True)]

    def _next_token_forms(self, request: Request) -> list[list[int]]:
        """For each candidate the tokens that begin it, written with and without a space before it; shared ones do not count.

        Raises BadInput when a candidate has no token of its own.
        """
        forms: list[set[int]] = []
        for candidate in request.candidates:
            written = (
                self._decoder(form, add_special_tokens=False)["input_ids"] for form in (candidate, f" {candidate}")
            )
            forms.append({ids[0] for ids in written if ids})
        own = [
            sorted(form.difference(*(forms[:position] + forms[position + 1 :]))) for position, form in enumerate(forms)
        ]
        if not all(own):
            raise BadInput(
                f"--method gd: {self.model_id} begins two of the options {', '.join(request.candidates)} "
                f"(question {request.question_id}) with the same token. Use --method ps or mc."
            )
        return own

    def _continuation(self, text: str) -> list[int]:
        """Token ids of an answer as the model would write it after its prompt (with a space, unless the prompt ends in one).

        Raises BadInput for an empty option.
        """
        prompt_end = ":" if self._space else ":\n"
        before = self._decoder(prompt_end, add_special_tokens=False)["input_ids"]
        joined = self._decoder(f"{prompt_end}{self._space}{text}", add_special_tokens=False)["input_ids"]
        ids = joined[len(before) :] if joined[: len(before)] == before else []
        if not ids:
            ids = self._decoder(text, add_special_tokens=False)["input_ids"]
        if not ids:
            raise BadInput("--method ps: an option is empty, so it has no likelihood. Use --method mc.")
        return list(ids)

    def _limit(self, request: Request) -> int:
        """Tokens to generate: what the command line says, else what the protocol asks, or the model's own limit where that is lower."""
        own = None if self._told_limit else self.network.model.generation_config.max_new_tokens
        if not own or own >= request.max_tokens:
            return request.max_tokens
        self._deviate(
            f"the model's generation config limits answers to {own} of the {request.max_tokens} output tokens allowed "
            "(--max-tokens lifts that)"
        )
        return int(own)

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
            "attention": getattr(model.config, "_attn_implementation", None),
            "max_new_tokens_of_model": model.generation_config.max_new_tokens,
            "prompt_form": "chat template" if self._template is None else self._template,
            "shared_image_prefix": self._shown_equal,
            "self_test": self.findings.paths,
        }


GENERATION = (
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "bad_words_ids",
    "min_new_tokens",
)
"""Options of `generate` that `--generation` may set: those that work row by row, one token after the other."""


def _check_generation(given: Mapping[str, Any]) -> None:
    """Raises BadInput for options that would change what an answer is (beams, several sequences) or that are not known."""
    if wrong := sorted(given.keys() - set(GENERATION)):
        raise BadInput(
            f"--generation: {', '.join(wrong)} cannot be set for a local model. There is: {', '.join(GENERATION)}."
        )


def _seed(request: Request) -> int:
    """A seed that depends on the question and the sample number alone."""
    text = f"{request.seed}\0{request.question_id}\0{request.sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def _with_seconds(response: Response, seconds: float) -> Response:
    from dataclasses import replace

    return replace(response, seconds=seconds)
