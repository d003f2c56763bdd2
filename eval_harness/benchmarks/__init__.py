"""How each benchmark is asked and scored, one package each, found by the names in `dataset_builders.benchmarks`."""

from __future__ import annotations

import importlib
from types import ModuleType

from dataset_builders.benchmarks import BENCHMARKS
from eval_harness.benchmarks.spec import EvalSpec

NEEDED = {"scores": "units", "official": "read"}
"""Modules that a benchmark's package must have -> the function they must define."""


def spec(name: str) -> EvalSpec:
    """What the package of a benchmark says. Raises TypeError where it lacks a SPEC, KeyError for an unknown name."""
    if name not in BENCHMARKS:
        raise KeyError(f"{name!r} is no benchmark; there are {', '.join(BENCHMARKS)}")
    package = importlib.import_module(_package(name))
    found = getattr(package, "SPEC", None)
    if not isinstance(found, EvalSpec):
        raise TypeError(f"{package.__name__}: must define SPEC, an EvalSpec")
    return found


def part(name: str, module: str) -> ModuleType:
    """A module of a benchmark's package (`scores`, `official`). Raises TypeError where it is absent or lacks its function."""
    where = f"{_package(name)}.{module}"
    try:
        found = importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name != where:
            raise
        raise TypeError(f"{where}: is missing; it must define {NEEDED[module]}()") from None
    if not callable(getattr(found, NEEDED[module], None)):
        raise TypeError(f"{where}: must define {NEEDED[module]}()")
    return found


def _package(name: str) -> str:
    return f"{__name__}.{name.replace('-', '_')}"
