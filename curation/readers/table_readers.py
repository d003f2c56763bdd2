"""Readers of what needs no file per image: class folders, tables (one row per image, a column per label, or one box per row), and
benchmarks in VLMEvalKit's layout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from curation.images.image_index import decode_rgb
from curation.images.image_table import cell_text, image_text, read_dataframe, require_columns
from curation.readers.consistency import Skip, parse_box
from curation.readers.dataset import SourceDataset
from curation.readers.pictures import (
    Annotation,
    DatasetFiles,
    Picture,
    PictureLabel,
    Targets,
    Unit,
    relative_name,
    unusable_targets,
)
from curation.readers.pixels import Skipped
from dataset_builders.benchmarks.gmai_mmbench.tsv import MAX_REFERENCE_LENGTH, read_image, read_tsv
from dataset_builders.errors import BadInput
from dataset_builders.images.lookup import ImageError
from dataset_builders.schema import LETTERS

Rows = list[dict[str, str]]
UNNAMED_IMAGE = "a row that names no image"
PATIENT_FIELDS = ("patient", "age", "sex", "site")
PRESENT_CELLS, ABSENT_CELLS, UNSURE_CELLS = (
    {"1", "1.0", "true", "yes"},
    {"0", "0.0", "false", "no"},
    {"-1", "-1.0", ""},
)
"""Cells of a table with a column per label (-1: mentioned, but uncertain; CheXpert)."""


def read_class_folders(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation]:
    """The class of each picture that lies in a class folder, the first below the dataset's path."""
    for name in (relative_name(path, dataset.path) for path in files.pictures):
        if "/" in name:
            yield Annotation(name, (), partial(_class_targets, [name.partition("/")[0]]))


def _class_targets(labels: list[str], shape: tuple[int, int]) -> list[PictureLabel]:
    return [PictureLabel(label) for label in labels]


def read_table_rows(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation]:
    """Annotations from the rows of a table: one or several labels per row, or a box per row; the rows of an image are combined."""
    sides = dataset.columns.box or ()
    for name, rows in group_rows_by_image(dataset, [dataset.columns.label, *sides]).items():
        labels = list(
            dict.fromkeys(label for row in rows for label in split_labels(row[dataset.columns.label], dataset))
        )
        targets = partial(_box_targets, rows, dataset) if sides else partial(_class_targets, labels)
        yield _annotation_of_rows(rows, dataset, name, targets)


def _box_targets(rows: Rows, dataset: SourceDataset, shape: tuple[int, int]) -> list[PictureLabel]:
    found = [(row, parse_box([row[side] for side in dataset.columns.box or ()], shape)) for row in rows]
    return [
        PictureLabel(label, box) for row, box in found for label in split_labels(row[dataset.columns.label], dataset)
    ]


def read_label_columns(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation]:
    """Annotations from a table with a column per label: 1 present, 0 absent, -1 uncertain, blank not stated (absent if the set is
    exhaustive). A label that is neither present nor absent is never an option beside the image."""
    labels = dataset.columns.labels
    unsure = UNSURE_CELLS - {""} if dataset.exhaustive else UNSURE_CELLS
    for name, rows in group_rows_by_image(dataset, list(labels)).items():
        said = {label: rows[0][label].casefold() for label in labels}
        shown = [label for label, cell in said.items() if cell in PRESENT_CELLS and label not in dataset.nothing]
        targets: Targets = partial(_class_targets, shown)
        if wrong := [label for label, cell in said.items() if cell not in PRESENT_CELLS | ABSENT_CELLS | UNSURE_CELLS]:
            targets = unusable_targets(f"a cell is neither 1, 0, -1 nor blank (column {wrong[0]!r})")
        if len(rows) > 1:
            targets = unusable_targets("has several rows")
        open_ = frozenset(label for label, cell in said.items() if cell in unsure)
        yield _annotation_of_rows(rows, dataset, name, targets, open_)


def split_labels(cell: str, dataset: SourceDataset) -> list[str]:
    """The labels of one cell, without those that stand for none."""
    found = [part.strip() for part in cell.split(dataset.separator)] if dataset.separator else [cell.strip()]
    return [label for label in dict.fromkeys(found) if label and label not in dataset.nothing]


