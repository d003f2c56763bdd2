"""Examine the exact bytes of a submission against trusted questions: the one function from bytes to verdict.

`submit`, the Submit page and `verify` all call it before anything is proposed or added, and `verify` also on stored results. A submission
contains no numbers that could be wrong: all are derived here. See also: the source of the bytes (`submit.py`), the questions
(`datasets.py`), the consequences (`verification.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pydantic import ValidationError

from dataset_builders.errors import BadInput, Unavailable, clip, first_misfit
from dataset_builders.fingerprints import asked_digest, facets_digest, fingerprint_of, is_released_set
from dataset_builders.hub.commits import is_released
from eval_harness.answer_files.predictions import checked_rows
from eval_harness.answer_files.untrusted import (
    Placed,
    ProblemList,
    Record,
    check_file,
    parquet_rows,
    parse_object,
    printable,
)
from eval_harness.derive.answer_table import ANSWERS_SCHEMA, JUDGE_SCHEMA, answer_frame
from eval_harness.derive.derivation import derive, derived_files, key_of
from eval_harness.derive.files import ANSWERS, JUDGE, RUN, Sent
from eval_harness.derive.metrics import NoScore, headline
from eval_harness.records.limits import FIRST_LOOK, MAX_FILE, MAX_RUN, Limits, limits_for
from eval_harness.records.result import Benchmark, Result
from eval_harness.records.run import RunRecord
from eval_harness.records.run_checks import wrong_run
from eval_harness.store import sandbox
from eval_harness.store.checks import asked_in_part, doubts, not_reproduced
from eval_harness.store.datasets import Dataset, Find
from eval_harness.store.likeness import digests_of
from eval_harness.store.submission import Submission, row_digest, submission_id

JUDGE_ROW = ("question_id", "sample", "reply")


def examined(sent: Sent, find: Find) -> Submission:
    """Run `examine` in a process of its own, within the limits for answers to these questions. Raises BadInput as `examine` does."""
    return sandbox.call(FIRST_LOOK, examine, sent, find)


def examine(sent: Sent, find: Find) -> Submission:
    """Examine a submission: read its files, derive every number, and flag what a person should look at. All problems are in `problems`.
    `find`: looks up the dataset of a run's `benchmark` record.

    Reads untrusted files: call it only in the sandbox (`examined`). Raises BadInput if nothing can be derived.
    """
    run = parsed_run(sent.run)
    wrong = list(wrong_run(run))
    try:
        dataset = find(run.benchmark)
        run = run.model_copy(update={"benchmark": run.benchmark.model_copy(update={"validated": dataset.validated})})
        # Limits follow from the dataset that run.json names, not from any size that a file claims.
        limits, problems = limits_for(len(dataset.questions), run.request.samples), ProblemList()
        sandbox.go_on_within(limits)
        rows, answers_digest = _read(sent.answers, limits)
        questions = _questions(run.benchmark, rows, dataset)
        checked = checked_rows(rows, questions, run.request.samples, run.method.name, problems)
        answers = answer_frame(checked)
        replies, replies_digest = _replies(run, sent.judge, limits, answers, problems)
        key = key_of(sent, fingerprint_of(questions), facets_digest(questions))
        derived = derive(run, answers, questions, replies, key)
        wrong += not_reproduced(run, questions, answers)
    except Unavailable:
        raise
    except BadInput as error:
        raise BadInput("; ".join([*wrong, str(error)])) from None
    flags = [*_dataset_flags(run.benchmark, dataset, questions), *doubts(derived.result, questions, derived.readings)]
    return Submission(
        run_id=submission_id(run, hashlib.sha256((answers_digest + replies_digest).encode()).hexdigest()),
        sent=sent,
        result=derived.result,
        derived=derived_files(derived),
        digests=digests_of(derived.readings, questions),
        questions=questions.to_parquet(index=False) if dataset.ours else None,
        problems=[printable(line) for line in (*wrong, *problems.problems)],
        flags=[printable(line) for line in flags],
        notes=list(_notes(run, dataset, questions, answers, derived.result)),
    )


def read_sent(folder: Path) -> Sent:
    """The files of a submission in a folder. Raises BadInput if they are not regular files within the size limits."""
    for name, most in ((RUN, MAX_RUN), (ANSWERS, MAX_FILE), (JUDGE, MAX_FILE)):
        if name != JUDGE or (folder / name).exists():
            check_file(folder / name, most)
    return Sent.read(folder)


def parsed_run(content: bytes) -> RunRecord:
    """Parse a run.json strictly: no duplicate keys, within the size limit. Raises BadInput if it is invalid."""
    if len(content) > MAX_RUN:
        raise BadInput(f"run.json has {len(content):,} bytes, at most {MAX_RUN:,} are read")
    try:
        parse_object(content)
        return RunRecord.model_validate_json(content)
    except ValidationError as error:
        raise BadInput(printable(f"run.json: {first_misfit(error)}")) from None
    except (ValueError, RecursionError) as error:
        raise BadInput(printable(f"run.json: {error}")) from None


def _rows(content: bytes, name: str, schema: pa.Schema, limits: Limits) -> Iterator[Record]:
    """The rows of a file. Raises BadInput if it exceeds the limits."""
    if len(content) > limits.file:
        raise BadInput(f"{name} has {len(content):,} bytes, and these answers take at most {limits.file:,}")
    return parquet_rows(content, most_bytes=limits.unpacked, most_rows=limits.rows, name=name, schema=schema)


def _read(content: bytes, limits: Limits) -> tuple[list[Placed], str]:
    """The rows of answers.parquet without the reasoning, from which nothing is derived, and a digest of the full contents."""
    name = "answers.parquet"
    rows: list[Placed] = []
    digests: list[bytes] = []
    for number, row in enumerate(_rows(content, name, ANSWERS_SCHEMA, limits), 1):
        if not isinstance(row["question_id"], str):
            raise BadInput(f"{name}, row {number}: has no question_id")
        digests.append(row_digest(row))
        rows.append((f"{name}, row {number}", {**row, "reasoning": None}))
    return rows, hashlib.sha256(b"".join(sorted(digests))).hexdigest()


def _replies(
    run: RunRecord, content: bytes | None, limits: Limits, answers: pd.DataFrame, problems: ProblemList
) -> tuple[pd.DataFrame | None, str]:
    """The judge's replies; a reply about an unknown answer is a problem."""
    if content is None:
        return None, ""
    if run.method.judge is None:
        raise BadInput("judge.parquet: the run names no judge (method.judge)")
    asked = set(zip(answers["question_id"], answers["sample"], strict=True))
    rows = list(_rows(content, "judge.parquet", JUDGE_SCHEMA, limits))
    for number, row in enumerate(rows, 1):
        if (row["question_id"], row["sample"]) not in asked:
            problems.add(f"judge.parquet, row {number}", "is about no answer of the run")
    if len({(row["question_id"], row["sample"]) for row in rows}) < len(rows):
        problems.add("judge.parquet", "holds two replies about one answer")
    digest = hashlib.sha256(b"".join(sorted(row_digest(row, JUDGE_ROW) for row in rows))).hexdigest()
    return pd.DataFrame(rows, columns=list(JUDGE_ROW)), digest


