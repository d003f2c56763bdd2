"""Define the command sweep, which runs many models on many benchmarks with many methods."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command(short_help="Run many models on many benchmarks.", rich_help_panel="Run")
def sweep(
    file: Annotated[
        Path,
        typer.Argument(metavar="MODELS.YAML", help="models, benchmarks, methods; docs/scaling.md"),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="folder of the run folders (default: runs/<name of the file>)"),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="forecast requests, tokens and cost without asking anything"),
    ] = False,
    max_questions: Annotated[
        int | None,
        typer.Option(
            "--first",
            help="ask only the first N questions of each task, to estimate how long the rest takes",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="run only this task: its number, or the name of its run folder (Slurm arrays)"),
    ] = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="print a script for sbatch")] = False,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="run on a Ray cluster: auto, host:port, or local to start one"),
    ] = None,
    workers: Annotated[int, typer.Option(help="with --ray: number of worker processes, each with one model")] = 2,
    gpus_per_worker: Annotated[float, typer.Option(help="with --ray: GPUs per worker")] = 0,
) -> None:
    """Run every model on every benchmark with every method.

    Questions that already have an answer are not asked again.
    """
    from dataset_builders.errors import BadInput
    from eval_harness.runs.run_folder import Shard
    from eval_harness.sweep.local import run_task, run_tasks_locally
    from eval_harness.sweep.progress import forecast_tasks, format_forecast, format_report, write_scores_csv
    from eval_harness.sweep.tasks import find_task, read_sweep, slurm_script

    if sum([slurm, task is not None, ray is not None]) > 1:
        raise BadInput("--slurm, --task, --ray: give only one of them.")
    if max_questions is not None and max_questions < 1:
        raise BadInput(f"--first {max_questions}: must be at least 1.")
    if task is None and Shard.of_this_process().world > 1:
        raise BadInput(
            "sweep: torchrun divides one run among processes. Use it with `medprobe eval` or with "
            "this sweep's --task, or use --ray."
        )
    out = out or Path("runs") / file.stem
    if any(folder.is_file() for folder in (out, *out.parents)):
        raise BadInput(f"--out {out}: is a file, or below one. Give a folder.")
    tasks = read_sweep(file, out)
    # One task of a job array: there is no table to print.
    if task is not None:
        tasks = [find_task(tasks, task, file)]
        if not dry_run:
            outcome = run_task(tasks[0], max_questions)
            if outcome.error:
                raise BadInput(outcome.error)
            typer.echo(f"task {tasks[0].number}: {tasks[0].folder}")
            return
    expected = forecast_tasks(tasks)
    waiting = [
        task_forecast.task for task_forecast in expected if not task_forecast.is_done and not task_forecast.problem
    ]
    if slurm:
        for task_forecast in expected:
            if task_forecast.problem:
                typer.echo(
                    f"task {task_forecast.task.number} is left out: {task_forecast.problem}",
                    err=True,
                )
        if not waiting:
            raise BadInput(f"{file}: there is no task to run: each one is done or cannot be run.")
        # sbatch does not create the folder for its logs.
        out.mkdir(parents=True, exist_ok=True)
        typer.echo(slurm_script(waiting, file, out, max_questions))
        return
    typer.echo(format_forecast(expected))
    # Tasks that cannot run are reported at the end, together with those that failed.
    errors = {task_forecast.task.number: task_forecast.problem for task_forecast in expected if task_forecast.problem}
    if not dry_run:
        if ray is not None:
            from dataset_builders.ray_cluster import RayCluster
            from eval_harness.sweep.cluster import run_tasks_on_ray

            outcomes = run_tasks_on_ray(expected, RayCluster(ray, workers, gpus_per_worker), max_questions)
        else:
            outcomes = run_tasks_locally(waiting, max_questions)
        for outcome in outcomes:
            if outcome.error:
                errors[outcome.task.number] = outcome.error
            typer.echo(
                f"task {outcome.task.number} of {len(tasks)}: {outcome.error or outcome.task.folder}",
                err=True,
            )
    # The command that resumes the sweep in the same way.
    cluster = ["--ray", ray, "--workers", str(workers), "--gpus-per-worker", f"{gpus_per_worker:g}"] if ray else []
    command = shlex.join(["medprobe", "sweep", str(file), "--out", str(out), *cluster])
    results = {task.number: task.result for task in tasks if task.number not in errors}
    done = {number: result for number, result in results.items() if result is not None}
    table, missing = format_report(tasks, done, errors, command)
    if table:
        typer.echo(f"\n{table}")
    if dry_run:
        return
    if written := write_scores_csv(done.values(), out):
        typer.echo(f"every score is in {written}")
    if missing and max_questions is None:
        raise BadInput(f"{missing} of {len(tasks)} tasks are not done; the reasons are given above.")
