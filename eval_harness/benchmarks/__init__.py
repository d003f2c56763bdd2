"""Prompts and scores of each benchmark, one package each, found by the names in `dataset_builders.benchmarks`."""

from __future__ import annotations

from types import ModuleType

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.benchmarks.spec import load_part, load_spec
from eval_harness.benchmarks.spec import EvalSpec


def spec(name: str) -> EvalSpec:
    """What the package of a benchmark says. Raises TypeError where it lacks a SPEC, KeyError for an unknown name."""
    if name not in BENCHMARKS:
        raise KeyError(f"{name!r} is not a benchmark; there are {', '.join(BENCHMARKS)}")
    return load_spec(__name__, name, EvalSpec)


def part(name: str, module: str) -> ModuleType:
    """A module of a benchmark's package: `scores` (with `units`), `official` (with `read`)."""
    return load_part(__name__, name, module)
