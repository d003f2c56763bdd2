"""Limits on the size of a submission: what a store takes, and what `eval` says before the first question is asked.

They are functions of only the questions and samples. See also: reading a file within them (`submissions/untrusted/`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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
