"""Check that custom builds contain no patient data, and that patients determine splits and
clusters.
"""

import json
import random
import resource
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from curation.report.quality import measure_quality
from dataset_builders.benchmarks.mediconfusion.reader import split_finetune_halves
from dataset_builders.build import build
from dataset_builders.case_groups import find_split_overlaps, group_linked_cases
from dataset_builders.contents.pseudonyms import key_path, load_pseudonyms
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from dataset_builders.schema import Case, CaseImage, Question
from eval_harness.scores.grading import image_clusters
from tests.helpers import build_and_open
from tests.planting import KINDS, found_below, found_in, image_file, planted
from tests.sampling import few


def write_source_with_people(folder, rng, people):
    """Write a custom HALT-MedVQA source whose file names and images contain personal data; images
    have patients.
    """
    (folder / "images").mkdir(parents=True)
    records, entries = {}, {"fake": {}, "none": [], "swap": {}}
    for number, person in enumerate(people):
        data, suffix = image_file(rng.choice(KINDS), person, rng)
        name = f"{person.name.replace('^', '_')}_{person.number}_{number}{suffix}"
        (folder / "images" / name).write_bytes(data)
        records[name] = {"group": person.number, "license": "CC BY 4.0", "source": "Ward 7"}
        option = {"A": "one", "B": "I do not know"}
        entries["fake"][str(number)] = {
            "question": "Which?",
            "option": option,
            "answer": "I do not know",
            "answer_id": "B",
            "img": name,
        }
        entries["swap"][str(number)] = entries["fake"][str(number)]
        entries["none"].append(
            {
                "img": name,
                "question": "Which?",
                "choice_A": "A: one",
                "choice_B": "B: None of the above",
                "answer": "B",
            }
        )

    for file, document in (
        ("fake_qa_shuffle.json", entries["fake"]), ("pmc_vqa_nota1K.json", entries["none"]), ("swap_img_shuffle.json", entries["swap"]),
        ("image_dict.json", records),
    ):  # fmt: skip
        (folder / file).write_text(json.dumps(document, ensure_ascii=False))


def test_custom_build_contains_no_patient_data(tmp_path, capfd):
    rng = random.Random(0)
    people = [planted(rng) for _ in range(6)]

    # Seven images of six patients.
    write_source_with_people(tmp_path / "source", rng, [*people, people[0]])

    # The search must find what was planted in the source.
    assert found_below(tmp_path / "source", people)
    report = build("halt-medvqa", name="own", source=tmp_path / "source", out=tmp_path / "out" / "own")
    assert found_below(tmp_path / "out", people) == []
    output = "".join(capfd.readouterr()) + str(report)
    assert found_in(output.encode(), people) == []
    rows = open_repository(tmp_path / "out" / "own").questions("test")
    assert rows["question_id"].is_unique
    for kind, column in (("q", "question_id"), ("c", "case_id"), ("i", "image_id"), ("g", "group")):
        assert rows[column].str.fullmatch(f"{kind}-[0-9a-f]{{16}}").all()

    assert rows["group"].nunique() == 6
    assert rows["image_id"].nunique() == 7
    assert key_path(tmp_path / "out" / "own").stat().st_mode & 0o077 == 0

    # The same key gives equal bytes; another key gives different ids.
    file_bytes = {path.name: path.read_bytes() for path in (tmp_path / "out" / "own").rglob("*.parquet")}
    build("halt-medvqa", name="own", source=tmp_path / "source", out=tmp_path / "out" / "own")
    assert file_bytes == {path.name: path.read_bytes() for path in (tmp_path / "out" / "own").rglob("*.parquet")}
    other_rows = build_and_open(
        "halt-medvqa", name="own", source=tmp_path / "source", out=tmp_path / "other" / "own"
    ).questions("test")
    assert not set(other_rows["question_id"]) & set(rows["question_id"])


