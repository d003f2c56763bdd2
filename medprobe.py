"""The command line: `medprobe`. Thin on purpose: each command imports what it needs when it runs, so that `--help` is quick.

Bad input, a missing extra and packages of another distribution under our names end in one line on standard error and exit code 2;
anything else that escapes is a defect and shows its traceback.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

PACKAGES = ("dataset_builders", "eval_harness", "leaderboard_space", "curation")


def _check_packages() -> None:
    """End with one line where Python would import a package of another project in place of ours. Imports none of them."""
    here = Path(__file__).resolve().parent
    for name in PACKAGES:
        spec = find_spec(name)
        found = [Path(folder).resolve() for folder in (spec.submodule_search_locations or ())] if spec else []
        if here / name not in found[:1]:
            where = f"Python finds {found[0]}" if found else "it is not there"
            _stop(f"the package {name} should be in {here}, but {where}. {_remedy(name)}")


def _other_owners(name: str) -> list[str]:
    return sorted({owner for owner in packages_distributions().get(name, ()) if owner.lower() != "medprobe"})


def _remedy(name: str) -> str:
    others = _other_owners(name)
    cause = f"The distribution {' and '.join(others)} has a package of that name, too. " if others else ""
    return f"{cause}Install medprobe into a virtual environment of its own."


def _stop(line: str, code: int = 2) -> NoReturn:
    print(f"medprobe: {line}", file=sys.stderr)
    sys.exit(code)


_check_packages()  # before the first import of ours
from curation.command_line import app as curate  # noqa: E402

app = typer.Typer(
    name="medprobe",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


app.add_typer(curate, name="curate", short_help="Make a benchmark of your own.")


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            typer.echo(f"medprobe {version('medprobe')}")
        except PackageNotFoundError:
            typer.echo("medprobe (not installed: run from its source)")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", help="print the version and exit", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Reliability benchmarks for medical vision-language models: build datasets, run models, show the board."""


@app.command(short_help="Build a dataset repository.")
def build(
    format: Annotated[str, typer.Argument(help="mediconfusion, probmed, gmai-mmbench, halt-medvqa, or all")],
    name: Annotated[str | None, typer.Option("--as", help="name of a benchmark of your own in this format")] = None,
    source: Annotated[
        Path | None, typer.Option(help="folder with the authors' files; without it, drawn phantoms are built")
    ] = None,
    images: Annotated[
        list[str] | None,
        typer.Option(help="folder to find images in, or an address pattern to download from (may be given again)"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="where to write the dataset [default: data/<name>]")] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="build without the cases whose images are missing, marked partial")
    ] = False,
    text_only: Annotated[
        bool, typer.Option("--text-only", help="no images: write the config `questions_text` alone")
    ] = False,
) -> None:
    """Build a dataset repository (Parquet + README.md) that `load_dataset` opens."""
    from dataset_builders.benchmarks import BENCHMARKS
    from dataset_builders.build import build as build_dataset
    from dataset_builders.errors import BadInput

    if format == "all" and (name or source or images):
        raise BadInput("build all: takes no --as, --source or --images. Build the benchmarks one by one with these.")
    for each in BENCHMARKS if format == "all" else (format,):
        folder = out / each if out and format == "all" else out or Path("data") / (name or each)
        report = build_dataset(
            each,
            name=name,
            source=source,
            images=tuple(images or ()),
            out=folder,
            allow_missing=allow_missing,
            text_only=text_only,
        )
        typer.echo(str(report))


@app.command(short_help="Publish a dataset (or the board).")
def publish(
    folder: Annotated[Path, typer.Argument(help="dataset folder (or, with --space, the board's folder)")],
    repository: Annotated[
        str, typer.Argument(metavar="ORG/NAME", help="repository on the Hub ($HF_ENDPOINT honoured)")
    ],
    private: Annotated[bool, typer.Option("--private", help="keep the repository private")] = False,
    tag: Annotated[str | None, typer.Option(help="version to tag, e.g. v1.0.0")] = None,
    space: Annotated[bool, typer.Option("--space", help="publish the board as a Space")] = False,
) -> None:
    """Publish a dataset folder to the Hub, in one commit; what is there already is not sent again."""
    from dataset_builders.hub.publish import publish as publish_folder

    typer.echo(str(publish_folder(folder, repository, private=private, tag=tag, space=space)))


