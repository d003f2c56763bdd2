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
from curation.custom_sets.probe_table import labels_may_coincide
from dataset_builders.label_reading import ParsedLabel, find_cues, parse_label, split_side
from dataset_builders.terms import ancestors, find_terms, normalize_term, singular, terms_by_name

REFERENCE_WORDS = (
    "above|below|both|all|either|neither|any|each|some|none|options?|choices?|answers?|these|those|them|listed|mentioned|following|preceding|"
    "previous|foregoing|aforementioned|others|everything|every|former|latter"
)
"""Words with which an option speaks of other options, where it has no words of its own: `Both A and C`."""
FILLER_WORDS = (
    "of|the|and|or|nor|but|not|plus|only|see|are|is|correct|true|right|wrong|false|one|two|three|four|first|second|third|fourth|[1-8](?:st|nd|rd|th)|last|other|"
    "statements?|together|at|once|as|well|combination|combined|more|than|same|apply|applies|present|seen|visible|shown|could|be|can|may|possible|"
    "here|it|that|this|no|see|to|through|with|along|except|also|findings?|conditions?|diagnos[ei]s|entit(?:y|ies)|structures?|features?|"
    "lesions?|abnormalit(?:y|ies)|regions?|signs?"
)
OPTION_MARK = "[a-h1-8]|i{1,3}|iv|vi?"
OPTION_REFERENCE = re.compile(
    r"\b(?:all|any|none|both|either|neither|each|some|most|two|three|one|combination|which) of "
    r"(?:these|those|them|the (?:above|listed|following|foregoing|options|choices|others?))\b|"
    r"\b(?:the|all|both|as) (?:above|foregoing|preceding)\b|\b(?:above|other) (?:options?|choices?|answers?)\b|"
    rf"\b(?:options?|choices?|answers?) (?:{OPTION_MARK})\b|"
    rf"^(?:both |either |neither )?(?:{OPTION_MARK}) (?:and|or|nor|plus) (?:{OPTION_MARK})\b"
)
RANGE_WORDS = re.compile(
    r"[<>≤≥]|\d\s*\+|\b(?:more|less|greater|fewer|larger|smaller|longer|shorter|older|younger|over|under|above|below|least|most|up to|"
    r"within)\b"
)
SPELLED_NUMBER = re.compile(
    r"\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|half|single|i{1,3}|iv|vi{0,3})\b", re.IGNORECASE
)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
ABSTENTION = re.compile(
    r"\b(?:none of the above|all of the above|not know|dont know|unknown|can ?not be|cant be|cant tell|cannot tell|cannot determine|"
    r"unable to|impossible|insufficient|not enough|not possible|no answer|no \w+ possible|not sure|unsure|not applicable|"
    r"(?:not |un)(?:\w+ )?(?:listed|given|specified|mentioned|determined)|not in the list|need(?:ed|s)|depends|unclear|uncertain|"
    r"indeterminate|inconclusive|equivocal|maybe|perhaps|elsewhere|something else|miscellaneous|n a)\b|"
    r"^(?:none|nothing|neither|possibly|other\w*|(?:any |an |a |some(?:thing)? )?(?:other|another|different)(?: \w+)?)$"
)
"""Folded options that no other option rules out, or that decline."""
GENERIC_TOPIC = re.compile(
    r"\b(?:modality|technique|sequence|planes?|views?|projection|orientation|kind of (?:image|scan)|type of (?:image|scan|imaging)|"
    r"(?:which|what) (?:organ|body part|part of the body|region|side)|contrast|axial|coronal|sagittal|ages?|old|sex|gender|male|female|"
    r"marker|annotation|missing|outside)\b",
    re.IGNORECASE,
)
"""Topics that apply to any image, so that a swapped one answers the question."""
SIDE_WORDS = {"left", "right", "bilateral", "bilaterally", "both", "sides", "unilateral"}


@cache
def refers_to_options(option: str) -> bool:
    """True where an option means other options: `Both A and C`, `All of the above`, `A & B`, `Only (ii)`, `Both`, `1 and 3 are correct`.

    Such a question has no meaning left once an option is replaced or moved.
    """
    text = normalize_term(re.sub(r"[&+]", " and ", option))
    words = text.split()
    if OPTION_REFERENCE.search(text) or not words:
        return bool(words)
    if re.fullmatch("[A-E]{2,5}", option.strip()) and sorted(set(option.strip())) == list(option.strip()):
        return True  # AB, ACD
    if not all(re.fullmatch(rf"{REFERENCE_WORDS}|{FILLER_WORDS}|{OPTION_MARK}", word) for word in words):
        return False
    marks = sum(bool(re.fullmatch(OPTION_MARK, word)) for word in words)
    said = any(
        re.fullmatch(rf"{REFERENCE_WORDS}|other|first|second|third|[1-8](?:st|nd|rd|th)|last|more", word)
        for word in words
    )
    return (
        marks > 1
        or (marks > 0 and bool({"only", "except", "as", "not", "see"} & set(words)))
        or (said and words not in (["none"], ["other"]))
    )


