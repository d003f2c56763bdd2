"""The table of de-identified images: columns that later steps read, with identifying words removed.

Two things are removed from the texts: words known to name the row's patient (from the DICOM header,
the column `group`, and columns declared to hold names), and dates that the text marks as dates of
birth.

Words match regardless of case, accents and transliteration, and even if they are joined, split or
inflected (`Anna-Maria`, `Annamaria`; `12-34-5678`, `12345678`; `Zwettlingers`). Other words may
identify a patient, too, so a person has to read the texts. A DICOM header itself is never copied:
only the picture of the file is written (`curation/readers/pixels.py`).
"""

import csv
import io
import re
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from itertools import permutations
from pathlib import Path
from typing import Any

import pandas as pd

from curation.images.image_table import cell_text, image_text, match_rows_to_images
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file

COMBINING_MARKS = "".join(
    sign for sign in map(chr, range(0x300, 0x10000)) if unicodedata.category(sign).startswith("M")
)
WORD_PATTERN = re.compile(f"(?:[^\\W_][{COMBINING_MARKS}]*)+")
"""A word: letters and digits with combining marks (accents, vowel signs)."""
NAME_SEPARATOR = re.compile("[\\s_,.^/'’=\u00ad\u200b-\u200d\u2010\u2011-]{1,3}")
"""Separators between the words of a name."""
MAX_NAME_PARTS = 6
"""Maximum number of parts of a name or id that are joined before matching."""
MIN_SUBSTRING_LENGTH = 6
"""Minimum length of a name that is also found inside longer words."""
UNSPACED_SCRIPT = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003134f]+")
"""Scripts without word separators, or with suffixes attached to names: Han, Kana, Hangul."""
REDACTION = "[removed]"
PLAIN_LETTERS = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h"}
)
"""Letters without a Unicode decomposition -> their plain spelling."""
DIGRAPHS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})
"""Letters that also have a two-letter spelling: Müller, Mueller."""
COMMON_SHORT_WORDS = {
    "an", "ap", "as", "at", "be", "by", "ct", "do", "dr", "he", "if", "ii", "in", "is", "it", "iv", "jr", "md", "me", "mr", "ms",
    "my", "no", "of", "on", "or", "pa", "so", "sr", "to", "up", "us", "we",
}  # fmt: skip
"""Two-letter words, including titles, that occur in any patient's texts.

A name that is such a word ("Do") is removed only next to another part of the name."""


def folded_words(text: str, min_length: int = 3) -> set[str]:
    """Split a text into words, without accents and in lower case.

    Args:
        text: the text.
        min_length: minimum number of characters of a word.

    Returns:
        The words; a word with umlauts is included in both spellings (muller, mueller).
    """
    return {form for word in WORD_PATTERN.findall(text) for form in _plain_forms(word) if len(form) >= min_length}


def name_words(text: str) -> set[str]:
    """Return the folded words of a person's name, alone and joined.

    Any two parts are joined, in either order, and so are runs of three or more neighbouring parts;
    the first part counts as the neighbour of the last.

    Args:
        text: the name; a DICOM name has up to three representations, separated by `=`.
    """
    joined = []
    for representation in text.split("="):
        parts = WORD_PATTERN.findall(representation)[:MAX_NAME_PARTS]
        joined += [part_a + part_b for part_a, part_b in permutations(parts, 2)]
        joined += [
            "".join((parts * 2)[start : start + count])
            for start in range(len(parts))
            for count in range(3, len(parts) + 1)
        ]
    unspaced = {form for form in folded_words(" ".join((text, *joined)), 2) if UNSPACED_SCRIPT.fullmatch(form)}
    two_letters = {form for form in folded_words(text, 2) if len(form) == 2 and form.isalpha()} - COMMON_SHORT_WORDS
    return folded_words(text) | folded_words(" ".join(joined), 4) | unspaced | two_letters


def number_words(text: str) -> set[str]:
    """Return the words of an id that contain digits, of four characters or more.

    `PAT0012345` is such a word, `study` is not. The id's parts joined, its digits, and its digits
    without leading zeros are returned, too.

    Args:
        text: the id.
    """
    joined = ["".join(WORD_PATTERN.findall(part)) for part in (*text.split(), text)]
    long_numbers = [word for word in joined if sum(map(str.isdigit, word)) >= 5]
    digits = [re.sub(r"\D", "", word) for word in long_numbers]
    words = folded_words(" ".join((text, *long_numbers, *digits, *(number.lstrip("0") for number in digits))), 4)
    return {word for word in words if any(character.isdigit() for character in word)}