@app.command("eval", short_help="Run a model over a benchmark.")
def evaluate(
    benchmark: Annotated[str, typer.Argument(help="name of the benchmark")],
    model: Annotated[
        str,
        typer.Option(
            help="transformers id or folder | openai:NAME | recorded:FILE | my_model.py:MyModel | baseline:chance | "
            "baseline:always-A | baseline:text-only:MODEL | baseline:oracle"
        ),
    ],
    data: Annotated[
        str | None, typer.Option(help="dataset folder or Hub repository [default: data/<benchmark>]")
    ] = None,
    split: Annotated[str | None, typer.Option(help="split [default: test; gmai-mmbench: validation]")] = None,
    branch: Annotated[
        list[str] | None,
        typer.Option(help='branch of the lexical tree, e.g. "Ophthalmology > OCT" (may be given again)'),
    ] = None,
    method: Annotated[str, typer.Option(help="how an answer is got: mc, gd, ps, ps_official, ff")] = "mc",
    prompt: Annotated[str | None, typer.Option(help="name of a prompt of the benchmark's paper")] = None,
    shots: Annotated[int, typer.Option(help="worked examples with images before each question")] = 0,
    samples: Annotated[int | None, typer.Option(help="answers per question [default: 1]")] = None,
    permute: Annotated[
        bool, typer.Option("--permute", help="ask once per option order: is the answer the option or the letter?")
    ] = False,
    extraction: Annotated[str, typer.Option(help="how answers are read: ours, official")] = "ours",
    judge: Annotated[
        str | None, typer.Option(help="openai:NAME, a model that reads what the rules cannot, and free-form answers")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="run folder [default: runs/<run id>]")] = None,
    batch_size: Annotated[str, typer.Option(help="a number, or auto")] = "auto",
    limit: Annotated[int | None, typer.Option(help="only the first N questions, completed to whole cases")] = None,
    name: Annotated[str | None, typer.Option(help="display name of the model")] = None,
    no_resume: Annotated[bool, typer.Option("--no-resume", help="start over instead of going on")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show the first prompt and its image; ask nothing")
    ] = False,
    base_url: Annotated[str | None, typer.Option(help="address of an OpenAI-compatible server")] = None,
    in_flight: Annotated[int, typer.Option(help="most requests a server is sent at a time")] = 16,
    timeout: Annotated[float, typer.Option(help="seconds to wait for one answer of a server")] = 120.0,
    cache: Annotated[
        Path | None, typer.Option(help="folder that keeps replies across runs: the same request is not sent again")
    ] = None,
    price: Annotated[
        str | None, typer.Option(help="price of a million tokens in and out, e.g. 2.5,10: adds the cost to the result")
    ] = None,
    max_image_side: Annotated[int | None, typer.Option(help="shrink images whose longer side has more pixels")] = None,
    form: Annotated[
        str | None,
        typer.Option(
            help="conversation form: image-first, text-first, image-first-system, authors [default: image-first]"
        ),
    ] = None,
    system: Annotated[str | None, typer.Option(help='system message instead of the form\'s own; "" sends none')] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="most output tokens of an answer, reasoning included [default: the benchmark's]")
    ] = None,
    thinking: Annotated[
        str | None, typer.Option(help="on, off, or the most tokens a reasoning model may think with [default: its own]")
    ] = None,
    generation: Annotated[
        str | None, typer.Option(help="further generation parameters as JSON, e.g. '{\"top_p\": 0.9}'")
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option(help="file with a Jinja chat template to use instead of the model's own")
    ] = None,
    chat_template_kwargs: Annotated[str | None, typer.Option(help="arguments for the chat template as JSON")] = None,
    quantization: Annotated[str | None, typer.Option(help="load the model quantized, e.g. 4bit, 8bit")] = None,
    adapter: Annotated[str | None, typer.Option(help="peft adapter to load on the model (folder or Hub id)")] = None,
    min_pixels: Annotated[int | None, typer.Option(help="fewest pixels the image processor makes of an image")] = None,
    max_pixels: Annotated[int | None, typer.Option(help="most pixels the image processor makes of an image")] = None,
    plain_template: Annotated[
        str | None, typer.Option(help="prompt form for a processor without a chat template: plain, question-answer ...")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, float16 [default: by device]")] = None,
    attention: Annotated[str | None, typer.Option(help="sdpa, flash_attention_2 ... [default: by model]")] = None,
    device_map: Annotated[str | None, typer.Option(help="spread a model over devices: auto")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="run code that comes with the model")
    ] = False,
) -> None:
    """Run a model over a benchmark; what is answered already is not asked again."""
    from eval_harness.models.interface import Settings, read_price, read_thinking
    from eval_harness.results.summary import summary
    from eval_harness.runs.runner import Asked
    from eval_harness.runs.runner import evaluate as run_evaluation

    asked = Asked(
        benchmark=benchmark,
        model=model,
        data=data,
        split=split,
        branches=tuple(branch or ()),
        method=method,
        prompt=prompt,
        shots=shots,
        samples=samples,
        permute=permute,
        form=form,
        system=system,
        max_tokens=max_tokens,
        cache=cache,
        extraction=extraction,
        judge=judge,
        out=out,
        limit=limit,
        name=name,
        resume=not no_resume,
        settings=Settings(
            batch_size=_batch_size(batch_size),
            base_url=base_url,
            in_flight=in_flight,
            timeout=timeout,
            price=read_price(price),
            max_image_side=max_image_side,
            max_tokens=max_tokens,
            thinking=read_thinking(thinking),
            generation=_json_object("--generation", generation),
            chat_template=_text_of("--chat-template", chat_template),
            chat_template_kwargs=_json_object("--chat-template-kwargs", chat_template_kwargs),
            quantization=quantization,
            adapter=adapter,
            min_pixels=min_pixels,
            max_pixels=max_pixels,
            plain_template=plain_template,
            dtype=dtype,
            attention=attention,
            device_map=device_map,
            trust_remote_code=trust_remote_code,
        ),
        argv=sys.argv[1:],
    )
    if dry_run:
        from eval_harness.runs.dry_run import describe_first_request

        typer.echo(describe_first_request(asked))
        return
    result, folder = run_evaluation(asked)
    if result is None:
        typer.echo("this process has finished its share; the last one to finish writes the result")
        return
    typer.echo(summary(result))
    typer.echo(f"wrote {folder / 'result.json'}")


