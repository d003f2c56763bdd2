"""The command line `medprobe`, assembled from `commands/` and `curation.command_line`."""

from typing import Annotated

import typer

from curation.command_line import app as curate
from medprobe import __version__
from medprobe.commands import datasets, evaluate, results, store

app = typer.Typer(
    name="medprobe",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(show: bool) -> None:
    if show:
        typer.echo(f"medprobe {__version__}")
        raise typer.Exit


@app.callback()
def root_options(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="print the version and exit", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Build datasets, run models and show the board of medical reliability benchmarks."""


# Their order is that of the panels in `--help`.
for commands in (datasets, evaluate, results, store):
    app.add_typer(commands.app)
app.add_typer(curate, name="curate", short_help="Make a custom benchmark.", rich_help_panel="Curate")
