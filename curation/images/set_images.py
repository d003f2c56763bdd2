"""The images of a custom set: copied without metadata under keyed hashes, with what the table says of each (licence, source, group).

See also: the hashes (`dataset_builders/contents/pseudonyms.py`), what is removed (`dataset_builders/images/metadata.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.contents.pseudonyms import KEYED, Pseudonyms
from dataset_builders.errors import BadInput, Problems
from dataset_builders.images.lookup import ImageError
from dataset_builders.images.metadata import file_name, strip_metadata

UNCHECKED = "Validation: no person has checked these questions."
REPORT = "deidentification.json"
"""What `medprobe curate deidentify` wrote beside its images: counts of what was removed; it goes with every set made of them."""


def copy_images(
    work: Path, images: Path, used: Iterable[str], known: pd.DataFrame | None, pseudonyms: Pseudonyms
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Write the used images to `work`/images; (name in `images` -> name of the copy, image_dict.json: copy -> what is known of it).

    Raises BadInput where images are not there or cannot be opened.
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
        name = file_name(pseudonyms.of("i", image), data)
        (work / "images" / name).write_bytes(data)
        names[image] = name
        row = about.get(image, {})
        origins[name] = {"sha256": hashlib.sha256(data).hexdigest()}
        origins[name] |= {field: str(row[field]) for field in ("license", "source") if row.get(field)}
        if row.get("group"):
            origins[name]["group"] = pseudonyms.group(str(row["group"]))
    problems.check("Replace these images, or leave out their rows; nothing was written.")
    return names, origins


def manifest_of(images: Path) -> dict[str, Any]:
    """What every manifest of a custom set says of its ids and of how its images were de-identified."""
    report = images.absolute().parent / REPORT
    found = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else None
    return {"ids": KEYED, **({"deidentification": found} if isinstance(found, dict) else {})}
