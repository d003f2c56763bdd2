"""Logits processors for `generate` of transformers: seeded sampling, forced tokens, an end to reasoning, and a count of the steps.

See also: running the model (`network.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import LogitsProcessor


class Steps(LogitsProcessor):
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


class EndOfReasoning(LogitsProcessor):
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
