"""Read a sweep file (models, benchmarks, methods), make its tasks, write a Slurm script.

A task is one model on one benchmark with one method, with the options of `medprobe eval`.
"""

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

EXAMPLE_SWEEP = "models: [org/model, 'openai:NAME'], benchmarks: [mediconfusion, probmed], methods: [mc, gd]"
AXES = (("models", "model"), ("benchmarks", "benchmark"), ("methods", "method"), ("images", "image"))
"""List in the sweep file, and the option of `medprobe eval` that each of its entries sets."""
NON_DECIDING_OPTIONS = (
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
"""Options that affect no answer. They may change mid-sweep, as a folder's digest omits them."""


@dataclass(frozen=True)
class SweepTask:
    """One run of a sweep."""

    number: int
    """Position in the sweep, from 1."""
    options: Mapping[str, Any]
    """Options of `medprobe eval` that the sweep file sets, by name."""
    out: Path
    """Folder of the sweep's run folders."""

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
    def method_label(self) -> str:
        """The method as shown in tables, with the kind of images if they are not the real ones."""
        image = str(self.options.get("image", "real"))
        return self.method if image == "real" else f"{self.method}, {image} images"

    @property
    def label(self) -> str:
        """Display name of the model in tables."""
        return str(self.options.get("name") or model_label(self.model))

    @cached_property
    def folder(self) -> Path:
        """The run folder. Its name contains a digest of every option that affects an answer."""
        deciding = {name: value for name, value in self.options.items() if name not in NON_DECIDING_OPTIONS}
        # Some keys of --model-args affect speed only.
        if "model_args" in deciding:
            deciding["model_args"] = answer_changing_model_args(str(deciding["model_args"]))
        digest = hashlib.sha256(json.dumps(deciding, sort_keys=True, default=str).encode()).hexdigest()[:8]
        return self.out / "-".join([Path(self.benchmark).name, model_slug(self.label), self.method, digest])

    @property
    def config(self) -> EvalConfig:
        """The run's configuration, as `medprobe eval` makes it. Raises BadInput for bad options."""
        return build_config({**self.options, "out": self.folder}, self.arguments(self.folder))

    def arguments(self, out: Path) -> list[str]:
        """Return the arguments of the equivalent `medprobe eval` command.

        Args:
            out: Value of `--out`, the run folder.

        Returns:
            Subcommand, benchmark and options, one element per argument.
        """
        arguments = ["eval", self.benchmark]
        for name, value in {**self.options, "out": out}.items():
            option = f"--{name.replace('_', '-')}"
            if name == "benchmark" or value is None or value is False:
                continue
            if value is True:
                arguments.append(option)
            else:
                for element in value if isinstance(value, list) else [value]:
                    arguments += [option, str(element)]
        return arguments

    @property
    def result(self) -> Result | None:
        """The task's result.

        None if it is absent or unreadable; it is then computed again from the answers.
        """
        try:
            return read_result(self.folder / "result.json")
        except BadInput:
            return None


def model_label(model: str) -> str:
    """Return the display name of a `--model` argument: for a model folder, the folder's name."""
    kind, _, name = model.partition(":")
    folder = Path(name if kind == "vllm" else model)
    return f"{kind}:{folder.name}" if kind == "vllm" and folder.is_dir() else folder.name if folder.is_dir() else model


class _SweepFile(BaseModel):
    """A sweep file.

    Each entry of a list is a name, or a mapping of options that includes the name.
    """

    model_config = ConfigDict(extra="forbid")

    models: list[str | dict[str, Any]] = Field(min_length=1)
    benchmarks: list[str | dict[str, Any]] = Field(min_length=1)
    methods: list[str | dict[str, Any]] = Field(["mc"], min_length=1)
    images: list[str | dict[str, Any]] = Field(["real"], min_length=1)
    options: dict[str, Any] = {}


def read_sweep(path: Path, out: Path) -> list[SweepTask]:
    """Read a sweep file.

    Args:
        path: The YAML file.
        out: Folder of the run folders.

    Returns:
        One task per combination, ordered by model, then benchmark, method and images.

    Raises:
        BadInput: If the file cannot be read, an entry is wrong (the message names it), or two
            entries give the same run.
    """
    import yaml

    try:
        document = _SweepFile.model_validate(yaml.safe_load(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error}). A sweep file has, e.g., {EXAMPLE_SWEEP}.") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: not YAML ({' '.join(str(error).split())}). Write, e.g., {EXAMPLE_SWEEP}.") from None
    except ValidationError as error:
        raise BadInput(f"{path}: {first_validation_error(error)}. Write, e.g., {EXAMPLE_SWEEP}.") from None

    shared = _entry_options(path, "options", document.options, None)
    axes = [
        [_entry_options(path, f"{key}[{n}]", entry, name) for n, entry in enumerate(getattr(document, key), 1)]
        for key, name in AXES
    ]
    tasks: dict[Path, SweepTask] = {}
    for number, (model, benchmark, method, image) in enumerate(product(*axes), 1):
        # A model's options take precedence over its benchmark's, and those over the shared ones.
        task = SweepTask(number, {**shared, **benchmark, **model, **method, **image}, out)
        if task.folder in tasks:
            raise BadInput(
                f"{path}: tasks {tasks[task.folder].number} and {number} are the same run. Remove one of them."
            )
        try:
            task.config  # noqa: B018  # raises for values that a run does not accept
        except BadInput as error:
            raise BadInput(f"{path}: {task.model} on {task.benchmark}: {error}") from None
        tasks[task.folder] = task
    return list(tasks.values())


