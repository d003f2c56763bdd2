"""Phantoms: the same bytes every time, official layouts, one right answer by construction."""

import hashlib
import json
from collections import Counter

import pytest

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.hub.repository import open_repository
from dataset_builders.images.phantom_drawings import draw
from dataset_builders.phantoms import write_sources


def digests(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("family", BENCHMARKS)
def test_sources_and_builds_have_the_same_bytes_twice(family, phantoms, tmp_path):
    write_sources(family, tmp_path / "one")
    draw.cache_clear()  # drawn again
    write_sources(family, tmp_path / "two")
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    build(family, source=tmp_path / "one", out=tmp_path / "again", eval_yaml=True)
    assert digests(tmp_path / "again") == digests(phantoms / family)


@pytest.mark.parametrize("family", BENCHMARKS)
def test_a_phantom_build_says_that_it_is_one(family, phantoms):
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


@pytest.mark.parametrize("family", BENCHMARKS)
def test_every_letter_is_right_about_equally_often(family, phantoms):
    repository = open_repository(phantoms / family)
    questions = repository.questions(repository.splits[0])
    single = questions[questions["question_type"] != "multiple"]
    for size, group in single.groupby(single["options"].map(len)):
        counts = Counter(answer[0] for answer in group["answer"])
        assert len(group) < size or max(counts.values()) - min(counts.get(n, 0) for n in range(size)) <= 2, (
            size,
            counts,
        )


def test_a_constant_answer_confuses_every_pair(phantoms):
    questions = open_repository(phantoms / "mediconfusion").questions("test")
    for _, pair in questions.groupby("case_id"):
        assert sorted(answer[0] for answer in pair["answer"]) == [0, 1]
        assert pair["question"].nunique() == 1
        assert pair["image_id"].nunique() == 2
    assert questions.groupby("image_id")["case_id"].nunique().max() >= 2
    assert len({label for labels in questions["categories"] for label in labels}) >= 5


def test_probmed_phantoms_have_the_whole_question_set(phantoms):
    questions = open_repository(phantoms / "probmed").questions("test")
    assert questions["image_type"].nunique() >= 4
    for _, image in questions.groupby("case_id"):
        aspects = Counter(image["aspect"])
        assert (aspects["modality"], aspects["organ"], aspects["abnormality"]) == (2, 2, 1)
        normal = image.loc[image["aspect"] == "abnormality", "answer"].iloc[0] == [1]
        if normal:
            assert (aspects["condition"], aspects["position"]) == (1, 0)
        else:
            assert aspects["condition"] == aspects["position"] >= 2
    paired = questions[questions["pair_id"].notna()]
    for _, pair in paired.groupby("pair_id"):
        assert sorted(pair["adversarial"]) == [False, True]
        assert [answer for _, answer in sorted(zip(pair["adversarial"], pair["answer"], strict=True))] == [[0], [1]]


def test_gmai_phantoms_hide_the_test_answers_and_fit_their_tree(phantoms):
    repository = open_repository(phantoms / "gmai-mmbench")
    validation, test = repository.questions("validation"), repository.questions("test")
    assert set(validation["question_type"]) == {"single", "multiple"}
    assert all(not answer for answer in test["answer"])
    assert test["keyword"].isna().all()
    tree = set(repository.lexical_tree.itertuples(index=False, name=None))
    for row in validation.itertuples():
        for subject in ("task", "department", "granularity"):
            assert (subject, getattr(row, subject), row.modality, row.keyword) in tree


def test_halt_phantoms_have_three_scenarios_and_clean_options(phantoms):
    questions = open_repository(phantoms / "halt-medvqa").questions("test")
    assert Counter(questions["scenario"]) == {"fake": 12, "none": 12, "swap": 12}
    for row in questions.itertuples():
        right = row.options[row.answer[0]]
        assert right == ("None of the above" if row.scenario == "none" else "I do not know")
        assert not any(option.startswith(tuple(f"{letter}:" for letter in "ABCDE")) for option in row.options)
        assert row.question_id.startswith(f"{row.scenario}-")


@pytest.mark.parametrize("family", BENCHMARKS)
def test_the_manifest_names_every_image(family, phantoms):
    manifest = json.loads((phantoms / family / "manifest.json").read_text())
    repository = open_repository(phantoms / family)
    for split in repository.splits:
        for case in repository.cases(split):
            for image_id, data in case.images.items():
                noted = manifest["images"][image_id]
                assert noted == {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