@app.command(short_help="Recompute scores from answers.")
def score(
    answers: Annotated[Path, typer.Argument(help="run folder, or a JSONL file of question_id and response")],
    benchmark: Annotated[str | None, typer.Option(help="benchmark the file answers")] = None,
    data: Annotated[
        str | None, typer.Option(help="dataset folder or Hub repository [default: data/<benchmark>]")
    ] = None,
    split: Annotated[str | None, typer.Option(help="split [default: test; gmai-mmbench: validation]")] = None,
    extraction: Annotated[str, typer.Option(help="how answers are read: ours, official")] = "ours",
    name: Annotated[str | None, typer.Option(help="display name of the model")] = None,
    no_judge: Annotated[
        bool, typer.Option("--no-judge", help="read a run's answers by rules alone, although it was asked with --judge")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="print the result.json document and nothing else")] = False,
) -> None:
    """Recompute scores from answers: of a run folder (rewrites its result.json) or of a bare file."""
    from dataset_builders.errors import BadInput
    from eval_harness.results.summary import summary
    from eval_harness.runs.rescoring import score_run
    from eval_harness.runs.runner import Asked, score_file

    if answers.is_dir():
        if benchmark or data or split or name:
            raise BadInput("score RUN_DIR: takes no --benchmark, --data, --split or --name; the run folder says them.")
        result = score_run(answers, extraction=extraction, judged=not no_judge)
    elif benchmark is None:
        raise BadInput(f"score {answers}: is not a run folder. For a file of answers, name its --benchmark and --data.")
    else:
        result = score_file(
            Asked(
                benchmark=benchmark,
                model=f"recorded:{answers}",
                data=data,
                split=split,
                extraction=extraction,
                name=name,
                argv=sys.argv[1:],
            )
        )
    typer.echo(result.to_json() if json else summary(result), nl=not json)
    if answers.is_dir() and not json:
        typer.echo(f"wrote {answers}/result.json")


