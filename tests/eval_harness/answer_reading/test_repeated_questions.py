"""Declarative answers to generated questions about what is there: asserted, denied, doubted, or about something else."""

import random

import pytest

from eval_harness.answers import read_choice

FINDINGS = (
    "pleural effusion",
    "rib fracture",
    "pneumothorax",
    "liver cyst",
    "brain tumor",
    "kidney stone",
    "cardiomegaly",
)
QUESTIONS = (
    "Is there a {} in this image?",
    "Is there any evidence of {}?",
    "Does the image show a {}?",
    "Can a {} be seen in this scan?",
    "Is {} present?",
    "The patient is 64 years old. Is there a {}?",
)
ASSERTED = (
    "The image shows a {how} {what}.",
    "There is a {how} {what} on the left.",
    "A {how} {what} is seen.",
    "Based on the image, a {what} is visible.",
    "It appears that the scan shows a {how} {what}.",
)
DENIED = (
    "There is no {what}.",
    "No {what} is seen.",
    "The image does not show a {what}.",
    "There is no evidence of {what} in this image.",
    "The lungs are normal, so there is no {what}.",
)
DOUBTED = (
    "It is possible that there is a {what}.",
    "A {what} cannot be excluded.",
    "It is unclear whether there is a {what}.",
    "The patient has a history of {what}.",
    "There may be a {what}.",
    "It is not possible for me to determine if there is a {what}.",
)
HOW = ("small", "large", "mild", "subtle", "left-sided", "moderate")


def read(question: str, response: str) -> str:
    choice = read_choice(response, ["yes", "no"], "yes_no", question).choice
    return ("yes", "no")[choice[0]] if choice else ""


def test_a_finding_is_asserted_denied_or_doubted() -> None:
    draw, wrong = random.Random(13), []
    for forms, wanted in ((ASSERTED, "yes"), (DENIED, "no"), (DOUBTED, "")):
        for form in forms:
            for _ in range(40):
                what = draw.choice(FINDINGS)
                question = draw.choice(QUESTIONS).format(what)
                response = form.format(what=what, how=draw.choice(HOW))
                if read(question, response) != wanted:
                    wrong.append((question, response, wanted, read(question, response)))
    assert not wrong, wrong[:10]


def test_another_finding_says_nothing_of_the_one_asked_for() -> None:
    draw = random.Random(14)
    for _ in range(200):
        asked, other = draw.sample(FINDINGS, 2)
        question = draw.choice(QUESTIONS).format(asked)
        assert read(question, f"The image shows a {draw.choice(HOW)} {other}.") == "", (question, other)


def test_advice_after_an_assertion_declines_nothing() -> None:
    advice = " However, please consult a doctor for a thorough evaluation."
    for what in FINDINGS:
        question = f"Does this represent a {what}?"
        for how in HOW:
            assert read(question, f"It appears that the film shows a {how} {what}.{advice}") == "yes", what
        assert read(question, f"The film does not show a {what}.{advice}") == "no", what
        assert read(question, f"The film shows the chest.{advice}") == "", what


@pytest.mark.parametrize("kind", ["", "family ", "personal "])
def test_a_history_that_is_asked_for_is_asserted_or_denied(kind: str) -> None:
    for what in FINDINGS:
        question = f"Does the patient have a {kind}history of {what}?"
        history = f"a {kind}history of {what}"
        assert read(question, f"The patient has {history}.") == "yes", what
        assert read(question, f"According to the notes, the patient does not have {history}.") == "no", what
        for silent in (f"The patient may have {history}.", "The patient has a history of smoking.",
                       f"The notes do not provide {history}.", "The notes do not have information on the history."):  # fmt: skip
            assert read(question, silent) == "", silent
        assert read(f"Does the patient have a {what}?", f"The patient has {history}.") == "", what


SIDES = (("left", "right"), ("right", "left"))
ORGANS = ("lung", "kidney", "hip", "hemisphere")