def date_words(date: str) -> set[str]:
    """Return the common numeric spellings of a DICOM date, without separators.

    Args:
        date: the date (19610312).

    Returns:
        Spellings like 12.3.1961 and 03/12/61 as digits; empty if `date` is not a date.
    """
    match = re.fullmatch(r"(\d\d)(\d\d)(\d\d)(\d\d)", date.strip())
    if not match:
        return set()
    century, year, month, day = match.groups()
    unpadded = (century + year, month.lstrip("0"), day.lstrip("0"))
    return {
        f"{a}{b}{c}"
        for y, m, d in ((century + year, month, day), (year, month, day), unpadded)
        for a, b, c in ((y, m, d), (d, m, y), (m, d, y))
    }


NUMBER_KEYWORDS = (
    "PatientID", "OtherPatientIDs", "IssuerOfPatientID", "AccessionNumber", "AdmissionID", "ServiceEpisodeID", "StudyID",
    "MedicalRecordLocator", "PatientTelephoneNumbers", "PlacerOrderNumberImagingServiceRequest", "FillerOrderNumberImagingServiceRequest",
)  # fmt: skip
"""Elements with a number that identifies a person (names are in the elements of value
representation PN)."""


def element_values(element: Any) -> list[Any]:
    """Return the values of a DICOM element as a list, empty for an empty element."""
    value = element.value
    return list(value) if element.VM > 1 else [] if value is None else [value]


def header_identifiers(dataset: Any) -> set[str]:
    """Collect the words of a DICOM data set that are names, identifying numbers or days of birth.

    Args:
        dataset: the data set (pydicom); its sequences are searched too.

    Returns:
        Folded words, in the form that `redact_words` expects.
    """
    identifiers: set[str] = set()
    for element in dataset.iterall():
        if element.VR == "PN":
            # Names of physicians and operators are included: they narrow down who the patient is.
            identifiers = identifiers.union(
                *(name_words(str(name)) for name in element_values(element)),
            )
        elif element.keyword in NUMBER_KEYWORDS:
            identifiers |= number_words(" ".join(map(str, element_values(element))))
        elif element.keyword == "PatientBirthDate":
            identifiers |= date_words(str(element.value or ""))
    return identifiers


MONTH_PATTERN = (
    r"(?:jan|feb|fe?v|m[aä]r|maa|mrz|apr|abr|avr|ma[iy]|mag|mei|jun|juin|giu|jul|juil"
    r"|lug|aug|ago|ao[uû]|sep|set|o[ck]t|ott|out|nov|de[czs]"
    r"|d[eé]c|dic|gen|ene)[a-zéûä]*"
)
DAY_PATTERN, YEAR_PATTERN = r"\d{1,2}(?:st|nd|rd|th)?", r"['’]?(?:\d{4}|\d{2})"
DATE_SEPARATOR = r"\s?[-./_|｜]\s?"
DATE_PATTERN = (
    rf"(?:\d{{8}}|\d{{4}}{DATE_SEPARATOR}\d{{1,2}}{DATE_SEPARATOR}\d{{1,2}}"
    rf"|\d{{1,2}}{DATE_SEPARATOR}\d{{1,2}}{DATE_SEPARATOR}\d{{2,4}}"
    rf"|\d{{1,2}}\s\d{{1,2}}\s\d{{4}}|\d{{4}}\s\d{{1,2}}\s\d{{1,2}}"
    rf"|\d{{4}}\s?[年년]\s?\d{{1,2}}\s?[月월]\s?\d{{1,2}}\s?[日일]?"
    rf"|{MONTH_PATTERN}\.?\s{DAY_PATTERN},?\s{YEAR_PATTERN}"
    rf"|(?:{DAY_PATTERN}[\s.-]*(?:of\s|de\s)?)?{MONTH_PATTERN}[\s.,-]*(?:de\s)?{YEAR_PATTERN})(?!\d)"
)
BIRTH_WORDS = (
    r"\b(?:d\.?\s?o\.?\s?b\b|birth(?:[\s-]?date)?\w*|born\b|geb\b|geb\.?-?dat\w*|gebor\w*|geburt\w*|n[ée]e?\b"
    r"|naissance|nat[oa]\b|nascita|nascido|nascimento|nac\b"
    r"|nacid[oa]|nacimiento|narozen\w*|ur\b|urodz\w*|født|född|γεννη\w*|рожд\w*|род\b)|생년월일|生年月日|出生|تاريخ الميلاد"
)
BIRTH_DATE = re.compile(
    rf"(?:(?:{BIRTH_WORDS})\.?[^\d.,;!?*]{{0,20}}?|\*\s?|\bb\.\s?)({DATE_PATTERN})"
    rf"|(?:{BIRTH_WORDS})\.?[\s:=(-]{{0,3}}(?:(?:in|im|en|is)\s)?((?:19|20)\d\d)\b",
    re.IGNORECASE,
)
"""A date or year next to a word for birth."""


