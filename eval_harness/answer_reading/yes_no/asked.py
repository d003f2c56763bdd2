"""What a yes/no question asks: its words that count, the finding and its place, the image or a thing; and what of these a response says."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from eval_harness.answer_reading.names import NUMBER_WORDS, WORD, plain_words
from eval_harness.answer_reading.options import stem
from eval_harness.answer_reading.plain_text import spell_out
from eval_harness.answer_reading.words import words_in
from eval_harness.answer_reading.yes_no.exclusive import one_name
from eval_harness.answer_reading.yes_no.spoken import FOUND

_EMPTY_WORDS = frozenset(
    word
    for words in (
        "a an and any the it they is are was were be been does do did has have had can could will would there this that these to",
        "look looks appear appears seem seems located situated seen considered described or",
    )
    for word in words.split()
)
_GENERIC = frozenset(
    map(
        stem,
        ("of", "evidence", "sign", "indication", "presence", "present", "visible", "shown", "modality", "type", "view", "plane", "image",
           "picture",
           "photo", "scan", "x-ray", "radiograph", "film", "slide", "patient"),
    )
)  # fmt: skip
"""Words of a question that an answer need not repeat, as long as there are others."""
_IMAGE = (
    r"(?:image|picture|figure|scan|x-?ray|radiograph|photo|graph|chart|diagram|film|ct|mri|slide|specimen)s?"
    r"(?: shown| above| below| provided)?\W*$"
)
ABOUT = re.compile(
    r"(?: in any way)?\s*,?\s*(?:(?:as )?(?:shown |seen |depicted |given )?\b(?:in|on|from|by|within)|\baccording to) (?:the|this|these)"
    rf" (?:[\w-]+ ){{0,2}}{_IMAGE}",
    re.IGNORECASE,
)
_ENDS_SHOWN = re.compile(_IMAGE, re.IGNORECASE)


def without_image(text: str) -> str:
    """A text without the words for what shows it, which end it ("in the image")."""
    return ABOUT.sub("", text) if _ENDS_SHOWN.search(text) else text


_IN_THIS = re.compile(r"\s*\b(?:in|on|from|within|by) (?:this|these|your)\b.*", re.IGNORECASE | re.DOTALL)
"""What shows a finding is no place of it ("in this colonoscopy")."""
_PREAMBLE = re.compile(
    r"^(?:.*[.!?:]\s+(?=\w[^.!?]*\??$))?(?:(?:according to|based on|judging (?:by|from)|from|for|in|on|among) [^?]{1,80}?,\s*"
    r"(?=(?:is|are|was"
    r"|were|does|do|did|has|have|had|can|could|will|would)\b))?",
    re.DOTALL | re.IGNORECASE,
)
"""What a question says before it asks."""
_FINDING = re.compile(
    rf"\W*(?:(?:is|are|was|were) there(?: any| an?)?\b(?P<there>.+?)(?:\s{FOUND})?\W*"
    r"|(?:does|do|did|can|could) (?P<subject>(?:[\w-]+ ){1,6}?)(?:show|demonstrate|reveal|have|contain|indicate|depict|suggest"
    r"|display|provide)s?\b(?P<shows>.+)"
    r"|does (?:this|it) represent\b(?P<represented>.+)"
    r"|(?:(?:can|could|do|did) (?:you|we) (?:see|detect|identify|observe|notice|find)|(?:can|could)(?= .* be\b))\b"
    r"(?P<seen>.+?)(?:\bbe\b.*)?"
    rf"|(?:is|are|was|were)\b(?P<present>.+?)\b{FOUND}\b(?P<place>.*))$",
    re.IGNORECASE,
)
"""A question about what is there, with the finding that it asks for, and with what is to show it."""
_IS_A = re.compile(
    r"\W*is (?!it \w+ (?:to|that|for)\b)(?:this|it|the (?:(?:imaging|shown|given|above|chest|medical|provided) )?"
    r"(?:image|modality|scan|picture|type of \w+))\b",
    re.IGNORECASE,
)
_STATES = re.compile(r"\W*(?:is|are|was|were|has|have)\b", re.IGNORECASE)


def asks_what(asked: str) -> Literal["named", "copula"] | None:
    """Whether a question asks what the image is ("Is this an MRI?"), or what a thing is, or where; None for what is there."""
    _, finding, named, _ = parts_of(asked)
    return None if finding else "named" if named else "copula" if _STATES.match(asked) else None


@lru_cache(maxsize=4096)
def asked_of(question: str) -> str:
    """What a question asks, spelt as responses are, without what it says before it asks and after."""
    asked = _AND_IF_SO.sub("?", question[: question.rfind("?") + 1] or question)
    return _PREAMBLE.sub("", _ABBREVIATION.sub("", spell_out(asked.strip())))


_AND_IF_SO = re.compile(r",? (?:and|or),? if (?:so|yes|any|not)\b[^?]*\?$", re.IGNORECASE)


@lru_cache(maxsize=4096)
def parts_of(question: str) -> tuple[frozenset[str], bool, bool, tuple[str, ...]]:
    """The words for what is to show a finding; whether the question asks for a finding, or what a thing is; the words that it asks for."""
    about = without_image(question)
    asked = _FINDING.match(about)
    parts = asked.groupdict() if asked else {}
    subject = frozenset(content_of(parts.pop("subject", "") or "")) - _GENERIC
    place = _IN_THIS.sub("", parts.pop("place", "") or "")
    finding = next((part for part in parts.values() if part), "")
    named = not finding and _IS_A.match(question) is not None
    words = content_of(without_image(finding) + place if finding else about)
    return subject, bool(finding), named, without_generic(words) if finding or named else words


def names_finding(text: str, question: str) -> bool | None:
    """Whether a response says the noun of what the question asks for; None where it says no word of it, perhaps a synonym. False where it
    says other words of it only ("pleural effusion" to a question about pleural thickening)."""
    words, said = finding_words(question), content_of(text)
    if words and (any(word.startswith(words[-1]) for word in said) or (said and words[-1].startswith(said[-1]))):
        return True  # perhaps cut within the word
    return None if set(said).isdisjoint(words) else False


def words_of(text: str) -> frozenset[str]:
    return frozenset(plain_words(one_name(text)).split())


words_asked = lru_cache(maxsize=4096)(words_of)


def says_finding(text: str, question: str) -> bool:
    """Whether a response says the noun of what the question asks for, and all other words of it."""
    return bool(names_finding(text, question)) and set(content_of(text)).issuperset(finding_words(question)[:-1])


def counts(text: str, question: str) -> str | None:
    """Whether a response counts as many of the things as a question asks for ("Are there five nodules?" - "There is only one nodule.")."""
    words, said = finding_words(question), _COUNT.search(text)
    more = words[:2] == (stem("more"), stem("than"))
    words = words[2:] if more else words[1:] if words[:1] == (stem("only"),) else words
    if said is None or len(words) < 2 or not (asked := _number(words[0])) or not names_finding(text, question):
        return None
    if _ADDED_UP.search(text[said.end() :].partition(".")[0]):
        return None
    found = _number(said[1].lower()) or ""
    return "yes" if (int(found or 0) > int(asked) if more else asked == found) else "no"


_COUNT = re.compile(
    rf"\bthere (?:is|are|appears? to be) (?:only |just |exactly |actually )?(\d+|{'|'.join(NUMBER_WORDS)})\b",
    re.IGNORECASE,
)
_ADDED_UP = re.compile(r"\b(?:each|both|another|other|and (?:an?|one|two))\b", re.IGNORECASE)
"""Where several counts make one ("one nodule in each lung")."""


def _number(word: str) -> str | None:
    return word if word.isdigit() else _NUMBERS.get(stem(word))


_NUMBERS = {stem(word): digits for word, digits in NUMBER_WORDS.items()}


@lru_cache(maxsize=4096)
def finding_words(question: str) -> tuple[str, ...]:
    """The words of what the question asks for, its noun last; without where it is ("in the right lung")."""
    asked = _FINDING.match(without_image(asked_of(question)))
    parts = asked.groupdict() | {"subject": None} if asked else {}
    finding = _EVIDENCE.sub("", next(filter(None, parts.values()), ""))
    return without_generic(content_of(_WHERE.split(finding, maxsplit=1)[0]))


_EVIDENCE = re.compile(r"^\W*(?:any |an? |the )?(?:\w+ )?(?:evidence|signs?|indications?|presence) of\b", re.IGNORECASE)
_WHERE = re.compile(r"\b(?:in|on|at|of|within|near|along|over|around|from|between|with|to)\b", re.IGNORECASE)
PREPOSITIONS = words_in("in on at of within near along involving over around throughout")
SIDES = frozenset(map(stem, words_in("left right upper middle lower anterior posterior medial lateral")))


def without_generic(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in _GENERIC) or words


_ABBREVIATION = re.compile(r"\([A-Z]{2,6}\)")


@lru_cache(maxsize=256)
def content_of(text: str) -> tuple[str, ...]:
    """The stems of the words that count, of a text that has been made plain."""
    text = (_ABBREVIATION.sub("", text) if "(" in text else text).lower()
    return tuple(filter(None, map(_stem_of_content, WORD.findall(_NON.sub("non", text) if "non" in text else text))))


@lru_cache(maxsize=16384)
def _stem_of_content(word: str) -> str:
    """The stem of a word, also of a plural; empty for a word that does not count."""
    if word in _EMPTY_WORDS:
        return ""
    stemmed = stem(word[:-1] if word.endswith("tions") else word)
    return _ENDING.sub("", stemmed) if stemmed[-1] in "sium" else stemmed


_NON = re.compile(r"\bnon[- ](?=[^\W\d_])")
_ENDING = re.compile(r"(?<=\w{3})s$|(?<=\w{4})(?:s?[iu]|um)$")
"""What is left of a plural ("masses", "metastases", "emboli")."""
KNOWN = _GENERIC | {
    *content_of(
        "image picture photo scan x-ray radiograph film ct mri study slide figure view chest patient it they i we finding appearance result"
        " no not without absent absence lack free clear of from negative fail neither with show reveal demonstrate depict display contain"
        " indicate suggest consistent positive for evidence sign presence present indication diagnosis diagnosed case see visible seen"
        " noted any some several multiple many few single small large mild moderate severe subtle significant minor obvious definite"
        " extensive marked minimal tiny acute new bilateral well defined based on provided given shown looking at which also normal healthy"
        " otherwise medical imaging axial coronal sagittal abnormal"
    )
}
"""Words before the finding, or after a preposition, that name no other place and no other finding."""
