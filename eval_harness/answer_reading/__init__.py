"""How a response is read, one module per question asked of it; `eval_harness/answers.py` puts them together and is what others call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: positions of the options chosen (ascending), the status, and the rule that decided."""

    choice: tuple[int, ...]
    status: str
    rule: str


def official(choice: tuple[int, ...], rule: str) -> Reading:
    """The reading of a paper's own reader: answered where it found an option, else irrelevant."""
    return Reading(choice, "answered" if choice else "irrelevant", rule)
