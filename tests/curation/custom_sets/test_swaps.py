"""SWAP: never to an image that can answer the question, over generated sets of questions."""

import random
from collections import Counter

import pytest

from curation.custom_sets.custom_questions import CustomQuestion
from curation.custom_sets.hallucination import CONTROL, UNKNOWN, SwapImages, swapped

ORGANS = (
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
OVERLAP = [{"chest", "lung", "heart", "Chest", "spine", "abdomen"}, {"brain", "spine"}]
LESIONS = ("tumour", "tumor", "cyst", "cysts", "stone", "Fracture", "scar", "ulcer", "normal", "no lesion")
ASKED = (
    "Which lesion is shown?",
    "What is the diagnosis?",
    "Which modality is this?",
    "Is the plane axial?",
    "Where is the mass?",
)


@pytest.mark.parametrize("seed", range(30))
def test_a_swapped_image_cannot_answer(seed):
    rng = random.Random(seed)
    organ = {f"{n}.png": rng.choice(ORGANS) for n in range(24)}
    group = {image: f"p{rng.randrange(10)}" for image in organ}
    digest = {image: f"d{rng.randrange(18)}" for image in organ}
    hashes = {image: rng.getrandbits(64) for image in organ}
    for _ in range(4):
        one, other = rng.sample(list(organ), 2)
        hashes[other] = hashes[one] ^ (1 << rng.randrange(64))
    questions = [
        CustomQuestion(image, f"{rng.choice(ASKED)} ({n})" if rng.random() < 0.7 else rng.choice(ASKED),
                       ("yes", "no") if rng.random() < 0.1 else (*rng.sample(LESIONS, 2), rng.choice(["the brain", "effusion"])), 0,
                       organ[image])
        for image in organ for n in range(2)
    ]  # fmt: skip
    own_answers = {(q.image, q.question, q.options[q.answer]) for q in questions}
    entries, left_out = swapped(questions, SwapImages(group, digest, hashes), seed)
    assert len(entries) + 2 * left_out.total() == 2 * len(questions)
    asked_of = {(q.image, q.question) for q in questions}
    for key, entry in entries.items():
        own, image = entry["original_img"], entry["img"]
        if key.endswith(CONTROL):
            assert image == own and (image, entry["question"], entry["answer"]) in own_answers
            assert entry["option"] == entries[key.removesuffix(CONTROL)]["option"]
            continue
        assert entry["answer"] == UNKNOWN == entry["option"][entry["answer_id"]]
        assert own != image and group[own] != group[image] and digest[own] != digest[image]
        assert bin(hashes[own] ^ hashes[image]).count("1") > 6
        assert organ[own] != organ[image] and not any({organ[own], organ[image]} <= shared for shared in OVERLAP)
        assert (image, entry["question"]) not in asked_of
        assert (
            "modality" not in entry["question"]
            and "plane" not in entry["question"]
            and "yes" not in entry["option"].values()
        )
        options = set(entry["option"].values())
        assert not options & {"no", "normal", "no lesion"}
        assert not {organ[own], organ[image]} & {"skin", "unheard-of gland", "whole body"}
        assert not ("the brain" in entry["option"].values() and organ[image] in ("brain", "spine"))
    letters = Counter((len(e["option"]), e["answer_id"]) for k, e in entries.items() if not k.endswith(CONTROL))
    assert not letters or max(letters.values()) - min(letters.values()) <= 1 + (len(letters) < 4)


def test_images_with_another_answer_of_their_own_are_preferred():
    """Two thirds of the brain's images have an option of the knee's questions for an answer; there are enough others."""
    questions = [CustomQuestion(f"k{n}", f"What is torn ({n})?", ("meniscus", "a clot"), 0, "knee") for n in range(8)]
    questions += [
        CustomQuestion(f"b{n}", f"What is bright ({n})?", ("a tumour", "A clot"), int(n % 3 > 0), "brain")
        for n in range(24)
    ]
    names = {question.image for question in questions}
    about = SwapImages({}, {name: name for name in names}, {})
    entries, _ = swapped(questions, about, 0)
    images = {
        entry["img"]
        for entry in entries.values()
        if entry["img"] != entry["original_img"] and entry["original_img"][0] == "k"
    }
    assert len(images) == 8 and all(int(image[1:]) % 3 == 0 for image in images)