def _entry_options(path: Path, location: str, entry: str | dict[str, Any], name: str | None) -> dict[str, Any]:
    """Check and return the options of one entry of the sweep file `path`.

    An entry that is a string sets the option `name`. Raises BadInput, which gives the entry's
    `location`, for an unknown option or a wrong type.
    """
    options = {str(name): entry} if isinstance(entry, str) else entry
    # The options of the other axes belong in their own lists.
    reserved = {axis_name for _, axis_name in AXES if axis_name != name} | {"out"}
    try:
        if name and name not in options:
            raise BadInput(f"a mapping must contain {name!r}.")
        if misplaced := reserved & {option.replace("-", "_") for option in options}:
            raise BadInput(f"{min(misplaced)}: not an option that can be set here.")
        return validate_options(options)
    except BadInput as error:
        raise BadInput(f"{path}: {location}: {error}") from None


def find_task(tasks: Sequence[SweepTask], name: str, path: Path) -> SweepTask:
    """Find a task by its number or by the name of its run folder.

    Args:
        tasks: The tasks of the sweep.
        name: Value of `--task`.
        path: The sweep file, for the message.

    Returns:
        The task.

    Raises:
        BadInput: If the sweep file has no such task.
    """
    match = next((task for task in tasks if name in (str(task.number), task.folder.name)), None)
    if match is None:
        raise BadInput(
            f"--task {name}: {path} has no such task, only 1 to {len(tasks)}. The file may have changed since."
        )
    return match


def slurm_script(tasks: Sequence[SweepTask], sweep_file: Path, out: Path, max_questions: int | None = None) -> str:
    """Write a batch script for `sbatch`: an array with one element per task.

    All nodes must share the folders. The script names tasks by their run folders, because their
    numbers change if the sweep file is edited while the job is queued.

    Args:
        tasks: The tasks to run.
        sweep_file: The sweep file.
        out: Folder of the run folders and of Slurm's logs.
        max_questions: Ask only this many questions of each task; None asks all.

    Returns:
        The script.
    """
    command = shlex.join(
        [
            "medprobe",
            "sweep",
            str(sweep_file),
            "--out",
            str(out),
            *(["--first", str(max_questions)] if max_questions else []),
        ]
    )
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
