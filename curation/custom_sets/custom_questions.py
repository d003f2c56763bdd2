"""Read a user's own multiple-choice questions from a table."""

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
    "A question has the columns image, question, answer (a letter, or the option's text) and its "
    "options: option_A, "
    "option_B ..., or in `options` a list, or an object with letters as keys."
)


@dataclass(frozen=True)
class CustomQuestion:
    """A multiple-choice question with one correct option.

    Attributes:
        answer: index of the correct option.
        kind: what the image shows (such as its organ), which decides which other images are
            unrelated.
        group: patient, study or article of the image; "" if unknown.
    """

    image: str
    question: str
    options: tuple[str, ...]
    answer: int
    kind: str = ""
    group: str = ""

    @property
    def correct_option(self) -> str:
        """Return the text of the correct option."""
        return self.options[self.answer]

    @property
    def wrong_options(self) -> list[str]:
        """Return the texts of the wrong options, in order."""
        return [option for index, option in enumerate(self.options) if index != self.answer]


@dataclass(frozen=True)
class FakeQuestion:
    """A question that has no answer, with its options."""

    question: str
    options: tuple[str, ...]


def read_custom_questions(path: Path, kind_column: str | None = None) -> list[CustomQuestion]:
    """Read the questions of a .csv, .tsv, .jsonl or .parquet file.

    Args:
        path: table with the columns image, question, answer and options; optionally group.
        kind_column: column that states what the image shows.

    Returns:
        One question per row.

    Raises:
        BadInput: rows are not valid questions (all are listed), a column is missing, or there are
            no rows.
    """
    required = ("image", "question", "answer", *([kind_column] if kind_column else []))

    def parse_row(row: dict[str, Any]) -> CustomQuestion | str:
        image, question, answer = (cell_text(row[name]) for name in required[:3])
        options = _row_options(row)
        problem = _question_problem(image, question, options)
        if problem or isinstance(options, str):
            return problem
        if (index := _answer_index(answer, options)) is None:
            return f"its answer {answer!r} is neither the letter nor the text of one option, or matches two"
        kind, group = (
            cell_text(row[kind_column]) if kind_column else "",
            normalize_group_name(cell_text(row.get("group"))),
        )
        return CustomQuestion(image, question, options, index, kind, group)

    return _read_rows(path, parse_row, required, QUESTION_REMEDY)


def read_fake_questions(path: Path) -> list[FakeQuestion]:
    """Read a user's own fake questions: question and options, no answer.

    Args:
        path: table as for `read_custom_questions`.

    Raises:
        BadInput: rows are not valid questions (all are listed), or there are no rows.
    """

    def parse_row(row: dict[str, Any]) -> FakeQuestion | str:
        question, options = cell_text(row.get("question")), _row_options(row)
        problem = _question_problem("-", question, options)
        return problem if problem or isinstance(options, str) else FakeQuestion(question, options)

    remedy = "A fake question has the column question and its options, as other questions have."
    return _read_rows(path, parse_row, ("question",), remedy)


def _read_rows(
    path: Path,
    parse_row: Callable[[dict[str, Any]], ParsedRow | str],
    required: Sequence[str],
    remedy: str,
) -> list[ParsedRow]:
    table = read_dataframe(path)
    require_columns(table, path, required, remedy)
    return parse_rows(table, path, parse_row, "questions", remedy)


def parse_rows(
    table: pd.DataFrame,
    path: Path,
    parse_row: Callable[[dict[str, Any]], ParsedRow | str],
    content: str,
    remedy: str,
) -> list[ParsedRow]:
    """Parse the rows of a table.

    Args:
        table: the table.
        path: its file, for errors.
        parse_row: returns the parsed row or, for an invalid row, a string that says what is wrong.
        content: what the rows are, for errors (in the plural).
        remedy: how to correct the table.

    Raises:
        BadInput: there are no rows, or rows are invalid; the message lists them.
    """
    problems = Problems()
    parsed_rows = []
    for number, row in enumerate(table.to_dict("records"), 1):
        parsed = parse_row({str(name): value for name, value in row.items()})
        if isinstance(parsed, str):
            problems.add(str(path), f"row {number}", parsed)
        else:
            parsed_rows.append(parsed)
    # Report all invalid rows together, so that the user can correct them in one go.
    problems.check(remedy)
    if not parsed_rows:
        raise BadInput(f"{path}: contains no {content}. {remedy}")
    return parsed_rows


