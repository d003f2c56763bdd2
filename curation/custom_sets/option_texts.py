"""Read what options and questions say of one another: where one may be replaced, and where another image may answer.

The author of a question says which option is right. Once that option or the image is replaced (`hallucination.py`), the others decide
whether "None of the above" or "I do not know" is right: an option that speaks of others, that fits anything, or that means what the right
one does, makes it wrong, and the question is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from curation.custom_sets.custom_questions import CustomQuestion
from curation.custom_sets.probe_table import may_be_one
from dataset_builders.label_reading import Label, cues_in, read_label, without_side
from dataset_builders.terms import ancestors, by_name, folded, singular, words_within

REFERENCE = (
    "above|below|both|all|either|neither|any|each|some|none|options?|choices?|answers?|these|those|them|listed|mentioned|following|preceding|"
    "previous|foregoing|aforementioned|others|everything|every|former|latter"
)
"""Words with which an option speaks of other options, where it has no words of its own: `Both A and C`."""
BESIDE = (
    "of|the|and|or|nor|but|not|plus|only|see|are|is|correct|true|right|wrong|false|one|two|three|four|first|second|third|fourth|[1-8](?:st|nd|rd|th)|last|other|"
    "statements?|together|at|once|as|well|combination|combined|more|than|same|apply|applies|present|seen|visible|shown|could|be|can|may|possible|"
    "here|it|that|this|no|see|to|through|with|along|except|also|findings?|conditions?|diagnos[ei]s|entit(?:y|ies)|structures?|features?|"
    "lesions?|abnormalit(?:y|ies)|regions?|signs?"
)
MARK = "[a-h1-8]|i{1,3}|iv|vi?"
SPEAKS = re.compile(
    r"\b(?:all|any|none|both|either|neither|each|some|most|two|three|one|combination|which) of "
    r"(?:these|those|them|the (?:above|listed|following|foregoing|options|choices|others?))\b|"
    r"\b(?:the|all|both|as) (?:above|foregoing|preceding)\b|\b(?:above|other) (?:options?|choices?|answers?)\b|"
    rf"\b(?:options?|choices?|answers?) (?:{MARK})\b|^(?:both |either |neither )?(?:{MARK}) (?:and|or|nor|plus) (?:{MARK})\b"
)
RANGE = re.compile(
    r"[<>≤≥]|\d\s*(?:-|–|to)\s*\d|\d\s*\+|\b(?:more|less|greater|fewer|larger|smaller|longer|shorter|older|younger|over|under|above|below|"
    r"at least|at most|up to|between|within|from)\b.*\d",
    re.IGNORECASE,
)
ABSTAINS = re.compile(
    r"\b(?:none of the above|all of the above|not know|dont know|unknown|can ?not be|cant be|cant tell|cannot tell|cannot determine|"
    r"unable to|impossible|insufficient|not enough|not possible|no answer|no \w+ possible|not sure|unsure|not applicable|"
    r"(?:not |un)(?:\w+ )?(?:listed|given|specified|mentioned|determined)|not in the list|need(?:ed|s)|depends|unclear|uncertain|"
    r"indeterminate|inconclusive|equivocal|maybe|perhaps|elsewhere|something else|miscellaneous|n a)\b|"
    r"^(?:none|nothing|neither|possibly|other\w*|(?:any |an |a |some(?:thing)? )?(?:other|another|different)(?: \w+)?)$"
)
"""Folded options that no other option rules out, or that decline."""
GENERAL = re.compile(
    r"\b(?:modality|technique|sequence|planes?|views?|projection|orientation|kind of (?:image|scan)|type of (?:image|scan|imaging)|"
    r"(?:which|what) (?:organ|body part|part of the body|region|side)|contrast|axial|coronal|sagittal|ages?|old|sex|gender|male|female|"
    r"marker|annotation|missing|outside)\b",
    re.IGNORECASE,
)
"""What can be asked of any image, so that a swapped one answers it."""
NUMBERS = {
    "zero": "0", "one": "1", "i": "1", "two": "2", "ii": "2", "three": "3", "iii": "3", "four": "4", "iv": "4", "five": "5", "v": "5",
    "six": "6", "vi": "6", "seven": "7", "eight": "8", "nine": "9", "ten": "10", "half": "50 percent",
}  # fmt: skip
UNITS = {"cm": ("mm", 10), "m": ("mm", 1000), "l": ("ml", 1000), "dl": ("ml", 100), "kg": ("g", 1000)}
SIDES = {"left", "right", "bilateral", "bilaterally", "both", "sides", "unilateral"}


@cache
def speaks_of_options(option: str) -> bool:
    """True where an option means other options: `Both A and C`, `All of the above`, `A & B`, `Only (ii)`, `Both`, `1 and 3 are correct`.

    Such a question has no meaning left once an option is replaced or moved.
    """
    text = folded(re.sub(r"[&+]", " and ", option))
    words = text.split()
    if SPEAKS.search(text) or not words:
        return bool(words)
    if re.fullmatch("[A-E]{2,5}", option.strip()) and sorted(set(option.strip())) == list(option.strip()):
        return True  # AB, ACD
    if not all(re.fullmatch(rf"{REFERENCE}|{BESIDE}|{MARK}", word) for word in words):
        return False
    marks = sum(bool(re.fullmatch(MARK, word)) for word in words)
    said = any(
        re.fullmatch(rf"{REFERENCE}|other|first|second|third|[1-8](?:st|nd|rd|th)|last|more", word) for word in words
    )
    return (
        marks > 1
        or (marks > 0 and bool({"only", "except", "as", "not", "see"} & set(words)))
        or (said and words not in (["none"], ["other"]))
    )


def abstains(options: Sequence[str]) -> bool:
    """True where an option declines or fits what the others leave: `I do not know`, `Cannot be determined`, `Other`, `Not listed`."""
    return any(ABSTAINS.search(folded(option)) for option in options)


def fits_any_image(options: Sequence[str]) -> bool:
    """True where an option is right of an image that has nothing to do with the question: no, none, normal, intact, grade 0."""
    return any(kind in ("negated", "normal") for option in options for kind, _ in cues_in(option))


def asks_for_absence(question: str) -> bool:
    """True where a question asks for what is not there or not affected: any of its options is right of an unrelated image."""
    return any(kind in ("negated", "normal") and not words.isdigit() for kind, words in cues_in(question))


def answers_apart(question: CustomQuestion) -> bool:
    """True where no other option may mean what the right one does, or a part or kind of it: without it, none is right. Ranges of numbers
    may overlap."""
    if any(RANGE.search(option) for option in question.options):
        return False
    return not any(_may_mean(question.right, other) for other in question.wrong)


def _may_mean(right: str, other: str) -> bool:
    labels = [read_label(option) for option in (right, other)]
    one, two = (
        Label(_plain(option), label.term, label.side) for option, label in zip((right, other), labels, strict=True)
    )
    own = set(folded(right).split())
    return (
        may_be_one(one, two)
        or may_be_one(Label(one.text), Label(two.text))
        or bool(own & {"bilateral", "bilaterally", "both", "all", "diffuse"} and set(folded(other).split()) & SIDES)
        or (_sides_meet(right, other) and bool(_named(right) & _within(other) or _named(other) & _within(right)))
    )


def _sides_meet(one: str, other: str) -> bool:
    sides = [{"left", "right"} & set(folded(text).split()) for text in (one, other)]
    return not all(sides) or bool(sides[0] & sides[1])


KINDS = ("region", "organ", "finding", "modality", "site", "technique")


def _named(option: str) -> set[str]:
    """The concepts of which an option is the whole name, but for its side."""
    plain = folded(option)
    sideless = " ".join(word for word in plain.split() if word not in ("left", "right", "the", "a", "an"))
    found = [
        by_name(kind).get(name)
        for kind in KINDS[:4]
        for name in (plain, sideless, singular(sideless), without_side(option)[0])
    ]
    return {term.concept for term in found if term}


def _within(option: str) -> set[str]:
    """The concepts of everything that an option names, and those above: a liver cyst's liver and abdomen."""
    found: set[str] = set()
    for term in words_within(option, *KINDS):
        found |= {term.concept, *ancestors(term.kind, term.concept), *term.modalities, *term.regions}
        found |= {above for region in term.regions for above in ancestors("region", region)}
        found |= {above for name in term.modalities for above in ancestors("modality", name)}
    return found


@cache
def _plain(option: str) -> str:
    """An option with numbers as digits, one unit a quantity, and American spelling: `II` -> 2, `0.5 cm` -> 5 mm, `oedema` -> edema."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", option.casefold())
    text = re.sub(r"(\d)\s*%", r"\1 percent ", re.sub(r"(?<=\d)(?=[a-z])", " ", text))
    words = [NUMBERS.get(word, word) for word in re.findall(r"\d+(?:\.\d+)?|[^\W\d_]+", text)]
    words = " ".join(words).split()
    for at, word in enumerate(words):
        if re.fullmatch(r"\d+(?:\.\d+)?", word):
            unit, times = UNITS.get(words[at + 1], (words[at + 1], 1)) if at + 1 < len(words) else ("", 1)
            words[at : at + 2] = [f"{float(word) * times:g}".replace(".", "point"), *([unit] if unit else [])]
    american = re.sub(r"ae|oe", "e", folded(" ".join(words)))
    return re.sub(r"our(?=\b|s\b)", "or", american)
