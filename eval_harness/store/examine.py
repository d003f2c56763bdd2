"""Examine the files of a submission against trusted questions.

Every submission goes through `examine`: `submit`, the Submit page and `verify` all call it before
anything is proposed or added, and `verify` also for stored results. A submission contains no scores
that could be wrong; all of them are computed here.

See also: making the files (`submit.py`), finding the questions (`dataset_lookup.py`), acting on the
outcome (`verification.py`).
"""

import hashlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pydantic import ValidationError

from dataset_builders.errors import BadInput, Unavailable, clip, first_validation_error
from dataset_builders.fingerprints import (
    digest_facets,
    digest_prompts,
    fingerprint_questions,
    is_released_set,
)
from dataset_builders.hub.client import is_released, is_repo_id
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
from eval_harness.derive.derivation import compute_derivation_key, derive, derived_files
from eval_harness.derive.metrics import NoScore, headline_score
from eval_harness.derive.run_files import (
    ANSWERS_FILE,
    ANSWERS_SCHEMA,
    JUDGE_FILE,
    JUDGE_SCHEMA,
    RUN_FILE,
    SubmittedFiles,
    answer_frame,
    rewrite_rows,
)
from eval_harness.records.limits import (
    MAX_FILE_BYTES,
    MAX_RUN_JSON_BYTES,
    Limits,
    limits_for,
    run_json_limits,
    run_problems,
)
from eval_harness.records.result import Benchmark, Result, RunRecord
from eval_harness.records.selection import describe_asked_part
from eval_harness.store import sandbox
from eval_harness.store.checks import baseline_mismatches, plausibility_flags, split_case_flags
from eval_harness.store.contents import (
    ANSWER_CONTENT_COLUMNS,
    Submission,
    row_digest,
    submission_id,
)
from eval_harness.store.dataset_lookup import Dataset, DatasetLookup
from eval_harness.store.similarity import compute_digests

MAX_BYTES_BY_FILE = {RUN_FILE: MAX_RUN_JSON_BYTES, ANSWERS_FILE: MAX_FILE_BYTES, JUDGE_FILE: MAX_FILE_BYTES}
"""Submitted file -> its maximum size."""
JUDGE_COLUMNS = ("question_id", "sample", "reply")
"""Columns of judge.parquet that make up the content of a judge's reply."""


def examine_in_sandbox(sent: SubmittedFiles, find: DatasetLookup) -> Submission:
    """Call `examine` in a process of its own, within the limits for answers to these questions.

    Args:
        sent: The untrusted files.
        find: Looks up the dataset of the run's `benchmark` record.

    Raises:
        BadInput: See `examine`.
    """
    return sandbox.run_sandboxed(run_json_limits(sum(map(len, sent.content_by_name().values()))), examine, sent, find)


def examine(sent: SubmittedFiles, find: DatasetLookup) -> Submission:
    """Examine a submission: read its files, compute all scores, and flag what a person must review.

    The rows that were read are rewritten: the files in `sent` of the returned submission have the
    same rows, but were written by medprobe. A store keeps only these.

    This function reads untrusted files, so call it only in the sandbox (`examine_in_sandbox`).

    Args:
        sent: The untrusted files.
        find: Looks up the dataset of the run's `benchmark` record.

    Returns:
        The submission, with everything that is wrong with it in `problems`.

    Raises:
        BadInput: If no scores can be computed.
    """
    run = parse_run(sent.run)
    stored_run, record_problems = run, list(run_problems(run))
    if run.benchmark.repo is not None and not is_repo_id(run.benchmark.repo):
        record_problems.append(f"benchmark.repo {clip(run.benchmark.repo)} is not a Hub repository (ORG/NAME)")
    try:
        dataset = find(run.benchmark)
        run = run.model_copy(update={"benchmark": run.benchmark.model_copy(update={"validated": dataset.validated})})
        # The limits depend on the dataset that run.json names, never on sizes stated in a file.
        limits, problems = (
            limits_for(len(dataset.questions), run.request.samples, sum(map(len, sent.content_by_name().values()))),
            ProblemList(),
        )
        sandbox.tighten_limits(limits)
        rows = _UntrustedRows(ANSWERS_FILE, sent.answers, ANSWERS_SCHEMA, limits)
        # Reasoning, which may be most of a file, affects no score: do not keep it in memory.
        scored = ((location, {**row, "reasoning": None}) for location, row in rows)
        checked = check_rows(scored, dataset.questions, run.request.samples, run.method.name, problems)
        questions = _run_questions(run.benchmark, rows.question_ids, dataset)
        # Which part of the dataset was asked is computed, not taken from run.json.
        selection = describe_asked_part(set(questions["question_id"]), dataset.questions, dataset.partial, run.request)
        run, stored_run = _with_selection(run, selection), _with_selection(stored_run, selection)
        answers = answer_frame(checked)
        judged = (
            None if sent.judge is None else _UntrustedRows(JUDGE_FILE, sent.judge, JUDGE_SCHEMA, limits, JUDGE_COLUMNS)
        )
        replies = _judge_replies(run, judged, answers, problems)
        # Untrusted bytes are never kept: other readers might parse them differently, or hang.
        rewritten = SubmittedFiles(
            stored_run.to_json().encode(),
            rows.written(),
            None if judged is None else judged.written(),
        )
        key = compute_derivation_key(rewritten, fingerprint_questions(questions), digest_facets(questions))
        derived = derive(run, answers, questions, replies, key)
        record_problems += baseline_mismatches(run, questions, answers)
    # Not the submitter's fault, so the submission is not refused.
    except Unavailable:
        raise
    except BadInput as error:
        raise BadInput("; ".join([*record_problems, str(error)])) from None

    flags = [
        *_dataset_flags(run.benchmark, dataset, questions),
        *plausibility_flags(derived.result, questions, derived.readings),
    ]

    digests = rows.digest() + (judged.digest() if judged else "")
    return Submission(
        run_id=submission_id(run, hashlib.sha256(digests.encode()).hexdigest()),
        sent=rewritten,
        result=derived.result,
        derived=derived_files(derived),
        digests=compute_digests(derived.readings, questions),
        questions=questions.to_parquet(index=False) if dataset.is_vouched else None,
        problems=[printable_line(line) for line in (*record_problems, *problems)],
        flags=[printable_line(line) for line in flags],
        notes=_notes(run, questions, answers, derived.result),
    )


