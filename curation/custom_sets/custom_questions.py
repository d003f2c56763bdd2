"""Reads a user's own multiple-choice questions.

See also: what is made of them (`hallucination.py`, `probing.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from curation.images.image_table import cell_text, need_columns, read_any
from dataset_builders.contents.pseudonyms import one_spelling
from dataset_builders.errors import BadInput, Problems
from dataset_builders.schema import LETTERS
from dataset_builders.source_files import stays_inside

QUESTION_REMEDY = (
    "A question has the columns image, question, answer (a letter, or the option's text) and its options: option_A, option_B ..., "
    "or a list in `options`."
)


@dataclass(frozen=True)
class CustomQuestion:
    """A question with one right option. `answer` is its position; `kind`, `modality`: what its image shows and how it was made, for telling
    unrelated images; `group`: the patient, study or article of its image ("" where unknown)."""

    image: str
    question: str
    options: tuple[str, ...]
    answer: int
    kind: str = ""
    group: str = ""
    modality: str = ""

    @property
    def right(self) -> str:
        """The text of the right option."""
        return self.options[self.answer]

    @property
    def wrong(self) -> list[str]:
        """The texts of the others."""
        return [option for at, option in enumerate(self.options) if at != self.answer]


@dataclass(frozen=True)
class Fake:
    """A question without an answer, and its options."""

    question: str
    options: tuple[str, ...]


def read_questions(path: Path, kind_column: str | None = None, group_column: str = "group") -> list[CustomQuestion]:
    """The questions of a .csv, .tsv, .jsonl or .parquet file. Raises BadInput listing every row that is no question."""
    raw = read_any(path)
    need_columns(raw, path, ("image", "question", "answer", *([kind_column] if kind_column else [])), QUESTION_REMEDY)
    problems = Problems()
    found = []
    for number, row in enumerate(raw.to_dict("records"), 1):
        image, question, answer = (cell_text(row.get(name)) for name in ("image", "question", "answer"))
        options = _options({str(name): value for name, value in row.items()})
        wrong = _wrong(image, question, options)
        index = _answer_index(answer, options)
        if wrong is None and index is None:
            wrong = f"its answer {answer!r} is neither the letter nor the text of one option"
        if wrong is not None:
            problems.add(str(path), f"row {number}", wrong)
        elif index is not None:
            kind, group = (
                cell_text(row[kind_column]) if kind_column else "",
                one_spelling(cell_text(row.get(group_column))),
            )
            found.append(CustomQuestion(image, question, options, index, kind, group, cell_text(row.get("modality"))))
    problems.check(QUESTION_REMEDY)
    if not found:
        raise BadInput(f"{path}: holds no questions. {QUESTION_REMEDY}")
    return found


def groups_of_images(questions: Iterable[CustomQuestion], path: Path) -> pd.DataFrame:
    """The columns image and group of the questions' images. Raises BadInput for an image of two groups."""
    groups: dict[str, str] = {}
    for question in questions:
        known = groups.get(question.image, "")
        groups[question.image] = known or question.group
        if question.group not in ("", groups[question.image]):
            raise BadInput(f"{path}: the questions on {question.image} are of several groups. Give an image one group.")
    return pd.DataFrame({"image": list(groups), "group": list(groups.values())})


def _options(row: dict[str, Any]) -> tuple[str, ...]:
    given = row.get("options")
    if given is not None and not isinstance(given, (str, float)):
        return tuple(cell_text(option) for option in given)
    lettered = [(name[-1].upper(), row[name]) for name in row if re.fullmatch(r"(?i)(?:option|choice)_[a-z]", name)]
    return tuple(text for _, value in sorted(lettered, key=lambda pair: pair[0]) if (text := cell_text(value)))


def _wrong(image: str, question: str, options: tuple[str, ...]) -> str | None:
    if not image or not question:
        return "has no image or no question"
    if not stays_inside(image):
        return f"the image name {image!r} leaves its folder"
    if not 2 <= len(options) <= 25 or not all(options):
        return f"has {len(options)} options, not 2 to 25"
    if len({option.casefold() for option in options}) < len(options):
        return "gives the same option twice"
    return None


def _answer_index(answer: str, options: tuple[str, ...]) -> int | None:
    folded = [option.casefold() for option in options]
    if answer.casefold() in folded:
        return folded.index(answer.casefold())
    letter = re.fullmatch(r"\(?([A-Za-z])[).:]?", answer)
    index = LETTERS.index(letter[1].upper()) if letter else len(options)
    return index if index < len(options) else None


def read_fakes(path: Path) -> list[Fake]:
    """Fake questions of the user's own: question and options, no answer. Raises BadInput listing the rows that are none."""
    raw = read_any(path)
    problems = Problems()
    found = []
    for number, row in enumerate(raw.to_dict("records"), 1):
        question, options = cell_text(row.get("question")), _options({str(name): value for name, value in row.items()})
        wrong = _wrong("-", question, options)
        if wrong is not None:
            problems.add(str(path), f"row {number}", wrong)
        else:
            found.append(Fake(question, options))
    problems.check(
        "A fake question has the column question and its options: option_A, option_B ..., or a list in `options`."
    )
    if not found:
        raise BadInput(f"{path}: holds no questions.")
    return found
