"""Custom sets in the formats of HALT-MedVQA and ProbMed: written by commands, built and loaded."""

import csv
import json
import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from curation.custom_sets.custom_questions import read_custom_questions
from curation.custom_sets.hallucination import NONE_OPTION, UNKNOWN_OPTION
from dataset_builders.build import build
from dataset_builders.contents.pseudonyms import load_pseudonyms
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from dataset_builders.schema import LETTERS
from dataset_builders.source_files import strip_option_letters
from tests.curation.commands import curate
from tests.curation.model_server import model_server
from tests.helpers import refused, write_lines
from tests.sampling import few

ORGANS = ("brain", "chest", "knee")


def original_image_names(out, images):
    """Map the names of images in a set to their original names."""
    names = [path.relative_to(images).as_posix() for path in images.rglob("*.png")]
    return {f"{load_pseudonyms(out).id_for('i', name)}.png": name for name in names}


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    rng = np.random.default_rng(0)
    for k in range(9):
        path = folder / ORGANS[k % 3] / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 20), dtype=np.uint8)).save(path)
    return folder


@pytest.fixture
def questions(tmp_path, images):
    """Three questions on each of nine images; option A is always correct."""
    rows = [
        {
            # The number of the picture makes each text unique: no other question gives its answer
            # away.
            "image": f"{ORGANS[k % 3]}/{k}.png", "organ": ORGANS[k % 3],
            "question": f"What is number {n} of this {ORGANS[k % 3]} in picture {k}?",
            "option_A": "right", "option_B": "spotted", "option_C": "striped", "option_D": "plain", "answer": "A" if n else "right",
        }
        for k in range(9)
        for n in range(3)
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(tmp_path / "questions.csv", index=False)
    # Two consecutive images are of the same patient.
    pd.DataFrame(
        {"image": f"{ORGANS[k % 3]}/{k}.png", "group": f"p{k // 2}", "license": "CC BY 4.0", "source": "Ward 7"}
        for k in range(9)
    ).to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "questions.csv"


def reply_with_fake(prompt, times_asked):
    number = int(re.search(r"Variation (\d+)", prompt)[1])
    # two replies to repeat: equal options, and an option that avoids an answer
    if number == 4 and times_asked < 2:
        return f"Question: Again?\nA: one\nB: {('one', 'It cannot be known')[times_asked]}\nC: two\nD: three"
    return f"**Question:** Which spell number {number} heals a dragon?\nA) fire\nB) water\nC) earth\nD) air"


def test_custom_questions_become_fake_none_and_swap(images, questions, tmp_path):
    out = tmp_path / "own-halt"
    with model_server(reply_with_fake) as (url, log):
        command = (
            "hallucinate",
            questions,
            "--images",
            images,
            "--model",
            "stand-in",
            "--base-url",
            url,
            "--fakes",
            12,
        )
        options = ("--unrelated-by", "organ", "--table", tmp_path / "table.csv")
        with pytest.raises(
            BadInput, match=r"text alone gives answers away \(27 of 27 correct without the image, 7 expected by"
        ):
            curate(*command, "--out", out, *options)
        # Every question has the same correct option, so such a set must be accepted explicitly.
        options = (*options, "--accept-text-alone")
        output = curate(*command, "--out", out, *options)
        assert "fake: 24" in output
        assert len(log.requests) == 14  # two replies were invalid and requested again
        assert "already exists" in refused(curate, *command, "--out", out, *options)
        curate(*command, "--out", tmp_path / "another", *options)
        assert len(log.requests) == 14  # replies are paid for once, even for another --out
    kinds = {re.search(r"\. (It .*)$", prompt, re.MULTILINE)[1] for _, prompt in log.requests}
    assert len(kinds) == 3
    report = build("halt-medvqa", name="own-halt", source=out, out=tmp_path / "data")
    # A user's own set is not compared with the published benchmark.
    assert not any("paper" in line or "not balanced" in line for line in report.lines)
    rows = open_repository(tmp_path / "data").questions("test")
    assert rows["scenario"].value_counts().to_dict() == {"none": 54, "swap": 54, "fake": 24}
    assert rows["group"].str.fullmatch("g-[0-9a-f]{16}").all() and rows["group"].nunique() == 5
    assert set(zip(rows["image_license"], rows["image_source"], strict=True)) == {("CC BY 4.0", "Ward 7")}
    own_images = {q.question: q.image for q in read_custom_questions(questions)}
    rows["image_id"] = rows["image_id"].map(original_image_names(out, images))
    rows["correct"] = [options[answer[0]] for options, answer in zip(rows["options"], rows["answer"], strict=True)]
    rows["way_out"] = rows["scenario"].map({"none": NONE_OPTION}).fillna(UNKNOWN_OPTION)
    assert all(way_out in options for way_out, options in zip(rows["way_out"], rows["options"], strict=True))
    controls, others = rows[rows["correct"] != rows["way_out"]], rows[rows["correct"] == rows["way_out"]]
    # Always choosing the option without an answer scores 50 %.
    assert controls["scenario"].value_counts().to_dict() == {"none": 27, "swap": 27, "fake": 12}
    assert set(controls["correct"]) == {"right"}
    assert controls["image_id"].equals(controls["question"].map(own_images))
    none_rows, swap_rows = (others[others["scenario"] == scenario] for scenario in ("none", "swap"))
    assert none_rows["image_id"].equals(none_rows["question"].map(own_images))
    assert not any("right" in options for options in none_rows["options"])
    # The swapped image is never of the same patient.
    for image, own_image in zip(swap_rows["image_id"], swap_rows["question"].map(own_images), strict=True):
        assert int(Path(image).stem) // 2 != int(Path(own_image).stem) // 2
    assert swap_rows["image_id"].value_counts().max() <= 4
    for _, part in rows.groupby("scenario"):
        letters = Counter(answer[0] for answer in part["answer"])
        assert max(letters.values()) - min(letters.values()) <= 2  # letters are balanced


def test_no_option_is_lost_with_its_letter():
    for count in range(2, 40):
        plain = tuple(f"option {number}" for number in range(count))
        lettered = [f"{LETTERS[at]}: {text}" if at < len(LETTERS) else text for at, text in enumerate(plain)]
        assert strip_option_letters(lettered) == strip_option_letters(plain) == plain


@pytest.mark.parametrize("seed", few(range(40), 10))
def test_all_spellings_of_options_give_the_same_question(seed, tmp_path):
    rng = random.Random(seed)
    texts = rng.sample(
        ["glioma", "A. fumigatus", "cyst", "2 cm", "(C) fold", "None of these", "Bone: left"], rng.randrange(2, 6)
    )
    correct = rng.randrange(len(texts))
    marker = rng.choice(["", " {}:", "{}: ", "({}) ", "{}. ", "[{}] ", "{} - "])
    marked_texts = [f"{marker.format(letter)}{text}" for letter, text in zip("ABCDE", texts, strict=False)]
    answer = rng.choice(["ABCDE"[correct], "abcde"[correct], texts[correct], f"{'ABCDE'[correct]}: {texts[correct]}"])
    # An answer that is both a letter and an option's text is ambiguous by design.
    if answer in "ABCDEabcde" and answer.casefold() in (text.casefold() for text in texts):
        return
    row = {"image": "x.png", "question": "Which?", "answer": answer}
    letters = dict(zip(rng.choice(["ABCDE", "abcde"]), marked_texts, strict=False))
    shuffled = dict(rng.sample(list(letters.items()), len(letters)))
    spellings = [
        {"options": marked_texts},
        {"options": letters},
        {"options": shuffled},
        {"options": letters | {"F": None}},
    ]
    spellings += [{f"{name}{letter}": text for letter, text in shuffled.items()} for name in ("option_", "Choice ")]
    spellings += [{"choices": letters}]
    for spelling in spellings:
        write_lines(tmp_path / "q.jsonl", [row | spelling])
        csv_cells = {k: v if isinstance(v, str) else json.dumps(v) for k, v in spelling.items()}
        pd.DataFrame([row | csv_cells]).to_csv(tmp_path / "q.csv", index=False)
        for file in ("q.jsonl", "q.csv"):
            (question,) = read_custom_questions(tmp_path / file)
            assert (question.options, question.answer) == (tuple(texts), correct), (spelling, file)
    # A gap in the letters may hide an option that was lost.
    del letters[next(iter(letters))]
    for bad_options in ({"options": letters}, {"options": [{"text": text} for text in texts]}):
        write_lines(tmp_path / "q.jsonl", [row | bad_options])
        with pytest.raises(BadInput, match=r"consecutive letters|not strings"):
            read_custom_questions(tmp_path / "q.jsonl")


def test_custom_fake_questions_need_no_model(images, questions, tmp_path):
    fakes = tmp_path / "fakes.jsonl"
    fakes.write_text(json.dumps({"question": "Which moon is this?", "options": ["Io", "Europa"]}) + "\n")
    rows = pd.read_csv(questions, dtype=str)
    # The same patients, spelled with different spaces.
    rows.assign(group=[f"p{'  ' * (n % 2)} {n // 6}" for n in range(len(rows))]).to_csv(questions, index=False)
    command = f"hallucinate {questions} --images {images} --out {tmp_path / 'o'} --fake-questions {fakes}"
    curate(f"{command} --accept-text-alone")
    fake_entries = json.loads((tmp_path / "o" / "fake_qa_shuffle.json").read_text())
    assert sorted(fake_entries["0"]["option"].values()) == sorted(["Io", "Europa", UNKNOWN_OPTION])
    image_dict = json.loads(
        (tmp_path / "o" / "image_dict.json").read_text()
    )  # two images per patient, one for the last
    assert sorted(Counter(image["group"] for image in image_dict.values()).values()) == [1, 2, 2, 2, 2]
    assert "Give one of the two" in refused(
        curate, "hallucinate", questions, "--images", images, "--out", tmp_path / "p"
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answer": "E"}, "neither the letter nor the text"),
        ({"option_B": "A", "answer": "A"}, "or matches two"),
        ({"option_B": "Right"}, "same option twice"),
        ({"image": "../x.png"}, "leaves its folder"),
        ({"question": ""}, "no question"),
        ({"option_B": "", "option_C": "", "option_D": ""}, "1 options"),
    ],
)
def test_all_invalid_rows_are_listed(questions, row, message):
    table = pd.read_csv(questions, dtype=str)
    for number in (3, 5):
        for name, value in row.items():
            table.loc[number, name] = value
    table.to_csv(questions, index=False)
    with pytest.raises(BadInput, match=message) as refused:
        read_custom_questions(questions)
    assert "row 4" in str(refused.value)
    assert "row 6" in str(refused.value)


