"""Option letters in a response, however they are written; never the article A, the pronoun I, or a letter that is part of a name.

Functions return positions, None where there is no letter, and -1 for a letter outside the options.
See also: option texts (`mentions.py`), statements like "the answer is B" (`statements.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from dataset_builders.schema import LETTERS
from eval_harness.answer_reading.plain_text import CJK
from eval_harness.answer_reading.polarity import denied_after, is_asked, is_denied, is_past, is_supposed
from eval_harness.answer_reading.words import (
    ONE_LETTER,
    beginnings,
    phrase,
    phrase_of,
    places,
    says,
    says_between,
    words_in,
)

Found = tuple[int, ...] | None

OPEN, CLOSE, CLOSED = r"[\"'(\[{<«「]{0,4}", r"[\"')\]}>»」]{0,4}", r"[\"')\]}>»」]{1,4}"
HEAD = re.compile(
    r"[\s:=>*,-]{0,20}(?:(?:the|only|definitely|clearly|most|more|likely|probably|probable|both|either|indeed|simply|therefore"
    r"|just)\s+)*"
    r"(?:(?:correct |best |right )?(?:options?|choices?|answers?|letters?)\b\s*[:#]?\s*)?"
    rf"{OPEN}\s*([A-Za-z])(?![^\W_])(?P<close>{CLOSE})",
    re.IGNORECASE,
)
_OR = r"\bor\b|\bnor\b|\bvs\b\.?|\bversus\b|\b(?:oder|ou|o)\b|还是|或者|或"
_AND = r"\band\b|\b(?:et|und|y)\b|[和与及]|,|/|&"
"""What stands between two letters: alternatives, and others."""
_NEXT = re.compile(
    rf"(?:\s*\([^()\n]{{2,80}}\))?\s*(?:,\s*)?(?P<by>\bor (?:maybe|possibly|perhaps)\b|{_OR}|\bthen\b|{_AND}|\+|;)\s*(?:options?\s+)?"
    rf"{OPEN}([A-Za-z])(?![^\W_])(?P<close>{CLOSE})",
    re.IGNORECASE,
)
_AFTER_A = re.compile(
    r"[^\S\n]+(?!\w(?![\w-])|\d[\d.,: ]*(?:\s?(?:%|percent)|\W*(?:$|\n))|(?:and|or|nor|is|are|was"
    r"|because|since|as|due|for|based|given|not|rather|with|which|but|in|on|only|unlike|vs|versus|through|thru|et|und|oder|ou|y"
    r"|from|would|could|seems?|looks?|appears?"
    r"|the|i|it|this|that|instead|over|to|at|first|fits?|best|matches)\b)[A-Za-z0-9]",
    re.IGNORECASE,
)
ENDS = re.compile(rf"\s*(?:$|\n|[(.,;:!?)\]}}\"'<>|/&]|[-–—]\s|(?:and|n?or|et|und|oder|ou|y|o)\b|[{CJK}])")
_GENUS = r"\.\s?(?:coli|difficile|diff|albicans|faecalis|perfringens|tetani|botulinum|aureus|histolytica|pylori)\b"
_PART_OF_A_NAME = re.compile(rf"['-]\w|\s?[%°+]|\.\w|{_GENUS}")
REASON = re.compile(r"\s+(?:because|since|as|is|are|based|given|due|not|rather|instead)\b")


_VERB = re.compile(r"\s+(?:is|was|would|can|could|does|has|seems|appears)\b")


def most(text: str) -> int:
    """How many places of a text are looked at closely: a text that names letters or options more often is a model in a loop, or hostile."""
    return 10 + len(text) // 100


def position(letter: str, count: int) -> int:
    """The position a letter stands for, -1 outside the options."""
    place = LETTERS.index(letter.upper())
    return place if place < count else -1


_MAY_BE_LETTER = re.compile(
    rf"(?:[B-HJ-Z]|A(?!(?i:{_AFTER_A.pattern}))|(?:(?<=[\]☐☑☒ners]\s)|(?<=[\"'(\[{{<«「]))A|A(?=\W+(?i:yes|no)\b)"
    rf"|[Ia-z](?={ENDS.pattern}|\s*[=–-]|\s+is\b))(?![^\W_])"
)
"""Not the article A, the pronoun I, or what is left of "patient's"."""
_RUN_OF_CAPITALS = re.compile(r"(?<![^\W_])[A-Z]{2,26}(?![^\W_])")


def may_name_letters(text: str, multiple: bool) -> bool:
    """Whether a letter stands by itself anywhere, or several together: without one no rule for letters can find any."""
    if says(text, ONE_LETTER):
        for place in places(text, ONE_LETTER):
            if _MAY_BE_LETTER.match(text, place) is not None:
                return True
    return multiple and _RUN_OF_CAPITALS.search(text) is not None


def whole_letters(text: str, count: int, multiple: bool) -> Found:
    """A response that is nothing but letters: "B", "(b)", "B.", "option B", "A and C", for multiple choice also "ACD", "A C"."""
    if len(text) > 200 or (("[" in text or not text.isascii()) and _CROSS.search(text)):
        return None
    bare = text.strip(" \t\n\"'()[]{}<>.,:;!#*-|/\\=")
    if len(bare) == 1 and bare.isascii() and bare.isalpha():
        return (position(bare, count),)
    if multiple and 1 < len(bare) <= 2 * count and _CAPITALS.fullmatch(bare):
        places = [position(letter, count) for letter in bare.replace(" ", "")]
        return tuple(places) if places == sorted(set(places)) and places[0] >= 0 else None
    if (listed := only_letters(text, count)) is not None:
        return listed
    letters, end, alternatives = letter_list(text, 0, count)
    if not letters or _NOTHING_ELSE.fullmatch(text, end) is None:
        return None
    return () if alternatives else letters


_CROSS = re.compile(r"[✗❌✘×☐☑☒]|\[ ?\]")
_NOTHING_ELSE = re.compile(r"[\W_]*(?:only[\W_]*)?")
_CAPITALS = re.compile(r"[A-Z]+|[A-Z](?: [A-Z])+")


def only_letters(text: str, count: int) -> Found:
    """Letters one under the other or side by side, with brackets and nothing else ("B\nC", "(B)(C)")."""
    if _ONLY_LETTERS.fullmatch(text) is None:
        return None
    letters = [letter for letter in text if "A" <= letter <= "Z"]
    return tuple(position(letter, count) for letter in letters) if len(set(letters)) == len(letters) else None


_ONLY_LETTERS = re.compile(r"[\W_]*[A-Z](?:[\W_]+[A-Z])+[\W_]*")


_RUN = re.compile(r"[\s\"'(\[{:*]{0,20}([A-Z]{2,26}|[A-Z](?:[^\S\n]+[A-Z])+)(?![\w'-])")


def letters_run(text: str, start: int, count: int) -> Found:
    """Letters written together in ascending order ("BCE", "B C E") at text[start]."""
    run = _RUN.match(text, start)
    if run is None:
        return None
    places = [position(letter, count) for letter in run[1] if letter.isalpha()]
    return tuple(places) if places == sorted(set(places)) and places[0] >= 0 else None


_ALTERNATIVES = frozenset({"or", "nor", "vs", "versus", "oder", "ou", "o", "或", "或者", "还是"})


def letters_at(text: str, start: int, count: int, strict: bool) -> Found:
    """The letters named right at text[start]. `strict`: only where nothing but punctuation or a reason follows."""
    letters, end, alternatives = letter_list(text, start, count, strict)
    if letters and is_supposed(text, end, end):
        return None
    return () if alternatives else letters or None


@lru_cache(maxsize=64)
def head_at(text: str, start: int) -> re.Match[str] | None:
    """The first letter named right at text[start], with what stands before it."""
    return HEAD.match(text, start)


@lru_cache(maxsize=64)
def letter_list(text: str, start: int, count: int, strict: bool = False) -> tuple[tuple[int, ...], int, bool]:
    """The letters named from text[start] on: their positions, where they end, and whether they are alternatives ("A or B")."""
    head = head_at(text, start)
    if head is None:
        return (), start, False
    if not is_letter(text, head, 1, strict):
        return (), head.end(), False
    letters, end, alternatives = [position(head[1], count)], head.end(), False
    while (
        len(letters) <= count and (more := _NEXT.match(text, end)) is not None and is_letter(text, more, 2, strict=True)
    ):
        if more[2] in "Ii" and count < 9:
            break
        place = position(more[2], count)
        if more["by"] == ";" and _VERB.match(text, more.end()):  # "the answer is C; A is a distractor"
            break
        if place in letters and not ENDS.match(text, more.end()):  # "between C and D, D is better": a new clause
            break
        alternatives |= more["by"].lower().strip(".").split(" ")[0] in _ALTERNATIVES
        letters.append(place)
        end = more.end()
    return tuple(letters), end, alternatives or _ARROW.match(text, end) is not None


_ARROW = re.compile(r"\s*(?:-+>|→)\s*[A-Z](?![^\W_])")
"""Between the letters of an order ("A->B->C"), which chooses none."""


def is_letter(text: str, match: re.Match[str], group: int, strict: bool) -> bool:
    """Whether a lone letter stands for an option and is not an article, a pronoun, or part of a name ("I'm", "C-arm", "E. coli")."""
    letter, start, end = match[group], match.start(group), match.end(group)
    if _PART_OF_A_NAME.match(text, end):
        return False
    if match["close"] or (start > 0 and text[start - 1] in "\"'([{<"):
        return True
    if letter.islower() or letter == "I":
        return ENDS.match(text, end) is not None
    if letter == "A" and _AFTER_A.match(text, end):
        return False
    return not strict or ENDS.match(text, end) is not None or REASON.match(text, end) is not None


_LAST_LINE = re.compile(
    rf"(?:^|\n)([^\n]*)\n\s*(?:\.\.\.\s*)?(?:option\s+|选项\s*)?{OPEN}([A-Z]){CLOSE}[^\w\n]{{0,3}}$"
)


def last_line_letter(text: str, count: int) -> Found:
    """A letter by itself on the last line of a longer response; not where a list of options breaks off there ("B. femur\\nC")."""
    last = _LAST_LINE.search(text, max(0, len(text) - 400)) if "\n" in text else None
    if last is None or not re.search(r"\w{2}", last[1]):
        return None
    label = re.match(rf"\W{{0,6}}(?:option\s+)?{OPEN}([A-Z])(?![^\W_])", last[1])
    if label is not None and LETTERS.index(label[1]) + 1 == LETTERS.index(last[2]):
        return None
    return (position(last[2], count),)


_INLINE_LABEL = phrase_of(re.compile(r"(?<![^\W_])([A-Z])[\"']?[:)]\s"), ONE_LETTER)
_ALONE_ON_ITS_LINE = re.compile(rf"[^\w\n]{{0,6}}(?:[Oo]ption )?{OPEN}[A-Z]{CLOSE}[^\w\n]{{0,2}}\n")
_LEAD = re.compile(
    rf"\W{{0,6}}(?:options?\s+)?{OPEN}([A-Z]|[a-z](?=[)\].:]))(?![^\W_])"
    rf"(?:{CLOSE}\s*[.:)\]\-–—,]|{CLOSED}|\s*\n|\s+(?:because|since|due to|given)\b)"
)


def leading_letters(text: str, count: int) -> tuple[tuple[int, ...], int] | None:
    """A response that begins with its letter ("B: a mass", "B) ...", "B - ..."), and does not go on to list other options: the letters
    and where they end."""
    lead = _LEAD.match(text)
    if lead is None or _PART_OF_A_NAME.match(text, lead.end(1)) or len(_ASSIGNED.findall(text[:600])) > 1:
        return None
    alone = _ALONE_ON_ITS_LINE.match(text) is not None
    labels = {label[1] for label in _INLINE_LABEL.find(text) if position(label[1], count) >= 0}
    if len(labels) > 1 and not alone:
        return None
    if is_denied(text, lead.start(1), lead.end(1)):
        return None
    letters, end, alternatives = letter_list(text, 0, count)
    if alternatives:
        return (), end
    if len(letters) > 1 and denied_after(text, end):
        return None
    return (letters, end) if letters else ((position(lead[1], count),), lead.end(1))


_ASSIGNED = re.compile(r"^\W*[A-Za-z][.:)=]\s*\(?[A-Z]\)?[^\w\n]*$", re.MULTILINE)
"""A line that gives a letter a letter ("b. C")."""
_VERDICT_WORDS = (
    "correct right true yes best likely present incorrect wrong false no not unlikely less absent improbable implausible impossible"
    " eliminated excluded ruled most very highly"
)
VERDICT_WORDS = words_in(_VERDICT_WORDS)
_VERDICT = phrase_of(
    re.compile(
        rf"(?<![^\W_])([A-Z])(?![^\W_]){CLOSE}[\s:.)(=\-–—]{{1,4}}(?:(?:[Ii]s|[Ww]as|[Tt]his is)\s+)?(?:the\s+)?"
        r"(?:(?P<right>(?i:correct|right"
        r"(?![^\S\n]+(?!because|since|as|answer|option|choice)\w)|true|yes|fits best|best|(?:(?:most|very|highly) )?likely"
        r"|present|✓|✔|✅))"
        r"|(?P<wrong>(?i:incorrect|wrong|false|no|not|unlikely|less likely|absent|improbable|implausible|impossible"
        r"|eliminated|excluded|ruled out|✗|❌|✘|×)))(?![\w'-])"
    ),
    ONE_LETTER,
    beginnings(_VERDICT_WORDS),
)
_ITEM_BEFORE = re.compile(rf"(?:^|[\n.;,✓✔✅✗❌✘×])\s*(?:[-•*]\s*)?(?:options?\s+)?{OPEN}$", re.IGNORECASE)


@lru_cache(maxsize=4)
def _verdicts(text: str) -> tuple[re.Match[str], ...]:
    return tuple(
        match for match in _VERDICT.find(text) if _ITEM_BEFORE.search(text[max(0, match.start() - 16) : match.start()])
    )


def verdicts_end(text: str) -> int:
    """Where the last of several verdicts on options ends; 0 where there is at most one."""
    found = _verdicts(text)
    return found[-1].end() if len(found) > 1 else 0


def verdicts(text: str, count: int, multiple: bool) -> Found:
    """Letters with a verdict on each ("A: wrong. B: correct."): those that are right, where at least one other is called wrong."""
    right: dict[int, None] = {}
    wrong: set[int] = set()
    for match in _verdicts(text):
        place = position(match[1], count)
        if match["right"]:
            right[place] = None
        else:
            wrong.add(place)
    alive = tuple(place for place in right if place not in wrong and place >= 0)
    return alive if wrong and (len(alive) == 1 or (multiple and alive)) else None


_BOX = re.compile(rf"(?:\[(?P<mark>[xX✓✔✅ ]?)\]|(?P<sign>[☐☑☒]))\s*(?:[Oo]ption\s+)?{OPEN}([A-Z])(?![^\W_])")


def ticked(text: str, count: int, multiple: bool) -> Found:
    """The letters whose box is ticked, in a list where another's is not ("[ ] A [x] B")."""
    if "☐" not in text and "[ ]" not in text and "[]" not in text:
        return None
    boxes = [(bool((box["mark"] or "").strip()) or box["sign"] in ("☑", "☒"), box[3]) for box in _BOX.finditer(text)]
    yes = tuple(dict.fromkeys(position(letter, count) for tick, letter in boxes if tick))
    open_ones = {position(letter, count) for tick, letter in boxes if not tick}
    if not yes or not open_ones or not open_ones.isdisjoint(yes):
        return None
    return yes if len(yes) == 1 or multiple else ()


