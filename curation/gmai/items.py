"""The first stage: reads every unit of every dataset once, keeps its pictures without their metadata, and journals the rest.

A work folder's `private/` holds `journal.jsonl` (one line per unit, appended when its pictures are on the disk: a killed run goes on) and
`pictures/<sha256>.png`. It is not for publication. Files, patients and items go by the keyed hashes of `dataset.key`, since a file may be
called like its patient.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from curation.gmai.sources import Sources
from curation.images.file_names import name_list_path
from curation.readers.consistency import Skip, skip_from_error
from curation.readers.dataset import SourceDataset
from curation.readers.pictures import Picture, PictureLabel, Unit
from curation.readers.pixels import Skipped, encode_mask, error_cause, resize_plane
from curation.readers.registry import list_units
from dataset_builders.contents.pseudonyms import (
    Pseudonyms,
    load_pseudonyms,
    normalize_group_name,
    read_withdrawn_ids,
    record_withdrawn_ids,
)
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder, replace_file
from dataset_builders.journal import Journal, encode_entry, read_journal
from eval_harness.records.names import replace_surrogates

UNIT_JOURNAL = "journal.jsonl"
PICTURES_FOLDER = "pictures"
SHEETS_FOLDER = "sheets"
"""Contact sheets, made of the pictures by every run (`overlay.py`)."""
PATIENT_WITHDRAWN = "its patient has withdrawn"
JOURNAL_VERSION = 1


@dataclass(frozen=True, slots=True)
class Item:
    """One target on one stored picture."""

    item: str
    dataset: str
    picture: str
    """sha256 of the PNG, its file's name"""
    phash: str
    patient: str
    is_known_patient: bool
    label: str
    """raw"""
    kind: str
    box: list[float] | None
    """x, y, width, height"""
    mask: dict[str, Any] | None
    area: float
    """share of the picture"""
    present: Sequence[str]
    """all raw labels on the picture"""
    modality: str
    overlapping: Sequence[str] = ()
    """raw labels on the picture whose own region shares pixels with the target, or is not known"""
    unsure: Sequence[str] = ()
    """raw labels of which nothing is known on the picture"""
    attributes: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    more: tuple[tuple[str, dict[str, Any] | None], ...] = ()
    """(picture, mask) of the further slices of its volume, in order, where they are one question"""

    @property
    def pictures(self) -> tuple[tuple[str, dict[str, Any] | None], ...]:
        """(picture, mask) of everything that a question about this shows, in order."""
        return ((self.picture, self.mask), *self.more)


def read_items(sources: Sources, private: Path) -> tuple[list[Item], list[Skip], dict[str, Any]]:
    """Every item of every dataset, what was skipped, and counts per dataset (units, pictures, targets)."""
    (private / PICTURES_FOLDER).mkdir(parents=True, exist_ok=True)
    ids = load_pseudonyms(private.with_name("dataset"))
    gone = read_withdrawn_ids(private.with_name("dataset"))
    items: list[Item] = []
    skips: list[Skip] = []
    counts: dict[str, Any] = {}
    with Journal(private / UNIT_JOURNAL) as journal:
        done = {(entry["dataset"], entry["unit"]): entry for entry in journal.entries}
        for dataset in sources.datasets:
            units, left_out = list_units(dataset)
            skips += left_out
            read = _reading_settings(dataset, sources)
            found: list[Item] = []
            for unit in tqdm(units, desc=f"reading {dataset.name}", unit="unit", disable=None):
                state, name = _unit_digest(unit, read), ids.id_for("f", f"{dataset.name}\0{unit.key}")
                entry = done.get((dataset.name, name))
                if entry is None or entry["state"] != state or not _has_pictures(entry, private):
                    entry = {"dataset": dataset.name, "registry": dataset.patients, "unit": name, "state": state}
                    entry |= _read_unit(unit, dataset, sources, private, ids, gone)
                    journal.append(entry)
                own = [Item(**each) for each in entry["items"]]
                found += join_slices(own) if dataset.together else own
                skips += [
                    Skip(dataset.name, "" if reason == PATIENT_WITHDRAWN else unit.key, reason, is_contradiction)
                    for reason, is_contradiction in entry["skips"]
                ]
            items += found
            counts[dataset.name] = {
                "units": len(units),
                "pictures": len({picture for item in found for picture, _ in item.pictures}),
                "targets": len(found),
                "patients": len({item.patient for item in found}),
                "pictures_without_patient": len(
                    {picture for item in found if not item.is_known_patient for picture, _ in item.pictures}
                ),
            }
    return items, skips, counts


