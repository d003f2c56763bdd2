"""Readers of what needs no file per image: class folders, tables (one row per image, a column per label, or one box per row), and
benchmarks in VLMEvalKit's layout.

A reader is a function `NAME_units(dataset, sources)` that yields the pieces that can be read one by one, and what is left out before
anything is read. A unit's `load` gives its pictures, or raises `Skipped` with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from curation.gmai.files import below, box_of, open_picture, paired, picture_of, pictures_below
from curation.gmai.pictures import Picture, Skip, Skipped, Target, Unit
from curation.gmai.sources import Dataset, Sources
from curation.images.image_index import open_rgb
from curation.images.image_table import cell_text, need_columns, read_any
from curation.images.pairing import split
from dataset_builders.benchmarks.gmai_mmbench.tsv import REFERENCE_LENGTH, image_of, records
from dataset_builders.errors import BadInput
from dataset_builders.images.lookup import ImageError
from dataset_builders.schema import LETTERS

Rows = list[dict[str, str]]
FIELDS = ("patient", "study", "age", "sex", "site")
PRESENT, ABSENT, UNSURE = ({"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no"}, {"-1", "-1.0", ""})
"""Cells of a table with a column per label (-1: mentioned, but uncertain; CheXpert)."""


def folders_units(dataset: Dataset, sources: Sources) -> Iterator[Unit | Skip]:
    """One unit per picture, whose class is the first folder below the dataset's path. Those that lie in none are skipped."""
    pictures, skips = pictures_below(dataset)
    yield from skips
    for path in pictures:
        name = below(path, dataset.path)
        if "/" not in name:
            yield Skip(dataset.name, name, "lies in no class folder")
            continue
        label = name.split("/", 1)[0]
        yield Unit(name, [path], partial(_load, path, partial(_class_folder, label), label, {}, dataset))


def _class_folder(label: str, shape: tuple[int, ...]) -> tuple[list[Target], set[str]]:
    return [Target(label)], set()


def csv_units(dataset: Dataset, sources: Sources) -> Iterator[Unit | Skip]:
    """One unit per image of a table with one or several labels per row; several rows of an image add up."""

    def targets(rows: Rows, shape: tuple[int, ...]) -> tuple[list[Target], set[str]]:
        labels = [label for row in rows for label in labels_in(row[dataset.columns.label], dataset)]
        return [Target(label) for label in dict.fromkeys(labels)], set()

    return _table_units(dataset, rows_by_image(dataset, [dataset.columns.label]), targets)


def boxes_units(dataset: Dataset, sources: Sources) -> Iterator[Unit | Skip]:
    """One unit per image of a table with a box per row, as ChestX-ray14's list."""
    sides = dataset.columns.box or ()

    def targets(rows: Rows, shape: tuple[int, ...]) -> tuple[list[Target], set[str]]:
        boxes = [(row, box_of([row[side] for side in sides], shape)) for row in rows]
        made = [Target(x, "box", box) for row, box in boxes for x in labels_in(row[dataset.columns.label], dataset)]
        return made, set()

    return _table_units(dataset, rows_by_image(dataset, [dataset.columns.label, *sides]), targets)


def wide_units(dataset: Dataset, sources: Sources) -> Iterator[Unit | Skip]:
    """One unit per image of a table with a column per label: 1 present, 0 absent, -1 uncertain, blank not stated (absent where the set
    is exhaustive, or the table holds nothing but 1 and blanks). What is neither present nor absent is never an option beside the image."""
    rows, labels = _label_columns(dataset)
    blank_is_absent = dataset.exhaustive or not any(
        row[label].casefold() not in PRESENT | {""} for own in rows.values() for row in own for label in labels
    )

    def targets(own: Rows, shape: tuple[int, ...]) -> tuple[list[Target], set[str]]:
        if len(own) > 1:
            raise Skipped("has several rows")
        cells = {label: own[0][label].casefold() for label in labels}
        wrong = [label for label, cell in cells.items() if cell not in PRESENT | ABSENT | UNSURE]
        if wrong:
            raise Skipped(f"a cell is neither 1, 0, -1 nor blank (column {wrong[0]!r})")
        unsure = {label for label, cell in cells.items() if cell in UNSURE and not (cell == "" and blank_is_absent)}
        shown = [label for label, cell in cells.items() if cell in PRESENT and label not in dataset.nothing]
        return [Target(label) for label in shown], unsure

    return _table_units(dataset, rows, targets)


def _label_columns(dataset: Dataset) -> tuple[dict[str, Rows], list[str]]:
    """(the rows by image, the columns of labels: those named, else all others that hold nothing but 1, 0, -1 and blanks). Raises BadInput
    where there is none."""
    labels = list(dataset.columns.labels)
    if not labels:
        assert dataset.annotations is not None
        named = {str(value) for name, value in vars(dataset.columns).items() if name not in ("label", "labels", "box")}
        table = read_any(dataset.annotations)
        for column in (str(each) for each in table.columns if str(each) not in named):
            cells = {cell_text(value).casefold() for value in table[column]}
            if cells <= PRESENT | ABSENT | UNSURE and cells & (PRESENT | ABSENT):
                labels.append(column)
        if not labels:
            raise BadInput(
                f"dataset {dataset.name}: {dataset.annotations} has no column of 1, 0, -1 and blanks. Name them below `columns.labels`."
            )
    return rows_by_image(dataset, labels), labels


def labels_in(cell: str, dataset: Dataset) -> list[str]:
    """The labels of one cell, without those that stand for none."""
    found = [part.strip() for part in cell.split(dataset.separator)] if dataset.separator else [cell.strip()]
    return [label for label in dict.fromkeys(found) if label and label not in dataset.nothing]


