"""Report a sweep: one table of headline scores, failed tasks with reasons, and the command that resumes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dataset_builders.files import replace_file
from eval_harness.derive.metrics import HEADLINE_METRICS, NoScore, headline_score
from eval_harness.records.result import UNDELIVERED, Result
from eval_harness.store.formatting import format_interval, format_score
from eval_harness.store.results_table import tidy_table
from eval_harness.sweep.forecast import aligned
from eval_harness.sweep.tasks import SweepTask

TABLE = "results.csv"


def report(
    tasks: Sequence[SweepTask], results: Mapping[int, Result], errors: Mapping[int, str], command: str
) -> tuple[str, int]:
    """The table of every task with a result, then what is missing and why; and how many tasks are not done.

    `results`, `errors`: task number -> its result, or why it failed. `command`: what goes on with the sweep.
    """
    rows: list[tuple[str, ...]] = [
        ("task", "model", "benchmark", "method", "metric", "value", "95% interval", "n", "failed answers")
    ]
    failed: dict[str, list[SweepTask]] = {}
    notes = []
    for task in tasks:
        result = results.get(task.number)
        if result is not None:
            rows.append(_row(task, result))
            if count := _undelivered(result):
                again = shlex.join(["medprobe", *task.arguments(task.folder)])
                notes.append(f"task {task.number}: {count} answers failed; to ask them again: {again}")
        elif why := errors.get(task.number):
            failed.setdefault(why, []).append(task)
    lines = [aligned(rows)] if len(rows) > 1 else []
    lines += [f"failed: {_listed(group)}: {why}" for why, group in failed.items()]
    missing = len(tasks) - len(results)
    if missing:
        lines.append(f"{len(results)} of {len(tasks)} tasks are done. To go on: {command}")
    return "\n".join([*lines, *notes]), missing


def _listed(group: Sequence[SweepTask]) -> str:
    numbers = ", ".join(str(task.number) for task in group)
    task = group[0]
    return f"task {numbers} ({task.label}, {task.benchmark}, {task.how})" if len(group) == 1 else f"tasks {numbers}"


def _row(task: SweepTask, result: Result) -> tuple[str, ...]:
    metric = HEADLINE_METRICS[result.benchmark.family]
    score, found = result.scores[metric], headline_score(result)
    return (
        str(task.number),
        task.label,
        result.benchmark.name,
        task.how,
        metric,
        str(found) if isinstance(found, NoScore) else format_score(found.value),
        format_interval(score),
        str(score.n),
        str(_undelivered(result)),
    )


def _undelivered(result: Result) -> int:
    return sum(result.statuses.get(status, 0) for status in UNDELIVERED)


def write_table(results: Iterable[Result], out: Path) -> Path | None:
    """Every score of these results, as `medprobe results` prints them; None without any."""
    found = list(results)
    if not found:
        return None
    replace_file(out / TABLE, tidy_table(found).to_csv(index=False).encode())
    return out / TABLE
