"""Whether two ways of running a network give the same logits."""

from __future__ import annotations

import math

import torch

AGREEMENT = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Largest root mean square difference of a row's logits, relative to their spread, at which two ways of running count as equal; other
dtypes: 0.05."""

RULED_OUT = -1e6


def difference(first: torch.Tensor, second: torch.Tensor) -> float:
    """Largest root mean square difference of a row of logits [..., vocabulary], relative to the spread of `second`; tokens that a
    model rules out (logits at the lowest number) must be the same and do not count. Infinite where a logit is not a number."""
    allowed = second > RULED_OUT
    if torch.isnan(first).any() or torch.isnan(second).any() or not torch.equal(allowed, first > RULED_OUT):
        return math.inf
    apart = torch.where(allowed, first - second, 0.0).pow(2).sum(-1) / allowed.sum(-1)
    return float(apart.max().sqrt() / second[allowed].std().clamp_min(1e-6))
