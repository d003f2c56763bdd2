"""Decide whether a question's correct option or image may be replaced.

`hallucination.py` replaces the correct option by "None of the above", or the image by one for which
"I do not know" is correct. This must not make a remaining option correct. A question is therefore
left out if an option refers to other options, fits any image, or may mean the same as the correct
option.
"""

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
"""Words with which an option refers to other options, unless it also has content words: `Both A and
C` does, `both kidneys` does not.
"""
FILLER_WORDS = (
    "of|the|and|or|nor|but|not|plus|only|see|are|is|correct|true|right|wrong|false|one|two|three|four|first|second|third|"
    "fourth|[1-8](?:st|nd|rd|th)|last|other|"
    "statements?|together|at|once|as|well|combination|combined|more|than|same|apply|applies|present|seen|visible|shown|could|be|can|may|possible|"
    "here|it|that|this|no|see|to|through|with|along|except|also|findings?|conditions?|diagnos[ei]s|entit(?:y|ies)|structures?|features?|"
    "lesions?|abnormalit(?:y|ies)|regions?|signs?"
)
OPTION_LABEL = "[a-h1-8]|i{1,3}|iv|vi?"
OPTION_REFERENCE = re.compile(
    r"\b(?:all|any|none|both|either|neither|each|some|most|two|three|one|combination|which) of "
    r"(?:these|those|them|the (?:above|listed|following|foregoing|options|choices|others?))\b|"
    r"\b(?:the|all|both|as) (?:above|foregoing|preceding)\b|\b(?:above|other) "
    r"(?:options?|choices?|answers?)\b|"
    rf"\b(?:options?|choices?|answers?) (?:{OPTION_LABEL})\b|"
    rf"^(?:both |either |neither )?(?:{OPTION_LABEL}) (?:and|or|nor|plus) (?:{OPTION_LABEL})\b"
)
RANGE_WORDS = re.compile(
    r"[<>≤≥]|\d\s*\+|\b(?:more|less|greater|fewer|larger|smaller|longer|shorter|older|younger|over|under|above|below|least|most|up to|"
    r"within)\b"
)
SPELLED_NUMBER = re.compile(
    r"\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|half|single|i{1,3}|iv|vi{0,3})\b",
    re.IGNORECASE,
)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
ABSTENTION = re.compile(
    r"\b(?:none of the above|all of the above|not know|dont know|unknown|can ?not be|cant be|cant "
    r"tell|cannot tell|cannot determine|"
    r"unable to|impossible|insufficient|not enough|not possible|no answer|no \w+ possible|not "
    r"sure|unsure|not applicable|"
    r"(?:not |un)(?:\w+ )?(?:listed|given|specified|mentioned|determined)|not in the "
    r"list|need(?:ed|s)|depends|unclear|uncertain|"
    r"indeterminate|inconclusive|equivocal|maybe|perhaps|elsewhere|something else|miscellaneous|n "
    r"a)\b|"
    r"^(?:none|nothing|neither|possibly|other\w*|(?:any |an |a |some(?:thing)? "
    r")?(?:other|another|different)(?: \w+)?)$"
)
"""Options (folded) that decline to answer, or that are compatible with every other option."""
GENERIC_TOPIC = re.compile(
    r"\b(?:modality|technique|sequence|planes?|views?|projection|orientation|kind of "
    r"(?:image|scan)|type of (?:image|scan|imaging)|"
    r"(?:which|what) (?:organ|body part|part of the "
    r"body|region|side)|contrast|axial|coronal|sagittal|ages?|old|sex|gender|male|female|"
    r"marker|annotation|missing|outside)\b",
    re.IGNORECASE,
)
"""Topics of questions that can be answered with any image, even a swapped one."""
OPTION_LATERALITY_WORDS = {"left", "right", "bilateral", "bilaterally", "both", "sides", "unilateral"}


@cache
def refers_to_options(option: str) -> bool:
    """Return True if an option refers to other options.

    Such an option would lose its meaning if one of them were replaced or moved. Examples: `Both A
    and C`, `All of the above`, `A & B`, `Only (ii)`, `Both`, `1 and 3 are correct`.
    """
    text = normalize_term(re.sub(r"[&+]", " and ", option))
    words = text.split()
    if OPTION_REFERENCE.search(text) or not words:
        return bool(words)
    if re.fullmatch(
        "[A-E]{2,5}",
        option.strip(),
    ) and sorted(set(option.strip())) == list(option.strip()):
        return True  # AB, ACD

    # One content word gives an option a meaning of its own: "both kidneys" is an answer.
    if not all(re.fullmatch(rf"{REFERENCE_WORDS}|{FILLER_WORDS}|{OPTION_LABEL}", word) for word in words):
        return False
    marks = sum(bool(re.fullmatch(OPTION_LABEL, word)) for word in words)
    # "None" or "Other" alone does not refer to options; `has_abstention` finds these.
    has_reference = any(
        re.fullmatch(
            rf"{REFERENCE_WORDS}|other|first|second|third|[1-8](?:st|nd|rd|th)|last|more",
            word,
        )
        for word in words
    )
    return (
        marks > 1
        or (marks > 0 and bool({"only", "except", "as", "not", "see"} & set(words)))
        or (has_reference and words not in (["none"], ["other"]))
    )


