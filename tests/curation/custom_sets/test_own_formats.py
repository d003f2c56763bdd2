"""Custom sets in the formats of HALT-MedVQA and ProbMed: written by commands, built and loaded.

Over generated questions, SWAP never assigns an image that can answer the question.
"""

import csv
import json
import random
import re
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from curation.custom_sets.custom_questions import (
    CustomQuestion,
    has_single_answer,
    read_custom_questions,
    refers_to_options,
)
from curation.custom_sets.hallucination import (
    CONTROL_SUFFIX,
    NONE_OPTION,
    UNKNOWN_OPTION,
    ImageRelations,
    build_fake_entries,
    build_none_entries,
    build_swap_entries,
)
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


SWAP_ORGANS = (
    "brain",
    "chest",
    "lung",
    "abdomen",
    "knee",
    "spine",
    "Chest",
    "heart",
    "unheard-of gland",
    "skin",
    "whole body",
)
OVERLAPPING_ORGANS = [{"chest", "lung", "heart", "Chest", "spine", "abdomen"}, {"brain", "spine"}]
LESIONS = ("tumour", "tumor", "cyst", "cysts", "stone", "Fracture", "scar", "ulcer", "normal", "no lesion")
QUESTIONS_NAMING_ORGAN = (
    "Which lesion of the {} is shown?",
    "What is wrong with this {}?",
    "Where in the {} is the mass?",
)
QUESTIONS_ON_ANY_IMAGE = (
    "Which lesion is shown?",
    "Is a fracture visible?",
    "Which modality is this?",
    "Is the plane axial?",
    "What is the diagnosis?",
)


@pytest.mark.parametrize("seed", few(range(20), 5))
def test_a_swapped_image_cannot_answer(seed):
    rng = random.Random(seed)
    organs = {f"{n}.png": rng.choice(SWAP_ORGANS) for n in range(24)}
    groups = {image: f"p{rng.randrange(10)}" for image in organs}
    hashes = {image: rng.getrandbits(64) for image in organs}
    for _ in range(4):
        image_a, image_b = rng.sample(list(organs), 2)
        # Make some images near-duplicates of each other.
        hashes[image_b] = hashes[image_a] ^ (1 << rng.randrange(64))
    questions = [
        CustomQuestion(
            image,
            rng.choice(QUESTIONS_NAMING_ORGAN if rng.random() < 0.7 else QUESTIONS_ON_ANY_IMAGE).format(organs[image])
            + rng.choice(["", f" ({n})"]),
            ("yes", "no") if rng.random() < 0.1 else (*rng.sample(LESIONS, 2), rng.choice(["the brain", "effusion"])),
            0,
            organs[image],
        )
        for image in organs
        for n in range(2)
    ]
    # Controls must be the user's own questions, unchanged.
    own_answers = {(q.image, q.question, q.options[q.answer]) for q in questions}
    entries, left_out = build_swap_entries(questions, ImageRelations(groups, hashes), seed)
    # Every question is either left out or has an entry and a control.
    assert len(entries) + 2 * left_out.total() == 2 * len(questions)
    asked_pairs = {(q.image, q.question) for q in questions}
    for key, entry in entries.items():
        own_image, image = entry["original_img"], entry["img"]
        if key.endswith(CONTROL_SUFFIX):
            assert image == own_image and (image, entry["question"], entry["answer"]) in own_answers
            assert entry["option"] == entries[key.removesuffix(CONTROL_SUFFIX)]["option"]
            continue
        assert entry["answer"] == UNKNOWN_OPTION == entry["option"][entry["answer_id"]]
        assert own_image != image and groups[own_image] != groups[image]
        # more than `MAX_HASH_DISTANCE`, so not a near-duplicate
        assert bin(hashes[own_image] ^ hashes[image]).count("1") > 6
        assert organs[own_image] != organs[image] and not any(
            {organs[own_image], organs[image]} <= shared for shared in OVERLAPPING_ORGANS
        )
        assert (image, entry["question"]) not in asked_pairs
        assert entry["question"] not in QUESTIONS_ON_ANY_IMAGE
        assert (
            "modality" not in entry["question"]
            and "plane" not in entry["question"]
            and "yes" not in entry["option"].values()
        )
        options = set(entry["option"].values())
        assert not options & {"no", "normal", "no lesion"}
        # What is unknown, or shown on images of any organ, excludes nothing.
        assert not {organs[own_image], organs[image]} & {"skin", "unheard-of gland", "whole body"}
        assert not ("the brain" in entry["option"].values() and organs[image] in ("brain", "spine"))
    # Balanced within each number of options.
    letters = Counter((len(e["option"]), e["answer_id"]) for k, e in entries.items() if not k.endswith(CONTROL_SUFFIX))
    assert not letters or max(letters.values()) - min(letters.values()) <= 1 + (len(letters) < 4)


