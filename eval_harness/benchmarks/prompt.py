"""Define prompt templates and how questions are rendered into them."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dataset_builders.schema import LETTERS

Layout = Callable[[Sequence[str]], str]


def lettered_layout(separator: str, between: str, opening: str = "", closing: str = "") -> Layout:
    """Build a layout that lists the options with their letters.

    Args:
        separator: Text after the letter.
        between: Text between two options.
        opening: Text before the letter.
        closing: Text after the option.

    Returns:
        Option texts -> the text of the field `{options}`.
    """

    def layout(options: Sequence[str]) -> str:
        return between.join(
            f"{opening}{letter}{separator}{option}{closing}" for letter, option in zip(LETTERS, options, strict=False)
        )

    return layout


COLON_LINES = lettered_layout(": ", "\n")
DOT_LINES = lettered_layout(". ", "\n")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template with the fields `{question}` and `{options}`.

    Attributes:
        name: Name of the template.
        template: The text with its fields.
        source: Where it was published.
        layout: Layout of the options.
        methods: Methods that it may be used for.
        intro: Text before the worked examples of a few-shot prompt.
        shot_answer: Form of an example's answer: `letter` (A), `both` (A: text) or `text`.
    """

    name: str
    template: str
    source: str
    layout: Layout = COLON_LINES
    methods: tuple[str, ...] = ("mc", "gd")
    intro: str | None = None
    shot_answer: str = "letter"

    def render(self, question: str, options: Sequence[str]) -> str:
        """Render the text sent to the model for one question.

        Both fields are filled in one pass, so braces within a question are kept.

        Args:
            question: Text of the question.
            options: Option texts in the order shown; letters follow the position.
        """
        # A single pass, because the question may itself contain "{options}".
        fields = {
            "{question}": question.strip(),
            "{options}": self.layout([option.strip() for option in options]),
        }
        return re.sub(r"\{(?:question|options)\}", lambda field: fields[field[0]], self.template)

    @property
    def shows_options(self) -> bool:
        """True if the model sees the options (and may answer with a letter)."""
        return "{options}" in self.template

    @property
    def text_hash(self) -> str:
        """Hash of the prompt without the question; equal hashes mean equal wording."""
        # Two placeholder options are enough to represent the layout.
        layout_sample = self.layout(["{option 1}", "{option 2}"])
        return hashlib.sha256(
            "\0".join([self.template, layout_sample, self.intro or "", self.shot_answer]).encode()
        ).hexdigest()[:16]

    def answer_of_shot(self, options: Sequence[str], answer: Sequence[int]) -> str:
        """Format the answer of a worked example.

        Args:
            options: Option texts in the order shown.
            answer: Positions of the correct options.
        """
        if self.shot_answer == "letter" and self.shows_options:
            return ",".join(LETTERS[position] for position in answer)
        texts = [options[position].strip() for position in answer]
        if self.shot_answer == "both":
            texts = [f"{LETTERS[position]}: {text}" for position, text in zip(answer, texts, strict=True)]
        return ", ".join(texts)


OPEN_ENDED_METHODS = ("ps", "ps_official", "ff")
"""Methods in which the model does not see the options."""


def bare_question_prompt(source: str, methods: tuple[str, ...] = OPEN_ENDED_METHODS) -> Prompt:
    """Build the template `question`: the bare question, for methods that show no options.

    Args:
        source: Where it was published.
        methods: Methods that it may be used for.
    """
    return Prompt("question", "{question}", source, methods=methods, shot_answer="text")
