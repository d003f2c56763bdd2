"""De-identify a folder of images and DICOM files into another folder.

Only pictures are written, named by keyed hashes. Pictures that may contain burned-in text are set
aside for a person to review. A table lists the keyed groups; a report counts what was removed.

    OUT/images/<id>.png|.jpg    ready for use
    OUT/pending/<id>.png        with text; a person reviews them with `medprobe curate texts OUT`
    OUT/texts.jsonl             boxes of the text (never the text itself)
    OUT/labels/                 if labels are given: COCO or NIfTI files that refer to
                                the images' ids (`image_labels.py`)
    OUT/table.csv               image, group, and the columns that later steps read
                                (`patient_table.py`)
    OUT/deidentification.json   counts of what was removed, for the ethics board; copied into
                                every set made from the images
    OUT.key, OUT.names.csv      private, next to the folder: the key, and the file of each id
    .OUT.partial/               unfinished output; repeat the command to resume

See also: detection of burned-in text (`images/privacy.py`), decisions about it
(`review_texts.py`).
"""

import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image
from tqdm import tqdm

from curation.deidentify.image_labels import LABELS_FOLDER, CleanFile, ImageLabels, write_labels, write_volume
from curation.deidentify.patient_table import PatientTable, header_identifiers
from curation.images.image_index import decode_rgb, list_files
from curation.images.privacy import (
    DEIDENTIFICATION_REPORT,
    DEIDENTIFIED_TABLE,
    PENDING_FOLDER,
    find_text,
    name_list_path,
    write_boxes,
    write_private_csv,
)
from curation.readers.pictures import Skip, is_dicom, is_exif_rotated, refuse_contradictions, skip_from_error
from curation.readers.pixels import (
    UNUSABLE_HEADER,
    Skipped,
    read_dicom_header,
    render_frame,
    skip_on_error,
)
from dataset_builders.contents.pseudonyms import KEYED_IDS, load_pseudonyms, read_withdrawn_ids
from dataset_builders.errors import BadInput
from dataset_builders.files import Journal, lock_folder, remove_temp_files, replace_file, write_json
from dataset_builders.images.lookup import IMAGE_SUFFIXES, ImageError, check_image, encode_png
from dataset_builders.images.picture import image_file_name, strip_metadata

FINISHED_JOURNAL = "finished.jsonl"
"""Journal in .OUT.partial of the pictures written so far, by id."""
DEIDENTIFICATION_METHOD = "medprobe: of every file only the pixels are written, under a keyed id"


