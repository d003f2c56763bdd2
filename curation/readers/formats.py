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
from curation.readers.pictures import Annotation, Files, Pairs, Unit, below, paired
from curation.readers.shapes import coco, masks, voc, yolo
from curation.readers.tables import folders, table, tsv_units, wide
from curation.readers.volumes import nifti, without_channels

ANNOTATED: dict[str, tuple[Callable[[SourceDataset, Files], Iterator[Annotation | Skip]], str]] = {
    "folders": (folders, "lies in no class folder"), "csv": (table, "the table has no row of it"),
    "wide": (wide, "the table has no row of it"), "boxes": (table, "the table has no row of it"),
    "coco": (coco, "the JSON does not list it"), "voc": (voc, "has no XML"), "yolo": (yolo, "has no text file of its name"),
    "masks": (masks, "has no mask"), "nifti": (nifti, "has no label volume"),
}  # fmt: skip
"""Reader of annotated images -> what a source annotates, and what is said of an image that has no annotation."""
UNITS_OF: dict[str, Callable[[SourceDataset], Iterator[Unit | Skip]]] = {"dicom": dicom_units, "tsv": tsv_units}
"""Reader of its own files -> what can be read one by one, and what is left out before anything is read."""


NO_PICTURES = {"", ".txt", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".md", ".pdf", ".html", ".names"}
"""Suffixes of what lies beside pictures as a matter of course; other files may have been meant as pictures."""


def pairs_of(dataset: SourceDataset, files: Files) -> tuple[Pairs, list[Skip], list[Path], set[Path]]:
    """(each annotation with its image, what is left out, images without an annotation, files of annotations) by a reader of annotated
    images. Raises BadInput if the files of a dataset cannot be understood at all."""
    found = list(ANNOTATED[dataset.reader][0](dataset, files))
    annotations = [each for each in found if isinstance(each, Annotation)]
    taken = {file for each in annotations for file in each.files}
    is_nifti = dataset.reader == "nifti"
    images = [path for path in (files.volumes if is_nifti else files.pictures) if path not in taken]
    names = [below(path, dataset.path) for path in images]
    called = without_channels(names, [each.image for each in annotations]) if is_nifti else names
    others: list[Path] = []
    if dataset.image:
        cases = [dataset.case_of(dataset.image, name) for name in names]
        others = [path for path, case in zip(images, cases, strict=True) if case is None]
        images, called = [path for path in images if path not in others], [case[0] for case in cases if case]
    pairs, skips, alone = paired(annotations, images, called, dataset)
    return pairs, [*(each for each in found if isinstance(each, Skip)), *files.skips, *skips], [*alone, *others], taken


def units_of(dataset: SourceDataset) -> tuple[list[Unit], list[Skip]]:
    """The units of a dataset, by its reader, and what that leaves out. Raises BadInput as `pairs_of` does."""
    if dataset.reader in UNITS_OF:
        found = list(UNITS_OF[dataset.reader](dataset))
        return [each for each in found if isinstance(each, Unit)], [each for each in found if isinstance(each, Skip)]
    files = Files(dataset)
    pairs, skips, alone, _ = pairs_of(dataset, files)
    left_out = dict.fromkeys(alone, ANNOTATED[dataset.reader][1])
    if dataset.reader != "nifti":
        odd = {path for path in files.all if path.suffix.lower() not in NO_PICTURES}.difference(files.pictures)
        left_out |= dict.fromkeys(sorted(odd), "is no picture")
    units = [
        Unit(below(path, dataset.path), [path, *each.files], partial(each.load, path, each, dataset))
        for each, path in pairs
    ]
    return units, skips + [Skip(dataset.name, below(path, dataset.path), why) for path, why in left_out.items()]