@app.command(short_help="Sum several runs up in one result.")
def aggregate(
    kind: Annotated[str, typer.Argument(help="best, mean, majority, oracle")],
    runs: Annotated[list[Path], typer.Argument(help="run folders of one model over the same questions")],
    threshold: Annotated[float, typer.Option(help="oracle: percent of the samples that must be right")] = 50.0,
    out: Annotated[Path | None, typer.Option(help="write the result file here")] = None,
    json: Annotated[bool, typer.Option("--json", help="print the result document and nothing else")] = False,
) -> None:
    """Compute an aggregate over runs: the best over methods, the mean over prompts and samples, majority or oracle over samples."""
    from eval_harness.results.aggregate import aggregate as sum_up
    from eval_harness.results.summary import summary

    result = sum_up(kind, runs, threshold, out)
    typer.echo(result.to_json() if json else summary(result), nl=not json)
    if out is not None and not json:
        typer.echo(f"wrote {out}")


@app.command("adversarial-pairs", short_help="What adversarial pairs cost a run (ProbMed).")
def adversarial_pairs(
    run: Annotated[Path, typer.Argument(help="run folder on ProbMed, or on a dataset in its format")],
    json: Annotated[bool, typer.Option("--json", help="print the scores as JSON and nothing else")] = False,
) -> None:
    """Print the accuracy on true questions alone, and on pairs of a true and an adversarial question (ProbMed Table 3), in percent."""
    from eval_harness.results.aggregate import adversarial_pairs_of
    from eval_harness.results.summary import pairs_summary

    found = adversarial_pairs_of(run)
    if json:
        import json as writer

        told = {
            name: {metric: score.model_dump() for metric, score in scores.items()} for name, scores in found.items()
        }
        typer.echo(writer.dumps(told, indent=1))
    else:
        typer.echo(pairs_summary(found))


@app.command(short_help="How far a run's confidence can be trusted.")
def calibration(
    run: Annotated[Path, typer.Argument(help="run folder of a method that scores options (gd, ps)")],
) -> None:
    """Print calibration (confidence against accuracy) and risk against coverage, in percent."""
    from eval_harness.results.aggregate import calibration_of

    found = calibration_of(run)
    typer.echo(f"expected calibration error {found.ece:.2f} points over {found.n} answers")
    typer.echo(found.bins.round(2).to_string(index=False))
    typer.echo(f"mean risk over all coverages {found.aurc:.2f} %")
    typer.echo(found.risk_coverage.round(2).to_string(index=False))


@app.command(short_help="Print all results as a table.")
def results(
    store: Annotated[
        str | None, typer.Option("--results", help="results store (the folder that holds results/, or ORG/NAME)")
    ] = None,
    published: Annotated[bool, typer.Option("--published", help="the papers' numbers only")] = False,
    format: Annotated[str, typer.Option(help="csv or json")] = "csv",
) -> None:
    """Print all results as one tidy table."""
    from dataset_builders.errors import BadInput
    from eval_harness.results import scan_store
    from eval_harness.results.spreadsheets import harmless_table
    from eval_harness.results.table import tidy
    from leaderboard_space.data.published_results import published_results

    if format not in ("csv", "json"):
        raise BadInput(f"--format {format}: give csv or json.")
    found = list(published_results())
    if store is not None and not published:
        stored, problems = scan_store(store)
        found = [entry.result for entry in stored] + found
        for problem in problems:
            typer.echo(f"medprobe: set aside: {problem}", err=True)
    table = tidy(found)
    typer.echo(
        harmless_table(table).to_csv(index=False) if format == "csv" else table.to_json(orient="records", indent=1),
        nl=False,
    )


