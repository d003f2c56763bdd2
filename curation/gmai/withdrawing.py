"""Takes a patient out of a work folder again: what was journalled and listed of them, and their pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from curation.gmai.file_ids import FileIds
from curation.gmai.items import JOURNAL, PICTURES, WITHDRAWN, read_withdrawn, skipped_files
from dataset_builders.contents.pseudonyms import Pseudonyms, pseudonyms_of
from dataset_builders.errors import BadInput
from dataset_builders.files import lock, replace_file
from dataset_builders.journal import line_of, read_journal


def withdraw_patient(private: Path, group: str) -> dict[str, int]:
    """Take a patient's pictures out of the work folder, with what was journalled and listed of them; returns counts. The next run makes
    the set without them. `group`: the patient as the sources call them, or the keyed id, as in the column `group` of the set.

    Raises BadInput for a patient of whom there is no item, and for a name that two sources give to different patients.
    """
    with lock(private, "gmai"):
        entries = read_journal(private / JOURNAL)
        patient = _patient_called(group, entries, pseudonyms_of(private.with_name("dataset")))
        if patient is None:
            raise BadInput(
                f"{private}: no item is of {group!r}. Give the patient as the sources do, or the id in the set's column `group` (g-...)."
            )
        is_theirs = [any(item["patient"] == patient for item in entry["items"]) for entry in entries]
        theirs = [entry for entry, is_one in zip(entries, is_theirs, strict=True) if is_one]
        kept = [entry for entry, is_one in zip(entries, is_theirs, strict=True) if not is_one]
        replace_file(private / WITHDRAWN, json.dumps(sorted(read_withdrawn(private) | {patient})).encode())
        replace_file(private / JOURNAL, b"".join(map(line_of, kept)))
        files = FileIds(private.with_name("dataset"))
        files.drop({name for entry in theirs for name in (entry["unit"], *skipped_files(entry))})
        used = {item["picture"] for entry in kept for item in entry["items"]}
        pictures = {item["picture"] for entry in theirs for item in entry["items"]} - used
        for picture in pictures:
            (private / PICTURES / f"{picture}.png").unlink(missing_ok=True)
    return {"images": len(pictures), "targets": sum(len(entry["items"]) for entry in theirs)}


def _patient_called(name: str, entries: list[dict[str, Any]], ids: Pseudonyms) -> str | None:
    """The id of the patient whose id or name in a source this is. Raises BadInput where sources call several patients so."""
    registries = {entry["registry"] for entry in entries} | {"dicom"}
    meant = {name, *(ids.group(f"{registry}\0{name}") for registry in registries)}
    found = meant & {item["patient"] for entry in entries for item in entry["items"]}
    if len(found) > 1:
        raise BadInput(
            f"{name!r} is a patient of several sources, which may be different people. Give the id in the column `group` of the set: "
            f"{', '.join(sorted(found))}."
        )
    return found.pop() if found else None