def _questions(said: Benchmark, rows: Sequence[Placed], dataset: Dataset) -> pd.DataFrame:
    """The questions of a run. Raises BadInput if its statements about them are wrong."""
    questions = dataset.questions
    if said.selection is not None:
        asked = {row["question_id"] for _, row in rows}
        questions = questions[questions["question_id"].isin(asked)].reset_index(drop=True)
    problems = list(_wrong_benchmark(said, dataset, questions))
    if problems:
        raise BadInput("; ".join(problems))
    return questions


def _wrong_benchmark(said: Benchmark, dataset: Dataset, questions: pd.DataFrame) -> Iterator[str]:
    if questions.empty:
        yield "answers no question of the dataset"
        return
    if said.asked != (found := asked_digest(questions)):
        yield f"its questions are not those of the dataset (what was asked: {clip(said.asked)}, the dataset's {found[:16]}...)"
    for what, theirs, ours in (
        ("format", said.family, dataset.family),
        ("origin", said.origin, dataset.origin),
        ("questions", said.questions, len(questions)),
    ):
        if theirs != ours:
            yield f"says benchmark.{what} = {theirs}, the dataset says {ours}"
    if dataset.partial and said.selection is None:
        yield f"a run on a partial dataset ({dataset.partial}) can only be added marked as such (benchmark.selection is empty)"


def _dataset_flags(said: Benchmark, dataset: Dataset, questions: pd.DataFrame) -> Iterator[str]:
    """Flags for a dataset that the owner does not vouch for, for another repository or an unreleased commit as the source of the questions
    (only the texts are compared; the images may differ), and for cases asked in part."""
    if not dataset.ours and not is_released_set(dataset.family, said.split, fingerprint_of(dataset.questions)):
        official = "calls itself official, and " if dataset.origin == "official" else ""
        yield f"the dataset {clip(said.repo)} {official}is not one that the store's owner vouches for"
    if dataset.ours and said.repo is not None and said.repo != dataset.repo:
        whose = clip(dataset.repo) if dataset.revision else "the vouched dataset"
        yield f"says that it was asked from {clip(said.repo)}; its questions are those of {whose}, its images were not compared"
    elif said.repo is not None and said.revision is None and dataset.revision is not None:
        yield f"names no commit of {clip(said.repo)}: which images it was asked with is not known"
    elif (
        dataset.ours
        and dataset.revision
        and said.revision not in (None, dataset.revision)
        and not is_released(str(dataset.repo), str(said.revision))
    ):
        yield f"the commit {clip(said.revision)} that it names is not on main of {clip(dataset.repo)}, nor behind a tag"
    yield from asked_in_part(questions, dataset.questions)


def _notes(
    run: RunRecord, dataset: Dataset, questions: pd.DataFrame, answers: pd.DataFrame, result: Result
) -> Iterator[str]:
    found, due = headline(result), len(questions) * run.request.samples
    if isinstance(found, NoScore) and found.nonresponse is not None:
        yield str(found)
    if len(answers) < due:
        yield f"{due - len(answers):,} of {due:,} answers are missing{'' if 2 * len(answers) < due else ' and count as wrong'}"
    if run.benchmark.fingerprint != fingerprint_of(questions):
        yield "the dataset's answer key, cases or pairs were corrected since it was asked; it is scored by the corrected ones"
    if run.method.judge is not None:
        yield f"a judge model ({clip(run.method.judge.get('model'))}) read some of its answers; its replies are the submitter's word"
