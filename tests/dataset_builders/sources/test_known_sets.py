"""Test the presets: small files in each known set's schema, at the usual places, give the same
questions; sets on the Hub are streamed from a loopback Hub under their real names.
"""

import base64
import csv
import io
import json
import os
import random
import subprocess
import sys

import pandas as pd
import pytest
from datasets import Dataset, DatasetDict, Features, Image, Value
from huggingface_hub import HfApi

from dataset_builders.benchmarks.vqa.presets import PRESETS
from dataset_builders.build import build
from dataset_builders.hub.repository import open_repository
from tests.dataset_builders.sources.test_any_set import draw_image
from tests.localhub.accounts import ACCOUNTS, CURATOR, Account

RNG = random.Random(3)
SET_PICTURES = [draw_image(RNG) for _ in range(4)]
SUBJECTS = (
    "Basic_Medical_Science",
    "Clinical_Medicine",
    "Diagnostics_and_Laboratory_Medicine",
    "Pharmacy",
    "Public_Health",
)
OPEN_AND_CLOSED = [
    ("is there a mass?", "yes"),
    ("where is it?", "left lobe"),
    ("is it large?", "no\t"),
    ("Is it Round?", "No"),
]


def write_slake(folder):
    common = {"img_id": 0, "img_name": "xmlab0/source.jpg", "location": "Abdomen", "modality": "MRI", "base_type": "vqa",
              "content_type": "Modality", "triple": ["vhead", "_", "_"]}  # fmt: skip
    rows = [
        {"qid": n, "question": question, "answer": answer, "q_lang": lang, "answer_type": kind} | common
        for n, (question, answer, lang, kind) in enumerate(
            # Only closed English questions are kept, answered by yes or no.
            [("Is it MRI?", "Yes", "en", "CLOSED"), ("What is it?", "MRI", "en", "OPEN"), ("Which side?", "Left", "en", "CLOSED"),
             ("是吗?", "Yes", "zh", "CLOSED"), ("Is it CT?", "No", "en", "CLOSED")]
        )
    ]  # fmt: skip
    for name in ("train", "validate", "test"):
        (folder / f"{name}.json").write_text(json.dumps(rows))
    (folder / "imgs" / "xmlab0").mkdir(parents=True)
    (folder / "imgs" / "xmlab0" / "source.jpg").write_bytes(SET_PICTURES[0])
    (folder / "imgs" / "xmlab0" / "question.json").write_text("[]")  # every image's folder has other files, too
    return {"train", "validation", "test"}, [("Is it MRI?", ["yes"]), ("Is it CT?", ["no"])]


