"""The rules for questions that want yes or no, and for options that say yes or no."""

from __future__ import annotations

import re
from collections.abc import Callable

from dataset_builders.schema import LETTERS
from eval_harness.answer_reading.said import Found, Said
from eval_harness.answer_reading.yes_no import asked, denied, opposites, question, spoken

_CROSSED_YES_NO = re.compile(
    r"\W*(?:(?:(?:the )?answer(?: is)?\W+)?(?:option )?([A-Z])\W{1,4}(yes|no)\b|(yes|no)\W{1,3}(?:option )?([A-Z])\))",
    re.IGNORECASE,
)


def crossed_yes_no(said: Said) -> bool:
    """Whether a letter leads with the word of another option ("A. No" where A is Yes)."""
    match = _CROSSED_YES_NO.match(said.text)
    if match is None:
        return False
    letter, word = match[1] or match[4], (match[2] or match[3]).lower()
    leads, place = said.texts.leads, LETTERS.find(letter.upper())
    return word in leads and place < len(leads) and leads[place] in ("yes", "no") and leads[place] != word


def word_found(said: Said, word: str | None) -> Found:
    """A yes or no that was found as the option; () for both."""
    if word is None or not said.yes_no:
        return None
    return (said.texts.leads.index(word),) if word else ()


def by(find: Callable[[str], str | None]) -> Callable[[Said], Found]:
    return lambda said: word_found(said, find(said.text))


def leading_word(said: Said) -> Found:
    normal = denied.denies_abnormal(said.text, said.question) if said.question else None
    found = normal or spoken.leading(_FOREIGN_LABEL.sub("", said.text))
    if found == "no" and said.question and _NO_THING.match(said.text):
        unless = (
            _UNLESS.match(said.text) is not None
            or denied.denies_one_of_two(said.text, said.question)
            or denied.denies_a_finding(said.text, said.question)
        )
        found = None if unless or denied.speaks_of_another(said.text, said.question) else found
    return word_found(said, found)


_FOREIGN_LABEL = re.compile(r"^\W{0,3}[C-Z]\)\s*(?=(?:yes|no)\b(?!.*\b[A-Z]\)))", re.IGNORECASE | re.DOTALL)
"""A letter that neither of the two options has, before the word of one ("C) No, it is smaller.")."""
_UNLESS = re.compile(r"[^.\n]{1,200}\b(?:unless|only if)\b", re.IGNORECASE)
_NO_THING = re.compile(r"\W*no\s+\w", re.IGNORECASE)
"""A denial of one thing, which is no answer where it is another ("No nodule is seen in the right lung.")."""


def affirms(said: Said) -> Found:
    if said.question and (counted := asked.counts(said.text, said.question)) is not None:
        return word_found(said, counted)
    if said.question and (
        not asked.says_finding(said.text, said.question) or denied.speaks_of_another(said.text, said.question)
    ):
        return None
    return word_found(said, spoken.affirms(said.text))


def denies(said: Said) -> Found:
    if said.question and denied.is_negated(said.question):
        return None
    if said.question and (
        asked.names_finding(said.text, said.question) is False
        or denied.denies_a_finding(said.text, said.question)
        or denied.denies_what_is_not_asked(said.text, said.question)
    ):
        return None
    found = spoken.denies(said.text)
    if said.question and found is None:
        found = denied.denies_signs(said.text, said.question)
    elif (
        found
        and said.question
        and (denied.speaks_of_another(said.text, said.question) or denied.denies_of_another(said.text, said.question))
    ):
        return None
    return word_found(said, found)


def repeats(said: Said) -> Found:
    if not said.question:
        return None
    text = _in_full(said.text, said.question)
    found = question.repeats(text, said.question)
    found = opposites.says(text, said.question) if found is None else found
    if found == "yes" and (
        denied.speaks_of_a_part(said.text, said.question) or denied.only_appears(said.text, said.question)
    ):
        return None
    return word_found(said, found)


def _in_full(text: str, wording: str) -> str:
    """A response with a finding in the question's words: "a small effusion" where a pleural one is asked for and no other is said,
    "there is cardiomegaly" where an enlarged heart is."""
    lowered = text.lower()
    if "effusion" in lowered and "pleural effusion" in wording.lower() and _OTHER_FLUID.search(lowered) is None:
        return _EFFUSION.sub("pleural effusion", text)
    if "cardiomegaly" in lowered and _ENLARGED_HEART.search(wording):
        return _CARDIOMEGALY.sub("the heart is enlarged", text)
    return text


_OTHER_FLUID = re.compile(r"pleura|pericard|joint|knee|middle ear|subdural")
_EFFUSION = re.compile(r"\beffusion\b", re.IGNORECASE)
_ENLARGED_HEART = re.compile(r"\b(?:heart|cardiac silhouette)\b.*\benlarged\b|\benlarged heart\b", re.IGNORECASE)
_CARDIOMEGALY = re.compile(
    r"\bthere is (?:mild |moderate |severe |marked )?cardiomegaly\b"
    r"|\b(?:mild |moderate |severe |marked )?cardiomegaly is (?:present|seen|noted|visible|evident)\b",
    re.IGNORECASE,
)