@pytest.fixture
def probe_table(tmp_path, images):
    rows = [
        ("image", "organ", "modality", "findings", "positions", "absent", "license"),
        ("0.png", "brain", "MRI", "cyst; glioma", "upper left;lower right", "aneurysm", "CC BY"),
        ("3.png", "brain", "MRI", "aneurysm", "upper right", "cyst; no glioma", "CC BY"),
        ("6.png", "brain", "MRI", "No Finding", "", "", "CC BY"),
        ("1.png", "Chest", "X-ray", "Effusion | Hernia", "lower left|", "", "unknown"),
        # no finding stated: unknown, not normal
        ("4.png", "Chest", "X-ray", "", "", "", "unknown"),
        ("7.png", "Chest", "X-ray", "normal", "", "", "unknown"),
    ]
    pd.DataFrame(rows[1:], columns=rows[0]).to_csv(tmp_path / "probe.csv", index=False)
    return tmp_path / "probe.csv"


def test_a_table_of_images_becomes_probes_with_adversarial_counterparts(images, probe_table, tmp_path):
    output = curate("probe", probe_table, "--images", images, "--out", tmp_path / "own-probmed", "--unbalanced")
    assert "1 labels were skipped" in output and "'no glioma': is negated ('no')" in output
    assert "not asked: position" in output  # no other image has a position of such a finding
    report = build("probmed", name="own-probmed", source=tmp_path / "own-probmed", out=tmp_path / "data")
    assert not any("paper" in line or "Table" in line for line in report.lines)
    rows = open_repository(tmp_path / "data").questions("test")
    # Ids are keyed; map them back to the names that the table uses.
    original_names = original_image_names(tmp_path / "own-probmed", images)
    rows["case_id"] = rows["case_id"].map({Path(keyed).stem: name for keyed, name in original_names.items()})
    rows = rows.set_index(rows["case_id"] + "-" + rows["qa_type"])
    pair_types = {f"{aspect}_{side}" for aspect in ("modality", "body_part") for side in ("gt", "hallu")}
    for image, types in (
        ("brain/0.png", {"abnormality", "entity_gt_0", "entity_hallu_0", "entity_gt_1", "entity_hallu_1"}),
        ("brain/6.png", {"abnormality", "entity_hallu"}),
        # Nothing is known to be absent.
        ("chest/1.png", {"abnormality"}),
        # Its findings are unknown.
        ("chest/4.png", set()),
    ):
        assert set(rows["qa_type"][rows["case_id"] == image]) == types | pair_types
    assert set(rows["image_type"]) == {"brain_mri", "chest_xray"}
    assert rows.loc["brain/0.png-entity_hallu_0", "question"] == "Does this image show aneurysm?"
    assert rows.loc["brain/6.png-abnormality", "answer"][0] == 1
    assert (rows["adversarial"] == rows["answer"].map(lambda key: key[0] == 1))[rows["aspect"] != "abnormality"].all()
    # A pair consists of a question and its counterpart.
    assert rows["pair_id"].value_counts().max() == 2
    assert rows.loc["brain/0.png-abnormality", "image_license"] == "CC BY"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("5.png", "spine", "CT", "mass", "upper;lower", "", ""), "1 findings and 2 positions"),
        (("5.png", "spine", "", "mass", "", "", ""), "no image, organ or modality"),
        (("0.png", "brain", "MRI", "mass", "", "", ""), "already has a row"),
        (("5.png", "spine", "CT", "mass;normal", "", "", ""), "is normal and has findings"),
        (("5.png", "spine?", "CT", "mass", "", "", ""), "not a plain organ"),
        (("12.png", "spine", "CT", "mass", "", "", ""), "are not in the folder"),
    ],
)
def test_invalid_rows_of_a_probe_table_are_named(images, probe_table, tmp_path, row, message):
    with probe_table.open("a", newline="") as file:
        # The valid rows stay, since one invalid row must be enough to refuse the table.
        csv.writer(file).writerow(row)
    with pytest.raises(BadInput, match=message):
        curate("probe", probe_table, "--images", images, "--out", tmp_path / "o")
    assert not (tmp_path / "o").exists()


@pytest.mark.sources
def test_chestxray14_tables_are_read_as_published(sources, tmp_path):
    nih = sources / "chestxray14"
    words = (
        "probe", nih / "Data_Entry_sample.csv", "--images", nih / "images", "--out", tmp_path / "o", "--organ", "chest",
        "--modality", "X-ray", "--image-column", "Image Index", "--findings-column", "Finding Labels",
        "--boxes", nih / "BBox_List_2017.csv", "--unbalanced", "--no-text-search",
    )  # fmt: skip
    assert "boxes: 0 give a position" in curate(*words)
    build("probmed", name="o", source=tmp_path / "o", out=tmp_path / "data")
    rows = open_repository(tmp_path / "data").questions("test").set_index("question_id")
    # No finding is known to be absent, and an aspect whose only answer would be no is not asked
    # about.
    assert set(rows["qa_type"]) == {"abnormality"}
    assert set(rows["answer"].map(lambda answer: answer[0])) == {0, 1}
