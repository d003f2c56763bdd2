"""The table of readers: how the files of each format become pieces that can be read one by one.

A reader of 2D pictures says what a source annotates; a reader of its own files says what its units are. A unit's `load` gives its pictures,
or raises `Skipped` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from curation.readers.dataset import SourceDataset
from curation.readers.dicom import dicom_units
from curation.readers.pictures import Found, Skip, Unit, picture_units
from curation.readers.shapes import coco, masks, voc, yolo
from curation.readers.tables import folders, table, tsv_units, wide
from curation.readers.volumes import nifti_units

PICTURES_OF: dict[str, tuple[Callable[[SourceDataset], Found], str]] = {
    "folders": (folders, "lies in no class folder"), "csv": (table, "the table has no row of it"),
    "wide": (wide, "the table has no row of it"), "boxes": (table, "the table has no row of it"),
    "coco": (coco, "the JSON does not list it"), "voc": (voc, "has no XML"), "yolo": (yolo, "has no text file of its name"),
    "masks": (masks, "has no mask"),
}  # fmt: skip
"""Reader of 2D pictures -> what a source annotates, and what is said of a picture that has no annotation."""
UNITS_OF: dict[str, Callable[[SourceDataset], Iterator[Unit | Skip]]] = {
    "nifti": nifti_units, "dicom": dicom_units, "tsv": tsv_units,
}  # fmt: skip
"""Reader of its own files -> what can be read one by one, and what is left out before anything is read."""


def units_of(dataset: SourceDataset) -> tuple[list[Unit], list[Skip]]:
    """The units of a dataset, by its reader, and what that leaves out. Raises BadInput where its files cannot be understood at all."""
    if dataset.reader in PICTURES_OF:
        read, without = PICTURES_OF[dataset.reader]
        found = list(picture_units(read(dataset), dataset, without))
    else:
        found = list(UNITS_OF[dataset.reader](dataset))
    return [each for each in found if isinstance(each, Unit)], [each for each in found if isinstance(each, Skip)]
