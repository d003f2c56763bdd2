"""Read the responses of a run: by `reader.read_choice`, or by the paper's own reader (`EvalSpec.read_official`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.errors import BadInput
from eval_harness.benchmarks import spec
from eval_harness.reader import Reading, read_choice
from eval_harness.records.result import DELIVERIES

_NOT_READ = {status: delivery for status, delivery in DELIVERIES.items() if status != "answered"}
"""Status of a response that never came -> the rule that decides it."""


def read_answers(answers: pd.DataFrame, questions: pd.DataFrame, family: str, extraction: str = "ours") -> pd.DataFrame:
    """Read every response of a run: the same rows with the columns `choice`, `status`, `rule` filled.

    `answers`: `question_id, sample, response, status`, the status as the journal has it: what the server did. Perhaps also `scores` (one
    number per option, of which the highest is chosen) and `finish_reason`: what the output limit cut (`length`) is read only where it
    states its answer, else it is `truncated`.
    A row that is already `failed`, `missing` or `refused` stays so, with an empty choice. `extraction`: `ours`, or `official` (the
    paper's own).
    Raises BadInput for an unknown extraction, format or question id.
    """
    if extraction not in ("ours", "official"):
        raise BadInput(f"--extraction {extraction}: unknown. Available: ours, official.")
    if family not in BENCHMARKS:
        raise BadInput(f"format {family!r}: unknown. Available: {', '.join(BENCHMARKS)}.")
    official = spec(family).read_official
    ids = questions["question_id"].astype(str)
    question_of = {
        question: (tuple(options), str(kind))
        for question, options, kind in zip(ids, questions["options"], questions["question_type"], strict=True)
    }
    scores = answers["scores"].tolist() if "scores" in answers.columns else [None] * len(answers)
    statuses = answers["status"].tolist() if "status" in answers.columns else ["answered"] * len(answers)
    ends = answers["finish_reason"].tolist() if "finish_reason" in answers.columns else [None] * len(answers)
    seen: dict[tuple[object, ...], Reading] = {}
    readings: list[Reading] = []
    for question, response, status, values, end in zip(
        answers["question_id"].astype(str).tolist(), answers["response"].tolist(), statuses, scores, ends, strict=True
    ):
        if question not in question_of:
            raise BadInput(
                f"answers: {question!r} is not a question of this benchmark. Check the benchmark, split and ids."
            )
        options, kind = question_of[question]
        if status in _NOT_READ:
            readings.append(Reading((), status, _NOT_READ[status]))
        elif _is_scores(values, len(options)):
            readings.append(_highest(values))
        elif not isinstance(response, str):
            readings.append(Reading((), "failed", "no response"))
        else:
            key = (response, options, kind, end == "length")
            if key not in seen:
                seen[key] = (
                    official(response, options, kind)
                    if extraction == "official"
                    else read_choice(response, options, kind, end)
                )
            readings.append(seen[key])
    read = answers.copy()
    read["choice"] = pd.Series([list(reading.choice) for reading in readings], index=answers.index, dtype=object)
    read["status"] = [reading.status for reading in readings]
    read["rule"] = [reading.rule for reading in readings]
    return read


def _is_scores(values: object, count: int) -> bool:
    return hasattr(values, "__len__") and not isinstance(values, str) and len(values) == count > 0


def _highest(values: Sequence[float]) -> Reading:
    """The option with the highest score; none where it is shared or a score is no number."""
    if any(value is None or math.isnan(value) for value in values):
        return Reading((), "irrelevant", "option scores are no numbers")
    best = [position for position, value in enumerate(values) if value == max(values)]
    return (
        Reading((best[0],), "answered", "option scores")
        if len(best) == 1
        else Reading((), "irrelevant", "option scores tie")
    )
