"""Check counts, ids and oddities of the authors' real files against the papers and the files
themselves.
"""

import json
import re
import shutil
from collections import Counter

import pandas as pd
import pytest

from dataset_builders.benchmarks.mediconfusion import reader as mediconfusion
from dataset_builders.build import build
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from dataset_builders.images.lookup import ImageFolders
from tests.helpers import build_and_open

pytestmark = pytest.mark.sources


@pytest.fixture(scope="module")
def texts(sources, tmp_path_factory):
    """Build the two sources whose questions are complete, without images."""
    folder = tmp_path_factory.mktemp("texts")
    for family, name in (("mediconfusion", "mediconfusion"), ("halt-medvqa", "halt_medvqa")):
        build(family, source=sources / name, out=folder / family, text_only=True)
    return folder


def test_mediconfusion_is_complete_and_official(texts, sources):
    repository = open_repository(texts / "mediconfusion")
    assert (repository.origin, repository.partial, repository.splits) == (
        "official",
        None,
        ["test"],
    )
    questions = repository.questions("test")
    assert len(questions) == 352
    assert questions["case_id"].nunique() == 176
    assert questions["image_id"].nunique() == 228
    labels = Counter(label for row in questions["categories"] for label in row)
    assert labels == json.loads((sources / "mediconfusion" / "statistics.json").read_text())
    question = questions.set_index("question_id").loc["10013-1"]
    assert (question["image_id"], question["answer"]) == ("20157", [1])
    assert question["categories"] == ["Cerebral", "Head and Neck", "Spinal"]
    assert not any(text != text.strip() for text in questions["caption"])
    assert questions["sim_med"].min() >= 0.9 and questions["sim_gen"].max() <= 0.75
    revised = questions[
        (questions["question"] != questions["ai_question"]) | (questions["options"] != questions["ai_options"])
    ]

    # Pairs whose question or options differ from the language model's draft.
    assert revised["case_id"].nunique() == 57


def test_halt_is_complete_and_official(texts):
    repository = open_repository(texts / "halt-medvqa")
    assert repository.origin == "official"
    questions = repository.questions("test")
    assert Counter(questions["scenario"]) == {"fake": 543, "none": 1000, "swap": 818}
    none = questions[questions["scenario"] == "none"]
    assert Counter("ABCD"[answer[0]] for answer in none["answer"]) == {
        "A": 143,
        "B": 352,
        "C": 370,
        "D": 135,
    }
    assert list(none["question_id"][:2]) == ["none-0", "none-1"]

    # The source writes "A: text"; the letter is no part of the option.
    assert not any(re.match(rf"{letter}\s*:", row[n]) for row in none["options"] for n, letter in enumerate("ABCD"))
    dermatitidis = questions.set_index("question_id").loc["fake-106", "options"]

    # This "B." abbreviates a genus and is not a letter to remove.
    assert dermatitidis[0] == "B. dermatitidis"
    assert set(questions["source_dataset"]) == {"VQA-RAD", "PathVQA", "PMC-VQA"}
    notes = " ".join(repository.manifest["report"]["notes"])
    assert "fake-324, fake-361" in notes
    assert "47 questions of scenario none" in notes


def test_gmai_sample_is_not_official(sources, tmp_path):
    report = build("gmai-mmbench", source=sources / "gmai_mmbench", out=tmp_path / "d")
    repository = open_repository(tmp_path / "d")
    assert repository.origin == "custom"
    questions = repository.questions("validation")
    assert (len(questions), repository.splits) == (22, ["validation"])

    # The file contains a literal backslash and t in this option.
    row = questions.set_index("question_id").loc["16"]
    assert row["options"][3] == "operation not started or operation ended\\tor out of patient"
    assert row["keyword"] == "nasal corridor creation"
    assert row["department"] == "Otolaryngology (ENT)/Head and Neck Surgery"
    tree = pd.read_parquet(tmp_path / "d/lexical_tree")
    assert tree["modality"].nunique() == 38
    assert tree["keyword"].nunique() == 717
    assert len(tree.groupby(["subject", "category", "modality"])) == 293
    assert len(tree.groupby(["modality", "keyword"])) == 810
    assert tree[tree["subject"] == "task"]["category"].nunique() == 18
    assert tree[tree["subject"] == "granularity"]["category"].nunique() == 4
    departments = set(tree[tree["subject"] == "department"]["category"])
    assert len(departments) == 19 and "" in departments
    assert "one department has no name" in str(report)


