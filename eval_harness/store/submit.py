"""Submit a run folder, the files of a submission, or a file of answers to a store.

The files for the store are made here and examined (`examine.py`), then added (`adding.py`). A
server reads only run folders and plain files of answers, in the sandbox; on the submitter's
machine, files of answers in other formats are read as well.

See also: verifying other people's submissions (`verification.py`).
"""

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dataset_builders.errors import BadInput, Unavailable, clip
from eval_harness.answer_files.harness_formats import find_reader, read_answer_file
from eval_harness.answer_files.predictions import Predictions, read_predictions
from eval_harness.answer_files.untrusted import (
    ANSWER_FILE_COLUMNS,
    check_file,
    iter_parquet_rows,
    printable_line,
    printable_lines,
)
from eval_harness.derive.reading import with_judge
from eval_harness.derive.run_files import (
    ANSWERS_FILE,
    ANSWERS_SCHEMA,
    JUDGE_FILE,
    RESULT_FILE,
    RUN_FILE,
    USAGE_FIELDS,
    SubmittedFiles,
    answer_frame,
    encode_table,
)
from eval_harness.records.limits import (
    MAX_ANSWERS,
    MAX_RUN_JSON_BYTES,
    MAX_SAMPLES,
    Limits,
    limits_for,
    normalize_name,
    run_json_limits,
)
from eval_harness.records.result import Benchmark, Method, Model, RunRecord, RunRequest, read_result
from eval_harness.records.selection import select_questions
from eval_harness.store.adding import add_to_folder, commit_submission, open_submission_pull
from eval_harness.store.checks import PublishedNames
from eval_harness.store.contents import Acceptance, Submission, is_hub_store, local_account, utc_now
from eval_harness.store.dataset_lookup import (
    Dataset,
    DatasetLookup,
    find_dataset,
    load_split,
    require_dataset,
)
from eval_harness.store.examine import examine, parse_run, read_sent
from eval_harness.store.sandbox import run_sandboxed, tighten_limits
from eval_harness.store.similarity import duplicate_flags

JOURNAL_NAME = "answers.jsonl"
"""The journal of a run folder; a submission has none."""
FOLDER_FILES = (RUN_FILE, "questions.parquet", RESULT_FILE, ANSWERS_FILE, JUDGE_FILE)
"""Files that are read from a run folder or a submission; the folder's questions are ignored."""
SUBMITTABLE_KINDS = ("open", "proprietary", "medical", "human")
"""Kinds of models that a file of answers may be from; baselines need a run of medprobe."""
OTHER_HARNESS = "another harness"
"""The request's `model` for a submitted file of answers, whose harness is not known."""
UNKNOWN_SETTINGS = "answers were given by another harness; its prompt and generation settings are not known"
"""The deviation recorded for a file of answers."""
MIN_ANSWER_BYTES = 16
"""Minimum size of an answer in a file of any format."""
MAX_RESULT_BYTES = 8 << 20
"""Maximum size of a result.json; GMAI-MMBench's, with all facets, has less than 1 MB."""