def read_sent(folder: Path) -> SubmittedFiles:
    """Read the files of a submission in a folder.

    Raises:
        BadInput: If they are not regular files within the size limits.
    """
    for name, max_bytes in MAX_BYTES_BY_FILE.items():
        if name != JUDGE_FILE or (folder / name).exists():
            check_file(folder / name, max_bytes, name)
    return SubmittedFiles.from_folder(folder)


def parse_run(content: bytes) -> RunRecord:
    """Parse a run.json, without duplicate keys and with at most MAX_RUN_JSON_BYTES.

    Raises:
        BadInput: If it is invalid.
    """
    # Checked before parsing, as parsed JSON can take many times its size in memory.
    if len(content) > MAX_RUN_JSON_BYTES:
        raise BadInput(f"run.json has {len(content):,} bytes, at most {MAX_RUN_JSON_BYTES:,} are read")
    try:
        # pydantic's parser accepts duplicate keys, so check strictly first.
        parse_object(content)
        return RunRecord.model_validate_json(content)
    except ValidationError as error:
        raise BadInput(printable_line(f"run.json: {first_validation_error(error)}")) from None
    except (ValueError, RecursionError) as error:
        raise BadInput(printable_line(f"run.json: {error}")) from None


class _UntrustedRows:
    """The rows of an untrusted Parquet file with exactly the columns of `schema`.

    They can be iterated over once; as they are read, each row is hashed and rewritten.

    Attributes:
        digest_columns: The columns that the digest covers.
        question_ids: Ids of the questions in the rows read so far.
    """

    def __init__(
        self,
        name: str,
        content: bytes,
        schema: pa.Schema,
        limits: Limits,
        digest_columns: Sequence[str] = ANSWER_CONTENT_COLUMNS,
    ) -> None:
        self.name, self.content, self.schema, self.limits, self.digest_columns = (
            name,
            content,
            schema,
            limits,
            digest_columns,
        )

        self.question_ids: set[str] = set()
        self._digests: list[bytes] = []
        self._sink = io.BytesIO()

    def __iter__(self) -> Iterator[LocatedRecord]:
        """Yield (location, row) in file order. Raises BadInput if the file exceeds the limits."""
        self._check_size(self.content)
        limits = self.limits
        rows = iter_parquet_rows(
            self.content,
            max_bytes=limits.unpacked,
            max_rows=limits.rows,
            name=self.name,
            schema=self.schema,
        )

        for number, row in enumerate(rewrite_rows(map(self._as_kept, rows), self.schema, self._sink), 1):
            yield f"{self.name}, row {number}", row

    def _as_kept(self, row: Record) -> Record:
        """Normalize a row, and remember its question and digest."""
        if not isinstance(row["question_id"], str):
            raise BadInput(f"{self.name}: a row has no question_id")
        # Null and the empty text are the same answer.
        if "response" in row:
            row["response"] = row["response"] or ""
        self.question_ids.add(row["question_id"])
        self._digests.append(row_digest(row, self.digest_columns))
        return row

    def digest(self) -> str:
        """Return the digest of the rows, whatever their order."""
        return hashlib.sha256(b"".join(sorted(self._digests))).hexdigest()

    def written(self) -> bytes:
        """Return the rewritten file.

        Raises:
            BadInput: If it exceeds the limits, which apply whenever it is read again.
        """
        content = self._sink.getvalue()
        self._check_size(content)
        return content

    def _check_size(self, content: bytes) -> None:
        """Raise BadInput if the content exceeds the file limit."""
        if len(content) > self.limits.file:
            raise BadInput(
                f"{self.name} has {len(content):,} bytes; for these answers at most {self.limits.file:,} are accepted"
            )