def test_a_finding_counts_for_the_side_it_is_said_of() -> None:
    asked = ("Is there a {what} in the {side} {organ}?", "Is a {what} seen in the {side} {organ}?")
    forms = {
        "yes": ("The {side} {organ} shows a small {what}.", "There is a {what} in the {side} {organ}.", "The scan shows a {what}."),
        "no": ("The {side} {organ} shows no {what}.", "The {side} {organ} is free of {what}.", "The scan fails to show a {what}.",
               "There is a {what} in the {other} {organ}, but not in the {side} {organ}."),
        "": ("The {other} {organ} shows a small {what}.", "There is no {what} in the {other} {organ}.",
             "No {what} is seen in the {other} {organ}.", "The {other} {organ} is free of {what}.",
             "A second scan is needed to rule out a {what}.", "There is no history of {what}."),
    }  # fmt: skip
    for wanted, responses in forms.items():
        for form in responses:
            for what in ("rib fracture", "pneumothorax", "cyst"):
                for organ in ORGANS:
                    for side, other in SIDES:
                        words = {"what": what, "side": side, "other": other, "organ": organ}
                        for question in asked:
                            response = form.format(**words)
                            assert read(question.format(**words), response) == wanted, (question, response)
                            if wanted == "yes":
                                assert read_choice(response, ["yes", "no"], "yes_no").choice in ((), (0,)), response


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ("larger", "smaller"),
        ("higher", "lower"),
        ("more severe", "less severe"),
        ("brighter", "darker"),
        ("thicker", "thinner"),
    ],
)
def test_a_comparison_is_answered_by_its_opposite(more: str, less: str) -> None:
    one, two = "left kidney", "right kidney"
    for asked, opposite in ((more, less), (less, more)):
        question = f"Is the {one} {asked} than the {two}?"
        for response, wanted in (
            (f"The {one} is {asked} than the {two}.", "yes"),
            (f"The {one} is slightly {opposite} than the {two}.", "no"),
            (f"The {two} is {asked} than the {one}.", "no"),
            (f"The {two} is {opposite} than the {one}.", "yes"),
            (f"The {one} is not {asked} than the {two}.", "no"),
            (f"The {one} is not {opposite} than the {two}.", ""),
            (f"The {one} may be {opposite} than the {two}.", ""),
            (f"The spleen is {opposite} than the {two}.", ""),
        ):
            assert read(question, response) == wanted, (question, response)
            assert not read_choice(response, ["yes", "no"], "yes_no").choice or "not" in response, response


@pytest.mark.parametrize("organ", ["heart", "left kidney", "spleen", "aorta"])
def test_normal_and_changed_exclude_one_another(organ: str) -> None:
    for change in ("enlarged", "dilated", "swollen"):
        for asked, wanted in ((change, "no"), ("normal", "yes"), ("abnormal", "no")):
            for normal in (
                "is of normal size",
                "is within normal limits",
                "appears normal in size and shape",
                "is unremarkable",
            ):
                assert read(f"Is the {organ} {asked}?", f"The {organ} {normal}.") == wanted, (asked, normal)
                assert read(f"Is the {organ} {asked}?", f"The bladder {normal}.") == "", (asked, normal)
        assert read(f"Is the {organ} normal?", f"The {organ} is {change}.") == "no"
        assert read(f"Is the {organ} {change}?", f"The {organ} may be of normal size.") == ""


MODALITIES = ("an MRI", "a CT scan", "an X-ray", "an ultrasound")


def test_another_modality_is_no() -> None:
    for asked in MODALITIES:
        for said in MODALITIES:
            for form in ("This is {}.", "The image appears to be {}.", "It is {} of the abdomen."):
                wanted = "yes" if asked == said else "no"
                assert read(f"Is this {asked}?", form.format(said)) == wanted, (asked, said)
                assert read(f"Is this {asked}?", f"This may be {said}.") == ""
                assert not read_choice(form.format(said), ["yes", "no"], "yes_no").choice
