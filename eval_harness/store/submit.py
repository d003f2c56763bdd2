"""Submit: turn an input (a run folder, the files of a submission, a file of answers) into the files that are added to a store.

The files are made here, exactly these bytes are examined (`examine.py`), and exactly these bytes are added
(`folder_store.py`, `hub_store.py`).
Untrusted files are read in the sandbox. See also: verifying the submissions of others (`verification.py`).
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
from eval_harness.derive.run_files import ANSWERS_FILE, JUDGE_FILE, RESULT_FILE, RUN_FILE, SubmittedFiles
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
from eval_harness.store.dataset_lookup import Dataset, DatasetLookup, find_dataset, load_split, require_dataset
from eval_harness.store.examine import examine, parse_run, read_sent
from eval_harness.store.sandbox import run_sandboxed, tighten_limits
from eval_harness.store.scan import is_hub_store
from eval_harness.store.submission import Submission

JOURNAL_NAME = "answers.jsonl"
FOLDER_FILES = (RUN_FILE, "questions.parquet", RESULT_FILE, ANSWERS_FILE, JUDGE_FILE)
"""Files taken from a run folder or a submission; its questions are not read."""
MODEL_KINDS = ("open", "proprietary", "medical")
"""Valid kinds of the model of a file of answers. Baselines are run by medprobe, and reproduced."""
OTHER_HARNESS = "another harness"
"""`model` in the request of a run that is known only by a file of answers."""
UNKNOWN_SETTINGS = "answers were given by another harness; its prompt and generation settings are not known"
MIN_ANSWER_BYTES = 16
"""Minimum bytes of an answer in any file."""
MAX_RESULT_BYTES = 8 << 20
"""Maximum bytes of a result.json; GMAI-MMBench's with all its facets has under one million."""


@dataclass(frozen=True)
class Submitted:
    """Location of a submission: a local folder, or the address of a pull request. `new` is False if it was there already."""

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
    """Add a submission without problems to a store: a folder, or ORG/NAME on the Hub (a folder wins). Adding it twice is no error.

    To a folder the files are added with what is derived from them. On the Hub one pull request that only adds the files is opened in the
    name of the token's owner (None: this machine's); what the store's owner reproduced is committed to main, `with_questions` with the
    questions. It is in the store when this returns: the folder is written and flushed, or the commit made.
    `account`: who submits to a folder, this machine's user if not said. `published`: names in papers, with which the model's is compared.
    Raises BadInput as `add_to_folder`, `open_submission_pull` and `commit_submission` do.
    """
    if is_hub_store(to) and submission.result.provenance == "reproduced":
        return Submitted(submission, *hub_store.commit_submission(str(to), submission, with_questions))
    if is_hub_store(to):
        if not submission.result.benchmark.revision:
            submission.notes.append("its dataset is a folder: the store's owner must name theirs to verify (--data)")
        return Submitted(submission, *hub_store.open_submission_pull(str(to), submission, token))
    who = account or local_account()
    found = folder_store.duplicate_flags(Path(to), submission, who, published=published)
    submission.flags.extend(flag for flag in found if flag not in submission.flags)
    acceptance = Acceptance(
        account=who, accepted_at=utc_now(), verified_by=who, flags=printable_lines(submission.flags)
    )
    return Submitted(submission, *folder_store.add_to_folder(Path(to), submission, acceptance))


def build_submission(
    what: Path,
    benchmark: str | None = None,
    model: str | None = None,
    data: str | None = None,
    split: str | None = None,
    extraction: str = "ours",
    kind: str | None = None,
    reproduced: bool = False,
    owner: str | None = None,
) -> Submission:
    """The submission that a run folder, a folder of run.json and answers.parquet, or a file of answers makes, examined.

    `reproduced`: the store's owner says that they ran the model themselves. That is their word, which nothing in the folder can give
    or prove; but of answers that no run of ours gave it cannot be so. It gets a folder of its own beside the submitted one.
    `owner`: of the store on the Hub, whose released datasets are vouched for. What is wrong with it is in `problems`, all at once.

    Raises BadInput if nothing can be derived: unreadable files, an unknown dataset, missing options.
    """
    if what.is_dir() and (benchmark or model or split or kind):
        raise BadInput(
            f"submit {what}: a folder says its benchmark, model, its kind and split itself. Leave these options out."
        )
    if not what.is_dir():
        check_file(what)
        if not benchmark or not model:
            raise BadInput(f"submit {what}: is not a folder. For a file of answers, name its --benchmark and --model.")
        if reproduced:
            raise BadInput(
                f"submit {what}: --reproduced: a file of answers says nothing of its run. Run the model here (`medprobe eval "
                "BENCHMARK --model MODEL`) and give that run folder."
            )
        selection = select_questions(benchmark, data, split)
        dataset = load_split(selection.repository, selection.split, ours=True)
        return examine_answer_file(what, dataset, model, kind, extraction)
    find = partial(_find_folder_dataset, data, owner)
    try:
        return examine_folder(what, find, reproduced)
    except BadInput as error:
        told = str(error).removeprefix(f"{what}/").removeprefix(f"{what}: ").rstrip(".")
        told = told.removesuffix(". Nothing was submitted")
        raise type(error)(printable_line(f"{what}: {told}. Nothing was submitted.", 2_000)) from error


