"""Examine the exact bytes of a submission against trusted questions: the one function from bytes to verdict.

`submit`, the Submit page and `verify` all call it before anything is proposed or added, and `verify` also on stored results. A submission
contains no numbers that could be wrong: all are derived here. See also: the source of the bytes (`submit.py`), the questions
(`dataset_lookup.py`), the consequences (`verification.py`).
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pydantic import ValidationError

from dataset_builders.errors import BadInput, Unavailable, clip, first_validation_error
from dataset_builders.fingerprints import digest_facets, digest_prompts, fingerprint_questions, is_released_set
from dataset_builders.hub.client import is_repo_id
from dataset_builders.hub.commits import is_released
from eval_harness.answer_files.predictions import check_rows
from eval_harness.answer_files.untrusted import (
    LocatedRecord,
    ProblemList,
    Record,
    check_file,
    iter_parquet_rows,
    parse_object,
    printable_line,
)
from eval_harness.derive.answer_table import ANSWERS_SCHEMA, JUDGE_SCHEMA, answer_frame, rewrite_rows
from eval_harness.derive.derivation import compute_derivation_key, derive, derived_files
from eval_harness.derive.metrics import NoScore, headline_score
from eval_harness.derive.run_files import ANSWERS_FILE, JUDGE_FILE, RUN_FILE, SubmittedFiles
from eval_harness.records.limits import MAX_FILE_BYTES, MAX_RUN_JSON_BYTES, Limits, limits_for, run_json_limits
from eval_harness.records.result import Benchmark, Result
from eval_harness.records.run import RunRecord
from eval_harness.records.run_checks import run_problems
from eval_harness.records.selection import describe_asked_part
from eval_harness.store import sandbox
from eval_harness.store.checks import baseline_mismatches, plausibility_flags, split_case_flags
from eval_harness.store.dataset_lookup import Dataset, DatasetLookup
from eval_harness.store.similarity import compute_digests
from eval_harness.store.submission import ANSWER_CONTENT_COLUMNS, Submission, row_digest, submission_id

JUDGE_COLUMNS = ("question_id", "sample", "reply")


def examine_in_sandbox(sent: SubmittedFiles, find: DatasetLookup) -> Submission:
    """Run `examine` in a process of its own, within the limits for answers to these questions. Raises BadInput as `examine` does."""
    return sandbox.run_sandboxed(run_json_limits(_total_bytes(sent)), examine, sent, find)


def _total_bytes(sent: SubmittedFiles) -> int:
    return sum(len(content) for content in sent.content_by_name().values())


def examine(sent: SubmittedFiles, find: DatasetLookup) -> Submission:
    """Examine a submission: read its files, derive every number, and flag what a person should look at. All problems are in `problems`.

    What was read is written anew: `sent` of the submission holds our own bytes with the same rows, and is all that a store keeps.
    `find`: looks up the dataset of a run's `benchmark` record.

    Reads untrusted files: call it only in the sandbox (`examined`). Raises BadInput if nothing can be derived.
    """
    run = parse_run(sent.run)
    kept_run, wrong = run, list(run_problems(run))
    if run.benchmark.repo is not None and not is_repo_id(run.benchmark.repo):
        wrong.append(f"benchmark.repo {clip(run.benchmark.repo)} is not a repository of the Hub (ORG/NAME)")
    try:
        dataset = find(run.benchmark)
        run = run.model_copy(update={"benchmark": run.benchmark.model_copy(update={"validated": dataset.validated})})
        # Limits follow from the dataset that run.json names, not from any size that a file claims.
        limits, problems = limits_for(len(dataset.questions), run.request.samples, _total_bytes(sent)), ProblemList()
        sandbox.tighten_limits(limits)
        rows = _UntrustedRows(ANSWERS_FILE, sent.answers, ANSWERS_SCHEMA, limits)
        # Nothing is derived from reasoning, which may be most of a file.
        scored = ((where, {**row, "reasoning": None}) for where, row in rows)
        checked = check_rows(scored, dataset.questions, run.request.samples, run.method.name, problems)
        questions = _run_questions(run.benchmark, rows.asked, dataset)
        # `run.json` is not believed about what it asked of the dataset, and kept with our words.
        part = describe_asked_part(set(questions["question_id"]), dataset.questions, dataset.partial, run.request)
        run, kept_run = _with_selection(run, part), _with_selection(kept_run, part)
        answers = answer_frame(checked)
        judged = (
            None if sent.judge is None else _UntrustedRows(JUDGE_FILE, sent.judge, JUDGE_SCHEMA, limits, JUDGE_COLUMNS)
        )
        replies = _judge_replies(run, judged, answers, problems)
        # Other readers may make something else of a stranger's bytes (they hang, or lose rows): none of them is kept.
        kept = SubmittedFiles(kept_run.to_json().encode(), rows.written(), None if judged is None else judged.written())
        key = compute_derivation_key(kept, fingerprint_questions(questions), digest_facets(questions))
        derived = derive(run, answers, questions, replies, key)
        wrong += baseline_mismatches(run, questions, answers)
    except Unavailable:
        raise
    except BadInput as error:
        raise BadInput("; ".join([*wrong, str(error)])) from None
    flags = [
        *_dataset_flags(run.benchmark, dataset, questions),
        *plausibility_flags(derived.result, questions, derived.readings),
    ]
    return Submission(
        run_id=submission_id(run, _answers_digest(rows, judged)),
        sent=kept,
        result=derived.result,
        derived=derived_files(derived),
        digests=compute_digests(derived.readings, questions),
        questions=questions.to_parquet(index=False) if dataset.ours else None,
        problems=[printable_line(line) for line in (*wrong, *problems.problems)],
        flags=[printable_line(line) for line in flags],
        notes=list(_notes(run, dataset, questions, answers, derived.result)),
    )


def read_sent(folder: Path) -> SubmittedFiles:
    """The files of a submission in a folder. Raises BadInput if they are not regular files within the size limits."""
    for name, most in ((RUN_FILE, MAX_RUN_JSON_BYTES), (ANSWERS_FILE, MAX_FILE_BYTES), (JUDGE_FILE, MAX_FILE_BYTES)):
        if name != JUDGE_FILE or (folder / name).exists():
            check_file(folder / name, most)
    return SubmittedFiles.from_folder(folder)


def parse_run(content: bytes) -> RunRecord:
    """Parse a run.json strictly: no duplicate keys, within the size limit. Raises BadInput if it is invalid."""
    if len(content) > MAX_RUN_JSON_BYTES:
        raise BadInput(f"run.json has {len(content):,} bytes, at most {MAX_RUN_JSON_BYTES:,} are read")
    try:
        parse_object(content)
        return RunRecord.model_validate_json(content)
    except ValidationError as error:
        raise BadInput(printable_line(f"run.json: {first_validation_error(error)}")) from None
    except (ValueError, RecursionError) as error:
        raise BadInput(printable_line(f"run.json: {error}")) from None


class _UntrustedRows:
    """The rows of an untrusted Parquet file with exactly the columns of `schema`, read once: each is digested and written anew on the way.

    `said`: the columns that the digest covers. `asked`: the questions of the rows that were read.
    """

    def __init__(
        self, name: str, content: bytes, schema: pa.Schema, limits: Limits, said: Sequence[str] = ANSWER_CONTENT_COLUMNS
    ) -> None:
        self.name, self.content, self.schema, self.limits, self.said = name, content, schema, limits, said
        self.asked: set[str] = set()
        self._digests: list[bytes] = []
        self._sink = io.BytesIO()

    def __iter__(self) -> Iterator[LocatedRecord]:
        """(where, row) in the file's order. Raises BadInput if the file exceeds the limits."""
        self._check_size(self.content)
        limits = self.limits
        rows = iter_parquet_rows(
            self.content, most_bytes=limits.unpacked, most_rows=limits.rows, name=self.name, schema=self.schema
        )
        for number, row in enumerate(rewrite_rows(map(self._as_kept, rows), self.schema, self._sink), 1):
            yield f"{self.name}, row {number}", row

    def _as_kept(self, row: Record) -> Record:
        if not isinstance(row["question_id"], str):
            raise BadInput(f"{self.name}: a row has no question_id")
        if "response" in row:
            row["response"] = row["response"] or ""
        self.asked.add(row["question_id"])
        self._digests.append(row_digest(row, self.said))
        return row

    def digest(self) -> str:
        """A digest of what the rows say, whatever their order."""
        return hashlib.sha256(b"".join(sorted(self._digests))).hexdigest()

    def written(self) -> bytes:
        """The file as it was written anew. Raises BadInput if it exceeds the limits, in which it has to be read again."""
        content = self._sink.getvalue()
        self._check_size(content)
        return content

    def _check_size(self, content: bytes) -> None:
        if len(content) > self.limits.file:
            raise BadInput(
                f"{self.name} takes {len(content):,} bytes, and these answers take at most {self.limits.file:,}"
            )


