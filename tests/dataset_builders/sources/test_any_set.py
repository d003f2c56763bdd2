"""Test sets of questions from any source, and the presets.

One set in every form of source gives the same dataset, and a contradiction is refused with its row.
Small files in each known set's schema, at the usual places, give the same questions; sets on the
Hub are streamed from a loopback Hub under their real names.
"""

import base64
import csv
import io
import json
import os
import random
import string
import sys

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset, DatasetDict, Features, Image as ImageFeature, Value
from huggingface_hub import HfApi
from PIL import Image

from dataset_builders.benchmarks.vqa.presets import PRESETS
from dataset_builders.build import build
from dataset_builders.hub.repository import open_repository
from dataset_builders.images.lookup import encode_png
from tests.helpers import refused, write_lines
from tests.localhub.accounts import ACCOUNTS, CURATOR, Account
from tests.processes import output_of
from tests.sampling import few

OPTION_LETTERS = string.ascii_uppercase
OPTION_TEXTS = (
    "cyst",
    "Nodule",
    "2",
    "no",
    "yes",
    "AC",
    "B",
    "none of these",
    "T1, T2",
    "5 mm; left",
    "it's (rare)",
    "E. coli",
)


def draw_image(rng):
    return encode_png(Image.frombytes("RGB", (4, 4), rng.randbytes(48)))


def random_set(seed, several=False):
    """Draw questions as dicts: text, options (None: yes/no), right options, image, facets,
    split.
    """
    rng = random.Random(seed)
    images = [draw_image(rng) for _ in range(6)]
    questions = [
        {"text": "Which is the first?", "options": OPTION_TEXTS[:5], "right": [OPTION_TEXTS[0]], "image": images[0], "organ": "lung",
         "site": "one", "split": "test"},
        {"text": "Which is the third?", "options": OPTION_TEXTS[:5], "right": [OPTION_TEXTS[4]], "image": images[0], "organ": "lung",
         "site": None, "split": "test"},
    ]  # fmt: skip
    for number in range(30):
        options = rng.sample(OPTION_TEXTS, rng.randint(2, 5)) if rng.random() < 0.8 else None
        right = rng.sample(options, rng.randint(1, 2) if several else 1) if options else [rng.choice(["yes", "no"])]
        questions.append(
            {"text": f"Question {number}\n of \"{seed}\",\tplease?", "options": options, "right": right, "image": rng.choice(images),
             "organ": rng.choice(["lung", "liver", None]), "site": rng.choice(["one", "two"]), "split": rng.choice(["train", "test"])}
        )  # fmt: skip
    return questions


def answer_of(question, form):
    """Return the answer as a source writes it in one form."""
    if question["options"] is None:
        return question["right"][0]
    positions = sorted(question["options"].index(option) for option in question["right"])
    values = {
        "letter": [OPTION_LETTERS[at] for at in positions],
        "index": positions,
        "number": [at + 1 for at in positions],
        "text": [question["options"][at] for at in positions],
    }[form]
    return values[0] if len(values) == 1 else values


def rows_of(questions, form, options_as, image_as):
    for number, question in enumerate(questions):
        options = question["options"]
        row = {
            "Q": question["text"],
            "key": answer_of(question, form),
            "organ": question["organ"],
            "Study site": question["site"],
        }
        if options_as in ("columns", "letters"):
            names = OPTION_LETTERS[:5] if options_as == "letters" else [f"option {at}" for at in range(5)]
            row |= {name: options[at] if options and at < len(options) else None for at, name in enumerate(names)}
        elif options:
            lettered = [f"{OPTION_LETTERS[at]}: {option}" for at, option in enumerate(options)]
            row["choices"] = {
                "list": list(options),
                "object": dict(zip(OPTION_LETTERS, options, strict=False)),
                # Some sources write all options into one text.
                "text": "\n".join(lettered),
                "lettered": lettered,
            }[options_as]
        yield row | {"picture": image_as(number, question["image"]), "split": question["split"]}


