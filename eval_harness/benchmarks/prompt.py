"""A prompt template and how a question is put into it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dataset_builders.schema import LETTERS

Layout = Callable[[Sequence[str]], str]


def lettered_layout(separator: str, between: str, opening: str = "", closing: str = "") -> Layout:
    """Options with their letters: `separator` after the letter, `between` two options."""

    def layout(options: Sequence[str]) -> str:
        return between.join(
            f"{opening}{letter}{separator}{option}{closing}" for letter, option in zip(LETTERS, options, strict=False)
        )

    return layout


COLON_LINES = lettered_layout(": ", "\n")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template with the fields `{question}` and `{options}`, the layout of its options, and where it was published.

    `methods`: what it may be used for. `intro`: what stands before the worked examples of a few-shot prompt. `shot_answer`: how an
    example's answer is written: `letter` (A), `both` (A: text), `text`.
    """

    name: str
    template: str
    source: str
    layout: Layout = COLON_LINES
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
        """True if the model sees the options (and may answer with a letter)."""
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


OPEN_ENDED_METHODS = ("ps", "ps_official", "ff")
"""Methods in which the model does not see the options."""


def bare_question_prompt(source: str, methods: tuple[str, ...] = OPEN_ENDED_METHODS) -> Prompt:
    """The template `question`: the question as it stands, for the methods that show no options."""
    return Prompt("question", "{question}", source, methods=methods, shot_answer="text")