@dataclass(frozen=True)
class Submitted:
    """A submission and its location, which is a local folder or a URL.

    `new` is False if the submission was already there.
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
    """Add a submission without problems to a store; adding it twice is not an error.

    In a folder, the files are written together with the derived files. On the Hub, a pull request
    that only adds the sent files is opened in the name of the token's owner; a result that the
    store's owner reproduced is committed to main instead. When this returns, the submission is
    stored durably: the files are on disk, or the commit exists.

    Args:
        submission: An examined submission.
        to: A folder, or ORG/NAME on the Hub; an existing folder takes precedence.
        token: Hub token; None uses this machine's.
        account: Submitter recorded in a folder store; None uses this machine's user.
        published: Model names in papers, checked for lookalikes.
        with_questions: Also commit the questions of a reproduced result.

    Returns:
        The location, and whether it is new.

    Raises:
        BadInput: See `add_to_folder`, `open_submission_pull` and `commit_submission`.
    """
    if is_hub_store(to) and submission.result.provenance == "reproduced":
        return Submitted(submission, *commit_submission(str(to), submission, with_questions))
    if is_hub_store(to):
        if not submission.result.benchmark.revision:
            submission.notes.append("its dataset is a folder: the store's owner must name theirs to verify (--data)")
        return Submitted(submission, *open_submission_pull(str(to), submission, token))

    submitter = account or local_account()
    duplicates = duplicate_flags(Path(to), submission, submitter, published=published)
    submission.flags.extend(flag for flag in duplicates if flag not in submission.flags)
    acceptance = Acceptance(
        account=submitter,
        accepted_at=utc_now(),
        verified_by=submitter,
        flags=printable_lines(submission.flags),
    )

    return Submitted(submission, *add_to_folder(Path(to), submission, acceptance))


def submit_to_store(
    source: Path,
    to: str | Path,
    benchmark: str | None = None,
    model: str | None = None,
    data: str | None = None,
    split: str | None = None,
    *,
    account: str | None = None,
    published: PublishedNames | None = None,
    with_questions: bool = False,
    **options: Any,
) -> Submitted:
    """Build a submission and add it to a store.

    Args:
        source: See `build_submission`.
        to: Store: a folder, or ORG/NAME on the Hub. An existing folder takes precedence.
        benchmark: See `build_submission`.
        model: See `build_submission`.
        data: See `build_submission`.
        split: See `build_submission`.
        account: Account recorded by a folder store (default: the user of this machine).
        published: Model names in papers, to compare the submission's model name with.
        with_questions: Also commit the questions of a reproduced result to a Hub store.
        **options: Further arguments of `build_submission`.

    Returns:
        Where the submission is, and whether it is new.

    Raises:
        BadInput: If there are problems; lists all of them.
    """
    # A dataset released by the owner of a Hub store is trusted.
    owner = str(to).split("/")[0] if is_hub_store(to) else None
    submission = build_submission(source, benchmark, model, data, split, owner=owner, **options)
    submission.check(source)
    return add_to_store(submission, to, account=account, published=published, with_questions=with_questions)


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
        source: A run folder, a folder of run.json and answers.parquet, or a file of answers in any
            format (`answer_files/harness_formats.py`).
        benchmark: Benchmark of a file of answers that does not name it itself.
        model: Model name of a file of answers that does not name it itself.
        data: Dataset to score against (folder or Hub repository); None uses the one that the run
            names.
        split: Split of a file of answers.
        extraction: How choices are extracted from a file of answers, "ours" or "official".
        kind: Kind of the model of a file of answers (SUBMITTABLE_KINDS).
        reproduced: True if the store's owner states that they ran the model. Nothing in the folder
            can prove this, but it is refused for answers that are not from a run of medprobe. The
            result gets its own folder next to the submitted one.
        owner: Owner of the store on the Hub, whose released datasets are vouched for.

    Returns:
        The submission, with everything that is wrong with it in `problems`.

    Raises:
        BadInput: If no scores can be computed, because of unreadable files, an unknown dataset or
            missing options.
    """
    if source.is_dir():
        if benchmark or model or split or kind:
            raise BadInput(
                f"submit {source}: a folder already states benchmark, model, kind and split. Leave these options out."
            )
        # Not a lambda: the sandbox must be able to pickle it.
        find = partial(_find_folder_dataset, data, owner)
        try:
            return examine_folder(source, find, reproduced)
        except BadInput as error:
            message = f"{str(error).rstrip('.')}. Nothing was submitted."
            raise type(error)(printable_line(message, 2_000), source) from error

    reader = find_reader(source)
    if reader is None:
        check_file(source)
    if reader is not None and reader.describe is not None:
        stated = zip((benchmark, model, data, split), reader.describe(source), strict=True)
        benchmark, model, data, split = (option or in_file for option, in_file in stated)
    if not benchmark or not model:
        missing = " and ".join(
            option for option, value in (("--benchmark", benchmark), ("--model", model)) if not value
        )
        raise BadInput(f"submit {source}: a file of answers that does not name them: give {missing}.")
    if reproduced:
        raise BadInput(
            f"submit {source}: --reproduced: a file of answers does not describe its run. Run "
            "the model here (`medprobe eval BENCHMARK --model MODEL`) and give that run folder."
        )
    selection = select_questions(benchmark, data, split)
    dataset = load_split(selection.repository, selection.split, is_vouched=True)
    if reader is None:
        return examine_answer_file(source, dataset, model, kind, extraction)
    # Only the submitter reads the files of other programs, and has the memory of this machine.
    return _examine_predictions(read_answer_file(source, dataset.questions), source, dataset, model, kind, extraction)


