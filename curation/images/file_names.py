"""Map keyed image ids to file names, since a file name may contain the patient's name.

    FOLDER.key, FOLDER.names.csv    beside an embeddings folder, readable by the owner only: the
                                    key, and the file name of each id
    FOLDER/names_file.txt           in the folders of later steps: relative path of that list

Images written by `medprobe curate deidentify` already have keyed hashes as file names. Folders made
from them need no list: these names serve as ids.
"""

import csv
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dataset_builders.contents.pseudonyms import KEYED_IDS, load_pseudonyms
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file

POINTER_FILE = "names_file.txt"
DEIDENTIFIED_TABLE = "table.csv"
DEIDENTIFICATION_REPORT = "deidentification.json"
"""Report that `medprobe curate deidentify` writes beside its images (counts of removals); copied
into the manifest of every set made from them.
"""


def privacy_manifest(images: Path) -> dict[str, Any]:
    """Return manifest entries about ids and de-identification, for sets made from the images."""
    report_path = images.absolute().parent / DEIDENTIFICATION_REPORT
    deidentification = json.loads(report_path.read_text(encoding="utf-8")) if report_path.is_file() else None
    return {
        "ids": KEYED_IDS,
        **({"deidentification": deidentification} if isinstance(deidentification, dict) else {}),
    }


def load_patient_groups(images: Path) -> dict[str, str]:
    """Return file name -> keyed patient group from the table of `deidentify`, if there is one."""
    path = images.absolute().parent / DEIDENTIFIED_TABLE
    if "deidentification" not in privacy_manifest(images) or not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {row["image"]: row.get("group", "") for row in csv.DictReader(file) if row.get("image")}


def assign_image_ids(images: Path | None, names: Iterable[str], out: Path) -> dict[str, str]:
    """Assign an id to each image for the tables of `out`, and write the private list of ids.

    Args:
        images: folder of the images; None if they are at a remote address.
        names: file names.
        out: working folder; its key is beside it.

    Returns:
        File name -> id. The ids are the names themselves if `deidentify` wrote the images.
    """
    if images is not None and privacy_manifest(images).get("deidentification", {}).get("ids") == KEYED_IDS:
        return {name: name for name in names}

    pseudonyms = load_pseudonyms(out)
    ids = {name: pseudonyms.id_for("i", name) for name in names}
    write_private_csv(name_list_path(out), ((image_id, name) for name, image_id in ids.items()))
    return ids


def name_list_path(folder: Path) -> Path:
    """Return the path of a working folder's list of file names, which is beside the folder."""
    folder = folder.absolute()
    return folder.with_name(f"{folder.name}.names.csv")


def write_private_csv(
    path: Path, rows: Iterable[tuple[str, ...]], columns: tuple[str, ...] = ("image", "file")
) -> None:
    """Write a CSV file that only its owner can read (mode 0600)."""

    def write(partial: Path) -> None:
        with os.fdopen(
            os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            "w",
            newline="",
            encoding="utf-8",
            errors="surrogateescape",  # names that are not UTF-8 keep their bytes
        ) as file:
            csv.writer(file).writerows([columns, *rows])

    replace_file(path, write)


def load_file_names(folder: Path) -> dict[str, str]:
    """Return id -> file name for the tables of a working folder.

    Returns:
        An empty dict if the ids are the file names.

    Raises:
        BadInput: the list is missing.
    """
    path = _find_name_list(folder)
    if path is None:
        return {}

    if not path.is_file():
        raise BadInput(f"{path}: not found; it maps the ids in {folder} to files. Restore it.")
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return {row["image"]: row["file"] for row in csv.DictReader(file)}


def share_name_list(source: Path, folder: Path) -> None:
    """Let `folder`, which was derived from `source`, use the same list of file names."""
    path = _find_name_list(source)
    if path is None:
        (folder / POINTER_FILE).unlink(missing_ok=True)
    else:
        replace_file(folder / POINTER_FILE, f"{os.path.relpath(path, folder.absolute())}\n".encode())


def _find_name_list(folder: Path) -> Path | None:
    """Return the list of a working folder; None if its ids are the file names."""
    # A folder of a later step contains a pointer; an embeddings folder has the list beside it.
    pointer = folder / POINTER_FILE
    if pointer.is_file():
        return Path(os.path.normpath(folder.absolute() / pointer.read_text(encoding="utf-8").strip()))
    return name_list_path(folder) if name_list_path(folder).is_file() else None
