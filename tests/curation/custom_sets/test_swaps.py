"""SWAP never assigns an image that can answer the question, over generated questions."""

import random
from collections import Counter

import pytest

from curation.custom_sets.custom_questions import CustomQuestion
from curation.custom_sets.hallucination import (
    CONTROL_SUFFIX,
    NONE_OPTION,
    UNKNOWN_OPTION,
    ImageRelations,
    build_fake_entries,
    build_none_entries,
    build_swap_entries,
)
from curation.custom_sets.option_texts import has_single_answer, refers_to_options
from tests.sampling import few

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


@pytest.mark.parametrize("option", few(REFERRING_OPTIONS, 8))
def test_a_question_with_an_option_that_refers_to_others_is_never_altered(option):
    for position in range(3):
        options = ["a cyst", "a stone"]
        options.insert(position, option)
        for answer in range(3):
            question = CustomQuestion(
                "x.png",
                "What is in this kidney?",
                tuple(options),
                answer,
                "kidney",
            )
            # A second question, since a swap needs the image of another organ.
            usable_question = CustomQuestion(
                "y.png",
                "What is in this brain?",
                ("a clot", "gliosis"),
                0,
                "brain",
            )
            none_entries, left_out = build_none_entries([question, usable_question], 0)
            assert {entry["img"] for entry in none_entries} == {"y.png"} and left_out == {
                "an option refers to other options": 1
            }
            entries, left_out = build_swap_entries(
                [question, usable_question],
                ImageRelations({}, {}),
                0,
            )
            assert all(entry["question"] != question.question for entry in entries.values())
            assert left_out["an option refers to other options"] == 1
            assert build_fake_entries([], ["x.png"], 0, [question]) == {}


@pytest.mark.parametrize("option", few(ABSTENTIONS, 8))
def test_a_question_with_an_abstention_is_never_altered(option):
    question = CustomQuestion(
        "x.png",
        "What is in this kidney?",
        ("a cyst", "a stone", option),
        0,
        "kidney",
    )
    usable_question = CustomQuestion(
        "y.png",
        "What is in this brain?",
        ("a clot", "gliosis"),
        0,
        "brain",
    )
    assert build_none_entries([question], 0)[0] == [] and build_fake_entries([], ["x.png"], 0, [question]) == {}
    assert all(
        entry["question"] != question.question
        for entry in build_swap_entries([question, usable_question], ImageRelations({}, {}), 0)[0].values()
    )


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
    brain_question = CustomQuestion(
        "brain.png",
        "What is in this brain?",
        ("a clot", "gliosis"),
        0,
        "brain",
    )
    entries, _ = build_swap_entries([knee_question, brain_question], ImageRelations({}, {}), 0)
    assert any(entry["question"] == text for entry in entries.values()) is is_asked
