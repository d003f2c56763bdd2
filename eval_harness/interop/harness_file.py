"""Shared by the harnesses: what a file says of itself and of an answer, and the questions of an exported task."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import Repository, open_repository
from dataset_builders.schema import LETTERS
from eval_harness.records.selection import Selection, select_questions

FAILED = ("Failed to obtain answer via API", "[LMMS_EVAL_REQUEST_FAILED")
"""What is stored in place of an answer that never came."""


@dataclass(frozen=True)
class Described:
    """`harness`: its name and version, where the file says it. `benchmark`, `model`, `data`, `split`: None where it does not say."""

    harness: str
    benchmark: str | None = None
    model: str | None = None
    data: str | None = None
    split: str | None = None


def letters_of(answer: Sequence[int]) -> str:
    """The key of a question as harnesses write it: "B", "BC"."""
    return "".join(LETTERS[int(index)] for index in answer)


def record_of(said: Any, sample: int = 0) -> dict[str, Any]:
    """The journal record of an answer as a file has it; of lists in one another, their first text."""
    while isinstance(said, list) and said:
        said = said[0]
    failed = not isinstance(said, str) or said.startswith(FAILED)
    status = "failed" if failed else "answered"
    return {"response": None if failed else said, "status": status, "sample": sample, "seconds": None}


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
