"""The table beside de-identified images: only columns that later steps read, and in their texts no word that is known to name the
row's patient (from the DICOM header, the column `group`, and columns that are said to hold names), and no date that they call a day of
birth.

Words are found regardless of case, accents and their transliteration, and joined, split or inflected (`Anna-Maria`, `Annamaria`;
`12-34-5678`, `12345678`; `Zwettlingers`). Other words may identify a person too: what a program cannot know, a person has to read.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path

import pandas as pd

from curation.images.image_table import cell_text, image_text, match_rows_to_images
from dataset_builders.errors import BadInput

COMBINING_MARKS = "".join(
    sign for sign in map(chr, range(0x300, 0x10000)) if unicodedata.category(sign).startswith("M")
)
WORD_PATTERN = re.compile(f"(?:[^\\W_][{COMBINING_MARKS}]*)+")
"""Letters and digits, with accents and vowels that are signs of their own."""
NAME_SEPARATOR = re.compile("[\\s_,.^/'’=\u00ad\u200b-\u200d\u2010\u2011-]{1,3}")
"""Separators between the words of a name."""
MAX_NAME_PARTS = 6
"""So many parts of a name or id are looked for as one word."""
MIN_SUBSTRING_LENGTH = 6
"""Words of so many signs are found inside of others too."""
UNSPACED_SCRIPT = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003134f]+")
"""Writing that parts no words, or joins endings to names: Han, Kana, Hangul."""
REDACTION = "[removed]"
PLAIN_LETTERS = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h"}
)
"""Letters that Unicode does not take apart -> how they are written without accents."""
DIGRAPHS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})
"""Letters that are also written as two: Müller, Mueller."""
COMMON_SHORT_WORDS = {
    "an", "ap", "as", "at", "be", "by", "ct", "do", "dr", "he", "if", "ii", "in", "is", "it", "iv", "jr", "md", "me", "mr", "ms",
    "my", "no", "of", "on", "or", "pa", "so", "sr", "to", "up", "us", "we",
}  # fmt: skip
"""Words of two letters that occur in the texts of any patient, titles among them. Names like these are found beside the other part."""


def folded_words(text: str, least: int = 3) -> set[str]:
    """The words of a text, accents and case folded, that have so many signs or more."""
    return {form for word in WORD_PATTERN.findall(text) for form in _plain_forms(word) if len(form) >= least}


def name_words(text: str) -> set[str]:
    """The words of a name (of DICOM: in up to three ways of writing, parted by `=`), and its parts joined: each two, and neighbours, the
    last of which is followed by the first."""
    joined = []
    for way in text.split("="):
        parts = WORD_PATTERN.findall(way)[:MAX_NAME_PARTS]
        joined += [one + other for one, other in permutations(parts, 2)]
        joined += [
            "".join((parts * 2)[at : at + count]) for at in range(len(parts)) for count in range(3, len(parts) + 1)
        ]
    short = {form for form in folded_words(" ".join((text, *joined)), 2) if UNSPACED_SCRIPT.fullmatch(form)}
    two = {form for form in folded_words(text, 2) if len(form) == 2 and form.isalpha()} - COMMON_SHORT_WORDS
    return folded_words(text) | folded_words(" ".join(joined), 4) | short | two


def number_words(text: str) -> set[str]:
    """The words of an id that are or hold numbers, of four signs or more (`PAT0012345`, not `study`); an id of several parts joined, its
    digits, and these without zeros before them."""
    joined = ["".join(WORD_PATTERN.findall(part)) for part in (*text.split(), text)]
    long = [word for word in joined if sum(map(str.isdigit, word)) >= 5]
    digits = [re.sub(r"\D", "", word) for word in long]
    words = folded_words(" ".join((text, *long, *digits, *(number.lstrip("0") for number in digits))), 4)
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


MONTH_PATTERN = (
    r"(?:jan|feb|fe?v|m[aä]r|maa|mrz|apr|abr|avr|ma[iy]|mag|mei|jun|juin|giu|jul|juil|lug|aug|ago|ao[uû]|sep|set|o[ck]t|ott|out|nov|de[czs]"
    r"|d[eé]c|dic|gen|ene)[a-zéûä]*"
)
DAY_PATTERN, YEAR_PATTERN = r"\d{1,2}(?:st|nd|rd|th)?", r"['’]?(?:\d{4}|\d{2})"
DATE_SEPARATOR = r"\s?[-./_|｜]\s?"
DATE_PATTERN = (
    rf"(?:\d{{8}}|\d{{4}}{DATE_SEPARATOR}\d{{1,2}}{DATE_SEPARATOR}\d{{1,2}}|\d{{1,2}}{DATE_SEPARATOR}\d{{1,2}}{DATE_SEPARATOR}\d{{2,4}}"
    rf"|\d{{1,2}}\s\d{{1,2}}\s\d{{4}}|\d{{4}}\s\d{{1,2}}\s\d{{1,2}}|\d{{4}}\s?[年년]\s?\d{{1,2}}\s?[月월]\s?\d{{1,2}}\s?[日일]?"
    rf"|{MONTH_PATTERN}\.?\s{DAY_PATTERN},?\s{YEAR_PATTERN}|(?:{DAY_PATTERN}[\s.-]*(?:of\s|de\s)?)?{MONTH_PATTERN}[\s.,-]*(?:de\s)?{YEAR_PATTERN})(?!\d)"
)
BIRTH_WORDS = (
    r"\b(?:d\.?\s?o\.?\s?b\b|birth(?:[\s-]?date)?\w*|born\b|geb\b|geb\.?-?dat\w*|gebor\w*|geburt\w*|n[ée]e?\b|naissance|nat[oa]\b|nascita|nascido|nascimento|nac\b"
    r"|nacid[oa]|nacimiento|narozen\w*|ur\b|urodz\w*|født|född|γεννη\w*|рожд\w*|род\b)|생년월일|生年月日|出生|تاريخ الميلاد"
)
BIRTH_DATE = re.compile(
    rf"(?:(?:{BIRTH_WORDS})\.?[^\d.,;!?*]{{0,20}}?|\*\s?|\bb\.\s?)({DATE_PATTERN})|(?:{BIRTH_WORDS})\.?[\s:=(-]{{0,3}}(?:(?:in|im|en|is)\s)?((?:19|20)\d\d)\b",
    re.IGNORECASE,
)
"""Words for a date or year of birth."""


def redact_birth_dates(text: str) -> tuple[str, int]:
    """The text with `[removed]` in place of days of birth, which words beside them call so; and how many those were."""
    found = [match.span(match.lastindex or 0) for match in BIRTH_DATE.finditer(text)]
    for start, end in reversed(found):
        text = text[:start] + REDACTION + text[end:]
    return text, len(found)


def redact_words(text: str, words: set[str]) -> tuple[str, int]:
    """The text with `[removed]` in place of these words, of those that hold a long one, and of neighbours that are one when joined; and
    how many those were."""
    gone = list(_word_spans(text, words)) if words else []
    for start, end in reversed(gone):
        text = text[:start] + REDACTION + text[end:]
    return text, len(gone)


def _word_spans(text: str, words: set[str]) -> Iterator[tuple[int, int]]:
    """Positions of the words in a text: (start, end)."""
    inside = [word for word in words if len(word) >= MIN_SUBSTRING_LENGTH or UNSPACED_SCRIPT.fullmatch(word)]
    found = list(WORD_PATTERN.finditer(text))
    folded = [_plain_forms(word[0]) for word in found]
    at = 0
    while at < len(found):
        run = found[at : at + MAX_NAME_PARTS]
        apart = (n for n in range(1, len(run)) if not NAME_SEPARATOR.fullmatch(text[run[n - 1].end() : run[n].start()]))
        for count in range(next(apart, len(run)), 0, -1):
            forms = {"".join(parts) for parts in zip(*folded[at : at + count], strict=True)}
            forms |= {form[:-1] for form in forms if form.endswith("s") and len(form) > 3}  # Annas
            if forms & words or (count == 1 and any(word in form for word in inside for form in forms)):
                yield run[0].start(), run[count - 1].end()
                at += count
                break
        else:
            at += 1


def _plain_forms(word: str) -> tuple[str, str]:
    """The word in plain letters, in both ways."""
    folded = unicodedata.normalize("NFC", word).casefold()
    return _strip_accents(folded), _strip_accents(folded.translate(DIGRAPHS))


def _strip_accents(word: str) -> str:
    parts = unicodedata.normalize("NFKD", word.translate(PLAIN_LETTERS))
    return unicodedata.normalize("NFC", "".join(sign for sign in parts if not unicodedata.combining(sign)))


CURATION_COLUMNS = {
    "image", "caption", "group", "license", "source",  # every step
    "organ", "modality", "findings", "positions", "absent",  # probe
    "question", "options", "answer",  # hallucinate; option_A ... too
}  # fmt: skip
"""Columns that later steps read by these names."""
FILE_NAME_WORDS_COUNT = "rows_with_a_word_of_their_file_name"
OPTION_COLUMN = re.compile(r"(?i)(?:option|choice)_[a-z]")


class PatientTable:
    """The rows of a table by image, and what is known to name the patients of each. `left_out`: names of columns, for the screen;
    `counts`: of what was taken out, and of what a person has to read.

    known: has a column `image`, which names `files` as `pairing.py` says (several rows of an image stay several). keep: further columns to
    copy. names: columns whose words are taken out of the other texts of their row. Raises BadInput if the table names no image, one row
    may mean several, or the rows of one image name several groups.
    """

    def __init__(
        self, known: pd.DataFrame, files: list[str], path: Path, keep: Sequence[str] = (), names: Sequence[str] = ()
    ) -> None:
        texts = pd.DataFrame(
            {str(name): known[name].map(image_text if name == "image" else cell_text) for name in known.columns}
        )
        texts = texts[texts["image"] != ""]
        called = list(dict.fromkeys(texts["image"]))
        meant = dict(zip(called, match_rows_to_images(called, files, path), strict=True))
        self._rows: dict[str, list[dict[str, str]]] = defaultdict(list)
        for row in texts.to_dict("records"):
            if (at := meant[row["image"]]) is not None:
                self._rows[files[at]].append({str(name): str(value) for name, value in row.items()})
        for file, rows in self._rows.items():
            if len({row.get("group", "") for row in rows}) > 1:
                raise BadInput(
                    f"{path}: the rows of {rows[0]['image']!r} name several groups. Name images by their path below the folder ({file})."
                )
        self._names = tuple(names)
        columns = [str(name) for name in texts.columns]
        self.columns = [
            name for name in columns if name in CURATION_COLUMNS or OPTION_COLUMN.fullmatch(name) or name in keep
        ]
        self.left_out = [name for name in columns if name not in self.columns]
        lost = len(texts) - sum(map(len, self._rows.values()))
        self.counts = {
            "words_removed": 0,
            "rows_without_image": lost,
            "images_without_row": 0,
            FILE_NAME_WORDS_COUNT: 0,
        }

    def group_of(self, file: str) -> str:
        """The group that the table gives for a file; "" if it gives none."""
        return next((row["group"] for row in self._rows.get(file, ()) if row.get("group")), "")

    def names_of(self, file: str) -> set[str]:
        """The words that name a file's patient, by its rows."""
        found: set[str] = set()
        for row in self._rows.get(file, ()):
            found |= number_words(row.get("group", ""))
            found = found.union(*(name_words(row[name]) for name in self._names if name in row))
        return found

    def rows_of(self, file: str, identifiers: set[str]) -> list[dict[str, str]]:
        """The rows of a file without its name and group, their texts without words that name its patient."""
        made = []
        self.counts["images_without_row"] += file not in self._rows
        in_path = folded_words(re.sub(r"\.\w+$", "", file), 5)
        own = identifiers | self.names_of(file)
        for row in self._rows.get(file, ()):
            kept = {name: row[name] for name in self.columns if name in row and name not in ("image", "group")}
            clean = {name: self._without(text, own) for name, text in kept.items()}
            self.counts[FILE_NAME_WORDS_COUNT] += any(folded_words(text) & in_path for text in clean.values())
            made.append(clean)
        return made

    def _without(self, text: str, words: set[str]) -> str:
        text, births = redact_birth_dates(text)
        clean, count = redact_words(text, words)
        self.counts["words_removed"] += count + births
        return clean
