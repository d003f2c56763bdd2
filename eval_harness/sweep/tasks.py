"""The sweep file: which models, benchmarks and methods; a task is one of each, with the options of `medprobe eval`. And the
script that runs the tasks as a Slurm array, which is printed.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dataset_builders.errors import BadInput, first_validation_error
from eval_harness.records.names import model_slug
from eval_harness.records.result import Result, read_result
from eval_harness.runs.config import EvalConfig, answer_changing_model_args, build_config, validate_options

EXAMPLE = "models: [org/model, 'openai:NAME'], benchmarks: [mediconfusion, probmed], methods: [mc, gd]"
AXES = (("models", "model"), ("benchmarks", "benchmark"), ("methods", "method"), ("images", "image"))
NOT_IN_ANSWERS = (
    "batch_size",
    "cache",
    "in_flight",
    "name",
    "no_look",
    "price",
    "send_to_provider",
    "timeout",
    "trust_remote_code",
    "wait_server",
)
"""Options that may change while a sweep goes on: they decide no answer, so they are no part of a task's folder."""


@dataclass(frozen=True)
class SweepTask:
    """One run of a sweep. `number` counts from 1; `options` are those of `medprobe eval`, by name, where they were given."""

    number: int
    options: Mapping[str, Any]
    out: Path

    @property
    def model(self) -> str:
        return str(self.options["model"])

    @property
    def benchmark(self) -> str:
        return str(self.options["benchmark"])

    @property
    def method(self) -> str:
        return str(self.options.get("method", "mc"))

    @property
    def how(self) -> str:
        """How questions are asked, as tables say it: the method, and the images where they are not the right ones."""
        image = str(self.options.get("image", "real"))
        return self.method if image == "real" else f"{self.method}, {image} images"

    @property
    def label(self) -> str:
        """Display name of the model in tables."""
        return str(self.options.get("name") or label_of(self.model))

    @cached_property
    def folder(self) -> Path:
        """The run folder. Its name has a digest of every option that decides an answer."""
        deciding = {name: value for name, value in self.options.items() if name not in NOT_IN_ANSWERS}
        if "model_args" in deciding:
            deciding["model_args"] = answer_changing_model_args(str(deciding["model_args"]))
        digest = hashlib.sha256(json.dumps(deciding, sort_keys=True, default=str).encode()).hexdigest()[:8]
        return self.out / "-".join([Path(self.benchmark).name, model_slug(self.label), self.method, digest])

    @property
    def config(self) -> EvalConfig:
        """The run as `medprobe eval` makes it. Raises BadInput if the options cannot be used."""
        return build_config({**self.options, "out": self.folder}, self.arguments(self.folder))

    def arguments(self, out: Path) -> list[str]:
        """The arguments of the `medprobe eval` that is this task."""
        found = ["eval", self.benchmark]
        for name, value in {**self.options, "out": out}.items():
            option = f"--{name.replace('_', '-')}"
            if name == "benchmark" or value is None or value is False:
                continue
            if value is True:
                found.append(option)
            else:
                for each in value if isinstance(value, list) else [value]:
                    found += [option, str(each)]
        return found

    @property
    def result(self) -> Result | None:
        """Its result; None where none is written, or none that can be read: it is made once more from the answers."""
        try:
            return read_result(self.folder / "result.json")
        except BadInput:
            return None


def label_of(model: str) -> str:
    """A `--model` argument as it is called in tables: a folder by its name."""
    kind, _, rest = model.partition(":")
    folder = Path(rest if kind == "vllm" else model)
    return f"{kind}:{folder.name}" if kind == "vllm" and folder.is_dir() else folder.name if folder.is_dir() else model


class _SweepFile(BaseModel):
    """Contents of a sweep file; an entry of a list is a text, or options with that text among them."""

    model_config = ConfigDict(extra="forbid")

    models: list[str | dict[str, Any]] = Field(min_length=1)
    benchmarks: list[str | dict[str, Any]] = Field(min_length=1)
    methods: list[str | dict[str, Any]] = Field(["mc"], min_length=1)
    images: list[str | dict[str, Any]] = Field(["real"], min_length=1)
    options: dict[str, Any] = {}


