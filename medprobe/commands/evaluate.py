"""eval, score: run a model over a benchmark, and recompute its scores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

app = typer.Typer()
RUN, PROMPT, SAMPLING, SERVER, LOCAL, OUTPUT = "Run", "Prompt", "Sampling", "Server", "Local model", "Output"
"""The groups of options in `medprobe eval --help`."""


class GroupedCommand(TyperCommand):
    """A command whose plain help lists its options in their groups (`rich_help_panel`)."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            title = getattr(parameter, "rich_help_panel", None) or (
                "Arguments" if parameter.param_type_name == "argument" else "Options"
            )
            if record := parameter.get_help_record(ctx):
                groups.setdefault(title, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


@app.command("eval", short_help="Run a model on a benchmark.", cls=GroupedCommand)
def run_model(
    benchmark: Annotated[str, typer.Argument(help="name of the benchmark")],
    model: Annotated[
        str,
        typer.Option(
            help="transformers id or folder | vllm:ID | openai:NAME | azure:DEPLOYMENT | recorded:FILE | my_model.py:MyModel | "
            "baseline:chance | baseline:always-A | baseline:text-only:MODEL | baseline:oracle",
            rich_help_panel=RUN,
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(help="dataset folder or Hub repository [default: data/<benchmark>]", rich_help_panel=RUN),
    ] = None,
    split: Annotated[str | None, typer.Option(help="split [default: the benchmark's]", rich_help_panel=RUN)] = None,
    branch: Annotated[
        list[str] | None,
        typer.Option(
            help='branch of the lexical tree, e.g. "Ophthalmology > OCT" (may be given again)', rich_help_panel=RUN
        ),
    ] = None,
    facet: Annotated[
        list[str] | None,
        typer.Option(
            help="only questions with this label, e.g. modality=CT (repeatable: OR within a facet, AND across facets)",
            rich_help_panel=RUN,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="only the first N questions, completed to whole cases", rich_help_panel=RUN)
    ] = None,
    method: Annotated[
        str, typer.Option(help="how the model is asked: mc, gd, ps, ps_official, ff", rich_help_panel=RUN)
    ] = "mc",
    extraction: Annotated[str, typer.Option(help="how answers are read: ours, official", rich_help_panel=RUN)] = "ours",
    judge: Annotated[
        str | None,
        typer.Option(
            help="openai:NAME, a model that reads free-form answers and those that the rules cannot read",
            rich_help_panel=RUN,
        ),
    ] = None,
    no_resume: Annotated[
        bool, typer.Option("--no-resume", help="start over instead of resuming", rich_help_panel=RUN)
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="show the first prompt and its image without asking anything", rich_help_panel=RUN
        ),
    ] = False,
    prompt: Annotated[
        str | None, typer.Option(help="name of a prompt of the benchmark's paper", rich_help_panel=PROMPT)
    ] = None,
    shots: Annotated[
        int, typer.Option(help="worked examples with images before each question", rich_help_panel=PROMPT)
    ] = 0,
    form: Annotated[
        str | None,
        typer.Option(
            help="conversation format: image-first, text-first, image-first-system, authors [default: image-first]",
            rich_help_panel=PROMPT,
        ),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(help='system message instead of the format\'s own; "" sends none', rich_help_panel=PROMPT),
    ] = None,
    permute: Annotated[
        bool,
        typer.Option(
            "--permute",
            help="ask once per option order, to test whether the model follows the option or the letter",
            rich_help_panel=PROMPT,
        ),
    ] = False,
    chat_template: Annotated[
        Path | None,
        typer.Option(help="file with a Jinja chat template to use instead of the model's own", rich_help_panel=PROMPT),
    ] = None,
    chat_template_kwargs: Annotated[
        str | None, typer.Option(help="arguments for the chat template as JSON", rich_help_panel=PROMPT)
    ] = None,
    max_image_side: Annotated[
        int | None, typer.Option(help="downscale images whose longer side has more pixels", rich_help_panel=PROMPT)
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            help="answers per question; more than one are drawn at temperature 0.7 unless --generation sets it [default: 1, temperature 0]",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            help="maximum output tokens per answer, reasoning included [default: the benchmark's]",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    thinking: Annotated[
        str | None,
        typer.Option(
            help="on, off, or the maximum number of reasoning tokens [default: the model's own]",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    generation: Annotated[
        str | None,
        typer.Option(help="further generation parameters as JSON, e.g. '{\"top_p\": 0.9}'", rich_help_panel=SAMPLING),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="address of an OpenAI-compatible server", rich_help_panel=SERVER)
    ] = None,
    in_flight: Annotated[
        int, typer.Option(help="maximum number of concurrent requests to a server", rich_help_panel=SERVER)
    ] = 16,
    timeout: Annotated[
        float, typer.Option(help="seconds to wait for one answer from a server", rich_help_panel=SERVER)
    ] = 120.0,
    wait_server: Annotated[
        float | None,
        typer.Option(
            help="seconds to wait for a server that starts, is busy or has stopped answering [default: 600]",
            rich_help_panel=SERVER,
        ),
    ] = None,
    send_to_provider: Annotated[
        bool,
        typer.Option(
            "--send-to-provider",
            help="permit sending a custom dataset to a server that is not on this machine",
            rich_help_panel=SERVER,
        ),
    ] = False,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="folder that caches replies across runs, so that no request is sent twice", rich_help_panel=SERVER
        ),
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(
            help="price per million input and output tokens, e.g. 2.5,10: adds the cost to the result",
            rich_help_panel=SERVER,
        ),
    ] = None,
    batch_size: Annotated[str, typer.Option(help="a number, or auto", rich_help_panel=LOCAL)] = "auto",
    model_args: Annotated[
        str | None,
        typer.Option(
            help="the library's own arguments as JSON: dtype, attn_implementation, device_map, quantization, adapter, min_pixels, "
            "max_pixels; with vllm: also its engine's, e.g. '{\"tensor_parallel_size\": 2}'",
            rich_help_panel=LOCAL,
        ),
    ] = None,
    allow_missing_weights: Annotated[
        bool,
        typer.Option(
            "--allow-missing-weights",
            help="load a checkpoint that lacks some of the model's weights",
            rich_help_panel=LOCAL,
        ),
    ] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="run code that comes with the model", rich_help_panel=LOCAL)
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="run folder [default: runs/<run id>]", rich_help_panel=OUTPUT)
    ] = None,
    name: Annotated[str | None, typer.Option(help="display name of the model", rich_help_panel=OUTPUT)] = None,
    track: Annotated[
        str | None,
        typer.Option(
            help="send counts and scores to a tracker: trackio:PROJECT (local), wandb:PROJECT", rich_help_panel=OUTPUT
        ),
    ] = None,
) -> None:
    """Run a model on a benchmark. Questions that already have an answer are not asked again."""
    given = {name: value for name, value in locals().items() if name not in ("dry_run", "no_resume")}
    if dry_run:
        from eval_harness.runs.config import config_of
        from eval_harness.runs.dry_run import describe_first_request

        typer.echo(describe_first_request(config_of(given, sys.argv[1:])))
        return
    from medprobe import evaluate

    run = evaluate(**given, resume=not no_resume, argv=sys.argv[1:])
    typer.echo(str(run))
    if run.result is not None:
        typer.echo(f"wrote {run.folder / 'result.json'}")


