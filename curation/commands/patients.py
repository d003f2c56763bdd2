"""Commands deidentify, texts, withdraw and id, which protect patients."""

from pathlib import Path
from typing import Annotated

import typer

from curation.commands import shared_options


def deidentify(
    images: Annotated[Path, typer.Argument(help="folder of images and DICOM files")],
    out: Annotated[
        Path,
        typer.Option(
            help="folder to write; its key and list of names are written next to it and stay private",
        ),
    ],
    table: shared_options.Table = None,
    image_column: shared_options.ImageColumn = "image",
    group_column: Annotated[
        str,
        typer.Option(help="column with the group of an image: patient, figure, article"),
    ] = "group",
    no_text_search: shared_options.NoTextSearch = False,
    keep_column: Annotated[
        list[str] | None, typer.Option(help="also copy this column of the table (repeatable)")
    ] = None,
    name_column: Annotated[
        list[str] | None,
        typer.Option(
            help="column of the table that names the patient: its words are removed from the other texts of the row "
            "(repeatable)"
        ),
    ] = None,
    labels: Annotated[
        list[Path] | None,
        typer.Option(
            help="labels to copy: COCO JSON, or folder of VOC, YOLO, mask or NIfTI files; NIfTI images are copied with "
            "their labels (repeatable)"
        ),
    ] = None,
    skip_contradictions: shared_options.SkipContradictions = False,
) -> None:
    """Remove names from images and DICOM files.

    Images that may contain burned-in text are set aside; a report says what was removed.
    """
    from curation.deidentify.image_folder import deidentify_folder, find_images
    from curation.deidentify.image_labels import load_image_labels
    from curation.deidentify.patient_table import PatientTable
    from curation.images.image_table import read_dataframe, require_columns

    # Labels are loaded first, since their files must not be read as images.
    label_sets = [load_image_labels(path, images) for path in labels or ()]
    patient_table = None
    if table is not None:
        raw_table = read_dataframe(table)
        columns = (image_column, *(keep_column or ()), *(name_column or ()))
        require_columns(raw_table, table, columns, "Give the column names of the table.")
        raw_table = raw_table.rename(columns={image_column: "image", group_column: "group"})
        volumes = {path for label_set in label_sets for path in label_set.volumes}
        files = [
            path.absolute().relative_to(images.absolute()).as_posix()
            for path in (*find_images(images, label_sets), *volumes)
        ]
        patient_table = PatientTable(raw_table, files, table, keep_column or (), name_column or ())
    report = deidentify_folder(
        images,
        out,
        patient_table,
        not no_text_search,
        label_sets,
        skip_contradictions,
    )

    typer.echo(
        f"read: {', '.join(f'{count} {kind}' for kind, count in report['files'].items())}; groups: {report['groups']}"
    )
    if split_patients := report["patient_ids_in_several_groups"]:
        typer.echo(
            f"{split_patients} PatientIDs have images in several groups of {table}, so a patient "
            "may end up on both "
            f"sides of a split. Group by patient, or leave out the column {group_column!r}."
        )
    for section in ("not_taken", "ignored_in_headers", "labels", "labels_left_out"):
        for reason, count in report[section].items():
            typer.echo(f"{section.replace('_', ' ')}: {count} ({reason})")
    # Class names are free text, so only a person can tell whether one of them names a patient.
    if classes := sorted({name for label_set in label_sets for name in label_set.classes}):
        typer.echo(
            f"class names, copied without known patient names (check them): {', '.join(classes)}",
        )
    if patient_table is not None:
        if patient_table.left_out:
            typer.echo(
                f"columns of {table} left out: {', '.join(patient_table.left_out)} (--keep-column "
                "copies a column; "
                "--name-column removes its words from the other texts)"
            )
        for key, count in patient_table.counts.items():
            typer.echo(f"{table}: {count} {key.replace('_', ' ')}")
    if pending := report["text"]["images_with_text"]:
        typer.echo(
            f"{pending} images may contain burned-in text: decide with medprobe curate texts {out}",
        )
    typer.echo(
        f"wrote {out} (report: {out / 'deidentification.json'}); keep {out}.key and {out}.names.csv private",
    )


def texts(
    folder: Annotated[Path, typer.Argument(help="folder that `medprobe curate deidentify` wrote")],
    port: Annotated[int, typer.Option(help="port on 127.0.0.1")] = 7865,
) -> None:
    """Serve a page on which a person decides about images with burned-in text."""
    from curation.deidentify.review_texts import build_text_review, pending_images
    from dataset_builders.browser_page.page import serve_page

    purpose = f"deciding about {len(pending_images(folder))} images"
    serve_page(lambda _: build_text_review(folder), folder, "texts", purpose, port)


def withdraw(
    folder: Annotated[
        Path,
        typer.Argument(
            help="folder written by `deidentify`, `probe`, `hallucinate`, `export` or `gmai` (not the built dataset)"
        ),
    ],
    group: Annotated[
        str,
        typer.Option(
            help="the patient, study or article to remove: as in the table, or its id (g-...)",
        ),
    ],
    runs: Annotated[
        list[Path] | None,
        typer.Option(help="also remove its cases from the runs in this folder (repeatable)"),
    ] = None,
    stores: Annotated[
        list[Path] | None,
        typer.Option(
            help="also delete the questions about it from this results store (folder), and the results on these questions"
        ),
    ] = None,
) -> None:
    """Remove a patient from a dataset: images, questions and entries.

    All other questions keep their ids, and later commands leave the patient out.
    """
    from curation.withdraw import (
        UNREACHED_COPIES,
        describe_rebuild,
        group_ids,
        withdraw_from_runs,
        withdraw_from_store,
        withdraw_group,
    )

    ids = group_ids(folder, group)
    removed = withdraw_group(folder, group, ids)
    for kind, count in removed.items():
        typer.echo(f"removed: {count} {kind}")
    for root in runs or ():
        typer.echo(f"removed from the runs in {root}: {withdraw_from_runs(root, ids)} questions")
    for store in stores or ():
        for result in withdraw_from_store(store, ids):
            typer.echo(f"removed from {store}: {result}. Submit its run again after --runs has reduced it.")

    # Datasets that were built earlier still contain the patient, so state how to rebuild them.
    typer.echo(f"next: {describe_rebuild(folder)}, and publish again.")
    typer.echo(UNREACHED_COPIES)


def group_id(
    name: Annotated[
        str,
        typer.Argument(help="a patient's number, or another group, as in the hospital's table"),
    ],
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="folders with their keys next to them, in order, e.g. a folder of `deidentify` and a set made from it"
        ),
    ],
) -> None:
    """Print the keyed id of a patient in a folder; this needs the folder's key.

    For a set made from another folder, give both folders in order: each id is computed from the one
    before.
    """
    from curation.withdraw import keyed_group_ids

    ids = {name}
    for folder in folders:
        ids = {keyed_id for group in ids for keyed_id in keyed_group_ids(folder, group)}
        typer.echo(f"{folder}: {', '.join(sorted(ids)) or 'no image belongs to them'}")