def group_rows_by_image(dataset: SourceDataset, wanted: list[str]) -> dict[str, Rows]:
    """The rows of a dataset's table by the image that they name. wanted: columns beside those of the image and the patient. Raises
    BadInput for a column that is not there."""
    assert dataset.annotations is not None
    columns = dataset.columns
    given = read_dataframe(dataset.annotations)
    named = [column for name in PATIENT_FIELDS if (column := getattr(columns, name)) is not None]
    wanted = list(dict.fromkeys((columns.image, *wanted, *named)))
    require_columns(given, f"dataset {dataset.name}: {dataset.annotations}", wanted, "Name it below `columns`.")
    rows: dict[str, Rows] = defaultdict(list)
    for row in given[wanted].to_dict("records"):
        texts = {str(name): cell_text(value) for name, value in row.items()}
        if any(texts.values()):
            rows[image_text(row[columns.image]) or UNNAMED_IMAGE].append(texts)
    return rows


def _annotation_of_rows(
    rows: Rows, dataset: SourceDataset, name: str, targets: Targets, unsure: frozenset[str] = frozenset()
) -> Annotation:
    """The annotation of the rows of one name, with what they say of patient, age, sex, site. Rows that contradict one another may be
    those of several images that are called the same."""
    assert dataset.annotations is not None
    facts: dict[str, str | None] = {}
    for field in PATIENT_FIELDS:
        if (column := getattr(dataset.columns, field)) is not None:
            values = {row[column] for row in rows} - {""}
            facts[field] = next(iter(values), None)
            if len(values) > 1:
                targets = unusable_targets(f"its rows name several values of {field}: name images by their path")
    return Annotation(name, (dataset.annotations,), targets, facts, unsure)


# Benchmarks in VLMEvalKit's layout

TAG_COLUMNS = {
    "task": ("clinical vqa task", "l2-category"),
    "department": ("department",),
    "granularity": ("perceptual granularity",),
}


def tsv_units(dataset: SourceDataset) -> Iterator[Unit | Skip]:
    """One unit per question of a benchmark in VLMEvalKit's layout with an answer and an image of its own: the correct options are labels.

    The overlays are in the images already, so that every question stays at the granularity it has. Raises BadInput if no file has the
    columns.
    """
    files = [dataset.path] if dataset.path.is_file() else sorted(dataset.path.glob("*.tsv"))
    if not files:
        raise BadInput(f"dataset {dataset.name}: there is no TSV in {dataset.path}.")
    for file in files:
        for record in read_tsv(file):
            fields = {name: value.strip() for name, value in record.fields.items()}
            index = fields.get("index") or f"line {record.line}"
            answer = [letter for letter in LETTERS if letter in fields.get("answer", "")]
            if not {"image", "question", "A", "B"} <= set(fields):
                raise BadInput(f"dataset {dataset.name}: {file} lacks the columns image, question, A, B.")
            if not answer or not fields.get(answer[0]):
                yield Skip(dataset.name, index, "a question without an answer")
            elif fields["image"].startswith("["):
                yield Skip(dataset.name, index, "a question about several images")
            elif len(fields["image"]) <= MAX_REFERENCE_LENGTH:
                yield Skip(dataset.name, index, "shows the image of another question")
            else:
                labels = [fields[letter] for letter in answer]
                tags = {
                    tag: next((fields[n] for n in names if fields.get(n)), "") for tag, names in TAG_COLUMNS.items()
                }
                tags = {tag: value for tag, value in tags.items() if value}
                place = file, record.start
                key = index if len(files) == 1 else f"{file.name} {index}"
                yield Unit(key, [file], partial(_load_record, *place, labels, tags, fields.get("modality", "")))


def _load_record(
    file: Path, start: int, labels: list[str], tags: dict[str, str], modality: str, unit: Unit
) -> list[Picture]:
    try:
        pixels = np.asarray(decode_rgb(read_image(file, start)))
    except ImageError as error:
        raise Skipped(str(error)) from None
    return [Picture(unit.key, pixels, [PictureLabel(label) for label in labels], modality=modality or None, tags=tags)]
