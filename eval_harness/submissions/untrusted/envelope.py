"""What may be spent on reading a submission. It grows with what is honestly asked for.

See also: how large a submission may be (`eval_harness/records/limits.py`), holding a process to these limits (`sandbox.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from eval_harness.records.limits import LARGEST_SPLIT, MOST_ANSWERS

UNPACKS = 8
"""What a byte of Parquet is reckoned to unpack to."""
MOST_COUNTED = 512 << 20
"""Bytes that answers which compress better than that are allowed for."""
LEAST_ROW = 16
"""Bytes of an answer in any file."""


@dataclass(frozen=True)
class Envelope:
    """What reading a submission may take: `memory` in bytes beyond what the process starts with, seconds of computing and of waiting."""

    memory: int
    cpu_seconds: int
    wall_seconds: int

    def __str__(self) -> str:
        return f"{self.memory >> 20:,} MB of memory and {self.cpu_seconds:,} s of computing"


def envelope(size: int, questions: int = LARGEST_SPLIT) -> Envelope:
    """What may be spent on files of so many bytes (see `weight`) that answer some of so many questions. Some five times what honest ones
    take here: 1.5 s for GMAI-MMBench's 4,550 questions, 17 s for ProbMed's 57,132."""
    answers = min(MOST_ANSWERS, size // LEAST_ROW)
    cpu_seconds = 10 + questions // 3_000 + answers // 2_000 + size // (1 << 20)
    return Envelope(
        (1 << 30) + questions * (8 << 10) + 8 * size + answers * (2 << 10), cpu_seconds, 120 + 4 * cpu_seconds
    )


def weight(files: Iterable[Path]) -> int:
    """Bytes of these files, those of Parquet as they are reckoned to unpack to; what is no file weighs nothing."""
    total = 0
    for file in files:
        try:
            if not file.is_file():  # a pipe would never open
                continue
            with file.open("rb") as opened:
                total += file.stat().st_size * (UNPACKS if opened.read(4) == b"PAR1" else 1)
        except OSError:
            continue
    return total