def write_source(folder, kind, questions, form):
    """Write a set as one kind of source, and return the source and the text of --map."""
    folder.mkdir()
    encode = lambda number, data: base64.b64encode(data).decode()  # noqa: E731

    def store(number, data):
        name = f"images/{number % 3}/{number}.png"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        return name

    columns = "option 0;option 1;option 2;option 3;option 4"
    if kind in ("tsv", "csv"):
        is_tsv = kind == "tsv"
        rows = list(rows_of(questions, form, "letters" if is_tsv else "columns", encode if is_tsv else store))
        with (folder / f"my.{kind}").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if kind == "tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
        source = folder / f"my.{kind}"
        if is_tsv:  # its columns are found by their letters, among which Q is the question
            return source, f"question=Q,answer=key:{form},image=picture,facets=organ;site=Study site"
    elif kind == "json":
        rows = list(
            rows_of(questions, form, "object", lambda number, data: f"data:image/png;base64,{encode(number, data)}")
        )
        (folder / "my.json").write_text(json.dumps({"questions": rows}))
        source, columns = folder, "choices"
    elif kind == "folder":
        for split in ("train", "test"):
            (folder / split).mkdir()
            rows = list(rows_of([q for q in questions if q["split"] == split], form, "lettered", store))
            for row in rows:
                name = row.pop("picture")
                row["file_name"] = name
                (folder / split / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).rename(folder / split / name)
                del row["split"]
            write_lines(folder / split / "metadata.jsonl", rows)
        return folder, f"question=Q,options=choices,answer=key:{form},image=file_name,facets=organ;site=Study site"
    elif kind == "jsonl":
        source, columns = write_lines(folder / "my.jsonl", rows_of(questions, form, "text", encode)), "choices"
    else:
        rows = list(rows_of(questions, form, "list", lambda number, data: {"bytes": data, "path": f"{number}.png"}))
        table = pd.DataFrame(rows)
        # A column of a Parquet file has one type, so all answers become lists of texts.
        table["key"] = [value if isinstance(value, list) else [str(value)] for value in table["key"]]
        table["key"] = [list(map(str, value)) for value in table["key"]]
        table.to_parquet(folder / "my.parquet", index=False)
        source, columns = folder / "my.parquet", "choices"
    return source, f"question=Q,options={columns},answer=key:{form},image=picture,facets=organ;site=Study site"


def content_of(folder):
    """Return (split, question, options, right, type, organ, site, pixels, case) of every
    question.
    """
    repository = open_repository(folder)
    content = set()
    for split in repository.splits:
        pixels = {
            name: np.asarray(Image.open(io.BytesIO(data))).tobytes()
            for case in repository.cases(split)
            for name, data in case.images.items()
        }
        for row in repository.questions(split).to_dict("records"):
            right = frozenset(row["options"][at] for at in row["answer"])
            content.add(
                (split, row["question"], tuple(row["options"]), right, row["question_type"], row.get("organ"), row.get("site"),
                 pixels[row["image_id"]], row["case_id"] == row["image_id"])
            )  # fmt: skip
    return content


def expected_content(questions):
    """Return what `content_of` must return for these questions."""
    content = set()
    for question in questions:
        kind = "yes_no" if question["options"] is None else "multiple" if len(question["right"]) > 1 else "single"
        pixels = np.asarray(Image.open(io.BytesIO(question["image"]))).tobytes()
        options = tuple(question["options"] or ("yes", "no"))
        content.add(
            (question["split"], question["text"], options, frozenset(question["right"]), kind, question["organ"],
             question["site"], pixels, True)
        )  # fmt: skip
    return content


@pytest.mark.parametrize("seed", few(range(4)))
@pytest.mark.parametrize("form", ["letter", "index", "number", "text"])
def test_a_set_in_every_form_of_source_is_the_same_dataset(tmp_path, form, seed):
    questions = random_set(seed)
    fingerprints = []
    for kind in ("tsv", "csv", "json", "jsonl", "parquet", "folder"):
        source, fields = write_source(tmp_path / kind, kind, questions, form)
        report = build("vqa", name="mine", source=source, fields=fields, out=tmp_path / f"{kind}-out")
        assert content_of(report.folder) == expected_content(questions), kind
        manifest = open_repository(report.folder).manifest
        fingerprints.append({split: part["fingerprint"] for split, part in manifest["splits"].items()})
    # The fingerprint does not depend on the form of the source.
    assert fingerprints == [fingerprints[0]] * len(fingerprints)


