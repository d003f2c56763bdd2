"""Find the words of a DICOM header that identify its patient.

These words are removed from tables and class names. The header itself is never copied: only the
picture of a DICOM file is written (`curation/readers/pixels.py`).
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
"""Elements with a number that identifies a person (names are in the elements of value
representation PN)."""


def element_values(element: Any) -> list[Any]:
    """Return the values of a DICOM element as a list, empty for an empty element."""
    value = element.value
    return list(value) if element.VM > 1 else [] if value is None else [value]


def header_identifiers(dataset: Dataset) -> set[str]:
    """Collect the words of a DICOM data set that are names, identifying numbers or days of birth.

    Args:
        dataset: the data set; its sequences are searched too.

    Returns:
        Folded words, in the form that `patient_table.redact_words` expects.
    """
    identifiers: set[str] = set()
    for element in dataset.iterall():
        if element.VR == "PN":
            # Names of physicians and operators are included: they narrow down who the patient is.
            identifiers = identifiers.union(
                *(name_words(str(name)) for name in element_values(element)),
            )
        elif element.keyword in NUMBER_KEYWORDS:
            identifiers |= number_words(" ".join(map(str, element_values(element))))
        elif element.keyword == "PatientBirthDate":
            identifiers |= date_words(str(element.value or ""))
    return identifiers
