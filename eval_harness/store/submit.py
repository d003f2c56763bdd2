"""Submit: turn a run folder, the files of a submission, or a file of answers into files for a
store.

The files are made here; exactly these bytes are examined (`examine.py`), and exactly these bytes
are added (`folder_store.py`, `hub_store.py`). Untrusted files are read in the sandbox.

See also: verifying other people's submissions (`verification.py`).
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from dataset_builders.errors import BadInput, Unavailable, clip
from eval_harness.answer_files.predictions import read_predictions
from eval_harness.answer_files.untrusted import (
    ANSWER_FILE_COLUMNS,
    check_file,
    iter_parquet_rows,
    printable_line,
    printable_lines,
)
from eval_harness.derive.answer_table import USAGE_FIELDS, answer_frame, encode_answers
from eval_harness.derive.reading import without_judge
from eval_harness.derive.run_files import (
    ANSWERS_FILE,
    JUDGE_FILE,
    RESULT_FILE,
    RUN_FILE,
    SubmittedFiles,
)
from eval_harness.records.limits import (
    MAX_ANSWERS,
    MAX_RUN_JSON_BYTES,
    MAX_SAMPLES,
    Limits,
    limits_for,
    run_json_limits,
)
from eval_harness.records.names import normalize_name
from eval_harness.records.result import Benchmark, Method, Model, read_result
from eval_harness.records.run import RunRecord, RunRequest
from eval_harness.records.selection import select_questions
from eval_harness.store import folder_store, hub_store
from eval_harness.store.acceptance import Acceptance, local_account, utc_now
from eval_harness.store.checks import PublishedNames
from eval_harness.store.dataset_lookup import (
    Dataset,
    DatasetLookup,
    find_dataset,
    load_split,
    require_dataset,
)
from eval_harness.store.examine import examine, parse_run, read_sent
from eval_harness.store.sandbox import run_sandboxed, tighten_limits
from eval_harness.store.scan import is_hub_store
from eval_harness.store.submission import Submission

JOURNAL_NAME = "answers.jsonl"
"""The journal of a run folder; a submission has none."""
FOLDER_FILES = (RUN_FILE, "questions.parquet", RESULT_FILE, ANSWERS_FILE, JUDGE_FILE)
"""Files read from a run folder or a submission; the folder's questions are ignored."""
SUBMITTABLE_KINDS = ("open", "proprietary", "medical")
"""Valid kinds of the model of a file of answers. Baselines are run by medprobe, and reproduced."""
OTHER_HARNESS = "another harness"
"""`model` in the request of a run that is known only from a file of answers."""
UNKNOWN_SETTINGS = "answers were given by another harness; its prompt and generation settings are not known"
"""The deviation recorded for a file of answers."""
MIN_ANSWER_BYTES = 16
"""Minimum bytes of an answer in any file."""
MAX_RESULT_BYTES = 8 << 20
"""Maximum bytes of a result.json; GMAI-MMBench's, with all facets, has less than one million."""


@dataclass(frozen=True)
class Submitted:
    """A submission and its location: a local folder, or the URL of a pull request.

    `new` is False if it was already there.
    """

    submission: Submission = field(repr=False)
    location: str
    new: bool


def add_to_store(
    submission: Submission,
    to: str | Path,
    token: str | None = None,
    account: str | None = None,
    published: PublishedNames | None = None,
    with_questions: bool = False,
) -> Submitted:
    """Add a submission without problems to a store. Adding it twice is not an error.

    In a folder, the files are written together with what is derived from them. On the Hub, one pull
    request that only adds the sent files is opened in the name of the token's owner; a result that
    the store's owner reproduced is committed to main instead. The submission is durable when this
    returns: the folder is flushed, or the commit exists.

    Args:
        submission: An examined submission.
        to: A folder, or ORG/NAME on the Hub (an existing folder wins).
        token: Hub token; None uses this machine's.
        account: Submitter recorded in a folder store; None uses this machine's user.
        published: Model names in papers, checked for lookalikes.
        with_questions: Also commit the questions of a reproduced result.

    Returns:
        The location, and whether it is new.

    Raises:
        BadInput: As `add_to_folder`, `open_submission_pull` and `commit_submission` do.
    """
    if is_hub_store(to) and submission.result.provenance == "reproduced":
        return Submitted(submission, *hub_store.commit_submission(str(to), submission, with_questions))
    if is_hub_store(to):
        if not submission.result.benchmark.revision:
            submission.notes.append("its dataset is a folder: the store's owner must name theirs to verify (--data)")
        return Submitted(submission, *hub_store.open_submission_pull(str(to), submission, token))

    submitter = account or local_account()
    duplicates = folder_store.duplicate_flags(Path(to), submission, submitter, published=published)
    submission.flags.extend(flag for flag in duplicates if flag not in submission.flags)
    acceptance = Acceptance(
        account=submitter,
        accepted_at=utc_now(),
        verified_by=submitter,
        flags=printable_lines(submission.flags),
    )

    return Submitted(submission, *folder_store.add_to_folder(Path(to), submission, acceptance))


