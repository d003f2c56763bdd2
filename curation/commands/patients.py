"""deidentify, texts, withdraw: patients first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from curation.commands import shared_options


def deidentify(
    images: Annotated[Path, typer.Argument(help="folder of images and DICOM files")],
    out: Annotated[
        Path, typer.Option(help="folder to write; its key and list of names are written beside it and stay private")
    ],
    table: shared_options.Table = None,
    image_column: shared_options.ImageColumn = "image",
    group_column: shared_options.GroupColumn = "group",
    no_text_search: shared_options.NoTextSearch = False,
    keep_column: Annotated[
        list[str] | None, typer.Option(help="also copy this column of the table (repeatable)")
    ] = None,
    name_column: Annotated[
        list[str] | None,
        typer.Option(
            help="column of the table that names the patient: its words are removed from the other texts of its row (repeatable)"
        ),
    ] = None,
    labels: Annotated[
        list[Path] | None,
        typer.Option(
            help="COCO JSON, or folder of VOC, YOLO, mask or NIfTI files, to write under the images' ids; NIfTI with its images "
            "(repeatable)"
        ),
    ] = None,
    skip_contradictions: shared_options.SkipContradictions = False,
) -> None:
    """Remove names from images and DICOM files, set aside what may contain burned-in text, report what was removed."""
    from curation.deidentify.image_folder import deidentify_folder, find_images
    from curation.deidentify.image_labels import load_image_labels
    from curation.deidentify.patient_table import PatientTable
    from curation.images.image_table import read_dataframe, require_columns

    labelled = [load_image_labels(path, images) for path in labels or ()]
    known = None
    if table is not None:
        raw = read_dataframe(table)
        wanted = (image_column, *(keep_column or ()), *(name_column or ()))
        require_columns(raw, table, wanted, "Name its columns as the table does.")
        raw = raw.rename(columns={image_column: "image", group_column: "group"})
        below = [*find_images(images, labelled), *{path for each in labelled for path in each.volumes}]
        files = [path.absolute().relative_to(images.absolute()).as_posix() for path in below]
        known = PatientTable(raw, files, table, keep_column or (), name_column or ())
    report = deidentify_folder(images, out, known, not no_text_search, labelled, skip_contradictions)
    typer.echo(
        f"taken: {', '.join(f'{count} {what}' for what, count in report['files'].items())}; groups: {report['groups']}"
    )
    if split := report["patient_ids_in_several_groups"]:
        typer.echo(
            f"{split} PatientIDs have images in several groups of {table}, so that a patient may come to both sides of a split. "
            f"Group by patient, or leave the column {group_column!r} out."
        )
    for what in ("not_taken", "ignored_in_headers", "labels", "labels_left_out"):
        for why, count in report[what].items():
            typer.echo(f"{what.replace('_', ' ')}: {count} ({why})")
    if classes := sorted({name for each in labelled for name in each.classes}):
        typer.echo(f"names of classes, copied without the names that are known (read them): {', '.join(classes)}")
    if known is not None:
        if known.left_out:
            typer.echo(
                f"columns of {table} left out: {', '.join(known.left_out)} (--keep-column copies one; --name-column takes its words "
                "out of the other texts)"
            )
        for what, count in known.counts.items():
            typer.echo(f"{table}: {count} {what.replace('_', ' ')}")
    if waiting := report["text"]["images_with_text"]:
        typer.echo(f"{waiting} images may hold burned-in text: decide with medprobe curate texts {out}")
    typer.echo(f"wrote {out} (report: {out / 'deidentification.json'}); keep {out}.key and {out}.names.csv private")


def texts(
    folder: Annotated[Path, typer.Argument(help="folder that `medprobe curate deidentify` wrote")],
    port: Annotated[int, typer.Option(help="port on 127.0.0.1")] = 7862,
) -> None:
    """Serve a page on which a person decides about images with burned-in text."""
    from curation.deidentify.review_texts import serve_text_review

    serve_text_review(folder, port)


def withdraw(
    folder: Annotated[
        Path,
        typer.Argument(
            help="folder written by `deidentify`, `probe`, `hallucinate`, `export` or `gmai` (not the built dataset)"
        ),
    ],
    group: Annotated[
        str, typer.Option(help="the patient, study or article to remove: as in the table, or its id (g-...)")
    ],
    runs: Annotated[
        list[Path] | None, typer.Option(help="also reduce the runs in this folder to the other cases (repeatable)")
    ] = None,
    stores: Annotated[
        list[Path] | None,
        typer.Option(
            help="also take questions about them out of this results store (folder), with the results on them"
        ),
    ] = None,
) -> None:
    """Remove a patient from a dataset: images, questions and entries. Everything else keeps its ids; later commands obey the list."""
    import json

    from curation.gmai.items import UNIT_JOURNAL, withdraw_patient
    from curation.images.file_names import DEIDENTIFICATION_REPORT
    from curation.withdraw import (
        UNREACHED_COPIES,
        keyed_group_ids,
        withdraw_from_runs,
        withdraw_from_store,
        withdraw_group,
    )

    private = folder / "private"
    is_gmai = (private / UNIT_JOURNAL).is_file()
    ids = {group} if group.startswith("g-") else keyed_group_ids(folder, group)
    for what, count in (withdraw_patient(private, group) if is_gmai else withdraw_group(folder, group)).items():
        typer.echo(f"taken out: {count} {what}")
    for root in runs or ():
        typer.echo(f"taken out of the runs in {root}: {withdraw_from_runs(root, ids)} questions")
    for store in stores or ():
        for result in withdraw_from_store(store, ids):
            typer.echo(f"taken out of {store}: {result}. Submit its run again, reduced by --runs.")
    if is_gmai:
        following = (
            f"medprobe curate gmai SOURCES --out {folder}, which makes {folder / 'dataset'} and {folder / 'tsv'} anew"
        )
    elif (folder / DEIDENTIFICATION_REPORT).is_file():
        following = (
            f"withdraw them from every set made of {folder / 'images'} (`medprobe curate id` gives their id there)"
        )
    else:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        following = f"medprobe build {manifest['format']} --as {manifest['name']} --source {folder}"
    typer.echo(f"next: {following}, and publish again.")
    typer.echo(UNREACHED_COPIES)


def group_id(
    name: Annotated[str, typer.Argument(help="a patient's number, or another group, as the hospital's table calls it")],
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="folders with their keys beside them, in order, e.g. what `deidentify` wrote and a set made of it"
        ),
    ],
) -> None:
    """Print the keyed id of a patient in a folder, for the owner of its key; with several, the id in each made of the one before."""
    from curation.withdraw import keyed_group_ids

    names = {name}
    for folder in folders:
        names = {made for each in names for made in keyed_group_ids(folder, each)}
        typer.echo(f"{folder}: {', '.join(sorted(names)) or 'no image is of them'}")
