"""Read the tables that VLMEvalKit writes (`<model>_<dataset>.xlsx`, `.tsv`, `.csv` or `.json`), and spreadsheets of plain answers.

A table of VLMEvalKit has `index`, `question`, `prediction`; those of our TSV keep `question_id`, while in the official one of GMAI-MMBench
`index` is the question's id. A spreadsheet of plain answers has the columns of any file of answers (`predictions.py`).
Format: VLMEvalKit e8e78f0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.extras import require
from dataset_builders.schema import LETTERS
from eval_harness.answer_files.predictions import journal_record
from eval_harness.answer_files.untrusted import ProblemList, format_names, parse_json, select_answer_fields

LETTER_ANSWER = re.compile(r"\W*(?:(?:the )?answer(?: is)?\b)?\W*([A-J])\b\W*(.*?)\W*", re.DOTALL)


def recognises(path: Path) -> bool:
    """True if it is a spreadsheet, or a table with `index` and `prediction` as TSV, CSV or a JSON list."""
    if path.suffix.lower() == ".xlsx":
        return True
    with path.open("rb") as file:
        head = file.readline(1 << 16)
        head += file.read(1 << 12) if head.startswith(b"[") else b""
    return {b"index", b"prediction"} <= set(re.split(rb"\W+", head)) and not head.startswith(b"{")


def iter_answers(
    path: Path, questions: pd.DataFrame, problems: ProblemList
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(where, question id, journal record) of every row. Raises BadInput for a table that cannot be read."""
    of_two = questions[questions["question_type"] == "yes_no"]
    yes_no = dict(zip(of_two["question_id"].astype(str), of_two["options"], strict=True))
    table = _read_table(path)
    ids = set(questions["question_id"].astype(str))
    is_id = [name for name in ("question_id", "index") if name in table.columns and not ids.isdisjoint(table[name])]
    text = next((name for name in ("prediction", "response") if name in table.columns), None)
    if not is_id or text is None:
        raise BadInput(
            f"{path}: lacks the columns question_id and prediction, or answers other questions (it has "
            f"{format_names(list(table.columns))}). `medprobe export-tsv` writes a TSV to ask; in the official one of "
            "GMAI-MMBench `index` is the question's id."
        )
    for number, row in enumerate(table.to_dict("records"), 2):
        where = f"{path}, row {number}"
        if text == "response":
            fields = {name: value or None for name, value in select_answer_fields(row).items()}
            yield where, row[is_id[0]], fields | {text: row[text]}
        else:
            answer = journal_record(_spell_out_letter(row[text], yes_no.get(row[is_id[0]], ())))
            yield where, row[is_id[0]], answer | {"target": row.get("answer") or None}


def _spell_out_letter(response: str, options: Sequence[str]) -> str:
    """An answer to a question of yes or no, which VLMEvalKit asks by letters: a letter alone, or with its option, in words.

    >>> _in_words("B.", ["yes", "no"]), _in_words("(A) Yes", ["yes", "no"]), _in_words("A mass.", ["yes", "no"])
    ('B (no)', 'A (yes)', 'A mass.')
    """
    match = LETTER_ANSWER.fullmatch(response)
    index = LETTERS.index(match[1]) if match else len(options)
    if match is None or index >= len(options) or match[2].casefold() not in ("", options[index].casefold()):
        return response
    return f"{match[1]} ({options[index]})"


def _read_table(path: Path) -> pd.DataFrame:
    """A table as texts; of a spreadsheet (extra `vlmevalkit`) its first sheet."""
    as_texts: dict[str, Any] = {"dtype": str, "keep_default_na": False}
    if path.suffix.lower() == ".xlsx":
        require("openpyxl")
    try:
        if path.suffix.lower() == ".xlsx":
            return pd.read_excel(path, **as_texts)
        content = path.read_text(encoding="utf-8-sig")
        if content.startswith("["):
            return pd.DataFrame(parse_json(content, constants=True)).fillna("").astype(str)
        return pd.read_csv(path, sep="\t" if "\t" in content.partition("\n")[0] else ",", **as_texts)
    except Exception as error:  # what a damaged file raises differs by library
        why = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise BadInput(f"{path}: cannot be read as a table of predictions ({why}).") from None
