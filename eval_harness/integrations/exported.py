"""The dataset, split and name of a task that is exported to another harness. Needs no other harness."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dataset_builders.errors import BadInput
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
