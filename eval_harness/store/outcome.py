"""What became of a pull request or of a stored result: a word, reasons, notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from eval_harness.store.untrusted import printable

SHOWN = 30
"""Problems or flags that are spelled out; the rest are counted."""
Word = Literal["added", "verified", "refused", "for a person", "closed already", "later", "next run", "failed"]


@dataclass(frozen=True)
class VerifyResult:
    """What became of a pull request, or of a result of a folder store."""

    what: str
    word: Word
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = "".join(f"\n  {line}" for line in shown([*self.reasons, *self.notes]))
        return f"{self.what}: {self.word}{lines}"


def shown(lines: Sequence[str], longest: int = 600) -> list[str]:
    """Lines that may hold what strangers wrote, as they are printed and kept: safe to print, and no more of them than are read."""
    safe = [printable(line, longest) for line in lines[:SHOWN]]
    return safe if len(lines) <= SHOWN else [*safe, f"and {len(lines) - SHOWN:,} more"]
