"""Examines the exact bytes of a submission against questions that we trust: the one function from bytes to verdict.

`submit`, the Submit page and `verify` all ask it before anything is proposed or added, and `verify` of what a store holds already.
Everything in a submission that can be computed is computed again. See also: where the bytes come from (`forming.py`), which questions
(`datasets.py`), what follows (`verification.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from dataset_builders.errors import BadInput, Unavailable, first_misfit
from dataset_builders.fingerprints import facets_digest, fingerprint_of, is_released_set
from dataset_builders.hub.commits import is_released
from dataset_builders.sources.problems import clip
from eval_harness.records.fields import wrong_fields, wrong_provenance
from eval_harness.records.limits import check_size, most_bytes
from eval_harness.records.names import wrong_names
from eval_harness.records.result import DERIVE_VERSION, Benchmark, Result
from eval_harness.runs.folder import Run, RunRequest
from eval_harness.runs.scoring import ANSWERS_SCHEMA, Reread, Scorer, answer_frame, make_result
from eval_harness.submissions.checks.plausibility import doubts, odd_selection
from eval_harness.submissions.checks.validation import (
    JUDGED,
    check_samples,
    checked_answers,
    different_results,
)
from eval_harness.submissions.datasets import Dataset, Find
from eval_harness.submissions.submission import MAX_RESULT, Bundle, Submission, submission_id
from eval_harness.submissions.untrusted.files import Placed, parquet_rows, parse_object, printable


def examine(
    bundle: Bundle, find: Find, reproduced: bool = False, stored_as: str | None = None, scores: Scorer | None = None
) -> Submission:
    """Examine a submission. What is wrong is in `problems`, all at once.

    `find`: the dataset for what it says of its benchmark. `reproduced`: it may say that it was reproduced, since it comes from the store's
    owner. `stored_as`: the id under which a store of our own holds it already.
    `scores`: what the answers scored when these files were made from them, for answers that read the same.
    Raises BadInput where nothing can be computed.
    """
    stored = stored_as is not None
    claimed = read_claims(bundle)
    fields = list(wrong_fields(claimed))
    padded = len(bundle.result) - 2 * len(claimed.to_json().encode())
    if padded > 4096:
        fields.append(f"result.json has {padded:,} bytes more than what it says takes")
    said = [*wrong_provenance(claimed, reproduced or stored), *fields]
    said += [] if claimed.method.judge is None else [JUDGED]
    try:
        dataset = _dataset(claimed, find)
        rows = read_rows(bundle, claimed, dataset)
        run_id = stored_as or submission_id(claimed, (row for _, row in rows))
        said[:0] = wrong_names(claimed, run_id)
        said += [
            f"{where}: has no sample; the first one is 0" for where, row in rows if not isinstance(row["sample"], int)
        ]
        questions = _questions(claimed, rows, dataset)
        samples = claimed.method.samples or 1
        records, problems = checked_answers(rows, questions, samples, claimed.method.name)
        check_samples(records, samples)
        computed, answers = computed_again(claimed, questions, records, scores=scores)
    except Unavailable:
        raise
    except BadInput as error:
        raise BadInput("; ".join([*said, str(error)])) from None
    notes: list[str] = []
    if not problems:
        problems += _misread(rows, answers)
        problems += different_results(claimed, computed, with_parts=not _facets_differ(claimed.benchmark, questions))
        if claimed.environment.get("permuted") != computed.environment.get("permuted"):
            problems.append("its shares of same options and letters are not those of its answers")
    missing = len(questions) * samples - len(records)
    if missing > 0:
        notes.append(f"{missing:,} of {len(questions) * samples:,} answers are missing and count as wrong")
    flags = [*_flags(claimed, dataset, questions, stored), *doubts(claimed, questions, answers)]
    flags += _named_elsewhere(claimed.benchmark, dataset)
    return Submission(
        run_id,
        bundle,
        claimed,
        answers,
        questions,
        vouched=dataset.ours,
        problems=[printable(line) for line in (*said, *problems)],
        flags=[printable(line) for line in flags],
        notes=[*notes, *_notes(claimed.benchmark, dataset, rows)],
    )


def read_claims(bundle: Bundle) -> Result:
    """What result.json says, within limits. Raises BadInput where it is no result, or was derived by another version."""
    if len(bundle.result) > MAX_RESULT:
        raise BadInput(f"result.json has {len(bundle.result):,} bytes, at most {MAX_RESULT:,} are read")
    try:
        parse_object(bundle.result)  # stricter than the schema: no key twice
        claimed = Result.model_validate_json(bundle.result)
    except ValidationError as error:
        raise BadInput(printable(f"result.json: not a result file: {first_misfit(error)}")) from None
    except (ValueError, RecursionError) as error:
        raise BadInput(printable(f"result.json: {error}")) from None
    if claimed.derive_version != DERIVE_VERSION:
        raise BadInput(
            f"result.json has derive_version {claimed.derive_version}, this medprobe {DERIVE_VERSION}: derive it again with this one "
            "(`medprobe score RUN_DIR` for a run, `medprobe rescore STORE` for what a store holds)"
        )
    return claimed


def read_rows(bundle: Bundle, claimed: Result, dataset: Dataset) -> list[Placed]:
    """What answers.parquet says, within what answers to the questions of the dataset may take. Raises BadInput where it is none."""
    most = most_bytes(len(dataset.questions), claimed.method.samples or 1)
    unread = parquet_rows(bundle.answers, most_bytes=most)
    first = [*islice(unread, 1)]  # what is no Parquet file is refused here, and one of other columns before it is read
    there, wanted = _columns(pq.read_schema(pa.BufferReader(bundle.answers))), _columns(ANSWERS_SCHEMA)
    if there != wanted:
        raise BadInput(f"answers.parquet has the columns {clip(there, 300)}, not {wanted}")
    rows = [(f"answers.parquet, row {number}", row) for number, row in enumerate(chain(first, unread), 1)]
    for where, row in rows:
        if not isinstance(row["question_id"], str):
            raise BadInput(f"{where}: has no question_id")
    return rows


def _columns(schema: Any) -> dict[str, str]:
    """Column -> type; what a list calls its values (item, element) is no difference."""
    return {field.name: re.sub(r"<\w+: ", "<", str(field.type)).replace(" not null", "") for field in schema}


def _dataset(claimed: Result, find: Find) -> Dataset:
    """The dataset that a result is about. Raises BadInput where there is none, or it has no room for so many answers."""
    dataset = find(claimed.benchmark)
    check_size(len(dataset.questions), 1 if claimed.method.samples is None else claimed.method.samples)
    return dataset


def _questions(claimed: Result, rows: Sequence[Placed], dataset: Dataset) -> pd.DataFrame:
    """The questions that a result is about. Raises BadInput where what it says of them is not so."""
    questions = dataset.questions
    if claimed.benchmark.selection is not None:
        questions = dataset.part({row["question_id"] for _, row in rows})
    problems = list(_wrong_benchmark(claimed.benchmark, dataset, questions))
    if problems:
        raise BadInput("; ".join(problems))
    return questions


def _wrong_benchmark(claimed: Benchmark, dataset: Dataset, questions: pd.DataFrame) -> Iterator[str]:
    """What a result says of its benchmark that is not so."""
    if questions.empty:
        yield "answers no question of the dataset"
        return
    found = fingerprint_of(questions)
    if claimed.fingerprint != found:
        yield f"its questions are not those of the dataset (fingerprint {clip(claimed.fingerprint)}, the dataset's {found[:16]}...)"
    for what, theirs, ours in (
        ("format", claimed.family, dataset.family),
        ("origin", claimed.origin, dataset.origin),
        ("questions", claimed.questions, len(questions)),
    ):
        if theirs != ours:
            yield f"says benchmark.{what} = {theirs}, the dataset says {ours}"
    if dataset.partial and claimed.selection is None:
        yield f"a run on a partial dataset ({dataset.partial}) can only land marked as such (benchmark.selection is empty)"


def _facets_differ(claimed: Benchmark, questions: pd.DataFrame) -> bool:
    return claimed.facets is not None and claimed.facets != facets_digest(questions)


def _flags(claimed: Result, dataset: Dataset, questions: pd.DataFrame, stored: bool) -> Iterator[str]:
    benchmark = claimed.benchmark
    if not dataset.ours and not is_released_set(dataset.family, benchmark.split, fingerprint_of(dataset.questions)):
        official = "calls itself official, and " if dataset.origin == "official" else ""
        yield f"the dataset {clip(benchmark.repo)} {official}is not one that the store's owner vouches for"
    if _facets_differ(benchmark, questions):
        yield "its questions carry other labels (modality, task, ...) than the dataset's; its scores by label were not compared"
    if len(questions) < len(dataset.questions) or not stored:  # a store does not know what a dataset says that it lacks
        yield from odd_selection(benchmark.selection, questions, dataset.questions, dataset.partial)


def _named_elsewhere(claimed: Benchmark, dataset: Dataset) -> Iterator[str]:
    """Another repository, or a commit that nobody released, named for questions that are those of a vouched dataset: only the texts were
    compared, and its images may be others."""
    if not dataset.ours or not dataset.revision or not claimed.revision:
        return
    if claimed.repo != dataset.repo:
        yield (
            f"says that it was asked from {clip(claimed.repo)}; its questions are those of {clip(dataset.repo)}, its images were not "
            "compared"
        )
    elif claimed.revision != dataset.revision and not is_released(str(dataset.repo), claimed.revision):
        yield f"the commit {clip(claimed.revision)} that it names is not on main of {clip(dataset.repo)}, nor behind a tag"


def _notes(claimed: Benchmark, dataset: Dataset, rows: Sequence[Placed]) -> Iterator[str]:
    if dataset.revision and not claimed.revision:
        yield "it was asked from a folder, not from a dataset on the Hub: its images were not compared"
    if any(row.get("scores") for _, row in rows):
        yield "its choices rest on option scores, which are the submitter's word"


def run_of(result: Result) -> Run:
    """The run behind a stored result, as far as its answers and scores depend on it."""
    return Run(
        run_id="",
        request=RunRequest(
            benchmark=result.benchmark.name,
            data=result.benchmark.repo or "",
            split=result.benchmark.split,
            fingerprint=result.benchmark.fingerprint or "",
            model=result.model.name,
            method=result.method.name,
            prompt=result.method.prompt,
            samples=result.method.samples or 1,
            generation={},
            permute="permuted" in result.environment,
        ),
        benchmark=result.benchmark,
        model=result.model,
        method=result.method,
        deviations=result.deviations,
        environment=result.environment,
        command=result.command,
        created_at=result.created_at,
    )


def computed_again(
    claimed: Result,
    questions: pd.DataFrame,
    records: Sequence[Mapping[str, Any]],
    reread: Reread | None = None,
    scores: Scorer | None = None,
) -> tuple[Result, pd.DataFrame]:
    """What the answers of a result give, read and scored here; `reread` may read again what the rules leave unread."""
    frame = answer_frame(dict(record) for record in records)
    return make_result(run_of(claimed), questions, frame, claimed.method.extraction or "ours", reread, scores)


def _read(answers: pd.DataFrame) -> dict[tuple[str, int], Mapping[Any, Any]]:
    return {(str(row["question_id"]), int(row["sample"])): row for row in answers.to_dict("records")}


def _misread(rows: Sequence[Placed], answers: pd.DataFrame) -> Iterator[str]:
    """Rows whose choice, status or rule is not what their response reads as."""
    read = _read(answers)
    for where, row in rows:
        ours = read[row["question_id"], int(row["sample"] or 0)]
        here = {"choice": [int(index) for index in ours["choice"]], "status": ours["status"], "rule": ours["rule"]}
        for what, reading in here.items():
            if row.get(what) != reading:
                yield f"{where}: {what} {clip(row.get(what))}, its response reads as {reading}"
