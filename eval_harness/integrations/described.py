"""What a harness's file says about itself, and of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dataset_builders.schema import LETTERS

FAILED = ("Failed to obtain answer via API", "[LMMS_EVAL_REQUEST_FAILED")
"""What is stored in place of an answer that never came."""


@dataclass(frozen=True)
class Described:
    """`harness`: its name and version, where the file says it. `benchmark`, `model`, `data`, `split`: None where it does not say."""

    harness: str
    benchmark: str | None = None
    model: str | None = None
    data: str | None = None
    split: str | None = None


def letters_of(answer: Sequence[int]) -> str:
    """The key of a question as harnesses write it: "B", "BC"."""
    return "".join(LETTERS[int(index)] for index in answer)


def record_of(said: Any, sample: int = 0) -> dict[str, Any]:
    """The journal record of an answer as a file has it; of lists in one another, their first text."""
    while isinstance(said, list) and said:
        said = said[0]
    failed = not isinstance(said, str) or said.startswith(FAILED)
    status = "failed" if failed else "answered"
    return {"response": None if failed else said, "status": status, "sample": sample, "seconds": None}
