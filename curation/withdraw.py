"""Remove a patient (study, article) from a set that `curate` wrote: images, questions on them, entries about them.

The rest keeps its ids, so that results on it stay comparable question by question. What was built or published before still holds the
patient: build again, publish again, and have old revisions removed.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from curation.custom_sets.hallucination import CONTROLS, controls_note
from curation.custom_sets.probing import WITHOUT_IMAGE, known_by_text
from curation.export import statistics_of
from curation.review.review_log import LOG
from dataset_builders.benchmarks.halt_medvqa.reader import FILES
from dataset_builders.build import replacing
from dataset_builders.contents.pseudonyms import KEYED, key_file, pseudonyms_of
from dataset_builders.errors import BadInput
from dataset_builders.files import write_json

MEASURED = (WITHOUT_IMAGE, CONTROLS)
"""How notes begin that are measured on the set, and are anew."""
KEPT = ("manifest.json", "image_dict.json", "statistics.json", "funnel.json")


def withdraw(folder: Path, group: str) -> dict[str, int]:
    """Rewrite the set without a group, given by its name or its keyed id; what was taken out, counted.

    Raises BadInput for a folder that `curate` did not write, a group that it does not have, and where nothing would be left.
    """
    manifest = _read(folder / "manifest.json")
    images = _read(folder / "image_dict.json")
    if not isinstance(manifest, dict) or manifest.get("ids") != KEYED or not isinstance(images, dict):
        raise BadInput(
            f"{folder}: is not a set that `medprobe curate` wrote with keyed ids. Give such a folder (not the built one)."
        )
    names = {group}
    if key_file(folder).is_file():
        names.add(pseudonyms_of(folder).group(group))
    gone = {name for name, about in images.items() if about.get("group") in names}
    if not gone:
        raise BadInput(f"{folder}: no image is of that group. Give its name as in the table, or its id (g-...).")
    if len(gone) == len(images):
        raise BadInput(
            f"{folder}: all {len(images)} images are of that group. Delete the folder and {key_file(folder)}."
        )
    taken: Counter[str] = Counter(images=len(gone))
    with replacing(folder) as fresh:
        shutil.copytree(folder, fresh, dirs_exist_ok=True)
        for name in gone:
            (fresh / "images" / name).unlink(missing_ok=True)
        pairs: set[str] = set()
        left = 0
        for file in sorted(fresh.glob("*.json")):
            if file.name in KEPT:
                continue
            document = _read(file)
            cleaned, removed = _without(document, gone)
            if file.name == "dataset.json":
                pairs |= set(document) - set(cleaned)
            taken["questions"] += removed * (2 if file.name == "dataset.json" else 1)
            left += len(cleaned)
            write_json(file, cleaned)
        if not left:
            raise BadInput(f"{folder}: no question would be left. Delete the folder and {key_file(folder)}.")
        if (fresh / LOG).is_file():
            lines = (fresh / LOG).read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if json.loads(line).get("item") not in pairs]
            (fresh / LOG).write_text("".join(line + "\n" for line in kept), encoding="utf-8")
            taken["review entries"] = len(lines) - len(kept)
        write_json(fresh / "image_dict.json", {name: about for name, about in images.items() if name not in gone})
        write_json(fresh / "manifest.json", _manifest(manifest, fresh))
        if (fresh / "statistics.json").is_file():
            write_json(fresh / "statistics.json", statistics_of(_read(fresh / "dataset.json")))
    return {what: count for what, count in taken.items() if count}


def _without(document: Any, gone: set[str]) -> tuple[Any, int]:
    """A document of entries (list or object) without those that name an image of the group, and how many they were."""

    def names(entry: Any) -> bool:
        return isinstance(entry, dict) and any(
            entry.get(key) in gone for key in ("image", "img", "original_img", "im_1", "im_2")
        )

    if isinstance(document, list):
        kept: Any = [entry for entry in document if not names(entry)]
    elif isinstance(document, dict):
        kept = {key: entry for key, entry in document.items() if not names(entry)}
    else:
        return document, 0
    return kept, len(document) - len(kept)


def _manifest(manifest: dict[str, Any], fresh: Path) -> dict[str, Any]:
    made = dict(manifest)
    if (fresh / "dataset.json").is_file():
        made["pairs"] = len(_read(fresh / "dataset.json"))
    notes = []
    if (fresh / "probmed.json").is_file():
        rows = _read(fresh / "probmed.json")
        made["questions"] = len(rows)
        made["text_only_majority"], note = known_by_text(rows)
        notes = [note]
    elif (fresh / FILES["none"]).is_file():
        entries = {scenario: _read(fresh / file) for scenario, file in FILES.items() if (fresh / file).is_file()}
        made["questions"] = {scenario: len(found) for scenario, found in entries.items()}
        notes = [controls_note(entries)]
    if notes:
        made["notes"] = notes + [note for note in manifest.get("notes", []) if not note.startswith(MEASURED)]
    made["withdrawn_groups"] = int(made.get("withdrawn_groups", 0)) + 1
    return made


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
