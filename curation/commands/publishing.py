"""export, quality: from reviewed questions to a benchmark, and what it is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from curation.commands.options import BaseUrl, GroupColumn, ImageColumn, NoTextSearch, Price, SendToProvider, Table
from curation.commands.questions import open_writer


def export_benchmark(
    name: Annotated[str, typer.Argument(help="name of the benchmark: lower-case letters, digits, hyphens")],
    questions: Annotated[Path, typer.Option(help="questions folder, reviewed")],
    images: Annotated[Path, typer.Option(help="folder of the embedded images")],
    out: Annotated[Path | None, typer.Option(help="folder to write (default: NAME)")] = None,
    pairs: Annotated[Path | None, typer.Option(help="search folder, for the counts of the pair search")] = None,
    table: Table = None,
    image_column: ImageColumn = "image",
    group_column: GroupColumn = "group",
    license_column: Annotated[str, typer.Option(help="column with the licence of each image")] = "license",
    source_column: Annotated[str, typer.Option(help="column that says where each image comes from")] = "source",
    unreviewed: Annotated[
        bool, typer.Option("--unreviewed", help="include pairs that have not been reviewed; the manifest says so")
    ] = False,
    no_text_search: NoTextSearch = False,
) -> None:
    """Write the kept pairs in MediConfusion's layout, which `medprobe build mediconfusion --as NAME --source` reads."""
    import json

    from curation.export import export, without_licence
    from curation.images.image_index import list_images
    from curation.images.image_table import Columns, join_table, read_table

    known = None
    if table is not None:
        columns = Columns(image=image_column, group=group_column, license=license_column, source=source_column)
        known = join_table(list_images(images), read_table(table, columns), table)
    folder = out or Path(name)
    typer.echo(
        json.dumps(export(name, questions, images, folder, pairs, known, unreviewed, not no_text_search), indent=1)
    )
    closed = without_licence(folder)
    if closed:
        typer.echo(
            f"{len(closed)} images ({closed[0]} first) have no licence that permits redistribution: "
            "the dataset can only be published with --private. Licences come from the table (--table, column license)."
        )
    typer.echo(f"wrote {folder}; next: medprobe build mediconfusion --as {name} --source {folder}")


def quality(
    data: Annotated[str, typer.Argument(help="built dataset of any format: its folder, or its id on the Hub")],
    out: Annotated[Path, typer.Option(help="page to write (.html), with the numbers beside it (.json)")] = Path(
        "quality.html"
    ),
    model: Annotated[
        str | None,
        typer.Option(help="also ask a model without the images: its name at a server, or transformers:ID"),
    ] = None,
    base_url: BaseUrl = None,
    temperature: Annotated[float, typer.Option(help="sampling temperature of --model")] = 0.0,
    price: Price = None,
    send_to_provider: SendToProvider = False,
) -> None:
    """Check a benchmark before publishing it: scores without images, give-aways, repeats, balance, power."""
    from curation.report.blind_baseline import BlindAsking
    from curation.report.quality import check
    from curation.report.quality_page import write_report
    from curation.writing.asking import Asking
    from dataset_builders.errors import BadInput
    from eval_harness.models.interface import read_price

    if out.suffix != ".html":
        raise BadInput(f"--out {out}: the report is a page; give a name that ends in .html.")
    blind = None
    if model is not None:
        asking = Asking(temperature=temperature, price=read_price(price), send=send_to_provider)
        blind = BlindAsking(_blind_model(model, base_url), out.with_suffix(".blind.jsonl"), asking)
    found = check(data, blind)
    write_report(found, out)
    if found.blind_model is not None:
        for name, score in found.blind_model.scores.items():
            if score["value"] is not None:
                about = "" if score["low"] is None else f" (95%: {score['low']:.1f} to {score['high']:.1f})"
                chance = "" if score["chance"] is None else f", a coin flip {score['chance']:.1f}"
                typer.echo(f"{found.blind_model.model} without images: {name} {score['value']:.1f}{about}{chance}")
        if found.blind_model.cost is not None:
            typer.echo(f"cost: {found.blind_model.cost}")
    for line in found.warnings() or ["Nothing stands out."]:
        typer.echo(line)
    typer.echo(f"wrote {out}")


def _blind_model(model: str, base_url: str | None) -> Any:
    """The model to ask without images: a transformers one on this machine, or any behind a server."""
    local = model.removeprefix("transformers:")
    if local == model:
        return open_writer(model, base_url)
    from eval_harness.models.interface import Settings
    from eval_harness.models.load import load_backend

    backend = load_backend(local, Settings())
    backend.name = backend.model.name  # type: ignore[attr-defined]
    return backend