def test_full_disk_leaves_no_empty_key(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    # A file size limit of zero acts like a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(BadInput, match="cannot be written"):
            load_pseudonyms(tmp_path / "set")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert load_pseudonyms(tmp_path / "set") == load_pseudonyms(tmp_path / "set")


def test_damaged_key_is_reported_and_not_replaced(tmp_path):
    key_path(tmp_path / "set").write_text("12")
    with pytest.raises(BadInput, match="is not a key"):
        load_pseudonyms(tmp_path / "set")
    assert key_path(tmp_path / "set").read_text() == "12"


def random_cases(rng, count):
    """Generate cases with two images each, from a pool of images of which most belong to
    patients.
    """
    pool = [
        CaseImage(f"i{n}", None, group=rng.choice([None, *(f"g{k}" for k in range(count // 2))])) for n in range(count)
    ]
    cases = []
    for number in range(count):
        images = tuple(rng.sample(pool, 2))
        questions = tuple(
            Question(
                f"{number}-{k}",
                str(number),
                image.image_id,
                "?",
                ("a", "b"),
                (k,),
                categories=(rng.choice("XYZ"),),
            )
            for k, image in enumerate(images)
        )
        cases.append(Case(str(number), images, questions))

    return cases


@pytest.mark.parametrize("seed", few(range(10), 3))
def test_halves_never_share_a_patient(seed):
    rng = random.Random(seed)
    cases = random_cases(rng, rng.randrange(4, 40))
    for config, splits in split_finetune_halves(cases).items():
        groups = {split: [image.group for case in part for image in case.images] for split, part in splits.items()}
        assert find_split_overlaps(groups) == {}, config
        assert sorted(case.case_id for part in splits.values() for case in part) == sorted(
            case.case_id for case in cases
        )

    # Without groups, halves can be balanced almost exactly.
    without = [Case(c.case_id, tuple(replace(i, group=None) for i in c.images), c.questions) for c in cases]
    assert len(split_finetune_halves(without)["finetune"]["train"]) in (len(cases) // 2 + d for d in range(-3, 5))


@pytest.mark.parametrize("seed", few(range(10), 3))
def test_clusters_are_connected_components(seed):
    rng = random.Random(seed)
    cases = random_cases(rng, rng.randrange(2, 40))
    group = {image.image_id: image.group for case in cases for image in case.images}
    table = pd.DataFrame(
        [(q.question_id, q.case_id, q.image_id, group[q.image_id]) for case in cases for q in case.questions],
        columns=["question_id", "case_id", "image_id", "group"],
    )
    label = dict(zip(table["case_id"], image_clusters(table), strict=True))
    parts = [{case.case_id for case in part} for part in group_linked_cases(cases, images=True, groups=True)]
    assert sorted(map(sorted, parts)) == sorted(
        sorted(case for case in label if label[case] == number) for number in set(label.values())
    )

    # Fewer links leave more clusters, or as many.
    assert len(set(image_clusters(table.drop(columns="group")))) >= len(parts)


def test_patient_in_two_splits_is_rejected(tmp_path):
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "a.png")
    Image.fromarray(np.ones((8, 8), np.uint8)).save(tmp_path / "b.png")
    source = tmp_path / "source"
    source.mkdir()
    rows = [
        "index\timage_path\tquestion\tA\tB\tanswer\tsplit\tgroup",
        "1\ta.png\tWhich?\tx\ty\tA\tvalidation\tMiller",
        "2\tb.png\tWhich?\tx\ty\tB\ttest\tMiller",
    ]
    (source / "GMAI.tsv").write_text("\n".join(rows) + "\n")
    with pytest.raises(BadInput, match="1 in validation and test") as refused:
        build("gmai-mmbench", name="own", source=source, images=(tmp_path,), out=tmp_path / "out")

    # Error messages must not quote patients.
    assert "Miller" not in str(refused.value)
    assert not (tmp_path / "out").exists()
    (source / "GMAI.tsv").write_text("\n".join(rows).replace("test\tMiller", "test\tBaker") + "\n")
    assert "in more than one split" not in str(
        build("gmai-mmbench", name="own", source=source, images=(tmp_path,), out=tmp_path / "out")
    )
    assert open_repository(tmp_path / "out").questions("test")["group"].str.startswith("g-").all()


def test_picture_in_two_splits_is_reported(tmp_path):
    """A different file with equal pixels is the same picture; one different pixel makes it
    another.
    """
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40), np.uint8)
    for name, shift in (("a.png", 0), ("b.bmp", 0), ("c.png", 1)):
        changed = pixels.copy()
        changed[0, 0] += shift
        Image.fromarray(changed).convert("RGB" if name == "b.bmp" else "L").save(tmp_path / name)

    source = tmp_path / "source"
    source.mkdir()
    for second_image, count in (("b.bmp", 1), ("c.png", 0)):
        rows = [
            "index\timage_path\tquestion\tA\tB\tanswer\tsplit",
            "1\ta.png\tWhich?\tx\ty\tA\tvalidation",
            f"2\t{second_image}\tWhich?\tx\ty\tB\ttest",
        ]
        (source / "GMAI.tsv").write_text("\n".join(rows) + "\n")
        report = build("gmai-mmbench", name="own", source=source, images=(tmp_path,), out=tmp_path / "out")
        assert ("pictures in more than one split: 1 in validation and test" in str(report)) == bool(count)
        assert len(measure_quality(tmp_path / "out").images_in_splits) == count