def _judge_replies(
    run: RunRecord, judged: _UntrustedRows | None, answers: pd.DataFrame, problems: ProblemList
) -> pd.DataFrame | None:
    """The judge's replies; a reply about an unknown answer is a problem."""
    if judged is None:
        return None
    if run.method.judge is None:
        raise BadInput("judge.parquet: the run names no judge (method.judge)")
    asked = set(zip(answers["question_id"], answers["sample"], strict=True))
    replies: dict[tuple[str, int], Record] = {}
    for where, row in judged:
        key = row["question_id"], row["sample"]
        if key not in asked or key in replies:
            problems.add(where, "is about no answer of the run, or about one that has a reply")
        replies[key] = row
    return pd.DataFrame(list(replies.values()), columns=list(JUDGE_COLUMNS))


def _answers_digest(rows: _UntrustedRows, judged: _UntrustedRows | None) -> str:
    """The digest of what was answered and replied."""
    return hashlib.sha256((rows.digest() + (judged.digest() if judged else "")).encode()).hexdigest()


def _run_questions(said: Benchmark, asked: set[str], dataset: Dataset) -> pd.DataFrame:
    """The questions of a run. Raises BadInput if its statements about them are wrong."""
    questions = dataset.questions
    if said.selection is not None:
        questions = questions[questions["question_id"].isin(asked)].reset_index(drop=True)
    problems = list(_benchmark_problems(said, dataset, questions))
    if problems:
        raise BadInput("; ".join(problems))
    return questions