_BRACKETED = re.compile(
    r"\(([A-Z])\)|\[([A-Z])\]|\"([A-Z])\.?\"|(?<![^\W_])'([A-Z])'"
    r"|\b(?:[Oo]ption|[Cc]hoice|[Aa]nswer|[Ll]etter|[Oo]pción|[Oo]pção|[Oo]pzione|[Aa]ntwort|[Aa]lternativa)s?\s+([A-Z])(?![\w'-])"
)
_BARE = phrase_of(re.compile(r"(?<![\w'\"([{.-])([A-Z])(?![\w'\")\]}-])"), ONE_LETTER)
_MORE = re.compile(rf"\s*(?:,\s*)?(?P<by>{_OR}|{_AND})\s*(?:options?\s+)?{OPEN}([A-Z])(?![\w'-]){CLOSE}")
_NAMES = frozenset(
    "vitamin hepatitis influenza type grade class stage group category factor protein complex segment zone level weber hep stanford phase"
    " part point angle side vertex vertices triangle ray arc chord node edge circle figure fig picture photo slide panel table case image"
    " set view lead appendix section immunoglobulin ig strep streptococcus haemophilia hemophilia plan line row column mr mrs ms dr patient"
    " product compound reagent reactant probability of likelihood of chance of".replace(" of", "/of").split(" ")
)
_NAME_HINTS = beginnings(" ".join(name.split("/")[0] for name in _NAMES))
_NAME_AFTER = re.compile(
    r"\s+(?:cells?|lymphocytes?|lines?|waves?|scan|arm|sign|spine|section|fibers?|symptoms?|antigen|virus|mode|coli|streptococc\w*"
    r"|weighted"
    r"|vertebra\w*|ring|loop|shaped?|level|is for|stands for)\b|\s*(?:-+>|→|[+=])|/\d",
    re.IGNORECASE,
)