REFERRING_OPTIONS = (
    "Both A and C", "All of the above", "A and B", "a & b", "A, B and D", "both (a) and (b)", "(A)+(C)", "Only A", "B only",
    "Options 1 and 2", "Choices A and C", "Both", "Neither", "Neither A nor B", "Any of these", "All of these", "None of these",
    "Either B or C", "1 and 3", "i and iii", "(i) and (ii)", "Both of the above", "A or B", "All options are correct",
    "All of them", "Two of the above", "The above", "More than one of the above", "Both are correct", "All three", "A/B",
    "Options A & B", "Both options", "Everything above", "A & C are true", "Both of these findings", "Answers B and C",
    "A plus B", "All the above", "Any of the above is possible", "Each of the above", "The first two", "All",
    "Both statements are true", "Combination of A and B", "The other options", "Only (ii)", "None of the above",
    "Both A and C are seen", "All answers are correct", "Some of the above", "Not A", "See A", "1st and 2nd", "Every option",
)  # fmt: skip
ABSTENTIONS = (
    "Other", "Something else", "Another diagnosis", "Not listed", "Unlisted", "Uncertain", "Cannot determine", "Can't tell", "Not sure",
    "N/A", "Insufficient information", "Indeterminate", "Unclear", "More information needed", "Unknown", "Undetermined", "It depends",
    "None", "Nothing", "I don't know", "Not specified", "Any other disease", "Inconclusive", "A different organ", "Elsewhere", "Maybe",
    "No diagnosis possible", "Cannot be assessed", "Impossible to say", "Others",
)  # fmt: skip
MEANINGFUL_OPTIONS = (
    "Hepatitis A", "Both kidneys", "All lobes of the liver", "Vitamin D", "Type B dissection", "Left lower lobe", "None", "1",
    "2 cm", "Grade 3", "Above the diaphragm", "A cyst", "The first rib", "Stanford A", "Below the carina", "C5 and C6", "L1",
    "T2 and T3", "Two nodules", "Both lungs", "A mass and an effusion", "Oedema",
)  # fmt: skip

BRAIN_QUESTION = CustomQuestion("brain.png", "What is in this brain?", ("a clot", "gliosis"), 0, "brain")
"""A second question, since a swap needs the image of another organ."""


@pytest.mark.parametrize("option", [*few(REFERRING_OPTIONS, 8), *few(ABSTENTIONS, 8)])
def test_a_question_with_an_option_that_refers_to_others_or_abstains_is_never_altered(option):
    for position, answer in product(range(3), range(3)):
        options = ["a cyst", "a stone"]
        options.insert(position, option)
        question = CustomQuestion("x.png", "What is in this kidney?", tuple(options), answer, "kidney")
        none_entries, left_out = build_none_entries([question, BRAIN_QUESTION], 0)
        [reason] = left_out
        assert {entry["img"] for entry in none_entries} == {"brain.png"} and left_out[reason] == 1
        assert option in ABSTENTIONS or reason == "an option refers to other options"
        entries, left_out = build_swap_entries([question, BRAIN_QUESTION], ImageRelations({}, {}), 0)
        assert all(entry["question"] != question.question for entry in entries.values())
        assert left_out[reason] == 1
        assert build_fake_entries([], ["x.png"], 0, [question]) == {}


def test_which_options_refer_to_others():
    assert [option for option in REFERRING_OPTIONS if not refers_to_options(option)] == []
    assert [option for option in MEANINGFUL_OPTIONS if refers_to_options(option)] == []


