"""Compute fingerprints of sets of questions: equal exactly where everything that scoring reads is equal.

`v1-` and a sha256 in hexadecimal, over id, case, image id, text, options, type and key of every question, and the columns of the
benchmarks that metrics are computed from. An absent column is the same as an empty one, so that a column which a benchmark adds changes the
fingerprint of no set without it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import pandas as pd

from dataset_builders.benchmarks import BENCHMARKS, FACETS_BY_BENCHMARK, RELEASED_FINGERPRINTS, spec
from dataset_builders.schema import Case, Question

FINGERPRINT_PREFIX = "v1-"
QUESTION_COLUMNS = ("question_id", "question", "options", "question_type", "answer")
"""Columns that every set of questions has."""
SCORED_COLUMNS = tuple(
    dict.fromkeys(
        (
            *("case_id", "image_id", "group", "more_image_ids"),
            *("aspect", "adversarial", "pair_id", "image_type", "scenario", "task"),
            *(name for each in BENCHMARKS for name in spec(each).scored),
        )
    )
)
"""Further columns that the metrics are computed from: cases are scored together, shared images and patients form clusters, the others
weight or select."""
PROMPT_COLUMNS = ("question_id", "question", "options", "question_type", "image_id", "more_image_ids")
FINGERPRINT_COLUMNS = (*QUESTION_COLUMNS, *SCORED_COLUMNS)
FACET_COLUMNS = tuple(
    dict.fromkeys(
        ("categories", *(name for facets in FACETS_BY_BENCHMARK.values() for name in facets if name != "category"))
    )
)
"""The columns that scores are broken down by; no metric of the whole depends on them."""


def fingerprint_questions(questions: pd.DataFrame) -> str:
    """The fingerprint of a frame of questions: in any row order, with and without images.

    Raises KeyError where a column that every benchmark has is absent.
    """
    return FINGERPRINT_PREFIX + _digest(_canonical_rows(questions, FINGERPRINT_COLUMNS))


def digest_prompts(questions: pd.DataFrame) -> str:
    """A digest of what was put to a model (texts, options, types, images): the same after the answer key was corrected."""
    return FINGERPRINT_PREFIX + _digest(_canonical_rows(questions, PROMPT_COLUMNS))


def digest_facets(questions: pd.DataFrame) -> str:
    """A digest of the labels that scores are broken down by (`FACET_COLUMNS`), question by question; `v1-` and a sha256."""
    return FINGERPRINT_PREFIX + _digest(_canonical_rows(questions, ("question_id", *FACET_COLUMNS)))


def fingerprint_cases(cases: Iterable[Case]) -> str:
    """The fingerprint of the questions of `cases`, the same as that of the frame they are stored as."""
    return FINGERPRINT_PREFIX + _digest(
        _canonical(_question_record(case, question), FINGERPRINT_COLUMNS)
        for case in cases
        for question in case.questions
    )


def is_released_set(family: str, split: str, fingerprint: str | None) -> bool:
    """True if this is the complete set that the authors released (known where their files are)."""
    return fingerprint is not None and fingerprint == RELEASED_FINGERPRINTS.get((family, split))


def _question_record(case: Case, question: Question) -> Mapping[str, Any]:
    group = next((image.group for image in case.images if image.image_id == question.image_id), None)
    values = {field.name: getattr(question, field.name) for field in fields(question)}
    return values | dict(question.extra) | {"group": group}


def _canonical_rows(questions: pd.DataFrame, names: Sequence[str]) -> Iterator[str]:
    there = [name for name in names if name in questions.columns or name in QUESTION_COLUMNS]
    columns = (questions[name].tolist() for name in there)
    for values in zip(*columns, strict=True):
        yield _canonical(dict(zip(there, values, strict=True)), there)


def _canonical(record: Mapping[str, Any], names: Sequence[str]) -> str:
    """A row's values in these columns, as JSON."""
    held = {name: value for name in names if (value := _json_value(record.get(name), name)) is not None}
    return json.dumps(held, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _json_value(value: Any, name: str) -> Any:
    """A value as JSON has it: positions as int, other lists as texts, nothing (None, NaN, an empty list of labels) as null."""
    if name == "answer":
        return [int(position) for position in value]
    if name == "options":
        return list(value)
    if hasattr(value, "__len__") and not isinstance(value, str):
        return [str(label) for label in value] or None
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    return bool(value) if name == "adversarial" else str(value)


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogatepass")).hexdigest()
