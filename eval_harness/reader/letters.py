"""Find option letters in a response, however they are written; never the article A, the pronoun I, or a letter that is part of a name.

Positions are those of the options shown; -1 stands for a letter outside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dataset_builders.schema import LETTERS
from eval_harness.reader.text import CJK

Found = tuple[int, ...] | None
"""What a rule finds: positions, () for more than one option without saying which, None where it does not apply."""

OPEN, CLOSE = r"[\"'(\[{<«「]{0,4}", r"[\"')\]}>»」]{0,4}"
_LETTER = re.compile(
    rf"(?<![^\W_{CJK}])(?<![\w]['’-])(?P<letter>[A-Z]|[a-z](?=[)\]}}]|[.:\"']?\s*(?:\n"
    rf"|$)))(?![^\W_{CJK}])(?P<close>{CLOSE})"
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
ENDS = re.compile(rf"\s*(?:$|\n|[(.,;:!?)\]}}\"'<>|/&]|[-–—]\s|(?:and|n?or|et|und|oder|ou|y|o)\b|[{CJK}])")
_PART_OF_A_NAME = re.compile(
    r"['-]\w|\s?[%°+]|\.[^\W\d_]|\.\s?(?:coli|difficile|diff|albicans|faecalis|perfringens|tetani|botulinum"
    r"|aureus|histolytica|pylori)\b"
)
_THING_AFTER = re.compile(
    r"\s+(?:cells?|lymphocytes?|waves?|scan|arm|sign|spine|fibers?|antigen|virus|mode|coli|streptococc\w*"
    r"|weighted|vertebra\w*|ring|loop"
    r"|shaped?|level|lines?|is for|stands for)\b|\s*(?:-+>|→|[+=])|/\d",
    re.IGNORECASE,
)
_THING_BEFORE = re.compile(
    r"(?<![^\W_])(?:vitamin|hepatitis|influenza|type|grade|class|stage|group|category|factor|protein|complex"
    r"|segment|zone|level|weber|hep"
    r"|stanford|phase|part|points?|angles?|sides?|vertex|vertices|triangles?|arcs?|chord|nodes?|edges?"
    r"|circles?|figures?|fig|pictures?"
    r"|photos?|slide|panel|table|case|images?|set|lead|appendix|section|immunoglobulin|ig|strep"
    r"|streptococcus|ha?emophilia|plan|line"
    r"|row|column|mr|mrs|ms|dr|patient|product|compound|reagent|reactant|labell?ed|marked|arrow|lettered"
    r"|(?:probability|likelihood|chance) of)"
    r"[^\S\n]*[^\w.;!?\n]?[^\S\n]*(?:[a-z]\s*(?:,\s*(?:and|or)\b|,|/|&|\band\b|\bor\b)\s*)*$"
)


def position(letter: str, count: int) -> int:
    """The position that a letter stands for, -1 outside the options."""
    place = LETTERS.index(letter.upper())
    return place if place < count else -1


def letters_in(text: str, lowered: str) -> Iterator[re.Match[str]]:
    """Letters that may be options, with the groups `letter` and `close` (the brackets after it)."""
    last = ""
    for match in _LETTER.finditer(text):
        start, end = match.start(), match.end()
        letter, closed = match["letter"], bool(match["close"])
        opened = start > 0 and text[start - 1] in "\"'([{<「"
        if _PART_OF_A_NAME.match(text, start + 1):
            continue
        if letter.islower() and not (opened and closed) and not _BEGINS_LINE.search(lowered, max(0, start - 20), start):
            continue
        if letter == "I" and not (opened and closed) and (ENDS.match(text, end) is None or text[end : end + 1] == "'"):
            continue
        if letter == "A" and not closed and _is_article(text, lowered, start, end):
            continue
        if _IN_FIGURE.search(lowered, max(0, start - 12), start):
            continue
        goes_on = bool(last) and ord(letter) == ord(last) + 1 and text[start + 1 : start + 2] in (".", ":", ")")
        if (
            not (opened and closed)
            and not goes_on
            and ((not closed and _THING_AFTER.match(text, end)) or is_thing(lowered, start))
        ):
            continue
        last = letter
        yield match


def _is_article(text: str, lowered: str, start: int, end: int) -> bool:
    quoted = start > 0 and text[start - 1] in "\"'([{<「" and not text[end : end + 1].isspace()
    return (
        not quoted
        and _AFTER_A.match(text, end) is not None
        and not AFTER_OPTION.search(lowered, max(0, start - 12), start)
    )


AFTER_OPTION = re.compile(r"\b(?:option|choice|answer|letter|opción|opção|opzione|antwort|alternativa|选项)s? ?$")
_IN_FIGURE = re.compile(r"(?:\b(?:panel|figure|fig\.?|image)s?\s*\(?|(?<![^\W_])[a-z]\s*(?:-+>|→)\s*)$")
"""Before a letter that is a part of a picture ("Panel (C)"), or goes on an order ("A->B")."""
_BEGINS_LINE = re.compile(r"(?:^|\n|answer|option|choice|is|:)[\s\"'(\[:*]*$")
"""Before a small letter that is an option ("answer: b")."""


def is_thing(lowered: str, start: int) -> bool:
    """Whether a letter at lowered[start] is the name of a thing and no option: "angle C", "hepatitis B", "patient A"."""
    return _THING_BEFORE.search(lowered, max(0, start - 36), start) is not None


_NOTHING_BUT_LETTERS = re.compile(
    rf"\W*(?:(?:options?|choices?|answers?|letters?|both|选项?)\s*:?\s*)?{OPEN}[A-Za-z]{CLOSE}"
    rf"(?:(?:\s*(?:,|/|&|\+|;|\n|\band\b|\bund\b|\bet\b|\by\b|和|与|及)\s*)+(?:options?\s+)?{OPEN}[A-Za-z]{CLOSE}"
    rf"|\s*[\"'(\[]+[A-Z]{CLOSE})*[\W_]*(?:only\W*)?"
)
_RUN = re.compile(r"[\s\"'(\[{:*]{0,20}([A-Z]{2,26}|[A-Z](?:[^\S\n]+[A-Z])+)(?![\w'-])")
_CROSS = re.compile(r"[✗❌✘×☐☑☒]|\[ ?\]")
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
    found = tuple(position(match[0], count) for match in _SINGLE.finditer(text))
    return tuple(dict.fromkeys(found)) or None


def letters_run(text: str, start: int, count: int) -> Found:
    """Letters written together in ascending order ("BCE", "B C E") at text[start]."""
    run = _RUN.match(text, start)
    if run is None:
        return None
    places = [position(letter, count) for letter in run[1] if letter.isalpha()]
    return tuple(places) if places == sorted(set(places)) and places[0] >= 0 else None


_BOX = re.compile(rf"(?:\[(?P<mark>[xX✓✔✅ ]?)\]|(?P<sign>[☐☑☒]))\s*(?:[Oo]ption\s+)?{OPEN}([A-Z])(?![^\W_])")


def ticked(text: str, count: int, multiple: bool) -> Found:
    """The letters whose box is ticked, in a list where another's is not ("[ ] A [x] B")."""
    if "☐" not in text and "[ ]" not in text and "[]" not in text:
        return None
    boxes = [(bool((box["mark"] or "").strip()) or box["sign"] in ("☑", "☒"), box[3]) for box in _BOX.finditer(text)]
    yes = tuple(dict.fromkeys(position(letter, count) for tick, letter in boxes if tick))
    empty = {position(letter, count) for tick, letter in boxes if not tick}
    if not yes or not empty.isdisjoint(yes):
        return None
    return yes if len(yes) == 1 or multiple else ()


