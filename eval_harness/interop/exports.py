"""Export the benchmarks to other harnesses: as tasks of lmms-eval, and as TSV files for VLMEvalKit.

Harnesses score each sample alone and then aggregate. Our metrics of a pair, or of an image with
nine probes, need several samples, so they are computed here from the records of all samples; the
tasks of inspect-ai (`inspect_tasks.py`) share these functions. `medprobe submit` reads the files
that the harnesses write (`answer_files/harness_formats.py`).

- lmms-eval 0.7.3: a folder for `--include_path` and the functions that it calls. Prompts, reader
  and metrics are those of medprobe.

      medprobe export-lmms-eval data/mediconfusion --out tasks
      python -m lmms_eval --model openai --model_args model=...,base_url=... --include_path tasks \\
          --tasks medprobe_mediconfusion --log_samples

- VLMEvalKit e8e78f0, `vlmeval/dataset/image_mcq.py` (`CustomMCQDataset`), multiple choice: index
  (an integer), image (base64, or the index of another row), question, A, B, ..., answer, category,
  split. VLMEvalKit's scorer supports neither pairs, nor probes, nor answers with several letters.
"""

import base64
import csv
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import yaml

from dataset_builders.benchmarks import free_facets, question_columns
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.fingerprints import FACET_COLUMNS, FINGERPRINT_COLUMNS
from dataset_builders.hub.repository import open_repository
from dataset_builders.images.picture import encode_picture, make_picture
from dataset_builders.schema import LETTERS, row_image_ids
from eval_harness.answer_files.harness_formats import TASK_IDS_KEY
from eval_harness.answer_files.predictions import format_letters, journal_record
from eval_harness.benchmarks import eval_spec, get_prompt
from eval_harness.derive.metrics import METRICS, compute_scores, compute_units
from eval_harness.derive.reading import read_responses
from eval_harness.records.selection import Selection, select_questions
from eval_harness.scores.intervals import clustered_interval

if TYPE_CHECKING:
    from datasets import Dataset


def select_for_export(data: str, split: str | None) -> Selection:
    """Select all questions of a dataset for an export.

    Args:
        data: Dataset folder or Hub repository.
        split: Split; None takes the dataset's only or default one.

    Returns:
        The questions with their repository.

    Raises:
        BadInput: If `medprobe eval` would reject the arguments, or the dataset has no images.
    """
    selection = select_questions(open_repository(data).name, data, split)
    if not selection.repository.has_images:
        raise BadInput(f"{data}: contains no images (a text-only build). Build it again without --text-only.")
    return selection


METADATA_COLUMNS = tuple(dict.fromkeys((*FINGERPRINT_COLUMNS, *FACET_COLUMNS)))
"""Question columns stored with a sample: everything that scoring reads."""


