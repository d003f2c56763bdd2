"""Fingerprints: everything that scoring reads changes them, nothing else does."""

import random

import pandas as pd
import pytest

from dataset_builders.benchmarks import BENCHMARKS, RELEASED_FINGERPRINTS
from dataset_builders.build import build
from dataset_builders.fingerprints import (
    FACET_COLUMNS,
    FINGERPRINT_COLUMNS,
    SCORED_COLUMNS,
    digest_facets,
    fingerprint_questions,
    is_released_set,
)
from dataset_builders.hub.repository import open_repository
from eval_harness.derive.scoring import compute_scores
from tests.eval_harness.scores.guessing import constant_answers
from tests.sampling import few


@pytest.fixture(scope="module", params=BENCHMARKS)
def repository(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / request.param
    build(request.param, out=folder, text_only=True)
    return open_repository(folder)


def whole(repository) -> pd.DataFrame:
    return repository.questions(repository.splits[0])


def changed(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [*value, 0] if all(isinstance(part, int) for part in value) and value else [*value, "more"]
    return f"{value} changed"


def test_each_column_that_scoring_reads_changes_the_fingerprint_wherever_it_changes(repository):
    questions = whole(repository)
    before = fingerprint_questions(questions)
    for name in FINGERPRINT_COLUMNS:
        if name not in questions.columns:
            continue
        for row in random.Random(name).sample(range(len(questions)), 3):
            other = questions.copy()
            other[name] = other[name].astype(object)
            other.at[row, name] = changed(other.at[row, name])
            assert fingerprint_questions(other) != before, (name, row)


def test_the_manifest_has_it_and_rows_in_another_order_or_absent_columns_change_nothing(repository):
    questions = whole(repository)
    mark = fingerprint_questions(questions)
    assert mark.startswith("v1-") and len(mark) == 67
    assert repository.manifest["splits"][repository.splits[0]]["fingerprint"] == mark
    assert fingerprint_questions(questions.sample(frac=1, random_state=1)) == mark
    empty = [name for name in SCORED_COLUMNS if name in questions.columns and questions[name].isna().all()]
    assert fingerprint_questions(questions.drop(columns=empty)) == mark
    labels = [name for name in FACET_COLUMNS if name in questions.columns and name not in SCORED_COLUMNS]
    assert fingerprint_questions(questions.drop(columns=labels)) == mark
    labelled = any(
        len(value) if isinstance(value, list) else pd.notna(value) for name in labels for value in questions[name]
    )
    assert (digest_facets(questions.drop(columns=labels)) != digest_facets(questions)) == labelled


def test_what_neither_digest_covers_changes_no_score(repository):
    """Changing a column that is in neither changes no number: otherwise the fingerprint lacks it."""
    questions = whole(repository)
    answers = constant_answers(questions, 0)
    before = compute_scores(repository.family, questions, answers)
    for name in set(questions.columns) - {*FINGERPRINT_COLUMNS, *FACET_COLUMNS}:
        other = questions.copy()
        other[name] = pd.Series(["x" if n % 2 else "y" for n in range(len(other))], index=other.index, dtype=object)
        assert compute_scores(repository.family, other, answers) == before, name
    for name in {*FACET_COLUMNS} & {*questions.columns} - {*SCORED_COLUMNS, "categories"}:
        other = questions.assign(**{name: "one label"})
        assert compute_scores(repository.family, other, answers).scores == before.scores, name


@pytest.mark.parametrize("family", few(BENCHMARKS))
def test_the_same_with_and_without_images(family, tmp_path):
    marks = set()
    for text_only in (False, True):
        folder = tmp_path / str(text_only)
        build(family, out=folder, text_only=text_only)
        marks.add(fingerprint_questions(whole(open_repository(folder))))
    assert len(marks) == 1


@pytest.mark.sources
@pytest.mark.parametrize(("family", "folder"), [("mediconfusion", "mediconfusion"), ("halt-medvqa", "halt_medvqa")])
def test_the_released_sets_have_the_fingerprints_that_we_keep(family, folder, sources, tmp_path):
    build(family, source=sources / folder, out=tmp_path / "data", text_only=True)
    questions = whole(open_repository(tmp_path / "data"))
    assert fingerprint_questions(questions) == RELEASED_FINGERPRINTS[family, "test"]
    assert is_released_set(family, "test", fingerprint_questions(questions)) and not is_released_set(
        family, "test", None
    )