def has_abstention(options: Sequence[str]) -> bool:
    """Return True if an option declines to answer or covers the remaining cases.

    Examples: `I do not know`, `Cannot be determined`, `Other`, `Not listed`.
    """
    return any(ABSTENTION.search(normalize_term(option)) for option in options)


def fits_any_image(options: Sequence[str]) -> bool:
    """Return True if any option is correct for an unrelated image: no, normal, intact, grade 0."""
    return any(kind in ("negated", "normal") for option in options for kind, _ in find_cues(option))


def asks_for_absence(question: str) -> bool:
    """Return True if a question asks for what is absent or unaffected.

    If it does, any option is correct for an unrelated image.
    """
    return any(kind in ("negated", "normal") and not words.isdigit() for kind, words in find_cues(question))


def has_single_answer(question: CustomQuestion) -> bool:
    """Return True if no wrong option may mean the same as the correct one, or a part or kind of it.

    Only then is "None of the above" correct once the correct option is removed.
    """
    return not any(_may_coincide(question.correct_option, option) for option in question.wrong_options)


def _may_coincide(correct: str, option: str) -> bool:
    """Return True if two options may mean the same, or one may be a part or kind of the other."""
    # Options with numbers are compared as numbers, not as words.
    numbers = [bool(NUMBER.search(option)) for option in (correct, option)]
    if all(numbers):
        return not _numbers_differ(correct, option)
    if any(numbers) and any(map(SPELLED_NUMBER.search, (correct, option))):
        return True  # "3" and "three"

    labels = [parse_label(option) for option in (correct, option)]
    correct_label, other_label = (
        ParsedLabel(_americanize(option), label.term, label.side)
        for option, label in zip((correct, option), labels, strict=True)
    )
    correct_words = set(normalize_term(correct).split())
    # Labels without terms are compared by their words, in case the vocabulary knows neither option.
    return (
        labels_may_coincide(correct_label, other_label)
        or labels_may_coincide(ParsedLabel(correct_label.text), ParsedLabel(other_label.text))
        or bool(
            correct_words & {"bilateral", "bilaterally", "both", "all", "diffuse"}
            and set(normalize_term(option).split()) & OPTION_LATERALITY_WORDS
        )
        or (
            _sides_overlap(correct, option)
            and bool(
                _whole_concepts(correct) & _mentioned_concepts(option)
                or _whole_concepts(option) & _mentioned_concepts(correct)
            )
        )
    )


def _numbers_differ(option_a: str, option_b: str) -> bool:
    """Return True if two options differ in exactly one number: `5 cm` and `7 cm`, T1 and T2.

    Different units, spelled-out numbers and ranges may mean the same, so they do not count as
    different.
    """
    # The shape of an option is its text without the numbers; equal shapes have the same unit.
    shapes = {" ".join(NUMBER.sub("#", text.casefold()).split()) for text in (option_a, option_b)}
    numbers = [
        [float(match.replace(",", "")) for match in NUMBER.findall(text) if match.count(".") < 2]
        for text in (option_a, option_b)
    ]
    is_plain = (
        len(shapes) == 1
        and all(len(option_numbers) == 1 for option_numbers in numbers)
        and not RANGE_WORDS.search(shapes.pop())
    )
    return is_plain and numbers[0] != numbers[1]


def _sides_overlap(option_a: str, option_b: str) -> bool:
    """Return True if two options may be on the same side; an option without a side is on either."""
    sides = [{"left", "right"} & set(normalize_term(text).split()) for text in (option_a, option_b)]
    return not all(sides) or bool(sides[0] & sides[1])


TERM_KINDS = ("region", "organ", "finding", "modality", "site", "technique")


def _whole_concepts(option: str) -> set[str]:
    """Return the concepts that the whole option names, apart from its side."""
    plain = normalize_term(option)
    sideless = " ".join(word for word in plain.split() if word not in ("left", "right", "the", "a", "an"))
    matches = [
        terms_by_name(kind).get(name)
        for kind in TERM_KINDS[:4]
        for name in (plain, sideless, singular(sideless), split_side(option)[0])
    ]
    return {term.concept for term in matches if term}


def _mentioned_concepts(option: str) -> set[str]:
    """Return the concepts of all terms in an option, with their ancestors.

    For "liver cyst", these include liver and abdomen.
    """
    concepts: set[str] = set()
    for term in find_terms(option, *TERM_KINDS):
        concepts |= {
            term.concept,
            *ancestors(term.kind, term.concept),
            *term.modalities,
            *term.regions,
        }
        concepts |= {ancestor for region in term.regions for ancestor in ancestors("region", region)}
        concepts |= {ancestor for modality in term.modalities for ancestor in ancestors("modality", modality)}
    return concepts


def _americanize(option: str) -> str:
    """Fold an option and convert it to American spelling: `oedema` -> edema."""
    american = re.sub(r"ae|oe", "e", normalize_term(option))
    return re.sub(r"our(?=\b|s\b)", "or", american)