def deidentify_folder(
    folder: Path,
    out: Path,
    patient_table: PatientTable | None = None,
    search_text: bool = True,
    labels: Sequence[ImageLabels] = (),
    skip_contradictions: bool = False,
) -> dict[str, Any]:
    """Write a de-identified copy of all images and DICOM files below a folder.

    Args:
        folder: the images.
        out: folder to write, which must not exist; an interrupted call leaves `.OUT.partial`, which
            the next call resumes.
        patient_table: the images' table. The group of a DICOM file is its PatientID unless the
            table gives one.
        search_text: search for burned-in text.
        labels: labels of the images, and the volumes that they belong to.
        skip_contradictions: leave out contradictory labels instead of refusing all labels.

    Returns:
        The report; files that cannot be read are counted by reason.

    Raises:
        BadInput: there is nothing to read, or labels contradict one another.
    """
    if out.exists():
        raise BadInput(f"{out}: already exists. Give another --out, or delete it.")
    folder = folder.absolute()
    paths = find_images(folder, labels)
    volumes = sorted({image for label_set in labels for image in label_set.volumes})
    names = {path: path.relative_to(folder).as_posix() for path in (*paths, *volumes)}
    pseudonyms, withdrawn = load_pseudonyms(out), read_withdrawn_ids(out)
    counts = {
        section: Counter[str]() for section in ("files", "not_taken", "ignored_in_headers", "labels", "labels_left_out")
    }
    clean_files: dict[Path, CleanFile] = {}
    identifiers: dict[str, set[str]] = defaultdict(set)
    """Group (or the file's name, if it has none) -> words that name its patient, from all of its
    files.
    """

    def keyed_group(path: Path, patient: str = "") -> str:
        """Return the keyed group of a file. Raises Skipped if its patient has withdrawn."""
        group = pseudonyms.group((patient_table.group(names[path]) if patient_table else "") or patient)
        if withdrawn & {pseudonyms.id_for("i", names[path]), group}:
            raise Skipped("its patient has withdrawn")
        return group

    def add_file(path: Path, clean_file: CleanFile, words: Set[str] = frozenset()) -> None:
        clean_files[path] = clean_file
        table_words = patient_table.patient_words(names[path]) if patient_table else set()
        identifiers[clean_file.group or names[path]] |= words | table_words

    work = out.with_name(f".{out.name}.partial")
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"--out {out}: cannot be written ({error.strerror}). Name another folder.",
        ) from None

    with lock_folder(work, "deidentify"):
        remove_temp_files(work)
        for part in ("images", PENDING_FOLDER):
            (work / part).mkdir(exist_ok=True)

        # Pictures are written one at a time and then journalled, so that an interrupted call can
        # resume.
        text_boxes: dict[str, Any] = {}
        with Journal(work / FINISHED_JOURNAL) as journal:
            finished = {entry["id"]: entry for entry in journal.entries}
            for path in tqdm(paths, desc="de-identifying", unit="file", disable=None):
                key, ignored = pseudonyms.id_for("i", names[path]), list[str]()
                try:
                    file_stat = path.stat()
                    state = [file_stat.st_size, file_stat.st_mtime_ns, search_text]
                    # Headers are read again on resume, since the names in them are never stored.
                    is_header = path.suffix.lower() not in IMAGE_SUFFIXES or is_dicom(path)
                    dataset = read_dicom_header(path, ignored) if is_header else None
                    with skip_on_error(UNUSABLE_HEADER):
                        patient = "" if dataset is None else str(dataset.get("PatientID", "") or "")
                        words = set[str]() if dataset is None else header_identifiers(dataset)
                    group = keyed_group(path, patient)
                    entry = finished.get(key, {})
                    if entry.get("state") != state:
                        entry = {"id": key, "state": state}
                        entry |= _write_picture(path, dataset, key, work, ignored, search_text)
                        journal.append(entry)
                except (ImageError, Skipped, OSError) as error:
                    counts["not_taken"][_skip_reason(str(error))] += 1
                    continue
                counts["files"]["dicom" if is_header else "images"] += 1
                counts["ignored_in_headers"].update(entry["ignored"])
                size = (entry["size"][0], entry["size"][1]) if entry["size"] else None
                add_file(path, CleanFile(entry["image"], group, patient, size), words)
                if entry["boxes"]:
                    text_boxes[entry["image"]] = entry["boxes"]
        pending = len(text_boxes)
        write_boxes(work, text_boxes)

        # Volumes that labels belong to.
        volume_skips: list[Skip] = []
        for path in volumes:
            new_name = f"{pseudonyms.id_for('i', names[path])}.nii.gz"
            try:
                group = keyed_group(path)
                write_volume(path, work / "images" / new_name)
            except Skipped as error:
                counts["not_taken"][_skip_reason(str(error))] += 1
                volume_skips.append(skip_from_error("labels", path.name, error))
                continue
            counts["files"]["volumes"] += 1
            add_file(path, CleanFile(new_name, group))

        label_files = (path for label_set in labels for path in label_set.files)
        if unused := set(map(folder.joinpath, list_files(folder))).difference(paths, volumes, label_files):
            counts["not_taken"]["neither an image or DICOM file nor a volume with labels"] = len(unused)
        if not clean_files:
            raise BadInput(
                f"{folder}: none of its {len(paths)} files can be read ({dict(counts['not_taken'])}).",
            )

        # Delete pictures of an interrupted call whose files have since been deleted or changed.
        kept_names = {file.name for file in clean_files.values()}
        for path in (*(work / "images").iterdir(), *(work / PENDING_FOLDER).iterdir()):
            if path.name not in kept_names or (path.parent.name == PENDING_FOLDER) != (path.name in text_boxes):
                path.unlink()

        # Table and labels come last, since all identifiers of a group are known only now.
        rows = [
            {"image": file.name, "group": file.group, **row}
            for path, file in clean_files.items()
            for row in (
                patient_table.redacted_rows(names[path], identifiers[file.group or names[path]])
                if patient_table
                else [{}]
            )
        ]
        pd.DataFrame(
            rows,
            columns=None if rows else ["image", "group"],
        ).to_csv(work / DEIDENTIFIED_TABLE, index=False)
        patient_words = set().union(*identifiers.values())
        shutil.rmtree(work / LABELS_FOLDER, ignore_errors=True)
        for label_set in labels:
            (work / LABELS_FOLDER).mkdir(exist_ok=True)
            counts["labels"][label_set.kind] += write_labels(
                label_set, work / LABELS_FOLDER, clean_files, patient_words
            )
            counts["labels_left_out"].update(skip.kind for skip in label_set.skips)
        if not skip_contradictions:
            refuse_contradictions(
                [*volume_skips, *(skip for label_set in labels for skip in label_set.skips)],
            )

        groups_by_patient = Counter(
            patient for patient, _ in {(file.patient, file.group) for file in clean_files.values()}
        )
        report = {
            "made_by": "medprobe curate deidentify", "at": datetime.now(UTC).isoformat(timespec="seconds"), "ids": KEYED_IDS,
            "key": pseudonyms.id_for("k", ""), "method": DEIDENTIFICATION_METHOD,
            **{section: dict(sorted(reasons.items())) for section, reasons in counts.items()},
            "groups": len({file.group for file in clean_files.values()} - {""}),
            "patient_ids_in_several_groups": sum(
                count > 1 for patient, count in groups_by_patient.items() if patient
            ),
            "table": patient_table.counts if patient_table else {},
            "text": {"searched": search_text, "images_with_text": pending, "undecided": pending, "decisions": {}},
        }  # fmt: skip
        write_json(work / DEIDENTIFICATION_REPORT, report)
        write_private_csv(
            name_list_path(out),
            [(file.name, names[path]) for path, file in clean_files.items()],
        )
        # The folder is finished: delete the journal and the lock file.
        for private in (work / FINISHED_JOURNAL, *work.glob(".*.lock")):
            private.unlink()
        work.rename(out)
    return report


