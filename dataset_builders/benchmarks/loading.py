"""Load the package of a benchmark in a layer by the benchmark's name: `LAYER.benchmarks.NAME` with its `SPEC` and its modules."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TypeVar

Spec = TypeVar("Spec")


def load_spec(layer: str, name: str, kind: type[Spec]) -> Spec:
    """The `SPEC` of a benchmark in a layer. Raises ModuleNotFoundError where the layer has nothing of it, TypeError for another SPEC."""
    module = importlib.import_module(module_name(layer, name))
    found = getattr(module, "SPEC", None)
    if not isinstance(found, kind):
        raise TypeError(f"{module.__name__}: must define SPEC, a {kind.__name__}")
    return found


def load_part(layer: str, name: str, part: str, function: str) -> ModuleType:
    """A module of a benchmark's package. Raises TypeError where it is absent or does not define `function`."""
    where = f"{module_name(layer, name)}.{part}"
    try:
        found = importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name != where:
            raise
        raise TypeError(f"{where}: is missing; it must define {function}()") from None
    if not callable(getattr(found, function, None)):
        raise TypeError(f"{where}: must define {function}()")
    return found


def module_name(layer: str, name: str) -> str:
    """The module or package of a benchmark in a layer (`eval_harness.benchmarks`)."""
    return f"{layer}.{name.replace('-', '_')}"
