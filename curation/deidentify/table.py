"""The table beside de-identified images: only columns that later steps read, and in their texts no word that is known to name the
row's patient (from the DICOM header, the column `group`, and columns that are said to hold names), and no date that they call a day of
birth.

Other words may name somebody too: what a program cannot know, a person has to read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from curation.deidentify.dicom import values_of
from curation.deidentify.words import date_words, name_words, number_words, without_births, without_words, words_of
from curation.images.image_table import cell_text, images_of_rows
from dataset_builders.errors import BadInput

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

READ = {
    "image", "caption", "group", "license", "source",  # every step
    "organ", "modality", "findings", "positions", "absent",  # probe
    "question", "options", "answer",  # hallucinate; option_A ... too
}  # fmt: skip
"""Columns that later steps read by these names."""
OPTION = re.compile(r"(?i)(?:option|choice)_[a-z]")
NUMBERS = (
    "PatientID", "OtherPatientIDs", "IssuerOfPatientID", "AccessionNumber", "AdmissionID", "ServiceEpisodeID", "StudyID",
    "MedicalRecordLocator", "PatientTelephoneNumbers", "PlacerOrderNumberImagingServiceRequest", "FillerOrderNumberImagingServiceRequest",
)  # fmt: skip
"""Elements that hold a person's number (every element of the kind PN holds a name)."""


@dataclass
class TableReport:
    """Counts of what was taken out of a table. `columns`: the names of those left out, for the screen."""

    columns: list[str] = field(default_factory=list)
    words: int = 0
    cells: int = 0
    rows_without_image: int = 0
    images_without_row: int = 0
    rows_to_read: int = 0
    """Rows whose texts hold a word of their file's name or folder."""

    def document(self) -> dict[str, int]:
        return {name: count for name, count in vars(self).items() if name != "columns"} | {
            "columns_left_out": len(self.columns)
        }


class PatientTable:
    """The rows of a table by image, and what is known to name the patients of each.

    known: has a column `image`, which names `files` as `pairing.py` says (several rows of an image stay several). keep: further columns to
    copy. names: columns whose words are taken out of the other texts of their row. Raises BadInput where the table names no image, one row
    may mean several, or the rows of one image name several groups.
    """

    def __init__(
        self, known: pd.DataFrame, files: list[str], path: Path, keep: Sequence[str] = (), names: Sequence[str] = ()
    ) -> None:
        texts = pd.DataFrame({str(name): known[name].map(cell_text) for name in known.columns})
        texts = texts[texts["image"] != ""]
        called = list(dict.fromkeys(texts["image"]))
        meant = dict(zip(called, images_of_rows(called, files, path), strict=True))
        self._rows: dict[str, list[dict[str, str]]] = defaultdict(list)
        for row in texts.to_dict("records"):
            if (at := meant[row["image"]]) is not None:
                self._rows[files[at]].append({str(name): str(value) for name, value in row.items()})
        for file, rows in self._rows.items():
            if len({row.get("group", "") for row in rows}) > 1:
                raise BadInput(
                    f"{path}: the rows of {rows[0]['image']!r} name several groups. Name images by their path below the folder ({file})."
                )
        self._names = tuple(names)
        columns = [str(name) for name in texts.columns]
        self.columns = [name for name in columns if name in READ or OPTION.fullmatch(name) or name in keep]
        left_out = [name for name in columns if name not in self.columns]
        self.report = TableReport(left_out, rows_without_image=len(texts) - sum(map(len, self._rows.values())))

    def group_of(self, file: str) -> str:
        """What the table says a file belongs to; "" where it does not say."""
        return next((row["group"] for row in self._rows.get(file, ()) if row.get("group")), "")

    def rows_of(self, file: str, identifiers: set[str]) -> list[dict[str, str]]:
        """The rows of a file without its name and group, their texts without words that name its patient."""
        made = []
        self.report.images_without_row += file not in self._rows
        in_path = words_of(re.sub(r"\.\w+$", "", file), 5)
        for row in self._rows.get(file, ()):
            own = identifiers | number_words(row.get("group", ""))
            own = own.union(*(name_words(row[name]) for name in self._names if name in row))
            kept = {name: row[name] for name in self.columns if name in row and name not in ("image", "group")}
            clean = {name: self._without(text, own) for name, text in kept.items()}
            self.report.rows_to_read += any(words_of(text) & in_path for text in clean.values())
            made.append(clean)
        return made

    def _without(self, text: str, words: set[str]) -> str:
        text, births = without_births(text)
        clean, count = without_words(text, words)
        self.report.words += count + births
        self.report.cells += bool(count + births)
        return clean


def identifiers_of(dataset: Dataset) -> set[str]:
    """The words of a DICOM data set, sequences included, that name people, or are their numbers or days of birth."""
    found: set[str] = set()
    for element in dataset.iterall():
        if element.VR == "PN":
            found = found.union(*(name_words(str(value)) for value in values_of(element)))
        elif element.keyword in NUMBERS:
            found |= number_words(" ".join(map(str, values_of(element))))
        elif element.keyword == "PatientBirthDate":
            found |= date_words(str(element.value or ""))
    return found
