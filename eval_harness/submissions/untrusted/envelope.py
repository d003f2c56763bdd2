"""How large a submission may be, and what may be spent on reading it. It grows with what is honestly asked for.

The sizes are functions of only the questions and samples, so that `eval` can tell before a run what the gate will say after it.
See also: holding a process to them (`sandbox.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput

MOST_SAMPLES = 10_000
"""Samples (or option orders) of a question."""
MOST_ANSWERS = 1_000_000
"""Answers of a run: ProbMed's 57,132 questions with 17 samples, MediConfusion's 352 with 2,840."""
BYTES_PER_TOKEN = 4
"""What a token of English text takes."""
BYTES_PER_ANSWER = 16 << 10
"""Of a file of answers, on average over its answers: about 4,000 tokens of answer and reasoning. Any one answer may be longer."""
MAX_FILE = 256 << 20
"""Bytes of a file as it is handed in. The largest honest one, ProbMed's 57,132 answers with a page of reasoning each, is about 120 MB."""
FLOOR = 64 << 20
"""Bytes that a file of any number of answers may have."""
LARGEST_SPLIT = 60_000
"""Questions, where nobody knows yet how many there are."""
MOST_UNPACKED = 2 << 30
"""Bytes of a file of answers when unpacked, however many answers are due."""
FREE_BYTES = 64 << 10
"""Bytes of a result.json beside its numbers (environment, command, deviations ...); those of our runs have some thousand."""
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


def most_bytes(questions: int, samples: int = 1) -> int:
    """Bytes that a file with the answers of such a run may have, also when it is unpacked."""
    return min(MOST_UNPACKED, FLOOR + questions * samples * BYTES_PER_ANSWER)


def check_size(questions: int, samples: int) -> None:
    """Raise BadInput for more samples, or more answers in all, than a store takes."""
    if not 1 <= samples <= MOST_SAMPLES:
        raise BadInput(f"{samples:,} samples of each question: a store takes from 1 to {MOST_SAMPLES:,}.")
    if questions * samples > MOST_ANSWERS:
        raise BadInput(
            f"{questions:,} questions with {samples:,} samples each are {questions * samples:,} answers: a store takes at most "
            f"{MOST_ANSWERS:,}. Ask fewer samples."
        )


def limits_of(questions: int, samples: int, max_tokens: int | None = None) -> str:
    """What a store will take of such a run, in a sentence that is told before the first question is asked."""
    answers = max(1, questions * samples)
    most = most_bytes(questions, samples)
    told = (
        f"a results store takes up to {most >> 20:,} MB of answers and reasoning from this run ({most // answers:,} bytes an answer, on "
        f"average), in files of at most {MAX_FILE >> 20} MB each, compressed"
    )
    possible = answers * BYTES_PER_TOKEN * (max_tokens or 0)
    if possible > most:
        told += f"; {max_tokens:,} tokens for each would be about {possible >> 20:,} MB: keep an eye on the size of answers.jsonl"
    return told


def wrong_free_fields(result: Mapping[str, Any], most: int = FREE_BYTES) -> Iterator[str]:
    """What no store takes of the fields that carry no scores (`result`: those of a result or run as JSON has them)."""
    sizes = {name: len(json.dumps(value)) for name, value in result.items()}
    if sum(sizes.values()) > most:
        largest = max(sizes, key=lambda name: sizes[name])
        yield (
            f"{sum(sizes.values()):,} characters beside its answers and scores, most of them in {largest}: a store takes at most "
            f"{most:,}, and our runs have a few thousand. Leave out what nobody needs to know of the run"
        )
    if any(abs(number) > LARGEST_NUMBER for number in _numbers(result)):
        yield "a number beyond 2^64 beside its answers and scores"


LARGEST_NUMBER = 1 << 64
"""Of numbers in free fields: seeds have up to 64 bits, and readers of JSON and tables take no larger ones."""


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, (int, float)):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _numbers(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _numbers(inner)


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
