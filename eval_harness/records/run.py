"""The record of a run (`run.json`).

It holds the run's request and all parts of a result that cannot be derived from the answers.
`run_problems` yields why stores refuse a record; it is asked before the first question of `eval`,
and when a store examines a submission.
"""

import codecs
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dataset_builders.errors import BadInput, clip, first_validation_error
from eval_harness.records.limits import MAX_ANSWERS, MAX_FIELD_BYTES, json_leaves, size_problems
from eval_harness.records.names import FOLDER_NAME, model_name_problem, text_problem
from eval_harness.records.result import SCHEMA_VERSION, Benchmark, Images, Method, Model, SchemaVersion


class RunRequest(BaseModel):
    """Everything that determines a run's answers. Runs share a folder only if their requests are
    equal.

    `data` is the location of the questions as the user gave it; `fingerprint` identifies their
    content. `model_digest` identifies the model: the digest of the local file, folder or code that
    answers, or a commit on the Hub.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: str
    data: str
    split: str
    fingerprint: str
    model: str
    method: str
    prompt: str | None
    samples: int
    generation: dict[str, Any]
    branches: tuple[str, ...] = ()
    facets: tuple[str, ...] = ()
    limit: int | None = None
    shots: int = 0
    permute: bool = False
    image: Images = "real"
    model_digest: str | None = None

    @property
    def of_arms(self) -> "RunRequest":
        """The request with the real images, which is equal for a run and its arms."""
        return self.model_copy(update={"image": "real"})


class RunRecord(BaseModel):
    """Content of `run.json`."""

    model_config = ConfigDict(extra="forbid")

    schema_version: SchemaVersion = SCHEMA_VERSION
    run_id: str
    request: RunRequest
    benchmark: Benchmark
    model: Model
    method: Method
    deviations: list[str] = Field(default_factory=list)
    environment: dict[str, Any] = Field(default_factory=dict)
    command: str | None = None
    created_at: str

    def to_json(self) -> str:
        """Serialize as `run.json`: indented, newline at the end."""
        return self.model_dump_json(indent=1) + "\n"


def read_run(folder: Path) -> RunRecord:
    """Read `run.json`.

    Raises:
        BadInput: not a run folder, or an invalid file.
    """
    path = folder / "run.json"
    try:
        # Some editors start a UTF-8 file with a byte order mark.
        return RunRecord.model_validate_json(path.read_bytes().removeprefix(codecs.BOM_UTF8))
    except FileNotFoundError:
        raise BadInput(f"{folder}: not a run folder (it has no run.json). `medprobe eval --out` makes one.") from None
    except NotADirectoryError:
        raise BadInput(f"{folder}: not a run folder but a file.") from None
    except ValidationError as error:
        raise BadInput(f"{path}: not a run file: {first_validation_error(error)}.") from None


# --- values that stores refuse ---

METHOD_NAMES = ("mc", "gd", "ps", "ps_official", "ff")
EXTRACTIONS = ("ours", "official")
DATA_FIELDS = frozenset({"generation", "environment", "command"})
"""Fields that hold settings and measurements; all others hold names and sentences."""


def run_problems(run: RunRecord, most_bytes: int = MAX_FIELD_BYTES) -> Iterator[str]:
    """Yield every reason why a store refuses a run's description, regardless of its answers.

    Args:
        run: the record.
        most_bytes: limit on all fields together.
    """
    record = run.model_dump(mode="json")
    if problem := model_name_problem(run.model.name):
        yield problem
    if not FOLDER_NAME.fullmatch(run.benchmark.name):
        yield (
            f"benchmark name {clip(run.benchmark.name)}: must be letters, digits, dots and dashes, "
            "and start with a letter or digit"
        )
    # Every string, including the names of settings.
    for path, text in json_leaves(record):
        if isinstance(text, str) and (problem := text_problem(text, is_data=not DATA_FIELDS.isdisjoint(path))):
            yield f"{clip('.'.join(path))} {problem}"
    if problem := _time_problem(run.created_at):
        yield problem
    for is_wrong, problem in (*_method_checks(run), *_agreement_checks(run), *_model_checks(run)):
        if is_wrong:
            yield problem
    yield from size_problems(record, most_bytes)


_Problem = tuple[object, str]
"""Whether something is wrong with a record, and the message if it is."""


def _time_problem(created_at: str) -> str | None:
    try:
        created = datetime.fromisoformat(created_at)
    except ValueError:
        return f"created_at {clip(created_at)} is not a time (such as 2026-11-22T09:30:00+00:00)"
    # One day of tolerance: a time without a zone may be local time.
    if created.replace(tzinfo=created.tzinfo or UTC) > datetime.now(UTC) + timedelta(days=1):
        return f"created_at {clip(created_at)} is in the future: the machine's clock was wrong. Set it to the day of the run"
    return None


def _method_checks(run: RunRecord) -> list[_Problem]:
    method, judge, selection = run.method, run.method.judge or {}, run.benchmark.selection
    names = [judge.get(name) for name in ("prompt", "prompt_hash")]
    are_names = all(isinstance(name, str) and FOLDER_NAME.fullmatch(name) for name in names)
    judge_problem = model_name_problem(str(judge.get("model", "")))
    return [
        (method.name not in METHOD_NAMES, f"the method {clip(method.name)} is not one of {', '.join(METHOD_NAMES)}"),
        (
            method.extraction not in (None, *EXTRACTIONS),
            f"method.extraction {clip(method.extraction)}: must be {' or '.join(EXTRACTIONS)}",
        ),
        (
            method.judge is not None and not are_names,
            "method.judge must name the judge's model, prompt and prompt_hash",
        ),
        (method.judge is not None and judge_problem, f"method.judge: {judge_problem}"),
        (not 0 <= (method.shots or 0) <= MAX_ANSWERS, f"method.shots must be from 0 to {MAX_ANSWERS:,}"),
        (
            selection is not None and not selection.strip(),
            "benchmark.selection must describe what was asked, or be null for everything",
        ),
    ]


def _agreement_checks(run: RunRecord) -> list[_Problem]:
    """Compare the request, which decides what is asked, with the description that readers see."""
    request = run.request
    return [
        (
            requested != described,
            f"its request and its description differ: {field} {clip(requested)} and {clip(described)}",
        )
        for field, requested, described in (
            ("benchmark", request.benchmark, run.benchmark.name),
            ("split", request.split, run.benchmark.split),
            ("fingerprint", request.fingerprint, run.benchmark.fingerprint),
            ("method", request.method, run.method.name),
            ("samples", request.samples, run.method.samples or 1),
            ("image", request.image, run.method.image),
        )
    ]


def _model_checks(run: RunRecord) -> list[_Problem]:
    model, method = run.model, run.method
    # The recorded command counts as evidence, too, should the request have been edited.
    ran_baseline = run.request.model.startswith("baseline:") or _command_ran_a_baseline(run.command)
    is_model, is_person = model.responder == "model", model.kind == "human"
    is_sampled = (method.samples or 1) > 1 and not run.request.permute
    return [
        (
            model.parameters is not None and not 0 <= model.parameters < 1 << 53,
            "model.parameters must be a number of parameters, or null",
        ),
        (
            ran_baseline and is_model,
            f"responder {model.responder!r}: {clip(run.request.model)} is a baseline, which can only be added as one",
        ),
        (
            (model.kind == "baseline") == is_model,
            f"model kind {model.kind!r} and responder {model.responder!r}: 'baseline' means "
            "that no model answered (medprobe eval --model baseline:...)",
        ),
        (
            (is_person or not is_model) and (method.name != "mc" or method.judge is not None),
            "a baseline or a person chooses options directly: the method must be mc, without a judge",
        ),
        (
            is_person and (method.shots or is_sampled),
            "a person is shown no worked examples and answers each question once: omit --shots and --samples",
        ),
        (
            run.command is not None and not _is_quoted(run.command),
            f"the command {clip(run.command)} is not a shell-quoted medprobe command; set it to null",
        ),
    ]


def _is_quoted(command: str) -> bool:
    """Whether a command line runs medprobe and nothing else if it is pasted into a shell.

    All of its arguments must be quoted as `shlex.join` quotes them.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    return words[:1] == ["medprobe"] and shlex.join(words) == command


def _command_ran_a_baseline(command: str | None) -> bool:
    """Whether a command line runs a baseline, judged by the value of --model.

    The word "baseline:" in a name or path does not count.
    """
    try:
        words = shlex.split(command or "")
    except ValueError:  # unbalanced quotes
        words = (command or "").split()
    pairs = [*pairwise(words), *(word.split("=", 1) for word in words if "=" in word)]
    return any(option == "--model" and value.startswith("baseline:") for option, value in pairs)
