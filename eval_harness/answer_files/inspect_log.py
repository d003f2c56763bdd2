"""Read a log of inspect-ai, a `.eval` file or its JSON form, by `inspect_ai.log`. Only on the submitter's machine; needs the extra
`inspect`.

A log of our tasks (`inspect_tasks.py`) says benchmark, dataset and split itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dataset_builders.errors import BadInput, clip
from dataset_builders.extras import require
from dataset_builders.fingerprints import fingerprint_questions
from eval_harness.answer_files.predictions import FileDescription
from eval_harness.answer_files.untrusted import ProblemList
from eval_harness.records.finish_reasons import normalize_finish_reason

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.model import ModelOutput

SKIPPED_SAMPLE_FIELDS = {"messages", "events", "store"}
"""Fields of a sample that are not loaded."""


def recognises(path: Path) -> bool:
    """True if a file is a log of inspect-ai: `.eval`, or JSON with what its logs begin with."""
    if path.suffix.lower() == ".eval":
        return True
    with path.open("rb") as file:
        head = file.read(4096).lstrip()
    return head.startswith(b"{") and all(name in head for name in (b'"eval"', b'"version"', b'"status"'))


def read_header(path: Path) -> EvalLog:
    """The log without its samples. Raises BadInput for a damaged log, and one that was not finished."""
    require("inspect_ai")
    from inspect_ai.log import read_eval_log

    try:
        log = read_eval_log(path, header_only=True)
    except Exception as error:  # whatever inspect-ai raises for a file that is none of its logs
        raise _damaged(path, error) from None
    if log.status != "success":
        raise BadInput(
            f"{path}: this evaluation did not finish (its status is {clip(log.status)}). Finish it with "
            "`inspect eval-retry`, then give the new log."
        )
    return log


def iter_samples(path: Path) -> Iterator[EvalSample]:
    """The samples of a log. Raises BadInput for a damaged one."""
    from inspect_ai.log import read_eval_log_samples

    samples = read_eval_log_samples(path, resolve_attachments=True, exclude_fields=SKIPPED_SAMPLE_FIELDS)
    try:
        yield from samples
    except Exception as error:  # as above
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> BadInput:
    why = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    return BadInput(
        f"{path}: is a damaged log of inspect-ai ({why}). Give the log that `inspect eval` wrote, a .eval file or its JSON form."
    )


def describe(path: Path) -> FileDescription:
    """The log's description; our tasks name benchmark, dataset and split. Raises BadInput as `read_header` does, and for a partial log."""
    log = read_header(path)
    ours = _task_metadata(log)
    left_out = ours.get("left_out") or ("inspect's --limit" if log.eval.config.limit is not None else None)
    if left_out:
        raise BadInput(
            f"{path}: this evaluation asked a part ({clip(left_out)}). Only a run of the whole split can be scored."
        )
    return FileDescription(ours.get("benchmark"), log.eval.model or None, ours.get("data"), ours.get("split"))


def _task_metadata(log: EvalLog) -> dict[str, Any]:
    """The metadata that our tasks write."""
    found = (log.eval.metadata or {}).get("medprobe")
    return found if isinstance(found, dict) else {}


def iter_answers(path: Path, questions: pd.DataFrame, found: ProblemList) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(where, question id, journal record) of every sample. A log of another version of the dataset is noted in `found`."""
    mark = _task_metadata(read_header(path)).get("fingerprint")
    if mark is not None and mark != fingerprint_questions(questions):
        found.add(
            str(path), f"asked other questions than this dataset has (fingerprint {clip(mark)}): another version of it"
        )
        return
    options_of = dict(zip(questions["question_id"].astype(str), questions["options"], strict=True))
    for number, sample in enumerate(iter_samples(path), 1):
        where, identity = f"{path}, sample {number}", sample.metadata.get("question_id", sample.id)
        known = options_of.get(str(identity))
        if known is not None and sample.choices is not None and sample.choices != list(known):
            found.add(
                where,
                "shows other options, or in another order, than the dataset has: answers by letter mean something else",
            )
            continue
        record = {"sample": sample.epoch - 1, "target": sample.target}
        yield where, identity, record | parse_output(sample.output, sample.error is not None)


def parse_output(output: ModelOutput, failed: bool) -> dict[str, Any]:
    """Parse a model's output: response, status (failed, refused, answered), finish_reason, reasoning, seconds."""
    first = output.choices[0] if output.choices else None
    if failed or output.error is not None or first is None:
        nothing = dict.fromkeys(("response", "finish_reason", "reasoning"))
        return nothing | {"status": "failed", "seconds": output.time}
    content = first.message.content
    reasoning = [part.reasoning for part in content if part.type == "reasoning"] if isinstance(content, list) else []
    reason = normalize_finish_reason(first.stop_reason)
    return {
        "response": first.message.text,
        "status": "refused" if reason == "content_filter" else "answered",
        "finish_reason": reason,
        "reasoning": "\n".join(reasoning) or None,
        "seconds": output.time,
    }