@pytest.mark.parametrize(
    ("correct", "option", "is_distinct"),
    [
        ("pneumonia", "pneumothorax", True), ("lobar pneumonia", "pneumonia", False), ("pneumonia", "bacterial pneumonia", False),
        ("enlarged heart", "cardiomegaly", False), ("both lungs", "left lung", False), ("left lung", "right lung", True),
        ("bilateral", "left", False), ("more than 5 cm", "over 3 cm", False), ("5", "2 to 9", False),
        ("> 4", "7", False), ("5 cm", "7 cm", True),
        ("COVID-19", "lung opacity", False), ("cyst", "stone", True), ("a large cyst", "cyst", False),
        ("cerebellum", "brain", False), ("left upper lobe", "left lung", False), ("left upper lobe", "right lung", True),
        ("macula", "retina", False), ("retina", "eye", False), ("liver", "abdomen", False), ("liver", "spleen", True),
        ("MRI", "magnetic resonance imaging", False), ("FLAIR", "MRI", False), ("T1", "T2", True), ("mammogram", "X-ray", False),
        ("CT", "MRI", True), ("kidney stone", "kidney cyst", True), ("5 cm", "50 mm", False), ("5", "five", False),
        ("grade II", "grade 2", False), ("grade II", "grade III", True), ("50%", "half", False), ("1,000", "1000", False),
        ("0.5 cm", "5mm", False), ("0.5 cm", "5 cm", True), ("haemorrhage", "hemorrhage", False), ("over 2 cm", "over 3 cm", False),
    ],
)  # fmt: skip
def test_none_of_the_above_is_correct_only_if_no_other_option_may_be(correct, option, is_distinct):
    question = CustomQuestion("x.png", "What is it?", (correct, option, "a shadow"), 0)
    assert has_single_answer(question) is is_distinct
    entries, _ = build_none_entries([question], 0)
    assert len(entries) == 2 * is_distinct
    assert [entry[f"choice_{entry['answer']}"][3:] for entry in entries] == [NONE_OPTION, correct][: len(entries)]


ANSWERABLE_BY_ANY_IMAGE = """
Which of these is NOT seen in this knee? || tear|cyst
All are in the knee EXCEPT || tear|cyst
Which ligament of the knee is intact? || ACL|PCL
What does the knee lack? || tear|cyst
What is missing in the knee? || a meniscus|a bone
Which finding is absent from this knee? || tear|cyst
How many cysts has the knee? || 0|1
How many cysts has the knee? || zero|one
What grade has the knee? || KL 0|KL 1
Is the knee torn? || True|False
Is the knee torn? || y|n
What does the knee show? || a tear|intact
What does the knee show? || a tear|there is no tear
What does the knee show? || a tear|clear
How old is the patient with this knee? || 10|70
Is it a knee of a man? || male|female
What does the knee show? || a tear|unaffected
"""
"""Questions (and options) on a knee that any image answers.

They ask for what is absent, or an option is correct for every image.
"""


@pytest.mark.parametrize(
    ("text", "options", "is_asked"),
    [
        *((*line.split(" || "), False) for line in ANSWERABLE_BY_ANY_IMAGE.strip().splitlines()),
        ("Is a fracture visible?", "a tear|a cyst", False),
        ("Which lesion of the brain is shown?", "a tear|a cyst", False),
        ("What does this MRI show?", "a tear|a cyst", False),
        ("Which ligament of the knee is torn?", "a tear|a cyst", True),
        ("What is wrong with this knee or brain?", "a tear|a cyst", False),
        ("What is wrong with the body?", "a tear|a cyst", False),
    ],
)
def test_only_a_question_that_names_an_organ_of_its_image_is_swapped(text, options, is_asked):
    """The image of the brain could answer any question that does not name the knee."""
    knee_question = CustomQuestion("knee.png", text, tuple(options.split("|")), 0, "knee")
    entries, _ = build_swap_entries([knee_question, BRAIN_QUESTION], ImageRelations({}, {}), 0)
    assert any(entry["question"] == text for entry in entries.values()) is is_asked
