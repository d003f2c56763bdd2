"""One network of transformers, run three ways: continue a prompt, give the logits of the next token, give the likelihood of candidates.

`generate` of the model's own class is the reference for all three: candidates are scored by making it write them. The fast paths (a
forward pass for the next token, a copied cache for candidates, one prefix for the questions of an image) are used where the self-test
(`self_test.py`) found them equal. See also: making the inputs (`model_inputs.py`), batches (`transformers_vlm.py`).
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper
from transformers.cache_utils import DynamicCache
from transformers.generation.utils import GenerationMixin

from eval_harness.models.local.model_inputs import PreparedBatch, pad_left

SAMPLING_FILTERS: dict[str, Callable[[Any], LogitsProcessor]] = {
    "top_k": TopKLogitsWarper,
    "top_p": TopPLogitsWarper,
    "min_p": MinPLogitsWarper,
}
"""Options of `generate` that only matter where tokens are drawn."""


LOGIT_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Largest root mean square difference of a row's logits, relative to their spread, at which two ways of running count as equal; other
dtypes: 0.05."""

MASKED_LOGIT = -1e6
SHARABLE_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}


class UncontrolledGenerate(ValueError):
    """A class's `generate` takes no logits processors (Janus), or does not write one token after the other (diffusion models)."""


@dataclass(slots=True)
class PromptState:
    """A batch after its prompts: logits of the next token [n, vocabulary] (float32), and the cache of what was read.

    `ids` [n, width] are the prompt tokens, `mask` says which of them are padding.
    """

    logits: torch.Tensor
    cache: Any
    ids: torch.Tensor
    mask: torch.Tensor


