"""Every option of every benchmark, named in every form in which models name one, is read as that option."""

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
PROSE = ("", " The image shows keratin.", "\n\nThe shape and the density of the region are typical of it.")
"""What a model says after its answer."""
IN_MARKS = ("\\boxed", "{{", "```", "<answer>", "an atlas.\n\n{L}", "an atlas.\n\n{L}. {T}", "Answer:\n")


def forms(options: list[str], place: int) -> Iterator[str]:
    text = options[place].strip()
    named = [option.strip().lower().rstrip(".") for option in options]
    alone = named.count(named[place]) == 1 and text.upper() not in LETTERS
    for form in (*BY_LETTER, *BY_BOTH, *(BY_TEXT if alone else ())):
        if "\\boxed" in form and any(sign in text for sign in "\\{}#%"):
            continue
        said = form.format(L=LETTERS[place], T=text.rstrip(".") if form.endswith("{T}.") else text)
        if form.endswith("{T}.") and text[-1] in "?!":
            continue
        for after in ("",) if any(mark in form for mark in IN_MARKS) else PROSE:
            stop = "." if after.startswith(" ") and said.rstrip("*")[-1] not in ".?!" else ""
            yield said + stop + after


def asked(folder: Path) -> pd.DataFrame:
    repository = open_repository(folder)
    return pd.concat([repository.questions(split) for split in repository.splits])


def misread(questions: pd.DataFrame, most: int) -> list[str]:
    """The forms that are not read as the option they name, of so many questions with different options."""
    seen = sorted(set(map(tuple, questions["options"])))
    chosen = random.Random(0).sample(seen, min(most, len(seen)))
    wrong = []
    for options in chosen:
        for place in range(len(options)):
            for said in forms(list(options), place):
                reading = read_choice(said, list(options), "single")
                if reading.choice != (place,):
                    wrong.append(f"{said!r} of {list(options)}: {LETTERS[place]} wanted, {reading}")
    return wrong


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_option_in_every_form(phantoms: Path, name: str) -> None:
    questions = asked(phantoms / name)
    assert not (wrong := misread(questions[questions["question_type"] != "yes_no"], 20)), "\n".join(wrong[:20])


@pytest.mark.parametrize("name", ["halt-medvqa", "mediconfusion", "gmai-mmbench"])
def test_every_official_option_in_every_form(sources: Path, tmp_path: Path, name: str) -> None:
    build(name, source=sources / name.replace("-", "_"), out=tmp_path / name, text_only=True)
    questions = asked(tmp_path / name)
    assert not (wrong := misread(questions, 30)), "\n".join(wrong[:20])


def test_none_of_the_above_in_every_form(sources: Path, tmp_path: Path) -> None:
    """HALT's NONE scenario: an honest model that goes on to say what it sees, perhaps in the words of another option."""
    build("halt-medvqa", source=sources / "halt_medvqa", out=tmp_path / "halt", text_only=True)
    questions = asked(tmp_path / "halt")
    wrong = []
    for options in questions["options"].sample(150, random_state=0):
        places = [place for place, option in enumerate(options) if "none of the above" in option.lower()]
        if len(places) != 1:
            continue
        for said in forms(list(options), places[0]):
            reading = read_choice(said, list(options))
            if reading.choice != (places[0],):
                wrong.append(f"{said!r} of {list(options)}: {reading}")
    assert not wrong, "\n".join(wrong[:20])


YES_NO = ("{T}", "{T}.", "**{T}**", "{T}, that is what the image shows.", "{T}. The image shows a chest.", "Answer: {T}",
          "The answer is {T}.",
          "\\boxed{{{T}}}", '{{"answer": "{T}"}}', "<answer>{T}</answer>", "<think>Let me see.</think>{T}",
          "The region was looked at.\n\n{T}",
          "Final answer: **{T}**", "So the answer is {T}.", "{T} - the region is shown.")  # fmt: skip


@pytest.mark.parametrize("options", [["yes", "no"], ["no", "yes"], ["Yes", "No"]])
@pytest.mark.parametrize("form", YES_NO)
def test_yes_and_no_in_every_form(form: str, options: list[str]) -> None:
    for place, option in enumerate(options):
        for text in (option.lower(), option.capitalize(), option.upper()):
            assert read_choice(form.format(T=text), options, "yes_no").choice == (place,), form.format(T=text)


SEVERAL = ("{A}, {B}", "{A},{B}", "{A} and {B}", "({A}) and ({B})", "{A}{B}", "**{A}, {B}**", "Answer: {A}, {B}", "The answer is {A}, {B}.",
           "The correct answers are {A} and {B}.", "\\boxed{{{A}, {B}}}", '{{"answer": ["{A}", "{B}"]}}', '{{"answer": "{A}, {B}"}}',
           "<answer>{A},{B}</answer>", "{A}. {T}\n{B}. {U}", "The correct options are:\n- {A}. {T}\n- {B}. {U}", "{T}, {U}")  # fmt: skip


def test_several_answers_in_every_form() -> None:
    options = ["Atelectasis", "Lung nodule", "Fibrosis", "Pleural effusion", "Emphysema"]
    for first in range(len(options)):
        for second in range(first + 1, len(options)):
            for form in SEVERAL:
                said = form.format(A=LETTERS[first], B=LETTERS[second], T=options[first], U=options[second])
                assert read_choice(said, options, "multiple").choice == (first, second), said
