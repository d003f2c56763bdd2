"""Shared by the readers of other harnesses' files: what is said of a file and of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dataset_builders.schema import LETTERS

FAILED = ("Failed to obtain answer via API", "[LMMS_EVAL_REQUEST_FAILED")
"""Placeholder that is stored for an answer that never came."""


class Described(NamedTuple):
    """Benchmark, model, dataset and split of a file of answers, as `store.submit.prepare` takes them; None where unknown."""

    benchmark: str | None = None
    model: str | None = None
    data: str | None = None
    split: str | None = None


def letters_of(answer: Sequence[int]) -> str:
    """The key of a question as harnesses write it: "B", "BC"."""
    return "".join(LETTERS[int(index)] for index in answer)


def record_of(text: Any) -> dict[str, Any]:
    """The journal record of an answer as a file has it; of lists in one another, their first text."""
    while isinstance(text, list) and text:
        text = text[0]
    failed = not isinstance(text, str) or text.startswith(FAILED)
    status = "failed" if failed else "answered"
    return {"response": None if failed else text, "status": status, "sample": 0, "seconds": None}
