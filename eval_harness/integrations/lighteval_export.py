"""Writes a dataset's task module for lighteval; what it calls stands in `lighteval_tasks.py`. Needs no lighteval."""

from __future__ import annotations

from pathlib import Path

from dataset_builders.files import replace_file
from eval_harness.integrations.exported import to_export


def export(data: str, split: str | None, out: Path) -> Path:
    """Write the module of a dataset's task into the folder `out`; returns it. It is the task and the model at once: lighteval takes both
    from files. Raises BadInput as `medprobe eval` does."""
    found = to_export(data, split)
    repository = found.repository
    arguments = (found.task, repository.family, found.path, repository.revision, found.chosen.split)
    lines = [
        f'"""Written by `medprobe export-lighteval`: the task {found.task}, and the model that lighteval asks."""',
        "",
        "from eval_harness.integrations.lighteval_tasks import MedprobeModel, table  # noqa: F401",
        "",
        f"TASKS_TABLE = table{arguments!r}",
    ]
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{found.task}.py"
    replace_file(path, ("\n".join(lines) + "\n").encode())
    return path
