"""Define the commands for results stores and for other harnesses.

They are submit, withdraw, verify, accept, refuse and rescore; publish-score, export-tsv and
export-lmms-eval.
"""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command(short_help="Add a result to a store.", rich_help_panel="Store")
def submit(
    answers: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_DIR|FILE",
            help="run folder, a folder of run.json and answers.parquet, or another harness's file of answers or log",
        ),
    ],
    to: Annotated[str, typer.Option(metavar="STORE", help="results store: a folder, or ORG/NAME on the Hub")],
    benchmark: Annotated[str | None, typer.Option(help="benchmark that the answers in FILE are for")] = None,
    model: Annotated[str | None, typer.Option(help="display name of the model that gave the answers in FILE")] = None,
    data: Annotated[
        str | None,
        typer.Option(help="dataset folder or Hub repository (default: the run's; for FILE, data/<benchmark>)"),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="split that the answers in FILE are for (default: the benchmark's)")
    ] = None,
    extraction: Annotated[str, typer.Option(help="how the answers in FILE are read: ours, official")] = "ours",
    kind: Annotated[
        str | None, typer.Option(help="kind of the model in FILE: open, proprietary, medical, human")
    ] = None,
    reproduced: Annotated[
        bool,
        typer.Option(
            "--reproduced",
            help="you own the store and ran the model yourself; on the Hub, commit to main",
        ),
    ] = False,
    with_questions: Annotated[
        bool,
        typer.Option("--with-questions", help="with --reproduced, on the Hub: also store the questions"),
    ] = False,
    account: Annotated[
        str | None, typer.Option(help="who submits it (folder stores only) (default: this user)")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="list every problem, write nothing")] = False,
) -> None:
    """Add a result to a store, with its scores recomputed from its answers.

    On the Hub, this opens a pull request.
    """
    from eval_harness.store.formatting import format_headline
    from eval_harness.store.submit import build_submission
    from medprobe.stores import submit as add

    added = None
    # A dry run lists every problem instead of stopping at the first.
    if dry_run:
        submission = build_submission(
            answers,
            benchmark,
            model,
            data,
            split,
            extraction=extraction,
            kind=kind,
            reproduced=reproduced,
        )
        for problem in submission.problems:
            typer.echo(f"problem: {problem}")
    else:
        added = add(
            answers, to, benchmark=benchmark, model=model, data=data, split=split, extraction=extraction, kind=kind,
            reproduced=reproduced, with_questions=with_questions, account=account,
        )  # fmt: skip
        submission = added.submission
    submission.check(answers)
    typer.echo(
        f"{submission.result.model.name} on {submission.result.benchmark.name}: {format_headline(submission.result)}"
    )
    for line in (*submission.notes, *(f"needs review: {flag}" for flag in submission.flags)):
        typer.echo(f"note: {line}")
    if added is None:
        typer.echo(f"would add {submission.folder} to {to}")
    else:
        typer.echo(f"{'added' if added.new else 'already there:'} {added.location}")


@app.command(short_help="Withdraw a result.", rich_help_panel="Store")
def withdraw(
    store: Annotated[str, typer.Argument(metavar="STORE", help="results store: a folder, or ORG/NAME on the Hub")],
    result: Annotated[str, typer.Argument(metavar="RESULT", help="the result's id, or its folder in the store")],
    reason: Annotated[str, typer.Option(help="why, in plain text; the board shows it")],
    account: Annotated[
        str | None, typer.Option(help="who withdraws it (folder stores only) (default: this user)")
    ] = None,
) -> None:
    """Mark a result as withdrawn; it stays in the store, but is not ranked.

    Its submitter and the store's owner can do this.
    """
    from eval_harness.store.adding import withdraw as withdraw_result

    location, new = withdraw_result(store, result, reason, account)
    typer.echo(f"{'withdrawn:' if new else 'already withdrawn:'} {location}")


DATA_OPTION = typer.Option(help="dataset (folder or Hub repository) trusted by the store's owner (repeatable)")
WITH_QUESTIONS_OPTION = typer.Option(
    "--with-questions",
    help="also store the questions, so that the board can compute scores on any selection of them",
)


@app.command(short_help="Check submissions.", rich_help_panel="Store")
def verify(
    store: Annotated[
        str,
        typer.Argument(metavar="STORE[@PR]", help="ORG/NAME@3 on the Hub, ORG/NAME with --all, or a folder"),
    ],
    everything: Annotated[
        bool, typer.Option("--all", help="verify all open pull requests, for a scheduled job")
    ] = False,
    data: Annotated[list[str] | None, DATA_OPTION] = None,
    with_questions: Annotated[bool, WITH_QUESTIONS_OPTION] = False,
) -> None:
    """Compute scores from submitted answers, and check the submissions.

    On the Hub, comment on the pull requests, and add those without problems and flags to main.
    """
    from dataset_builders.errors import BadInput
    from eval_harness.store.verification import verify as verify_store
    from medprobe.stores import published_name_kinds

    results = verify_store(
        store,
        everything,
        data or (),
        with_questions,
        lambda result: typer.echo(str(result)),
        published_name_kinds(),
    )
    if not results:
        typer.echo("nothing to verify")
    # With --all, a refusal is a normal outcome and not an error of the command.
    bad = [
        result
        for result in results
        if result.status in ("failed", "later") or (result.status == "refused" and not everything)
    ]
    if bad:
        raise BadInput(f"{bad[0].target}: {bad[0].status} ({len(bad)} of {len(results)}): {bad[0].reasons[0]}")


