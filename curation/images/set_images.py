"""Write the images and the manifest of a custom set atomically.

The images have no metadata and are named by keyed hashes.

`image_dict.json` has the sha256, licence, source and group of each image.
See also: keyed hashes (`dataset_builders/contents/pseudonyms.py`), metadata removal
(`dataset_builders/images/picture.py`).
"""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from curation.images.privacy import burned_in_note, load_patient_groups, privacy_manifest
from dataset_builders.build import replace_folder
from dataset_builders.contents.pseudonyms import Pseudonyms, load_pseudonyms, read_withdrawn_ids
from dataset_builders.errors import BadInput, Problems
from dataset_builders.files import write_json
from dataset_builders.images.lookup import ImageError
from dataset_builders.images.picture import image_file_name, strip_metadata

NOT_VALIDATED_NOTE = "Validation: no person has checked these questions."


def copy_images(
    work: Path,
    images: Path,
    image_names: Iterable[str],
    image_table: pd.DataFrame | None,
    pseudonyms: Pseudonyms,
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Write the images without metadata to `work`/images, under keyed names.

    Args:
        work: folder of the new set.
        images: folder of the originals.
        image_names: names of the images to copy.
        image_table: their metadata (`align_to_images`), or None.
        pseudonyms: key of the set.

    Returns:
        Original name -> name of the copy, and the content of image_dict.json: name of the copy ->
        sha256, licence, source, group.

    Raises:
        BadInput: images are missing or cannot be decoded.
    """
    sorted_names = sorted(set(image_names))
    missing = [image for image in sorted_names if not (images / image).is_file()]
    if missing:
        raise BadInput(
            f"--images {images}: {missing[0]} and {len(missing) - 1} more of {len(sorted_names)} "
            "images are missing. "
            "Give the folder that the questions were made from."
        )

    table_rows = {} if image_table is None else {row["image"]: row for row in image_table.to_dict("records")}

    problems = Problems()
    names: dict[str, str] = {}
    origins: dict[str, dict[str, str]] = {}
    (work / "images").mkdir()
    for image in sorted_names:
        try:
            image_bytes = strip_metadata((images / image).read_bytes())
        except (ImageError, OSError) as error:
            problems.add(str(images / image), None, str(error))
            continue

        name = image_file_name(pseudonyms.id_for("i", image), image_bytes)
        (work / "images" / name).write_bytes(image_bytes)
        names[image] = name

        row = table_rows.get(image, {})
        origins[name] = {"sha256": hashlib.sha256(image_bytes).hexdigest()}
        origins[name] |= {field: str(row[field]) for field in ("license", "source") if row.get(field)}
        if row.get("group"):
            origins[name]["group"] = pseudonyms.group(str(row["group"]))

    problems.check("Replace these images, or remove their rows; nothing was written.")
    return names, origins


def withdrawn_images(names: Iterable[str], images: Path, image_table: pd.DataFrame | None, out: Path) -> set[str]:
    """Return the images of withdrawn groups.

    Withdrawals count if they are recorded for the set `out` or for the folder of `deidentify` that
    the images come from.

    Args:
        names: file names in `images`.
        images: folder of the images.
        image_table: table of the images, for their groups.
        out: the set that is to be written.
    """
    withdrawn = read_withdrawn_ids(out, images.absolute().parent)
    if not withdrawn:
        return set()

    pseudonyms, groups = load_pseudonyms(out), load_patient_groups(images)
    groups |= {} if image_table is None else dict(zip(image_table["image"], image_table["group"], strict=True))

    # A withdrawal may be recorded under any of these ids: the image's keyed name, or its group,
    # keyed or not.
    def ids(name: str) -> set[str]:
        group = str(groups.get(name, ""))
        return {Path(name).stem, pseudonyms.id_for("i", name), group, pseudonyms.group(group)}

    return {name for name in names if withdrawn & ids(name)}


def write_custom_set(
    out: Path,
    family: str,
    images: Path,
    image_names: Iterable[str],
    image_table: pd.DataFrame | None,
    write_contents: Callable[[Path, dict[str, str], dict[str, dict[str, str]]], dict[str, Any]],
    name: str | None = None,
    validated: bool = False,
    text_search: bool = True,
) -> None:
    """Write a set in a benchmark's format to `out`; its key is written beside it.

    The set has the images under keyed names, image_dict.json, manifest.json, and the files that
    `write_contents` adds.

    Args:
        out: folder of the set; must not exist.
        family: benchmark whose format the set has.
        images: folder of the originals.
        image_names: names of the images to include.
        image_table: licence, source and group of the images, or None.
        write_contents: called with the folder, the mapping original name -> keyed name, and the
            content of image_dict.json; returns further manifest entries.
        name: name of the set; default: the name of `out`.
        validated: True if people have checked the questions.
        text_search: search the images for burned-in text.

    Raises:
        BadInput: `out` exists, images are missing, or images may contain burned-in text.
    """
    if out.exists():
        raise BadInput(f"{out}: already exists. Give another --out, or delete it.")

    image_names = set(image_names)

    # Search for text before anything is written, since this takes minutes and may refuse the set.
    text_note = burned_in_note(images, image_names, text_search)
    with replace_folder(out) as folder:
        names, origins = copy_images(folder, images, image_names, image_table, load_pseudonyms(out))

        contents_manifest = write_contents(folder, names, origins)
        write_json(folder / "image_dict.json", origins)

        manifest = {
            "name": name or out.name,
            "format": family,
            "made_by": "medprobe curate",
            "validated": validated,
        }
        notes = [
            *contents_manifest.pop("notes", []),
            *([] if validated else [NOT_VALIDATED_NOTE]),
            text_note,
        ]
        write_json(
            folder / "manifest.json",
            manifest | privacy_manifest(images) | contents_manifest | {"notes": notes},
        )