def build_submission(
    source: Path,
    benchmark: str | None = None,
    model: str | None = None,
    data: str | None = None,
    split: str | None = None,
    extraction: str = "ours",
    kind: str | None = None,
    reproduced: bool = False,
    owner: str | None = None,
) -> Submission:
    """Build and examine the submission of a run folder, a submission folder, or a file of answers.

    Args:
        source: A run folder, a folder of run.json and answers.parquet, or a file of answers.
        benchmark: Benchmark of a file of answers.
        model: Model name of a file of answers.
        data: Dataset to score against (folder or Hub repository); None uses the one that the run
            names.
        split: Split of a file of answers.
        extraction: How the choices of a file of answers are extracted.
        kind: Kind of the model of a file of answers (MODEL_KINDS).
        reproduced: The store's owner states that they ran the model. Nothing in the folder can
            prove this, but it is refused for answers that no run of ours produced. The result gets
            a folder of its own beside the submitted one.
        owner: Owner of the store on the Hub, whose released datasets are vouched for.

    Returns:
        The submission; everything that is wrong with it is in `problems`.

    Raises:
        BadInput: If nothing can be derived: unreadable files, an unknown dataset, missing options.
    """
    if source.is_dir() and (benchmark or model or split or kind):
        raise BadInput(
            f"submit {source}: a folder already states benchmark, model, kind and split. Leave these options out."
        )
    if not source.is_dir():
        check_file(source)
        if not benchmark or not model:
            raise BadInput(f"submit {source}: not a folder. For a file of answers, give its --benchmark and --model.")
        if reproduced:
            raise BadInput(
                f"submit {source}: --reproduced: a file of answers does not describe its run. Run "
                "the model here (`medprobe eval BENCHMARK --model MODEL`) and give that run folder."
            )
        selection = select_questions(benchmark, data, split)
        dataset = load_split(selection.repository, selection.split, is_vouched=True)
        return examine_answer_file(source, dataset, model, kind, extraction)

    # A partial of a module-level function can be pickled for the sandbox.
    find = partial(_find_folder_dataset, data, owner)
    try:
        return examine_folder(source, find, reproduced)
    except BadInput as error:
        message = str(error).removeprefix(f"{source}/").removeprefix(f"{source}: ").rstrip(".")
        message = message.removesuffix(". Nothing was submitted")
        raise type(error)(printable_line(f"{source}: {message}. Nothing was submitted.", 2_000)) from error


def _find_folder_dataset(data: str | None, owner: str | None, benchmark: Benchmark) -> Dataset:
    """Return the dataset for a folder's `benchmark` record."""
    return require_dataset(benchmark, data) if data else find_dataset(benchmark, owner=owner, of_this_machine=True)


def examine_folder(folder: Path, find: DatasetLookup, reproduced: bool = False) -> Submission:
    """Examine a run folder, or a folder of `run.json` and `answers.parquet`, in the sandbox.

    Args:
        folder: The folder; its content is untrusted.
        find: Looks up the dataset that the run names.
        reproduced: The store's owner ran the model.

    Raises:
        BadInput: If the folder is neither, or nothing can be derived.
    """
    size = sum(path.stat().st_size for path in (folder / ANSWERS_FILE, folder / JUDGE_FILE) if path.is_file())
    return run_sandboxed(run_json_limits(size), _examine_folder, folder, find, reproduced)