@app.command(short_help="Add a flagged pull request.", rich_help_panel="Store")
def accept(
    pull: Annotated[str, typer.Argument(metavar="STORE@PR", help="a flagged pull request, e.g. ORG/NAME@3")],
    commit: Annotated[str, typer.Option(help="the commit that you have reviewed, as printed by `medprobe verify`")],
    data: Annotated[list[str] | None, DATA_OPTION] = None,
    with_questions: Annotated[bool, WITH_QUESTIONS_OPTION] = False,
) -> None:
    """Add a flagged submission after a person has reviewed it.

    It is verified again, and refused if it is invalid.
    """
    from dataset_builders.errors import BadInput
    from eval_harness.store.verification import accept as accept_pull
    from medprobe.stores import published_name_kinds

    result = accept_pull(pull, commit, data or (), with_questions, published_name_kinds())
    typer.echo(str(result))
    if result.status != "added":
        raise BadInput(f"{result.target}: {result.status}: {result.reasons[0]}")


@app.command(short_help="Close a pull request with a reason.", rich_help_panel="Store")
def refuse(
    pull: Annotated[str, typer.Argument(metavar="STORE@PR", help="a pull request, e.g. ORG/NAME@3")],
    reason: Annotated[str, typer.Option(help="why, in plain text; it is commented on the pull request")],
) -> None:
    """Close a pull request to a store, with the reason as a comment."""
    from eval_harness.store.verification import refuse as refuse_pull

    typer.echo(str(refuse_pull(pull, reason)))


@app.command(short_help="Derive a store's results again.", rich_help_panel="Store")
def rescore(
    store: Annotated[str, typer.Argument(metavar="STORE", help="a folder, or ORG/NAME on the Hub (owner only)")],
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="dataset (folder or Hub repository) for results whose questions the store lacks (repeatable)"
        ),
    ] = None,
) -> None:
    """Recompute the outdated results of a store from their answers, and list the changes.

    A result is outdated if another version of medprobe computed it, or if the dataset's answer key
    or labels were corrected.
    """
    from eval_harness.store.verification import rescore_store

    outcomes = rescore_store(store, data or (), lambda outcome: typer.echo(str(outcome)))
    written, skipped = (
        sum(outcome.written for outcome in outcomes),
        sum(outcome.skipped is not None for outcome in outcomes),
    )
    current = len(outcomes) - written - skipped
    typer.echo(f"{written} of {len(outcomes)} results derived again, {current} up to date, {skipped} unchanged")


@app.command(
    "publish-score",
    short_help="Propose a score to the model's repository.",
    rich_help_panel="Other harnesses",
)
def publish_score(
    run: Annotated[Path, typer.Argument(help="run folder, or the folder of a stored result")],
    model: Annotated[str, typer.Argument(metavar="ORG/MODEL", help="the model's repository on the Hub")],
    dataset: Annotated[str, typer.Option(help="the benchmark's dataset on the Hub, ORG/NAME")],
    store: Annotated[
        str | None,
        typer.Option(help="results store on the Hub that contains the answers, cited as the source"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the file without opening a pull request")] = False,
) -> None:
    """Open or update a pull request that adds .eval_results/<benchmark>.yaml to the model.

    The file contains the metric that the dataset's task declares.
    """
    from dataset_builders.hub.client import check_repo_id
    from eval_harness.store import publish_score as publishing

    check_repo_id(model)
    file = publishing.build_score_file(run, dataset, store)
    if dry_run:
        typer.echo(f"{model}: would propose {file.path}\n{file.content.decode()}", nl=False)
        return
    address, done = publishing.publish_score(file, model)
    typer.echo(f"{ {'opened': 'proposed', 'updated': 'updated', 'there': 'already there'}[done] }: {address}")


@app.command("export-tsv", short_help="Write a dataset for VLMEvalKit.", rich_help_panel="Other harnesses")
def export_tsv(
    data: Annotated[str, typer.Argument(metavar="DATASET", help="dataset folder or Hub repository")],
    split: Annotated[str | None, typer.Option(help="split (default: the benchmark's)")] = None,
    out: Annotated[Path, typer.Option(help="folder to write to, VLMEvalKit's $LMUData")] = Path("LMUData"),
) -> None:
    """Write the questions as a multiple-choice TSV; `medprobe submit` reads the predictions."""
    from eval_harness.interop.exports import export_tsv as export

    path, rows = export(data, split, out)
    typer.echo(f"wrote {path} ({rows:,} questions); evaluate it as the dataset {path.stem}")


@app.command(
    "export-lmms-eval",
    short_help="Write a dataset's task for lmms-eval.",
    rich_help_panel="Other harnesses",
)
def export_lmms_eval(
    data: Annotated[str, typer.Argument(metavar="DATASET", help="dataset folder or Hub repository")],
    split: Annotated[str | None, typer.Option(help="split (default: the benchmark's)")] = None,
    out: Annotated[Path, typer.Option(help="folder for lmms-eval's --include_path")] = Path("lmms_eval"),
) -> None:
    """Write a task folder with medprobe's prompts, reader and metrics.

    `medprobe submit` reads the samples that lmms-eval writes with --log_samples.
    """
    from eval_harness.interop.exports import export_task

    task = export_task(data, split, out)
    typer.echo(f"wrote {out / task}: python -m lmms_eval --include_path {out} --tasks {task} --log_samples ...")
