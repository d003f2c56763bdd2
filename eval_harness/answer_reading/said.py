"""A response with the options that it may name, as every rule gets it."""

from __future__ import annotations

from dataclasses import dataclass

from eval_harness.answer_reading.letters import may_name_letters
from eval_harness.answer_reading.options import OptionTexts, option_texts
from eval_harness.answer_reading.plain_text import spell_status
from eval_harness.answer_reading.words import once

Found = tuple[int, ...] | None
"""What a rule finds: positions, () for more than one option without saying which, None where it does not apply."""


@dataclass(eq=False)
class Said:
    """A response made plain (`text`; `raw` with its markup), with the options it may name. `letters`: options may be named by letter
    (not where a question wants yes or no as a word); `yes_no`: the two options are yes and no; `by_text`: options may be named by their
    text (not by the mere words yes and no, which have rules of their own); `question` only where it may be used."""

    text: str
    raw: str
    texts: OptionTexts
    multiple: bool
    letters: bool
    yes_no: bool
    by_text: bool
    question: str | None

    @once
    def lettered(self) -> bool:
        """Whether options may be named by letter, and a letter that may be one is there."""
        return self.letters and may_name_letters(self.text, self.multiple)

    @property
    def count(self) -> int:
        return self.texts.count

    @property
    def named(self) -> OptionTexts:
        """The options as texts to be looked for."""
        return self.texts if self.by_text else _NO_TEXTS


def said_of(raw: str, text: str, texts: OptionTexts, question_type: str, question: str | None) -> Said:
    if ("+" in text or "-" in text or "−" in text) and texts.status:
        text = spell_status(text, any(len(option[0]) == 1 for option in texts.words if option))
    multiple, letters = question_type == "multiple", question_type != "yes_no"
    return Said(text, raw, texts, multiple, letters, texts.yes_no, not texts.yes_no or texts.longest > 3, question)


_NO_TEXTS = option_texts(())
