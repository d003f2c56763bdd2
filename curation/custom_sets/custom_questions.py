"""Read a user's own multiple-choice questions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from curation.images.image_table import cell_text, read_dataframe, require_columns
from dataset_builders.contents.pseudonyms import normalize_group_name
from dataset_builders.errors import BadInput, Problems
from dataset_builders.schema import LETTERS
from dataset_builders.source_files import is_safe_relative_path, strip_option_letters

ParsedRow = TypeVar("ParsedRow")
QUESTION_REMEDY = (
    "A question has the columns image, question, answer (a letter, or the option's text) and its options: option_A, option_B ..., "
    "or in `options` a list, or an object by letters."
)


@dataclass(frozen=True)
class CustomQuestion:
    """A question with one correct option. `answer` is its position; `kind`: what its image shows, to find unrelated images; `group`: the
    patient, study or article of its image ("" where unknown)."""

    image: str
    question: str
    options: tuple[str, ...]
    answer: int
    kind: str = ""
    group: str = ""

    @property
    def right(self) -> str:
        """The text of the correct option."""
        return self.options[self.answer]

    @property
    def wrong(self) -> list[str]:
        """The texts of the others."""
        return [option for at, option in enumerate(self.options) if at != self.answer]


@dataclass(frozen=True)
class FakeQuestion:
    """A question without an answer, and its options."""

    question: str
    options: tuple[str, ...]


def read_custom_questions(path: Path, kind_column: str | None = None) -> list[CustomQuestion]:
    """The questions of a .csv, .tsv, .jsonl or .parquet file. Raises BadInput listing every row that is no question."""
    needed = ("image", "question", "answer", *([kind_column] if kind_column else []))

    def read(row: dict[str, Any]) -> CustomQuestion | str:
        image, question, answer = (cell_text(row[name]) for name in needed[:3])
        options = _row_options(row)
        wrong = _question_problem(image, question, options)
        if wrong or isinstance(options, str):
            return wrong
        if (index := _answer_index(answer, options)) is None:
            return f"its answer {answer!r} is neither the letter nor the text of one option, or means two"
        kind, group = (
            cell_text(row[kind_column]) if kind_column else "",
            normalize_group_name(cell_text(row.get("group"))),
        )
        return CustomQuestion(image, question, options, index, kind, group)

    return _read_rows(path, read, needed, QUESTION_REMEDY)


def read_fake_questions(path: Path) -> list[FakeQuestion]:
    """Fake questions of the user's own: question and options, no answer. Raises BadInput listing the rows that are none."""

    def read(row: dict[str, Any]) -> FakeQuestion | str:
        question, options = cell_text(row.get("question")), _row_options(row)
        wrong = _question_problem("-", question, options)
        return wrong if wrong or isinstance(options, str) else FakeQuestion(question, options)

    return _read_rows(
        path, read, ("question",), "A fake question has the column question and its options, as other questions have."
    )


def _read_rows(
    path: Path, read: Callable[[dict[str, Any]], ParsedRow | str], needed: Sequence[str], remedy: str
) -> list[ParsedRow]:
    """The rows of a table by `read`, which says in words what is wrong with one. Raises BadInput listing these, and where there is none."""
    raw = read_dataframe(path)
    require_columns(raw, path, needed, remedy)
    problems = Problems()
    found = []
    for number, row in enumerate(raw.to_dict("records"), 1):
        made = read({str(name): value for name, value in row.items()})
        if isinstance(made, str):
            problems.add(str(path), f"row {number}", made)
        else:
            found.append(made)
    problems.check(remedy)
    if not found:
        raise BadInput(f"{path}: holds no questions. {remedy}")
    return found


def image_groups(questions: Iterable[CustomQuestion], path: Path) -> pd.DataFrame:
    """The columns image and group of the questions' images. Raises BadInput for an image of two groups."""
    groups: dict[str, str] = {}
    for question in questions:
        known = groups.get(question.image, "")
        groups[question.image] = known or question.group
        if question.group not in ("", groups[question.image]):
            raise BadInput(f"{path}: the questions on {question.image} are of several groups. Give an image one group.")
    return pd.DataFrame({"image": list(groups), "group": list(groups.values())})


def _row_options(row: dict[str, Any]) -> tuple[str, ...] | str:
    """The options of a row without letters before them; in words what is wrong with them."""
    given = row.get("options", row.get("choices"))
    if isinstance(given, str) and given.strip()[:1] in ("[", "{"):  # a list in a cell of a CSV
        try:
            given = json.loads(given)
        except ValueError:
            return "has `options` that are not valid JSON"
    if given is None or isinstance(given, (str, float)):
        given = {name[-1]: row[name] for name in row if re.fullmatch(r"(?i:option|choice)(?:[ _][A-Za-z]|[A-Z])", name)}
    if any(not pd.api.types.is_scalar(option) for option in (given.values() if isinstance(given, dict) else given)):
        return "has options that are not texts"
    if isinstance(given, dict):
        texts = {str(letter).strip().upper(): text for letter, value in given.items() if (text := cell_text(value))}
        if sorted(texts) != list(LETTERS[: len(texts)]):
            return f"has options {', '.join(sorted(texts))}, not A, B, C ... in a row"
        given = [texts[letter] for letter in sorted(texts)]
    return strip_option_letters([cell_text(option) for option in given])


def _question_problem(image: str, question: str, options: tuple[str, ...] | str) -> str:
    if not image or not question:
        return "has no image or no question"
    if not is_safe_relative_path(image):
        return f"the image name {image!r} leaves its folder"
    if isinstance(options, str):
        return options
    if not 2 <= len(options) <= 25 or not all(options):
        return f"has {len(options)} options, not 2 to 25" if all(options) else "has an option without a text"
    if len({option.casefold() for option in options}) < len(options):
        return "gives the same option twice"
    return ""


def _answer_index(answer: str, options: tuple[str, ...]) -> int | None:
    """The option that an answer names by its letter, its text or both; None where none is named, or two are."""
    match = re.fullmatch(r"\(?([A-Za-z])(?:[).:]\s*(.*))?", answer)
    at = LETTERS.index(match[1].upper()) if match else len(options)
    by_text = {index for index, option in enumerate(options) if option.casefold() == answer.casefold()}
    by_letter = (
        {at}
        if match and at < len(options) and (match[2] or options[at]).casefold() == options[at].casefold()
        else set()
    )
    named = by_text | by_letter
    return named.pop() if len(named) == 1 else None