def test_missing_images_are_all_listed(sources, tmp_path):
    with pytest.raises(BadInput) as caught:
        build("mediconfusion", source=sources / "mediconfusion", out=tmp_path / "d")

    message = str(caught.value)
    assert message.startswith("226 of 228 images are missing")

    # Two images are in the source's folder, so they are not missing.
    names = {str(pair[f"im_{n}_local"]) for pair in _pairs(sources).values() for n in (1, 2)} - {
        "20157",
        "20193",
    }
    assert all(f"{name}.jpg" in message for name in names)
    assert "--images" in message and "--allow-missing" in message
    assert list(tmp_path.iterdir()) == []


def _pairs(sources):
    return json.loads((sources / "mediconfusion" / "dataset.json").read_text())


def test_complete_pair_is_built_and_marked_partial(sources, tmp_path):
    source, images = sources / "mediconfusion", [sources / "roco"]
    repository = build_and_open("mediconfusion", source=source, images=images, out=tmp_path / "d", allow_missing=True)
    assert repository.origin == "official"
    assert repository.partial == "1 of 176 cases: 226 of 228 images were missing"
    (case,) = repository.cases("test")
    assert case.question_ids == ["10013-1", "10013-2"]
    assert case.images["20193"] == (sources / "mediconfusion" / "images" / "20193.jpg").read_bytes()
    assert "Partial" in (tmp_path / "d" / "README.md").read_text()


@pytest.mark.parametrize("by", ["number", "roco path", "roco name", "pmc name", "upper case"])
def test_images_are_found_under_each_of_their_names(sources, tmp_path, by):
    pair = _pairs(sources)["10013"]
    locations = json.loads((sources / "mediconfusion" / "image_dict.json").read_text())
    (tmp_path / "dataset.json").write_text(json.dumps({"10013": pair}))
    (tmp_path / "image_dict.json").write_text(json.dumps({pair[f"im_{n}"]: locations[pair[f"im_{n}"]] for n in (1, 2)}))
    for roco, local in ((pair["im_1"], pair["im_1_local"]), (pair["im_2"], pair["im_2_local"])):
        name = {
            "number": f"{local}.jpeg",
            "roco path": roco,
            "roco name": roco.rsplit("/", 1)[-1],
            "pmc name": locations[roco]["file_name"],
            "upper case": f"{local}.JPG",
        }[by]
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(sources / "mediconfusion" / "images" / f"{local}.jpg", tmp_path / "images" / name)

    content = mediconfusion.read(tmp_path, ImageFolders([tmp_path / "images"]))
    assert all(image.read is not None for image in content.cases["test"][0].images)


def test_licences_come_from_roco_lists(sources, texts):
    without = open_repository(texts / "mediconfusion").questions("test")
    assert set(without["image_license"]) == {"unknown"}
    content = mediconfusion.read(sources / "mediconfusion", ImageFolders([sources / "mediconfusion", sources / "roco"]))
    licences = {image.image_id: image.license for case in content.cases["test"] for image in case.images}

    # ROCO's lists cover only part of the images.
    assert 40 <= sum(licence != "unknown" for licence in licences.values()) <= 54
    assert {licence.split("-")[0] for licence in licences.values()} <= {"CC BY", "unknown", "CC0"}
    image = next(image for case in content.cases["test"] for image in case.images)
    assert re.search(r"PMC\d+, .+\.jpg \(.*ROCO_\d+\.jpg\)", image.source)


def test_fine_tuning_halves(sources):
    content = mediconfusion.read(sources / "mediconfusion", None)
    for config, halves in content.extra_configs.items():
        train, test = halves["train"], halves["test"]
        assert len(train) + len(test) == 176
        assert not {case.case_id for case in train} & {case.case_id for case in test}
        assert 80 <= len(train) <= 96
        if config == "finetune":  # in the other config, a single image links 25 of the 26 cardiac pairs
            for label, total in Counter(_labels(content.cases["test"])).items():
                assert abs(Counter(_labels(train))[label] - total / 2) <= max(3, 0.12 * total), label

        # Only the other config keeps all pairs of an image in one half.
        shared = {i.image_id for c in train for i in c.images} & {i.image_id for c in test for i in c.images}
        assert bool(shared) == (config == "finetune")


def _labels(cases):
    for case in cases:
        yield from {label for question in case.questions for label in question.categories}