class Network:
    """A loaded model with what the harness needs to know of it."""

    def __init__(self, model: Any, pad: int, generation: dict[str, Any] | None = None) -> None:
        self.model = model
        self.pad = pad
        self.generation = generation or {}
        """Options of `generate` that the user gave."""
        self.device = model.device
        self.encoder_decoder = is_encoder_decoder(model.config)
        for module in model.modules():
            # Classes with a language model inside (BLIP) hand its own padding token on, and take no other.
            if isinstance(inner := getattr(module, "generation_config", None), GenerationConfig):
                inner.pad_token_id = pad
        own_generate = type(model).generate is not GenerationMixin.generate
        """The class has its own `generate` (BLIP-2, InstructBLIP): it makes embeddings by itself and hides its cache."""
        self.plain_generate = False
        """True if transformers' own `generate` is called where the class has another."""
        parameters = inspect.signature(model.forward).parameters
        self._keeps_logits = "logits_to_keep" in parameters
        self._takes_positions = "position_ids" in parameters
        self.reads = not (own_generate or self.encoder_decoder)
        """True if prompts are read by one forward pass whose cache is continued; otherwise `generate` does everything."""
        self._rope_owner = next((module for module in model.modules() if hasattr(module, "rope_deltas")), None)
        """In models with several position axes, the module that stores the offset of positions after an image from the token count."""
        self.window = attention_window(model)
        """Tokens within which every layer attends to all earlier ones; None: any number."""
        self.may_share = (
            self.reads and self._takes_positions and supports_prefix_cache(model, self._rope_owner is not None)
        )

    def next_logits(self, prepared: PreparedBatch) -> torch.Tensor:
        """Logits [n, vocabulary] (float32) of the token that comes after each prompt."""
        if self.reads or prepared.rows is not None:
            return self._context(prepared).logits
        return self.forced_logits(prepared, [[self.pad]] * len(prepared.requests))[:, 0]

    def forced_logits(self, prepared: PreparedBatch, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Logits [n, tokens, vocabulary] (float32, before any processor) that `generate` gives for each of `tokens` (as many in every
        row) where it is made to write them.

        Where the model's generation config forces a first token (BART), that one is written first and not counted.
        """
        lead = getattr(self.model.generation_config, "forced_bos_token_id", None) if self.encoder_decoder else None
        lead = [lead] if isinstance(lead, int) else []
        count = len(lead) + len(tokens[0])
        forced = ForcedTokens([[*lead, *row] for row in tokens])
        output = self._run(prepared, count, [forced], return_dict_in_generate=True, output_logits=True)
        if forced.step != count or len(output.logits) != count:
            raise UncontrolledGenerate("its `generate` does not write one token after the other")
        return torch.stack(output.logits[len(lead) :], 1).float()

    def _run(self, prepared: PreparedBatch, max_tokens: int, processors: list[LogitsProcessor], **options: Any) -> Any:
        options = {
            "max_new_tokens": max_tokens,
            "do_sample": False,
            "num_beams": 1,
            "num_return_sequences": 1,
            "return_dict_in_generate": False,
            "temperature": None,
            "top_p": None,
            "top_k": None,
            "repetition_penalty": 1.0,
            **options,
        }
        if prepared.rows is not None:
            context = self._after_prefix(prepared, leave=1)
            # Processors look at prompts with their padding first; here it may lie between an image and its question.
            ids = context.ids.gather(1, context.mask.argsort(dim=1, stable=True))
            inputs = {"input_ids": ids, "attention_mask": context.mask, "past_key_values": context.cache}
            return self.model.generate(**inputs, logits_processor=processors, **options)
        generate = partial(GenerationMixin.generate, self.model) if self.plain_generate else self.model.generate
        return generate(**self.to_device(prepared.inputs), logits_processor=processors, **options)

    def _context(self, prepared: PreparedBatch) -> PromptState:
        """Read the prompts; logits of the token that comes next."""
        if prepared.rows is not None:
            return self._after_prefix(prepared)
        return self._read(self.to_device(prepared.inputs))

    def _read(self, inputs: dict[str, Any]) -> PromptState:
        """One forward pass over the prompts, as `generate` begins."""
        rest = dict(inputs)
        ids, mask = rest.pop("input_ids"), rest["attention_mask"]
        if (
            self._rope_owner is None or "pixel_values" not in inputs
        ):  # else the class counts the axes of an image itself
            if self._rope_owner is not None:
                self._rope_owner.rope_deltas = torch.zeros_like(ids[:, :1])
            rest["position_ids"] = self._positions(mask, ids.shape[1])
        rest["past_key_values"] = DynamicCache(config=self.model.config.get_text_config(decoder=True))
        rest["use_cache"] = True
        if self._keeps_logits:
            rest["logits_to_keep"] = 1
        model_inputs = self.model.prepare_inputs_for_generation(ids, is_first_iteration=True, **rest)
        output = self.model(**model_inputs, return_dict=True)
        return PromptState(output.logits[:, -1].float(), output.past_key_values, ids, mask)

    def _positions(self, mask: torch.Tensor, width: int) -> torch.Tensor | None:
        """Positions of the last `width` tokens of a mask; what the class keeps of images with several axes is added."""
        if not self._takes_positions:
            return None
        positions = mask.cumsum(-1).sub(1).masked_fill(mask == 0, 0)[:, -width:]
        return positions if self._rope_owner is None else positions[None] + self._rope_owner.rope_deltas

    def within_window(self, shared: PreparedBatch, written: int | None = None) -> bool:
        """True if questions after shared prefixes, with what is `written` after them (None: what their requests allow, an option having
        no more tokens than bytes), stay where every layer attends to all of it: padding between an image and its questions would push
        tokens out of a sliding window that whole prompts keep in it."""
        if self.window is None:
            return True
        if written is None:
            written = max(
                max((len(text.encode()) for text in request.candidates), default=request.max_tokens)
                for request in shared.requests
            )
        return shared.width + written < self.window

    def _after_prefix(self, prepared: PreparedBatch, leave: int = 0) -> PromptState:
        """Read each image once, hand every question its prefix's cache, and read the questions' own tokens, the last `leave` excepted."""
        assert prepared.rows is not None
        assert prepared.suffixes is not None
        prefix = self._read(self.to_device(prepared.inputs))
        rows = torch.tensor(prepared.rows, device=prefix.ids.device)
        prefix.cache.batch_select_indices(rows)
        if self._rope_owner is not None:  # the class adds them, row by row, to what continues the cache
            self._rope_owner.rope_deltas = self._rope_owner.rope_deltas[rows]
        ids, mask = (t.to(rows.device) for t in pad_left(prepared.suffixes, self.pad))
        whole = PromptState(
            prefix.logits[rows],
            prefix.cache,
            *(torch.cat(pair, 1) for pair in ((prefix.ids[rows], ids), (prefix.mask[rows], mask))),
        )
        if width := ids.shape[1] - leave:
            read = whole.mask[:, : whole.mask.shape[1] - leave]
            logits = self._continue(ids[:, :width], whole.cache, read, self._positions(read, width), last_only=True)
            whole.logits = logits[:, -1]
        return whole

    def _continue(
        self, ids: torch.Tensor, cache: Any, mask: torch.Tensor, positions: torch.Tensor | None, last_only: bool = False
    ) -> torch.Tensor:
        """Logits [n, tokens, vocabulary] (float32) of more tokens after a cache, which grows by them."""
        extra: dict[str, Any] = {"position_ids": positions} if positions is not None else {}
        if last_only and self._keeps_logits:
            extra["logits_to_keep"] = 1
        # The class may change the positions on the way (PaliGemma counts from 1).
        inputs = self.model.prepare_inputs_for_generation(
            ids, past_key_values=cache, attention_mask=mask, use_cache=True, is_first_iteration=False, **extra
        )
        logits: torch.Tensor = self.model(**inputs, return_dict=True).logits.float()
        return logits

    def generate(
        self,
        prepared: PreparedBatch,
        max_tokens: int,
        temperature: float,
        seeds: Sequence[int],
        processors: Sequence[LogitsProcessor] = (),
    ) -> tuple[torch.Tensor, list[bool]]:
        """New token ids [n, up to max_tokens], greedy; with a temperature, sampled with one generator per row (`seeds`). And for each row
        whether a logit was not a number, so that its tokens mean nothing.

        Raises NotSteered where the class's `generate` does not write token by token.
        """
        steps = StepCounter()
        used = [steps, *processors]
        options = {name: value for name, value in self.generation.items() if name not in SAMPLING_FILTERS}
        if temperature > 0:
            filters = [
                SAMPLING_FILTERS[name](value) for name, value in self.generation.items() if name in SAMPLING_FILTERS
            ]
            used.insert(1, SeededSampling(temperature, seeds, self.device, filters))
        output: torch.Tensor = self._run(prepared, max_tokens, used, **options)
        if steps.broken is None:
            raise UncontrolledGenerate("its `generate` does not write one token after the other")
        return output[:, -steps.count :], steps.broken.tolist()

    def candidate_scores(
        self, prepared: PreparedBatch, candidates: Sequence[Sequence[Sequence[int]]], official: bool = False
    ) -> list[list[float]]:
        """For each row and candidate (token ids, never empty): mean log-probability of its tokens after the prompt (see `_mean`)."""
        columns = range(max(map(len, candidates)))
        texts = [[row[column] if column < len(row) else [self.pad] for row in candidates] for column in columns]
        logits = self.continued_logits(prepared, texts) if self.reads else self._each_forced(prepared, texts)
        found: list[list[float]] = [[] for _ in candidates]
        for column, given in enumerate(logits):
            log_probabilities = given.log_softmax(-1)
            for row, options in enumerate(candidates):
                if column < len(options):
                    found[row].append(_mean_logprob(log_probabilities[row], options[column], official))
        return found

    def _each_forced(
        self, prepared: PreparedBatch, columns: Sequence[Sequence[Sequence[int]]]
    ) -> Iterator[torch.Tensor]:
        for texts in columns:
            width = max(map(len, texts))
            yield self.forced_logits(prepared, [[*text, *[self.pad] * (width - len(text))] for text in texts])

    def continued_logits(
        self, prepared: PreparedBatch, columns: Sequence[Sequence[Sequence[int]]]
    ) -> Iterator[torch.Tensor]:
        """For each column of texts (one per row, token ids) the logits [n, longest text, vocabulary] of their tokens: the prompts are
        read once, and each column continues a copy of their cache."""
        context = self._context(prepared)
        first = context.logits[:, None]
        for texts in columns:
            width = max(map(len, texts)) - 1  # the last token predicts nothing that is asked
            if not width:
                yield first
                continue
            rows = [[*text[:-1], *[self.pad] * (width + 1 - len(text))] for text in texts]
            kept = [[1] * (len(text) - 1) + [0] * (width + 1 - len(text)) for text in texts]
            ids, more = torch.tensor(rows, device=first.device), torch.tensor(kept, device=first.device)
            mask = torch.cat([context.mask, more], 1)
            later = self._continue(ids, copy.deepcopy(context.cache), mask, self._positions(mask, width))
            yield torch.cat([first, later], 1)

    def agrees(self, shared: PreparedBatch, whole: PreparedBatch) -> bool:
        """True if reading shared prefixes gives the logits that reading whole prompts gives, for the same requests."""
        first, second = self._context(shared), self._context(whole)
        same_tokens = all(
            a[m.bool()].tolist() == b[n.bool()].tolist()
            for a, m, b, n in zip(first.ids, first.mask, second.ids, second.mask, strict=True)
        )
        return same_tokens and logit_difference(first.logits, second.logits) <= self.tolerance

    @property
    def tolerance(self) -> float:
        """The largest `difference` that counts as none."""
        return LOGIT_TOLERANCE.get(self.model.dtype, 0.05)

    def to_device(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The tensors on the model's device, pixels in its dtype."""
        return {
            name: value.to(self.device, self.model.dtype if value.is_floating_point() else None)
            for name, value in inputs.items()
            if isinstance(value, torch.Tensor)
        }


def _mean_logprob(log_probabilities: torch.Tensor, tokens: Sequence[int], official: bool) -> float:
    """Mean log-probability of `tokens`, from those of each position [at least len(tokens), vocabulary].

    `official`: the MediConfusion authors' code gathers with an index of one row, so every token's probability is taken from the
    distribution of the first position. Published prefix scores carry that; this reproduces it.
    """
    ids = torch.tensor(list(tokens), device=log_probabilities.device)
    steps = torch.zeros_like(ids) if official else torch.arange(len(ids), device=ids.device)
    return float(log_probabilities[steps, ids].mean())


def is_encoder_decoder(config: Any) -> bool:
    """True if prompts go into an encoder; InstructBLIP with a T5 says so in its text config alone."""
    text = getattr(config, "text_config", None)
    return bool(config.is_encoder_decoder or getattr(text, "is_encoder_decoder", False))


def supports_prefix_cache(model: Any, keeps_deltas: bool) -> bool:
    """True if tokens after an image depend on those before them through the cache and the position alone.

    Linear attention, states, and positions of the class's own (but for those that it keeps as `rope_deltas`): no. What a class does
    beyond that shows in the self-test and in the first shared batch, which is compared with whole prompts.
    """
    text = model.config.get_text_config(decoder=True)
    kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
    own_positions = hasattr(getattr(model, "model", model), "get_rope_index")
    bidirectional = getattr(text, "use_bidirectional_attention", None) not in (None, False, "vision")
    return kinds <= SHARABLE_LAYERS and (keeps_deltas or not own_positions) and not bidirectional


def attention_window(model: Any) -> int | None:
    """The shortest reach of a layer of the text model in tokens; padding between an image and its questions uses it up too."""
    text = model.config.get_text_config(decoder=True)
    kinds = set(getattr(text, "layer_types", None) or [])
    reach = []
    if getattr(text, "sliding_window", None) and (
        "sliding_attention" in kinds or (not kinds and getattr(text, "use_sliding_window", True))
    ):
        reach.append(int(text.sliding_window))
    if "chunked_attention" in kinds:
        reach.append(int(text.attention_chunk_size))
    return min(reach, default=None)


def logit_difference(first: torch.Tensor, second: torch.Tensor) -> float:
    """Largest root mean square difference of a row of logits [..., vocabulary], relative to the spread of `second`; tokens that a
    model rules out (logits at the lowest number) must be the same and do not count. Infinite where a logit is not a number."""
    allowed = second > MASKED_LOGIT
    if torch.isnan(first).any() or torch.isnan(second).any() or not torch.equal(allowed, first > MASKED_LOGIT):
        return math.inf
    apart = torch.where(allowed, first - second, 0.0).pow(2).sum(-1) / allowed.sum(-1)
    return float(apart.max().sqrt() / second[allowed].std().clamp_min(1e-6))


class StepCounter(LogitsProcessor):
    """Counts the tokens generated, which is how many of the last columns of `generate`'s output are new, whatever the class returns; and
    notes the rows [n] in which a logit was not a number (`broken`)."""

    def __init__(self) -> None:
        self.count = 0
        self.broken: torch.Tensor | None = None

    def __call__(self, input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
        self.count += 1
        broken = scores.isnan().any(-1)
        self.broken = broken if self.broken is None else self.broken | broken
        return scores


class ForcedTokens(LogitsProcessor):
    """Row i writes `tokens[i]`, whatever the model would have chosen; all rows have the same number of tokens."""

    def __init__(self, tokens: Sequence[Sequence[int]]) -> None:
        self.tokens = tokens
        self.step = 0

    def __call__(self, input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
        ids = torch.tensor([row[self.step] for row in self.tokens], device=scores.device)
        self.step += 1
        return torch.full_like(scores, -torch.inf).scatter_(1, ids[:, None], 0.0)


class SeededSampling(LogitsProcessor):
    """Sampling at a temperature that does not depend on the batch: Gumbel noise from one generator per row makes greedy choice a draw
    from softmax(logits / temperature). The same question and sample number draw the same tokens in any batch, also after a resume.

    `filters` (top-k, top-p ...) see the logits at that temperature, before the draw."""

    def __init__(
        self, temperature: float, seeds: Sequence[int], device: Any, filters: Sequence[LogitsProcessor] = ()
    ) -> None:
        self.temperature = temperature
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self.filters = filters

    def __call__(self, input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.float() / self.temperature
        for each in self.filters:
            scores = each(input_ids, scores)
        noise = torch.stack(
            [
                torch.empty(scores.shape[-1], device=scores.device).exponential_(generator=generator)
                for generator in self.generators
            ]
        )
        return scores - noise.clamp_min(torch.finfo(torch.float32).tiny).log()


class ReasoningBudget(LogitsProcessor):
    """Writes the token that ends a reasoning where a row has reasoned for `budget` tokens.

    `opened`: the prompt opened the reasoning already; else it begins with the token `start`.
    """

    def __init__(self, budget: int, start: int, end: int, opened: bool, rows: int) -> None:
        self.budget, self.start, self.end = budget, start, end
        self.left: list[int | None] = [budget if opened else None] * rows
        self.first = True

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if not self.first:
            for row, token in enumerate(input_ids[:, -1].tolist()):
                left = self.left[row]
                if token == self.end:
                    self.left[row] = None
                elif left is not None:
                    self.left[row] = left - 1
                elif token == self.start:
                    self.left[row] = self.budget
        self.first = False
        over = [row for row, left in enumerate(self.left) if left is not None and left <= 0]
        if over:
            scores = scores.clone()
            scores[over] = -torch.inf
            scores[over, self.end] = 0.0
        return scores