@pytest.mark.parametrize("seed", few(range(20, 24)))
def test_several_right_options_are_read_in_every_form(tmp_path, seed):
    questions = random_set(seed, several=True)
    for kind, form in (("json", "letter"), ("jsonl", "index"), ("folder", "number"), ("parquet", "text")):
        source, fields = write_source(tmp_path / kind, kind, questions, form)
        report = build("vqa", name="mine", source=source, fields=fields, out=tmp_path / f"{kind}-out")
        rows = content_of(report.folder)
        # In a set with several right options, a list of one is a question of the same kind.
        assert {row[:4] for row in rows} == {row[:4] for row in expected_content(questions)}
        assert {row[4] for row in rows if len(row[3]) > 1} == {"multiple"}


GOOD = {"question": "Which?", "options": ["one", "two", "three"], "answer": "B", "id": "7"}
BAD_ROWS = [
    ({"answer": "D"}, "'D' is none of its options"),
    ({"answer": "four"}, "'four' is none of its options"),
    ({"answer": ["A", "A"]}, "is none of its options"),
    ({"answer": None}, "has no answer"),
    ({"answer": " "}, "has no answer"),
    ({"options": ["one", " one", "two"]}, "two options are 'one'"),
    ({"options": ["one", None, "two"]}, "an option before the last is empty"),
    ({"options": ["one"]}, "has 1 option"),
    ({"options": [f"option {n}" for n in range(27)]}, "has 27 options"),
    ({"options": "A: one B: two A: three"}, "in several ways"),
    ({"options": ["B: one", "A: two", "C: three"]}, "in another order"),
    ({"question": ""}, "has no question"),
    ({"image": "https://example.org/a.png"}, "is a URL"),
    ({"image": "data:image/png;base64,%%%"}, "not base64"),
    ({"image": 7}, "expected bytes, base64 or a path"),
    ({"image": "../../a.png"}, "leaves its folder"),
    ({"image": None}, "has no image"),
    ({"image": base64.b64encode(b"x" * 90).decode()}, "not an image"),
    ({"id": "1"}, "id '1' already occurs"),
    ({"question": "a\0b"}, "invalid character"),
]


@pytest.mark.parametrize(("change", "message"), BAD_ROWS, ids=[message for _, message in BAD_ROWS])
def test_a_row_that_contradicts_itself_refuses_the_set_and_is_named(tmp_path, change, message):
    rng = random.Random(1)
    rows = [GOOD | {"id": str(n), "image": base64.b64encode(draw_image(rng)).decode()} for n in range(5)]
    rows[3] |= change
    source = write_lines(tmp_path / "my.jsonl", rows)
    line = refused(build, "vqa", name="mine", source=source, fields="id=id", out=tmp_path / "out")
    assert message in line and "row 4" in line
    assert not (tmp_path / "out").exists()


def test_answers_that_can_be_read_in_two_ways_are_refused_until_the_form_is_named(tmp_path):
    rows = [GOOD | {"options": ["1", "2", "3"], "answer": answer} for answer in (1, 2, 1)]
    source = write_lines(tmp_path / "my.jsonl", rows)
    options = {"name": "mine", "source": source, "text_only": True}
    line = refused(build, "vqa", **options, out=tmp_path / "out")
    assert "row 1: the answer 1 is option B by its index, and option A by its number" in line
    for form, position in (("index", 1), ("number", 0), ("text", 0)):
        report = build("vqa", **options, fields=f"answer=answer:{form}", out=tmp_path / form)
        assert open_repository(report.folder).questions("test")["answer"].tolist()[0] == [position]


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
    features |= {column: ImageFeature() for column in features if column.startswith("image")}
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
    reports = output_of([sys.executable, "-c", code], env=environment, cwd=tmp_path)
    assert reports.count("open questions: 2") == 2
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
