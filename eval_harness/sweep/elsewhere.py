"""The commands that run a sweep's tasks on other machines: a Slurm array, the Hub's jobs. They are printed; nothing is started."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from dataset_builders.errors import BadInput
from eval_harness.sweep.tasks import Task


def slurm_script(tasks: Sequence[Task], sweep_file: Path, out: Path, first: int | None = None) -> str:
    """A batch script for `sbatch`: an array with one element per task. The folders must be shared by the nodes.

    It names each task by its run folder, since its number is another one when the sweep file has changed meanwhile.
    """
    limit = ["--first", str(first)] if first else []
    command = shlex.join(["medprobe", "sweep", str(sweep_file), "--out", str(out), *limit])
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --job-name={shlex.quote(f'medprobe-{sweep_file.stem}')}",
            f"#SBATCH --array={_ranges([task.number for task in tasks])}",
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


def _ranges(numbers: Sequence[int]) -> str:
    """1,2,3,7 as Slurm writes it: 1-3,7."""
    parts = []
    for _, group in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(parts)


@dataclass(frozen=True)
class HubJobs:
    """How the Hub's jobs are started: `bucket` (ORG/NAME) keeps the run folders; `install` is what pip installs in each."""

    bucket: str
    flavor: str = "a10g-large"
    image: str = "python:3.12"
    install: str = "medprobe[eval]"
    timeout: str = "12h"


def hub_commands(tasks: Sequence[Task], jobs: HubJobs) -> list[str]:
    """One `hf jobs run` per task: the run folder comes from the bucket, is gone on with, and is copied back every minute and at the end.

    Raises BadInput for a task whose dataset or files are on this machine only.
    """
    return [_hub_command(task, jobs) for task in tasks]


def _hub_command(task: Task, jobs: HubJobs) -> str:
    data = str(task.options.get("data") or f"data/{task.benchmark}")
    local = [data] if Path(data).exists() or "data" not in task.options else []
    files = (task.options.get("chat_template"), task.options.get("adapter"), task.model, task.model.partition(":")[2])
    local += [str(name) for name in files if name and Path(str(name)).exists()]
    local += [task.model] if task.model.startswith("recorded:") or ".py:" in task.model else []
    if local:
        raise BadInput(
            f"task {task.number}: {local[0]} is on this machine only, where a job of the Hub cannot read it. Put it on the Hub and name "
            "it ORG/NAME."
        )
    name, folder = task.folder.name, f"runs/{task.folder.name}"
    script = "; ".join(
        [
            f"pip install -q {shlex.quote(jobs.install)} || exit 1",
            f"mkdir -p runs && cp -r /sweep/{name} runs/ 2>/dev/null",
            f"{{ while sleep 60; do cp -r {folder} /sweep/ 2>/dev/null; done & }}",
            f"medprobe {shlex.join(task.arguments(Path(folder)))}",
            "code=$?",
            f"cp -r {folder} /sweep/ && exit $code",
        ]
    )
    secrets = ["HF_TOKEN", *(["OPENAI_API_KEY"] if task.model.startswith("openai:") else [])]
    options = [
        *(part for secret in secrets for part in ("--secrets", secret)),
        "--name",
        f"task-{task.number}",
        "--timeout",
        jobs.timeout,
    ]
    options += ["--volume", f"hf://buckets/{jobs.bucket}:/sweep"]
    return shlex.join(
        ["hf", "jobs", "run", "--detach", "--flavor", jobs.flavor, *options, jobs.image, "bash", "-c", script]
    )
