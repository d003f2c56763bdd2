"""Define the commands for other harnesses: publish-score, export-tsv, export-lmms-eval."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


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
