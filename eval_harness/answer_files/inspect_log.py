"""Read an inspect-ai log, a `.eval` file or its JSON form, with `inspect_ai.log`.

Runs only on the submitter's machine; needs the extra `inspect`. Logs of our own tasks
(`inspect_tasks.py`) name their benchmark, dataset and split.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dataset_builders.errors import BadInput, clip, first_line, require
from dataset_builders.fingerprints import fingerprint_questions
from eval_harness.answer_files.untrusted import ProblemList
from eval_harness.records.request import normalize_finish_reason

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.model import ModelOutput

Description = tuple[str | None, str | None, str | None, str | None]
"""Benchmark, model, dataset and split; None if unknown."""
SKIPPED_SAMPLE_FIELDS = {"messages", "events", "store"}
"""Sample fields that are not loaded: large, and not needed for scoring."""


def recognises(path: Path) -> bool:
    """Return True for an inspect-ai log: a `.eval` file, or JSON with the first fields of a log."""
    if path.suffix.lower() == ".eval":
        return True
    with path.open("rb") as file:
        head = file.read(4096).lstrip()
    return head.startswith(b"{") and all(name in head for name in (b'"eval"', b'"version"', b'"status"'))


def read_header(path: Path) -> "EvalLog":
    """Read a log without its samples.

    Raises:
        BadInput: If the log is damaged, or the evaluation did not finish.
    """
    require("inspect_ai")
    from inspect_ai.log import read_eval_log

    try:
        log = read_eval_log(path, header_only=True)
    except Exception as error:  # inspect-ai raises various exceptions for files that are not logs
        raise _damaged(path, error) from None

    if log.status != "success":
        raise BadInput(
            f"this evaluation did not finish (its status is {clip(log.status)}). Finish it with "
            "`inspect eval-retry`, then give the new log.",
            path,
        )

    return log


def iter_samples(path: Path) -> "Iterator[EvalSample]":
    """Yield the samples of a log.

    Raises:
        BadInput: If the log is damaged.
    """
    from inspect_ai.log import read_eval_log_samples

    samples = read_eval_log_samples(path, resolve_attachments=True, exclude_fields=SKIPPED_SAMPLE_FIELDS)
    try:
        yield from samples
    except Exception as error:  # see read_header
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> BadInput:
    """Make the error for a log that cannot be read."""
    reason = first_line(error) or type(error).__name__
    return BadInput(
        f"damaged inspect-ai log ({reason}). Give the log that `inspect eval` wrote, a .eval file or its JSON form.",
        path,
    )


def describe(path: Path) -> Description:
    """Return the benchmark, model, dataset and split of a log.

    Logs of other tasks than ours give only the model.

    Raises:
        BadInput: If the log is damaged, unfinished, or covers a part of the split.
    """
    log = read_header(path)
    metadata = _task_metadata(log)
    omitted_part = metadata.get("left_out") or ("inspect's --limit" if log.eval.config.limit is not None else None)
    if omitted_part:
        raise BadInput(
            f"this evaluation covers only a part ({clip(omitted_part)}). Only a run of the whole split can be scored.",
            path,
        )

    return metadata.get("benchmark"), log.eval.model or None, metadata.get("data"), metadata.get("split")


def _task_metadata(log: "EvalLog") -> dict[str, Any]:
    """Return the metadata that our tasks write; empty for other logs."""
    metadata = (log.eval.metadata or {}).get("medprobe")
    return metadata if isinstance(metadata, dict) else {}


def iter_answers(
    path: Path, questions: pd.DataFrame, problems: ProblemList
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield the answer of every sample.

    Args:
        path: The log.
        questions: The questions of the split.
        problems: Receives an entry if the log is of another dataset version or options differ.

    Yields:
        (location, question id, journal record with `target`).
    """
    fingerprint = _task_metadata(read_header(path)).get("fingerprint")
    if fingerprint is not None and fingerprint != fingerprint_questions(questions):
        problems.add(None, f"asked questions of another version of this dataset (fingerprint {clip(fingerprint)})")
        return

    options_by_id = dict(zip(questions["question_id"].astype(str), questions["options"], strict=True))
    # inspect-ai may reorder options (shuffle): letters are only valid in the dataset's order.
    for number, sample in enumerate(iter_samples(path), 1):
        location, question_id = f"sample {number}", sample.metadata.get("question_id", sample.id)
        expected_options = options_by_id.get(str(question_id))
        if expected_options is not None and sample.choices is not None and sample.choices != list(expected_options):
            problems.add(
                location,
                "its options or their order differ from the dataset's, so answer letters would mean something else",
            )
            continue
        # Epochs count from 1, our samples from 0.
        record = {"sample": sample.epoch - 1, "target": sample.target}
        yield location, question_id, record | parse_output(sample.output, sample.error is not None)


def parse_output(output: "ModelOutput", failed: bool) -> dict[str, Any]:
    """Parse a model's output.

    Args:
        output: The output of one sample.
        failed: True if the sample ended with an error.

    Returns:
        Journal fields `response`, `status` (failed, refused or answered), `finish_reason`,
            `reasoning`, `seconds`.
    """
    choice = output.choices[0] if output.choices else None
    if failed or output.error is not None or choice is None:
        empty_fields = dict.fromkeys(("response", "finish_reason", "reasoning"))
        return empty_fields | {"status": "failed", "seconds": output.time}

    content = choice.message.content
    reasoning = [part.reasoning for part in content if part.type == "reasoning"] if isinstance(content, list) else []
    reason = normalize_finish_reason(choice.stop_reason)
    return {
        "response": choice.message.text,
        "status": "refused" if reason == "content_filter" else "answered",
        "finish_reason": reason,
        "reasoning": "\n".join(reasoning) or None,
        "seconds": output.time,
    }