@app.command(short_help="Say what differs between two results.")
def compare(
    a: Annotated[str, typer.Argument(help="run folder, result.json, or 'published:MODEL/BENCHMARK/METHOD/Table 1'")],
    b: Annotated[str, typer.Argument(help="another one")],
) -> None:
    """Say what differs between two results: settings, answers, scores (paired test)."""
    from eval_harness.results.comparison import compare_results, load_side
    from leaderboard_space.data.published_results import published_results

    sides = [load_side(place, published_results) for place in (a, b)]
    typer.echo(compare_results(*sides))


@app.command("export-eval-results", short_help="Write a result in the Hub's own form.")
def export_eval_results(
    result: Annotated[Path, typer.Argument(help="run folder or result.json")],
    dataset: Annotated[str, typer.Option(help="the benchmark's dataset on the Hub, ORG/NAME")],
    task: Annotated[str | None, typer.Option(help="task id of the dataset's eval.yaml [default: the split]")] = None,
    out: Annotated[Path, typer.Option(help="file to write")] = Path(".eval_results/medprobe.yaml"),
) -> None:
    """Write a result as `.eval_results/*.yaml`, for the model's own repository on the Hub."""
    from eval_harness.results.eval_results import write_eval_results

    typer.echo(f"wrote {write_eval_results(result, dataset, task, out)}")


@app.command(short_help="Add a result to a store.")
def submit(
    answers: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_DIR|FILE",
            help="run folder, a folder of result.json and answers.parquet, or answers of another harness (JSONL, JSON, CSV, Parquet)",
        ),
    ],
    to: Annotated[str, typer.Option(metavar="STORE", help="results store: a folder, or ORG/NAME on the Hub")],
    benchmark: Annotated[str | None, typer.Option(help="benchmark that FILE answers")] = None,
    model: Annotated[str | None, typer.Option(help="display name of the model that gave the answers in FILE")] = None,
    data: Annotated[
        str | None, typer.Option(help="dataset folder or Hub repository [default: the run's; data/<benchmark>]")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="split that FILE answers [default: test; gmai-mmbench: validation]")
    ] = None,
    extraction: Annotated[str, typer.Option(help="how the answers of FILE are read: ours, official")] = "ours",
    kind: Annotated[
        str | None, typer.Option(help="kind of the model of FILE: open, proprietary, medical, baseline")
    ] = None,
    reproduced: Annotated[
        bool,
        typer.Option("--reproduced", help="you own the store and ran the model yourself: on the Hub straight to main"),
    ] = False,
    with_questions: Annotated[
        bool, typer.Option("--with-questions", help="with --reproduced, on the Hub: also store the questions")
    ] = False,
    account: Annotated[str | None, typer.Option(help="who submits, to a folder store [default: this user]")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="list every problem, write nothing")] = False,
) -> None:
    """Add a result to a store; its scores are recomputed from its answers. On the Hub it is one pull request."""
    from eval_harness.results.summary import summary
    from eval_harness.submissions.submit import prepare
    from eval_harness.submissions.submit import submit as submit_answers

    if dry_run:
        found = prepare(answers, benchmark, model, data, split, extraction, kind, reproduced)
        for problem in found.problems:
            typer.echo(f"problem: {problem}")
    else:
        done = submit_answers(
            answers, to, benchmark, model, data, split, extraction, kind, reproduced, with_questions, account
        )
        found = done.submission
    found.check(answers)
    typer.echo(summary(found.result))
    for line in (*found.notes, *(f"for a human to look at: {flag}" for flag in found.flags)):
        typer.echo(f"note: {line}")
    if dry_run:
        typer.echo(f"would add {found.folder} to {to}")
    else:
        typer.echo(f"{'added' if done.new else 'is there already:'} {done.place}")


