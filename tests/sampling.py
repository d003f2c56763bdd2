"""Split generated cases: the first few run in `make test`, the others only in `make test-all`."""

from collections.abc import Iterable
from typing import Any

import pytest


def few(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Return the parameters of a test; those after the first `count` are marked `exhaustive`. A
    tuple contains the values of several arguments.
    """
    parameter_sets = [value if isinstance(value, tuple) else (value,) for value in values]
    return [
        pytest.param(*value, marks=[pytest.mark.exhaustive] if at >= count else [])
        for at, value in enumerate(parameter_sets)
    ]
