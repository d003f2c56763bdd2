"""De-identify a folder of images and DICOM files into another folder: only pictures, under keyed hashes, what may hold
burned-in text set apart for a person, a table with keyed groups, a report.

    OUT/images/<id>.png|.jpg    ready to be used
    OUT/pending/<id>.png        text was found: `medprobe curate texts OUT` asks a person
    OUT/texts.jsonl             boxes of the text found (never what it says)
    OUT/labels/                 with `labels`: COCO, VOC, YOLO, masks, NIfTI under the images' ids (`labels.py`)
    OUT/table.csv               image, group, and the columns of the table given that later steps read (`table.py`)
    OUT/deidentification.json   what was removed, with counts: for the ethics board, and carried by every set made of the images
    OUT.key, OUT.names.csv      beside it, private: the key, and which file became which id
    .OUT.partial/               until it is finished: repeating the command continues where it was interrupted

See also: words of headers (`dicom.py`), text (`images/burned_in_text.py`), the decisions (`review_texts.py`).
"""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image
from tqdm import tqdm

from curation.deidentify.header_identifiers import header_identifiers
from curation.deidentify.image_labels import LABELS_FOLDER, ImageLabels, write_labels, write_volume
from curation.deidentify.patient_table import PatientTable
from curation.images.burned_in_text import TEXT_BOXES_FILE, find_text
from curation.images.file_names import DEIDENTIFICATION_REPORT, DEIDENTIFIED_TABLE, name_list_path, write_private_csv
from curation.images.image_index import decode_rgb, list_files
from curation.readers.consistency import Skip, refuse_contradictions, skip_from_error
from curation.readers.pictures import is_dicom, is_exif_rotated
from curation.readers.pixels import UNUSABLE_HEADER, Skipped, read_dicom_header, render_frame, skip_on_error
from dataset_builders.contents.pseudonyms import KEYED_IDS, load_pseudonyms, read_withdrawn_ids
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder, remove_temp_files, replace_file, write_json
from dataset_builders.images.lookup import IMAGE_SUFFIXES, ImageError, check_image, encode_png
from dataset_builders.images.metadata import image_file_name, strip_metadata
from dataset_builders.journal import Journal

PENDING_FOLDER = "pending"
FINISHED_JOURNAL = "finished.jsonl"
"""In .OUT.partial: each picture that is written, by ids alone."""
DEIDENTIFICATION_METHOD = "medprobe: of every file only the pixels are written, under a keyed id"