def is_named_thing(text: str, start: int) -> bool:
    """Whether a letter at text[start] is the name of a thing and no option: "angle C", "hepatitis B", "patient A"."""
    named = says_between(text, _NAME_HINTS, start - 36, start)
    before = _WORD_BEFORE.search(text[max(0, start - 36) : start]) if named else None
    if before is None:
        return False
    word = before[1].lower().replace(" ", "/")
    return word in _NAMES or word.removesuffix("s") in _NAMES


_WORD_BEFORE = re.compile(
    r"(?<![^\W_])([^\W\d_]+(?:[ ]of)?)[^\S\n]*[^\w.;!?\n]?[^\S\n]*(?:[A-Z]\s*(?:,\s*(?:and|or)\b|,|/|&|\band\b|\bor\b)\s*)*$",
    re.IGNORECASE,
)


_WEIGHED = re.compile(r"\b(?:comparing|between|considering|whether|options|choices)\s*:?\s*$", re.IGNORECASE)


_HEDGE = phrase("or", r"\bor (?:possibly|maybe|perhaps|even)\b", "possibly maybe perhaps even")


def bracketed_letters(text: str, count: int, multiple: bool) -> Found:
    """Letters in brackets or quotes, or after "option": those that are not denied."""
    found = (
        (match, next(place for place in range(1, 6) if match[place]))
        for match in _in_brackets(text)
        if not _IN_FIGURE.search(text, max(0, match.start() - 12), match.start())
    )
    return _alive(text, count, multiple, found)


