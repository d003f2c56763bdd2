"""What `medprobe verify` says of a pull request or a stored result, and the room that examining one is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dataset_builders.errors import BadInput
from eval_harness.records.limits import MOST_UNPACKED
from eval_harness.submissions.submission import Bundle, Submission
from eval_harness.submissions.untrusted.envelope import LEAST_ROW, MOST_COUNTED, UNPACKS, envelope
from eval_harness.submissions.untrusted.files import parquet_rows, printable
from eval_harness.submissions.untrusted.sandbox import call

SHOWN = 30
"""Problems or flags that are spelled out; the rest are counted."""
Word = Literal["added", "verified", "refused", "for a human", "closed already", "later", "next run", "failed"]


@dataclass(frozen=True)
class Outcome:
    """What became of a pull request, or of a result of a folder store."""

    what: str
    word: Word
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = "".join(f"\n  {line}" for line in shown([*self.reasons, *self.notes]))
        return f"{self.what}: {self.word}{told}"


def shown(lines: Sequence[str], longest: int = 600) -> list[str]:
    """Lines that may hold what strangers wrote, as they are told and kept: safe to print, and not more of them than anybody reads."""
    told = [printable(line, longest) for line in lines[:SHOWN]]
    return told if len(lines) <= SHOWN else [*told, f"and {len(lines) - SHOWN:,} more"]


def sandboxed(function: Callable[..., Submission], bundle: Bundle, *arguments: Any, **named: Any) -> Submission:
    """What `examine` says of a bundle, in a process of its own and within the envelope of its size."""
    return call(envelope(len(bundle.result) + weight_of(bundle.answers)), function, bundle, *arguments, **named)


def weight_of(answers: bytes) -> int:
    """Bytes that an answers.parquet is reckoned to unpack to: a multiple of its own, or as many as it was seen to unpack to, up to a bound,
    since answers that repeat themselves compress without limit."""
    reckoned = UNPACKS * len(answers)
    try:
        return max(reckoned, call(envelope(reckoned), unpacked_size, answers))
    except BadInput:  # examining it says why
        return reckoned


def unpacked_size(answers: bytes) -> int:
    """Characters of the rows of an answers.parquet, counted up to `MOST_COUNTED`. Only to be called in the sandbox."""
    total = 0
    for row in parquet_rows(answers, most_bytes=MOST_UNPACKED):
        total += LEAST_ROW + sum(len(value) for value in row.values() if isinstance(value, str))
        if total > MOST_COUNTED:
            return MOST_COUNTED
    return total
