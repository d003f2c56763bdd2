"""Check that fingerprints change with everything that scoring reads, and with nothing else."""

import random

import pandas as pd
import pytest

from dataset_builders.benchmarks import BENCHMARKS, RELEASED_FINGERPRINTS
from dataset_builders.fingerprints import (
    FACET_COLUMNS,
    FINGERPRINT_COLUMNS,
    SCORED_COLUMNS,
    digest_facets,
    fingerprint_questions,
    is_released_set,
)
from dataset_builders.hub.repository import open_repository
from eval_harness.derive.metrics import compute_scores
from tests.eval_harness.scores.guessing import constant_answers
from tests.helpers import build_and_open


@pytest.fixture(scope="module", params=BENCHMARKS)
def repository(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / request.param
    return build_and_open(request.param, out=folder, text_only=True)


def first_split(repository) -> pd.DataFrame:
    return repository.questions(repository.splits[0])


def altered(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [*value, 0] if all(isinstance(part, int) for part in value) and value else [*value, "more"]
    return f"{value} changed"


def test_scored_columns_change_the_fingerprint(repository):
    questions = first_split(repository)
    original = fingerprint_questions(questions)
    for name in FINGERPRINT_COLUMNS:
        if name not in questions.columns:
            continue

        # Three random rows per column keep the test fast.
        for row in random.Random(name).sample(range(len(questions)), 3):
            edited = questions.copy()

            # Some columns would refuse a value of another type.
            edited[name] = edited[name].astype(object)
            edited.at[row, name] = altered(edited.at[row, name])
            assert fingerprint_questions(edited) != original, (name, row)


def test_fingerprint_ignores_order_images_and_empty_columns(repository, phantoms):
    questions = first_split(repository)
    mark = fingerprint_questions(questions)
    with_images = open_repository(phantoms / repository.name)
    assert repository.manifest["splits"] == with_images.manifest["splits"]
    assert mark.startswith("v1-") and len(mark) == 67
    assert repository.manifest["splits"][repository.splits[0]]["fingerprint"] == mark
    assert fingerprint_questions(questions.sample(frac=1, random_state=1)) == mark

    # A missing column counts as an empty one.
    empty = [name for name in SCORED_COLUMNS if name in questions.columns and questions[name].isna().all()]
    assert fingerprint_questions(questions.drop(columns=empty)) == mark
    labels = [name for name in FACET_COLUMNS if name in questions.columns and name not in SCORED_COLUMNS]
    assert fingerprint_questions(questions.drop(columns=labels)) == mark
    labelled = any(
        len(value) if isinstance(value, list) else pd.notna(value) for name in labels for value in questions[name]
    )
    assert (digest_facets(questions.drop(columns=labels)) != digest_facets(questions)) == labelled


def test_uncovered_columns_do_not_change_scores(repository):
    """A column outside both digests must not affect scores; otherwise the fingerprint lacks it."""
    questions = first_split(repository)
    answers = constant_answers(questions, 0)
    original = compute_scores(repository.family, questions, answers)
    for name in set(questions.columns) - {*FINGERPRINT_COLUMNS, *FACET_COLUMNS}:
        edited = questions.copy()
        edited[name] = pd.Series(["x" if n % 2 else "y" for n in range(len(edited))], index=edited.index, dtype=object)
        assert compute_scores(repository.family, edited, answers) == original, name

    for name in {*FACET_COLUMNS} & {*questions.columns} - {*SCORED_COLUMNS, "categories"}:
        edited = questions.assign(**{name: "one label"})
        assert compute_scores(repository.family, edited, answers).scores == original.scores, name


@pytest.mark.sources
@pytest.mark.parametrize(("family", "folder"), [("mediconfusion", "mediconfusion"), ("halt-medvqa", "halt_medvqa")])
def test_released_sets_have_the_stored_fingerprints(family, folder, sources, tmp_path):
    fingerprint = fingerprint_questions(
        first_split(build_and_open(family, source=sources / folder, out=tmp_path / "data", text_only=True))
    )
    assert fingerprint == RELEASED_FINGERPRINTS[family, "test"] and is_released_set(family, "test", fingerprint)
    assert not is_released_set(family, "test", None)