def has_abstention(options: Sequence[str]) -> bool:
    """True where an option declines or fits what the others leave: `I do not know`, `Cannot be determined`, `Other`, `Not listed`."""
    return any(ABSTENTION.search(normalize_term(option)) for option in options)


def fits_any_image(options: Sequence[str]) -> bool:
    """True where an option is right of an image that has nothing to do with the question: no, none, normal, intact, grade 0."""
    return any(kind in ("negated", "normal") for option in options for kind, _ in find_cues(option))


def asks_for_absence(question: str) -> bool:
    """True where a question asks for what is not there or not affected: any of its options is right of an unrelated image."""
    return any(kind in ("negated", "normal") and not words.isdigit() for kind, words in find_cues(question))


def has_single_answer(question: CustomQuestion) -> bool:
    """True where no other option may mean what the right one does, or a part or kind of it: without it, none is right."""
    return not any(_may_coincide(question.right, other) for other in question.wrong)


def _may_coincide(right: str, other: str) -> bool:
    numbers = [bool(NUMBER.search(option)) for option in (right, other)]
    if all(numbers):
        return not _numbers_differ(right, other)
    if any(numbers) and any(map(SPELLED_NUMBER.search, (right, other))):
        return True
    labels = [parse_label(option) for option in (right, other)]
    one, two = (
        ParsedLabel(_americanize(option), label.term, label.side)
        for option, label in zip((right, other), labels, strict=True)
    )
    own = set(normalize_term(right).split())
    return (
        labels_may_coincide(one, two)
        or labels_may_coincide(ParsedLabel(one.text), ParsedLabel(two.text))
        or bool(
            own & {"bilateral", "bilaterally", "both", "all", "diffuse"}
            and set(normalize_term(other).split()) & SIDE_WORDS
        )
        or (
            _sides_overlap(right, other)
            and bool(
                _whole_concepts(right) & _mentioned_concepts(other)
                or _whole_concepts(other) & _mentioned_concepts(right)
            )
        )
    )


def _numbers_differ(one: str, other: str) -> bool:
    """True for options that differ in one number alone: `5 cm` and `7 cm`, T1 and T2. Other units, words for numbers and ranges may mean
    the same."""
    shapes = {" ".join(NUMBER.sub("#", text.casefold()).split()) for text in (one, other)}
    numbers = [
        [float(found.replace(",", "")) for found in NUMBER.findall(text) if found.count(".") < 2]
        for text in (one, other)
    ]
    is_plain = len(shapes) == 1 and all(len(each) == 1 for each in numbers) and not RANGE_WORDS.search(shapes.pop())
    return is_plain and numbers[0] != numbers[1]


def _sides_overlap(one: str, other: str) -> bool:
    sides = [{"left", "right"} & set(normalize_term(text).split()) for text in (one, other)]
    return not all(sides) or bool(sides[0] & sides[1])


TERM_KINDS = ("region", "organ", "finding", "modality", "site", "technique")


def _whole_concepts(option: str) -> set[str]:
    """The concepts of which an option is the whole name, but for its side."""
    plain = normalize_term(option)
    sideless = " ".join(word for word in plain.split() if word not in ("left", "right", "the", "a", "an"))
    found = [
        terms_by_name(kind).get(name)
        for kind in TERM_KINDS[:4]
        for name in (plain, sideless, singular(sideless), split_side(option)[0])
    ]
    return {term.concept for term in found if term}


def _mentioned_concepts(option: str) -> set[str]:
    """The concepts of everything that an option names, and those above: a liver cyst's liver and abdomen."""
    found: set[str] = set()
    for term in find_terms(option, *TERM_KINDS):
        found |= {term.concept, *ancestors(term.kind, term.concept), *term.modalities, *term.regions}
        found |= {above for region in term.regions for above in ancestors("region", region)}
        found |= {above for name in term.modalities for above in ancestors("modality", name)}
    return found


def _americanize(option: str) -> str:
    """The folded words in American spelling: `oedema` -> edema."""
    american = re.sub(r"ae|oe", "e", normalize_term(option))
    return re.sub(r"our(?=\b|s\b)", "or", american)
