"""Words that name a patient, and texts without them: whatever the case, the accents and how these are written in plain letters, joined,
parted or inflected (`Anna-Maria`, `Annamaria`; `12-34-5678`, `12345678`; `Zwettlingers`).

See also: which words those are (`dicom.py`, `table.py`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import permutations

MARKS = "".join(sign for sign in map(chr, range(0x300, 0x10000)) if unicodedata.category(sign).startswith("M"))
WORD = re.compile(f"(?:[^\\W_][{MARKS}]*)+")
"""Letters and digits, with accents and vowels that are signs of their own."""
BETWEEN = re.compile("[\\s_,.^/'’=\u00ad\u200b-\u200d\u2010\u2011-]{1,3}")
"""What parts the words of a name."""
MOST_PARTS = 6
"""So many parts of a name or id are looked for as one word."""
CONTAINED = 6
"""Words of so many signs are found inside of others too."""
WITHOUT_SPACES = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003134f]+")
"""Writing that parts no words, or joins endings to names: Han, Kana, Hangul."""
REMOVED = "[removed]"
LETTERS = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h"})
"""Letters that Unicode does not take apart -> how they are written without accents."""
TWO_LETTERS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})
"""Letters that are also written as two: Müller, Mueller."""
COMMON = {
    "an", "ap", "as", "at", "be", "by", "ct", "do", "dr", "he", "if", "ii", "in", "is", "it", "iv", "jr", "md", "me", "mr", "ms",
    "my", "no", "of", "on", "or", "pa", "so", "sr", "to", "up", "us", "we",
}  # fmt: skip
"""Words of two letters that occur in the texts of any patient, titles among them. Names like these are found beside the other part."""


def words_of(text: str, least: int = 3) -> set[str]:
    """The words of a text, accents and case folded, that have so many signs or more."""
    return {form for word in WORD.findall(text) for form in _forms(word) if len(form) >= least}


def name_words(text: str) -> set[str]:
    """The words of a name (of DICOM: in up to three ways of writing, parted by `=`), and its parts joined: each two, and neighbours, the
    last of which is followed by the first."""
    joined = []
    for way in text.split("="):
        parts = WORD.findall(way)[:MOST_PARTS]
        joined += [one + other for one, other in permutations(parts, 2)]
        joined += [
            "".join((parts * 2)[at : at + count]) for at in range(len(parts)) for count in range(3, len(parts) + 1)
        ]
    short = {form for form in words_of(" ".join((text, *joined)), 2) if WITHOUT_SPACES.fullmatch(form)}
    two = {form for form in words_of(text, 2) if len(form) == 2 and form.isalpha()} - COMMON
    return words_of(text) | words_of(" ".join(joined), 4) | short | two


def number_words(text: str) -> set[str]:
    """The words of an id that are or hold numbers, of four signs or more (`PAT0012345`, not `study`); an id of several parts joined, its
    digits, and these without zeros before them."""
    joined = ["".join(WORD.findall(part)) for part in (*text.split(), text)]
    long = [word for word in joined if sum(map(str.isdigit, word)) >= 5]
    digits = [re.sub(r"\D", "", word) for word in long]
    words = words_of(" ".join((text, *long, *digits, *(number.lstrip("0") for number in digits))), 4)
    return {word for word in words if any(sign.isdigit() for sign in word)}


def date_words(date: str) -> set[str]:
    """A DICOM date (19610312) as people write it in numbers, these joined: 12.3.1961, 03/12/61."""
    found = re.fullmatch(r"(\d\d)(\d\d)(\d\d)(\d\d)", date.strip())
    if not found:
        return set()
    century, year, month, day = found.groups()
    short = (century + year, month.lstrip("0"), day.lstrip("0"))
    return {
        f"{a}{b}{c}"
        for y, m, d in ((century + year, month, day), (year, month, day), short)
        for a, b, c in ((y, m, d), (d, m, y), (m, d, y))
    }


MONTHS = (
    r"(?:jan|feb|fe?v|m[aä]r|mrz|apr|abr|avr|ma[iy]|mag|jun|juin|giu|jul|juil|lug|aug|ago|ao[uû]|sep|set|o[ck]t|ott|nov|de[czs]|d[eé]c|dic|gen|ene)"
    r"[a-zéûä]*\.?"
)
DATE = (
    r"(?:\d{8}|\d{4}\s?[-./]\s?\d{1,2}\s?[-./]\s?\d{1,2}|\d{1,2}\s?[-./]\s?\d{1,2}\s?[-./]\s?\d{2,4}"
    rf"|\d{{1,2}}(?:st|nd|rd|th|\.)?[\s-](?:of\s|de\s)?{MONTHS}[\s,-]+(?:de\s)?\d{{2,4}}|{MONTHS}\s\d{{1,2}}(?:st|nd|rd|th)?,?\s\d{{4}})"
)
BIRTH = re.compile(
    r"(?:\b(?:d\.?\s?o\.?\s?b\b\.?|(?:date|day)\s+of\s+birth|birth[\s-]?da(?:te|y)|born|geb(?:oren)?\b\.?|geburts(?:datum|tag)|n[ée]e?\(?e?\)?"
    r"|date\s+de\s+naissance|nat[oa]|nacid[oa]|fecha\s+de\s+nacimiento|data\s+di\s+nascita)|\*)"
    rf"[\s:=(,]{{0,3}}(?:on\s|am\s|le\s|el\s|il\s|the\s)?\s?({DATE})",
    re.IGNORECASE,
)
"""A date that a text calls a day of birth."""


def without_births(text: str) -> tuple[str, int]:
    """The text with `[removed]` in place of days of birth, which words beside them call so; and how many those were."""
    found = [match.span(1) for match in BIRTH.finditer(text)]
    for start, end in reversed(found):
        text = text[:start] + REMOVED + text[end:]
    return text, len(found)


def without_words(text: str, words: set[str]) -> tuple[str, int]:
    """The text with `[removed]` in place of these words, of those that hold a long one, and of neighbours that are one when joined; and
    how many those were."""
    gone = list(_spans(text, words)) if words else []
    for start, end in reversed(gone):
        text = text[:start] + REMOVED + text[end:]
    return text, len(gone)


def _spans(text: str, words: set[str]) -> Iterator[tuple[int, int]]:
    """Where a text holds the words: (start, end)."""
    inside = [word for word in words if len(word) >= CONTAINED or WITHOUT_SPACES.fullmatch(word)]
    found = list(WORD.finditer(text))
    folded = [_forms(word[0]) for word in found]
    at = 0
    while at < len(found):
        run = found[at : at + MOST_PARTS]
        apart = (n for n in range(1, len(run)) if not BETWEEN.fullmatch(text[run[n - 1].end() : run[n].start()]))
        for count in range(next(apart, len(run)), 0, -1):
            forms = {"".join(parts) for parts in zip(*folded[at : at + count], strict=True)}
            forms |= {form[:-1] for form in forms if form.endswith("s") and len(form) > 3}  # Annas
            if forms & words or (count == 1 and any(word in form for word in inside for form in forms)):
                yield run[0].start(), run[count - 1].end()
                at += count
                break
        else:
            at += 1


def _forms(word: str) -> tuple[str, str]:
    """The word in plain letters, in both ways."""
    folded = unicodedata.normalize("NFC", word).casefold()
    return _plain(folded), _plain(folded.translate(TWO_LETTERS))


def _plain(word: str) -> str:
    parts = unicodedata.normalize("NFKD", word.translate(LETTERS))
    return unicodedata.normalize("NFC", "".join(sign for sign in parts if not unicodedata.combining(sign)))
