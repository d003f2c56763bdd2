"""Limit the size of a submission and the resources for reading it.

The limits depend on the numbers of questions and samples alone. They are therefore known before a
run begins (`eval` reports them) and before anything is decompressed (a store enforces them).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dataset_builders.errors import BadInput

MAX_SAMPLES = 10_000
"""Maximum number of samples (or option orders) per question."""
MAX_ANSWERS = 400_000
"""Maximum number of answers of a run; this many can be read within LARGE_MEMORY_BYTES.

It allows 7 samples of ProbMed's 57,132 questions, or 1,136 of MediConfusion's 352.
"""
BYTES_PER_ANSWER = 16 << 10
"""Maximum average size of an answer, about 4,000 tokens of answer and reasoning.

A single answer may be longer.
"""
MIN_FILE_BYTES = 64 << 20
"""Size allowed for an answers file in addition to BYTES_PER_ANSWER for each answer."""
MAX_FILE_BYTES = 256 << 20
"""Maximum size of a submitted file.

The largest realistic one, ProbMed's 57,132 answers with a page of reasoning each, has about 120 MB.
"""
MAX_UNPACKED_BYTES = 1 << 30
"""Maximum uncompressed size of an answers file, however many answers it has."""
MAX_RUN_JSON_BYTES = 1 << 20
"""Maximum size of a run.json; ours have a few thousand bytes."""
MAX_FIELD_BYTES = 64 << 10
"""Maximum total size of the fields of a run.json."""
MAX_NUMBER = 1 << 64
"""Largest number in free fields: seeds have up to 64 bits, and many JSON parsers accept no more."""
MEMORY_BYTES, LARGE_MEMORY_BYTES = 384 << 20, 1536 << 20
"""Memory for reading a normal and a large submission, in addition to that of the libraries.

Only one large submission is read at a time, so that three concurrent readers fit in 2.5 GB.
"""
LARGE_ROWS, LARGE_FILE_BYTES = 10_000, 16 << 20
"""A submission with more answers, or more bytes in its files, is large."""


@dataclass(frozen=True)
class Limits:
    """Limits for reading the answers to a number of questions.

    They are several times what honest runs take: 1.5 s for GMAI-MMBench's 4,550 questions, 17 s for
    ProbMed's 57,132.

    Attributes:
        rows: Number of answers.
        file: Bytes of the answers file.
        unpacked: Bytes of its uncompressed content.
        cpu_seconds: Seconds of CPU time.
        memory: Bytes of memory, in addition to that of the libraries.
    """

    rows: int
    file: int
    unpacked: int
    cpu_seconds: int
    memory: int = MEMORY_BYTES

    @property
    def wall_seconds(self) -> int:
        """Seconds of wall-clock time."""
        # Waiting for the disk and for other processes takes time, but no CPU time.
        return 120 + 4 * self.cpu_seconds

    def __str__(self) -> str:
        return f"{self.memory >> 20:,} MB of memory and {self.cpu_seconds:,} s of computing"


def limits_for(questions: int, samples: int = 1, size: int = 0) -> Limits:
    """Return the limits for a submission.

    Args:
        questions: number of questions.
        samples: answers per question.
        size: total bytes of the files.

    Raises:
        BadInput: more samples or answers than a store accepts.
    """
    if not 1 <= samples <= MAX_SAMPLES:
        raise BadInput(f"--samples {samples:,}: must be between 1 and {MAX_SAMPLES:,}.")
    rows = questions * samples
    if rows > MAX_ANSWERS:
        raise BadInput(
            f"{questions:,} questions with {samples:,} samples each are {rows:,} answers: a store "
            f"accepts at most {MAX_ANSWERS:,}. "
            f"Use at most {max(1, MAX_ANSWERS // questions):,} samples, or fewer questions."
        )
    unpacked = min(MAX_UNPACKED_BYTES, MIN_FILE_BYTES + rows * BYTES_PER_ANSWER)
    # Generous (see `Limits`); the terms are for start-up, questions, answers and bytes.
    seconds = 20 + questions // 1_500 + rows // 1_000 + unpacked // (8 << 20)
    return Limits(rows, min(MAX_FILE_BYTES, unpacked), unpacked, seconds, _memory_for(rows, size))


def run_json_limits(size: int = 0) -> Limits:
    """Return the limits for reading run.json and its dataset, without the answers.

    Args:
        size: total bytes of the files, all of which the process holds in memory.
    """
    return Limits(
        rows=0, file=MAX_RUN_JSON_BYTES, unpacked=MAX_RUN_JSON_BYTES, cpu_seconds=30, memory=_memory_for(0, size)
    )


def _memory_for(rows: int, size: int) -> int:
    return LARGE_MEMORY_BYTES if rows > LARGE_ROWS or size > LARGE_FILE_BYTES else MEMORY_BYTES


def size_problems(run: Mapping[str, Any], max_bytes: int = MAX_FIELD_BYTES) -> Iterator[str]:
    """Yield the reasons why a store refuses a run.json of this size.

    Args:
        run: the parsed JSON.
        max_bytes: limit on all fields together.
    """
    # Measured as JSON text, so that nested and long fields count alike.
    sizes = {name: len(json.dumps(value)) for name, value in run.items()}
    if sum(sizes.values()) > max_bytes:
        largest = max(sizes, key=lambda name: sizes[name])
        yield (
            f"{sum(sizes.values()):,} characters apart from the answers, mostly in {largest}: a "
            f"store accepts at most {max_bytes:,} (our "
            "runs have a few thousand). Remove what readers do not need"
        )
    if any(abs(leaf) > MAX_NUMBER for _, leaf in json_leaves(run) if isinstance(leaf, (int, float))):
        yield "a number beyond 2^64 in run.json"


def json_leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (path, value) for every scalar and every key in parsed JSON.

    A key is yielded as a value, with the path of the object that contains it.
    """
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield path, name
            yield from json_leaves(inner, (*path, str(name)))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from json_leaves(inner, path)
    else:
        yield path, value
