"""Find option letters in a response, however they are written; never the article A, the pronoun I, or a letter that is part of a name.

Positions are those of the options shown; -1 stands for a letter outside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dataset_builders.schema import LETTERS
from eval_harness.reader.text import CJK

Found = tuple[int, ...] | None
"""What a rule finds: positions, () for more than one option without saying which, None where it does not apply."""

OPEN, CLOSE = r"[\"'(\[{<«「]{0,4}", r"[\"')\]}>»」]{0,4}"
_LETTER = re.compile(
    rf"(?<![\w]['’-])(?<![∠△⊙])(?P<letter>[A-Z]|[a-z](?=[)\]}}]|[.:\"']?\s*(?:\n"
    rf"|$)))(?!['’]?[^\W_{CJK}]|-[a-z]{{2}})(?P<close>{CLOSE})"
)
_AFTER_A = re.compile(
    r"[^\S\n]+(?!\w(?![\w-])|\d[\d.,: ]*(?:\s?%|\W*(?:$|\n))|(?:and|or|nor|is|are|was|because|since|as|due|for"
    r"|based|given|not|rather"
    r"|with|which|but|in|on|only|unlike|vs|versus|through|thru|et|und|oder|ou|y|from|would|could|seems?|looks?"
    r"|appears?|the|i|it|this"
    r"|that|instead|over|to|at|first|fits?|best|matches)\b)[A-Za-z0-9]",
    re.IGNORECASE,
)
"""What stands after the article."""
_BOXES = ("[x]", "[X]")
ENDS = re.compile(rf"\s*(?:$|\n|[(.,;:!?)\]}}\"'<>|/&]|[-–—]\s|(?:and|n?or|et|und|oder|ou|y|o)\b|[{CJK}])")


def position(letter: str, count: int) -> int:
    """The position that a letter stands for, -1 outside the options."""
    place = LETTERS.index(letter.upper())
    return place if place < count else -1


def letters_in(text: str, lowered: str, words: Iterable[int]) -> Iterator[re.Match[str]]:
    """Which of the words of one letter (where each begins) may be options; groups `letter` and `close` (the brackets after it)."""
    for match in filter(None, (_LETTER.match(text, word) for word in words)):
        start, end = match.start(), match.end()
        letter, closed = match["letter"], bool(match["close"])
        opened = start > 0 and text[start - 1] in "\"'([{<「"
        if letter.islower() and not (opened and closed) and not _BEGINS_LINE.search(lowered, max(0, start - 20), start):
            continue
        if letter == "I" and not (opened and closed) and (ENDS.match(text, end) is None or text[end : end + 1] == "'"):
            continue
        if (letter == "A" and not closed and _is_article(text, lowered, start, end)) or text[start - 1 : end] in _BOXES:
            continue
        yield match


def _is_article(text: str, lowered: str, start: int, end: int) -> bool:
    quoted = start > 0 and text[start - 1] in "\"'([{<「" and not text[end : end + 1].isspace()
    return (
        not quoted
        and _AFTER_A.match(text, end) is not None
        and not AFTER_OPTION.search(lowered, max(0, start - 12), start)
    )


AFTER_OPTION = re.compile(r"\b(?:option|choice|answer|letter|opción|opção|opzione|antwort|alternativa|选项)s? ?$")
_BEGINS_LINE = re.compile(r"(?:^|\n|answer|option|choice|is|:)[\s\"'(\[:*]*$")
"""Before a small letter that is an option ("answer: b")."""


_NOTHING_BUT_LETTERS = re.compile(
    rf"\W*(?:(?:options?|choices?|answers?|letters?|both|选项?)\s*:?\s*)?{OPEN}[A-Za-z]{CLOSE}"
    rf"(?:(?:\s*(?:,|/|&|\||\+|;|\n|\band\b|\bund\b|\bet\b|\by\b|和|与|及)\s*)+(?:options?\s+)?{OPEN}[A-Za-z]{CLOSE}"
    rf"|\s*[\"'(\[]+[A-Z]{CLOSE})*[\W_]*(?:only\W*)?",
    re.IGNORECASE,
)
_RUN = re.compile(r"[\s\"'(\[{:*]{0,20}([A-Z]{2,26}|[A-Z](?:[^\S\n]+[A-Z])+)(?![\w'-])")
_CROSS = re.compile(r"[✗❌✘×☐☑☒]|\[ ?\]")
_AND = re.compile(r"(?<=\w[\s)\]]) *[eyou] (?=[A-Z(\[])")
_SINGLE = re.compile(r"(?<![^\W_])[A-Za-z](?![^\W_])")


def whole_letters(text: str, count: int, multiple: bool) -> Found:
    """The letters of a text that is nothing but letters: "B", "(b)", "B.", "option B", "A and C"; for several answers also "ACD"."""
    if len(text) > 200 or _CROSS.search(text):
        return None
    if (
        multiple
        and (run := letters_run(text, 0, count))
        and not text.strip(" \n\"'()[]{}.,;:!").lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    ):
        return run
    if _NOTHING_BUT_LETTERS.fullmatch(text) is None:
        return None
    found = tuple(position(match[0], count) for match in _SINGLE.finditer(_AND.sub(" ", text)))
    return tuple(dict.fromkeys(found)) or None


def letters_run(text: str, start: int, count: int) -> Found:
    """Letters written together in ascending order ("BCE", "B C E") at text[start]."""
    run = _RUN.match(text, start)
    if run is None:
        return None
    places = [position(letter, count) for letter in run[1] if letter.isalpha()]
    return tuple(places) if places == sorted(set(places)) and places[0] >= 0 else None
