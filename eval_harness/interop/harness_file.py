"""Parts that the exports to other harnesses share: questions, images, and scoring of answers.

Harnesses score each sample alone and then aggregate. Our metrics of a pair, or of an image with
nine probes, need several samples, so they are computed here from the records of all samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dataset_builders.benchmarks import free_facets, question_columns
from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import FACET_COLUMNS, FINGERPRINT_COLUMNS
from dataset_builders.hub.repository import open_repository
from dataset_builders.images.picture import make_picture
from eval_harness.answer_files.predictions import format_letters  # noqa: F401  # imported from here by exported tasks
from eval_harness.benchmarks import eval_spec
from eval_harness.derive.metrics import METRICS
from eval_harness.derive.reading import read_responses
from eval_harness.derive.scoring import compute_scores, compute_units
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


def with_image_bytes(rows: Dataset) -> Dataset:
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

    It is the standard error of `n_effective` independent outcomes (`scores/clustered.py`). Omitted
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