def read_sweep(path: Path, out: Path) -> list[SweepTask]:
    """The tasks of a sweep file, models first. Raises BadInput naming the entry that is wrong."""
    import yaml

    try:
        document = _SweepFile.model_validate(yaml.safe_load(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error}). A sweep file has, e.g., {EXAMPLE}.") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: not YAML ({' '.join(str(error).split())}). Write, e.g., {EXAMPLE}.") from None
    except ValidationError as error:
        raise BadInput(f"{path}: {first_validation_error(error)}. Write, e.g., {EXAMPLE}.") from None
    shared = _entry(path, "options", document.options, None)
    axes = [
        [_entry(path, f"{key}[{n}]", entry, name) for n, entry in enumerate(getattr(document, key), 1)]
        for key, name in AXES
    ]
    tasks: dict[Path, SweepTask] = {}
    for number, (model, benchmark, method, image) in enumerate(product(*axes), 1):
        task = SweepTask(number, {**shared, **benchmark, **model, **method, **image}, out)
        if task.folder in tasks:
            raise BadInput(
                f"{path}: tasks {tasks[task.folder].number} and {number} are the same run. Remove one of them."
            )
        try:
            task.config  # noqa: B018  # raises for values that no run takes
        except BadInput as error:
            raise BadInput(f"{path}: {task.model} on {task.benchmark}: {error}") from None
        tasks[task.folder] = task
    return list(tasks.values())


def _entry(path: Path, where: str, entry: str | dict[str, Any], name: str | None) -> dict[str, Any]:
    """The options of one entry: a text stands for the option `name`. Raises BadInput if one is unknown or of another type."""
    options = {str(name): entry} if isinstance(entry, str) else entry
    taken = {each for _, each in AXES if each != name} | {"out"}
    try:
        if name and name not in options:
            raise BadInput(f"a mapping with {name!r} is needed.")
        if wrong := taken & {option.replace("-", "_") for option in options}:
            raise BadInput(f"{min(wrong)}: not an option that a sweep takes here.")
        return validate_options(options)
    except BadInput as error:
        raise BadInput(f"{path}: {where}: {error}") from None


def task_named(tasks: Sequence[SweepTask], name: str, path: Path) -> SweepTask:
    """The task with this number, or with a run folder of this name. Raises BadInput if the sweep file `path` has none."""
    found = next((task for task in tasks if name in (str(task.number), task.folder.name)), None)
    if found is None:
        raise BadInput(
            f"--task {name}: {path} has no such task, only 1 to {len(tasks)}. The file may have changed since."
        )
    return found


def slurm_script(tasks: Sequence[SweepTask], sweep_file: Path, out: Path, first: int | None = None) -> str:
    """A batch script for `sbatch`: an array with one element per task. The folders must be shared by the nodes.

    It names each task by its run folder, since its number is another one when the sweep file has changed meanwhile.
    """
    limit = ["--first", str(first)] if first else []
    command = shlex.join(["medprobe", "sweep", str(sweep_file), "--out", str(out), *limit])
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --job-name={shlex.quote(f'medprobe-{sweep_file.stem}')}",
            f"#SBATCH --array={','.join(str(task.number) for task in tasks)}",
            f"#SBATCH --output={shlex.quote(f'{out}/slurm-%A_%a.log')}",
            "#SBATCH --requeue",
            "# Add what a model needs: --gres=gpu:1, --mem, --time, --partition.",
            f"cd {shlex.quote(str(Path.cwd()))}",
            "TASKS=(",
            *(f"    [{task.number}]={shlex.quote(task.folder.name)}" for task in tasks),
            ")",
            f'srun {command} --task "${{TASKS[$SLURM_ARRAY_TASK_ID]}}"',
        ]
    )