def _find_folder_dataset(data: str | None, owner: str | None, benchmark: Benchmark) -> Dataset:
    """The questions for a folder's `benchmark` record."""
    return require_dataset(benchmark, data) if data else find_dataset(benchmark, owner=owner, of_this_machine=True)


def examine_folder(folder: Path, find: DatasetLookup, reproduced: bool = False) -> Submission:
    """The verdict on a run folder, or on a folder of `run.json` and `answers.parquet`. `find`: the dataset that it says it is about;
    `reproduced`: the store's owner ran it. Raises BadInput for a folder that is neither, and where nothing can be derived."""
    size = sum(path.stat().st_size for path in (folder / ANSWERS_FILE, folder / JUDGE_FILE) if path.is_file())
    return run_sandboxed(run_json_limits(size), _examine_folder, folder, find, reproduced)


def examine_answer_file(
    path: Path, dataset: Dataset, model: str, kind: str | None = None, extraction: str = "ours"
) -> Submission:
    """The verdict on a file of another harness's answers. `kind`: open, proprietary, medical.

    Raises BadInput for a file that cannot be read, and a kind that is none of these.
    """
    return run_sandboxed(
        run_json_limits(path.stat().st_size), _examine_answer_file, path, dataset, model, kind, extraction
    )


def _answer_file_limits(path: Path, dataset: Dataset) -> Limits:
    """Limits for reading a file of answers: by the number of rows in a Parquet file's footer, which is refused where a store takes
    fewer, or by the bytes that an answer has at least in any other file."""
    asked = max(1, len(dataset.questions))
    rows = path.stat().st_size // MIN_ANSWER_BYTES
    if check_file(path).startswith(b"PAR1"):
        next(iter_parquet_rows(path, ANSWER_FILE_COLUMNS, most_rows=min(asked * MAX_SAMPLES, MAX_ANSWERS)), None)
        rows = pq.read_metadata(path).num_rows
    return limits_for(asked, max(1, min(-(-rows // asked), MAX_SAMPLES, MAX_ANSWERS // asked)), path.stat().st_size)


def _examine_folder(folder: Path, find: DatasetLookup, reproduced: bool) -> Submission:
    if not (folder / RUN_FILE).is_file():
        raise BadInput(_not_a_run_message(folder))
    run = _read_run(folder)
    found = _examine(_read_submission(folder, run), find(run.benchmark))
    if reproduced:
        model = run.request.model
        if model.startswith("recorded:") or model == OTHER_HARNESS or not (folder / JOURNAL_NAME).exists():
            found.problems.append(
                f"--reproduced: its answers come from a file ({printable_line(model, 200)}). Run the model here (`medprobe eval "
                "BENCHMARK --model MODEL`) and give that run folder, or leave --reproduced out"
            )
        return found.reproduced()
    return found


def _examine_answer_file(path: Path, dataset: Dataset, model: str, kind: str | None, extraction: str) -> Submission:
    if kind is not None and kind not in MODEL_KINDS:
        raise BadInput(f"model kind {clip(kind)}: give one of {', '.join(MODEL_KINDS)}, or leave it out.")
    tighten_limits(_answer_file_limits(path, dataset))
    read = read_predictions(path, dataset.questions)
    most = limits_for(len(dataset.questions), read.samples).unpacked
    size = sum(len(str(value)) for row in read.rows for value in row.values())
    if size > most:  # before a table is made of them, whose limits speak of a file that the user did not give
        raise BadInput(
            f"{path}: its answers hold {size / 1e6:,.0f} MB of text, and a store takes {most / 1e6:,.0f} MB of {len(read.rows):,} answers. "
            "Leave out what is no answer, such as the prompt or the reasoning."
        )
    said = dataset.benchmark(dataset.questions, dataset.partial)
    run = RunRecord(
        run_id="another-harness",
        request=RunRequest(
            benchmark=said.name, data="", split=said.split, fingerprint=said.fingerprint or "", model=OTHER_HARNESS, method="mc",
            prompt=None, samples=read.samples, generation={},
        ),
        benchmark=said,
        model=Model(name=normalize_name(model), kind=kind),  # type: ignore[arg-type]  # checked above
        method=Method(name="mc", samples=read.samples, extraction=extraction),
        deviations=[UNKNOWN_SETTINGS],
        environment={"python": platform.python_version()},
        # When the file was written: the same file is the same submission whenever it is submitted.
        created_at=datetime.fromtimestamp(int(path.stat().st_mtime), UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    sent = SubmittedFiles(_run_bytes(_publishable_run(run)), encode_answers(answer_frame(read.rows)))
    return _examine(sent, dataset, read.problems)


def _read_submission(folder: Path, run: RunRecord) -> SubmittedFiles:
    """The files sent of a run folder or a submission: its answers and replies byte for byte, and its run as it is published."""
    judged = (folder / JUDGE_FILE).exists()
    if not (folder / ANSWERS_FILE).exists():
        raise BadInput(
            f"{folder}: has no {ANSWERS_FILE}, which `medprobe eval` writes when every question was asked. Give the same command again to "
            "go on, or `medprobe score RUN_DIR --asked-only` to submit what was asked."
        )
    if run.method.judge is not None and not judged:
        raise BadInput(
            f"{folder}: has no {JUDGE_FILE}. `medprobe score RUN_DIR` asks the judge; with --no-judge it reads by rules only."
        )
    sent = read_sent(folder)
    return SubmittedFiles(_run_bytes(_publishable_run(run)), sent.answers, sent.judge if run.method.judge else None)


def _examine(sent: SubmittedFiles, dataset: Dataset, problems: Sequence[str] = ()) -> Submission:
    """The verdict on exactly these bytes, with the problems of what they were made from. Raises BadInput if nothing can be derived."""
    try:
        found = examine(sent, lambda said: dataset)
    except Unavailable:
        raise
    except BadInput as error:
        raise BadInput("; ".join(dict.fromkeys([*problems, str(error)]))) from None
    found.problems[:0] = [line for line in map(printable_line, problems) if line not in found.problems]
    return found


def _publishable_run(run: RunRecord) -> RunRecord:
    """The run as it is published: with a normalized name, and without local dataset paths and judge addresses."""
    judge = run.method.judge and {name: value for name, value in run.method.judge.items() if name != "base_url"}
    benchmark = run.benchmark
    if not benchmark.revision:  # a folder
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
    """The run of a folder, read as its result was: with its extraction, without its judge where that was left out, and with the tokens
    that were counted."""
    check_file(folder / RUN_FILE, MAX_RUN_JSON_BYTES)
    run = parse_run((folder / RUN_FILE).read_bytes())
    if (folder / RESULT_FILE).exists():
        check_file(folder / RESULT_FILE, MAX_RESULT_BYTES)
        try:
            scored = read_result(folder / RESULT_FILE)
        except BadInput as error:
            raise BadInput(printable_line(str(error))) from None
        usage = {name: scored.environment[name] for name in USAGE_FIELDS if name in scored.environment}
        method = run.method.model_copy(update={"extraction": scored.method.extraction})
        run = run.model_copy(update={"method": method, "environment": run.environment | usage})
        run = run if scored.method.judge is not None else without_judge(run)
    return run


def _run_bytes(run: RunRecord) -> bytes:
    return (run.model_dump_json(indent=1) + "\n").encode()


def _not_a_run_message(folder: Path) -> str:
    inside = sorted(path.parent for path in folder.glob("results/*/*/*/run.json"))
    if inside:
        return f"is a results store. Give the folder of one result, e.g. {inside[0]}"
    return "is no run folder and no submission: it has no run.json. `medprobe eval --out` makes one"