def _find_folder_dataset(data: str | None, owner: str | None, benchmark: Benchmark) -> Dataset:
    """Return the dataset for a folder's `benchmark` record."""
    return require_dataset(benchmark, data) if data else find_dataset(benchmark, owner=owner, of_this_machine=True)


def examine_folder(folder: Path, find: DatasetLookup, reproduced: bool = False) -> Submission:
    """Examine a run folder, or a folder of `run.json` and `answers.parquet`, in the sandbox.

    Args:
        folder: The folder; its content is untrusted.
        find: Looks up the dataset that the run names.
        reproduced: True if the store's owner ran the model.

    Raises:
        BadInput: If the folder is neither of the two, or no scores can be computed; the message
            names the files, but not the folder.
    """
    size = sum(path.stat().st_size for path in (folder / ANSWERS_FILE, folder / JUDGE_FILE) if path.is_file())
    return run_sandboxed(run_json_limits(size), _examine_folder, folder, find, reproduced)


def examine_answer_file(
    path: Path, dataset: Dataset, model: str, kind: str | None = None, extraction: str = "ours"
) -> Submission:
    """Examine a plain file of answers, in the sandbox.

    Args:
        path: The file; its content is untrusted.
        dataset: The dataset that the answers are for.
        model: Name of the model.
        kind: Kind of the model (SUBMITTABLE_KINDS), if known.
        extraction: How choices are extracted, "ours" or "official".

    Raises:
        BadInput: If the file cannot be read, or the kind is unknown.
    """
    limits = run_json_limits(path.stat().st_size)
    return run_sandboxed(limits, _examine_answer_file, path, dataset, model, kind, extraction)


def _answer_file_limits(path: Path, dataset: Dataset) -> Limits:
    """Compute the limits for reading a file of answers.

    The number of answers in a Parquet file is in its footer; more than a store accepts are refused.
    In any other file it is estimated from above, by the smallest size that an answer can have.
    """
    question_count = max(1, len(dataset.questions))
    row_count = path.stat().st_size // MIN_ANSWER_BYTES
    if check_file(path).startswith(b"PAR1"):
        max_rows = min(question_count * MAX_SAMPLES, MAX_ANSWERS)
        next(iter_parquet_rows(path, ANSWER_FILE_COLUMNS, max_rows=max_rows), None)
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
        # Answers from a file, or without the journal that a run would have left.
        if model.startswith("recorded:") or model == OTHER_HARNESS or not (folder / JOURNAL_NAME).exists():
            submission.problems.append(
                f"--reproduced: the answers come from a file ({printable_line(model, 200)}). Run "
                "the model here (`medprobe eval BENCHMARK --model MODEL`) and give that run "
                "folder, or leave --reproduced out"
            )
        return submission.reproduced()

    return submission


def _examine_answer_file(path: Path, dataset: Dataset, model: str, kind: str | None, extraction: str) -> Submission:
    """Examine a plain file of answers; runs in the sandbox."""
    tighten_limits(_answer_file_limits(path, dataset))
    return _examine_predictions(read_predictions(path, dataset.questions), path, dataset, model, kind, extraction)


def _examine_predictions(
    predictions: Predictions, path: Path, dataset: Dataset, model: str, kind: str | None, extraction: str
) -> Submission:
    """Examine the answers that were read from a file."""
    if kind is not None and kind not in SUBMITTABLE_KINDS:
        raise BadInput(f"model kind {clip(kind)}: give one of {', '.join(SUBMITTABLE_KINDS)}, or leave it out.")
    max_chars = limits_for(len(dataset.questions), predictions.samples).unpacked
    total_chars = sum(len(str(value)) for row in predictions.rows for value in row.values())
    # Checked here, since a later message would name a file that the user has never seen.
    if total_chars > max_chars:
        raise BadInput(
            f"its answers contain {total_chars / 1e6:,.0f} MB of text, but a store accepts at most "
            f"{max_chars / 1e6:,.0f} MB for {len(predictions.rows):,} answers. Leave out everything "
            "but the answers, such as prompts or reasoning.",
            path,
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
        # The file's own time, so that submitting it twice gives the same submission.
        created_at=datetime.fromtimestamp(int(path.stat().st_mtime), UTC).isoformat(timespec="seconds"),
    )

    sent = SubmittedFiles(_publishable_run(run), encode_table(answer_frame(predictions.rows), ANSWERS_SCHEMA))
    return _examine(sent, dataset, predictions.problems)


