"""Every prompt template the harness knows, by name, and how a question is put into one.

The templates are protocol constants: quoted exactly from the paper or the authors' files named beside each. Not here: how a
model's own chat template wraps the text (`models/transformers_vlm.py`), how the response is read (`answers.py`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS

Layout = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template with the fields `{question}` and `{options}`, the layout of its options, and where it was published.

    `methods`: what it may be used for. `intro`: what stands before the worked examples of a few-shot prompt. `shot_answer`: how an
    example's answer is written: `letter` (A), `both` (A: text), `text`.
    """

    name: str
    format: str
    template: str
    layout: Layout
    source: str
    methods: tuple[str, ...] = ("mc", "gd")
    intro: str | None = None
    shot_answer: str = "letter"

    def render(self, question: str, options: Sequence[str]) -> str:
        """The text sent to the model for one question. `options` in the order shown; letters follow the position.

        Both fields are filled in one pass, so a question that itself holds braces stays as it is.
        """
        fields = {"{question}": question.strip(), "{options}": self.layout([option.strip() for option in options])}
        return re.sub(r"\{(?:question|options)\}", lambda field: fields[field[0]], self.template)

    @property
    def shows_options(self) -> bool:
        """Whether the model sees the options (and may answer with a letter)."""
        return "{options}" in self.template

    @property
    def text_hash(self) -> str:
        """Hash of everything in the prompt that is not the question: two runs with equal hashes were asked in the same words."""
        shown = self.layout(["{option 1}", "{option 2}"])
        return hashlib.sha256(
            "\0".join([self.template, shown, self.intro or "", self.shot_answer]).encode()
        ).hexdigest()[:16]

    def answer_of_shot(self, options: Sequence[str], answer: Sequence[int]) -> str:
        """The answer of a worked example, written as this prompt wants answers."""
        if self.shot_answer == "letter" and self.shows_options:
            return ",".join(LETTERS[position] for position in answer)
        texts = [options[position].strip() for position in answer]
        if self.shot_answer == "both":
            texts = [f"{LETTERS[position]}: {text}" for position, text in zip(answer, texts, strict=True)]
        return ", ".join(texts)


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

_BASED = "Based on the image, choose the correct option for the following question.\n"
_ASKED = "Question: {question}\n{options}\n"
_MC = _BASED + _ASKED
_DIRECTLY = "Answer with the option's letter directly.\nAnswer: "
_FROM_CHOICES = "Answer with the option's letter from the given choices directly."
_ONE_LETTER = _FROM_CHOICES + " Your answer should be just one letter.\n"
_GIVEN = (
    "You are given a radiology image, based on which you will need to carefully answer a medical question related to the image. "
    "You will be given two answer options: A and B from which you have to choose the right answer. The correct answer can always be "
    "determined just by looking at the radiology image itself. Take a close look at the image, think carefully, and answer the "
    "following question.\n"
)
_CRITICAL = (
    "You are given a radiology image, and your critical task is to take a close look and choose the correct option for the following "
    "question. It is extremely important to answer the following question correctly.\n"
)
_EXPERT = "You are an expert radiologist AI with deep knowledge in radiology image analysis. "
_VARIATIONS = {
    "mc-1": "Answer the following question about the image.\n" + _ASKED + _DIRECTLY,
    "mc-2": "Answer the following question about the image with the correct option's letter directly.\n"
    + _ASKED
    + "Answer: ",
    "mc-3": "Carefully and skillfully review the image and answer the following question.\n" + _ASKED + _DIRECTLY,
    "mc-4": _EXPERT + _BASED + _ASKED + _DIRECTLY,
    "mc-5": _MC + "Simply respond with 'A' or 'B' based on your answer.\nAnswer: ",
    "mc-6": "Based on the image, please choose the correct option for the following question.\n"
    + _ASKED
    + "Please answer with the option's letter from the given choices directly.\nAnswer: ",
    "mc-8": _GIVEN + _ASKED + _ONE_LETTER + "Answer: ",
    "mc-9": _ASKED + "Correct answer option: ",
    "mc-10": _CRITICAL + _ASKED + _ONE_LETTER + "Answer: ",
}
_FLAMINGO = (
    "You are a helpful medical assistant. You are being provided with images, a {} about each image and an answer. "
    "Follow the examples and answer the last question."
)
_OPEN = ("ps", "ps_official", "ff")
"""Methods in which the model does not see the options."""
_FILE = "MediConfusion authors' prompt file "
_TABLE_5 = (
    "MediConfusion Table 5 (arXiv: Table 4); the paper prints no line breaks, they follow prompt 0 of the authors' file"
)