def _has_pictures(entry: dict[str, Any], private: Path) -> bool:
    return all((private / PICTURES_FOLDER / f"{item['picture']}.png").is_file() for item in entry["items"])


def join_slices(items: list[Item]) -> list[Item]:
    """The items of a volume with all slices of a label as one item."""
    slices: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        slices[item.label if item.kind == "mask" else item.item].append(item)
    return [
        own[0]
        if len(own) == 1
        else replace(
            own[0],
            item=f"{own[0].item}-{len(own)}",
            area=max(each.area for each in own),
            present=sorted({label for each in own for label in each.present}),
            overlapping=sorted({label for each in own for label in each.overlapping}),
            more=tuple((each.picture, each.mask) for each in own[1:]),
        )
        for own in slices.values()
    ]


def keyed_patient_id(registry: str, name: str, ids: Pseudonyms) -> str:
    """The keyed id of a patient. What spreadsheets change in a number is no difference: zeros before it, `.0` after it, case, blanks."""
    name = normalize_group_name(name).casefold()
    if number := re.fullmatch(r"0*(\d+?)(\.0)?", name):
        name = number[1]
    return ids.group(f"{registry}\0{name}")


def _reading_settings(dataset: SourceDataset, sources: Sources) -> str:
    """Everything besides its files that determines how a unit is read."""
    later = {"license", "ethics", "exhaustive", "task", "department", "region"}
    if dataset.reader == "wide":
        later -= {"exhaustive"}
    given = dataset.model_dump(mode="json", exclude=later)
    return json.dumps([JOURNAL_VERSION, given, sources.longest_side], sort_keys=True)


def _unit_digest(unit: Unit, settings: str) -> str:
    digest = hashlib.sha256(settings.encode())
    for path in unit.files:
        state = path.stat()
        digest.update(f"{path}\0{state.st_size}\0{state.st_mtime_ns}\n".encode("utf-8", "replace"))
    return digest.hexdigest()


def _read_unit(
    unit: Unit, dataset: SourceDataset, sources: Sources, private: Path, ids: Pseudonyms, gone: frozenset[str]
) -> dict[str, Any]:
    """The items of one unit, whose pictures are then on the disk, and why what was skipped of it: (reason, whether it is a
    contradiction)."""
    items: list[dict[str, Any]] = []
    try:
        for picture in unit.load(unit):
            items += _store_picture(picture, dataset, sources, private, ids, gone, unit)
    except Skipped as error:
        skip = skip_from_error(dataset.name, "", error)
        return {"items": [], "skips": [(skip.reason, skip.is_contradiction)]}
    except (BadInput, MemoryError, OSError) as error:
        return {"items": [], "skips": [(f"cannot be read ({error_cause(error)})", False)]}
    reasons = [PATIENT_WITHDRAWN] if PATIENT_WITHDRAWN in unit.skips else unit.skips
    return {"items": items, "skips": [(reason, False) for reason in reasons]}


def _store_picture(
    picture: Picture, dataset: SourceDataset, sources: Sources, private: Path, ids: Pseudonyms, gone: frozenset[str], unit: Unit,
) -> list[dict[str, Any]]:  # fmt: skip
    """A picture as a PNG without metadata, and its items; targets that are too small are skipped, and patients who have withdrawn."""
    import imagehash

    # Without a patient, what belongs to one study (the slices of a volume) stays together in splits and limits.
    own_study = f"\0{dataset.name}\0{picture.study or picture.key}"
    patient = keyed_patient_id(dataset.patients, picture.patient or own_study, ids)
    if patient in gone:
        unit.skips.append(PATIENT_WITHDRAWN)
        return []
    original = picture.pixels.shape
    factor = min(1.0, sources.longest_side / max(original[:2]))
    height, width = (max(1, round(side * factor)) for side in original[:2])
    pixels = np.ascontiguousarray(resize_plane(picture.pixels, height, width, Image.Resampling.LANCZOS))
    image = Image.fromarray(pixels)
    sha = hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).hexdigest()
    file = private / PICTURES_FOLDER / f"{sha}.png"
    if not file.is_file():
        replace_file(file, lambda path: image.save(path, "PNG"))
    shared = {
        "dataset": dataset.name,
        "picture": sha,
        "phash": str(imagehash.phash(image)),
        "patient": patient,
        "is_known_patient": bool(picture.patient),
        "present": sorted(map(replace_surrogates, picture.present)),
        "unsure": sorted(map(replace_surrogates, picture.unsure - picture.present)),
        "modality": picture.modality or dataset.modality or "",
        "attributes": picture.attributes,
        "tags": picture.tags,
    }
    items = []
    targets = _merge_masks(picture.targets)
    for number, target in enumerate(targets):
        area = target.area / (original[0] * original[1]) if target.kind != "class" else 1.0
        is_small = target.kind != "class" and area < max(dataset.min_area, 1e-9)
        mask = None
        if target.mask is not None and not is_small:
            mask = resize_plane(target.mask, height, width)
        if is_small or (mask is not None and not mask.any()):
            unit.skips.append(f"the target is too small ({target.label})")
            continue
        others = [other for other in (*targets, *picture.also) if other is not target]
        items.append(
            shared
            | {
                "item": ids.id_for("t", "\0".join((dataset.name, picture.key, sha, str(number), target.label))),
                "label": target.label,
                "kind": target.kind,
                "box": None if target.box is None else [side * factor for side in target.box],
                "mask": None if mask is None else encode_mask(mask),
                "area": area,
                "overlapping": sorted({other.label for other in others if _targets_overlap(target, other)}),
            }
        )
    return items


