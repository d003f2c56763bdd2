"""The vocabulary of the data: benchmarks, Question, Case, the columns of a dataset repository, the fingerprint.

Not here: reading sources (one builder module per benchmark), writing files (`repository.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FORMATS: tuple[str, ...] = ("mediconfusion", "probmed", "gmai-mmbench", "halt-medvqa")
"""The four official formats; a benchmark of one's own has its own name and one of these formats."""

QUESTION_TYPES: tuple[str, ...] = ("single", "multiple", "yes_no")
ASPECTS: tuple[str, ...] = ("modality", "organ", "abnormality", "condition", "position")
SCENARIOS: tuple[str, ...] = ("fake", "none", "swap")
LETTERS: str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Option letters by position. No benchmark has more than 26 options; a builder refuses one that has."""

FACETS: dict[str, tuple[str, ...]] = {
    "mediconfusion": ("category",),
    "probmed": ("image_type", "organ", "modality"),
    "gmai-mmbench": ("task", "department", "granularity", "modality"),
    "halt-medvqa": ("scenario", "source_dataset"),
}
"""Facets that a format's source really gives, in the order the board shows them. A facet not listed is "unlabelled".
`category` is read from the list column `categories` (a question counts once in each of its categories)."""

DEFAULT_SPLIT: dict[str, str] = {
    "mediconfusion": "test",
    "probmed": "test",
    "gmai-mmbench": "validation",
    "halt-medvqa": "test",
}


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt to the model. `answer` holds option positions (0-based); it is empty where the source hides it."""

    question_id: str
    case_id: str
    image_id: str
    question: str
    options: tuple[str, ...]
    answer: tuple[int, ...]
    question_type: str = "single"
    task: str | None = None
    modality: str | None = None
    department: str | None = None
    granularity: str | None = None
    keyword: str | None = None
    categories: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The benchmark's own columns, as named in DESIGN section 4 (`aspect`, `scenario`, `sim_med` ...)."""


@dataclass(frozen=True, slots=True)
class CaseImage:
    """An image of a case. `data` is the encoded file as the source gives it, None only in a text-only build."""

    image_id: str
    data: bytes | None
    license: str = "unknown"
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """The questions scored together, with each of their images once."""

    case_id: str
    images: tuple[CaseImage, ...]
    questions: tuple[Question, ...]


def fingerprint(questions: Iterable[tuple[str, str, Sequence[str], str, Sequence[int]]]) -> str:
    """sha256 (hex) over the sorted canonical (question_id, question, options, question_type, answer) tuples.

    The same with and without images, in any row order; any change of a text, an option or a key changes it.

    >>> fingerprint([("1", "Which side?", ["left", "right"], "single", [0])])[:12]
    '6d8c6ac7d46b'
    """
    lines = sorted(
        json.dumps([str(i), q, list(o), t, [int(a) for a in key]], ensure_ascii=False, separators=(",", ":"))
        for i, q, o, t, key in questions
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