API_SYSTEM: dict[str, str] = {
    "mediconfusion": "You are a helpful assitant expert in medical domain.",
    "probmed": "You are a student in medical school. You are preparing for your final exam. Answer the following question in your "
    "practice exam as directed to earn higher scores. You answer will only be for academic purpose.",
}
"""System messages that the authors sent to API models, word for word. MediConfusion: prompt file, `init_prompts: default` (used by
`configs/Models/gpt/vanilla.json`). ProbMed: `eval/inference/GPT-4V/gpt4v.py` of eric-ai-lab/ProbMed at commit 8e29f9a."""

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
        ("mc",),
    ),
    Prompt(
        "mc-quoted",
        "mediconfusion",
        _MC + _ONE_LETTER + '#answer: ("',
        _QUOTED_LINES,
        _FILE + "(mc: default)",
        ("mc",),
    ),
    *(
        Prompt(name, "mediconfusion", template, _COLON_LINES, _TABLE_5, ("mc",))
        for name, template in _VARIATIONS.items()
    ),
    Prompt(
        "mc-7",
        "mediconfusion",
        "Based on the image, choose the correct option for the following question. Question: {question} {options} "
        + _ONE_LETTER[:-1]
        + " Answer: ",
        lambda options: " ".join(
            f"Option {letter}: {option}" for letter, option in zip(LETTERS, options, strict=False)
        ),
        _TABLE_5,
        ("mc",),
    ),
    Prompt(
        "mc-medvint",
        "mediconfusion",
        "Question: {question} The choices are: {options} The Answer is: ",
        _lettered(": ", " "),
        _FILE + "(mc: medvint)",
        ("mc",),
    ),
    Prompt(
        "mc-blip2",
        "mediconfusion",
        "Question: Based on the image, choose the correct option for the following question. {question}\n{options}\n"
        + _FROM_CHOICES
        + " Answer:",
        _COLON_LINES,
        _FILE + "(mc and greedy: blip2)",
    ),
    Prompt(
        "mc-flamingo",
        "mediconfusion",
        "Question: {question}\n{options}\nAnswer:",
        _COLON_LINES,
        _FILE + "(mc and greedy: med_flamingo), appendix B.1",
        intro=_FLAMINGO.format("two choice question"),
        shot_answer="both",
    ),
    Prompt(
        "gd-default",
        "mediconfusion",
        _MC + _FROM_CHOICES + "\nAnswer: ",
        _COLON_LINES,
        _FILE + "(greedy: default)",
        ("gd",),
    ),
    Prompt(
        "gd-quoted",
        "mediconfusion",
        _MC + _ONE_LETTER + '#answer: ("',
        _QUOTED_LINES,
        _FILE + "(greedy: molmo)",
        ("gd",),
    ),
    Prompt(
        "ps-plain",
        "mediconfusion",
        "Question: {question} Answer:",
        _COLON_LINES,
        _FILE + "(prefix: default; gpt4: blip2; both: med_flamingo)",
        ("ps", "ps_official", "ff"),
        intro=_FLAMINGO.format("question"),
        shot_answer="text",
    ),
    Prompt(
        "ff-default",
        "mediconfusion",
        "Based on the image, answer following question.\n{question}",
        _COLON_LINES,
        _FILE + "(gpt4: default)",
        ("ff",),
        shot_answer="text",
    ),
    *(
        Prompt("question", format, "{question}", _COLON_LINES, source, methods, shot_answer="text")
        for format, source, methods in (
            ("mediconfusion", "MediConfusion authors' prefix scoring of chat models: the question as it stands", _OPEN),
            ("probmed", "ProbMed: the question as it stands", ("mc", "gd", *_OPEN)),
            ("gmai-mmbench", "the question as it stands; not a protocol of the paper", _OPEN),
            ("halt-medvqa", "the question as it stands; not a protocol of the paper", _OPEN),
        )
    ),
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
"""For the method `mc`; `gd` has its own on MediConfusion, and the methods that show no options ask the question as it stands."""


def prompt_for(format: str, name: str | None, question_type: str, method: str = "mc") -> Prompt:
    """The template for one question.

    `name` None means the benchmark's default for the method; GMAI-MMBench's default follows the question type (`single` / `multiple`).
    Raises BadInput for a name this benchmark does not have, or one that is not for this method, with the names there are.
    """
    if name is None:
        name = _default(format, question_type, method)
    prompt = PROMPTS.get((format, name))
    known = ", ".join(each.name for each in PROMPTS.values() if each.format == format and method in each.methods)
    if prompt is None:
        raise BadInput(f"--prompt {name}: {format} has no prompt of that name. For --method {method} it has: {known}.")
    if method not in prompt.methods:
        raise BadInput(f"--prompt {name}: is not for --method {method}. For that {format} has: {known}.")
    return prompt


def _default(format: str, question_type: str, method: str) -> str:
    if method in _OPEN:
        return "ff-default" if (format, method) == ("mediconfusion", "ff") else "question"
    if (format, method) == ("mediconfusion", "gd"):
        return "gd-default"
    return "multiple" if (format, question_type) == ("gmai-mmbench", "multiple") else DEFAULT_PROMPT[format]
