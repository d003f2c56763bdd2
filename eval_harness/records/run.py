"""The record of a run (`run.json`).

It holds the run's request and all parts of a result that cannot be derived from the answers.
"""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dataset_builders.errors import BadInput, first_validation_error
from eval_harness.records.result import SCHEMA_VERSION, Benchmark, Images, Method, Model, SchemaVersion


class RunRequest(BaseModel):
    """Everything that determines a run's answers. Runs share a folder only if their requests are
    equal.

    `data` is the location of the questions as the user gave it; `fingerprint` identifies their
    content. `model_digest` identifies the model: the digest of the local file, folder or code that
    answers, or a commit on the Hub.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: str
    data: str
    split: str
    fingerprint: str
    model: str
    method: str
    prompt: str | None
    samples: int
    generation: dict[str, Any]
    branches: tuple[str, ...] = ()
    facets: tuple[str, ...] = ()
    limit: int | None = None
    shots: int = 0
    permute: bool = False
    image: Images = "real"
    model_digest: str | None = None

    @property
    def of_arms(self) -> RunRequest:
        """The request with the real images, which is equal for a run and its arms."""
        return self.model_copy(update={"image": "real"})


class RunRecord(BaseModel):
    """Content of `run.json`."""

    model_config = ConfigDict(extra="forbid")

    schema_version: SchemaVersion = SCHEMA_VERSION
    run_id: str
    request: RunRequest
    benchmark: Benchmark
    model: Model
    method: Method
    deviations: list[str] = Field(default_factory=list)
    environment: dict[str, Any] = Field(default_factory=dict)
    command: str | None = None
    created_at: str

    def to_json(self) -> str:
        """Serialize as `run.json`: indented, newline at the end."""
        return self.model_dump_json(indent=1) + "\n"


def read_run(folder: Path) -> RunRecord:
    """Read `run.json`.

    Raises:
        BadInput: not a run folder, or an invalid file.
    """
    path = folder / "run.json"
    try:
        # Some editors start a UTF-8 file with a byte order mark.
        return RunRecord.model_validate_json(path.read_bytes().removeprefix(codecs.BOM_UTF8))
    except FileNotFoundError:
        raise BadInput(f"{folder}: not a run folder (it has no run.json). `medprobe eval --out` makes one.") from None
    except NotADirectoryError:
        raise BadInput(f"{folder}: not a run folder but a file.") from None
    except ValidationError as error:
        raise BadInput(f"{path}: not a run file: {first_validation_error(error)}.") from None
