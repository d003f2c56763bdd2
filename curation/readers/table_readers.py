"""Readers for class folders and tables.

A table has one row per image, one column per label, or one row per box.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from curation.images.image_table import cell_text, image_text, read_dataframe, require_columns
from curation.readers.dataset import SourceDataset
from curation.readers.pictures import (
    Annotation,
    DatasetFiles,
    PictureLabel,
    Targets,
    parse_box,
    relative_name,
    unusable_targets,
)

Rows = list[dict[str, str]]
UNNAMED_IMAGE = "a row without an image name"
PATIENT_FIELDS = ("patient", "age", "sex", "site")
PRESENT_CELLS, ABSENT_CELLS, UNSURE_CELLS = (
    {"1", "1.0", "true", "yes"},
    {"0", "0.0", "false", "no"},
    {"-1", "-1.0", ""},
)
"""Cells of a table with one column per label (-1: mentioned as uncertain; CheXpert)."""


def read_class_folders(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation]:
    """Label each picture by its class folder, the first folder below the dataset's path."""
    for name in (relative_name(path, dataset.path) for path in files.pictures):
        if "/" in name:
            yield Annotation(name, (), partial(_class_targets, [name.partition("/")[0]]))


def _class_targets(labels: list[str], shape: tuple[int, int]) -> list[PictureLabel]:
    return [PictureLabel(label) for label in labels]


def read_table_rows(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation]:
    """Read a table whose rows have labels or a box; rows of the same image are combined."""
    sides = dataset.columns.box or ()
    for name, rows in group_rows_by_image(dataset, files.annotation_root, [dataset.columns.label, *sides]).items():
        labels = list(
            dict.fromkeys(label for row in rows for label in split_labels(row[dataset.columns.label], dataset))
        )
        targets = partial(_box_targets, rows, dataset) if sides else partial(_class_targets, labels)
        yield _annotation_of_rows(rows, dataset, files.annotation_root, name, targets)


def _box_targets(rows: Rows, dataset: SourceDataset, shape: tuple[int, int]) -> list[PictureLabel]:
    boxes = [(row, parse_box([row[side] for side in dataset.columns.box or ()], shape)) for row in rows]
    return [
        PictureLabel(label, box) for row, box in boxes for label in split_labels(row[dataset.columns.label], dataset)
    ]


def read_label_columns(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation]:
    """Read a table with one column per label.

    1 means present, 0 absent, -1 uncertain, blank not stated (absent if the dataset is exhaustive).
    A label that is neither present nor absent is never offered as a wrong option for the image.
    """
    labels = dataset.columns.labels
    unsure = UNSURE_CELLS - {""} if dataset.exhaustive else UNSURE_CELLS

    for name, rows in group_rows_by_image(dataset, files.annotation_root, list(labels)).items():
        cells = {label: rows[0][label].casefold() for label in labels}
        present_labels = [
            label for label, cell in cells.items() if cell in PRESENT_CELLS and label not in dataset.nothing
        ]

        targets: Targets = partial(_class_targets, present_labels)
        if invalid_labels := [
            label for label, cell in cells.items() if cell not in PRESENT_CELLS | ABSENT_CELLS | UNSURE_CELLS
        ]:
            targets = unusable_targets(f"a cell is neither 1, 0, -1 nor blank (column {invalid_labels[0]!r})")

        if len(rows) > 1:
            targets = unusable_targets("has several rows")

        uncertain = frozenset(label for label, cell in cells.items() if cell in unsure)
        yield _annotation_of_rows(rows, dataset, files.annotation_root, name, targets, uncertain)


def split_labels(cell: str, dataset: SourceDataset) -> list[str]:
    """Return the labels in a cell, without duplicates and without those that mean no label."""
    parts = [part.strip() for part in cell.split(dataset.separator)] if dataset.separator else [cell.strip()]
    return [label for label in dict.fromkeys(parts) if label and label not in dataset.nothing]


def group_rows_by_image(dataset: SourceDataset, table: Path, label_columns: list[str]) -> dict[str, Rows]:
    """Group the rows of a dataset's table by the image that they name.

    Args:
        dataset: a dataset whose annotations are a table.
        table: the table.
        label_columns: required columns, in addition to those of the image and the patient.

    Returns:
        Image name -> its rows, as column -> text.

    Raises:
        BadInput: a column is missing.
    """
    columns = dataset.columns
    frame = read_dataframe(table)
    fact_columns = [column for name in PATIENT_FIELDS if (column := getattr(columns, name)) is not None]
    label_columns = list(dict.fromkeys((columns.image, *label_columns, *fact_columns)))

    require_columns(frame, f"dataset {dataset.name}: {table}", label_columns, "Name it below `columns`.")

    rows: dict[str, Rows] = defaultdict(list)
    for row in frame[label_columns].to_dict("records"):
        texts = {str(name): cell_text(value) for name, value in row.items()}
        if any(texts.values()):
            rows[image_text(row[columns.image]) or UNNAMED_IMAGE].append(texts)
    return rows


def _annotation_of_rows(
    rows: Rows,
    dataset: SourceDataset,
    table: Path,
    name: str,
    targets: Targets,
    unsure: frozenset[str] = frozenset(),
) -> Annotation:
    """Return the annotation for rows of the same image name, with patient, age, sex and site.

    Contradictory rows may belong to different images of the same name, so they are refused.
    """
    facts: dict[str, str | None] = {}
    for field in PATIENT_FIELDS:
        if (column := getattr(dataset.columns, field)) is not None:
            values = {row[column] for row in rows} - {""}
            facts[field] = next(iter(values), None)
            if len(values) > 1:
                targets = unusable_targets(f"its rows differ in {field}: name images by their path")
    return Annotation(name, (table,), targets, facts, unsure)
