"""What an exported task is of: a dataset's repository and split, and the task's name in other harnesses; and the task module for lighteval,
which calls `lighteval_tasks.py`. Needs no other harness.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.hub.repository import Repository, open_repository
from eval_harness.records.selection import Selection, select_questions


@dataclass(frozen=True)
class Exported:
    """The questions to export, and where they are."""

    repository: Repository
    chosen: Selection

    @property
    def task(self) -> str:
        """The task's name, one that is a Python module's too."""
        return f"medprobe_{re.sub(r'[^A-Za-z0-9]+', '_', self.repository.name)}"

    @property
    def path(self) -> str:
        """The dataset as `datasets.load_dataset` takes it, from any folder."""
        folder = Path(str(self.repository.data))
        return str(folder.resolve()) if folder.is_dir() else str(self.repository.data)


def to_export(data: str, split: str | None) -> Exported:
    """The questions of a dataset folder or Hub repository. Raises BadInput as `medprobe eval` does, and for a dataset without images."""
    repository = open_repository(data)
    chosen = select_questions(repository.name, data, split)
    if not repository.has_images:
        raise BadInput(f"{data}: holds no images (a text-only build). Build it again without --text-only.")
    return Exported(repository, chosen)


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