def _read_submission(folder: Path, run: RunRecord) -> SubmittedFiles:
    """Read the files to send: answers and judge's replies unchanged, the run without local data."""
    judged = (folder / JUDGE_FILE).exists()
    if not (folder / ANSWERS_FILE).exists():
        raise BadInput(
            f"has no {ANSWERS_FILE}, which `medprobe eval` writes once every question was asked. Run "
            "the same command again to continue, or `medprobe score RUN_DIR --asked-only` to submit "
            "what was asked."
        )

    if run.method.judge is not None and not judged:
        raise BadInput(
            f"has no {JUDGE_FILE}. Run `medprobe score RUN_DIR`, which asks the judge; with --no-judge "
            "it uses the rules alone."
        )

    sent = read_sent(folder)
    return SubmittedFiles(_publishable_run(run), sent.answers, sent.judge if run.method.judge else None)


def _examine(sent: SubmittedFiles, dataset: Dataset, problems: Sequence[str] = ()) -> Submission:
    """Examine these files, and add the problems of the file of answers that they were made from.

    Raises:
        BadInput: If no scores can be computed.
    """
    try:
        submission = examine(sent, lambda claimed: dataset)
    except Unavailable:
        raise
    except BadInput as error:
        raise BadInput("; ".join(dict.fromkeys([*problems, str(error)]))) from None
    submission.problems[:0] = [line for line in map(printable_line, problems) if line not in submission.problems]
    return submission


def _publishable_run(run: RunRecord) -> bytes:
    """Return the run.json to publish: normalized model name, no local path or server address."""
    judge = run.method.judge and {name: value for name, value in run.method.judge.items() if name != "base_url"}
    benchmark = run.benchmark
    if not benchmark.revision:  # a local folder
        benchmark = benchmark.model_copy(update={"repo": None})
    published = run.model_copy(
        update={
            "benchmark": benchmark,
            "request": run.request.model_copy(update={"data": benchmark.repo or ""}),
            "model": run.model.model_copy(update={"name": normalize_name(run.model.name)}),
            "method": run.method.model_copy(update={"judge": judge}),
        }
    )
    return published.to_json().encode()


def _read_run(folder: Path) -> RunRecord:
    """Read the run of a folder with the settings that its result was scored with.

    The extraction and the token counts are taken from the result. The judge is dropped if the
    result was scored without it.
    """
    check_file(folder / RUN_FILE, MAX_RUN_JSON_BYTES, RUN_FILE)
    run = parse_run((folder / RUN_FILE).read_bytes())
    if (folder / RESULT_FILE).exists():
        check_file(folder / RESULT_FILE, MAX_RESULT_BYTES, RESULT_FILE)
        try:
            scored = read_result(folder / RESULT_FILE)
        except BadInput as error:
            raise BadInput(printable_line(str(error.args[0])), RESULT_FILE) from None
        # Token counts are stored in the result's environment.
        usage = {name: scored.environment[name] for name in USAGE_FIELDS if name in scored.environment}
        method = run.method.model_copy(update={"extraction": scored.method.extraction})
        run = run.model_copy(update={"method": method, "environment": run.environment | usage})
        run = run if scored.method.judge is not None else with_judge(run, None)

    return run


def _not_a_run_message(folder: Path) -> str:
    """Return a message that says why a folder is not a run folder, and what to give instead."""
    result_folders = sorted(path.parent for path in folder.glob("results/*/*/*/run.json"))
    if result_folders:
        return f"is a results store. Give the folder of one result, e.g. {result_folders[0]}"
    return "not a run folder or a submission (no run.json). `medprobe eval --out` makes one"
