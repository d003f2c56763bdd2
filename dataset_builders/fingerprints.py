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

from dataset_builders.benchmarks import BENCHMARKS, FACETS, RELEASED_FINGERPRINTS, spec
from dataset_builders.schema import Case, Question

PREFIX = "v1-"
QUESTION_COLUMNS = ("question_id", "question", "options", "question_type", "answer")
"""Columns that every set of questions has."""
SCORED = tuple(
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
ASKED = ("question_id", "question", "options", "question_type", "image_id", "more_image_ids")
READ_BY_SCORING = (*QUESTION_COLUMNS, *SCORED)
FACETS_READ = tuple(
    dict.fromkeys(("categories", *(name for facets in FACETS.values() for name in facets if name != "category")))
)
"""The columns that scores are broken down by; no metric of the whole depends on them."""


def fingerprint_of(questions: pd.DataFrame) -> str:
    """The fingerprint of a frame of questions: in any row order, with and without images.

    Raises KeyError where a column that every benchmark has is absent.
    """
    return PREFIX + _digest(_rows(questions, READ_BY_SCORING))


def asked_digest(questions: pd.DataFrame) -> str:
    """A digest of what was put to a model (texts, options, types, images): the same after the answer key was corrected."""
    return PREFIX + _digest(_rows(questions, ASKED))


def facets_digest(questions: pd.DataFrame) -> str:
    """A digest of the labels that scores are broken down by (`FACETS_READ`), question by question; `v1-` and a sha256."""
    return PREFIX + _digest(_rows(questions, ("question_id", *FACETS_READ)))


def fingerprint_of_cases(cases: Iterable[Case]) -> str:
    """The fingerprint of the questions of `cases`, the same as that of the frame they are stored as."""
    return PREFIX + _digest(
        _canonical(_record(case, question), READ_BY_SCORING) for case in cases for question in case.questions
    )


def is_released_set(family: str, split: str, fingerprint: str | None) -> bool:
    """True if this is the complete set that the authors released (known where their files are)."""
    return fingerprint is not None and fingerprint == RELEASED_FINGERPRINTS.get((family, split))


def _record(case: Case, question: Question) -> Mapping[str, Any]:
    group = next((image.group for image in case.images if image.image_id == question.image_id), None)
    values = {field.name: getattr(question, field.name) for field in fields(question)}
    return values | dict(question.extra) | {"group": group}


def _rows(questions: pd.DataFrame, names: Sequence[str]) -> Iterator[str]:
    there = [name for name in names if name in questions.columns or name in QUESTION_COLUMNS]
    columns = (questions[name].tolist() for name in there)
    for values in zip(*columns, strict=True):
        yield _canonical(dict(zip(there, values, strict=True)), there)


def _canonical(record: Mapping[str, Any], names: Sequence[str]) -> str:
    """A row's values in these columns, as JSON."""
    held = {name: value for name in names if (value := _plain(record.get(name), name)) is not None}
    return json.dumps(held, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _plain(value: Any, name: str) -> Any:
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
