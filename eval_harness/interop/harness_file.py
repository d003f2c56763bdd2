"""Shared by the exports to other harnesses: the questions, their pictures, and a sample as an answer that can be scored.

Harnesses score sample by sample and then sum up; a pair or an image with nine probes is scored from the records of its samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dataset_builders.benchmarks import question_columns
from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import FACET_COLUMNS, FINGERPRINT_COLUMNS
from dataset_builders.hub.repository import open_repository
from dataset_builders.images.picture import make_picture
from eval_harness.answer_files.predictions import format_letters  # noqa: F401  # the exported tasks find it here
from eval_harness.benchmarks import eval_spec
from eval_harness.derive.metrics import METRICS
from eval_harness.derive.reading import read_responses
from eval_harness.derive.scoring import compute_scores, compute_units
from eval_harness.records.selection import Selection, select_questions
from eval_harness.scores.intervals import clustered_interval

if TYPE_CHECKING:
    from datasets import Dataset


def to_export(data: str, split: str | None) -> Selection:
    """The questions of a dataset folder or Hub repository. Raises BadInput as `medprobe eval` does, and for a dataset without images."""
    chosen = select_questions(open_repository(data).name, data, split)
    if not chosen.repository.has_images:
        raise BadInput(f"{data}: holds no images (a text-only build). Build it again without --text-only.")
    return chosen


KEPT = tuple(dict.fromkeys((*FINGERPRINT_COLUMNS, *FACET_COLUMNS)))
"""Columns of a question that a sample carries: all that scoring reads."""


def kept_columns(row: Mapping[Any, Any]) -> dict[str, Any]:
    """The columns `KEPT` of a question, as JSON can hold them."""
    return {name: _plain(row.get(name)) for name in KEPT}


def question_of(family: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a question, less its images, of a row as `datasets` gives it: labels as texts."""
    names = {name: kind.names for name, kind in question_columns(family).items() if kind.names}
    return {
        name: names[name][value] if name in names and isinstance(value, int) and value >= 0 else value
        for name, value in row.items()
        if name not in ("image", "more_images")
    }


def undecoded(rows: Dataset) -> Dataset:
    """The rows of `datasets` with the bytes of their images: how it decodes them changes with its version."""
    from datasets import Image, Sequence

    for name, feature in {"image": Image(decode=False), "more_images": Sequence(Image(decode=False))}.items():
        rows = rows.cast_column(name, feature) if name in rows.column_names else rows
    return rows


def images_of(row: Mapping[str, Any]) -> list[Any]:
    """The pictures (RGB) that a model is shown for a question, in order, of a row of `undecoded`."""
    images = [row.get("image"), *(row.get("more_images") or ())]
    return [make_picture(image["bytes"]).pixels.convert("RGB") for image in images if image is not None]


def _plain(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, np.generic):
        return value.item()
    return list(value) if isinstance(value, list | tuple | np.ndarray) else value


def read_answer(family: str, question: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer, a line of a journal, as `medprobe score` reads it: `choice`, `status`, `rule`, `right`. `question`: its columns `KEPT`."""
    line = {"question_id": str(question["question_id"]), "sample": 0} | dict(answer)
    [read] = read_responses(pd.DataFrame([line]), pd.DataFrame([dict(question)]), family).to_dict("records")
    choice = sorted(int(index) for index in read["choice"])
    right = read["status"] == "answered" and choice == sorted(question["answer"])
    return {"choice": choice, "status": read["status"], "rule": read["rule"], "right": right}


def scores_of(
    family: str, questions: Iterable[Mapping[str, Any]], answers: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, float], dict[str, float]]:
    """(metric -> value as `medprobe score` gives it, metric -> standard error in points), of the metrics that the answers speak for."""
    frame = pd.DataFrame(list(questions), columns=list(KEPT))
    if frame.empty:
        return {}, {}
    given = pd.DataFrame(list(answers), columns=["question_id", "sample", "choice", "status"])
    found = {
        name: each.value
        for name, each in compute_scores(family, frame, given).scores.items()
        if name in eval_spec(family).metrics
    }
    return {name: value for name, value in found.items() if value is not None}, _errors(
        compute_units(family, frame, given)
    )


def _errors(table: pd.DataFrame) -> dict[str, float]:
    """Metric -> the standard error of as many independent outcomes as its interval is worth; absent for counts, and where fewer than two
    clusters speak for it."""
    errors: dict[str, float] = {}
    for name, part in table.groupby("metric", sort=False):
        info = METRICS.get(str(name))
        if info is not None and info.unit == "count":
            continue
        top, base = part["numerator"].to_numpy(float), part["denominator"].to_numpy(float)
        found = clustered_interval(top, base, part["cluster"].to_numpy())
        if found is not None and part["cluster"][base > 0].nunique() > 1:
            share = float(top.sum() / base.sum())
            errors[str(name)] = 100 * math.sqrt(share * (1 - share) / found.n_effective)
    return errors
