"""Registry of readers: turn the files of each format into units that are loaded one at a time.

A reader of annotated images yields annotations, which are paired with images here; the reader of
DICOM yields units itself. A unit's `load` returns its pictures or raises `Skipped`.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from curation.readers.consistency import Skip
from curation.readers.dataset import SourceDataset
from curation.readers.dicom import dicom_units
from curation.readers.pictures import (
    AnnotatedImages,
    Annotation,
    DatasetFiles,
    Unit,
    pair_annotations,
    relative_name,
)
from curation.readers.shapes import read_coco, read_masks, read_voc, read_yolo
from curation.readers.table_readers import read_class_folders, read_label_columns, read_table_rows
from curation.readers.volumes import read_nifti, strip_channel_suffixes

ANNOTATION_READERS: dict[str, tuple[Callable[[SourceDataset, DatasetFiles], Iterator[Annotation]], str]] = {
    "folders": (read_class_folders, "not in a class folder"),
    "csv": (read_table_rows, "has no row in the table"),
    "wide": (read_label_columns, "has no row in the table"),
    "boxes": (read_table_rows, "has no row in the table"),
    "coco": (read_coco, "not listed in the JSON"),
    "voc": (read_voc, "has no XML"),
    "yolo": (read_yolo, "has no text file of the same name"),
    "masks": (read_masks, "has no mask"),
    "nifti": (read_nifti, "has no label volume"),
}
"""Reader of annotated images -> function, and the skip reason of images without an annotation."""

NON_PICTURE_SUFFIXES = {
    "", ".txt", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".md", ".pdf", ".html", ".names",
}  # fmt: skip
"""Suffixes of files that are expected beside pictures; any other file is reported as "not a
picture".
"""


def pair_dataset(
    dataset: SourceDataset, files: DatasetFiles
) -> tuple[AnnotatedImages, list[Skip], list[Path], set[Path]]:
    """Read a dataset's annotations and pair them with its images.

    Args:
        dataset: a dataset with a reader of annotated images.
        files: its files.

    Returns:
        Annotations with their images; what was skipped; images without an annotation; annotation
        files.

    Raises:
        BadInput: the files are not in the reader's format at all.
    """
    annotations = list(ANNOTATION_READERS[dataset.reader][0](dataset, files))
    annotation_files = {file for annotation in annotations for file in annotation.files}
    is_nifti = dataset.reader == "nifti"

    # Masks and label volumes may be in the image folder; they are not images themselves.
    images = [path for path in (files.volumes if is_nifti else files.pictures) if path not in annotation_files]
    names = [relative_name(path, dataset.path) for path in images]
    image_names = strip_channel_suffixes(names, [annotation.image for annotation in annotations]) if is_nifti else names

    unmatched: list[Path] = []
    if dataset.image:
        # With a pattern, images are compared by their case instead of their path.
        cases = {path: dataset.case_of(dataset.image, name) for path, name in zip(images, names, strict=True)}
        unmatched = [path for path in images if cases[path] is None]
        images = [path for path in images if cases[path]]
        image_names = [case[0] for case in cases.values() if case]

    pairs, skips, unannotated = pair_annotations(annotations, images, image_names, dataset)
    return pairs, files.skips + skips, [*unannotated, *unmatched], annotation_files


def list_units(dataset: SourceDataset) -> tuple[list[Unit], list[Skip]]:
    """List the units of a dataset and what its reader skipped.

    Raises BadInput as `pair_dataset` does.
    """
    files = DatasetFiles(dataset)
    if dataset.reader == "dicom":
        return list(dicom_units(dataset, files)), files.skips

    pairs, skips, unannotated, _ = pair_dataset(dataset, files)
    skip_reasons = dict.fromkeys(unannotated, ANNOTATION_READERS[dataset.reader][1])

    if dataset.reader != "nifti":
        not_pictures = sorted(set(files.all_files) - set(files.pictures))
        skip_reasons |= {
            path: "not a picture" for path in not_pictures if path.suffix.lower() not in NON_PICTURE_SUFFIXES
        }

    units = [
        Unit(
            relative_name(path, dataset.path),
            [path, *result.files],
            partial(result.load, path, result, dataset),
        )
        for result, path in pairs
    ]
    return units, skips + [
        Skip(dataset.name, relative_name(path, dataset.path), reason) for path, reason in skip_reasons.items()
    ]
