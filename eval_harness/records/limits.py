"""Limits on a submission's size and on the resources for reading it, by its number of questions and samples.

The sizes are known before a run is begun (`eval` reports them) and before anything of a file is unpacked (a store refuses by them).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dataset_builders.errors import BadInput

MAX_SAMPLES = 10_000
"""Maximum samples (or option orders) per question."""
MAX_ANSWERS = 400_000
"""Maximum answers of a run, as many as are read within LARGE_MEMORY: ProbMed's 57,132 questions with 7 samples, MediConfusion's 352 with
1,136."""
BYTES_PER_ANSWER = 16 << 10
"""Average bytes per answer in a file: about 4,000 tokens of answer and reasoning. Individual answers may be longer."""
MIN_FILE_BYTES = 64 << 20
"""Bytes allowed for a file regardless of the number of answers."""
MAX_FILE_BYTES = 256 << 20
"""Maximum bytes of a file as submitted. The largest realistic one, ProbMed's 57,132 answers with a page of reasoning, has about 120 MB."""
MAX_UNPACKED_BYTES = 1 << 30
"""Maximum bytes of an unpacked file of answers, regardless of their number."""
MAX_RUN_JSON_BYTES = 1 << 20
"""Maximum bytes of a run.json; ours have a few thousand."""
MAX_FIELD_BYTES = 64 << 10
"""Maximum total bytes of the fields of a run.json."""
MAX_NUMBER = 1 << 64
"""Maximum of numbers in free fields: seeds have up to 64 bits, and readers of JSON and tables accept no larger ones."""
MEMORY_BYTES, LARGE_MEMORY_BYTES = 384 << 20, 1536 << 20
"""Maximum memory in bytes for reading a submission, beyond the libraries; a large one is read alone, so that three fit in 2.5 GB."""
LARGE_ROWS, LARGE_FILE_BYTES = 10_000, 16 << 20
"""Answers, and bytes of the files, from which a submission is large."""


@dataclass(frozen=True)
class Limits:
    """Limits for the answers to a number of questions: rows, bytes of the file as submitted and unpacked, seconds of CPU and wall time.

    Some five times what honest runs take here: 1.5 s for GMAI-MMBench's 4,550 questions, 17 s for ProbMed's 57,132.
    """

    rows: int
    file: int
    unpacked: int
    cpu_seconds: int
    memory: int = MEMORY_BYTES

    @property
    def wall_seconds(self) -> int:
        return 120 + 4 * self.cpu_seconds

    def __str__(self) -> str:
        return f"{self.memory >> 20:,} MB of memory and {self.cpu_seconds:,} s of computing"


def limits_for(questions: int, samples: int = 1, size: int = 0) -> Limits:
    """The limits for a number of questions. `size`: bytes of the files. Raises BadInput for more samples, or more answers in total, than a
    store accepts."""
    if not 1 <= samples <= MAX_SAMPLES:
        raise BadInput(f"{samples:,} samples of each question: a store takes from 1 to {MAX_SAMPLES:,}.")
    rows = questions * samples
    if rows > MAX_ANSWERS:
        raise BadInput(
            f"{questions:,} questions with {samples:,} samples each are {rows:,} answers: a store takes at most {MAX_ANSWERS:,}. "
            f"Ask at most {max(1, MAX_ANSWERS // questions):,} samples, or fewer questions."
        )
    unpacked = min(MAX_UNPACKED_BYTES, MIN_FILE_BYTES + rows * BYTES_PER_ANSWER)
    seconds = 20 + questions // 1_500 + rows // 1_000 + unpacked // (8 << 20)
    return Limits(rows, min(MAX_FILE_BYTES, unpacked), unpacked, seconds, _memory_for(rows, size))


def run_json_limits(size: int = 0) -> Limits:
    """The limits for reading run.json and the dataset that it names, before the number of expected answers is known. `size`: bytes of the
    files, which the process holds meanwhile."""
    return Limits(
        rows=0, file=MAX_RUN_JSON_BYTES, unpacked=MAX_RUN_JSON_BYTES, cpu_seconds=30, memory=_memory_for(0, size)
    )


def _memory_for(rows: int, size: int) -> int:
    return LARGE_MEMORY_BYTES if rows > LARGE_ROWS or size > LARGE_FILE_BYTES else MEMORY_BYTES


def size_problems(run: Mapping[str, Any], most: int = MAX_FIELD_BYTES) -> Iterator[str]:
    """Why a store does not accept a run.json of this size (`run`: parsed JSON)."""
    sizes = {name: len(json.dumps(value)) for name, value in run.items()}
    if sum(sizes.values()) > most:
        largest = max(sizes, key=lambda name: sizes[name])
        yield (
            f"{sum(sizes.values()):,} characters beside its answers, most of them in {largest}: a store takes at most {most:,}, and our "
            "runs have a few thousand. Leave out what readers do not need to know of the run"
        )
    if any(abs(leaf) > MAX_NUMBER for _, leaf in json_leaves(run) if isinstance(leaf, (int, float))):
        yield "a number beyond 2^64 in run.json"


def json_leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, leaf) of everything in parsed JSON that contains nothing else; a key is a leaf as well."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield path, name
            yield from json_leaves(inner, (*path, str(name)))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from json_leaves(inner, path)
    else:
        yield path, value
