"""Which numbers of a response are its answer: not those of its workings, of a range, or of another thing."""

from __future__ import annotations

import re

from eval_harness.answer_reading.mentions import PROSE, REST, Mention
from eval_harness.answer_reading.options import OptionTexts, stem

_RANGE_BEFORE = re.compile(r"([^\W\d_]+)\s*(?:\bto\b|-|\bor\b|/|\band\b|&)\s*(?:(?:a|an|the)\s+)?$", re.IGNORECASE)
_JOINS = ("to", "-", "or", "/", "and", "&", "a", "an", "the")
"""What `_RANGE_BEFORE` may end with."""
_NUMBERED = re.compile(r"(?:\d|\b[ivxIVX]+)$")
_RANGE_AFTER = re.compile(r"\s*(?:\bto\b|\bor\b|[-–/])\s*(?:\d|[IVX]+\b)")
_RESULT_IS = re.compile(
    r"\b(?:is|was|are|be|equals|is (?:also )?equal to)\s+(?:about |approximately |exactly )?[^\w\s]?$", re.IGNORECASE
)
"""Before the number that ends a response ("With 200 minutes a month the saving would be 52.61.")."""
_ANY_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def only_number(text: str, mention: Mention, final: int) -> bool:
    """Whether a number is the only one that a response without workings names, or the only one of its last sentence."""
    own = set(_ANY_NUMBER.findall(text[mention.start : mention.end]))
    if len(text) <= PROSE and text[: mention.start].rstrip(" $\n").endswith("=") and not REST.search(text, mention.end):
        return True  # the result of a calculation that ends the response
    if (
        len(text) <= PROSE
        and _RESULT_IS.search(text[max(0, mention.start - 20) : mention.start])
        and not REST.search(text, mention.end)
    ):
        return True
    start = 0 if len(text) <= PROSE and "=" not in text and own.issuperset(_ANY_NUMBER.findall(text)) else final
    if mention.start < start or not own.issuperset(_ANY_NUMBER.findall(text[start:])):
        return False
    signs = text.count("=", start)
    return signs == 0 or (
        signs == 1 and text[: mention.start].rstrip().endswith("=") and not REST.search(text, mention.end)
    )


def counts_another(text: str, mention: Mention, question: str | None) -> bool:
    """Whether a number is that of another thing than the question's: of a grade or segment, of a change, of a distance, or with a unit
    where it asks how many there are."""
    if question is None:
        return False
    asked = question.lower()
    before = text[max(0, mention.start - 40) : mention.start]
    if (of := _NUMBER_OF.search(before)) and of[1].lower() not in asked:
        return True
    if (by := _CHANGED_BY.search(before)) and by[1].lower()[:5] not in asked and "much" not in asked:
        return True
    if _APART.match(text, mention.end) and not _ASKS_APART.search(asked):
        return True
    unit = _UNIT_AFTER.match(text, mention.end) if "how many" in asked else None
    return unit is not None and unit[1] not in asked


_NUMBER_OF = re.compile(
    r"\b(ribs?|vertebra|grade|stage|segment|type|class|level|zone|figure|image|slice|series|phase|day|week)s? (?:no\. ?)?$",
    re.IGNORECASE,
)
_CHANGED_BY = re.compile(
    r"\b(reduced|increased|decreased|elevated|raised|lowered|narrowed) by (?:about |up to )?$", re.IGNORECASE
)
_APART = re.compile(r"\s+(?:away |distant )?from the\b", re.IGNORECASE)
_ASKS_APART = re.compile(r"\b(?:distance|far|from|between|away|depth)\b")
_UNIT_AFTER = re.compile(r"\s?(mm|cm|ml|mg|percent|hu)\b", re.IGNORECASE)


def is_range(text: str, mention: Mention, texts: OptionTexts) -> bool:
    """Whether a word that tells another option is joined before ("mild to moderate stenosis")."""
    numbered = len(mention.options) == 1 and _NUMBERED.search(text, mention.start, mention.end)
    if numbered and _RANGE_AFTER.match(text, mention.end):
        return True
    joined = text[max(0, mention.start - 30) : mention.start]
    if not joined.rstrip().lower().endswith(_JOINS) or (before := _RANGE_BEFORE.search(joined)) is None:
        return False
    word = stem(before[1].lower())
    return any(word in words for option, words in enumerate(texts.distinguishing) if option not in mention.options)
