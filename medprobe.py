"""The command line: `medprobe`. Thin on purpose: each command imports what it needs when it runs, so that `--help` is quick.

Bad input, a missing extra, a full or forbidden disk, and packages of another distribution under our names end in one line on standard
error and exit code 2; anything else that escapes is a defect and shows its traceback.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NoReturn

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
from dataset_builders import commands as dataset_commands  # noqa: E402
from eval_harness.commands import evaluate, harnesses, store, summaries, sweep  # noqa: E402

app = typer.Typer(
    name="medprobe",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


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


serving = typer.Typer()  # what shows results: these commands need the board's layer, so they are no other layer's


@serving.command(short_help="Print all results as a table.")
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
    from eval_harness.results.spreadsheets import harmless_table
    from eval_harness.results.store_source import scan_store
    from eval_harness.results.table import tidy
    from leaderboard_space.data.facets import of_facets
    from leaderboard_space.data.published_results import published_results

    if form not in ("csv", "json"):
        raise BadInput(f"--format {form}: give csv or json.")
    found = list(published_results())
    if store is not None and not published:
        stored, problems = scan_store(store)
        found = [entry.result for entry in stored] + found
        for problem in problems:
            typer.echo(f"medprobe: set aside: {problem}", err=True)
    table = of_facets(tidy(found), facet or ())
    typer.echo(
        harmless_table(table).to_csv(index=False) if form == "csv" else table.to_json(orient="records", indent=1),
        nl=False,
    )


@serving.command(short_help="Show what differs between two results.")
def compare(
    a: Annotated[str, typer.Argument(help="run folder, result.json, or 'published:MODEL/BENCHMARK/METHOD/Table 1'")],
    b: Annotated[str, typer.Argument(help="another one")],
) -> None:
    """Show what differs between two results: settings, answers, scores (paired test)."""
    from eval_harness.results.comparison import compare_results, load_side
    from leaderboard_space.data.published_results import published_results

    sides = [load_side(source, published_results) for source in (a, b)]
    typer.echo(compare_results(*sides))


@serving.command(short_help="Serve the board.")
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
            metavar="QUESTIONS ANSWERS LEDGER", help="score a test set with hidden answers, see docs/submitting.md"
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


@serving.command(short_help="Build a demo board from scratch.")
def demo(
    folder: Annotated[Path, typer.Option("--out", help="folder to write everything to")] = Path("demo"),
    port: Annotated[int, typer.Option(help="port on 127.0.0.1")] = 7860,
    no_serve: Annotated[bool, typer.Option("--no-serve", help="stop before serving the board")] = False,
) -> None:
    """Build a board with results from scratch: phantoms, datasets, evaluations; on one machine, offline."""
    from dataset_builders.extras import require
    from eval_harness.demo import make_demo

    require("torch", "transformers", *(() if no_serve else ("gradio",)))
    store = make_demo(folder, lambda line: typer.echo(line, err=True))
    typer.echo(f"results are in {store}; `medprobe board --results {store}` shows them")
    if not no_serve:
        from leaderboard_space.app import serve

        serve(store, port=port, data=[str(path) for path in sorted((folder / "data").iterdir())])


for commands in (dataset_commands.app, evaluate.app, sweep.app, summaries.app, store.app, harnesses.app, serving):
    app.add_typer(commands)
app.add_typer(curate, name="curate", short_help="Make a custom benchmark.")


def main() -> None:
    """Run the command line; see the module's first lines for exit codes."""
    try:
        app()
    except BaseException as end:
        from dataset_builders.errors import BadInput
        from dataset_builders.extras import missing_extra
        from dataset_builders.files import DISK_ERRORS

        if _was_interrupted(end):
            _stop("stopped. Everything written so far is complete; repeat the command to resume.", 130)
        if isinstance(end, BadInput):
            _stop(str(end))
        if isinstance(end, OSError) and end.errno in DISK_ERRORS:
            where = end.filename2 or end.filename or "a file"
            _stop(f"{where}: {end.strerror}. Make room, or see to its rights, and run the same command again.")
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
