"""Every option of every benchmark is read as that option in every form in which models name one."""

import random
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.hub.repository import open_repository
from dataset_builders.schema import LETTERS
from eval_harness.reader import read_choice

BY_LETTER = (
    "{L}", "{L}.", "({L})", "{L})", "**{L}**", "Option {L}", "option {L}.", "Answer: {L}", "Answer:\n{L}", "Final answer: **{L}**",
    "The answer is {L}.", "The correct answer is ({L}).", "The correct option is **{L}**.", "I would choose {L}.", "\\boxed{{{L}}}",
    "\\boxed{{\\text{{{L}}}}}", '{{"answer": "{L}"}}', '```json\n{{"answer": "{L}"}}\n```', "<answer>{L}</answer>",
    "<think>It may be so.</think>{L}",
    "{L} is correct.", "The region was compared with an atlas.\n\n{L}", "So the answer is {L}.",
)  # fmt: skip
BY_BOTH = (
    "{L}. {T}", "{L}: {T}", "{L}) {T}", "({L}) {T}", "**{L}. {T}**", "**{L}**: {T}", "{L} - {T}", "Option {L}: {T}", "Answer: {L}. {T}",
    "Answer: ({L}) {T}", "The answer is {L}. {T}.", "The correct answer is ({L}) {T}.", "The correct answer is:\n\n**{L}. {T}**",
    "\\boxed{{{L}. {T}}}", '{{"answer": "{L}. {T}"}}', "<answer>{L}. {T}</answer>", "The region was compared with an atlas.\n\n{L}. {T}",
)  # fmt: skip
BY_TEXT = (
    "{T}", "{T}.", "**{T}**", "Answer: {T}",
          "The answer is {T}.", "The correct answer is: {T}", "\\boxed{{\\text{{{T}}}}}",
    "<answer>{T}</answer>", "Final answer: **{T}**",
)  # fmt: skip
PROSE = (
    "",
    " The image shows keratin.",
    "\n\nThe shape and the density of the region are typical of it.",
)
"""Text that a model adds after its answer."""
IN_MARKS = (
    "\\boxed",
    "{{",
    "```",
    "<answer>",
    "an atlas.\n\n{L}",
    "an atlas.\n\n{L}. {T}",
    "Answer:\n",
)


def forms(options: list[str], position: int) -> Iterator[str]:
    text = options[position].strip()
    normalized_options = [option.strip().lower().rstrip(".") for option in options]
    is_unambiguous = (
        normalized_options.index(normalized_options[position]) == position and text.upper() not in LETTERS
    )  # a duplicate text means the first option
    for form in (*BY_LETTER, *BY_BOTH, *(BY_TEXT if is_unambiguous else ())):
        if "\\boxed" in form and any(sign in text for sign in "\\{}#%"):
            continue
        response = form.format(L=LETTERS[position], T=text.rstrip(".") if form.endswith("{T}.") else text)
        if form.endswith("{T}.") and text[-1] in "?!":
            continue
        for continuation in ("",) if any(mark in form for mark in IN_MARKS) else PROSE:
            stop = "." if continuation.startswith(" ") and response.rstrip("*")[-1] not in ".?!" else ""
            yield response + stop + continuation


def load_questions(folder: Path) -> pd.DataFrame:
    repository = open_repository(folder)
    return pd.concat([repository.questions(split) for split in repository.splits])


def misread(questions: pd.DataFrame, max_questions: int) -> list[str]:
    """Return the responses that are not read as the option they name, for a sample of questions."""
    seen = sorted(set(map(tuple, questions["options"])))
    chosen = random.Random(0).sample(seen, min(max_questions, len(seen)))
    wrong = []
    for options in chosen:
        for position in range(len(options)):
            for response in forms(list(options), position):
                reading = read_choice(response, list(options), "single")
                if reading.choice != (position,):
                    wrong.append(f"{response!r} of {list(options)}: {LETTERS[position]} wanted, {reading}")
    return wrong


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_option_in_every_form(phantoms: Path, name: str) -> None:
    questions = load_questions(phantoms / name)
    assert not (wrong := misread(questions[questions["question_type"] != "yes_no"], 4)), "\n".join(wrong[:20])


@pytest.mark.parametrize("name", ["halt-medvqa", "mediconfusion", "gmai-mmbench"])
def test_every_official_option_in_every_form(sources: Path, tmp_path: Path, name: str) -> None:
    build(name, source=sources / name.replace("-", "_"), out=tmp_path / name, text_only=True)
    questions = load_questions(tmp_path / name)
    assert not (wrong := misread(questions, 8)), "\n".join(wrong[:20])


