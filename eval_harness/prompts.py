"""Every prompt template the harness knows, by name, and how a question is put into one.

The templates are protocol constants: quoted exactly from the paper or the authors' files named beside each. Not here: how a
model's own chat template wraps the text (`models/transformers_vlm.py`), how the response is read (`answers.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS

Layout = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template with the fields `{question}` and `{options}`, the layout of its options, and where it was published."""

    name: str
    format: str
    template: str
    layout: Layout
    source: str

    def render(self, question: str, options: Sequence[str]) -> str:
        """The text sent to the model for one question. `options` in the order shown; letters follow the position.

        Both fields are filled in one pass, so a question that itself holds braces stays as it is.
        """
        fields = {"{question}": question.strip(), "{options}": self.layout([option.strip() for option in options])}
        return re.sub(r"\{(?:question|options)\}", lambda field: fields[field[0]], self.template)


def _lettered(separator: str, between: str, opening: str = "", closing: str = "") -> Layout:
    def layout(options: Sequence[str]) -> str:
        return between.join(
            f"{opening}{letter}{separator}{option}{closing}" for letter, option in zip(LETTERS, options, strict=False)
        )

    return layout


_COLON_LINES = _lettered(": ", "\n")
_QUOTED_LINES = _lettered('": ', "\n", opening='("', closing=")")
_DOT_LINES = _lettered(". ", "\n")
_DOT_RUN = _lettered(". ", " ")

_MC = "Based on the image, choose the correct option for the following question.\nQuestion: {question}\n{options}\n"
_ONE_LETTER = (
    "Answer with the option's letter from the given choices directly. Your answer should be just one letter.\n"
)

_LETTER_LINES = "Answer with the option's letter from the given choices directly.\n\n"
_ROLE_0 = "You are a medical doctor and expert in medical imaging. "
_ROLE_1 = "Act as a medical domain expert answering multiple-choice questions. "
_ACCURATE_0 = "Always answer accurately and precisely. "
_ACCURATE_1 = "Your answer should be precise and free of incomplete or incorrect biomedical or clinical information. "
_DONT_0 = "If you don't know the answer to a question, please don't share false information. "
_DONT_1 = "If you do not know the answer, do not try to make up an answer. "
_PLAIN = "{question} {options}."
_SEPARATED = "### Question:\n{question}\n\n### Choices:\n{options}\n\n### Answer:"

_HALT = {
    "SIMPLE": _PLAIN,
    "S": _SEPARATED,
    "ONLY": "{question} {options}. only give me one token of the answer, no other words.",
    "L": _LETTER_LINES + _PLAIN,
    "L+S": _LETTER_LINES + _SEPARATED,
    "L+R0": _ROLE_0 + _LETTER_LINES + _PLAIN,
    "L+R1": _ROLE_1 + _LETTER_LINES + _PLAIN,
    "L+A0": _ACCURATE_0 + _LETTER_LINES + _PLAIN,
    "L+A1": _ACCURATE_1 + _LETTER_LINES + _PLAIN,
    "L+D0": _DONT_0 + _LETTER_LINES + _PLAIN,
    "L+D1": _DONT_1 + _LETTER_LINES + _PLAIN,
    "L+R0+A1": _ROLE_0 + _ACCURATE_1 + _LETTER_LINES + _PLAIN,
    "L+A1+D0": _ACCURATE_1 + _DONT_0 + _LETTER_LINES + _PLAIN,
    "L+R0+D0": _ROLE_0 + _DONT_0 + _LETTER_LINES + _PLAIN,
    "ALL": _ROLE_0 + _ACCURATE_1 + _DONT_0 + _LETTER_LINES + _PLAIN,
    "ALL+S": _ROLE_0 + _ACCURATE_1 + _DONT_0 + _LETTER_LINES + _SEPARATED,
    "L+R0+D0+S": _ROLE_0 + _DONT_0 + _LETTER_LINES + _SEPARATED,
    "L+D0+S": _DONT_0 + _LETTER_LINES + _SEPARATED,
}

_ALL = (
    Prompt(
        "mc-0",
        "mediconfusion",
        _MC + _ONE_LETTER + "Answer: ",
        _COLON_LINES,
        "MediConfusion Table 5, prompt 0; line breaks as the authors' prompt file (mc: gpt)",
    ),
    Prompt(
        "mc-quoted",
        "mediconfusion",
        _MC + _ONE_LETTER + '#answer: ("',
        _QUOTED_LINES,
        "MediConfusion authors' prompt file (mc: default)",
    ),
    Prompt("question", "probmed", "{question}", _COLON_LINES, "ProbMed: the question as it stands"),
    Prompt(
        "single",
        "gmai-mmbench",
        "Question: {question}\nOptions:\n{options}\nPlease select the correct answer from the options above.",
        _DOT_LINES,
        "GMAI-MMBench Table 8, single choice",
    ),
    Prompt(
        "multiple",
        "gmai-mmbench",
        "Question: {question}\nOptions:\n{options}\nPlease select all correct answers from the options above. "
        "Note that there is more than one correct answer.\n"
        "Please output the answer options directly, separated by commas. For example: A,B",
        _DOT_LINES,
        "GMAI-MMBench Table 8, multiple choice",
    ),
    *(
        Prompt(name, "halt-medvqa", template, _DOT_RUN, "HALT-MedVQA Table 2; line breaks as the authors' prompt file")
        for name, template in _HALT.items()
    ),
)

PROMPTS: dict[tuple[str, str], Prompt] = {(prompt.format, prompt.name): prompt for prompt in _ALL}
"""Every template by (format, name)."""

DEFAULT_PROMPT: dict[str, str] = {
    "mediconfusion": "mc-0",
    "probmed": "question",
    "gmai-mmbench": "single",
    "halt-medvqa": "L+D0",
}


def prompt_for(format: str, name: str | None, question_type: str) -> Prompt:
    """The template for one question.

    `name` None means the benchmark's default; GMAI-MMBench's default follows the question type (`single` / `multiple`).
    Raises BadInput for a name this benchmark does not have, with the names it has.
    """
    if name is None:
        name = "multiple" if (format, question_type) == ("gmai-mmbench", "multiple") else DEFAULT_PROMPT[format]
    try:
        return PROMPTS[format, name]
    except KeyError:
        known = ", ".join(known for known_format, known in PROMPTS if known_format == format)
        raise BadInput(f"--prompt {name}: {format} has no prompt of that name. It has: {known}.") from None
