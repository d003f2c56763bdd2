"""Run a network of transformers: generate, next-token logits, likelihood of candidates.

The `generate` of the model's own class is the reference for all three: forcing it to write a
candidate gives that candidate's score. Faster paths (one forward pass for the next token, a copied
cache for candidates, one prefix for the questions of an image) are used only if the self-test
(`self_test.py`) found their results equal. See also: making the inputs (`model_inputs.py`), batches
(`transformers_vlm.py`).
"""

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    MinPLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.cache_utils import DynamicCache
from transformers.generation.utils import GenerationMixin

from eval_harness.models.local.model_inputs import PreparedBatch, pad_left

SAMPLING_FILTERS: dict[str, Callable[[Any], LogitsProcessor]] = {
    "top_k": TopKLogitsWarper,
    "top_p": TopPLogitsWarper,
    "min_p": MinPLogitsWarper,
}
"""Options of `generate` that apply to sampling only."""

LOGIT_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Maximum `logit_difference` at which two ways of running a model count as equal.

0.05 for dtypes that are not listed.
"""

MASKED_LOGIT = -1e6
"""Tokens with a lower logit count as ruled out by the model."""
SHARABLE_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}


class UncontrolledGenerate(ValueError):
    """Raised if a class's `generate` cannot be forced to write given tokens.

    It ignores logits processors (Janus), or does not write token by token (diffusion models).
    """


@dataclass(slots=True)
class PromptState:
    """The state of a batch after its prompts were read."""

    logits: torch.Tensor
    """Logits of the next token [n, vocabulary] (float32)."""
    cache: Any
    """Key-value cache of the prompts."""
    ids: torch.Tensor
    """Prompt token ids [n, width]."""
    mask: torch.Tensor
    """1 for tokens, 0 for padding [n, width]."""


class Network:
    """A loaded model, with the properties that decide how it can be run."""

    def __init__(self, model: Any, pad: int, generation: dict[str, Any] | None = None) -> None:
        self.model = model
        self.pad = pad
        self.generation = generation or {}
        """Options of `generate` that the user gave."""
        self.device = model.device
        self.encoder_decoder = is_encoder_decoder(model.config)
        for module in model.modules():
            # A class that wraps a language model (BLIP) may use that model's own padding token.
            if isinstance(inner := getattr(module, "generation_config", None), GenerationConfig):
                inner.pad_token_id = pad
        own_generate = type(model).generate is not GenerationMixin.generate
        """Whether the class overrides `generate` (BLIP-2, InstructBLIP): it makes embeddings itself
        and hides its cache.
        """
        self.plain_generate = False
        """True to call transformers' `generate` instead of the class's own override."""
        parameters = inspect.signature(model.forward).parameters
        self._keeps_logits = "logits_to_keep" in parameters
        self._takes_positions = "position_ids" in parameters
        self.reads = not (own_generate or self.encoder_decoder)
        """True if prompts are read by one forward pass whose cache is continued; otherwise
        `generate` does everything."""
        self._rope_owner = next((module for module in model.modules() if hasattr(module, "rope_deltas")), None)
        """In models with several position axes: the module that stores the offset between positions
        after an image and the token count."""
        self.window = attention_window(model)
        """Number of tokens within which all layers attend to all earlier tokens; None:
        unlimited.
        """
        self.may_share = (
            self.reads and self._takes_positions and supports_prefix_cache(model, self._rope_owner is not None)
        )

    def next_logits(self, prepared: PreparedBatch) -> torch.Tensor:
        """Return the logits [n, vocabulary] (float32) of the token after each prompt."""
        if self.reads or prepared.continuations:
            return self._prompt_state(prepared).logits
        return self.forced_logits(prepared, [[self.pad]] * len(prepared.requests))[:, 0]

    def forced_logits(self, prepared: PreparedBatch, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Force `generate` to write given tokens and return their logits.

        If the model's generation config forces a first token (BART), that token is written first
        and its logits are left out.

        Args:
            prepared: The batch.
            tokens: Token ids of each row; all rows have the same number.

        Returns:
            Logits [n, tokens, vocabulary] (float32), before any logits processor.

        Raises:
            UncontrolledGenerate: If `generate` does not write token by token.
        """
        # Encoder-decoder models may force the first token of every output.
        forced_bos = (
            getattr(self.model.generation_config, "forced_bos_token_id", None) if self.encoder_decoder else None
        )
        lead = [forced_bos] if isinstance(forced_bos, int) else []
        count = len(lead) + len(tokens[0])
        forced = ForcedTokens([[*lead, *row] for row in tokens])
        output = self._run(prepared, count, [forced], return_dict_in_generate=True, output_logits=True)
        # A class that ignores processors never calls them; others may call them once too often.
        if forced.step != count or len(output.logits) != count:
            raise UncontrolledGenerate("its `generate` does not write one token after the other")
        return torch.stack(output.logits[len(lead) :], 1).float()

    def _run(
        self,
        prepared: PreparedBatch,
        max_tokens: int,
        processors: list[LogitsProcessor],
        **options: Any,
    ) -> Any:
        # Set explicitly, because a model's own generation config may set any of these.
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
        if prepared.continuations:
            state = self._after_prefix(prepared, leave=1)
            # Logits processors expect padding on the left; here it may follow an image's prefix.
            ids = state.ids.gather(1, state.mask.argsort(dim=1, stable=True))
            inputs = {
                "input_ids": ids,
                "attention_mask": state.mask,
                "past_key_values": state.cache,
            }
            return self.model.generate(**inputs, logits_processor=processors, **options)
        generate = partial(GenerationMixin.generate, self.model) if self.plain_generate else self.model.generate
        return generate(**self.to_device(prepared.inputs), logits_processor=processors, **options)

    def _prompt_state(self, prepared: PreparedBatch) -> PromptState:
        """Read the prompts, up to the logits of the next token."""
        if prepared.continuations:
            return self._after_prefix(prepared)
        return self._read(self.to_device(prepared.inputs))

    def _read(self, inputs: dict[str, Any]) -> PromptState:
        """Read full prompts in one forward pass, with the inputs that `generate` would prepare."""
        arguments = dict(inputs)
        ids, mask = arguments.pop("input_ids"), arguments["attention_mask"]
        # With images and several position axes, the class computes the positions itself.
        if self._rope_owner is None or "pixel_values" not in inputs:
            if self._rope_owner is not None:
                self._rope_owner.rope_deltas = torch.zeros_like(ids[:, :1])
            arguments["position_ids"] = self._positions(mask, ids.shape[1])
        arguments["past_key_values"] = DynamicCache(config=self.model.config.get_text_config(decoder=True))
        arguments["use_cache"] = True
        if self._keeps_logits:
            arguments["logits_to_keep"] = 1
        model_inputs = self.model.prepare_inputs_for_generation(ids, is_first_iteration=True, **arguments)
        output = self.model(**model_inputs, return_dict=True)
        return PromptState(output.logits[:, -1].float(), output.past_key_values, ids, mask)

    def _positions(self, mask: torch.Tensor, width: int) -> torch.Tensor | None:
        """Return positions of a mask's last `width` tokens, plus the class's offsets for images."""
        if not self._takes_positions:
            return None
        positions = mask.cumsum(-1).sub(1).masked_fill(mask == 0, 0)[:, -width:]
        return positions if self._rope_owner is None else positions[None] + self._rope_owner.rope_deltas

    def within_window(self, shared: PreparedBatch, new_tokens: int | None = None) -> bool:
        """True if shared prefixes, questions and answers fit into the attention window.

        The padding between an image and its questions would push tokens out of a sliding window
        that full prompts keep in it.

        Args:
            shared: A batch of shared prefixes.
            new_tokens: Number of tokens written after the prompts; None: as many as the requests
                allow (an option has at most as many tokens as bytes).
        """
        if self.window is None:
            return True
        if new_tokens is None:
            new_tokens = max(
                max((len(text.encode()) for text in request.candidates), default=request.max_tokens)
                for request in shared.requests
            )
        return shared.width + new_tokens < self.window

    def _after_prefix(self, prepared: PreparedBatch, leave: int = 0) -> PromptState:
        """Read each image once, copy its cache to every question, then read the questions.

        `leave`: number of tokens at the end of the questions that are not read.
        """
        prefix = self._read(self.to_device(prepared.inputs))
        # From here on, one row per question: each gets a copy of its image's cache.
        rows = torch.tensor([row for row, _ in prepared.continuations], device=prefix.ids.device)
        prefix.cache.batch_select_indices(rows)
        if self._rope_owner is not None:
            # The class adds these offsets row by row, so there must be one for each question.
            self._rope_owner.rope_deltas = self._rope_owner.rope_deltas[rows]

        texts = [ids for _, ids in prepared.continuations]
        ids, mask = (tensor.to(rows.device) for tensor in pad_left(texts, self.pad))
        state = PromptState(
            prefix.logits[rows],
            prefix.cache,
            *(torch.cat(pair, 1) for pair in ((prefix.ids[rows], ids), (prefix.mask[rows], mask))),
        )
        if width := ids.shape[1] - leave:
            read_mask = state.mask[:, : state.mask.shape[1] - leave]
            positions = self._positions(read_mask, width)
            state.logits = self._continue(ids[:, :width], state.cache, read_mask, positions, last_only=True)[:, -1]
        return state

    def _continue(
        self,
        ids: torch.Tensor,
        cache: Any,
        mask: torch.Tensor,
        positions: torch.Tensor | None,
        last_only: bool = False,
    ) -> torch.Tensor:
        """Return logits [n, tokens, vocabulary] (float32) of tokens that continue a cache.

        The cache is extended by these tokens.
        """
        extra: dict[str, Any] = {"position_ids": positions} if positions is not None else {}
        if last_only and self._keeps_logits:
            extra["logits_to_keep"] = 1
        # The class may modify the positions (PaliGemma counts from 1).
        inputs = self.model.prepare_inputs_for_generation(
            ids,
            past_key_values=cache,
            attention_mask=mask,
            use_cache=True,
            is_first_iteration=False,
            **extra,
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
        """Generate answers.

        Args:
            prepared: The batch.
            max_tokens: Maximum number of new tokens.
            temperature: 0 for greedy decoding.
            seeds: Seed of each row's generator, for sampling.
            processors: Further logits processors.

        Returns:
            (new token ids [n, up to max_tokens]; for each row, whether a logit was NaN, which makes
            its tokens meaningless).

        Raises:
            UncontrolledGenerate: If the class's `generate` does not write token by token.
        """
        steps = StepCounter()
        all_processors = [steps, *processors]
        options = {name: value for name, value in self.generation.items() if name not in SAMPLING_FILTERS}
        if temperature > 0:
            filters = [
                SAMPLING_FILTERS[name](value) for name, value in self.generation.items() if name in SAMPLING_FILTERS
            ]
            # After the counter, which must see the model's own logits.
            all_processors.insert(1, SeededSampling(temperature, seeds, self.device, filters))
        output: torch.Tensor = self._run(prepared, max_tokens, all_processors, **options)
        if steps.broken is None:
            raise UncontrolledGenerate("its `generate` does not write one token after the other")
        return output[:, -steps.count :], steps.broken.tolist()

    def candidate_scores(
        self,
        prepared: PreparedBatch,
        candidates: Sequence[Sequence[Sequence[int]]],
        official: bool = False,
    ) -> list[list[float]]:
        """Score candidates by the mean log-probability of their tokens after the prompt.

        Args:
            prepared: The batch.
            candidates: Token ids of each row's candidates, never empty.
            official: Compute as the MediConfusion authors' code does (see `_mean_logprob`).

        Returns:
            Scores of each row's candidates.
        """
        columns = range(max(map(len, candidates)))
        # Column k holds the k-th candidate of every row; rows with fewer get a padding token.
        texts = [[row[column] if column < len(row) else [self.pad] for row in candidates] for column in columns]
        logits = self.continued_logits(prepared, texts) if self.reads else self._each_forced(prepared, texts)
        scores: list[list[float]] = [[] for _ in candidates]
        for column, column_logits in enumerate(logits):
            log_probabilities = column_logits.log_softmax(-1)
            for row, options in enumerate(candidates):
                if column < len(options):
                    scores[row].append(_mean_logprob(log_probabilities[row], options[column], official))
        return scores

    def _each_forced(
        self, prepared: PreparedBatch, columns: Sequence[Sequence[Sequence[int]]]
    ) -> Iterator[torch.Tensor]:
        for texts in columns:
            width = max(map(len, texts))
            yield self.forced_logits(prepared, [[*text, *[self.pad] * (width - len(text))] for text in texts])

    def continued_logits(
        self, prepared: PreparedBatch, columns: Sequence[Sequence[Sequence[int]]]
    ) -> Iterator[torch.Tensor]:
        """Compute the logits of several continuations of each prompt.

        The prompts are read once; each column continues a copy of their cache.

        Args:
            prepared: The batch.
            columns: In each column the token ids of one continuation per row.

        Yields:
            For each column, logits [n, longest continuation, vocabulary] of its tokens.
        """
        state = self._prompt_state(prepared)
        first_logits = state.logits[:, None]
        for texts in columns:
            width = max(map(len, texts)) - 1  # logits after the last token are not needed
            if not width:
                yield first_logits
                continue
            rows = [[*text[:-1], *[self.pad] * (width + 1 - len(text))] for text in texts]
            row_masks = [[1] * (len(text) - 1) + [0] * (width + 1 - len(text)) for text in texts]
            ids, text_mask = (torch.tensor(values, device=first_logits.device) for values in (rows, row_masks))
            mask = torch.cat([state.mask, text_mask], 1)
            # A copy, because the next column continues the same prompts.
            later_logits = self._continue(ids, copy.deepcopy(state.cache), mask, self._positions(mask, width))
            yield torch.cat([first_logits, later_logits], 1)

    def agrees(self, shared: PreparedBatch, full: PreparedBatch) -> bool:
        """True if shared prefixes give the same logits as full prompts.

        Args:
            shared: Requests as shared prefixes.
            full: The same requests as full prompts.
        """
        shared_state, full_state = self._prompt_state(shared), self._prompt_state(full)
        # Padding may be in different places, so compare only the tokens.
        same_tokens = all(
            a[m.bool()].tolist() == b[n.bool()].tolist()
            for a, m, b, n in zip(shared_state.ids, shared_state.mask, full_state.ids, full_state.mask, strict=True)
        )
        return same_tokens and logit_difference(shared_state.logits, full_state.logits) <= self.tolerance

    @property
    def tolerance(self) -> float:
        """Maximum `logit_difference` that counts as equal in the model's dtype."""
        return LOGIT_TOLERANCE.get(self.model.dtype, 0.05)

    def to_device(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Move tensors to the model's device, pixels also to its dtype; drop other values."""
        return {
            name: value.to(self.device, self.model.dtype if value.is_floating_point() else None)
            for name, value in inputs.items()
            if isinstance(value, torch.Tensor)
        }


def _mean_logprob(log_probabilities: torch.Tensor, tokens: Sequence[int], official: bool) -> float:
    """Compute the mean log-probability of tokens.

    Args:
        log_probabilities: Log-probabilities at each position [at least len(tokens), vocabulary].
        tokens: Token ids.
        official: Take every token's probability from the distribution of the first position, as the
            MediConfusion authors' code does (it gathers with an index of one row). Published prefix
            scores were computed this way.
    """
    ids = torch.tensor(list(tokens), device=log_probabilities.device)
    steps = torch.zeros_like(ids) if official else torch.arange(len(ids), device=ids.device)
    return float(log_probabilities[steps, ids].mean())


def is_encoder_decoder(config: Any) -> bool:
    """Return True if prompts go into an encoder.

    InstructBLIP with a T5 states this only in its text config.
    """
    text_config = getattr(config, "text_config", None)
    return bool(config.is_encoder_decoder or getattr(text_config, "is_encoder_decoder", False))


def supports_prefix_cache(model: Any, keeps_deltas: bool) -> bool:
    """True if tokens after an image depend on earlier ones only through cache and position.

    False for linear attention, recurrent states, and positions computed by the class itself unless
    it stores their offsets. Any other peculiarity of a class shows in the self-test and in the
    first shared batch, which is compared with full prompts.

    Args:
        model: Model of transformers.
        keeps_deltas: Whether it stores the offsets of positions (`rope_deltas`).
    """
    text_config = model.config.get_text_config(decoder=True)
    layer_types = set(getattr(text_config, "layer_types", None) or ["full_attention"])
    # Classes with several position axes (Qwen-VL) compute positions in `get_rope_index`.
    own_positions = hasattr(getattr(model, "model", model), "get_rope_index")
    bidirectional = getattr(text_config, "use_bidirectional_attention", None) not in (
        None,
        False,
        "vision",
    )
    return layer_types <= SHARABLE_LAYERS and (keeps_deltas or not own_positions) and not bidirectional


def attention_window(model: Any) -> int | None:
    """Return the shortest attention span of the text model's layers, in tokens; None: unlimited.

    Padding between an image and its questions counts as tokens, too.
    """
    text_config = model.config.get_text_config(decoder=True)
    layer_types = set(getattr(text_config, "layer_types", None) or [])
    spans = []
    if getattr(text_config, "sliding_window", None) and (
        "sliding_attention" in layer_types or (not layer_types and getattr(text_config, "use_sliding_window", True))
    ):
        spans.append(int(text_config.sliding_window))
    if "chunked_attention" in layer_types:
        spans.append(int(text_config.attention_chunk_size))
    return min(spans, default=None)


def logit_difference(logits: torch.Tensor, reference: torch.Tensor) -> float:
    """Compare the logits of two ways of running a model.

    Tokens that the model rules out must be the same in both, and are not compared further.

    Args:
        logits: Logits [..., vocabulary].
        reference: Logits of the reference, of the same shape.

    Returns:
        Largest root-mean-square difference of a row, relative to the standard deviation of the
        reference; infinite if a logit is NaN or other tokens are ruled out.
    """
    allowed = reference > MASKED_LOGIT
    if any(torch.isnan(x).any() for x in (logits, reference)) or not torch.equal(allowed, logits > MASKED_LOGIT):
        return math.inf
    mean_squares = torch.where(allowed, logits - reference, 0.0).pow(2).sum(-1) / allowed.sum(-1)
    return float(mean_squares.max().sqrt() / reference[allowed].std().clamp_min(1e-6))


class StepCounter(LogitsProcessor):
    """Counts generated tokens and notes rows with NaN logits.

    The count says how many columns of `generate`'s output are new, whatever else the class returns.
    `broken` [n]: rows in which a logit was NaN.
    """

    def __init__(self) -> None:
        self.count = 0
        self.broken: torch.Tensor | None = None

    def __call__(self, input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
        self.count += 1
        broken = scores.isnan().any(-1)
        self.broken = broken if self.broken is None else self.broken | broken
        return scores


class ForcedTokens(LogitsProcessor):
    """Makes row i write `tokens[i]`; all rows have the same number of tokens."""

    def __init__(self, tokens: Sequence[Sequence[int]]) -> None:
        self.tokens = tokens
        self.step = 0

    def __call__(self, input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
        ids = torch.tensor([row[self.step] for row in self.tokens], device=scores.device)
        self.step += 1
        return torch.full_like(scores, -torch.inf).scatter_(1, ids[:, None], 0.0)


class SeededSampling(LogitsProcessor):
    """Sampling at a temperature, with results that do not depend on the batch.

    Gumbel noise from one generator per row turns greedy choice into a draw from
    softmax(logits / temperature). The same question and sample number draw the same tokens in any
    batch, also when a run is resumed. `filters` (top-k, top-p ...) are applied to the scaled logits
    before the draw.
    """

    def __init__(
        self,
        temperature: float,
        seeds: Sequence[int],
        device: Any,
        filters: Sequence[LogitsProcessor] = (),
    ) -> None:
        self.temperature = temperature
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self.filters = filters

    def __call__(self, input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.float() / self.temperature
        for sampling_filter in self.filters:
            scores = sampling_filter(input_ids, scores)
        noise = torch.stack(
            [
                torch.empty(scores.shape[-1], device=scores.device).exponential_(generator=generator)
                for generator in self.generators
            ]
        )
        # -log of exponential noise is Gumbel noise.
        return scores - noise.clamp_min(torch.finfo(torch.float32).tiny).log()


class ReasoningBudget(LogitsProcessor):
    """Forces the token that ends reasoning once a row has reasoned for `budget` tokens.

    `opened`: the prompt has opened the reasoning; otherwise reasoning begins with the token
    `start`.
    """

    def __init__(self, budget: int, start: int, end: int, opened: bool, rows: int) -> None:
        self.budget, self.start, self.end = budget, start, end
        self.remaining: list[int | None] = [budget if opened else None] * rows
        """Reasoning tokens that each row may still write; None outside reasoning."""
        self.is_first_step = True

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        # In the first step, the last token belongs to the prompt.
        if not self.is_first_step:
            for row, token in enumerate(input_ids[:, -1].tolist()):
                remaining = self.remaining[row]
                if token == self.end:
                    self.remaining[row] = None
                elif remaining is not None:
                    self.remaining[row] = remaining - 1
                elif token == self.start:
                    self.remaining[row] = self.budget
        self.is_first_step = False
        exhausted = [row for row, remaining in enumerate(self.remaining) if remaining is not None and remaining <= 0]
        if exhausted:
            scores = scores.clone()
            scores[exhausted] = -torch.inf
            scores[exhausted, self.end] = 0.0
        return scores
