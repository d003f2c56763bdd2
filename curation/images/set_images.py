"""Write a custom set atomically: its images without metadata under keyed hashes, what the table says of each (licence, source,
group), and its manifest.

See also: the hashes (`dataset_builders/contents/pseudonyms.py`), what is removed (`dataset_builders/images/metadata.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from curation.images.burned_in_text import burned_in_note
from curation.images.file_names import load_patient_groups, privacy_manifest
from dataset_builders.build import replace_folder
from dataset_builders.contents.pseudonyms import Pseudonyms, load_pseudonyms, read_withdrawn_ids
from dataset_builders.errors import BadInput, Problems
from dataset_builders.files import write_json
from dataset_builders.images.lookup import ImageError
from dataset_builders.images.metadata import image_file_name, strip_metadata

NOT_VALIDATED_NOTE = "Validation: no person has checked these questions."


def copy_images(
    work: Path, images: Path, used: Iterable[str], known: pd.DataFrame | None, pseudonyms: Pseudonyms
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Write the used images to `work`/images; (name in `images` -> name of the copy, image_dict.json: copy -> what is known of it).

    Raises BadInput if images are not there or cannot be opened.
    """
    wanted = sorted(set(used))
    missing = [image for image in wanted if not (images / image).is_file()]
    if missing:
        raise BadInput(
            f"--images {images}: {missing[0]} and {len(missing) - 1} more of {len(wanted)} images are not there. "
            "Give the folder that was embedded or asked about."
        )
    about = {} if known is None else {row["image"]: row for row in known.to_dict("records")}
    problems = Problems()
    names: dict[str, str] = {}
    origins: dict[str, dict[str, str]] = {}
    (work / "images").mkdir()
    for image in wanted:
        try:
            data = strip_metadata((images / image).read_bytes())
        except (ImageError, OSError) as error:
            problems.add(str(images / image), None, str(error))
            continue
        name = image_file_name(pseudonyms.id_for("i", image), data)
        (work / "images" / name).write_bytes(data)
        names[image] = name
        row = about.get(image, {})
        origins[name] = {"sha256": hashlib.sha256(data).hexdigest()}
        origins[name] |= {field: str(row[field]) for field in ("license", "source") if row.get(field)}
        if row.get("group"):
            origins[name]["group"] = pseudonyms.group(str(row["group"]))
    problems.check("Replace these images, or leave out their rows; nothing was written.")
    return names, origins


def withdrawn_images(names: Iterable[str], images: Path, known: pd.DataFrame | None, out: Path) -> set[str]:
    """Those of the images that show somebody who has withdrawn: from the set `out`, or from what `deidentify` wrote.

    Args:
        names: files in `images`.
        images: their folder.
        known: the table of the images, for their groups.
        out: the set that is to be written.
    """
    withdrawn = read_withdrawn_ids(out, images.absolute().parent)
    if not withdrawn:
        return set()
    pseudonyms, groups = load_pseudonyms(out), load_patient_groups(images)
    groups |= {} if known is None else dict(zip(known["image"], known["group"], strict=True))

    def ids(name: str) -> set[str]:
        group = str(groups.get(name, ""))
        return {Path(name).stem, pseudonyms.id_for("i", name), group, pseudonyms.group(group)}

    return {name for name in names if withdrawn & ids(name)}


def write_custom_set(
    out: Path,
    family: str,
    images: Path,
    used: Iterable[str],
    known: pd.DataFrame | None,
    write: Callable[[Path, dict[str, str], dict[str, dict[str, str]]], dict[str, Any]],
    name: str | None = None,
    validated: bool = False,
    text_search: bool = True,
) -> None:
    """Write a set in a benchmark's format (`family`) to `out`: the used images in images/, what `write` puts there (given the folder, name
    -> keyed name, and keyed name -> what image_dict.json says of it), image_dict.json (sha256, and licence, source and keyed group where
    `known` has them) and manifest.json with what `write` returns. The key lies beside `out`.

    Raises BadInput if `out` exists, images are not there, or may hold burned-in text (`text_search`).
    """
    if out.exists():
        raise BadInput(f"{out}: exists already. Give another --out, or delete it.")
    used = set(used)
    searched = burned_in_note(images, used, text_search)
    with replace_folder(out) as work:
        names, origins = copy_images(work, images, used, known, load_pseudonyms(out))
        made = write(work, names, origins)
        write_json(work / "image_dict.json", origins)
        about = {"name": name or out.name, "format": family, "made_by": "medprobe curate", "validated": validated}
        notes = [*made.pop("notes", []), *([] if validated else [NOT_VALIDATED_NOTE]), searched]
        write_json(work / "manifest.json", about | privacy_manifest(images) | made | {"notes": notes})