def _with_selection(run: RunRecord, part: str | None) -> RunRecord:
    return run.model_copy(update={"benchmark": run.benchmark.model_copy(update={"selection": part})})


def _benchmark_problems(said: Benchmark, dataset: Dataset, questions: pd.DataFrame) -> Iterator[str]:
    if questions.empty:
        yield "answers no question of the dataset"
        return
    if said.asked != (found := digest_prompts(questions)):
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
    if not dataset.ours and not is_released_set(dataset.family, said.split, fingerprint_questions(dataset.questions)):
        official = "calls itself official, and " if dataset.origin == "official" else ""
        yield f"the dataset {clip(said.repo)} {official}is not one that the store's owner vouches for"
    is_same = (said.repo, said.revision) == (dataset.repo, dataset.revision)
    if dataset.ours and said.repo is not None and not is_same and not _is_other_release(said, dataset):
        # One sentence for every such case: which datasets a verifier has is not for the public.
        yield (
            f"says that it was asked from {clip(said.repo)} at {clip(said.revision)}, which the store's owner does not vouch for: its "
            "questions are the same, its images were not compared"
        )
    yield from split_case_flags(questions, dataset.questions)


def _is_other_release(said: Benchmark, dataset: Dataset) -> bool:
    """True if a run names another commit of the vouched repository that its owner released."""
    named = said.repo == dataset.repo and dataset.revision is not None and said.revision is not None
    return named and is_released(str(dataset.repo), str(said.revision))


def _notes(
    run: RunRecord, dataset: Dataset, questions: pd.DataFrame, answers: pd.DataFrame, result: Result
) -> Iterator[str]:
    found, due = headline_score(result), len(questions) * run.request.samples
    if isinstance(found, NoScore) and found.nonresponse is not None:
        yield str(found)
    if len(answers) < due:
        yield f"{due - len(answers):,} of {due:,} answers are missing{'' if 2 * len(answers) < due else ' and count as wrong'}"
    if run.benchmark.fingerprint != fingerprint_questions(questions):
        yield "the dataset's answer key, cases or pairs were corrected since it was asked; it is scored by the corrected ones"
    if run.method.judge is not None:
        yield f"a judge model ({clip(run.method.judge.get('model'))}) read some of its answers; its replies are the submitter's word"
