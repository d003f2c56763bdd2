"""VLMEvalKit by its file formats: the benchmarks as TSV files of multiple choice, and its predictions (`<model>_<dataset>.xlsx` or `.tsv`).

Format: VLMEvalKit e8e78f0, `vlmeval/dataset/image_mcq.py` (`CustomMCQDataset`): index *integer*, image (base64, or the index of another
row), question, A, B, ..., answer, category, split. Its own scorer knows no pairs and no probes, and no answer of several letters; the ids
stay in the predictions, so that `medprobe submit` scores them.
"""

from __future__ import annotations

import base64
import csv
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.extras import require
from dataset_builders.files import replace_file
from dataset_builders.images.picture import shown_file
from dataset_builders.schema import LETTERS, image_ids
from eval_harness.interop.harness_file import letters_of, record_of, to_export
from eval_harness.store.untrusted import ProblemList

NOTHING = {
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"),
    *("N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
}
"""Texts that pandas reads as no value: an option of that text would vanish."""


def file_name(benchmark: str) -> str:
    """The file's name: VLMEvalKit asks a dataset in circles whose name holds `mmbench`.

    >>> file_name("gmai-mmbench")
    'medprobe-gmai-mm-bench.tsv'
    """
    return f"medprobe-{re.sub('mmbench', 'mm-bench', benchmark, flags=re.IGNORECASE)}.tsv"


def export_tsv(data: str, split: str | None, out: Path) -> tuple[Path, int]:
    """Write the questions of a dataset as a TSV into the folder `out`; returns the file and the number of rows.

    Images that several questions show are stored in the first of them. Several images of one question are a list, with the names that
    VLMEvalKit asks for (`image_path`). Raises BadInput for an unknown dataset and one without images.
    """
    chosen = to_export(data, split)
    repository = chosen.repository
    rows = chosen.questions.to_dict("records")
    most = max(len(row["options"]) for row in rows)
    several = any(len(image_ids(row)) > 1 for row in rows)
    columns = ["index", "image", *(["image_path"] if several else []), "question", *LETTERS[:most]]
    columns += ["answer", "category", "split", "question_id", "case_id"]
    index = {row["question_id"]: number for number, row in enumerate(rows)}
    by_case: dict[str, list[dict[Any, Any]]] = {}
    for row in rows:
        by_case.setdefault(row["case_id"], []).append(row)
    out.mkdir(parents=True, exist_ok=True)
    path = out / file_name(repository.name)
    stored: dict[tuple[str, ...], int] = {}

    def write(target: Path) -> None:
        with target.open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, delimiter="\t", lineterminator="\n")
            table.writerow(columns)
            for case in repository.cases(chosen.split, set(by_case)):
                for row in by_case[case.case_id]:
                    number = index[row["question_id"]]
                    names = image_ids(row)
                    first = stored.setdefault(names, number)
                    shown = _listed([base64.b64encode(shown_file(case.images[name])).decode() for name in names])
                    paths = [_listed([f"{number}_{n}.png" for n in range(len(names))])] if several else []
                    options = [_visible(str(option)) for option in row["options"]] + [""] * (most - len(row["options"]))
                    image = shown if first == number else str(first)
                    labels = [
                        number,
                        image,
                        *paths,
                        _visible(str(row["question"])),
                        *options,
                        letters_of(row["answer"]),
                    ]
                    table.writerow([*labels, _category(row), chosen.split, row["question_id"], row["case_id"]])

    replace_file(path, write)
    return path, len(rows)


def _listed(texts: list[str]) -> str:
    """One text as it is, several as a list that Python and JSON read alike."""
    return texts[0] if len(texts) == 1 else json.dumps(texts)


def _visible(text: str) -> str:
    """A text that pandas does not take for an absent value: a blank stands before one that it would."""
    return f" {text}" if text in NOTHING else text


def _category(row: dict[Any, Any]) -> str:
    labels = row.get("categories") or [
        row[name] for name in ("scenario", "aspect", "task", "modality") if row.get(name)
    ]
    return str(next(iter(labels), "all"))


def recognises(path: Path) -> bool:
    """True if it is a table of predictions: xlsx, or TSV with `index`, `question` and `prediction`."""
    if path.suffix == ".xlsx":
        return True
    with path.open("rb") as file:
        names = file.readline(1 << 16).rstrip(b"\r\n").split(b"\t")
    return {b"index", b"question", b"prediction"} <= set(names)


def read(path: Path, questions: pd.DataFrame, found: ProblemList) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(where, question id, journal record) of every row. Raises BadInput for a table that cannot be read."""
    of_two = questions[questions["question_type"] == "yes_no"]
    yes_no = dict(zip(of_two["question_id"].astype(str), of_two["options"], strict=True))
    table = _table(path)
    if not {"question_id", "prediction"} <= set(table.columns):
        raise BadInput(
            f"{path}: lacks the columns question_id and prediction: it was not asked with the TSV of `medprobe export-tsv`."
        )
    for number, row in enumerate(table.to_dict("records"), 2):
        said = record_of(_in_words(row["prediction"], yes_no.get(row["question_id"], ())))
        yield f"{path}, row {number}", row["question_id"], said | {"target": row.get("answer") or None}


LETTER = re.compile(r"\W*(?:(?:the )?answer(?: is)?\b)?\W*([A-J])\b\W*(.*?)\W*", re.DOTALL)


def _in_words(said: str, options: Sequence[str]) -> str:
    """An answer to a question of yes or no, which VLMEvalKit asks by letters: a letter alone, or with its option, in words.

    >>> _in_words("B.", ["yes", "no"]), _in_words("(A) Yes", ["yes", "no"]), _in_words("A mass.", ["yes", "no"])
    ('B (no)', 'A (yes)', 'A mass.')
    """
    found = LETTER.fullmatch(said)
    index = LETTERS.index(found[1]) if found else len(options)
    if found is None or index >= len(options) or found[2].casefold() not in ("", options[index].casefold()):
        return said
    return f"{found[1]} ({options[index]})"


def _table(path: Path) -> pd.DataFrame:
    """A table as texts; of a spreadsheet (extra `vlmevalkit`) its first sheet."""
    if path.suffix == ".xlsx":
        require("openpyxl")
    try:
        if path.suffix == ".xlsx":
            return pd.read_excel(path, dtype=str, keep_default_na=False)
        return pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
    except Exception as error:  # what a damaged file raises differs by library
        why = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise BadInput(f"{path}: cannot be read as VLMEvalKit's predictions ({why}).") from None
