"""Check a `run.json` for values that stores refuse.

The checks run before the first question of `eval`, and when a store examines a submission.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from dataset_builders.errors import clip
from eval_harness.records.limits import MAX_ANSWERS, MAX_FIELD_BYTES, json_leaves, size_problems
from eval_harness.records.names import FOLDER_NAME, model_name_problem, text_problem
from eval_harness.records.result import Model
from eval_harness.records.run import RunRecord

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
    if problem := model_name_problem(run.model.name):
        yield problem
    if not FOLDER_NAME.fullmatch(run.benchmark.name):
        yield (
            f"benchmark name {clip(run.benchmark.name)}: must be letters, digits, dots and dashes, "
            "and start with a letter or digit"
        )
    yield from _wrong_texts(run)
    yield from _wrong_fields(run)
    yield from _wrong_model(run)
    yield from size_problems(run.model_dump(mode="json"), most_bytes)


def _wrong_texts(run: RunRecord) -> Iterator[str]:
    """Apply `text_problem` to every string in the record, including the names of settings."""
    for path, text in json_leaves(run.model_dump(mode="json")):
        if isinstance(text, str) and (wrong := text_problem(text, is_data=not DATA_FIELDS.isdisjoint(path))):
            yield f"{clip('.'.join(path))} {wrong}"


def _wrong_fields(run: RunRecord) -> Iterator[str]:
    method = run.method
    try:
        created = datetime.fromisoformat(run.created_at)
        # One day of tolerance: a time without a zone may be local time.
        if created.replace(tzinfo=created.tzinfo or UTC) > datetime.now(UTC) + timedelta(days=1):
            yield (
                f"created_at {clip(run.created_at)} is in the future: the machine's clock was "
                "wrong. "
                "Set it to the day of the run"
            )
    except ValueError:
        yield f"created_at {clip(run.created_at)} is not a time (such as 2026-11-22T09:30:00+00:00)"
    if method.name not in METHOD_NAMES:
        yield f"the method {clip(method.name)} is not one of {', '.join(METHOD_NAMES)}"
    if method.extraction not in (None, *EXTRACTIONS):
        yield f"method.extraction {clip(method.extraction)}: must be {' or '.join(EXTRACTIONS)}"
    if method.judge is not None and not all(
        isinstance(method.judge.get(name), str) and FOLDER_NAME.fullmatch(method.judge[name])
        for name in ("prompt", "prompt_hash")
    ):
        yield "method.judge must name the judge's model, prompt and prompt_hash"
    if method.judge is not None and (wrong := model_name_problem(str(method.judge.get("model", "")))):
        yield f"method.judge: {wrong}"
    if not 0 <= (method.shots or 0) <= MAX_ANSWERS:
        yield f"method.shots must be from 0 to {MAX_ANSWERS:,}"
    if run.benchmark.selection is not None and not run.benchmark.selection.strip():
        yield "benchmark.selection must describe what was asked, or be null for everything"
    # The request decides what is asked, the description is what readers see: they must agree.
    request = run.request
    for field, requested, described in (
        ("benchmark", request.benchmark, run.benchmark.name),
        ("split", request.split, run.benchmark.split),
        ("fingerprint", request.fingerprint, run.benchmark.fingerprint),
        ("method", request.method, method.name),
        ("samples", request.samples, method.samples or 1),
        ("image", request.image, method.image),
    ):
        if requested != described:
            yield f"its request and its description differ: {field} {clip(requested)} and {clip(described)}"


def _wrong_model(run: RunRecord) -> Iterator[str]:
    model: Model = run.model
    if model.parameters is not None and not 0 <= model.parameters < 1 << 53:
        yield "model.parameters must be a number of parameters, or null"
    # The recorded command counts as evidence, too, should the request have been edited.
    ran_baseline = run.request.model.startswith("baseline:") or _command_ran_a_baseline(run.command)
    if ran_baseline and model.responder == "model":
        yield f"responder {model.responder!r}: {clip(run.request.model)} is a baseline, which can only be added as one"
    if (model.kind == "baseline") != (model.responder != "model"):
        yield (
            f"model kind {model.kind!r} and responder {model.responder!r}: 'baseline' means "
            "that no model answered (medprobe eval --model baseline:...)"
        )
    is_person = model.kind == "human"
    if (is_person or model.responder != "model") and (run.method.name != "mc" or run.method.judge is not None):
        yield "a baseline or a person chooses options directly: the method must be mc, without a judge"
    if is_person and (run.method.shots or ((run.method.samples or 1) > 1 and not run.request.permute)):
        yield "a person is shown no worked examples and answers each question once: omit --shots and --samples"
    if run.command is not None and not _is_quoted(run.command):
        yield f"the command {clip(run.command)} is not a shell-quoted medprobe command; set it to null"


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