_IN_FIGURE = re.compile(r"\b(?:panel|figure|fig\.?)s?\s*$", re.IGNORECASE)
"""Before a letter in brackets that is a part of a picture ("Panel (C)")."""


def _in_brackets(text: str) -> Iterator[re.Match[str]]:
    opened = [start - 1 for start in places(text, ONE_LETTER) if start and text[start - 1] in "([\"'"]
    starts = sorted((*opened, *places(text, _LETTER_WORDS)))
    return filter(None, (_BRACKETED.match(text, start) for start in starts))


_LETTER_WORDS = beginnings("option choice answer letter opción opção opzione antwort alternativa")


def bare_letters(text: str, count: int, multiple: bool) -> Found:
    """A capital letter by itself that can only be an option ("most likely B"), in a short response."""
    if len(text) > 300:
        return None
    found = (
        (match, 1)
        for match in _BARE.find(text)
        if match[1] != "I"
        and not (match[1] == "A" and _AFTER_A.match(text, match.end()))
        and not _PART_OF_A_NAME.match(text, match.end())
        and not is_named_thing(text, match.start())
        and not _NAME_AFTER.match(text, match.end())
    )
    return _alive(text, count, multiple, found)


def _alive(text: str, count: int, multiple: bool, found: Iterator[tuple[re.Match[str], int]]) -> Found:
    """The letters left when the denied ones are taken out; letters in a row share their fate ("A, B and D are incorrect")."""
    alive: dict[int, None] = {}
    denied: set[int] = set()
    passed = 0
    alternatives = False
    left_to_look = most(text)
    for match, group in found:
        if match.start() < passed:
            continue
        left_to_look -= 1
        if left_to_look < 0:
            return None
        places, end = [position(match[group], count)], match.end()
        either = False
        while (more := _MORE.match(text, end)) is not None and position(more[2], count) not in places:
            either |= more["by"].strip(".") in _ALTERNATIVES
            places.append(position(more[2], count))
            end = more.end()
        passed = end
        if len(places) > 1 and _WEIGHED.search(text[max(0, match.start() - 24) : match.start()]):
            continue
        if is_supposed(text, match.start(), end) or is_past(text, match.start()) or is_asked(text, end):
            continue
        if is_denied(text, match.start(), end):
            denied.update(places)
        else:
            alternatives |= either
            alive.update(dict.fromkeys(places))
    if alternatives or not alive or _HEDGE.search(text) is not None:
        return None
    left = tuple(place for place in alive if place not in denied and place >= 0)
    return left if len(left) == 1 or (multiple and 0 < len(left) < count) else None
