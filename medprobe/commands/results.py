"""results, compare, board, demo: show results."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command(short_help="Print all results as a table.")
def results(
    store: Annotated[
        str | None, typer.Option("--results", help="results store (the folder that holds results/, or ORG/NAME)")
    ] = None,
    published: Annotated[bool, typer.Option("--published", help="the papers' numbers only")] = False,
    facet: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FACET=VALUE",
            help="only numbers with this label, e.g. modality=CT (repeatable: OR within a facet, AND across facets)",
        ),
    ] = None,
    form: Annotated[str, typer.Option("--format", help="csv or json")] = "csv",
) -> None:
    """Print all results as one tidy table."""
    from dataset_builders.errors import BadInput
    from eval_harness.store.table import harmless_table
    from leaderboard_space.data.facets import of_facets
    from medprobe import load_results

    if form not in ("csv", "json"):
        raise BadInput(f"--format {form}: give csv or json.")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        table = of_facets(load_results(None if published else store, published=True), facet or ())
    for warning in said:
        typer.echo(f"medprobe: {warning.message}", err=True)
    typer.echo(
        harmless_table(table).to_csv(index=False) if form == "csv" else table.to_json(orient="records", indent=1),
        nl=False,
    )


@app.command(short_help="Show what differs between two results.")
def compare(
    a: Annotated[str, typer.Argument(help="run folder, result.json, or 'published:MODEL/BENCHMARK/METHOD/Table 1'")],
    b: Annotated[str, typer.Argument(help="another one")],
) -> None:
    """Show what differs between two results: settings, answers, scores (paired test)."""
    from eval_harness.store.comparison import compare_results
    from medprobe.stores import side_of

    typer.echo(compare_results(side_of(a), side_of(b)))


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
        typer.Option(help="dataset folder or Hub repository that answers can be submitted for (may be given again)"),
    ] = None,
    hidden: Annotated[
        tuple[str, str, str] | None,
        typer.Option(
            metavar="QUESTIONS ANSWERS LEDGER", help="score a test set with hidden answers, see docs/results_store.md"
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="port on 127.0.0.1")] = 7860,
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            "--host-name", help="further name under which it is reached, e.g. of a tunnel (may be given again)"
        ),
    ] = None,
) -> None:
    """Serve the board on this machine."""
    from eval_harness.store.hidden_test import HiddenTest
    from leaderboard_space.app import serve

    serve(store, port=port, data=data or [], hidden=HiddenTest(*hidden) if hidden else None, names=host_name or ())


@app.command(short_help="Build a demo board from scratch.")
def demo(
    folder: Annotated[Path, typer.Option("--out", help="folder to write everything to")] = Path("demo"),
    port: Annotated[int, typer.Option(help="port on 127.0.0.1")] = 7860,
    no_serve: Annotated[bool, typer.Option("--no-serve", help="stop before serving the board")] = False,
) -> None:
    """Build a board with results from scratch: phantoms, datasets, evaluations; on one machine, offline."""
    from dataset_builders.extras import require
    from medprobe.commands.demo_board import make_demo

    require("torch", "transformers", *(() if no_serve else ("gradio",)))
    store = make_demo(folder, lambda line: typer.echo(line, err=True))
    typer.echo(f"results are in {store}; `medprobe board --results {store}` shows them")
    if not no_serve:
        from leaderboard_space.app import serve

        serve(store, port=port, data=[str(path) for path in sorted((folder / "data").iterdir())])