def write_pmc_vqa(folder):
    header = [
        "index",
        "Figure_path",
        "Caption",
        "Question",
        "Choice A",
        "Choice B",
        "Choice C",
        "Choice D",
        "Answer",
        "split",
    ]
    choices = [" A: CT ", " B: MRI", "C:X-ray", " D: None of the above "]
    with (folder / "test_2.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([header, ["0", "PMC1_F1.jpg", "a, b", " Which? ", *choices, "B", "test"]])
        writer.writerow(["1", "PMC1_F1.jpg", "c", "Which not?", *choices, "D", "test"])
    # An older version of the test file, which must not be read.
    (folder / "test.csv").write_text("Figure_path,Question,Answer\n")
    (folder / "figures").mkdir()
    (folder / "figures" / "PMC1_F1.jpg").write_bytes(SET_PICTURES[1])
    return {"test"}, [("Which?", ["MRI"]), ("Which not?", ["None of the above"])]


def write_omnimedvqa(folder):
    (folder / "QA_information" / "Open-access").mkdir(parents=True)
    (folder / "Images" / "ACRIMA").mkdir(parents=True)
    (folder / "Images" / "ACRIMA" / "Im1.png").write_bytes(SET_PICTURES[2])
    row = {"dataset": "ACRIMA", "question_type": "Modality Recognition", "image_path": "Images/ACRIMA/Im1.png",
           "modality_type": "Fundus Photography"}  # fmt: skip
    rows = [
        row | {"question_id": "ACRIMA_0", "question": "What?", "gt_answer": "Fundus imaging", "option_A": "PET",
               "option_B": "Fundus imaging", "option_C": "CT", "option_D": "MRI"},
        row | {"question_id": "ACRIMA_1", "question": "Is it?", "gt_answer": "No", "option_A": "No", "option_B": "Yes"},
    ]  # fmt: skip
    (folder / "QA_information" / "Open-access" / "ACRIMA.json").write_text(json.dumps(rows))
    return {"test"}, [("What?", ["Fundus imaging"]), ("Is it?", ["No"])]


def write_medxpertqa(folder):
    (folder / "MM").mkdir()
    (folder / "images").mkdir()
    for name in "ab":
        (folder / "images" / f"MM-2002-{name}.jpeg").write_bytes(SET_PICTURES["ab".index(name)])
    row = {"id": "MM-2002", "options": {"A": "C", "B": "D", "C": "A", "D": "B", "E": "None of the above"}, "label": "C",
           "question": "Which artery?\nAnswer Choices: (A) C (B) D (C) A (D) B (E) None of the above",
           "images": ["MM-2002-a.jpeg"], "medical_task": "Basic Medicine", "body_system": "Cardiovascular",
           "question_type": "Understanding"}  # fmt: skip
    second_row = row | {"id": "MM-2003", "options": {"A": "one", "B": "two", "C": "three", "D": "four", "E": "five"}, "label": "E",
                   "question": "What?", "images": ["MM-2002-b.jpeg", "MM-2002-a.jpeg"]}  # fmt: skip
    (folder / "MM" / "test.jsonl").write_text("".join(json.dumps(record) + "\n" for record in (row, second_row)))
    (folder / "MM" / "dev.jsonl").write_text(json.dumps(row | {"id": "MM-0"}) + "\n")
    return {"dev", "test"}, [("Which artery?", ["A"]), ("What?", ["five"])]


def write_mmbench(folder, *names):
    rows = [
        {"index": n, "image": image, "question": "Which?", "hint": hint, "A": "NA", "B": "None", "C": "01", "D": "1.0",
         "answer": answer, "category": "Counting", "l2-category": "Cells", **dict.fromkeys(names, "label")}
        # The second row refers to the image of row 5.
        for n, image, hint, answer in ((5, base64.b64encode(SET_PICTURES[3]).decode(), "Look.", "B"), (6, "5", None, "A"))
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(folder / "Any_VAL.tsv", sep="\t", index=False)
    return {"validation"}, [("Look.\nWhich?", ["None"]), ("Which?", ["NA"])]


def write_gmai(folder):
    return write_mmbench(folder, "clinical vqa task", "department", "perceptual granularity", "modality")


LOCAL_SETS = {
    "slake": write_slake,
    "pmc-vqa": write_pmc_vqa,
    "omnimedvqa": write_omnimedvqa,
    "medxpertqa-mm": write_medxpertqa,
    "mmbench-tsv": write_mmbench,
    "gmai-mmbench-tsv": write_gmai,
}


def check(folder, splits, expected):
    """Compare the questions and right options of the last split, and return the repository."""
    repository = open_repository(folder)
    assert set(repository.splits) == splits
    questions = repository.questions(repository.splits[-1])
    right = [[row["options"][at] for at in row["answer"]] for row in questions.to_dict("records")]
    assert sorted(zip(questions["question"], right, strict=True)) == sorted(expected)
    return repository


@pytest.mark.parametrize("preset", sorted(LOCAL_SETS))
def test_downloaded_files_of_a_known_set(tmp_path, preset):
    source = tmp_path / "source"
    source.mkdir()
    splits, expected = LOCAL_SETS[preset](source)
    report = build("vqa", preset=preset, source=source, out=tmp_path / "out")
    assert report.name == preset
    repository = check(report.folder, splits, expected)
    assert {len(case.images) for case in repository.cases(repository.splits[-1])} <= {1, 2}
    assert PRESETS[preset].licence in (report.folder / "README.md").read_text()
    assert PRESETS[preset].citation in (report.folder / "README.md").read_text()


def upload(api, name, splits, config="default"):
    """Upload split -> rows as the Parquet files that `datasets` writes, with the images' type."""
    features = {column: Value("string") for column in next(iter(splits.values()))[0]}
    features |= {column: Image() for column in features if column.startswith("image")}
    tables = DatasetDict({split: Dataset.from_list(rows, Features(features)) for split, rows in splits.items()})
    for split, table in tables.items():
        file = io.BytesIO()
        table.to_parquet(file)
        path = f"{config}/{split}-0.parquet"
        api.upload_file(path_or_fileobj=file.getvalue(), path_in_repo=path, repo_id=name, repo_type="dataset")


@pytest.mark.exhaustive
def test_known_sets_on_the_hub_are_streamed(local_hub, tmp_path, monkeypatch):
    presets = ["vqa-rad", "pathvqa", "mmmu-medical"]
    names = [PRESETS[preset].source for preset in presets]
    monkeypatch.setitem(ACCOUNTS, CURATOR, Account("curator", tuple(name.split("/")[0] for name in names)))
    api = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    rows = [
        {"image": {"bytes": SET_PICTURES[n % 2], "path": None}, "question": question, "answer": answer}
        for n, (question, answer) in enumerate(OPEN_AND_CLOSED)
    ]
    for name in names:
        api.create_repo(name, repo_type="dataset")
    for name in names[:2]:
        upload(api, name, {"train": rows, "test": rows})
    for config in SUBJECTS:
        base = {f"image_{n}": None for n in range(1, 8)} | {"img_type": "['Pathology']", "subfield": "Anatomy"}
        row = base | {"id": f"validation_{config}_1", "question": "See <image 1> and <image 2>?", "options": "['one', \"it's two\"]",
                      "image_1": {"bytes": SET_PICTURES[0], "path": None}, "image_2": {"bytes": SET_PICTURES[1], "path": None},
                      "answer": "B", "topic_difficulty": "Easy", "question_type": "multiple-choice"}  # fmt: skip
        # Open questions and ones without a published answer are left out.
        blank = row | {"id": f"validation_{config}_2", "options": "[]", "answer": "42", "question_type": "open"}
        hidden = row | {"id": f"test_{config}_1", "answer": "?"}
        upload(api, names[2], {"test": [hidden], "validation": [row, blank]}, config)
    entries = "".join(
        f"- config_name: {config}\n  data_files:\n"
        + "".join(f"  - split: {split}\n    path: {config}/{split}-0.parquet\n" for split in ("validation", "test"))
        for config in SUBJECTS
    )
    api.upload_file(
        path_or_fileobj=f"---\nconfigs:\n{entries}---\n".encode(),
        path_in_repo="README.md",
        repo_id=names[2],
        repo_type="dataset",
    )
    # A folder of images with their rows beside them, as `datasets` opens it.
    api.create_repo("MMMU/images", repo_type="dataset")
    row = {"file_name": "a.png", "question": "Which?", "options": ["NA", "None"], "answer": 1}
    for path, data in (("test/a.png", SET_PICTURES[3]), ("test/metadata.jsonl", json.dumps(row).encode())):
        api.upload_file(path_or_fileobj=data, path_in_repo=path, repo_id="MMMU/images", repo_type="dataset")
    # A process of its own: huggingface_hub reads the address of the Hub once.
    code = f"from dataset_builders.build import build\nfor name in {presets!r}: print(build('vqa', preset=name))\n"
    code += "build('vqa', name='images', source='MMMU/images', fields='answer=answer:index')"
    environment = os.environ | {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=False, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("open questions: 2") == 2
    (case,) = check(tmp_path / "data" / "images", {"test"}, [("Which?", ["None"])]).cases("test")
    assert list(case.images.values()) == [SET_PICTURES[3]]
    closed = [(question, [answer.strip().lower()]) for question, answer in OPEN_AND_CLOSED if answer != "left lobe"]
    for preset in presets[:2]:
        check(tmp_path / "data" / preset, {"train", "test"}, closed)
    right = [("See <image 1> and <image 2>?", ["it's two"])] * 5
    repository = check(tmp_path / "data" / presets[2], {"validation"}, right)
    questions = repository.questions("validation")
    assert set(questions["subject"]) == set(SUBJECTS)
    assert questions["image_kind"].tolist() == ["Pathology"] * 5
    assert all(len(case.images) == 2 for case in repository.cases("validation"))
