"""Read VLMEvalKit tables, and spreadsheets of answers.

A VLMEvalKit table (`<model>_<dataset>.xlsx`, `.tsv`, `.csv`, `.json`) has `index`, `question` and
`prediction`. Tables made from our TSV keep `question_id`; in the official GMAI-MMBench TSV, `index`
is the question id. A spreadsheet of plain answers has the columns of any file of answers
(`predictions.py`).

Format: VLMEvalKit e8e78f0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput, first_line
from dataset_builders.extras import require
from dataset_builders.schema import LETTERS
from eval_harness.answer_files.predictions import journal_record
from eval_harness.answer_files.untrusted import (
    ProblemList,
    format_names,
    parse_json,
    select_answer_fields,
)

LETTER_ANSWER = re.compile(r"\W*(?:(?:the )?answer(?: is)?\b)?\W*([A-J])\b\W*(.*?)\W*", re.DOTALL)
"""A letter alone ("B.", "the answer is B"), or a letter followed by the text of its option."""


def recognises(path: Path) -> bool:
    """Return True for a spreadsheet, or a TSV, CSV or JSON list with `index` and `prediction`."""
    if path.suffix.lower() == ".xlsx":
        return True
    with path.open("rb") as file:
        head = file.readline(1 << 16)
        head += file.read(1 << 12) if head.startswith(b"[") else b""
    return {b"index", b"prediction"} <= set(re.split(rb"\W+", head)) and not head.startswith(b"{")


def iter_answers(
    path: Path, questions: pd.DataFrame, problems: ProblemList
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield (location, question id, journal record) for every row.

    Args:
        path: The table.
        questions: The questions of the split.
        problems: Unused; part of the reader interface.

    Raises:
        BadInput: If the table cannot be read, or lacks ids of these questions or a text column.
    """
    yes_no_questions = questions[questions["question_type"] == "yes_no"]
    yes_no_options = dict(zip(yes_no_questions["question_id"].astype(str), yes_no_questions["options"], strict=True))
    table = _read_table(path)
    ids = set(questions["question_id"].astype(str))
    # In a table made from our TSV, `index` is only a row number: prefer question_id.
    id_columns = [
        name for name in ("question_id", "index") if name in table.columns and not ids.isdisjoint(table[name])
    ]
    text_column = next((name for name in ("prediction", "response") if name in table.columns), None)
    if not id_columns or text_column is None:
        raise BadInput(
            "lacks the columns question_id and prediction, or answers other questions (it has "
            f"{format_names(list(table.columns))}). `medprobe export-tsv` writes a TSV for VLMEvalKit; "
            "in GMAI-MMBench's official TSV, `index` is the question's id.",
            path,
        )

    # Row 1 of a spreadsheet is the header.
    for number, row in enumerate(table.to_dict("records"), 2):
        location = f"row {number}"
        if text_column == "response":
            fields = {name: value or None for name, value in select_answer_fields(row).items()}
            yield location, row[id_columns[0]], fields | {text_column: row[text_column]}
        else:
            answer = journal_record(_spell_out_letter(row[text_column], yes_no_options.get(row[id_columns[0]], ())))
            yield location, row[id_columns[0]], answer | {"target": row.get("answer") or None}


def _spell_out_letter(response: str, options: Sequence[str]) -> str:
    """Add the option's text to a letter: VLMEvalKit asks yes/no questions as multiple choice.

    Any other answer is returned unchanged.

    >>> _spell_out_letter("B.", ["yes", "no"]), _spell_out_letter("(A) Yes", ["yes", "no"])
    ('B (no)', 'A (yes)')
    >>> _spell_out_letter("A mass.", ["yes", "no"])
    'A mass.'
    """
    match = LETTER_ANSWER.fullmatch(response)
    index = LETTERS.index(match[1]) if match else len(options)
    if match is None or index >= len(options) or match[2].casefold() not in ("", options[index].casefold()):
        return response
    return f"{match[1]} ({options[index]})"


def _read_table(path: Path) -> pd.DataFrame:
    """Read a table as text; from a spreadsheet (extra `vlmevalkit`), read the first sheet."""
    read_options: dict[str, Any] = {"dtype": str, "keep_default_na": False}
    if path.suffix.lower() == ".xlsx":
        require("openpyxl")
    try:
        if path.suffix.lower() == ".xlsx":
            return pd.read_excel(path, **read_options)
        content = path.read_text(encoding="utf-8-sig")
        if content.startswith("["):
            return pd.DataFrame(parse_json(content, constants=True)).fillna("").astype(str)
        return pd.read_csv(path, sep="\t" if "\t" in content.partition("\n")[0] else ",", **read_options)
    except Exception as error:  # the exception for a damaged file depends on the library
        reason = first_line(error) or type(error).__name__
        raise BadInput(f"cannot be read as a table of predictions ({reason}).", path) from None
