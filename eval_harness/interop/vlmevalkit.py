"""Export the benchmarks as multiple-choice TSV files for VLMEvalKit.

Format: VLMEvalKit e8e78f0, `vlmeval/dataset/image_mcq.py` (`CustomMCQDataset`): index (an integer),
image (base64, or the index of another row), question, A, B, ..., answer, category, split.
VLMEvalKit's scorer supports neither pairs, nor probes, nor answers with several letters. Its output
keeps our ids, so `medprobe submit` can score the predictions
(`answer_files/harness_formats.py`).
"""

from __future__ import annotations

import base64
import csv
import json
import re
from pathlib import Path
from typing import Any

from dataset_builders.files import replace_file
from dataset_builders.images.picture import encode_picture
from dataset_builders.schema import LETTERS, row_image_ids
from eval_harness.interop.harness_file import format_letters, select_for_export

PANDAS_NA_TEXTS = {
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"),
    *("N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
}
"""Texts that pandas reads as missing values: an option with such a text would be lost."""


def tsv_file_name(benchmark: str) -> str:
    """Return the name of a benchmark's TSV file.

    VLMEvalKit uses circular evaluation for datasets whose names contain `mmbench`, so the name
    avoids it.

    >>> tsv_file_name("gmai-mmbench")
    'medprobe-gmai-mm-bench.tsv'
    """
    return f"medprobe-{re.sub('mmbench', 'mm-bench', benchmark, flags=re.IGNORECASE)}.tsv"


def export_tsv(data: str, split: str | None, out: Path) -> tuple[Path, int]:
    """Write the questions of a dataset as a TSV file.

    Images shown by several questions are stored in the first one's row. Several images of one
    question are a list, with the file names that VLMEvalKit requires (`image_path`).

    Args:
        data: Dataset folder or Hub repository.
        split: Split; None takes the dataset's only or default one.
        out: Folder of the file.

    Returns:
        (path, number of rows).

    Raises:
        BadInput: If the dataset is unknown or has no images.
    """
    selection = select_for_export(data, split)
    repository = selection.repository
    rows = selection.questions.to_dict("records")
    option_count = max(len(row["options"]) for row in rows)
    several_images = any(len(row_image_ids(row)) > 1 for row in rows)
    columns = [
        *("index", "image", *(["image_path"] if several_images else []), "question", *LETTERS[:option_count]),
        *("answer", "category", "split", "question_id", "case_id"),
    ]

    row_numbers = {row["question_id"]: number for number, row in enumerate(rows)}
    rows_by_case: dict[str, list[dict[Any, Any]]] = {}
    for row in rows:
        rows_by_case.setdefault(row["case_id"], []).append(row)
    out.mkdir(parents=True, exist_ok=True)
    path = out / tsv_file_name(repository.name)
    # Ids of the images -> number of the row that stores them.
    storing_rows: dict[tuple[str, ...], int] = {}

    def write(target: Path) -> None:
        with target.open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, delimiter="\t", lineterminator="\n")
            table.writerow(columns)
            # Case by case, so that only one case's images are in memory.
            for case in repository.cases(selection.split, set(rows_by_case)):
                for row in rows_by_case[case.case_id]:
                    number = row_numbers[row["question_id"]]
                    names = row_image_ids(row)
                    storing_row = storing_rows.setdefault(names, number)
                    encoded = _join_cell(
                        [base64.b64encode(encode_picture(case.images[name])).decode() for name in names]
                    )
                    # VLMEvalKit writes the images to files of these names.
                    image_files = [f"{number}_{n}.png" for n in range(len(names))]
                    padding = [""] * (option_count - len(row["options"]))
                    cells = [
                        number,
                        encoded if storing_row == number else str(storing_row),
                        *([_join_cell(image_files)] if several_images else []),
                        _protect_from_pandas(str(row["question"])),
                        *(_protect_from_pandas(str(option)) for option in row["options"]),
                        *padding,
                        format_letters(row["answer"]),
                    ]
                    table.writerow([*cells, _category(row), selection.split, row["question_id"], row["case_id"]])

    replace_file(path, write)
    return path, len(rows)


def _join_cell(texts: list[str]) -> str:
    """Return one text unchanged, and several as a list that is valid both in Python and in JSON."""
    return texts[0] if len(texts) == 1 else json.dumps(texts)


def _protect_from_pandas(text: str) -> str:
    """Prefix a space to a text that pandas would read as a missing value."""
    return f" {text}" if text in PANDAS_NA_TEXTS else text


def _category(row: dict[Any, Any]) -> str:
    # VLMEvalKit has a single category per row: the first facet with a value.
    labels = row.get("categories") or [
        row[facet] for facet in ("scenario", "aspect", "task", "modality") if row.get(facet)
    ]
    return str(next(iter(labels), "all"))
