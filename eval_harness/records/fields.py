"""Checks of the fields of a result on which no number depends: the same before a run, and for a submission."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from dataset_builders.sources.problems import clip
from eval_harness.records.limits import LARGEST_SPLIT, wrong_free_fields
from eval_harness.records.result import STATUSES, Result

METHODS = ("mc", "gd", "ps", "ps_official", "ff")
MOST_SHOTS = LARGEST_SPLIT


def wrong_provenance(result: Result, reproduced: bool = False) -> list[str]:
    """What may not be said of a result: who verified it (an owner may: `reproduced`), that a baseline or a part is the whole."""
    wrong = []
    if result.kind != "measured":
        wrong.append(f"kind {result.kind!r}: only measured results with their answers can be submitted")
    if result.provenance != "submitted" and not (reproduced and result.provenance == "reproduced"):
        wrong.append(
            f"provenance {result.provenance!r}: only who runs a model again may say so; a submission is 'submitted'"
        )
    if _ran_a_baseline(result.command) and result.model.kind != "baseline":
        wrong.append(
            f"model kind {result.model.kind!r}: the command ran a baseline, which can only land marked as 'baseline'"
        )
    withheld = any(line.lower().startswith("the image was withheld") for line in result.deviations)
    if withheld and result.model.kind != "baseline":
        wrong.append(f"model kind {result.model.kind!r}: a run without images can only land marked as 'baseline'")
    if result.method.extraction not in ("ours", "official"):
        wrong.append(f"method.extraction {clip(result.method.extraction)}: must be ours or official")
    return wrong


def _ran_a_baseline(command: str | None) -> bool:
    """Whether a command line asked a baseline: the value of --model, not a word in a name or a path."""
    try:
        words = shlex.split(command or "")
    except ValueError:
        words = (command or "").split()
    pairs = [*pairwise(words), *(word.split("=", 1) for word in words if "=" in word)]
    return any(option == "--model" and value.startswith("baseline:") for option, value in pairs)


def wrong_fields(result: Result) -> Iterator[str]:
    """What cannot stand in the fields on which no number depends: none of it is anything that `eval` writes."""
    try:
        made = datetime.fromisoformat(result.created_at)
        if made.replace(tzinfo=made.tzinfo or UTC) > datetime.now(UTC) + timedelta(days=1):
            yield (
                f"created_at {clip(result.created_at)} is in the future: the clock of the machine that ran it was wrong. "
                "Write the day of the run there"
            )
    except ValueError:
        yield f"created_at {clip(result.created_at)} is no time (such as 2026-11-22T09:30:00+00:00)"
    if result.method.name not in METHODS:
        yield f"the method {clip(result.method.name)} is none of {', '.join(METHODS)}"
    if result.source is not None or result.run_ids is not None:
        yield "names a publication or other runs as its source, which a measured result has not"
    if not 0 <= (result.method.shots or 0) <= MOST_SHOTS:
        yield f"method.shots must be from 0 to {MOST_SHOTS:,}"
    if result.model.parameters is not None and not 0 <= result.model.parameters < 1 << 53:
        yield "model.parameters must be a number of parameters, or null"
    if result.benchmark.selection is not None and not result.benchmark.selection.strip():
        yield "benchmark.selection must say in words what was asked, or be null for everything"
    unknown = [name for name in result.statuses if name not in STATUSES]
    if unknown:
        yield f"counts the status {clip(unknown[0])}, which is none of {', '.join(STATUSES)}"
    if any(count < 0 for count in result.statuses.values()):
        yield "counts a status fewer than 0 times"
    yield from wrong_free_fields(result.model_dump(mode="json", exclude={"scores", "breakdown"}))
