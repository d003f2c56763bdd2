"""What `medprobe verify` says of a pull request or a stored result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eval_harness.submissions.submission import Bundle, Submission
from eval_harness.submissions.untrusted.envelope import envelope
from eval_harness.submissions.untrusted.files import printable
from eval_harness.submissions.untrusted.sandbox import call
from eval_harness.submissions.untrusted.stored_answers import weight_of

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
