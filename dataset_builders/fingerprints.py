"""Compute fingerprints of sets of questions, which are equal if and only if everything that scoring
reads is equal.

A fingerprint is `v1-` and a SHA-256 in hexadecimal over id, case, image ids, text, options, type
and answer key of every question, plus the benchmarks' columns that metrics use. A missing column
counts as an empty one, so a column that one benchmark adds does not change the fingerprints of the
others.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import pandas as pd

from dataset_builders.benchmarks import FACETS_BY_BENCHMARK, FORMATS, RELEASED_FINGERPRINTS, free_facets, spec
from dataset_builders.schema import Case, Question

FINGERPRINT_PREFIX = "v1-"
REQUIRED_COLUMNS = ("question_id", "question", "options", "question_type", "answer")
"""Columns that every set of questions must have."""
SCORED_COLUMNS = tuple(
    dict.fromkeys(
        (
            *("case_id", "image_id", "group", "more_image_ids"),
            *("aspect", "adversarial", "pair_id", "image_type", "scenario", "task"),
            *(name for benchmark in FORMATS for name in spec(benchmark).scored),
        )
    )
)
"""Further columns that metrics use: cases are scored together, shared images and patients form
clusters, and the others weight or select questions.
"""
PROMPT_COLUMNS = (
    "question_id",
    "question",
    "options",
    "question_type",
    "image_id",
    "more_image_ids",
)
"""Columns that determine what a model is asked."""
FINGERPRINT_COLUMNS = (*REQUIRED_COLUMNS, *SCORED_COLUMNS)
FACET_COLUMNS = tuple(
    dict.fromkeys(
        (
            "categories",
            *(name for facets in FACETS_BY_BENCHMARK.values() for name in facets if name != "category"),
        )
    )
)
"""Columns by which scores are broken down; no overall metric depends on them."""


def fingerprint_questions(questions: pd.DataFrame) -> str:
    """Compute the fingerprint of a frame of questions, independent of row order and of image
    columns.

    Args:
        questions: a row per question, with at least `REQUIRED_COLUMNS`.

    Raises:
        KeyError: a column that every benchmark has is missing.
    """
    return FINGERPRINT_PREFIX + _digest(_canonical_rows(questions, FINGERPRINT_COLUMNS))


def digest_prompts(questions: pd.DataFrame) -> str:
    """Digest what a model is asked (texts, options, types, images); unaffected by corrections to
    the answer key.
    """
    return FINGERPRINT_PREFIX + _digest(_canonical_rows(questions, PROMPT_COLUMNS))


def digest_facets(questions: pd.DataFrame) -> str:
    """Digest the labels by which scores are broken down (`FACET_COLUMNS` and the set's own facets),
    question by question.
    """
    names = ("question_id", *FACET_COLUMNS, *free_facets(questions.columns))
    return FINGERPRINT_PREFIX + _digest(_canonical_rows(questions, names))


def fingerprint_cases(cases: Iterable[Case]) -> str:
    """Compute the fingerprint of the questions of some cases, equal to that of their
    stored frame.
    """
    return FINGERPRINT_PREFIX + _digest(
        _canonical(_question_record(case, question), FINGERPRINT_COLUMNS)
        for case in cases
        for question in case.questions
    )


def is_released_set(family: str, split: str, fingerprint: str | None) -> bool:
    """Check whether a set is the complete one that the authors released.

    Args:
        family: the benchmark.
        split: the split of the set.
        fingerprint: that of the set; None if unknown.

    Returns:
        True on a match; always False if the released fingerprint is not known.
    """
    return fingerprint is not None and fingerprint == RELEASED_FINGERPRINTS.get((family, split))


def _question_record(case: Case, question: Question) -> Mapping[str, Any]:
    # `group` is a property of the image but a column of the question, hence added here.
    group = next((image.group for image in case.images if image.image_id == question.image_id), None)
    values = {field.name: getattr(question, field.name) for field in fields(question)}
    return values | dict(question.extra) | {"group": group}


def _canonical_rows(questions: pd.DataFrame, names: Sequence[str]) -> Iterator[str]:
    # Missing optional columns are skipped, so they equal empty ones; a missing required one raises.
    present = [name for name in names if name in questions.columns or name in REQUIRED_COLUMNS]
    columns = (questions[name].tolist() for name in present)
    for values in zip(*columns, strict=True):
        yield _canonical(dict(zip(present, values, strict=True)), present)


def _canonical(record: Mapping[str, Any], names: Sequence[str]) -> str:
    """Serialise the non-empty values of these columns as JSON."""
    present = {name: value for name in names if (value := _json_value(record.get(name), name)) is not None}
    # The serialisation must be exact, because every byte enters the digest.
    return json.dumps(present, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _json_value(value: Any, name: str) -> Any:
    """Convert a value to JSON types; None, NaN and an empty list of labels become None."""
    if name == "answer":
        return [int(position) for position in value]
    if name == "options":
        return list(value)

    # Lists arrive as tuples from readers and as lists or arrays from Parquet.
    if hasattr(value, "__len__") and not isinstance(value, str):
        return [str(label) for label in value] or None
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    return bool(value) if name == "adversarial" else str(value)


def _digest(lines: Iterable[str]) -> str:
    # Sorting makes the digest independent of row order; "surrogatepass" accepts broken source text.
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogatepass")).hexdigest()