def deidentify_folder(
    folder: Path,
    out: Path,
    known: PatientTable | None = None,
    search_text: bool = True,
    labels: Sequence[ImageLabels] = (),
    skip_contradictions: bool = False,
) -> dict[str, Any]:
    """Write `out` (which must not exist) from all images and DICOM files below `folder`; returns the report's document.

    Args:
        folder: the images.
        out: the folder to write; what an interrupted call finished is in .`out`.partial and is not done again.
        known: the images' table. The group of a DICOM file is its PatientID unless the table says another.
        search_text: look for burned-in text.
        labels: what goes with the images, and the volumes that it belongs to.
        skip_contradictions: leave out labels that contradict the others instead of refusing all.

    Raises:
        BadInput: there is nothing to take, or labels contradict one another; files that cannot be read are counted by reason.
    """
    if out.exists():
        raise BadInput(f"{out}: exists already. Give another --out, or delete it.")
    folder = folder.absolute()
    paths = find_images(folder, labels)
    volumes = sorted({image for each in labels for image in each.volumes})
    pseudonyms, withdrawn = load_pseudonyms(out), read_withdrawn_ids(out)
    counts = {
        what: Counter[str]() for what in ("files", "not_taken", "ignored_in_headers", "labels", "labels_left_out")
    }
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

    def check_stays(path: Path, patient: str = "") -> None:
        name = path.relative_to(folder).as_posix()
        group = pseudonyms.group((known.group_of(name) if known else "") or patient)
        if withdrawn & {pseudonyms.id_for("i", name), group}:
            raise Skipped("its patient has withdrawn")

    work = out.with_name(f".{out.name}.partial")
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out {out}: cannot be written ({error.strerror}). Name another folder.") from None
    with lock_folder(work, "deidentify"):
        remove_temp_files(work)
        for part in ("images", PENDING_FOLDER):
            (work / part).mkdir(exist_ok=True)
        texts: dict[str, Any] = {}
        with Journal(work / FINISHED_JOURNAL) as journal:
            finished = {entry["id"]: entry for entry in journal.entries}
            for path in tqdm(paths, desc="de-identifying", unit="file", disable=None):
                key, ignored = pseudonyms.id_for("i", path.relative_to(folder).as_posix()), list[str]()
                try:
                    changed = path.stat()
                    state = [changed.st_size, changed.st_mtime_ns, search_text]
                    # The header is read again by a call that continues: the names in it are stored nowhere.
                    is_header = path.suffix.lower() not in IMAGE_SUFFIXES or is_dicom(path)
                    data = read_dicom_header(path, ignored) if is_header else None
                    with skip_on_error(UNUSABLE_HEADER):
                        patient = "" if data is None else str(data.get("PatientID", "") or "")
                        words = set[str]() if data is None else header_identifiers(data)
                    check_stays(path, patient)
                    entry = finished.get(key, {})
                    if entry.get("state") != state:
                        entry = {"id": key, "state": state}
                        entry |= _write_picture(path, data, key, work, ignored, search_text)
                        journal.append(entry)
                except (ImageError, Skipped, OSError) as error:
                    counts["not_taken"][_skip_reason(str(error))] += 1
                    continue
                counts["files"]["dicom" if is_header else "images"] += 1
                counts["ignored_in_headers"].update(entry["ignored"])
                take(path, entry["image"], patient, words)
                if entry["size"]:
                    sizes[path] = entry["size"][0], entry["size"][1]
                if entry["boxes"]:
                    texts[entry["image"]] = entry["boxes"]
        pending = len(texts)
        lines = [json.dumps({"image": image, "boxes": boxes}) + "\n" for image, boxes in texts.items()]
        replace_file(work / TEXT_BOXES_FILE, "".join(lines).encode())
        volume_skips: list[Skip] = []
        for path in volumes:
            new = f"{pseudonyms.id_for('i', path.relative_to(folder).as_posix())}.nii.gz"
            try:
                check_stays(path)
                write_volume(path, work / "images" / new)
            except Skipped as error:
                counts["not_taken"][_skip_reason(str(error))] += 1
                volume_skips.append(skip_from_error("labels", path.name, error))
                continue
            counts["files"]["volumes"] += 1
            take(path, new)
        of_labels = (path for each in labels for path in each.files)
        if other := set(map(folder.joinpath, list_files(folder))).difference(paths, volumes, of_labels):
            counts["not_taken"]["no image or DICOM file, nor a volume with its labels"] = len(other)
        if not new_of:
            raise BadInput(f"{folder}: none of its {len(paths)} files can be read ({dict(counts['not_taken'])}).")
        for part in (
            "images",
            PENDING_FOLDER,
        ):  # of files that an interrupted call had, and that are gone or were changed
            for path in (work / part).iterdir():
                if path.name not in new_of.values() or (part == PENDING_FOLDER) != (path.name in texts):
                    path.unlink()
        names = {path: path.relative_to(folder).as_posix() for path in new_of}
        table = [
            {"image": new_of[path], "group": groups[path], **row}
            for path, name in names.items()
            for row in (known.rows_of(name, identifiers[groups[path] or name]) if known else [{}])
        ]
        pd.DataFrame(table, columns=None if table else ["image", "group"]).to_csv(
            work / DEIDENTIFIED_TABLE, index=False
        )
        named = set().union(*identifiers.values())
        shutil.rmtree(work / LABELS_FOLDER, ignore_errors=True)
        for each in labels:
            (work / LABELS_FOLDER).mkdir(exist_ok=True)
            counts["labels"][each.kind] += write_labels(each, work / LABELS_FOLDER, new_of, sizes, named)
            counts["labels_left_out"].update(skip.kind for skip in each.skips)
        if not skip_contradictions:
            refuse_contradictions([*volume_skips, *(skip for each in labels for skip in each.skips)])
        report = {
            "made_by": "medprobe curate deidentify", "at": datetime.now(UTC).isoformat(timespec="seconds"), "ids": KEYED_IDS,
            "key": pseudonyms.id_for("k", ""), "method": DEIDENTIFICATION_METHOD,
            **{what: dict(sorted(found.items())) for what, found in counts.items()},
            "groups": len({*groups.values()} - {""}),
            "patient_ids_in_several_groups": sum(len(found) > 1 for patient, found in groups_of.items() if patient),
            "table": known.counts if known else {},
            "text": {"searched": search_text, "images_with_text": pending, "undecided": pending, "decisions": {}},
        }  # fmt: skip
        write_json(work / DEIDENTIFICATION_REPORT, report)
        write_private_csv(name_list_path(out), [(new_of[path], name) for path, name in names.items()])
        # The lock's file goes with the others: from here on the folder is finished.
        for private in (work / FINISHED_JOURNAL, *work.glob(".*.lock")):
            private.unlink()
        work.rename(out)
    return report


def find_images(folder: Path, labels: Sequence[ImageLabels] = ()) -> list[Path]:
    """The images and DICOM files below a folder, sorted, without those that are labels. Raises BadInput if there are none, and no
    volumes that labels belong to."""
    folder = folder.absolute()
    if not folder.is_dir():
        raise BadInput(f"{folder}: there is no such folder. Give the folder that holds the images.")
    taken = {path for each in labels for path in each.files}
    found = [
        path
        for path in map(folder.joinpath, list_files(folder))
        if path.is_file() and path not in taken and (path.suffix.lower() in IMAGE_SUFFIXES or is_dicom(path))
    ]
    if not found and not any(each.volumes for each in labels):
        raise BadInput(f"{folder}: holds no images and no DICOM files. --labels takes NIfTI with its labels.")
    return found


def _write_picture(
    path: Path, data: Any, key: str, work: Path, ignored: list[str], search_text: bool
) -> dict[str, Any]:
    """Write the picture of a file without its metadata below `work`; returns what the journal says of it. data: the header of a DICOM
    file. Raises ImageError, Skipped, OSError."""
    if data is None:
        stored = path.read_bytes()
        check_image(stored)
        is_upright, stored = not is_exif_rotated(stored), strip_metadata(stored)
    else:
        is_upright, stored = True, strip_metadata(encode_png(Image.fromarray(render_frame(data, None, ignored))))
    picture = decode_rgb(stored)
    boxes = find_text(picture) if search_text else []
    image = image_file_name(key, stored)
    replace_file(work / (PENDING_FOLDER if boxes else "images") / image, stored)
    size = [picture.height, picture.width] if is_upright else None
    return {"image": image, "size": size, "boxes": [list(box) for box in boxes], "ignored": ignored}


def _skip_reason(text: str) -> str:
    """A reason to count by, without what in it depends on the file."""
    return text.split("(", maxsplit=1)[0].split(":", maxsplit=1)[0].strip()[:80]