def _judge_replies(
    run: RunRecord, judged: _UntrustedRows | None, answers: pd.DataFrame, problems: ProblemList
) -> pd.DataFrame | None:
    """Return the judge's replies; report duplicates and replies that belong to no answer."""
    if judged is None:
        return None
    if run.method.judge is None:
        raise BadInput("judge.parquet: the run names no judge (method.judge)")
    answer_keys = set(zip(answers["question_id"], answers["sample"], strict=True))
    replies: dict[tuple[str, int], Record] = {}

    for location, row in judged:
        key = row["question_id"], row["sample"]
        if key not in answer_keys or key in replies:
            problems.add(location, "does not belong to an answer of the run, or is a second reply to one")
        replies[key] = row

    return pd.DataFrame(list(replies.values()), columns=list(JUDGE_COLUMNS))


def _run_questions(claimed: Benchmark, question_ids: set[str], dataset: Dataset) -> pd.DataFrame:
    """Return the questions of a run. Raises BadInput if its `benchmark` record contradicts them."""
    questions = dataset.questions
    # A run on a part of the dataset is scored on the questions that it answered.
    if claimed.selection is not None:
        questions = questions[questions["question_id"].isin(question_ids)].reset_index(drop=True)
    problems = list(_benchmark_problems(claimed, dataset, questions))
    if problems:
        raise BadInput("; ".join(problems))
    return questions


def _with_selection(run: RunRecord, selection: str | None) -> RunRecord:
    """Return the run with `benchmark.selection` replaced."""
    return run.model_copy(update={"benchmark": run.benchmark.model_copy(update={"selection": selection})})


def _benchmark_problems(claimed: Benchmark, dataset: Dataset, questions: pd.DataFrame) -> Iterator[str]:
    """Yield every contradiction between a run's `benchmark` record and its dataset."""
    if questions.empty:
        yield "does not answer any question of the dataset"
        return
    if claimed.asked != (dataset_digest := digest_prompts(questions)):
        yield f"its questions are not those of the dataset (what was asked: {clip(claimed.asked)}, the dataset's {dataset_digest[:16]}...)"
    for field_name, stated, actual in (
        ("format", claimed.family, dataset.family),
        ("origin", claimed.origin, dataset.origin),
        ("questions", claimed.questions, len(questions)),
    ):
        if stated != actual:
            yield f"says benchmark.{field_name} = {stated}, the dataset says {actual}"

    if dataset.partial and claimed.selection is None:
        yield f"a run on a partial dataset ({dataset.partial}) can only be added marked as such (benchmark.selection is empty)"


def _dataset_flags(claimed: Benchmark, dataset: Dataset, questions: pd.DataFrame) -> Iterator[str]:
    """Flag a dataset that needs review.

    Flagged are a dataset that the store's owner does not vouch for, a run on another repository or
    an unreleased commit (only texts are compared, so its images may differ), and cases of which
    only some questions were asked.
    """
    if not dataset.is_vouched and not is_released_set(
        dataset.family, claimed.split, fingerprint_questions(dataset.questions)
    ):
        official = "calls itself official, and " if dataset.origin == "official" else ""
        yield f"the dataset {clip(claimed.repo)} {official}is not one that the store's owner vouches for"

    is_same = (claimed.repo, claimed.revision) == (dataset.repo, dataset.revision)
    if dataset.is_vouched and claimed.repo is not None and not is_same and not _is_other_release(claimed, dataset):
        # The same sentence in all these cases, so as not to reveal which datasets a verifier has.
        yield (
            f"claims that its questions come from {clip(claimed.repo)} at {clip(claimed.revision)}, "
            "which the store's owner does not vouch for: the questions are the same, but the "
            "images were not compared"
        )

    yield from split_case_flags(questions, dataset.questions)


def _is_other_release(claimed: Benchmark, dataset: Dataset) -> bool:
    """Return True if a run names another commit of the vouched repository, which was released."""
    names_commit = claimed.repo == dataset.repo and dataset.revision is not None and claimed.revision is not None
    return names_commit and is_released(str(dataset.repo), str(claimed.revision))


def _notes(run: RunRecord, questions: pd.DataFrame, answers: pd.DataFrame, result: Result) -> list[str]:
    """List notes for the submitter on nonresponse, missing answers, a corrected key, a judge."""
    main_score, expected_count = headline_score(result), len(questions) * run.request.samples
    missing_count, judge = expected_count - len(answers), run.method.judge or {}
    penalty = "" if 2 * len(answers) < expected_count else " and count as wrong"
    notes = (
        (isinstance(main_score, NoScore) and main_score.nonresponse is not None, str(main_score)),
        (missing_count > 0, f"{missing_count:,} of {expected_count:,} answers are missing{penalty}"),
        (
            run.benchmark.fingerprint != fingerprint_questions(questions),
            "the dataset's answer key, cases or pairs were corrected after the run; it is scored by the corrected ones",
        ),
        (run.model.kind == "human", "a person answered: no one can verify who, and with what help"),
        (
            run.method.judge is not None,
            f"a judge model ({clip(judge.get('model'))}) read some of its answers; its replies cannot be verified",
        ),
    )
    return [note for applies, note in notes if applies]
