"""Read the options and the key of a question in the forms in which sources write them.

A form is one for a whole set: "2" is an index or the text of an option, and only all answers
together tell which.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dataset_builders.schema import LETTERS
from dataset_builders.source_files import parse_literal, strip_option_letters

Key = tuple[int, ...]
_MARK = re.compile(r"(?:^|(?<=[\s;,|/]))[(\[]?([A-Z])(?:[).:\]]+|\s-)\s*")
"""A letter before an option in a text of all options: `A:`, `(A)`, `A.`, `A -`."""
_OWN_LETTER = re.compile(r"[(\[]?([A-Z])\s*[):\]]")
_YES_NO = {"yes": 0, "no": 1, "true": 0, "false": 1}


def as_list(cell: Any) -> list[Any]:
    """Return the elements of a list, or of a text that spells one; else the cell alone."""
    value = parse_literal(cell)
    return value if isinstance(value, list) else [cell]


def is_empty(cell: Any) -> bool:
    """Return True for a cell without a value: None, NaN, blank text, or nothing in a container."""
    if isinstance(cell, float):
        return math.isnan(cell)
    return cell is None or cell in ([], {}, b"") or (isinstance(cell, str) and not cell.strip())


def normalize_cell(cell: Any) -> str:
    """Return a cell's text with single spaces, whole floats as integers (tables turn 2 to 2.0)."""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return " ".join(str(cell).split())


def read_options(cells: Sequence[Any]) -> tuple[str, ...]:
    """Read the options of a question.

    Args:
        cells: a cell for each option, or one cell with a list, an object (letter -> text), or a
            text such as "A: glioma B: cyst".

    Returns:
        The options without their letters; empty if there are none.

    Raises:
        ValueError: an option is empty, there is only one or more than 26, two are equal, or a text
            cannot be divided; the message says which.
    """
    values = list(cells)
    if len(values) == 1:
        cell = parse_literal(values[0])
        if isinstance(cell, Mapping):
            # Letters state an order of their own; Parquet fills absent ones with None.
            names = sorted(cell) if all(name in LETTERS for name in cell) else list(cell)
            gaps = [name for name in LETTERS[: len(names)] if name not in cell] if set(names) <= set(LETTERS) else []
            values = [cell[name] for name in names] if not gaps else [None, *cell.values()]
        else:
            values = cell if isinstance(cell, list) else _divide(str(cell)) if not is_empty(cell) else []
    while values and is_empty(values[-1]):
        values.pop()
    if len(values) == 1 or len(values) > len(LETTERS):
        raise ValueError(f"has {len(values)} option{'s' * (len(values) > 1)}; a question has 2 to {len(LETTERS)}")
    texts = ["" if is_empty(value) else normalize_cell(value) for value in values]
    letters = [match[1] for text in texts if (match := _OWN_LETTER.match(text))]
    if letters and letters != sorted(letters) == list(LETTERS[: len(texts)]):
        raise ValueError(f"its options have the letters {', '.join(letters)}, in another order than they stand")
    options = strip_option_letters(texts)
    if not all(options):
        raise ValueError("an option before the last is empty" if options[-1] else "its last option is empty")
    if equal := next((option for option in options if options.count(option) > 1), None):
        raise ValueError(f"two options are {equal!r}")
    return options


def _divide(text: str) -> list[str]:
    """Divide a text such as "A: glioma B: cyst" at its letters, or else at its line breaks."""
    lines = [line for line in text.split("\n") if line.strip()]
    marks = list(_MARK.finditer(text.strip()))
    letter_marks: list[re.Match[str]] = []
    for mark in marks:
        if mark[1] == LETTERS[len(letter_marks)]:
            letter_marks.append(mark)
    starts = [_MARK.match(line.strip()) for line in lines]
    has_own_lines = len(lines) > 1 and [mark and mark[1] for mark in starts] == list(LETTERS[: len(lines)])
    if len(letter_marks) < 2 or letter_marks[0].start() or has_own_lines:
        return lines
    letters = [mark[1] for mark in marks if mark[1] <= letter_marks[-1][1]]
    if len(letters) > len(letter_marks):
        raise ValueError(
            f"the options {text[:60]!r} can be divided in several ways (letter {max(letters, key=letters.count)})"
        )
    ends = [*(mark.start() for mark in letter_marks[1:]), None]
    return [
        re.sub(r"[\s,;|/]+$", "", text.strip()[mark.end() : end]) for mark, end in zip(letter_marks, ends, strict=True)
    ]


def read_yes_no(cell: Any) -> Key | None:
    """Return the position of an answer in (yes, no); None if it is neither."""
    position = _YES_NO.get(normalize_cell(cell).lower().rstrip("."))
    return None if position is None else (position,)


def _letters(cell: Any, options: Sequence[str]) -> list[int] | None:
    words = [word for word in re.findall(r"\w+", str(cell)) if word != "and"]
    # "AC" is two letters, "BAD" is a word.
    if len(words) == 1 and words[0].isupper() and list(words[0]) == sorted(set(words[0])):
        words = list(words[0])
    return [LETTERS.find(word.upper()) if len(word) == 1 else -1 for word in words]


def _numbers(start: int) -> Callable[[Any, Sequence[str]], list[int] | None]:
    def read_numbers(cell: Any, options: Sequence[str]) -> list[int] | None:
        words = re.split(r"[\s,;]+", normalize_cell(cell)) if not isinstance(cell, bool) else []
        return [int(word) - start for word in words] if words and all(map(str.isdecimal, words)) else None

    return read_numbers


def _text(cell: Any, options: Sequence[str]) -> list[int] | None:
    text = normalize_cell(cell)
    # The exact text goes before one that differs in case.
    for fold in (str, str.casefold):
        positions = [at for at, option in enumerate(options) if fold(option) == fold(text)]
        if len(positions) == 1:
            return positions
    return None


ANSWER_FORMS: Mapping[str, Callable[[Any, Sequence[str]], list[int] | None]] = {
    "letter": _letters,
    "index": _numbers(0),
    "number": _numbers(1),
    "text": _text,
}
"""Form of an answer -> its reader: an option's letter, its index from 0, its number from 1, or its
text.
"""


def read_key(form: str, cell: Any, options: Sequence[str]) -> Key | None:
    """Read an answer in one form.

    Args:
        form: a key of `ANSWER_FORMS`.
        cell: the answer; several right options are a list, or one text ("A,C").
        options: the options.

    Returns:
        Sorted positions of the right options; None if it is no answer in this form.
    """
    positions: list[int] = []
    for part in as_list(cell):
        part_positions = ANSWER_FORMS[form](part, options)
        if not part_positions or not all(0 <= position < len(options) for position in part_positions):
            return None
        positions += part_positions
    # An option that is named twice makes no sense of the answer.
    return tuple(sorted(positions)) if len(set(positions)) == len(positions) > 0 else None