_VERDICT = re.compile(
    rf"(?:^|[\n.;,✓✔✅✗❌✘×])[^\S\n]*(?:[-•*]\s*)?(?:[Oo]ptions?\s+)?{OPEN}([A-Z])(?![^\W_]){CLOSE}[\s:.)(=\-–—]{{1,4}}"
    r"(?:(?:[Ii]s|[Ww]as|[Tt]his is)\s+)?(?:the\s+)?(?:"
    r"(?P<right>(?i:correct|right(?![^\S\n]+(?!because|since|as|answer|option|choice)\w)|true|yes|(?:fits )?best"
    r"|(?:most |very )?likely"
    r"|present)(?![\w'-])|✓|✔|✅)"
    r"|(?P<wrong>(?i:incorrect|wrong|false|no|not|(?:less |un)likely|absent|improbable|implausible|impossible"
    r"|eliminated|excluded"
    r"|ruled out)(?![\w'-])|✗|❌|✘|×))"
)


def verdicts(text: str, count: int, multiple: bool) -> tuple[Found, int]:
    """Letters with a verdict on each ("A: wrong. B: correct."): those that are right where another is called wrong, and where it ends."""
    found = list(_VERDICT.finditer(text))
    if len(found) < 2:
        return None, 0
    wrong = {position(match[1], count) for match in found if match["wrong"]}
    right = dict.fromkeys(position(match[1], count) for match in found if match["right"])
    alive = tuple(place for place in right if place not in wrong and place >= 0)
    return (alive if wrong and (len(alive) == 1 or (multiple and alive)) else None), found[-1].end()