@app.command(short_help="Take a result back.")
def withdraw(
    store: Annotated[str, typer.Argument(metavar="STORE", help="results store: a folder, or ORG/NAME on the Hub")],
    result: Annotated[str, typer.Argument(metavar="RESULT", help="its id, or its folder in the store")],
    reason: Annotated[str, typer.Option(help="why, in plain text; the board shows it")],
    account: Annotated[str | None, typer.Option(help="who says so, in a folder store [default: this user]")] = None,
) -> None:
    """Mark a result as withdrawn: it stays in the store, out of every ranking. For who submitted it and for the store's owner."""
    from eval_harness.submissions import remarks

    place, new = remarks.withdraw(store, result, reason, account)
    typer.echo(f"{'withdrawn:' if new else 'is withdrawn already:'} {place}")


@app.command(short_help="Put a note under a result.")
def annotate(
    store: Annotated[str, typer.Argument(metavar="STORE", help="results store: a folder, or ORG/NAME on the Hub")],
    result: Annotated[str, typer.Argument(metavar="RESULT", help="its id, or its folder in the store")],
    note: Annotated[str, typer.Option(help="the note, in plain text; the board shows it")],
    account: Annotated[str | None, typer.Option(help="who writes it, in a folder store [default: this user]")] = None,
) -> None:
    """Put a note under a result that landed. For who submitted it and for the store's owner."""
    from eval_harness.submissions import remarks

    place, _ = remarks.annotate(store, result, note, account)
    typer.echo(f"noted: {place}")


@app.command(short_help="Check submissions.")
def verify(
    store: Annotated[
        str, typer.Argument(metavar="STORE[@PR]", help="ORG/NAME@3 on the Hub, ORG/NAME with --all, or a folder")
    ],
    everything: Annotated[bool, typer.Option("--all", help="all open pull requests, for a scheduled job")] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(help="dataset (folder or Hub repository) that the store's owner vouches for (may be given again)"),
    ] = None,
    accept_flagged: Annotated[
        bool, typer.Option("--accept-flagged", help="a human has looked at what was flagged")
    ] = False,
    with_questions: Annotated[
        bool,
        typer.Option("--with-questions", help="also store the questions, so that the board can compute parts of them"),
    ] = False,
) -> None:
    """Recompute submitted results; on the Hub, answer their pull requests and add the clean ones to main."""
    from dataset_builders.errors import BadInput
    from eval_harness.submissions.verification import verify as verify_store

    outcomes = verify_store(
        store, everything, data or (), accept_flagged, with_questions, lambda outcome: typer.echo(str(outcome))
    )
    if not outcomes:
        typer.echo("nothing to verify")
    bad = [
        outcome
        for outcome in outcomes
        if outcome.word in ("failed", "later") or (outcome.word == "refused" and not everything)
    ]
    if bad:
        raise BadInput(f"{bad[0].what}: {bad[0].word} ({len(bad)} of {len(outcomes)}): {bad[0].reasons[0]}")


@app.command(short_help="Read a store's answers again.")
def rescore(
    store: Annotated[str, typer.Argument(metavar="STORE", help="folder, or ORG/NAME on the Hub (its owner's)")],
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="dataset (folder or Hub repository) for results whose questions the store lacks (may be given again)"
        ),
    ] = None,
) -> None:
    """Read every stored answer with this version's reader; older scores are kept in each result's folder as history."""
    from eval_harness.results.rescore_store import rescore_store

    outcomes = rescore_store(store, data or (), lambda outcome: typer.echo(str(outcome)))
    written, skipped = sum(each.written for each in outcomes), sum(each.skipped is not None for each in outcomes)
    current = len(outcomes) - written - skipped
    typer.echo(f"{written} of {len(outcomes)} results read again, {current} up to date, {skipped} left as they are")


