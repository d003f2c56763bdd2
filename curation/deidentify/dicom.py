"""DICOM data sets by the basic profile of PS3.15 (table E.1-1, as `dicom-anonymizer` has it, edition 2026c), and more strictly.

The library applies the table at the top level. Here it is applied in every sequence, and what the table leaves is looked at too: private
elements, overlays and curves go; free text that no rule of the table names goes; any element that still holds a word of a value that was
removed goes. UIDs become keyed ones, the same for the same UID. What is left of the image is its pixels and what describes them.

See also: pixels (`curation/readers/pixels.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from curation.deidentify.table import date_words, name_words, number_words, words_of
from dataset_builders.contents.pseudonyms import Pseudonyms

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

EDITION = "dicomfields_2026c"
TEXT = ("LO", "SH", "LT", "ST", "UT", "UC", "UR", "PN", "AE", "UN")
"""Value representations that hold free text (or anything)."""
TIMES = ("DA", "TM", "DT", "AS")
CODE = re.compile(r"[A-Z0-9_ ]{0,16}")
BYTES = ("OB", "OW", "OF", "OD", "OL", "OV")
"""Of what is no pixels: audio, encapsulated documents, icons, palettes of images that have none."""
FOREIGN = {0x4000, 0x0032, *range(0x5000, 0x501F), *range(0x6000, 0x6100)}
"""Groups of old comments, curves and overlays."""
DELETING = (None, "delete", "replace_UID", "delete_or_empty_or_replace_UID")
"""Rules by which nothing of an element stays."""
PIXELS = (0x7FE00008, 0x7FE00009, 0x7FE00010)
DESCRIBES_PIXELS = ("PhotometricInterpretation", "Modality", "PatientIdentityRemoved")
NUMBER = 6
"""Minimum digits for a number to be treated as identifying."""
NUMBERS = (
    "PatientID", "OtherPatientIDs", "IssuerOfPatientID", "AccessionNumber", "AdmissionID", "ServiceEpisodeID", "StudyID",
    "MedicalRecordLocator", "PatientTelephoneNumbers", "PlacerOrderNumberImagingServiceRequest", "FillerOrderNumberImagingServiceRequest",
)  # fmt: skip
"""Elements that hold a person's number (every element of the kind PN holds a name)."""
LOOKUP_TABLE = 0x00283006
"""LUTData: how grey values are shown."""
METHOD = "medprobe: PS3.15 basic profile, free text and private elements removed"
DUMMIES = {"", "ANONYMIZED", "00010101", "000000.00", "000Y", "00010101010101.000000+0000", "http://anonymized.invalid"}


def deidentify_dataset(dataset: Dataset, pseudonyms: Pseudonyms) -> Counter[str]:
    """Remove from a data set, in place, what could name a patient; how often each element was removed or replaced, by its keyword.

    A value that may be a name counts as removed wherever it comes up again.
    """
    from pydicom.uid import ExplicitVRLittleEndian

    removed: Counter[str] = Counter()
    words: set[str] = set()
    _clean(dataset, pseudonyms, removed, words)
    _sweep(dataset, words, removed)
    meta = getattr(dataset, "file_meta", None)
    syntax = getattr(meta, "TransferSyntaxUID", ExplicitVRLittleEndian)
    dataset.preamble = b"\0" * 128
    dataset.file_meta = _meta(dataset, syntax)
    dataset.PatientIdentityRemoved = "YES"
    dataset.DeidentificationMethod = METHOD
    return removed


def _meta(dataset: Dataset, syntax: Any) -> Any:
    from pydicom.dataset import FileMetaDataset

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = syntax
    if "SOPClassUID" in dataset:
        meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    if "SOPInstanceUID" in dataset:
        meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    return meta


def _clean(dataset: Dataset, pseudonyms: Pseudonyms, removed: Counter[str], words: set[str]) -> None:
    """One level and, before it, the sequences in it. What its module demands (type 1 and 2) stays without a value, as the table says with
    Z and D."""
    rules = _rules()
    for element in list(dataset):
        tag, kind = element.tag, element.VR
        rule = rules.get((tag.group, tag.element))
        is_foreign = tag.is_private or tag.group in FOREIGN
        is_text = kind in (*TEXT, *TIMES) or (
            kind == "CS" and not all(map(CODE.fullmatch, map(str, values_of(element))))
        )
        if tag in PIXELS:
            continue
        if rule == "replace_UID" and kind == "UI" and not is_foreign:
            made = [_uid(str(value), pseudonyms) for value in values_of(element)]
            dataset[tag].value = made if len(made) > 1 else "".join(made)
        elif kind == "SQ" and rule is None and not is_foreign:
            for item in element.value:
                _clean(item, pseudonyms, removed, words)
            continue
        elif is_foreign or is_text or rule is not None or (kind in BYTES and tag != LOOKUP_TABLE):
            if is_foreign or is_text or rule is not None:
                words.update(_words(element))
            if rule in DELETING:
                del dataset[tag]
            else:
                dataset[tag].value = [] if kind == "SQ" else b"" if kind in ("OB", "OW", "UN") else None
        else:
            continue
        removed[element.keyword or ("private elements" if tag.is_private else f"group {tag.group:04x}")] += 1


@cache
def _rules() -> dict[tuple[int, int], str]:
    """(group, element) -> what the profile does with it."""
    from dicomanonymizer.simpledicomanonymizer import initialize_actions

    return {tag[:2]: action.__name__ for tag, action in initialize_actions(EDITION).items() if len(tag) == 2}


def _uid(uid: str, pseudonyms: Pseudonyms) -> str:
    """A keyed UID below 2.25, the root of UUIDs."""
    return f"2.25.{int(pseudonyms.of('u', uid).split('-')[1], 16)}"


def values_of(element: Any) -> list[Any]:
    """The values of an element, none where it is empty."""
    value = element.value
    return list(value) if element.VM > 1 else [] if value is None else [value]


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


def _words(element: Any) -> set[str]:
    """The words of a removed value that would name its patient elsewhere."""
    if element.VR == "SQ":
        return {word for item in element.value for inner in item for word in _words(inner)}
    found: set[str] = set()
    for value in values_of(element):
        text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
        if text in DUMMIES or len(text) > 4096:
            continue
        found |= words_of(text, 4)
    digits = (re.sub(r"\D", "", word).lstrip("0") for word in found)
    return found | {number for number in digits if len(number) >= NUMBER}


def _sweep(dataset: Dataset, words: set[str], removed: Counter[str]) -> None:
    """Remove what still holds a word that was removed elsewhere, and numbers and UIDs that are or hold one of `NUMBER` digits."""
    for element in list(dataset):
        if element.VR == "SQ":
            for item in element.value:
                _sweep(item, words, removed)
        elif element.tag in PIXELS or element.keyword in DESCRIBES_PIXELS or element.keyword.endswith("SOPClassUID"):
            continue
        elif (element.VR in (*TEXT, "CS") and _words(element) & words) or (
            element.VR in ("IS", "DS", "UI") and _numbers(element) & words
        ):
            removed[element.keyword or "unnamed"] += 1
            del dataset[element.tag]


def _numbers(element: Any) -> set[str]:
    """The long whole numbers among an element's values, or among the parts of its UIDs."""
    texts = [str(value) for value in values_of(element)]
    parts = [part for text in texts for part in text.split(".")] if element.VR == "UI" else texts
    return {
        number
        for part in parts
        if len(number := part.strip().removesuffix(".0").lstrip("+-0")) >= NUMBER and number.isdigit()
    }