def examine_answer_file(
    path: Path, dataset: Dataset, model: str, kind: str | None = None, extraction: str = "ours"
) -> Submission:
    """Examine a file of another harness's answers, in the sandbox.

    Args:
        path: The file; its content is untrusted.
        dataset: The dataset that was answered.
        model: Name of the model.
        kind: Kind of the model (MODEL_KINDS), if known.
        extraction: How choices are extracted.

    Raises:
        BadInput: If the file cannot be read, or the kind is unknown.
    """
    return run_sandboxed(
        run_json_limits(path.stat().st_size),
        _examine_answer_file,
        path,
        dataset,
        model,
        kind,
        extraction,
    )


def _answer_file_limits(path: Path, dataset: Dataset) -> Limits:
    """Compute the limits for reading a file of answers.

    The number of answers comes from the footer of a Parquet file (refused if a store accepts
    fewer), or is bounded by the smallest size that an answer has in any other file.
    """
    question_count = max(1, len(dataset.questions))
    row_count = path.stat().st_size // MIN_ANSWER_BYTES
    if check_file(path).startswith(b"PAR1"):
        next(
            iter_parquet_rows(path, ANSWER_FILE_COLUMNS, max_rows=min(question_count * MAX_SAMPLES, MAX_ANSWERS)),
            None,
        )
        row_count = pq.read_metadata(path).num_rows

    return limits_for(
        question_count,
        max(1, min(-(-row_count // question_count), MAX_SAMPLES, MAX_ANSWERS // question_count)),
        path.stat().st_size,
    )


def _examine_folder(folder: Path, find: DatasetLookup, reproduced: bool) -> Submission:
    """Examine a folder; runs in the sandbox."""
    if not (folder / RUN_FILE).is_file():
        raise BadInput(_not_a_run_message(folder))
    run = _read_run(folder)
    submission = _examine(_read_submission(folder, run), find(run.benchmark))
    if reproduced:
        model = run.request.model
        # Answers that come from a file, or a folder without the journal of a run.
        if model.startswith("recorded:") or model == OTHER_HARNESS or not (folder / JOURNAL_NAME).exists():
            submission.problems.append(
                f"--reproduced: the answers come from a file ({printable_line(model, 200)}). Run "
                "the model here (`medprobe eval BENCHMARK --model MODEL`) and give that run "
                "folder, or leave --reproduced out"
            )
        return submission.reproduced()

    return submission


def _examine_answer_file(path: Path, dataset: Dataset, model: str, kind: str | None, extraction: str) -> Submission:
    """Examine a file of answers; runs in the sandbox."""
    if kind is not None and kind not in SUBMITTABLE_KINDS:
        raise BadInput(f"model kind {clip(kind)}: give one of {', '.join(SUBMITTABLE_KINDS)}, or leave it out.")
    tighten_limits(_answer_file_limits(path, dataset))
    predictions = read_predictions(path, dataset.questions)
    max_chars = limits_for(len(dataset.questions), predictions.samples).unpacked
    total_chars = sum(len(str(value)) for row in predictions.rows for value in row.values())
    if total_chars > max_chars:  # checked here: later messages would name a file that the user never wrote
        raise BadInput(
            f"{path}: its answers contain {total_chars / 1e6:,.0f} MB of text, and a store takes "
            f"{max_chars / 1e6:,.0f} MB of {len(predictions.rows):,} answers. Leave out everything "
            "but the answers, such as prompts or reasoning."
        )

    benchmark = dataset.benchmark(dataset.questions, dataset.partial)
    run = RunRecord(
        run_id="another-harness",
        request=RunRequest(
            benchmark=benchmark.name,
            data="",
            split=benchmark.split,
            fingerprint=benchmark.fingerprint or "",
            model=OTHER_HARNESS,
            method="mc",
            prompt=None,
            samples=predictions.samples,
            generation={},
        ),
        benchmark=benchmark,
        model=Model(name=normalize_name(model), kind=kind),  # type: ignore[arg-type]  # checked above
        method=Method(name="mc", samples=predictions.samples, extraction=extraction),
        deviations=[UNKNOWN_SETTINGS],
        environment={"python": platform.python_version()},
        # When the file was written: the same file is the same submission whenever it is submitted.
        created_at=datetime.fromtimestamp(int(path.stat().st_mtime), UTC).isoformat(timespec="seconds"),
    )

    sent = SubmittedFiles(_run_bytes(_publishable_run(run)), encode_answers(answer_frame(predictions.rows)))
    return _examine(sent, dataset, predictions.problems)


def _read_submission(folder: Path, run: RunRecord) -> SubmittedFiles:
    """Read the files to send: answers and judge replies unchanged, the run as it is published."""
    judged = (folder / JUDGE_FILE).exists()
    if not (folder / ANSWERS_FILE).exists():
        raise BadInput(
            f"{folder}: has no {ANSWERS_FILE}, which `medprobe eval` writes when every question "
            "was asked. Give the same command again to go on, or `medprobe score RUN_DIR "
            "--asked-only` to submit what was asked."
        )

    if run.method.judge is not None and not judged:
        raise BadInput(
            f"{folder}: has no {JUDGE_FILE}. `medprobe score RUN_DIR` asks the judge; with "
            "--no-judge it reads by rules only."
        )

    sent = read_sent(folder)
    return SubmittedFiles(_run_bytes(_publishable_run(run)), sent.answers, sent.judge if run.method.judge else None)


def _examine(sent: SubmittedFiles, dataset: Dataset, problems: Sequence[str] = ()) -> Submission:
    """Examine exactly these bytes, and add the problems of the input that they were made from.

    Raises:
        BadInput: If nothing can be derived.
    """
    try:
        submission = examine(sent, lambda claimed: dataset)
    except Unavailable:
        raise
    except BadInput as error:
        raise BadInput("; ".join(dict.fromkeys([*problems, str(error)]))) from None
    submission.problems[:0] = [line for line in map(printable_line, problems) if line not in submission.problems]
    return submission


def _publishable_run(run: RunRecord) -> RunRecord:
    """Return the run as published: normalized model name, no local paths or judge addresses."""
    judge = run.method.judge and {name: value for name, value in run.method.judge.items() if name != "base_url"}
    benchmark = run.benchmark
    if not benchmark.revision:  # a local folder
        benchmark = benchmark.model_copy(update={"repo": None})
    return run.model_copy(
        update={
            "benchmark": benchmark,
            "request": run.request.model_copy(update={"data": benchmark.repo or ""}),
            "model": run.model.model_copy(update={"name": normalize_name(run.model.name)}),
            "method": run.method.model_copy(update={"judge": judge}),
        }
    )


def _read_run(folder: Path) -> RunRecord:
    """Read the run of a folder as its result was scored.

    The extraction and the token counts come from the result; the judge is dropped if the result was
    scored without it.
    """
    check_file(folder / RUN_FILE, MAX_RUN_JSON_BYTES)
    run = parse_run((folder / RUN_FILE).read_bytes())
    if (folder / RESULT_FILE).exists():
        check_file(folder / RESULT_FILE, MAX_RESULT_BYTES)
        try:
            scored = read_result(folder / RESULT_FILE)
        except BadInput as error:
            raise BadInput(printable_line(str(error))) from None
        # Token counts are stored in the result's environment.
        usage = {name: scored.environment[name] for name in USAGE_FIELDS if name in scored.environment}
        method = run.method.model_copy(update={"extraction": scored.method.extraction})
        run = run.model_copy(update={"method": method, "environment": run.environment | usage})
        run = run if scored.method.judge is not None else without_judge(run)

    return run


def _run_bytes(run: RunRecord) -> bytes:
    """Return the content of run.json."""
    return (run.model_dump_json(indent=1) + "\n").encode()


def _not_a_run_message(folder: Path) -> str:
    """Return why a folder is not a run folder, with a remedy."""
    result_folders = sorted(path.parent for path in folder.glob("results/*/*/*/run.json"))
    if result_folders:
        return f"is a results store. Give the folder of one result, e.g. {result_folders[0]}"
    return "not a run folder or a submission (no run.json). `medprobe eval --out` makes one"
