"""Define the commands for datasets: build, publish, diff."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from dataset_builders.benchmark_names import FORMATS, parse_benchmarks

app = typer.Typer()


@app.command(short_help="Build a dataset repository.", rich_help_panel="Data")
def build(
    benchmark: Annotated[str, typer.Argument(help=f"{', '.join(FORMATS)}, or all")],
    name: Annotated[str | None, typer.Option("--as", help="name of a custom benchmark in this format")] = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="folder with the authors' files (default: build synthetic phantoms); for vqa: a table, a folder of tables, "
            "or ORG/NAME on the Hub"
        ),
    ] = None,
    fields: Annotated[
        str,
        typer.Option(
            "--map",
            help="for vqa: columns of the source, e.g. question=Q,options=A;B;C,answer=key,image=file,case=patient,facets=organ;view",
        ),
    ] = "",
    preset: Annotated[str | None, typer.Option(help="for vqa: a known set (`medprobe list sets`)")] = None,
    images: Annotated[
        list[str] | None,
        typer.Option(help="folder to search for images, or a URL pattern to download them from (repeatable)"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="where to write the dataset (default: data/<name>)")] = None,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing",
            help="leave out cases whose images are missing and mark the dataset as partial",
        ),
    ] = False,
    text_only: Annotated[
        bool,
        typer.Option("--text-only", help="write only the config `questions_text`, without images"),
    ] = False,
    eval_yaml: Annotated[
        bool,
        typer.Option(
            "--eval-yaml",
            help="add the eval.yaml of a dataset that is to be a benchmark on the Hub; copies the images",
        ),
    ] = False,
) -> None:
    """Build a dataset repository (Parquet + README.md) that `load_dataset` opens."""
    from dataset_builders.build import build as build_dataset
    from dataset_builders.errors import BadInput

    benchmarks = parse_benchmarks(benchmark)
    if len(benchmarks) > 1 and (name or source or images or fields or preset):
        raise BadInput(
            f"build {benchmark}: cannot be combined with --as, --source or --images. Build the benchmarks one by one."
        )
    # With several benchmarks, `--out` is the parent of the datasets' folders.
    for benchmark_name in benchmarks:
        folder = out / benchmark_name if out and len(benchmarks) > 1 else out
        report = build_dataset(
            benchmark_name,
            name=name,
            source=source,
            images=tuple(images or ()),
            out=folder,
            allow_missing=allow_missing,
            text_only=text_only,
            eval_yaml=eval_yaml,
            fields=fields,
            preset=preset,
        )
        typer.echo(str(report))


@app.command(short_help="Publish a dataset (or the board).", rich_help_panel="Data")
def publish(
    folder: Annotated[Path, typer.Argument(help="dataset folder (or, with --space, the board's folder)")],
    repository: Annotated[
        str,
        typer.Argument(metavar="ORG/NAME", help="repository on the Hub ($HF_ENDPOINT honoured)"),
    ],
    private: Annotated[bool, typer.Option("--private", help="keep the repository private")] = False,
    tag: Annotated[str | None, typer.Option(help="version to tag, e.g. v1.0.0")] = None,
    notes: Annotated[
        str | None,
        typer.Option(help="with --tag: release notes, used as the description of the commit and of the tag"),
    ] = None,
    gated: Annotated[
        Literal["auto", "manual"] | None,
        typer.Option(help="require users to request access: granted automatically, or by the owner"),
    ] = None,
    space: Annotated[bool, typer.Option("--space", help="publish the board as a Space")] = False,
    results: Annotated[
        str | None,
        typer.Option(metavar="ORG/NAME", help="with --space: the results store that the board shows"),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORG/NAME",
            help="with --space: a dataset whose cases the board shows (repeatable)",
        ),
    ] = None,
    wheel: Annotated[
        Path | None,
        typer.Option(
            help="with --space: a wheel of medprobe for the Space to install instead of copies of the packages"
        ),
    ] = None,
) -> None:
    """Publish a dataset folder to the Hub in one commit; unchanged files are not uploaded again."""
    from dataset_builders.hub.publish import publish as publish_folder

    report = publish_folder(
        folder,
        repository,
        private,
        tag,
        space,
        notes=notes,
        gated=gated,
        results=results,
        data=data or (),
        wheel=wheel,
    )
    typer.echo(str(report))


@app.command(short_help="List the questions that a version changed.", rich_help_panel="Data")
def diff(
    old_version: Annotated[str, typer.Argument(metavar="ORG/NAME@TAG", help="a version of a dataset, or a folder")],
    new_version: Annotated[
        str,
        typer.Argument(metavar="@TAG", help="the version to compare with: @TAG, ORG/NAME@TAG or a folder"),
    ],
    max_listed: Annotated[
        int, typer.Option("--most", help="maximum number of questions to list per kind of change")
    ] = 20,
) -> None:
    """List the questions that were added, removed or changed between two versions, in Markdown."""
    from dataset_builders.hub.repository import compare_versions, format_changes

    typer.echo(format_changes(compare_versions(old_version, new_version), max_listed))
