"""What a harness's file says about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataset_builders.schema import LETTERS


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
