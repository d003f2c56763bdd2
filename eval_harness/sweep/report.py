"""Report a sweep: a table of headline scores, failed tasks and reasons, the command to resume."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dataset_builders.files import replace_file
from eval_harness.derive.metrics import HEADLINE_METRICS, NoScore, headline_score
from eval_harness.records.result import UNDELIVERED, Result
from eval_harness.store.formatting import format_interval, format_score
from eval_harness.store.results_table import tidy_table
from eval_harness.sweep.forecast import align_columns
from eval_harness.sweep.tasks import SweepTask

SCORES_FILE = "results.csv"


def format_report(
    tasks: Sequence[SweepTask], results: Mapping[int, Result], errors: Mapping[int, str], command: str
) -> tuple[str, int]:
    """Format the table of finished tasks, followed by what failed and why.

    Args:
        tasks: Every task of the sweep.
        results: Task number -> its result.
        errors: Task number -> why it failed.
        command: The command that resumes the sweep.

    Returns:
        (report, number of tasks that are not done).
    """
    rows: list[tuple[str, ...]] = [
        ("task", "model", "benchmark", "method", "metric", "value", "95% interval", "n", "failed answers")
    ]
    tasks_by_error: dict[str, list[SweepTask]] = {}
    notes = []
    for task in tasks:
        result = results.get(task.number)
        if result is not None:
            rows.append(_row(task, result))
            # A finished task may still contain failed answers.
            if count := _undelivered_count(result):
                retry = shlex.join(["medprobe", *task.arguments(task.folder)])
                notes.append(f"task {task.number}: {count} answers failed; to ask them again: {retry}")
        elif error := errors.get(task.number):
            tasks_by_error.setdefault(error, []).append(task)

    lines = [align_columns(rows)] if len(rows) > 1 else []
    lines += [f"failed: {_describe_tasks(group)}: {error}" for error, group in tasks_by_error.items()]
    missing = len(tasks) - len(results)
    if missing:
        lines.append(f"{len(results)} of {len(tasks)} tasks are done. To resume: {command}")
    return "\n".join([*lines, *notes]), missing


def _describe_tasks(tasks: Sequence[SweepTask]) -> str:
    numbers = ", ".join(str(task.number) for task in tasks)
    task = tasks[0]
    details = f"({task.label}, {task.benchmark}, {task.method_label})"
    return f"task {numbers} {details}" if len(tasks) == 1 else f"tasks {numbers}"


def _row(task: SweepTask, result: Result) -> tuple[str, ...]:
    metric = HEADLINE_METRICS[result.benchmark.family]
    score, headline = result.scores[metric], headline_score(result)
    return (
        str(task.number),
        task.label,
        result.benchmark.name,
        task.method_label,
        metric,
        str(headline) if isinstance(headline, NoScore) else format_score(headline.value),
        format_interval(score),
        str(score.n),
        str(_undelivered_count(result)),
    )


def _undelivered_count(result: Result) -> int:
    return sum(result.statuses.get(status, 0) for status in UNDELIVERED)


def write_scores_csv(results: Iterable[Result], out: Path) -> Path | None:
    """Write every score of some results as CSV, in the columns of `medprobe results`.

    Args:
        results: The results.
        out: Folder of the file `SCORES_FILE`, which is replaced.

    Returns:
        The file's path; None if there are no results.
    """
    finished = list(results)
    if not finished:
        return None
    replace_file(out / SCORES_FILE, tidy_table(finished).to_csv(index=False).encode())
    return out / SCORES_FILE
