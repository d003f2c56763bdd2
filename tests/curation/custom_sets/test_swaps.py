"""SWAP: never to an image that can answer the question, over generated sets of questions."""

import random
from collections import Counter

import pytest

from curation.custom_sets.custom_questions import CustomQuestion
from curation.custom_sets.hallucination import CONTROL, UNKNOWN, SwapImages, rules_out, swapped

ORGANS = ("brain", "chest", "lung", "abdomen", "knee", "spine", "Chest", "heart", "unheard-of gland")
OVERLAP = [{"chest", "lung", "heart", "Chest", "spine", "abdomen"}, {"brain", "spine"}]
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
                       ("yes", "no") if rng.random() < 0.1 else ("tumour", rng.choice(["the brain", "effusion"]), "cyst"), 0, organ[image])
        for image in organ for n in range(2)
    ]  # fmt: skip
    entries, left_out = swapped(questions, SwapImages(group, digest, hashes), seed)
    assert len(entries) + 2 * left_out.total() == 2 * len(questions)
    asked_of = {(q.image, q.question) for q in questions}
    for key, entry in entries.items():
        own, image = entry["original_img"], entry["img"]
        if key.endswith(CONTROL):
            assert image == own and entry["answer"] == "tumour"
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
        assert not ("the brain" in entry["option"].values() and organ[image] in ("brain", "spine"))
    letters = Counter((len(e["option"]), e["answer_id"]) for k, e in entries.items() if not k.endswith(CONTROL))
    assert not letters or max(letters.values()) - min(letters.values()) <= 1 + (len(letters) < 4)


def test_what_rules_out_what():
    assert rules_out("chest", "brain") and not rules_out("chest", "lung") and not rules_out("chest", "abdomen")
    assert not rules_out("skin", "skin lesion") and rules_out("skin", "retina vessels")
