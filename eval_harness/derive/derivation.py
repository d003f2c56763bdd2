"""`derive`: compute every number of a run from its answers. No other code in medprobe does.

What a store keeps of the output lies under a key over everything it follows from (`key_of`), so that it is known when it has to be derived
again: other bytes, another answer key or other labels of the dataset, another `DERIVE_VERSION`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builders.files import replace_file
from dataset_builders.fingerprints import digest_facets, fingerprint_questions
from eval_harness.derive.metrics import BALANCED_METRICS
from eval_harness.derive.reading import option_counts, read_due_answers
from eval_harness.derive.run_files import READINGS_FILE, READINGS_SCHEMA, RESULT_FILE, UNITS_FILE, SubmittedFiles
from eval_harness.derive.scoring import Scored, compute_scores
from eval_harness.records.permutations import rotation
from eval_harness.records.result import DERIVE_VERSION, Method, Result
from eval_harness.records.run import RunRecord
from eval_harness.scores.nonresponse import RESPONSE_COUNT_COLUMNS, UNSETTLED_COLUMN

MEASURED_FIELD = "permuted"
"""Fields of a result's `environment` that are measured from the answers; values stated by a run are ignored."""
UNIT_ID_COLUMNS = ("metric", "unit", "case_id", "cluster")
UNIT_NUMBER_COLUMNS = ("numerator", "denominator", "chance", "count", *RESPONSE_COUNT_COLUMNS, UNSETTLED_COLUMN)
"""The columns of units that say what they are, and those that say how the run did."""


@dataclass(frozen=True)
class Derived:
    """Everything that is derived from a run and its answers.

    `readings`: `question_id, sample, response, delivery, choice, status, rule` and the other columns of the answers, one row for each
    answer that was due, in the questions' order. `units`: UNIT_NAMES, the facets that weighted metrics need, UNIT_NUMBERS.
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
    """Read and score the answers of a run.

    `answers`: as `answer_table.answer_frame`; `questions`: those that were asked, by whose key they are scored (rows without a known
    key are read and not scored); `replies`: of the run's judge model. `key`: as `key_of` makes it.
    The same input gives the same output. Raises BadInput for answers that do not fit the questions.
    """
    readings, judge = read_due_answers(run, answers, questions, replies)
    scored = _scores(run, questions, readings)
    environment = {name: value for name, value in run.environment.items() if name != MEASURED_FIELD}
    if run.request.permute:
        environment |= _by_option_or_letter(readings, questions)
    asked = {
        "fingerprint": fingerprint_questions(questions),
        "facets": digest_facets(questions),
        "questions": len(questions),
    }
    result = Result(
        kind="measured",
        provenance="submitted",
        benchmark=run.benchmark.model_copy(update=asked),
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
    """The method of a result: everything the request determines is taken from it, and only hashes of the generation are added."""
    request, said = run.request, run.method
    hashes = {name: value for name, value in said.generation.items() if name.endswith("_hash")}
    generation = {**request.generation, **hashes}
    if request.permute or "permute" in generation:
        generation["permute"] = request.permute
    asked = {
        "judge": judge,
        "samples": request.samples,
        "shots": said.shots if request.shots == 0 and said.shots is None else request.shots,  # None: not known
        "prompt": request.prompt or said.prompt,
        "generation": generation,
    }
    return said.model_copy(update=asked)


def derived_files(derived: Derived) -> dict[str, bytes]:
    """Content of the derived files by their names; `result.json`, which names the key, is the last."""
    rows = derived.readings[READINGS_SCHEMA.names].to_dict("list")
    return {
        READINGS_FILE: _parquet(pa.table(rows, schema=READINGS_SCHEMA)),
        UNITS_FILE: _parquet(pa.Table.from_pandas(derived.units, preserve_index=False)),
        RESULT_FILE: derived.result.to_json().encode(),
    }


def write_derived(folder: Path, derived: Derived) -> None:
    """Write what was derived; each file appears whole or not at all, `result.json` last."""
    for name, content in derived_files(derived).items():
        replace_file(folder / name, content)


def compute_derivation_key(sent: SubmittedFiles, fingerprint: str | None, facets: str | None) -> str:
    """The key of everything derived from these files and the questions with these digests."""
    parts = [DERIVE_VERSION, fingerprint, facets, *(hashlib.sha256(each or b"").hexdigest() for each in sent)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def select_board_units(units: pd.DataFrame) -> pd.DataFrame:
    """The units that a board aggregates, grouped by metric and sorted by cluster; letter frequencies are left out."""
    facets = [facet for facet in sorted(set(BALANCED_METRICS.values())) if facet in units.columns]
    kept = units.loc[~units["metric"].str.startswith("share_"), [*UNIT_ID_COLUMNS, *facets, *UNIT_NUMBER_COLUMNS]]
    order = np.lexsort((kept["cluster"].to_numpy(), pd.factorize(kept["metric"])[0]))
    return kept.iloc[order].reset_index(drop=True)


def _scores(run: RunRecord, questions: pd.DataFrame, readings: pd.DataFrame) -> Scored:
    """The scores of these readings."""
    scored = compute_scores(run.benchmark.family, questions, readings, run.method.extraction or "ours")
    if run.request.permute:
        _letters_as_shown(scored, run, questions, readings)
    return scored


def _letters_as_shown(scored: Scored, run: RunRecord, questions: pd.DataFrame, readings: pd.DataFrame) -> None:
    """Put the frequencies of the letters as shown into `scored`: in the question's own order they would hide a model that always says A,
    since each option is A once."""
    counts = option_counts(questions)
    letters = [
        sorted((int(position) - rotation(int(sample), counts[question])) % counts[question] for position in choice)
        for question, sample, choice in zip(
            readings["question_id"], readings["sample"], readings["choice"], strict=True
        )
    ]
    chosen = readings.assign(choice=pd.Series(letters, index=readings.index, dtype=object))
    turned = compute_scores(run.benchmark.family, questions, chosen, run.method.extraction or "ours")
    pairs = [(scored.scores, turned.scores)]
    for facet, values in scored.breakdown.items():
        pairs += [(metrics, turned.breakdown[facet][value]) for value, metrics in values.items()]
    for mine, theirs in pairs:
        mine.update({name: shares for name, shares in theirs.items() if name.startswith("share_")})


def _by_option_or_letter(readings: pd.DataFrame, questions: pd.DataFrame) -> dict[str, Any]:
    """Whether the model follows the option or the letter. Percent of the questions answered in every option order: `same_option` chose
    the same option throughout, `same_letter` the same letter."""
    counts = option_counts(questions)
    option = letter = total = 0
    for question, given in readings.groupby("question_id"):
        k = counts[str(question)]
        rows = given[given["sample"] < k]
        if len(rows) < k or k < 2 or not all(len(choice) == 1 for choice in rows["choice"]):
            continue
        total += 1
        picks = [int(choice[0]) for choice in rows["choice"]]
        letters = [(pick - rotation(int(sample), k)) % k for pick, sample in zip(picks, rows["sample"], strict=True)]
        option += len(set(picks)) == 1
        letter += len(set(letters)) == 1
    share = {"same_option": option, "same_letter": letter}
    return {
        "permuted": {name: 100 * count / total if total else None for name, count in share.items()}
        | {"questions": total}
    }


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content