@app.command(short_help="Serve the board.")
def board(
    store: Annotated[
        str | None,
        typer.Option(
            "--results", metavar="STORE", help="results store: a folder (that holds results/), or ORG/NAME on the Hub"
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="dataset folder or Hub repository that answers can be handed in for; may be repeated"),
    ] = None,
    hidden: Annotated[
        tuple[str, str, str] | None,
        typer.Option(metavar="QUESTIONS ANSWERS LEDGER", help="score a test with hidden answers; docs/submitting.md"),
    ] = None,
    port: Annotated[int, typer.Option(help="port on 127.0.0.1")] = 7860,
) -> None:
    """Serve the board on this machine."""
    from eval_harness.submissions.hidden_test import HiddenTest
    from leaderboard_space.app import serve

    serve(store, port=port, data=data or [], hidden=HiddenTest(*hidden) if hidden else None)


@app.command(short_help="From nothing to a board.")
def demo(
    folder: Annotated[Path, typer.Option("--out", help="where everything is made")] = Path("demo"),
    port: Annotated[int, typer.Option(help="port on 127.0.0.1")] = 7860,
    no_serve: Annotated[bool, typer.Option("--no-serve", help="make everything and return")] = False,
) -> None:
    """From nothing to a board with results: phantoms, datasets, evaluations; one machine, offline."""
    from dataset_builders.extras import require
    from eval_harness.demo import make_demo

    require("torch", "transformers", *(() if no_serve else ("gradio",)))
    store = make_demo(folder, lambda line: typer.echo(line, err=True))
    typer.echo(f"results are in {store}; `medprobe board --results {store}` shows them")
    if not no_serve:
        from leaderboard_space.app import serve

        serve(store, port=port, data=[str(place) for place in sorted((folder / "data").iterdir())])


def _batch_size(text: str) -> int | None:
    from dataset_builders.errors import BadInput

    if text == "auto":
        return None
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise BadInput(f"--batch-size {text}: give a whole number from 1, or auto.")


def _json_object(option: str, text: str | None) -> dict[str, Any]:
    import json

    from dataset_builders.errors import BadInput

    try:
        found = json.loads(text) if text is not None else {}
    except ValueError as error:
        raise BadInput(f"{option} {text}: not JSON ({error}). Give an object, e.g. '{{\"top_p\": 0.9}}'.") from None
    if not isinstance(found, dict):
        raise BadInput(f"{option} {text}: not a JSON object. Give one, e.g. '{{\"top_p\": 0.9}}'.")
    return found


def _text_of(option: str, path: Path | None) -> str | None:
    from dataset_builders.errors import BadInput

    try:
        return path.read_text("utf-8") if path is not None else None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{option} {path}: cannot be read as UTF-8 text ({error}).") from None


def main() -> None:
    """Run the command line; see the module's first lines for exit codes."""
    try:
        app()
    except BaseException as end:
        from dataset_builders.errors import BadInput
        from dataset_builders.extras import missing_extra

        if _was_interrupted(end):
            _stop("stopped. What was written is whole; the same command goes on.", 130)
        if isinstance(end, BadInput):
            _stop(str(end))
        if missing := missing_extra(end):
            _stop(str(missing))
        if isinstance(end, ImportError | AttributeError):  # another distribution may have overwritten files of ours
            for name in PACKAGES:
                if _other_owners(name):
                    _stop(f"the files of the package {name} are not all of medprobe ({end}). {_remedy(name)}")
        raise


def _was_interrupted(end: BaseException | None) -> bool:
    """Whether Ctrl-C is at the bottom of it: Typer makes exit 130 of it, and what it cuts short may raise something of its own."""
    while end is not None:
        if isinstance(end, KeyboardInterrupt) or (isinstance(end, SystemExit) and end.code == 130):
            return True
        end = end.__cause__ or end.__context__
    return False


if __name__ == "__main__":
    main()