def rows_by_image(dataset: Dataset, wanted: list[str]) -> dict[str, Rows]:
    """The rows of a dataset's table by the image that they name. wanted: columns beside those of the image and the patient. Raises
    BadInput for a column that is not there."""
    assert dataset.annotations is not None
    columns = dataset.columns
    table = read_any(dataset.annotations)
    named = [column for name in FIELDS if (column := getattr(columns, name)) is not None]
    where = f"dataset {dataset.name}: {dataset.annotations}"
    wanted = list(dict.fromkeys((columns.image, *wanted, *named)))
    need_columns(table, where, wanted, "Name it below `columns`.")
    rows: dict[str, Rows] = defaultdict(list)
    for row in table[wanted].to_dict("records"):
        texts = {str(name): cell_text(value) for name, value in row.items()}
        if texts[columns.image]:
            rows["/".join(split(texts[columns.image]))].append(texts)
    return rows


TargetsOf = Callable[[Rows, tuple[int, ...]], tuple[list[Target], set[str]]]
"""(what the rows of an image name, given its shape; labels of which they do not say whether they are there). May raise Skipped."""


def _table_units(dataset: Dataset, rows: dict[str, Rows], targets: TargetsOf) -> Iterator[Unit | Skip]:
    assert dataset.annotations is not None
    pictures, skips = pictures_below(dataset)
    yield from skips
    names = list(rows)
    found = paired(names, pictures, dataset, suffix=True)
    yield from found.skips
    for name, path in zip(names, found.images, strict=True):
        if path is None:
            continue
        try:
            given = facts_of(rows[name], dataset, found.by_path)
        except Skipped as reason:
            yield Skip(dataset.name, name, str(reason))
            continue
        label = next(iter(labels_in(rows[name][0].get(dataset.columns.label, ""), dataset)), "")
        load = partial(_load, path, partial(targets, rows[name]), label, given, dataset)
        yield Unit(below(path, dataset.path), [path, dataset.annotations], load)
    for path in found.alone:
        yield Skip(dataset.name, below(path, dataset.path), "the table has no row of it")


def facts_of(rows: Rows, dataset: Dataset, by_path: bool) -> dict[str, str | None]:
    """What the rows of an image say of patient, study, age, sex, site. Raises Skipped where they may be rows of several images that are
    called the same: they contradict one another, or do not name the image by its path."""
    if len(rows) > 1 and not by_path:
        raise Skipped("several rows have its name, which is no path: name images by their path")
    given: dict[str, str | None] = {}
    for field in FIELDS:
        if (column := getattr(dataset.columns, field)) is not None:
            values = {row[column] for row in rows} - {""}
            if len(values) > 1:
                raise Skipped(f"its rows name several values of {field}: name images by their path")
            given[field] = next(iter(values), None)
    return given


def _load(
    path: Path,
    targets: Callable[[tuple[int, ...]], tuple[list[Target], set[str]]],
    label: str,
    given: dict[str, str | None],
    dataset: Dataset,
    unit: Unit,
) -> list[Picture]:
    pixels, said = open_picture(path, dataset, label, stored=dataset.reader == "boxes")
    found, unsure = targets(pixels.shape)
    if not found:
        raise Skipped("has no label")
    return [picture_of(path, dataset, pixels, found, said, given, unsure)]


TAGS = {
    "task": ("clinical vqa task", "l2-category"),
    "department": ("department",),
    "granularity": ("perceptual granularity",),
}


def tsv_units(dataset: Dataset, sources: Sources) -> Iterator[Unit | Skip]:
    """One unit per question of a benchmark in VLMEvalKit's layout with an answer and an image of its own: the right options are labels.

    The overlays are in the images already, so that every question stays at the granularity it has. Raises BadInput where no file has the
    columns.
    """
    files = [dataset.path] if dataset.path.is_file() else sorted(dataset.path.glob("*.tsv"))
    if not files:
        raise BadInput(f"dataset {dataset.name}: there is no TSV in {dataset.path}.")
    for file in files:
        for record in records(file):
            fields = {name: value.strip() for name, value in record.fields.items()}
            index = fields.get("index") or f"line {record.line}"
            answer = [letter for letter in LETTERS if letter in fields.get("answer", "")]
            if not {"image", "question", "A", "B"} <= set(fields):
                raise BadInput(f"dataset {dataset.name}: {file} lacks the columns image, question, A, B.")
            if not answer or not fields.get(answer[0]):
                yield Skip(dataset.name, index, "a question without an answer")
            elif fields["image"].startswith("["):
                yield Skip(dataset.name, index, "a question about several images")
            elif len(fields["image"]) <= REFERENCE_LENGTH:
                yield Skip(dataset.name, index, "shows the image of another question")
            else:
                labels = [fields[letter] for letter in answer]
                tags = {tag: next((fields[n] for n in names if fields.get(n)), "") for tag, names in TAGS.items()}
                tags = {tag: value for tag, value in tags.items() if value}
                place = file, record.start, record.length
                key = index if len(files) == 1 else f"{file.name} {index}"
                yield Unit(key, [file], partial(_load_record, *place, labels, tags, fields.get("modality", "")))


def _load_record(
    file: Path, start: int, length: int, labels: list[str], tags: dict[str, str], modality: str, unit: Unit
) -> list[Picture]:
    try:
        pixels = np.asarray(open_rgb(image_of(file, start, length)))
    except ImageError as error:
        raise Skipped(str(error)) from None
    return [Picture(unit.key, pixels, [Target(label) for label in labels], modality=modality or None, tags=tags)]
