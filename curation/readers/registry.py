"""The table of readers: how the files of each format become pieces that can be read one by one.

A reader of annotated images says what a source annotates; a reader of its own files says what its units are. A unit's `load` gives its
pictures, or raises `Skipped` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from curation.readers.consistency import Skip
from curation.readers.dataset import SourceDataset
from curation.readers.dicom import dicom_units
from curation.readers.pictures import AnnotatedImages, Annotation, DatasetFiles, Unit, pair_annotations, relative_name
from curation.readers.shapes import read_coco, read_masks, read_voc, read_yolo
from curation.readers.table_readers import read_class_folders, read_label_columns, read_table_rows, tsv_units
from curation.readers.volumes import read_nifti, strip_channel_suffixes

ANNOTATION_READERS: dict[str, tuple[Callable[[SourceDataset, DatasetFiles], Iterator[Annotation | Skip]], str]] = {
    "folders": (read_class_folders, "lies in no class folder"), "csv": (read_table_rows, "the table has no row of it"),
    "wide": (read_label_columns, "the table has no row of it"), "boxes": (read_table_rows, "the table has no row of it"),
    "coco": (read_coco, "the JSON does not list it"), "voc": (read_voc, "has no XML"), "yolo": (read_yolo, "has no text file of its name"),
    "masks": (read_masks, "has no mask"), "nifti": (read_nifti, "has no label volume"),
}  # fmt: skip
"""Reader of annotated images -> what a source annotates, and what is said of an image that has no annotation."""
UNIT_READERS: dict[str, Callable[[SourceDataset], Iterator[Unit | Skip]]] = {"dicom": dicom_units, "tsv": tsv_units}
"""Reader of its own files -> what can be read one by one, and what is left out before anything is read."""


NON_PICTURE_SUFFIXES = {
    "",
    ".txt",
    ".csv",
    ".tsv",
    ".json",
    ".jsonl",
    ".xml",
    ".yaml",
    ".yml",
    ".md",
    ".pdf",
    ".html",
    ".names",
}
"""Suffixes of what lies beside pictures as a matter of course; other files may have been meant as pictures."""


def pair_dataset(
    dataset: SourceDataset, files: DatasetFiles
) -> tuple[AnnotatedImages, list[Skip], list[Path], set[Path]]:
    """(each annotation with its image, what is left out, images without an annotation, files of annotations) by a reader of annotated
    images. Raises BadInput if the files of a dataset cannot be understood at all."""
    found = list(ANNOTATION_READERS[dataset.reader][0](dataset, files))
    annotations = [each for each in found if isinstance(each, Annotation)]
    taken = {file for each in annotations for file in each.files}
    is_nifti = dataset.reader == "nifti"
    images = [path for path in (files.volumes if is_nifti else files.pictures) if path not in taken]
    names = [relative_name(path, dataset.path) for path in images]
    called = strip_channel_suffixes(names, [each.image for each in annotations]) if is_nifti else names
    others: list[Path] = []
    if dataset.image:
        cases = [dataset.case_of(dataset.image, name) for name in names]
        others = [path for path, case in zip(images, cases, strict=True) if case is None]
        images, called = [path for path in images if path not in others], [case[0] for case in cases if case]
    pairs, skips, alone = pair_annotations(annotations, images, called, dataset)
    return pairs, [*(each for each in found if isinstance(each, Skip)), *files.skips, *skips], [*alone, *others], taken


def list_units(dataset: SourceDataset) -> tuple[list[Unit], list[Skip]]:
    """The units of a dataset, by its reader, and what that leaves out. Raises BadInput as `pairs_of` does."""
    if dataset.reader in UNIT_READERS:
        found = list(UNIT_READERS[dataset.reader](dataset))
        return [each for each in found if isinstance(each, Unit)], [each for each in found if isinstance(each, Skip)]
    files = DatasetFiles(dataset)
    pairs, skips, alone, _ = pair_dataset(dataset, files)
    left_out = dict.fromkeys(alone, ANNOTATION_READERS[dataset.reader][1])
    if dataset.reader != "nifti":
        odd = {path for path in files.all if path.suffix.lower() not in NON_PICTURE_SUFFIXES}.difference(files.pictures)
        left_out |= dict.fromkeys(sorted(odd), "is no picture")
    units = [
        Unit(relative_name(path, dataset.path), [path, *each.files], partial(each.load, path, each, dataset))
        for each, path in pairs
    ]
    return units, skips + [Skip(dataset.name, relative_name(path, dataset.path), why) for path, why in left_out.items()]
