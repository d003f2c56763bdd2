"""The benchmarks as TSV files of multiple choice for VLMEvalKit; its predictions are read by `answer_files/vlmevalkit_tables.py`.

Format: VLMEvalKit e8e78f0, `vlmeval/dataset/image_mcq.py` (`CustomMCQDataset`): index *integer*, image (base64, or the index of another
row), question, A, B, ..., answer, category, split. Its own scorer knows no pairs and no probes, and no answer of several letters; the ids
stay in the predictions, so that `medprobe submit` scores them.
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
from eval_harness.interop.harness_file import format_letters, to_export

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
    several = any(len(row_image_ids(row)) > 1 for row in rows)
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
                    names = row_image_ids(row)
                    first = stored.setdefault(names, number)
                    shown = _listed([base64.b64encode(encode_picture(case.images[name])).decode() for name in names])
                    paths = [_listed([f"{number}_{n}.png" for n in range(len(names))])] if several else []
                    options = [_visible(str(option)) for option in row["options"]] + [""] * (most - len(row["options"]))
                    image = shown if first == number else str(first)
                    labels = [
                        number,
                        image,
                        *paths,
                        _visible(str(row["question"])),
                        *options,
                        format_letters(row["answer"]),
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