@app.command(short_help="Recompute scores from answers.")
def score(
    answers: Annotated[Path, typer.Argument(help="run folder, or a JSONL file of question_id and response")],
    benchmark: Annotated[str | None, typer.Option(help="benchmark that the file answers")] = None,
    data: Annotated[
        str | None, typer.Option(help="dataset folder or Hub repository [default: data/<benchmark>]")
    ] = None,
    split: Annotated[str | None, typer.Option(help="split [default: the benchmark's]")] = None,
    extraction: Annotated[
        str | None, typer.Option(help="how answers are read: ours, official [default: as the run says; ours]")
    ] = None,
    name: Annotated[str | None, typer.Option(help="display name of the model")] = None,
    no_judge: Annotated[
        bool, typer.Option("--no-judge", help="read the answers by rules only, even if the run used --judge")
    ] = False,
    judge: Annotated[
        str | None, typer.Option(help="openai:NAME, a model that reads what the rules cannot read (run folders)")
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
            "--asked-only", help="make an interrupted run one of the cases that were asked, marked as a selection"
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="print the result.json document and nothing else")] = False,
) -> None:
    """Recompute scores from the answers in a run folder (rewrites its result.json) or in a file of answers."""
    from dataset_builders.errors import BadInput
    from eval_harness.runs.config import EvalConfig
    from eval_harness.runs.resume import keep_asked
    from eval_harness.runs.runner import score_file
    from eval_harness.runs.scoring import judge_run, score_run
    from eval_harness.store.printed import run_table, with_unread

    if answers.is_dir():
        if benchmark or data or split or name:
            raise BadInput("score RUN_DIR: takes no --benchmark, --data, --split or --name; the run folder says them.")
        if judge and (no_judge or extraction):
            raise BadInput("--judge: a judge reads what our rules leave unread; leave --no-judge and --extraction out.")
        if asked_only:
            keep_asked(answers)
        if judge:
            result = judge_run(answers, judge, base_url, send_to_provider)
        else:
            result = score_run(answers, extraction, judged=not no_judge)
    elif judge or no_judge or asked_only:
        raise BadInput(f"score {answers}: --judge, --no-judge and --asked-only are for a run folder, and this is none.")
    elif benchmark is None:
        raise BadInput(f"score {answers}: is not a run folder. For a file of answers, name its --benchmark and --data.")
    else:
        found = score_file(
            EvalConfig(
                benchmark=benchmark,
                model=f"recorded:{answers}",
                data=data,
                split=split,
                extraction=extraction or "ours",
                name=name,
                argv=sys.argv[1:],
            )
        )
        command = f"medprobe eval {benchmark} --model recorded:{answers} --judge openai:NAME"
        table = with_unread(found.result, found.readings, command)
        typer.echo(found.result.to_json() if json else table, nl=not json)
        return
    typer.echo(result.to_json() if json else run_table(answers, result), nl=not json)
    if not json:
        typer.echo(f"wrote {answers}/result.json")