MADE = (
    ["-13.12", "0.99", "-0.99", "13.12"], ["-2", "0", "2", "±2"], ["< 50 %", ">= 50 %", "50 %", "> 90 %"], ["2-1", "2+1", "2*1"],
    ["ER-", "ER+", "PR-", "PR+"], ["contrast +", "contrast -"], ["1.5 cm", "2.5 cm", "15 mm", "5 cm"], ["T1", "T2", "T2*", "T1w"],
    ["0.5", "0.05", "5", "50"], ["3:1", "1:3", "2:2"], ["10-20", "20-30"], ["≤5 mm", "5-10 mm", ">10 mm"], ["10^3", "10^4", "3"],
    ["L4-L5", "L5-S1", "L4"], ["CD4", "CD8", "CD4+ CD8+"], ["HER2 0", "HER2 1+", "HER2 2+"], ["√2-1", "√2+1"], ["90°", "45°", "-45°"],
    ["union", "non-union", "malunion"], ["no fracture", "fracture"], ["left", "right", "both"], ["Type 1", "Type 2", "Type 10"],
    ["6.1, 9.6, 3.9", "6.1, 9.6, 8.5", "3.9, 9.6, 6.1"], ["It shows enhancement.", "It shows no enhancement."],
)  # fmt: skip


def test_options_that_differ_by_a_sign_in_every_form() -> None:
    assert not (wrong := misread(pd.DataFrame({"options": MADE}), len(MADE))), "\n".join(wrong[:20])


NONE = [
    f"{none} {of_which} {which} {noun}".replace("  ", " ").strip()
    for none, of_which in (("None", "of the"), ("None", "of these"))
    for which in ("", "given", "listed", "provided", "above")
    for noun in ("options", "answer options", "choices", "choices above", "options given", "answers provided")
] + ["None of the above", "None of these", "None of them", "None"]  # fmt: skip
NONE_FORMS = (
    "{N}", "{N}.", "{L}. {N}", "{L}: {N}.", "({L}) {N}", "**{N}**", "Answer: {N}", "The answer is {N}.", "The correct answer is {L}: {N}.",
    "It is {n}.", "The view is not listed, so the answer is {L}. {N}.", "Therefore, {n}.", "<answer>{N}</answer>",
    "\\boxed{{\\text{{{N}}}}}",
    "{N}. The image shows another view.", "{N}, because the image shows another view.", "{N}: the image shows another view.",
    "{N} - the view is transverse.", "{L}. {N}. This is a transverse view, not an anterior view.", "{N} is correct.",
)  # fmt: skip
NONE_TAILS = (
    "match the image.",
    "matches.",
    "applies here.",
    "are correct.",
    "is shown.",
    "fits the image, which is an axial slice.",
)


@pytest.mark.parametrize("place", range(4))
def test_none_of_the_above_in_every_wording(place: int) -> None:
    options = ["Anterior view", "Posterior view", "Oblique view"]
    options.insert(place, "None of the above")
    responses = [form.format(N=none, n=none.lower(), L=LETTERS[place]) for form in NONE_FORMS for none in NONE]
    responses += [f"{none} {tail}" for none in NONE if none != "None" for tail in NONE_TAILS]
    wrong = [text for text in responses if read_choice(text, options).choice != (place,)]
    assert not wrong, "\n".join(wrong[:20])
    for text in (
        "None of the above can be excluded.",
        "I doubt that none of the above is right.",
        "None of the ribs is fractured.",
    ):
        assert read_choice(text, options).choice == (), text


YES_NO = ("{T}", "{T}.", "**{T}**", "{T}, that is what the image shows.", "{T}. The image shows a chest.", "Answer: {T}",
          "The answer is {T}.",
          "\\boxed{{{T}}}", '{{"answer": "{T}"}}', "<answer>{T}</answer>", "<think>Let me see.</think>{T}",
          "The region was looked at.\n\n{T}",
          "Final answer: **{T}**", "So the answer is {T}.", "{T} - the region is shown.")  # fmt: skip


@pytest.mark.parametrize("options", [["yes", "no"], ["no", "yes"], ["Yes", "No"]])
@pytest.mark.parametrize("form", YES_NO)
def test_yes_and_no_in_every_form(form: str, options: list[str]) -> None:
    for position, option in enumerate(options):
        for text in (option.lower(), option.capitalize(), option.upper()):
            assert read_choice(form.format(T=text), options, "yes_no").choice == (position,), form.format(T=text)


SEVERAL = ("{A}, {B}", "{A},{B}", "{A} and {B}", "({A}) and ({B})", "{A}{B}", "**{A}, {B}**", "Answer: {A}, {B}", "The answer is {A}, {B}.",
           "The correct answers are {A} and {B}.", "\\boxed{{{A}, {B}}}", '{{"answer": ["{A}", "{B}"]}}', '{{"answer": "{A}, {B}"}}',
           "<answer>{A},{B}</answer>", "{A}. {T}\n{B}. {U}", "The correct options are:\n- {A}. {T}\n- {B}. {U}", "{T}, {U}")  # fmt: skip


def test_several_answers_in_every_form() -> None:
    options = ["Atelectasis", "Lung nodule", "Fibrosis", "Pleural effusion", "Emphysema"]
    for lower in range(len(options)):
        for upper in range(lower + 1, len(options)):
            for form in SEVERAL:
                response = form.format(A=LETTERS[lower], B=LETTERS[upper], T=options[lower], U=options[upper])
                assert read_choice(response, options, "multiple").choice == (lower, upper), response
