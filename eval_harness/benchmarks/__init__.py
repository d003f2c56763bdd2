"""Prompts and scores of the benchmarks: one module for each of `dataset_builders.benchmarks`."""

from __future__ import annotations

from dataset_builders.benchmarks import FORMATS
from dataset_builders.benchmarks.spec import load_spec
from eval_harness.benchmarks.spec import EvalSpec


def eval_spec(name: str) -> EvalSpec:
    """Load the spec of a benchmark from its module. Raises KeyError for an unknown name."""
    if name not in FORMATS:
        raise KeyError(f"{name!r} is not a benchmark; there are {', '.join(FORMATS)}")
    return load_spec(__name__, name, EvalSpec)
