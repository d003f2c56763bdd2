"""Words of a DICOM header that name its patient, to be taken out of tables and names of classes. The header itself goes nowhere:
what is written of a DICOM file is its picture alone.

See also: how a picture is made of it (`curation/readers/pixels.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from curation.deidentify.patient_table import date_words, name_words, number_words

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

NUMBER_KEYWORDS = (
    "PatientID", "OtherPatientIDs", "IssuerOfPatientID", "AccessionNumber", "AdmissionID", "ServiceEpisodeID", "StudyID",
    "MedicalRecordLocator", "PatientTelephoneNumbers", "PlacerOrderNumberImagingServiceRequest", "FillerOrderNumberImagingServiceRequest",
)  # fmt: skip
"""Elements that hold a person's number (every element of the kind PN holds a name)."""


def element_values(element: Any) -> list[Any]:
    """The values of an element, none where it is empty."""
    value = element.value
    return list(value) if element.VM > 1 else [] if value is None else [value]


def header_identifiers(dataset: Dataset) -> set[str]:
    """The words of a DICOM data set, sequences included, that name people, or are their numbers or days of birth."""
    found: set[str] = set()
    for element in dataset.iterall():
        if element.VR == "PN":
            found = found.union(*(name_words(str(value)) for value in element_values(element)))
        elif element.keyword in NUMBER_KEYWORDS:
            found |= number_words(" ".join(map(str, element_values(element))))
        elif element.keyword == "PatientBirthDate":
            found |= date_words(str(element.value or ""))
    return found
