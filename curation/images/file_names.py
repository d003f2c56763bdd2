"""Map ids to files. The tables of a working folder name images by keyed hashes, since a file may be called like its patient.

    FOLDER.key, FOLDER.names.csv    beside an embeddings folder, readable by their owner alone: the key, and which file is which id
    FOLDER/names_file.txt           in the folders of later steps: where that list lies

Images of `medprobe curate deidentify` go by keyed hashes already; folders made of them have no list: their ids are the files' names.
"""

from __future__ import annotations

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
"""Report that `medprobe curate deidentify` writes beside its images: counts of removals; copied into every set made of them."""


def privacy_manifest(images: Path) -> dict[str, Any]:
    """Manifest entries of every custom set about its ids and the de-identification of its images."""
    report = images.absolute().parent / DEIDENTIFICATION_REPORT
    found = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else None
    return {"ids": KEYED_IDS, **({"deidentification": found} if isinstance(found, dict) else {})}


def load_patient_groups(images: Path) -> dict[str, str]:
    """File -> keyed group of its patient, of images that `deidentify` made, by its table; empty for others."""
    path = images.absolute().parent / DEIDENTIFIED_TABLE
    if "deidentification" not in privacy_manifest(images) or not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {row["image"]: row.get("group", "") for row in csv.DictReader(file) if row.get("image")}


def assign_image_ids(images: Path | None, names: Iterable[str], out: Path) -> dict[str, str]:
    """File name -> id for the tables of `out`, whose list is written; the names themselves where `deidentify` made the images. `images`:
    their folder, None where they have an address."""
    if images is not None and privacy_manifest(images).get("deidentification", {}).get("ids") == KEYED_IDS:
        return {name: name for name in names}
    pseudonyms = load_pseudonyms(out)
    ids = {name: pseudonyms.id_for("i", name) for name in names}
    write_private_csv(name_list_path(out), ((made, name) for name, made in ids.items()))
    return ids


def name_list_path(folder: Path) -> Path:
    """Path of a folder's list: beside it."""
    folder = folder.absolute()
    return folder.with_name(f"{folder.name}.names.csv")


def write_private_csv(
    path: Path, rows: Iterable[tuple[str, ...]], columns: tuple[str, ...] = ("image", "file")
) -> None:
    """Write a list that its owner alone can read."""

    def write(partial: Path) -> None:
        with os.fdopen(
            os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            "w",
            newline="",
            encoding="utf-8",
            errors="surrogateescape",  # a name that is not UTF-8 is written as it is on the disk
        ) as file:
            csv.writer(file).writerows([columns, *rows])

    replace_file(path, write)


def load_file_names(folder: Path) -> dict[str, str]:
    """Id -> file name for the tables of a working folder; empty where its ids are the names. Raises BadInput if the list is gone."""
    path = _find_name_list(folder)
    if path is None:
        return {}
    if not path.is_file():
        raise BadInput(f"{path}: is missing; it maps the ids in {folder} to files. Restore it.")
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return {row["image"]: row["file"] for row in csv.DictReader(file)}


def share_name_list(source: Path, folder: Path) -> None:
    """Let `folder`, made from `source`, use the same list."""
    path = _find_name_list(source)
    if path is None:
        (folder / POINTER_FILE).unlink(missing_ok=True)
    else:
        replace_file(folder / POINTER_FILE, f"{os.path.relpath(path, folder.absolute())}\n".encode())


def _find_name_list(folder: Path) -> Path | None:
    """The list of a working folder; None where its ids are the files' names."""
    pointer = folder / POINTER_FILE
    if pointer.is_file():
        return Path(os.path.normpath(folder.absolute() / pointer.read_text(encoding="utf-8").strip()))
    return name_list_path(folder) if name_list_path(folder).is_file() else None
