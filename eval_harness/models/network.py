"""One network of transformers, run three ways: continue a prompt, give the logits of the next token, give the likelihood of candidates.

Shared prefixes are run once and their key/value cache is continued by every question on that image. Positions and masks are the ones
`generate` itself would use, so all three ways agree. Not here: making the inputs (`model_inputs.py`), batch sizes (`batching.py`).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LogitsProcessor
from transformers.cache_utils import DynamicCache
from transformers.generation.utils import GenerationMixin

from eval_harness.models.model_inputs import Prepared, left_padded

AGREEMENT = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Largest difference of next-token logits, relative to their spread, at which a shared prefix counts as equal; other dtypes: 0.05."""


@dataclass(slots=True)
class Context:
    """A batch after its prompts: logits of the next token [n, vocabulary] (float32), cache, mask and positions of what was read.

    `ids` [n, width] are the left-padded prompt tokens. `cache` is None for networks that hide theirs (BLIP-2).
    """

    logits: torch.Tensor | None
    cache: Any
    ids: torch.Tensor
    mask: torch.Tensor
    positions: torch.Tensor | None


class Network:
    """A loaded model with what the harness needs to know of it."""

    def __init__(self, model: Any, pad: int) -> None:
        self.model = model
        self.pad = pad
        self.device = model.device
        self.encoder_decoder = bool(model.config.is_encoder_decoder)
        self.own_generate = type(model).generate is not GenerationMixin.generate
        """The class has its own `generate` (BLIP-2, InstructBLIP): it builds embeddings by itself and hides its cache."""
        parameters = inspect.signature(model.forward).parameters
        self._keeps_logits = "logits_to_keep" in parameters
        self._takes_positions = "position_ids" in parameters
        self.may_share = (
            not (self.own_generate or self.encoder_decoder) and self._takes_positions and _plain_causal(model)
        )

    def context(self, prepared: Prepared) -> Context:
        """Read the prompts; logits of the token that comes next."""
        if prepared.rows is not None:
            context = self._after_prefix(prepared, with_last=True)
            assert context.logits is not None
            return context
        inputs = self.to_device(prepared.inputs)
        if self.own_generate or self.encoder_decoder:
            output = self.model.generate(
                **inputs,
                max_new_tokens=1,
                do_sample=False,
                num_beams=1,
                output_logits=True,
                return_dict_in_generate=True,
            )
            return Context(output.logits[0].float(), None, inputs["input_ids"], inputs["attention_mask"], None)
        return self._read(inputs)

    def _read(self, inputs: dict[str, Any]) -> Context:
        """The first forward pass of `generate`, with its positions and masks."""
        rest = dict(inputs)
        ids, mask = rest.pop("input_ids"), rest["attention_mask"]
        positions = self._positions(ids, rest)
        if positions is not None:
            rest["position_ids"] = positions
        rest["past_key_values"] = DynamicCache(config=self.model.config.get_text_config(decoder=True))
        rest["use_cache"] = True
        if self._keeps_logits:
            rest["logits_to_keep"] = 1
        model_inputs = self.model.prepare_inputs_for_generation(ids, is_first_iteration=True, **rest)
        output = self.model(**model_inputs, return_dict=True)
        return Context(output.logits[:, -1].float(), output.past_key_values, ids, mask, positions)

    def _positions(self, ids: torch.Tensor, rest: dict[str, Any]) -> torch.Tensor | None:
        if not self._takes_positions:
            return None
        positions: torch.Tensor = self.model._prepare_position_ids_for_generation(ids, rest)
        return positions

    def _after_prefix(self, prepared: Prepared, with_last: bool) -> Context:
        """Read each image once, then hand every question its prefix's cache. `with_last`: read the questions' own tokens too."""
        assert prepared.rows is not None
        assert prepared.suffixes is not None
        prefix = self._read(self.to_device(prepared.inputs))
        rows = torch.tensor(prepared.rows, device=prefix.ids.device)
        prefix.cache.batch_select_indices(rows)
        ids, mask = (t.to(rows.device) for t in left_padded(prepared.suffixes, self.pad))
        full_ids = torch.cat([prefix.ids[rows], ids], 1)
        full_mask = torch.cat([prefix.mask[rows], mask], 1)
        positions = full_mask.cumsum(-1).sub(1).masked_fill(full_mask == 0, 0)
        if not with_last:
            return Context(None, prefix.cache, full_ids, full_mask, positions)
        logits = self._continue(ids, prefix.cache, full_mask, positions[:, -ids.shape[1] :], last_only=True)
        return Context(logits[:, -1], prefix.cache, full_ids, full_mask, positions)

    def _continue(
        self, ids: torch.Tensor, cache: Any, mask: torch.Tensor, positions: torch.Tensor | None, last_only: bool = False
    ) -> torch.Tensor:
        """Logits [n, tokens, vocabulary] (float32) of more tokens after a cache, which grows by them."""
        extra: dict[str, Any] = {"position_ids": positions} if positions is not None else {}
        if last_only and self._keeps_logits:
            extra["logits_to_keep"] = 1
        output = self.model(
            input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, return_dict=True, **extra
        )
        logits: torch.Tensor = output.logits.float()
        return logits

    def generate(self, prepared: Prepared, max_tokens: int, temperature: float, seeds: Sequence[int]) -> torch.Tensor:
        """New token ids [n, up to max_tokens], greedy; with a temperature, sampled with one generator per row (`seeds`)."""
        options: dict[str, Any] = {
            "max_new_tokens": max_tokens,
            "do_sample": False,
            "num_beams": 1,
            "temperature": None,
            "top_p": None,
            "top_k": None,
            "repetition_penalty": 1.0,
            "pad_token_id": self.pad,
        }
        if temperature > 0:
            options["logits_processor"] = [SeededSampling(temperature, seeds, self.device)]
        if prepared.rows is not None:
            context = self._after_prefix(prepared, with_last=False)
            inputs = {
                "input_ids": context.ids,
                "attention_mask": context.mask,
                "past_key_values": context.cache,
            }
        else:
            inputs = self.to_device(prepared.inputs)
        output: torch.Tensor = self.model.generate(**inputs, **options)
        prompt = inputs["input_ids"]
        width = prompt.shape[1]
        with_prompt = not self.encoder_decoder and output.shape[1] > width and bool((output[:, :width] == prompt).all())
        return output[:, width:] if with_prompt or prepared.rows is not None else output

    def next_tokens(self, prepared: Prepared, temperature: float, seeds: Sequence[int]) -> torch.Tensor:
        """One new token id per row [n, 1], without `generate`."""
        logits = self.context(prepared).logits
        assert logits is not None
        if temperature > 0:
            logits = SeededSampling(temperature, seeds, self.device)(prepared.inputs["input_ids"], logits)
        return logits.argmax(-1, keepdim=True)

    def candidate_scores(
        self, prepared: Prepared, candidates: Sequence[Sequence[Sequence[int]]], official: bool = False
    ) -> list[list[float]]:
        """For each row and candidate (token ids, never empty): mean log-probability of its tokens after the prompt.

        The prompt is read once; each candidate continues a copy of its cache. `official`: see `_mean`.
        """
        if self.own_generate or self.encoder_decoder:
            return self._scores_without_cache(prepared, candidates, official)
        context = self.context(prepared)
        assert context.logits is not None
        first = context.logits.log_softmax(-1)
        found: list[list[float]] = [[] for _ in candidates]
        for position in range(max(map(len, candidates))):
            ids, mask = self._column(candidates, position, first.device)
            later = torch.empty(0)
            if ids.shape[1] > 1:  # the last token predicts nothing that is asked
                more = ids[:, :-1]
                positions = None
                if context.positions is not None:
                    steps = torch.arange(1, more.shape[1] + 1, device=ids.device)
                    positions = context.positions[..., -1:] + steps
                full_mask = torch.cat([context.mask, mask[:, :-1]], 1)
                later = self._continue(more, copy.deepcopy(context.cache), full_mask, positions).log_softmax(-1)
            for row, texts in enumerate(candidates):
                if position < len(texts):
                    found[row].append(
                        _mean(first[row], later[row] if later.numel() else None, texts[position], official)
                    )
        return found

    def _column(self, candidates: Sequence[Sequence[Sequence[int]]], position: int, device: Any) -> tuple[Any, Any]:
        """(ids, mask) of every row's candidate at `position`, padded on the right; one pad where a row has fewer."""
        texts = [row[position] if position < len(row) else [self.pad] for row in candidates]
        width = max(map(len, texts))
        ids = torch.tensor([[*text, *[self.pad] * (width - len(text))] for text in texts], device=device)
        mask = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text in texts], device=device)
        return ids, mask

    def _scores_without_cache(
        self, prepared: Prepared, candidates: Sequence[Sequence[Sequence[int]]], official: bool
    ) -> list[list[float]]:
        """The same by reading prompt and candidate together, for networks that hide their cache."""
        inputs = self.to_device(prepared.inputs)
        found: list[list[float]] = [[] for _ in candidates]
        for position in range(max(map(len, candidates))):
            ids, mask = self._column(candidates, position, self.device)
            joined = inputs | {
                "input_ids": torch.cat([inputs["input_ids"], ids], 1),
                "attention_mask": torch.cat([inputs["attention_mask"], mask], 1),
            }
            start = inputs["input_ids"].shape[1] - 1
            logits = self.model(**joined, return_dict=True).logits[:, start:].float().log_softmax(-1)
            for row, texts in enumerate(candidates):
                if position < len(texts):
                    found[row].append(_mean(logits[row, 0], logits[row, 1:], texts[position], official))
        return found

    def agrees(self, shared: Prepared, whole: Prepared) -> bool:
        """Whether reading shared prefixes gives the logits that reading whole prompts gives, for the same requests."""
        first, second = self.context(shared), self.context(whole)
        assert first.logits is not None
        assert second.logits is not None
        same_tokens = all(
            a[m.bool()].tolist() == b[n.bool()].tolist()
            for a, m, b, n in zip(first.ids, first.mask, second.ids, second.mask, strict=True)
        )
        spread = float(second.logits.std())
        allowed = AGREEMENT.get(self.model.dtype, 0.05) * max(spread, 1e-6)
        return same_tokens and float((first.logits - second.logits).abs().max()) <= allowed

    def to_device(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The tensors on the model's device, pixels in its dtype."""
        return {
            name: value.to(self.device, self.model.dtype if value.is_floating_point() else None)
            for name, value in inputs.items()
            if isinstance(value, torch.Tensor)
        }


class SeededSampling(LogitsProcessor):
    """Sampling at a temperature that does not depend on the batch: Gumbel noise from one generator per row makes greedy choice a draw
    from softmax(logits / temperature). The same question and sample number draw the same tokens in any batch, also after a resume."""

    def __init__(self, temperature: float, seeds: Sequence[int], device: Any) -> None:
        self.temperature = temperature
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
        noise = torch.stack(
            [
                torch.empty(scores.shape[-1], device=scores.device).exponential_(generator=generator)
                for generator in self.generators
            ]
        )
        return scores.float() / self.temperature - noise.clamp_min(torch.finfo(torch.float32).tiny).log()


def _plain_causal(model: Any) -> bool:
    """Whether every layer attends to all earlier tokens and nothing else, at positions that count tokens.

    Sliding windows, linear attention, states, several position axes, or bidirectional image blocks: no.
    """
    text = model.config.get_text_config(decoder=True)
    kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
    has_window = bool(getattr(text, "sliding_window", None)) and getattr(text, "use_sliding_window", True)
    rope = getattr(text, "rope_parameters", None) or {}
    several_axes = any("mrope" in str(key) for key in rope) if isinstance(rope, dict) else False
    own_positions = hasattr(getattr(model, "model", model), "get_rope_index")
    bidirectional = bool(getattr(text, "use_bidirectional_attention", None))
    return kinds == {"full_attention"} and not (has_window or several_axes or own_positions or bidirectional)


def _mean(first: torch.Tensor, later: torch.Tensor | None, tokens: Sequence[int], official: bool) -> float:
    """Mean log-probability of `tokens`: `first` [vocabulary] predicts token 0, `later` [tokens - 1, vocabulary] the others.

    `official`: the MediConfusion authors' code gathers with an index of one row, so every token's probability is taken from the
    distribution of the first position. Published prefix scores carry that; this reproduces it.
    """
    if official or later is None or len(tokens) == 1:
        return float(first[list(tokens)].mean())
    steps = torch.arange(len(tokens) - 1, device=later.device)
    rest = later[steps, torch.tensor(tokens[1:], device=later.device)]
    return float((first[tokens[0]] + rest.sum()) / len(tokens))
