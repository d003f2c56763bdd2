"""De-identify a folder of images and DICOM files into another folder: only pictures, under keyed hashes, what may hold
burned-in text set apart for a person, a table with keyed groups, a report.

    OUT/images/<id>.png|.jpg    ready to be used
    OUT/pending/<id>.png        text was found: `medprobe curate texts OUT` asks a person
    OUT/texts.jsonl             boxes of the text found (never what it says)
    OUT/labels/                 with `labels`: COCO, VOC, YOLO, masks, NIfTI under the images' ids (`labels.py`)
    OUT/dicom/<id>.dcm          with `dicom`: data sets by the basic profile, of images without text
    OUT/table.csv               image, group, and the columns of the table given that later steps read (`table.py`)
    OUT/deidentification.json   what was removed, with counts: for the ethics board, and carried by every set made of the images
    OUT.key, OUT.names.csv      beside it, private: the key, and which file became which id

See also: the rules (`dicom.py`), text (`images/burned_in_text.py`), the decisions (`review_texts.py`).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image
from tqdm import tqdm

from curation.deidentify.dicom import METHOD, deidentify_dataset, identifiers_of
from curation.deidentify.labels import LABELS, Labels, write_labels, write_volume
from curation.deidentify.table import PatientTable
from curation.images.burned_in_text import TEXTS, find_text
from curation.images.file_names import REPORT, TABLE, list_beside, write_list
from curation.images.image_index import names_below, open_rgb
from curation.readers.pictures import DICOM, is_dicom, is_turned
from curation.readers.pixels import Skipped, reading, shown
from dataset_builders.build import replacing
from dataset_builders.contents.pseudonyms import KEYED, Pseudonyms, pseudonyms_of
from dataset_builders.errors import BadInput
from dataset_builders.files import write_json
from dataset_builders.images.lookup import SUFFIXES, ImageError, as_png, check_image
from dataset_builders.images.metadata import file_name, strip_metadata

PENDING = "pending"


def deidentify(
    folder: Path,
    out: Path,
    known: PatientTable | None = None,
    search_text: bool = True,
    keep_dicom: bool = False,
    labels: Sequence[Labels] = (),
) -> dict[str, Any]:
    """Write `out` (which must not exist) from all images and DICOM files below `folder`; returns the report's document.

    known: the images' table. The group of a DICOM file is its PatientID unless the table says another. labels: what goes with the
    images, and the volumes that it belongs to.
    Raises BadInput if there is nothing to take; files that cannot be read are counted by reason.
    """
    if out.exists():
        raise BadInput(f"{out}: exists already. Give another --out, or delete it.")
    folder = folder.absolute()
    paths = files_below(folder, labels)
    volumes = sorted({image for each in labels for image in each.volumes})
    pseudonyms = pseudonyms_of(out)
    counts = {what: Counter[str]() for what in ("files", "not_taken", "removed_elements", "labels", "labels_left_out")}
    new_of: dict[Path, str] = {}
    groups: dict[Path, str] = {}
    identifiers: dict[str, set[str]] = defaultdict(set)
    """Group -> words that name its patient, of all its files."""
    groups_of: dict[str, set[str]] = defaultdict(set)
    """PatientID -> the groups its images are in."""
    sizes: dict[Path, tuple[int, int]] = {}

    def take(path: Path, new: str, patient: str = "", words: Set[str] = frozenset()) -> None:
        name = path.relative_to(folder).as_posix()
        group = pseudonyms.group((known.group_of(name) if known else "") or patient)
        identifiers[group or name] |= words | (known.names_of(name) if known else set())
        new_of[path], groups[path] = new, group
        groups_of[patient].add(group)

    with replacing(out) as work:
        for part in ("images", PENDING):
            (work / part).mkdir()
        pending = 0
        with (work / TEXTS).open("w", encoding="utf-8") as texts:
            for path in tqdm(paths, desc="de-identifying", unit="file", disable=None):
                try:
                    data, patient, words, dataset = _picture(path, pseudonyms, counts["removed_elements"])
                except (ImageError, Skipped, OSError) as error:
                    counts["not_taken"][_reason(str(error))] += 1
                    continue
                counts["files"]["images" if dataset is None else "dicom"] += 1
                new = file_name(pseudonyms.of("i", path.relative_to(folder).as_posix()), data)
                take(path, new, patient, words)
                picture = open_rgb(data)
                if dataset is not None or not is_turned(path.read_bytes()):
                    sizes[path] = picture.height, picture.width
                boxes = find_text(picture) if search_text else []
                if boxes:
                    pending += 1
                    texts.write(json.dumps({"image": new, "boxes": [list(box) for box in boxes]}) + "\n")
                (work / (PENDING if boxes else "images") / new).write_bytes(data)
                if dataset is not None and keep_dicom and not boxes:
                    (work / "dicom").mkdir(exist_ok=True)
                    dataset.save_as(work / "dicom" / f"{Path(new).stem}.dcm", enforce_file_format=True)
        for path in volumes:
            new = f"{pseudonyms.of('i', path.relative_to(folder).as_posix())}.nii.gz"
            try:
                write_volume(path, work / "images" / new)
            except Skipped as error:
                counts["not_taken"][_reason(str(error))] += 1
                continue
            counts["files"]["volumes"] += 1
            take(path, new)
        of_labels = (path for each in labels for path in each.files)
        if other := set(map(folder.joinpath, names_below(folder))).difference(paths, volumes, of_labels):
            counts["not_taken"]["no image or DICOM file, nor a volume with its labels"] = len(other)
        if not new_of:
            raise BadInput(f"{folder}: none of its {len(paths)} files can be read ({dict(counts['not_taken'])}).")
        names = {path: path.relative_to(folder).as_posix() for path in new_of}
        table = [
            {"image": new_of[path], "group": groups[path], **row}
            for path, name in names.items()
            for row in (known.rows_of(name, identifiers[groups[path] or name]) if known else [{}])
        ]
        pd.DataFrame(table, columns=None if table else ["image", "group"]).to_csv(work / TABLE, index=False)
        named = set().union(*identifiers.values())
        for each in labels:
            (work / LABELS).mkdir(exist_ok=True)
            counts["labels"][each.kind] += write_labels(each, work / LABELS, new_of, sizes, named)
            counts["labels_left_out"].update(skip.kind for skip in each.skips)
        report = {
            "made_by": "medprobe curate deidentify", "at": datetime.now(UTC).isoformat(timespec="seconds"), "ids": KEYED,
            "key": pseudonyms.of("k", ""), "method": METHOD, **{what: dict(sorted(found.items())) for what, found in counts.items()},
            "groups": len({*groups.values()} - {""}),
            "patient_ids_in_several_groups": sum(len(found) > 1 for patient, found in groups_of.items() if patient),
            "table": known.counts if known else {},
            "text": {"searched": search_text, "images_with_text": pending, "undecided": pending, "decisions": {}},
        }  # fmt: skip
        write_json(work / REPORT, report)
        write_list(list_beside(out), [(new_of[path], name) for path, name in names.items()])
    return report


def files_below(folder: Path, labels: Sequence[Labels] = ()) -> list[Path]:
    """The images and DICOM files below a folder, sorted, without those that are labels. Raises BadInput if there are none, and no
    volumes that labels belong to."""
    folder = folder.absolute()
    if not folder.is_dir():
        raise BadInput(f"{folder}: there is no such folder. Give the folder that holds the images.")
    taken = {path for each in labels for path in each.files}
    found = [
        path
        for path in map(folder.joinpath, names_below(folder))
        if path.is_file() and path not in taken and (path.suffix.lower() in SUFFIXES or is_dicom(path))
    ]
    if not found and not any(each.volumes for each in labels):
        raise BadInput(f"{folder}: holds no images and no DICOM files. --labels takes NIfTI with its labels.")
    return found


def _picture(path: Path, pseudonyms: Pseudonyms, removed: Counter[str]) -> tuple[bytes, str, set[str], Any]:
    """(the picture without metadata, the patient's id where the file has one, words in it that name people, the cleaned DICOM data set).
    Raises ImageError, Skipped, OSError."""
    if path.suffix.lower() in SUFFIXES and not is_dicom(path):
        data = path.read_bytes()
        check_image(data)
        return strip_metadata(data), "", set(), None
    import pydicom

    with reading("a DICOM file that cannot be read"):
        dataset = pydicom.dcmread(path, force=path.suffix.lower() in DICOM)
        if int(dataset.get("NumberOfFrames", 1) or 1) > 1:
            raise Skipped("a DICOM file of several frames")
        picture = Image.fromarray(shown(dataset, None))
        patient, words = str(dataset.get("PatientID", "") or ""), identifiers_of(dataset)
        removed.update(deidentify_dataset(dataset, pseudonyms))
    return strip_metadata(as_png(picture)), patient, words, dataset


def _reason(text: str) -> str:
    """A reason to count by, without what in it depends on the file."""
    return text.split("(", maxsplit=1)[0].split(":", maxsplit=1)[0].strip()[:80]