def find_images(folder: Path, labels: Sequence[ImageLabels] = ()) -> list[Path]:
    """List the images and DICOM files below a folder, except those that are labels.

    Args:
        folder: the folder.
        labels: labels of the images.

    Returns:
        Sorted absolute paths.

    Raises:
        BadInput: there are no images, and no volumes that labels belong to.
    """
    folder = folder.absolute()
    if not folder.is_dir():
        raise BadInput(f"{folder}: there is no such folder. Give the folder with the images.")
    label_files = {path for label_set in labels for path in label_set.files}
    paths = [
        path
        for path in map(folder.joinpath, list_files(folder))
        if path.is_file() and path not in label_files and (path.suffix.lower() in IMAGE_SUFFIXES or is_dicom(path))
    ]
    if not paths and not any(label_set.volumes for label_set in labels):
        raise BadInput(
            f"{folder}: contains no images and no DICOM files. NIfTI images are only copied with labels (--labels).",
        )
    return paths


def _write_picture(
    path: Path, dataset: Any, key: str, work: Path, ignored: list[str], search_text: bool
) -> dict[str, Any]:
    """Write the picture of a file without its metadata below `work`.

    `dataset` is the header of a DICOM file, and None for other images. Returns the fields of the
    journal's entry. Raises ImageError, Skipped, OSError.
    """
    if dataset is None:
        stored = path.read_bytes()
        check_image(stored)
        is_upright, stored = not is_exif_rotated(stored), strip_metadata(stored)
    else:
        is_upright, stored = (
            True,
            strip_metadata(encode_png(Image.fromarray(render_frame(dataset, None, ignored)))),
        )
    picture = decode_rgb(stored)
    boxes = find_text(picture) if search_text else []
    image = image_file_name(key, stored)
    replace_file(work / (PENDING_FOLDER if boxes else "images") / image, stored)
    # If EXIF rotates a picture, its labels may refer to either orientation. They are skipped
    # because the picture has no size here.
    size = [picture.height, picture.width] if is_upright else None
    return {"image": image, "size": size, "boxes": [list(box) for box in boxes], "ignored": ignored}


def _skip_reason(text: str) -> str:
    """Shorten a message to a reason that can be counted: without details of the file."""
    return text.split("(", maxsplit=1)[0].split(":", maxsplit=1)[0].strip()[:80]
