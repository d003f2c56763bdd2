"""`derive`: compute every number of a run from its answers. No other code in medprobe does this.

A store keeps the output under a key that covers everything the output depends on
(`compute_derivation_key`). The output is derived again if the files, the answer key or labels of
the dataset, or `DERIVE_VERSION` change.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builders.files import replace_file
from dataset_builders.fingerprints import digest_facets, fingerprint_questions
from eval_harness.derive.metrics import BALANCED_METRICS, Scored, compute_scores
from eval_harness.derive.reading import option_counts, read_due_answers
from eval_harness.derive.run_files import (
    READINGS_FILE,
    READINGS_SCHEMA,
    RESULT_FILE,
    UNITS_FILE,
    SubmittedFiles,
)
from eval_harness.records.request import rotation
from eval_harness.records.result import DERIVE_VERSION, Method, Result, RunRecord
from eval_harness.scores.grading import RESPONSE_COUNT_COLUMNS, UNSETTLED_COLUMN

MEASURED_FIELD = "permuted"
"""Field of a result's `environment` that is measured from the answers.

The value in the run record is ignored.
"""
UNIT_ID_COLUMNS = ("metric", "unit", "case_id", "cluster")
UNIT_NUMBER_COLUMNS = (
    "numerator",
    "denominator",
    "chance",
    "count",
    *RESPONSE_COUNT_COLUMNS,
    UNSETTLED_COLUMN,
)
"""Columns that identify a unit, and columns with its numbers."""


@dataclass(frozen=True)
class Derived:
    """Everything derived from a run and its answers.

    Attributes:
        result: The result with its scores.
        readings: `question_id, sample, response, delivery, choice, status, rule` and the other
            columns of the answers; one row per (question, sample), in question order.
        units: UNIT_ID_COLUMNS, the facets that weighted metrics need, UNIT_NUMBER_COLUMNS.
    """

    result: Result
    readings: pd.DataFrame
    units: pd.DataFrame


def derive(
    run: RunRecord,
    answers: pd.DataFrame,
    questions: pd.DataFrame,
    replies: pd.DataFrame | None = None,
    key: str | None = None,
) -> Derived:
    """Read and score the answers of a run. Deterministic.

    Args:
        run: The run record.
        answers: From `run_files.answer_frame`.
        questions: The questions asked, with the answer key used for scoring; answers to questions
            with a hidden key are read but not scored.
        replies: Replies of the run's judge model.
        key: From `compute_derivation_key`, stored in the result.

    Raises:
        BadInput: If the answers do not fit the questions.
    """
    readings, judge = read_due_answers(run, answers, questions, replies)
    scored = compute_scores(run.benchmark.family, questions, readings, run.method.extraction or "ours")
    # Recompute measured fields instead of trusting the run's.
    environment = {name: value for name, value in run.environment.items() if name != MEASURED_FIELD}
    if run.request.permute:
        counts = option_counts(questions)
        letters = _letters_as_shown(readings, counts)
        _replace_letter_shares(scored, run, questions, readings.assign(choice=letters))
        environment[MEASURED_FIELD] = _by_option_or_letter(readings.assign(letters=letters), counts)
    dataset_fields = {
        "fingerprint": fingerprint_questions(questions),
        "facets": digest_facets(questions),
        "questions": len(questions),
    }
    result = Result(
        kind="measured",
        provenance="submitted",
        benchmark=run.benchmark.model_copy(update=dataset_fields),
        model=run.model,
        method=_as_asked(run, judge),
        scores=scored.scores,
        breakdown=scored.breakdown,
        statuses=scored.statuses,
        deviations=run.deviations,
        environment=environment,
        command=run.command,
        created_at=run.created_at,
        key=key,
    )
    return Derived(result, readings, select_board_units(scored.units))


def _as_asked(run: RunRecord, judge: dict[str, Any] | None) -> Method:
    """Build the method of a result.

    Fields that the request sets are taken from the request; the run record only adds hashes.
    """
    request, stated_method = run.request, run.method
    hashes = {name: value for name, value in stated_method.generation.items() if name.endswith("_hash")}
    generation = {**request.generation, **hashes}
    if request.permute or "permute" in generation:
        generation["permute"] = request.permute
    # None: the number of worked examples is not known.
    shots = stated_method.shots if request.shots == 0 and stated_method.shots is None else request.shots
    return stated_method.model_copy(
        update={
            "judge": judge,
            "samples": request.samples,
            "shots": shots,
            "prompt": request.prompt or stated_method.prompt,
            "generation": generation,
        }
    )


def derived_files(derived: Derived) -> dict[str, bytes]:
    """Return the content of the derived files by name; `result.json` with the key comes last."""
    rows = derived.readings[READINGS_SCHEMA.names].to_dict("list")
    return {
        READINGS_FILE: _parquet(pa.table(rows, schema=READINGS_SCHEMA)),
        UNITS_FILE: _parquet(pa.Table.from_pandas(derived.units, preserve_index=False)),
        RESULT_FILE: derived.result.to_json().encode(),
    }


def write_derived(folder: Path, derived: Derived) -> None:
    """Write the derived files, each atomically, `result.json` last."""
    # result.json comes last: without it, a partly written set of files counts as absent.
    for name, content in derived_files(derived).items():
        replace_file(folder / name, content)


def compute_derivation_key(sent: SubmittedFiles, fingerprint: str | None, facets: str | None) -> str:
    """Compute the key of everything derived from a submission.

    Args:
        sent: The submitted files.
        fingerprint: Digest of the questions and their answer key.
        facets: Digest of the questions' labels.

    Returns:
        A sha256 in hexadecimal digits.
    """
    parts = [
        DERIVE_VERSION,
        fingerprint,
        facets,
        *(hashlib.sha256(content or b"").hexdigest() for content in sent),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def select_board_units(units: pd.DataFrame) -> pd.DataFrame:
    """Select the units that the board aggregates, grouped by metric and sorted by cluster.

    Letter frequencies are left out.
    """
    facets = [facet for facet in sorted(set(BALANCED_METRICS.values())) if facet in units.columns]
    board_units = units.loc[
        ~units["metric"].str.startswith("share_"), [*UNIT_ID_COLUMNS, *facets, *UNIT_NUMBER_COLUMNS]
    ]
    # Sorted columns compress well, and the board needs units by cluster.
    order = np.lexsort((board_units["cluster"].to_numpy(), pd.factorize(board_units["metric"])[0]))
    return board_units.iloc[order].reset_index(drop=True)


def _letters_as_shown(readings: pd.DataFrame, counts: Mapping[str, int]) -> pd.Series:
    """Return the letters chosen in each reading of a run with permuted options, as positions."""
    letters = [
        sorted((int(position) - rotation(int(sample), counts[question])) % counts[question] for position in choice)
        for question, sample, choice in zip(
            readings["question_id"], readings["sample"], readings["choice"], strict=True
        )
    ]
    return pd.Series(letters, index=readings.index, dtype=object)


def _replace_letter_shares(
    scored: Scored, run: RunRecord, questions: pd.DataFrame, readings_by_letter: pd.DataFrame
) -> None:
    """Replace the letter frequencies of `scored` by those of the letters as shown.

    With permuted options every option is shown as A once. Frequencies in the original option order
    would therefore hide a model that always says A.
    """
    # Score again with the letters as shown; only the letter shares are used.
    by_letter = compute_scores(run.benchmark.family, questions, readings_by_letter, run.method.extraction or "ours")
    metric_pairs = [(scored.scores, by_letter.scores)]
    for facet, values in scored.breakdown.items():
        metric_pairs += [(metrics, by_letter.breakdown[facet][value]) for value, metrics in values.items()]
    for own_metrics, shown_metrics in metric_pairs:
        own_metrics.update({name: shares for name, shares in shown_metrics.items() if name.startswith("share_")})


def _by_option_or_letter(readings: pd.DataFrame, counts: Mapping[str, int]) -> dict[str, float | int | None]:
    """Measure whether the model follows the option or the letter, over permuted samples.

    Returns:
        Percentages of the questions answered in every option order: those for which the same option
        (`same_option`) or the same letter (`same_letter`) was chosen every time; and the number of
        these questions.
    """
    n_same_option = n_same_letter = n_questions = 0
    for question, question_readings in readings.groupby("question_id"):
        rows = question_readings[question_readings["sample"] < counts[str(question)]]
        # Only questions answered with exactly one option in every rotation count.
        if len(rows) < counts[str(question)] or len(rows) < 2 or (rows["choice"].map(len) != 1).any():
            continue
        n_questions += 1
        # A model that follows the letter picks another option in every rotation.
        n_same_option += rows["choice"].map(tuple).nunique() == 1
        n_same_letter += rows["letters"].map(tuple).nunique() == 1
    counts_by_kind = {"same_option": n_same_option, "same_letter": n_same_letter}
    percentages = {name: 100 * count / n_questions if n_questions else None for name, count in counts_by_kind.items()}
    return {**percentages, "questions": n_questions}


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content
