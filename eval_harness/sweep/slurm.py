"""The script that runs a sweep's tasks as a Slurm array. It is printed; nothing is started."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from eval_harness.sweep.tasks import SweepTask


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
