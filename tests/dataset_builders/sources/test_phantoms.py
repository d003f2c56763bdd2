"""Check that phantoms are reproducible and follow the official layouts."""

import hashlib

import pandas as pd
import pytest

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build, write_sources
from dataset_builders.hub.repository import open_repository
from dataset_builders.images.phantom_drawings import draw_phantom
from tests.sampling import few


def file_digests(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("family", few(BENCHMARKS))
def test_sources_and_builds_are_reproducible(family, phantoms, tmp_path):
    # The first may come from the cache, the second is drawn again.
    write_sources(family, tmp_path / "one")
    draw_phantom.cache_clear()  # drawn again
    write_sources(family, tmp_path / "two")
    assert file_digests(tmp_path / "one") == file_digests(tmp_path / "two")
    build(family, source=tmp_path / "one", out=tmp_path / "again", eval_yaml=True)
    assert file_digests(tmp_path / "again") == file_digests(phantoms / family)


@pytest.mark.parametrize("family", BENCHMARKS)
def test_phantom_builds_are_labelled(family, phantoms):
    repository = open_repository(phantoms / family)
    assert (repository.name, repository.family, repository.origin, repository.partial) == (
        family,
        family,
        "phantom",
        None,
    )
    card = (phantoms / family / "README.md").read_text()
    assert "drawn phantoms, not medical images" in card
    assert "license: cc0-1.0" in card
    for split in repository.splits:
        assert set(repository.questions(split)["image_license"]) == {"CC0-1.0"}


def test_gmai_phantoms_hide_answers_and_match_their_tree(phantoms):
    repository = open_repository(phantoms / "gmai-mmbench")
    validation, test = repository.questions("validation"), repository.questions("test")
    assert set(validation["question_type"]) == {"single", "multiple"}
    assert all(not answer for answer in test["answer"])
    assert test["keyword"].isna().all()

    # Each answer must be a leaf of the tree, for every subject.
    tree = set(pd.read_parquet(phantoms / "gmai-mmbench/lexical_tree").itertuples(index=False, name=None))
    for row in validation.itertuples():
        for subject in ("task", "department", "granularity"):
            assert (subject, getattr(row, subject), row.modality, row.keyword) in tree
