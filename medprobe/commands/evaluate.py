"""Define the commands that run models and recompute scores: eval, score, sweep."""

import os
import shlex
import sys
from contextlib import nullcontext, redirect_stderr
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dataset_builders.benchmark_names import parse_benchmarks
from medprobe.commands.output import (
    OUTPUT,
    AllMetrics,
    FailUnder,
    OutputFormat,
    Quiet,
    check_limits,
    parse_score_limits,
    print_json,
    quiet_line,
)

app = typer.Typer()
RUN, PROMPT, SAMPLING, SERVER, LOCAL = (
    partial(typer.Option, rich_help_panel=name) for name in ("Run", "Prompt", "Sampling", "Server", "Local model")
)
"""An option in one of the panels of `medprobe eval --help`, like `OUTPUT`."""


@app.command("eval", short_help="Run a model on benchmarks.", rich_help_panel="Run")
def run_model(
    benchmark: Annotated[
        str,
        typer.Argument(
            help="benchmark's name, or a dataset's location (data/my-set); several separated by commas, or all"
        ),
    ],
    model: Annotated[
        str,
        RUN(
            help="transformers id or folder | vllm:ID | openai:NAME | azure:DEPLOYMENT | recorded:FILE | my_model.py:MyModel | "
            "human:NAME (a person, on a page in the browser) | baseline:chance | baseline:always-A | baseline:oracle"
        ),
    ],
    data: Annotated[
        str | None,
        RUN(help="dataset folder, folder of datasets, or Hub repository (default: data)"),
    ] = None,
    revision: Annotated[
        str | None,
        RUN(help="tag, branch or commit of --data on the Hub, e.g. v1.0.0 (default: main)"),
    ] = None,
    split: Annotated[str | None, RUN(help="split (default: the benchmark's)")] = None,
    branch: Annotated[
        list[str] | None,
        RUN(
            help='branch of the lexical tree, e.g. "Ophthalmology > OCT" (repeatable; OR within a subject, AND across)'
        ),
    ] = None,
    facet: Annotated[
        list[str] | None,
        RUN(help="only questions with this label, e.g. modality=CT (repeatable: OR within a facet, AND across facets)"),
    ] = None,
    limit: Annotated[int | None, RUN(help="only the first N questions, and the rest of their cases")] = None,
    method: Annotated[str, RUN(help="how the model is asked: mc, gd, ps, ps_official, ff")] = "mc",
    image: Annotated[
        str,
        RUN(help="images shown with each question: real, withheld (none), blank (grey), swapped (another case's)"),
    ] = "real",
    arms: Annotated[
        bool,
        RUN(
            "--arms",
            help="run with the real images and with every other --image; `medprobe sight RUN` then shows what the images add",
        ),
    ] = False,
    extraction: Annotated[str, RUN(help="how answers are read: ours, official")] = "ours",
    judge: Annotated[
        str | None,
        RUN(help="openai:NAME, a judge model for free-form answers and those that the rules cannot read"),
    ] = None,
    no_resume: Annotated[bool, RUN("--no-resume", help="start over instead of resuming")] = False,
    dry_run: Annotated[
        bool, RUN("--dry-run", help="show the first prompt and its image without asking anything")
    ] = False,
    prompt: Annotated[str | None, PROMPT(help="name of a prompt of the benchmark's paper")] = None,
    shots: Annotated[int, PROMPT(help="worked examples with images before each question")] = 0,
    form: Annotated[
        str | None,
        PROMPT(help="conversation format: image-first, text-first, image-first-system, authors (default: image-first)"),
    ] = None,
    system: Annotated[str | None, PROMPT(help='system message instead of the format\'s own; "" sends none')] = None,
    permute: Annotated[
        bool,
        PROMPT(
            "--permute",
            help="ask once per option order, to test whether the model prefers the option or the letter",
        ),
    ] = False,
    chat_template: Annotated[
        Path | None,
        PROMPT(help="file with a Jinja chat template to use instead of the model's own"),
    ] = None,
    chat_template_kwargs: Annotated[str | None, PROMPT(help="arguments for the chat template as JSON")] = None,
    max_image_side: Annotated[int | None, PROMPT(help="downscale images whose longer side has more pixels")] = None,
    samples: Annotated[
        int | None,
        SAMPLING(
            help="answers per question; several are sampled at temperature 0.7 unless --generation sets it (default: 1, at temperature 0)"
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        SAMPLING(help="maximum output tokens per answer, reasoning included (default: the benchmark's)"),
    ] = None,
    thinking: Annotated[
        str | None,
        SAMPLING(help="on, off, or the maximum number of reasoning tokens (default: the model's own)"),
    ] = None,
    generation: Annotated[
        str | None, SAMPLING(help="further generation parameters as JSON, e.g. '{\"top_p\": 0.9}'")
    ] = None,
    base_url: Annotated[str | None, SERVER(help="address of an OpenAI-compatible server")] = None,
    in_flight: Annotated[int, SERVER(help="maximum number of concurrent requests to a server")] = 16,
    timeout: Annotated[float, SERVER(help="seconds to wait for one answer from a server")] = 120.0,
    wait_server: Annotated[
        float | None,
        SERVER(help="seconds to wait for a server that starts, is busy or has stopped answering (default: 600)"),
    ] = None,
    no_look: Annotated[
        bool,
        SERVER(
            "--no-look",
            help="skip the question about a generated image, which detects servers that drop images",
        ),
    ] = False,
    send_to_provider: Annotated[
        bool,
        SERVER(
            "--send-to-provider",
            help="permit sending a custom dataset to a server that is not on this machine",
        ),
    ] = False,
    cache: Annotated[
        Path | None,
        SERVER(help="folder that caches replies across runs, so that no request is sent twice"),
    ] = None,
    price: Annotated[
        str | None,
        SERVER(help="price per million input and output tokens, e.g. 2.5,10: adds the cost to the result"),
    ] = None,
    batch_size: Annotated[str, LOCAL(help="a number, or auto")] = "auto",
    model_args: Annotated[
        str | None,
        LOCAL(
            help="arguments of the library as JSON: dtype, attn_implementation, device_map, quantization, adapter, min_pixels, "
            "max_pixels; with vllm: also flags of `vllm serve`, e.g. '{\"tensor_parallel_size\": 2}'"
        ),
    ] = None,
    allow_missing_weights: Annotated[
        bool,
        LOCAL(
            "--allow-missing-weights",
            help="load a checkpoint that lacks some of the model's weights",
        ),
    ] = False,
    trust_remote_code: Annotated[bool, LOCAL("--trust-remote-code", help="run code that comes with the model")] = False,
    out: Annotated[
        Path | None,
        OUTPUT(help="run folder (default: runs/<run id>); with several benchmarks, the folder of their run folders"),
    ] = None,
    name: Annotated[str | None, OUTPUT(help="display name of the model")] = None,
    all_metrics: AllMetrics = False,
    output: OutputFormat = "table",
    quiet: Quiet = False,
    fail_under: FailUnder = None,
) -> None:
    """Run a model on one or more benchmarks.

    Questions that already have an answer are not asked again.
    """
    # All options are passed on by name, except those that this function handles itself.
    options = dict(locals())
    for benchmark_name in (
        "benchmark",
        "out",
        "dry_run",
        "no_resume",
        "arms",
        "all_metrics",
        "output",
        "quiet",
        "fail_under",
    ):
        del options[benchmark_name]
    # Parsed first, so that wrong values fail before anything is loaded.
    limits, benchmarks = parse_score_limits(fail_under or ()), parse_benchmarks(benchmark)
    is_several = len(benchmarks) > 1
    folders = {
        benchmark_name: out / Path(benchmark_name).name if out and is_several else out for benchmark_name in benchmarks
    }
    # With several benchmarks, every dataset is looked for before the first run begins.
    if dry_run or is_several:
        from eval_harness.records.selection import select_questions
        from eval_harness.runs.config import build_config
        from eval_harness.runs.dry_run import describe_first_request

        for benchmark_name, folder in folders.items():
            config = build_config({**options, "benchmark": benchmark_name, "out": folder}, sys.argv[1:])
            if dry_run:
                typer.echo(describe_first_request(config, arms))
            else:
                given_data = (
                    config.data,
                    config.split,
                    config.branches,
                    config.limit,
                    config.facets,
                    config.revision,
                )
                select_questions(benchmark_name, *given_data)
        if dry_run:
            return
    from medprobe.runs import evaluate
    from medprobe.score_table import as_text
    from medprobe.stores import load_results

    runs = []
    for benchmark_name, folder in folders.items():
        # The recorded command names the benchmark and the folder of this run alone.
        replacements = {benchmark: benchmark_name, str(out): str(folder)}
        argv = [replacements.get(word, word) for word in sys.argv[1:]]
        # --quiet suppresses standard error during the run; an error is still reported afterwards.
        with (
            Path(os.devnull).open("w") as nowhere,
            redirect_stderr(nowhere) if quiet else nullcontext(),
        ):
            run = evaluate(benchmark_name, **options, arms=arms, out=folder, resume=not no_resume, argv=argv)
        if run.result is None:  # another process of this run will write the result
            typer.echo(str(run))
            continue
        runs.append(run)
        if output == "table":
            wrote = f"wrote {run.folder / 'result.json'}"
            typer.echo(quiet_line(run.result) if quiet else f"{run.table(all_metrics)}\n{wrote}")
    results = [run.result for run in runs if run.result is not None]
    if output == "json":
        print_json(results)
    elif len(runs) > 1 and not quiet:
        table = load_results(*runs)
        typer.echo(f"\n{as_text(table[table['headline'] & table['facet'].isna()])}")
    check_limits(results, limits)


@app.command(short_help="Recompute scores from answers.", rich_help_panel="Run")
def score(
    run: Annotated[Path, typer.Argument(help="run folder")],
    extraction: Annotated[str | None, typer.Option(help="ours, official (default: the run's)")] = None,
    no_judge: Annotated[
        bool,
        typer.Option("--no-judge", help="read the answers with the rules only, even if the run used --judge"),
    ] = False,
    judge: Annotated[
        str | None,
        typer.Option(help="openai:NAME, a judge model for answers that the rules cannot read"),
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="address of the judge's OpenAI-compatible server")] = None,
    send_to_provider: Annotated[
        bool,
        typer.Option(
            "--send-to-provider",
            help="permit sending a custom dataset's answers to a judge that is not on this machine",
        ),
    ] = False,
    asked_only: Annotated[
        bool,
        typer.Option(
            "--asked-only",
            help="reduce an interrupted run to the cases that were asked, and mark it as a selection",
        ),
    ] = False,
    all_metrics: AllMetrics = False,
    form: OutputFormat = "table",
    quiet: Quiet = False,
    fail_under: FailUnder = None,
) -> None:
    """Recompute the scores of a run folder from its answers, and rewrite its result.json.

    To score a file of answers, use `medprobe eval --model recorded:FILE`.
    """
    from dataset_builders.errors import BadInput
    from eval_harness.runs.runner import judge_run, keep_answered_cases, score_run
    from eval_harness.store.formatting import format_run

    limits = parse_score_limits(fail_under or ())
    if judge and (no_judge or extraction):
        raise BadInput("--judge: cannot be combined with --no-judge or --extraction.")
    # Done before scoring, which refuses an incomplete run.
    if asked_only:
        keep_answered_cases(run)
    if judge:
        result = judge_run(run, judge, base_url, send_to_provider)
    else:
        result = score_run(run, extraction, judged=not no_judge)
    if form == "json":
        print_json([result])
    else:
        typer.echo(quiet_line(result) if quiet else f"{format_run(run, result, all_metrics)}\nwrote {run}/result.json")
    check_limits([result], limits)


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
    from eval_harness.sweep.execution import run_task, run_tasks_locally, run_tasks_on_ray, slurm_script
    from eval_harness.sweep.tasks import (
        find_task,
        forecast_tasks,
        format_forecast,
        format_report,
        read_sweep,
        write_scores_csv,
    )

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
    # Tasks that cannot run are reported at the end, together with those that failed.
    errors = {task_forecast.task.number: task_forecast.problem for task_forecast in expected if task_forecast.problem}
    if slurm:
        for number, problem in errors.items():
            typer.echo(f"task {number} is left out: {problem}", err=True)
        if not waiting:
            raise BadInput(f"{file}: there is no task to run: each one is done or cannot be run.")
        # sbatch does not create the folder for its logs.
        out.mkdir(parents=True, exist_ok=True)
        typer.echo(slurm_script(waiting, file, out, max_questions))
        return
    typer.echo(format_forecast(expected))
    if not dry_run:
        if ray is not None:
            from dataset_builders.ray_cluster import RayCluster

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
    if written := write_scores_csv(list(done.values()), out):
        typer.echo(f"every score is in {written}")
    if missing and max_questions is None:
        raise BadInput(f"{missing} of {len(tasks)} tasks are not done; the reasons are given above.")
