"""Denials that only the question makes an answer (of signs of what it asks for, of an abnormality), and those of another thing."""

from __future__ import annotations

import re

from eval_harness.answer_reading.options import stem
from eval_harness.answer_reading.words import asks
from eval_harness.answer_reading.yes_no.asked import (
    KNOWN,
    PREPOSITIONS,
    SIDES,
    asked_of,
    content_of,
    finding_words,
    parts_of,
    words_of,
)
from eval_harness.answer_reading.yes_no.exclusive import is_another, is_another_finding
from eval_harness.answer_reading.yes_no.opposites import CHANGED
from eval_harness.answer_reading.yes_no.question import HISTORY, NOT_SO, SENTENCES, is_doubted, repeats_words
from eval_harness.answer_reading.yes_no.spoken import FOUND


def speaks_of_another(text: str, question: str) -> bool:
    """Whether the first sentence is about another side or part than the question ("the right lung" for the left), about another thing
    of which the same is asked, or about the history where it is not asked for."""
    first, asked = SENTENCES.split(text, maxsplit=1)[0], asked_of(question)
    if HISTORY.search(first) and not asks(question, HISTORY):
        return True
    said, wanted = set(content_of(first)), set(content_of(asked))
    if is_another(words_of(first), words_of(asked)) or is_another_finding(words_of(first), words_of(asked)):
        return True
    core = finding_words(question)
    if core and said.isdisjoint(core) and not said.isdisjoint(wanted - KNOWN) and _NOT_SEEN.search(first):
        return True
    if core and not said.isdisjoint(core):
        if _OR.search(asked) and not said.issuperset(set(core) - KNOWN - SIDES):
            return True
        if (other := NOT_SO.search(first)) and stem(other[1]) not in wanted:
            return True
        tokens, known = content_of(first), KNOWN | PREPOSITIONS
        after = tokens[max(at for at, word in enumerate(tokens) if word in core) + 1 :]
        place = set(after[next((at for at, word in enumerate(after) if word in PREPOSITIONS), len(after)) :]) - known
        nouns = place - SIDES or place
        if place and not PREPOSITIONS.isdisjoint(wanted) and nouns.isdisjoint(wanted):
            return True
    _, finding, named, words = parts_of(asked)
    if not finding and not named and words[-1:] != words[:1] and _NOT_SEEN.search(first) and words[-1] not in said:
        return _PRIOR.search(first) is not None or not said.isdisjoint(words[:-1])
    if finding or named or len(words) < 2 or _ASKS_HOW.match(asked) is None or words[-1] not in said:
        return False
    return said.isdisjoint(words[:-1]) and _POINTS.search(first) is None


_NOT_SEEN = re.compile(
    rf"\bnot (?:\w+ )?(?:{FOUND}|included|clear|available|assessed)\b|\bno (?:prior|previous)\b", re.IGNORECASE
)
"""What says nothing of how a thing is ("The appendix is not seen." to "Is the appendix inflamed?")."""
_PRIOR = re.compile(r"\bno (?:prior|previous)\b", re.IGNORECASE)
_OR = re.compile(r"\bor\b", re.IGNORECASE)
_ASKS_HOW = re.compile(r"\W*(?:(?:is|are|was|were)\b|do(?:es)? .+ (?:appear|look|seem)\b)", re.IGNORECASE)
_POINTS = re.compile(r"\b(?:it|they|this|that|these|image|picture|scan|film|patient|i|we|he|she)\b", re.IGNORECASE)


def denies_signs(text: str, question: str) -> str | None:
    """`no` where a response sees no sign of what the question asks for, and takes nothing back ("appears normal, with no signs of
    glaucoma")."""
    words = finding_words(question)
    if not words or is_negated(question):
        return None
    for sentence in SENTENCES.split(text):
        signs = _NO_SIGNS.search(sentence)
        if not signs or is_doubted(sentence, question) or speaks_of_another(sentence, question):
            continue
        rest = sentence[signs.end() :]
        if repeats_words(content_of(rest), words, 0) or any(_is_wider(item, words) for item in _ITEMS.split(rest)):
            return None if _BUT.search(text) else "no"
    return None


def _is_wider(item: str, words: tuple[str, ...]) -> bool:
    """Whether an item of what is denied is the noun of what is asked for, with no other words ("no sign of fracture or effusion")."""
    said = content_of(item)
    return said[-1:] == words[-1:] and set(said) <= set(words)


_ITEMS = re.compile(r"[,.;]|\b(?:or|and|in|on|at|within)\b", re.IGNORECASE)
_NO_SIGNS = re.compile(r"\b(?:no|without)(?: any)?(?: \w+)? (?:signs?|evidence|indications?) of\b", re.IGNORECASE)
_BUT = re.compile(r"\b(?:however|but|although|though|yet)\b", re.IGNORECASE)


def is_negated(question: str) -> bool:
    """Whether a question asks by a negation ("Is no fracture visible?"), so that a denial may confirm it."""
    return asks(question, _ASKS_NOT)


_ASKS_NOT = re.compile(r"\b(?:no|not|without|absent)\b|n't\b", re.IGNORECASE)


