"""Fingerprints of sets of questions: equal exactly where everything that scoring reads is equal.

Version 2 (`v2-` and a sha256 in hexadecimal) covers id, case, image id, text, options, type and key of every question, and the columns of
the formats that metrics are computed from. Version 1 (the bare sha256 that results stored before version 2 carry) left out the cases,
the images and those columns; it is only compared, never written.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import pandas as pd

from dataset_builders.benchmarks import BENCHMARKS, FACETS, RELEASED_FINGERPRINTS, RELEASED_FINGERPRINTS_V1, spec
from dataset_builders.schema import Case, Question

PREFIX = "v2-"
QUESTION_COLUMNS = ("question_id", "question", "options", "question_type", "answer")
"""What version 1 covers, in its order."""
SCORED = ("case_id", "image_id", "aspect", "adversarial", "pair_id", "image_type", "scenario", "task")
"""What the metrics are computed from besides: cases are scored together, shared images make clusters, the rest weighs or selects."""
SCORED_IF_GIVEN = (
    "group", "more_image_ids", *dict.fromkeys(name for each in BENCHMARKS for name in spec(each).scored if name not in SCORED)
)  # fmt: skip
"""Patients and shared further images make clusters too, and a benchmark's own columns may be scored; covered where a set has any, so that
sets without keep their fingerprints."""
READ_BY_SCORING = (*QUESTION_COLUMNS, *SCORED, *SCORED_IF_GIVEN)
FACETS_READ = (
    "categories", "image_type", "organ", "modality", "task", "department", "granularity", "scenario", "source_dataset",
)  # fmt: skip
"""The columns that scores are broken down by; no metric of the whole depends on them."""
FACETS_READ_IF_GIVEN = tuple(
    dict.fromkeys(name for facets in FACETS.values() for name in facets if name not in (*FACETS_READ, "category"))
)


def fingerprint_of(questions: pd.DataFrame) -> str:
    """The fingerprint (version 2) of a frame of questions: in any row order, with and without images, absent columns as empty ones.

    Raises KeyError where a column that every benchmark has is absent.
    """
    return PREFIX + _digest(_rows(questions, QUESTION_COLUMNS, (*SCORED, *_given(questions, SCORED_IF_GIVEN))))


def fingerprint_v1(questions: pd.DataFrame) -> str:
    """The fingerprint that medprobe wrote before version 2: over ids, texts, options, types and keys alone."""
    return _digest(_rows(questions, QUESTION_COLUMNS, ()))


def has_fingerprint(questions: pd.DataFrame, expected: str | None) -> bool:
    """Whether the questions have this fingerprint, of whichever version it is."""
    if expected is None:
        return False
    found = fingerprint_of(questions) if expected.startswith(PREFIX) else fingerprint_v1(questions)
    return found == expected


def facets_digest(questions: pd.DataFrame) -> str:
    """A digest of the labels that scores are broken down by (`FACETS_READ`), question by question; `v1-` and a sha256."""
    facets = (*FACETS_READ, *_given(questions, FACETS_READ_IF_GIVEN))
    return "v1-" + _digest(_rows(questions, ("question_id",), facets))


def fingerprint_of_cases(cases: Iterable[Case]) -> str:
    """The fingerprint of the questions of `cases`, the same as that of the frame they are stored as."""
    rows = [_record(case, question) for case in cases for question in case.questions]
    given = [name for name in SCORED_IF_GIVEN if any(_plain(row.get(name), name) is not None for row in rows)]
    return PREFIX + _digest(_canonical(row, QUESTION_COLUMNS, (*SCORED, *given)) for row in rows)


def is_released_set(family: str, split: str, fingerprint: str | None) -> bool:
    """Whether this is the complete set that the authors released (known where their files are)."""
    known = (RELEASED_FINGERPRINTS.get((family, split)), RELEASED_FINGERPRINTS_V1.get((family, split)))
    return fingerprint is not None and fingerprint in known


def _given(questions: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Those of the columns that hold anything."""
    there = (name for name in names if name in questions.columns)
    return [name for name in there if any(_plain(value, name) is not None for value in questions[name])]


def _record(case: Case, question: Question) -> Mapping[str, Any]:
    group = next((image.group for image in case.images if image.image_id == question.image_id), None)
    values = {field.name: getattr(question, field.name) for field in fields(question)}
    return values | dict(question.extra) | {"group": group}


def _rows(questions: pd.DataFrame, needed: Sequence[str], more: Sequence[str]) -> Iterator[str]:
    there = [*needed, *(name for name in more if name in questions.columns)]
    columns = (questions[name].tolist() for name in there)
    for values in zip(*columns, strict=True):
        yield _canonical(dict(zip(there, values, strict=True)), needed, more)


def _canonical(record: Mapping[str, Any], needed: Sequence[str], more: Sequence[str]) -> str:
    values = [_plain(record[name], name) for name in needed] + [_plain(record.get(name), name) for name in more]
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


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
