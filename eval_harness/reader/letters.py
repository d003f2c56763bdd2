"""Find option letters in a response, in any notation.

The article A, the pronoun I and letters within names are not option letters. Positions refer to the
options in the order shown; -1 stands for a letter outside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dataset_builders.schema import LETTERS
from eval_harness.reader.text import CJK_RANGES

Positions = tuple[int, ...] | None
"""Result of a rule: positions; () for several options without a decision.

None if the rule does not apply.
"""

OPENING_MARKS, CLOSING_MARKS = r"[\"'(\[{<«「]{0,4}", r"[\"')\]}>»」]{0,4}"
_OPTION_LETTER = re.compile(
    rf"(?<![\w]['’-])(?<![∠△⊙])(?P<letter>[A-Z]|[a-z](?=[)\]}}]|[.:\"']?\s*(?:\n"
    rf"|$)))(?!['’]?[^\W_{CJK_RANGES}]|-[a-z]{{2}})(?P<close>{CLOSING_MARKS})"
)
_WORD_AFTER_ARTICLE = re.compile(
    r"[^\S\n]+(?!\w(?![\w-])|\d[\d.,: ]*(?:\s?%|\W*(?:$|\n))|(?:and|or|nor|is|are|was|because"
    r"|since|as|due|for"
    r"|based|given|not|rather"
    r"|with|which|but|in|on|only|unlike|vs|versus|through|thru|et|und|oder|ou|y|from|would|could"
    r"|seems?|looks?"
    r"|appears?|the|i|it|this"
    r"|that|instead|over|to|at|first|fits?|best|matches)\b)[A-Za-z0-9]",
    re.IGNORECASE,
)
"""A word that follows the article "A", rather than the option letter A."""
_TICKED_BOXES = ("[x]", "[X]")
LETTER_BOUNDARY = re.compile(
    rf"\s*(?:$|\n|[(.,;:!?)\]}}\"'<>|/&]|[-–—]\s|(?:and|n?or|et|und|oder|ou|y|o)\b|[{CJK_RANGES}])"
)


def letter_position(letter: str, option_count: int) -> int:
    """Return the option position of a letter, or -1 outside the options."""
    position = LETTERS.index(letter.upper())
    return position if position < option_count else -1


def find_letters(text: str, lowered: str, offsets: Iterable[int]) -> Iterator[re.Match[str]]:
    """Yield matches of single-letter words that may be option letters.

    Args:
        text: The normalized response.
        lowered: The same text in lower case.
        offsets: Offsets of the single-letter words.

    Yields:
        Matches with the groups `letter` and `close` (the brackets after it).
    """
    for match in filter(None, (_OPTION_LETTER.match(text, offset) for offset in offsets)):
        start, end = match.start(), match.end()
        # A letter between brackets or quotes is an option letter in any case and position.
        letter, closed = match["letter"], bool(match["close"])
        opened = start > 0 and text[start - 1] in "\"'([{<「"
        if letter.islower() and not (opened and closed) and not _BEGINS_LINE.search(lowered, max(0, start - 20), start):
            continue
        # The pronoun I counts only in brackets or before punctuation.
        if (
            letter == "I"
            and not (opened and closed)
            and (LETTER_BOUNDARY.match(text, end) is None or text[end : end + 1] == "'")
        ):
            continue
        is_article = letter == "A" and not closed and _is_article(text, lowered, start, end)
        if is_article or text[start - 1 : end] in _TICKED_BOXES:
            continue
        yield match


def _is_article(text: str, lowered: str, start: int, end: int) -> bool:
    """Return True if a capital A is the English article."""
    quoted = start > 0 and text[start - 1] in "\"'([{<「" and not text[end : end + 1].isspace()
    return (
        not quoted
        and _WORD_AFTER_ARTICLE.match(text, end) is not None
        and not AFTER_OPTION.search(lowered, max(0, start - 12), start)
    )


AFTER_OPTION = re.compile(r"\b(?:option|choice|answer|letter|opción|opção|opzione|antwort|alternativa|选项)s? ?$")
_BEGINS_LINE = re.compile(r"(?:^|\n|answer|option|choice|is|:)[\s\"'(\[:*]*$")
"""Before a lower-case letter that names an option ("answer: b")."""


_NOTHING_BUT_LETTERS = re.compile(
    rf"\W*(?:(?:options?|choices?|answers?|letters?|both"
    rf"|选项?)\s*:?\s*)?{OPENING_MARKS}[A-Za-z]{CLOSING_MARKS}"
    rf"(?:(?:\s*(?:,|/|&|\||\+|;|\n|\band\b|\bund\b|\bet\b|\by\b|和|与"
    rf"|及)\s*)+(?:options?\s+)?{OPENING_MARKS}[A-Za-z]{CLOSING_MARKS}"
    rf"|\s*[\"'(\[]+[A-Z]{CLOSING_MARKS})*[\W_]*(?:only\W*)?",
    re.IGNORECASE,
)
_LETTER_RUN = re.compile(r"[\s\"'(\[{:*]{0,20}([A-Z]{2,26}|[A-Z](?:[^\S\n]+[A-Z])+)(?![\w'-])")
_CROSS = re.compile(r"[✗❌✘×☐☑☒]|\[ ?\]")
_ONE_LETTER_CONJUNCTION = re.compile(r"(?<=\w[\s)\]]) *[eyou] (?=[A-Z(\[])")
_SINGLE_LETTER = re.compile(r"(?<![^\W_])[A-Za-z](?![^\W_])")


def parse_letters_only(text: str, option_count: int, multiple: bool) -> Positions:
    """Parse a text that consists only of letters: "B", "(b)", "B.", "option B", "A and C".

    Args:
        text: The text.
        option_count: Number of options.
        multiple: Whether several answers are allowed; then "ACD" is read, too.
    """
    # Crosses and empty boxes reject options, so the letters are not simply the answer.
    if len(text) > 200 or _CROSS.search(text):
        return None
    if (
        multiple
        and (run := parse_letter_run(text, 0, option_count))
        and not text.strip(" \n\"'()[]{}.,;:!").lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    ):
        return run
    if _NOTHING_BUT_LETTERS.fullmatch(text) is None:
        return None
    # dict.fromkeys keeps the order and drops repeated letters.
    return (
        tuple(
            dict.fromkeys(
                letter_position(match[0], option_count)
                for match in _SINGLE_LETTER.finditer(_ONE_LETTER_CONJUNCTION.sub(" ", text))
            )
        )
        or None
    )


def parse_letter_run(text: str, start: int, option_count: int) -> Positions:
    """Parse letters written together in ascending order ("BCE", "B C E") at text[start].

    Args:
        text: The text.
        start: Offset of the first letter.
        option_count: Number of options.
    """
    run = _LETTER_RUN.match(text, start)
    if run is None:
        return None
    positions = [letter_position(letter, option_count) for letter in run[1] if letter.isalpha()]
    return tuple(positions) if positions == sorted(set(positions)) and positions[0] >= 0 else None