def _merge_masks(targets: list[PictureLabel]) -> list[PictureLabel]:
    """The targets, all masks of one label as one: a label that is drawn in several pieces is one target. Labels become storable text."""
    masks: dict[str, np.ndarray] = {}
    merged: list[PictureLabel] = []
    for target in (replace(each, label=replace_surrogates(each.label)) for each in targets):
        if target.mask is None:
            merged.append(target)
        elif target.label in masks:
            masks[target.label] |= target.mask
        else:
            masks[target.label] = target.mask.copy()
    return [*merged, *(PictureLabel(label, mask=mask) for label, mask in masks.items())]


def _targets_overlap(one: PictureLabel, other: PictureLabel) -> bool:
    """True if two targets share pixels; a class may be anywhere on the picture."""
    if one.kind == "class" or other.kind == "class":
        return True
    if one.box is not None and other.box is not None:
        a, b = one.box, other.box
        return all(max(a[k], b[k]) < min(a[k] + a[k + 2], b[k] + b[k + 2]) for k in (0, 1))
    if one.mask is not None and other.mask is not None:
        return bool((one.mask & other.mask).any())
    box, mask = (one.box, other.mask) if one.box is not None else (other.box, one.mask)
    assert box is not None and mask is not None
    left, top = (max(0, int(np.floor(side))) for side in box[:2])
    return bool(mask[top : int(np.ceil(box[1] + box[3])), left : int(np.ceil(box[0] + box[2]))].any())


def withdraw_patient(private: Path, group: str) -> dict[str, int]:
    """Take a patient's pictures out of the work folder, with what was journalled and listed of them; returns counts. The next run makes
    the set without them. `group`: the patient as the sources call them, or the keyed id, as in the column `group` of the set.

    Raises BadInput for a patient of whom there is no item, and for a name that two registries give to different patients.
    """
    with lock_folder(private, "gmai"):
        entries = read_journal(private / UNIT_JOURNAL)
        ids = load_pseudonyms(private.with_name("dataset"))
        meant = {group, *(keyed_patient_id(entry["registry"], group, ids) for entry in entries)}
        meant &= {item["patient"] for entry in entries for item in entry["items"]}
        if len(meant) != 1:
            raise BadInput(
                f"{private}: {len(meant)} patients are called {group!r}. Give the id in the set's column `group` (g-...)."
            )
        theirs = [entry for entry in entries if any(item["patient"] in meant for item in entry["items"])]
        kept = [entry for entry in entries if entry not in theirs]
        record_withdrawn_ids(private.with_name("dataset"), meant)
        replace_file(private / UNIT_JOURNAL, b"".join(map(encode_entry, kept)))
        name_list_path(private.with_name("dataset")).unlink(missing_ok=True)
        shutil.rmtree(private / SHEETS_FOLDER, ignore_errors=True)
        used = {item["picture"] for entry in kept for item in entry["items"]}
        pictures = {item["picture"] for entry in theirs for item in entry["items"]} - used
        for picture in pictures:
            (private / PICTURES_FOLDER / f"{picture}.png").unlink(missing_ok=True)
    return {"images": len(pictures), "targets": sum(len(entry["items"]) for entry in theirs)}