def image_groups(questions: Iterable[CustomQuestion], path: Path) -> pd.DataFrame:
    """Collect the groups of the questions' images.

    Args:
        questions: questions read from `path`.
        path: file to name in errors.

    Returns:
        Columns image and group, one row per image.

    Raises:
        BadInput: the questions on one image name different groups.
    """
    groups: dict[str, str] = {}
    for question in questions:
        # A blank group means unknown: it never contradicts a group that another question names.
        groups[question.image] = groups.get(question.image, "") or question.group
        if question.group not in ("", groups[question.image]):
            raise BadInput(
                f"{path}: the questions on {question.image} have different groups. Give an image one group.",
            )
    return pd.DataFrame({"image": list(groups), "group": list(groups.values())})


def _row_options(row: dict[str, Any]) -> tuple[str, ...] | str:
    """Return the options of a row without leading letters, or a string that says what is wrong."""
    raw_options = row.get("options", row.get("choices"))
    if isinstance(raw_options, str) and raw_options.strip()[:1] in (
        "[",
        "{",
    ):  # JSON in a cell of a CSV
        try:
            raw_options = json.loads(raw_options)
        except ValueError:
            return "has `options` that are not valid JSON"
    if raw_options is None or isinstance(raw_options, (str, float)):
        raw_options = {
            name[-1]: row[name]
            for name in row
            if re.fullmatch(
                r"(?i:option|choice)(?:[ _][A-Za-z]|[A-Z])",
                name,
            )
        }
    if any(
        not pd.api.types.is_scalar(option)
        for option in (raw_options.values() if isinstance(raw_options, dict) else raw_options)
    ):
        return "has options that are not strings"
    if isinstance(raw_options, dict):
        texts = {str(letter).strip().upper(): text for letter, cell in raw_options.items() if (text := cell_text(cell))}
        if sorted(texts) != list(LETTERS[: len(texts)]):
            return f"has options {', '.join(sorted(texts))}, not consecutive letters from A"
        raw_options = [texts[letter] for letter in sorted(texts)]
    return strip_option_letters([cell_text(option) for option in raw_options])


def _question_problem(image: str, question: str, options: tuple[str, ...] | str) -> str:
    """Return what is wrong with a question; "" if it is valid."""
    return first_reason(
        (not image or not question, "has no image or no question"),
        (not is_safe_relative_path(image), f"the image name {image!r} leaves its folder"),
        (isinstance(options, str), str(options)),
        (not all(options), "has an option without a text"),
        # At most 25, because an added "I do not know" needs a letter, too.
        (not 2 <= len(options) <= 25, f"has {len(options)} options, not 2 to 25"),
        (len({option.casefold() for option in options}) < len(options), "has the same option twice"),
    )


def first_reason(*reasons: tuple[bool, str]) -> str:
    """Return the first reason that applies; "" if none does."""
    return next((reason for applies, reason in reasons if applies), "")


def _answer_index(answer: str, options: tuple[str, ...]) -> int | None:
    """Return the index of the option that an answer names by its letter, its text or both.

    Returns None if it names no option, or two.
    """
    match = re.fullmatch(r"\(?([A-Za-z])(?:[).:]\s*(.*))?", answer)
    letter_index = LETTERS.index(match[1].upper()) if match else len(options)
    by_text = {index for index, option in enumerate(options) if option.casefold() == answer.casefold()}
    # "B: liver" counts by its letter only if option B is "liver".
    by_letter = (
        {letter_index}
        if match
        and letter_index < len(options)
        and (match[2] or options[letter_index]).casefold() == options[letter_index].casefold()
        else set()
    )
    matches = by_text | by_letter
    return matches.pop() if len(matches) == 1 else None