def denies_abnormal(text: str, question: str) -> str | None:
    """`yes` where a question asks whether something is normal and the response denies that it is abnormal."""
    return "yes" if asks(question, _ASKS_NORMAL) and _NOT_ABNORMAL.match(text) else None


_ASKS_NORMAL = re.compile(r"\bnormal\b", re.IGNORECASE)
_NOT_ABNORMAL = re.compile(
    r"\W*(?:there (?:is|are) |the [\w-]+ shows? )?no (?:\w+ )?(?:(?:evidence|signs?) of )?(?:\w+ )?abnormal\w*|[^.,\n]{0,60}\bnot abnormal",
    re.IGNORECASE,
)


def denies_a_finding(text: str, question: str) -> bool:
    """Whether a question asks whether something is healthy and the response denies some finding, which is no denial of that."""
    return asks(question, _ASKS_HEALTHY) and _NO_FINDING.match(text) is not None


_HEALTHY = r"(?:normal|clear|intact|unremarkable|healthy|patent|preserved|sharp|midline|central|centered|symmetric\w*)"
_ASKS_HEALTHY = re.compile(rf"^\W*(?:is|are|does|do)\b[^?.]*\b{_HEALTHY}\b", re.IGNORECASE)
_NO_FINDING = re.compile(
    r"\W*(?:there (?:is|are) |the [\w-]+ (?:shows?|has|have) )?no\s+"
    rf"(?!(?:the|there|it|this|that|they|these|i|we|because|not|its?)\b)(?![^.;,]*\b{_HEALTHY}\b)\w",
    re.IGNORECASE,
)
_PART_OF = re.compile(
    r"\b(?:left|right|upper|lower|middle|rhythm|rate|lobes?|segments?|portion|half|apex|apices|bases?|rest|remainder)\b",
    re.IGNORECASE,
)


def speaks_of_a_part(text: str, question: str) -> bool:
    """Whether a question asks whether something is healthy and the first sentence says so of one part of it only."""
    if not asks(question, _ASKS_HEALTHY):
        return False
    first = _CLAUSE_END.split(text, maxsplit=1)[0]
    if not (parts := {part.lower() for part in _PART_OF.findall(first)}):
        return False
    return not {"left", "right"} <= parts and not asks(question, _PART_OF) and " both " not in first


_CLAUSE_END = re.compile(r"(?<=[.!?])\s+|\n|;|\b(?:but|whereas|while|however)\b", re.IGNORECASE)


def only_appears(text: str, question: str) -> bool:
    """Whether a response to whether something is changed goes on that it is normal ("appears enlarged on this film, but is normal")."""
    return asks(question, _ASKS_CHANGED) and _IS_NORMAL_AFTER_ALL.search(text) is not None


_ASKS_CHANGED = re.compile(rf"\b(?:{CHANGED})\b", re.IGNORECASE)
_IS_NORMAL_AFTER_ALL = re.compile(
    r"\b(?:but|though|although|however|even (?:when|if)|while)\b,? (?:it|they|this) ?(?:is|are|may be|can be|'s)"
    r" (?:\w+ly )?(?:still )?normal\b",
    re.IGNORECASE,
)


def denies_of_another(text: str, question: str) -> bool:
    """Whether what is denied is said of a thing that the question does not name ("The vessels do not enhance.")."""
    of = _DENIED_OF.match(text)
    if of is None:
        return False
    thing = content_of(of[1])
    return bool(thing) and thing[-1] not in KNOWN and thing[-1] not in content_of(question)


def denies_what_is_not_asked(text: str, question: str) -> bool:
    """Whether "there is no X" is said to a question where a thing is, that does not name X."""
    denied = _THERE_IS_NO.match(text)
    if denied is None or _ASKS_WHERE.match(question) is None:
        return False
    said = set(content_of(denied[1])) - KNOWN
    return bool(said) and said.isdisjoint(content_of(question))


_ASKS_WHERE = re.compile(
    r"\W*(?:is|are) the .+ (?:in|at|on|within) (?!(?:this|the) (?:image|picture|scan|film))", re.IGNORECASE
)
_THERE_IS_NO = re.compile(r"\W*there (?:is|are) no ([\w-]+(?: [\w-]+)?)", re.IGNORECASE)
_DENIED_OF = re.compile(
    r"\W*the ((?:(?!(?:of|in|on|at|from|with|to)\b)[\w-]+ ){0,3}?[\w-]+) (?:is|are|was|were|does|do|did|appears?) not\b"
    r"(?! (?:\w+ )?(?:seen|visible|present|identified"
    r"|noted|detected|evident|observed|shown))",
    re.IGNORECASE,
)


def denies_one_of_two(text: str, question: str) -> bool:
    """Whether a question asks for one thing or another and the response denies one with a "but" ("No fracture, but a dislocation.")."""
    return _OR.search(asked_of(question)) is not None and _THING_BUT.match(text) is not None


_THING_BUT = re.compile(r"\W*no \w[^.\n]{1,80}\bbut\b", re.IGNORECASE)
