"""A response with the options that it may name, as every rule gets it."""

from __future__ import annotations

from dataclasses import dataclass

from eval_harness.answer_reading.letters import may_name_letters
from eval_harness.answer_reading.options import OptionTexts, option_texts
from eval_harness.answer_reading.plain_text import spell_status

Found = tuple[int, ...] | None
"""What a rule finds: positions, () for more than one option without saying which, None where it does not apply."""


@dataclass(frozen=True, slots=True)
class Said:
    """A response made plain (`text`; `raw` with its markup), with the options it may name. `letters`: options may be named by letter
    (not where a question wants yes or no as a word); `lettered`: and a letter that may be one is there; `yes_no`: the two options are
    yes and no; `question` only where it may be used."""

    text: str
    raw: str
    texts: OptionTexts
    multiple: bool
    letters: bool
    lettered: bool
    yes_no: bool
    question: str | None

    @property
    def count(self) -> int:
        return len(self.texts.words)

    @property
    def named(self) -> OptionTexts:
        """The options as texts to be looked for: yes and no are everyday words, which have rules of their own."""
        return _NO_TEXTS if self.only_words else self.texts

    @property
    def only_words(self) -> bool:
        return self.yes_no and self.texts.longest <= 3


def said_of(raw: str, text: str, texts: OptionTexts, question_type: str, question: str | None) -> Said:
    if texts.status:
        text = spell_status(text, any(len(option[0]) == 1 for option in texts.words if option))
    leads = len(texts.leads) == 2 and set(texts.leads) == {"yes", "no"}
    multiple, letters = question_type == "multiple", question_type != "yes_no"
    return Said(text, raw, texts, multiple, letters, letters and may_name_letters(text, multiple), leads, question)


_NO_TEXTS = option_texts(())