def redact_birth_dates(text: str) -> tuple[str, int]:
    """Replace dates of birth, recognized by the words next to them, with `[removed]`.

    Args:
        text: the text.

    Returns:
        The redacted text, and the number of replacements.
    """
    return _redact_spans(text, [match.span(match.lastindex or 0) for match in BIRTH_DATE.finditer(text)])


def redact_words(text: str, words: set[str]) -> tuple[str, int]:
    """Replace words with `[removed]`.

    Words that contain a long word of `words` are replaced, too, as are neighbouring words that form
    one of `words` when joined.

    Args:
        text: the text.
        words: folded words.

    Returns:
        The redacted text, and the number of replacements.
    """
    return _redact_spans(text, list(_word_spans(text, words)) if words else [])


def _redact_spans(text: str, spans: list[tuple[int, int]]) -> tuple[str, int]:
    """Replace spans (start, end), which are in order; return the text and their number."""
    # From the end, so that earlier positions stay valid.
    for start, end in reversed(spans):
        text = text[:start] + REDACTION + text[end:]
    return text, len(spans)


def _word_spans(text: str, words: set[str]) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each place in a text that `redact_words` replaces."""
    substrings = [word for word in words if len(word) >= MIN_SUBSTRING_LENGTH or UNSPACED_SCRIPT.fullmatch(word)]
    matches = list(WORD_PATTERN.finditer(text))
    folded = [_plain_forms(word[0]) for word in matches]
    index = 0
    while index < len(matches):
        run = matches[index : index + MAX_NAME_PARTS]
        breaks = (
            n for n in range(1, len(run)) if not NAME_SEPARATOR.fullmatch(text[run[n - 1].end() : run[n].start()])
        )
        # Try the longest run first, so that a name of several words is removed as a whole.
        for count in range(next(breaks, len(run)), 0, -1):
            forms = {"".join(parts) for parts in zip(*folded[index : index + count], strict=True)}
            forms |= {form[:-1] for form in forms if form.endswith("s") and len(form) > 3}  # genitive: Annas
            if forms & words or (count == 1 and any(word in form for word in substrings for form in forms)):
                yield run[0].start(), run[count - 1].end()
                index += count
                break
        else:
            index += 1


def _plain_forms(word: str) -> tuple[str, str]:
    """Fold a word, once for each spelling of umlauts: muller, mueller."""
    folded = unicodedata.normalize("NFC", word).casefold()
    return _strip_accents(folded), _strip_accents(folded.translate(DIGRAPHS))


def _strip_accents(word: str) -> str:
    decomposed = unicodedata.normalize("NFKD", word.translate(PLAIN_LETTERS))
    return unicodedata.normalize(
        "NFC", "".join(character for character in decomposed if not unicodedata.combining(character))
    )


CURATION_COLUMNS = {
    "image", "caption", "group", "license", "source",  # every step
    "organ", "modality", "findings", "positions", "absent",  # probe
    "question", "options", "answer",  # hallucinate; option_A ... too
}  # fmt: skip
"""Columns that later steps read by these names."""
FILE_NAME_WORDS_COUNT = "rows_with_a_word_of_their_file_name"
OPTION_COLUMN = re.compile(r"(?i)(?:option|choice)_[a-z]")


class PatientTable:
    """The rows of a table by image, and the words that name their patients.

    Attributes:
        columns: columns that are copied.
        left_out: columns that are not copied, to show to the user.
        counts: what was removed, and what a person has to read.
    """

    def __init__(
        self,
        table: pd.DataFrame,
        files: list[str],
        path: Path,
        keep: Sequence[str] = (),
        names: Sequence[str] = (),
    ) -> None:
        """Match the rows of a table with files.

        Args:
            table: the table; its column `image` is matched with `files` by the rules of
                `pairing.py`. An image may have several rows.
            files: paths of the images.
            path: the table's file, for errors.
            keep: additional columns to copy.
            names: columns whose words are removed from the other texts of their row.

        Raises:
            BadInput: the table names no image, a row is ambiguous, or the rows of one image name
                different groups.
        """
        texts = pd.DataFrame(
            {str(name): table[name].map(image_text if name == "image" else cell_text) for name in table.columns}
        )
        texts = texts[texts["image"] != ""]
        table_names = list(dict.fromkeys(texts["image"]))
        file_indices = dict(zip(table_names, match_rows_to_images(table_names, files, path), strict=True))
        self._rows: dict[str, list[dict[str, str]]] = defaultdict(list)
        for row in texts.to_dict("records"):
            if (index := file_indices[row["image"]]) is not None:
                self._rows[files[index]].append(
                    {str(name): str(text) for name, text in row.items()},
                )
        for file, rows in self._rows.items():
            if len({row.get("group", "") for row in rows}) > 1:
                raise BadInput(
                    f"{path}: the rows of {rows[0]['image']!r} name several groups. "
                    f"Name images by their path below the folder ({file})."
                )

        self._name_columns = tuple(names)
        columns = [str(name) for name in texts.columns]
        self.columns = [
            name for name in columns if name in CURATION_COLUMNS or OPTION_COLUMN.fullmatch(name) or name in keep
        ]
        self.left_out = [name for name in columns if name not in self.columns]
        unmatched = len(texts) - sum(map(len, self._rows.values()))
        self.counts = {
            "words_removed": 0,
            "rows_without_image": unmatched,
            "images_without_row": 0,
            FILE_NAME_WORDS_COUNT: 0,
        }

    def group(self, file: str) -> str:
        """Return the group that the table gives a file; "" if none."""
        return next((row["group"] for row in self._rows.get(file, ()) if row.get("group")), "")

    def patient_words(self, file: str) -> set[str]:
        """Return the folded words that name a file's patient according to its rows."""
        words: set[str] = set()
        for row in self._rows.get(file, ()):
            words |= number_words(row.get("group", ""))
            words = words.union(
                *(name_words(row[name]) for name in self._name_columns if name in row),
            )
        return words

    def redacted_rows(self, file: str, identifiers: set[str]) -> list[dict[str, str]]:
        """Return the rows of a file with their patient's words removed, and update the counts.

        Args:
            file: path of the image.
            identifiers: the folded words to remove, those of `patient_words` among them.

        Returns:
            Rows without image and group.
        """
        redacted = []
        self.counts["images_without_row"] += file not in self._rows
        path_words = folded_words(re.sub(r"\.\w+$", "", file), 5)
        for row in self._rows.get(file, ()):
            texts = {name: row[name] for name in self.columns if name in row and name not in ("image", "group")}
            clean = {name: self._redact(text, identifiers) for name, text in texts.items()}
            # A file may be named after its patient: count such rows for a person to read.
            self.counts[FILE_NAME_WORDS_COUNT] += any(folded_words(text) & path_words for text in clean.values())
            redacted.append(clean)
        return redacted

    def _redact(self, text: str, words: set[str]) -> str:
        text, births = redact_birth_dates(text)
        clean, count = redact_words(text, words)
        self.counts["words_removed"] += count + births
        return clean


def delete_rows(path: Path, images: Set[str]) -> int:
    """Delete the rows about images from a CSV of a finished folder.

    Args:
        path: the file.
        images: names of the images.

    Returns:
        Number of rows deleted.
    """
    # File names may hold bytes that are not UTF-8: surrogateescape writes them back unchanged.
    # Decoding the bytes keeps the line breaks within cells; cells may have any length.
    csv.field_size_limit(sys.maxsize)
    rows = list(csv.reader(io.StringIO(path.read_bytes().decode("utf-8", "surrogateescape"), newline="")))
    remaining = [row for row in rows if not images & set(row)]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(remaining)
    replace_file(path, text.getvalue().encode("utf-8", "surrogateescape"))
    return len(rows) - len(remaining)