def question_metadata(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the `METADATA_COLUMNS` and own facets of a question as JSON values."""
    return {name: _to_json_value(row.get(name)) for name in (*METADATA_COLUMNS, *free_facets(row))}


def decode_question(family: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a question without its images, with class labels as strings.

    Args:
        family: The benchmark.
        row: A row of `datasets`, which stores class labels as integers.

    Returns:
        Column -> value.
    """
    label_names = {name: kind.names for name, kind in question_columns(family).items() if kind.names}
    return {
        name: label_names[name][value] if name in label_names and isinstance(value, int) and value >= 0 else value
        for name, value in row.items()
        if name not in ("image", "more_images")
    }


def with_image_bytes(rows: "Dataset") -> "Dataset":
    """Return the rows with their images still encoded.

    `datasets` decodes images differently from version to version.
    """
    from datasets import Image, Sequence

    for name, feature in {"image": Image(decode=False), "more_images": Sequence(Image(decode=False))}.items():
        rows = rows.cast_column(name, feature) if name in rows.column_names else rows
    return rows


def rgb_images(row: Mapping[str, Any]) -> list[Any]:
    """Return a question's images in order, as RGB pictures, the way they are shown to a model.

    Args:
        row: A row of `with_image_bytes`.

    Returns:
        Images of Pillow.
    """
    images = [row.get("image"), *(row.get("more_images") or ())]
    return [make_picture(image["bytes"]).pixels.convert("RGB") for image in images if image is not None]


def _to_json_value(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, np.generic):
        return value.item()
    return list(value) if isinstance(value, list | tuple | np.ndarray) else value


def read_sample_answer(family: str, question: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Read the choice of an answer, as `medprobe score` does.

    Args:
        family: The benchmark.
        question: The question's `METADATA_COLUMNS`.
        answer: The journal record of the answer.

    Returns:
        `choice` (sorted option indices), `status`, `rule` (of the reader), `right`.
    """
    record = {"question_id": str(question["question_id"]), "sample": 0} | dict(answer)
    [reading] = read_responses(pd.DataFrame([record]), pd.DataFrame([dict(question)]), family).to_dict("records")
    choice = sorted(int(index) for index in reading["choice"])
    # All correct options and no other must be chosen.
    correct = reading["status"] == "answered" and choice == sorted(question["answer"])
    return {"choice": choice, "status": reading["status"], "rule": reading["rule"], "right": correct}


def metric_scores(
    family: str, questions: Iterable[Mapping[str, Any]], answers: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, float], dict[str, float]]:
    """Compute the metrics for which there are enough answers.

    Args:
        family: The benchmark.
        questions: `METADATA_COLUMNS` of each question.
        answers: Results of `read_sample_answer` with question id and sample number.

    Returns:
        (metric -> value as in `medprobe score`, metric -> standard error in percentage points).
    """
    frame = pd.DataFrame(list(questions), columns=list(METADATA_COLUMNS))
    if frame.empty:  # a harness may aggregate before any sample is done
        return {}, {}
    readings = pd.DataFrame(list(answers), columns=["question_id", "sample", "choice", "status"])
    values = {
        name: metric.value
        for name, metric in compute_scores(family, frame, readings).scores.items()
        if name in eval_spec(family).metrics
    }
    errors = _standard_errors(compute_units(family, frame, readings))
    return {name: value for name, value in values.items() if value is not None}, errors


def _standard_errors(table: pd.DataFrame) -> dict[str, float]:
    """Return metric -> standard error in percentage points.

    It is the standard error of `n_effective` independent outcomes (`scores/intervals.py`). Omitted
    for counts, and for metrics with fewer than two clusters.
    """
    errors: dict[str, float] = {}
    for name, part in table.groupby("metric", sort=False):
        info = METRICS.get(str(name))
        # The binomial formula below applies to shares only.
        if info is not None and info.unit == "count":
            continue
        numerators, denominators = part["numerator"].to_numpy(float), part["denominator"].to_numpy(float)
        interval = clustered_interval(numerators, denominators, part["cluster"].to_numpy())
        if interval is not None and part["cluster"][denominators > 0].nunique() > 1:
            share = float(numerators.sum() / denominators.sum())
            errors[str(name)] = 100 * math.sqrt(share * (1 - share) / interval.n_effective)
    return errors


def question_messages(family: str, doc: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Make the conversation of a question: its images, then the benchmark's prompt (`image-first`).

    Args:
        family: The benchmark.
        doc: A row of `with_image_bytes`.

    Returns:
        One user message in lmms-eval's format.
    """
    row = decode_question(family, doc)
    prompt = get_prompt(family, None, row["question_type"])
    content: list[dict[str, Any]] = [{"type": "text", "text": prompt.render(row["question"], row["options"])}]
    pictures = [{"type": "image", "url": image} for image in rgb_images(doc)]
    return [{"role": "user", "content": [*pictures, *content]}]


def process_sample(family: str, doc: Mapping[str, Any], results: list[Any]) -> dict[str, Any]:
    """Build the record of a sample, which lmms-eval stores and passes to every metric.

    Args:
        family: The benchmark.
        doc: A row of `with_image_bytes`.
        results: The model's outputs for this question; the first text is read.

    Returns:
        Metric -> record (the same for every metric), and under TASK_IDS_KEY the ids with
        `score` (1 if correct).
    """
    row = decode_question(family, doc)
    reading = read_sample_answer(family, question_metadata(row), journal_record(results))
    record = question_metadata(row) | reading | {"score": int(reading["right"]), "sample": 0}
    ids = {name: record[name] for name in ("question_id", "score", "case_id")}
    return {TASK_IDS_KEY: ids} | dict.fromkeys(eval_spec(family).metrics, record)


def aggregate_metric(family: str, metric: str, records: Iterable[Mapping[str, Any]]) -> float | None:
    """Compute a metric from the records of the samples.

    Args:
        family: The benchmark.
        metric: Name of the metric.
        records: Records of `process_sample`.

    Returns:
        The value in percent; None if too few questions were answered for it.
    """
    samples = list(records)  # each holds both a question and its answer
    return metric_scores(family, samples, samples)[0].get(metric)


def export_task(data: str, split: str | None, out: Path) -> str:
    """Write the task of a dataset.

    Args:
        data: Dataset folder or Hub repository.
        split: Split; None takes the dataset's only or default one.
        out: Folder for `--include_path`; the task gets a subfolder.

    Returns:
        Name of the task.

    Raises:
        BadInput: If `medprobe eval` would reject the arguments, or the dataset has no images.
    """
    selection = select_for_export(data, split)
    # lmms-eval imports the folder, so the name must also be a valid module name.
    task = f"medprobe_{re.sub(r'[^A-Za-z0-9]+', '_', selection.repository.name)}"
    folder = out / task
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "utils.py", _render_utils(selection.repository.family).encode())
    replace_file(folder / f"{task}.yaml", _render_yaml(task, selection).encode())
    return task


_UTILS_TEMPLATE = """# Written by `medprobe export-lmms-eval`: the functions of the task, for the benchmark {family}.

from eval_harness.interop import exports

FORMAT = {family!r}


def process_docs(rows):
    return exports.with_image_bytes(rows)


def doc_to_messages(doc, lmms_eval_specific_kwargs=None):
    return exports.question_messages(FORMAT, doc)


def doc_to_visual(doc):
    return exports.rgb_images(doc)


def doc_to_text(doc, lmms_eval_specific_kwargs=None):
    return exports.question_messages(FORMAT, doc)[0]["content"][-1]["text"]


def doc_to_target(doc):
    return exports.format_letters(doc["answer"])


def process_results(doc, results):
    return exports.process_sample(FORMAT, doc, results)


def right(records):
    return 100 * sum(record["score"] for record in records) / len(records)
"""


def _render_utils(family: str) -> str:
    functions = [
        f"\n\ndef {metric}(records):\n    return exports.aggregate_metric(FORMAT, {metric!r}, records)\n"
        for metric in eval_spec(family).metrics
    ]
    return "".join([_UTILS_TEMPLATE.format(family=family), *functions])


def _render_yaml(task: str, selection: Selection) -> str:
    repository = selection.repository
    folder = Path(str(repository.data))
    metric_infos = eval_spec(repository.family).metrics.items()
    metrics = [
        (TASK_IDS_KEY, "right", True),
        *((name, name, info.higher_is_better is not False) for name, info in metric_infos),
    ]
    document = {
        "dataset_path": str(folder.resolve() if folder.is_dir() else repository.data),
        "dataset_name": "questions",
        **({"dataset_kwargs": {"revision": repository.revision}} if repository.revision else {}),
        "task": task,
        "test_split": selection.split,
        "output_type": "generate_until",
        "cluster_key": "case_id",
        "generation_kwargs": {
            "max_new_tokens": eval_spec(repository.family).max_tokens,
            "temperature": 0,
            "do_sample": False,
        },
        "metadata": [{"version": 1.0}],
    }
    header = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)

    # `!function` is a tag of lmms-eval, which safe_dump cannot write.
    functions = ("process_docs", "doc_to_messages", "doc_to_visual", "doc_to_text", "doc_to_target", "process_results")
    lines = [f"{name}: !function utils.{name}" for name in functions]
    lines.append("metric_list:")
    for name, function, higher_is_better in metrics:
        lines += [
            f"  - metric: {name}",
            f"    aggregation: !function utils.{function}",
            f"    higher_is_better: {str(higher_is_better).lower()}",
        ]
    return header + "\n".join(lines) + "\n"


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

    numbered_rows_by_case: dict[str, list[tuple[int, dict[Any, Any]]]] = {}
    for number, row in enumerate(rows):
        numbered_rows_by_case.setdefault(row["case_id"], []).append((number, row))
    out.mkdir(parents=True, exist_ok=True)
    path = out / tsv_file_name(repository.name)
    # Ids of the images -> number of the row that stores them.
    storing_rows: dict[tuple[str, ...], int] = {}

    def write(target: Path) -> None:
        with target.open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, delimiter="\t", lineterminator="\n")
            table.writerow(columns)
            # Case by case, so that only one case's images are in memory.
            for case in repository.cases(selection.split, set(numbered_rows_by_case)):
                for number, row in numbered_rows_by_case[case.case_id]:
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
