"""The first stage: reads every unit of every dataset once, keeps its pictures without their metadata, and journals the rest.

A work folder's `private/` holds `journal.jsonl` (one line per unit, appended when its pictures are on the disk: a killed run goes on) and
`pictures/<sha256>.png`. It is not for publication. Files, patients, studies and items go by the keyed hashes of `dataset.key`.

See also: which file is which id (`file_ids.py`), taking a patient out again (`withdrawing.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from curation.gmai.file_ids import FileIds
from curation.gmai.pictures.geometry import encode_mask, fit, scale_mask, scale_pixels
from curation.gmai.pictures.targets import Picture, Skip, Skipped, Target, Unit, cause
from curation.gmai.readers import units_of
from curation.gmai.sources import Dataset, Sources
from dataset_builders.contents.pseudonyms import Pseudonyms, pseudonyms_of
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.journal import Journal

JOURNAL = "journal.jsonl"
PICTURES = "pictures"
WITHDRAWN = "withdrawn.json"
"""Keyed ids of patients who have withdrawn: nothing of theirs is stored again, whatever the sources still hold."""
HAS_WITHDRAWN = "its patient has withdrawn"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Item:
    """One target on one stored picture."""

    item: str
    dataset: str
    picture: str
    """sha256 of the PNG, its file's name"""
    phash: str
    patient: str
    study: str
    is_known_patient: bool
    label: str
    """raw"""
    kind: str
    box: tuple[float, float, float, float] | None
    mask: dict[str, Any] | None
    area: float
    """share of the picture"""
    present: tuple[str, ...]
    """all raw labels on the picture"""
    modality: str
    attributes: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    more: tuple[tuple[str, dict[str, Any] | None], ...] = ()
    """(picture, mask) of the further slices of its volume, in order, where they are one question"""

    @property
    def pictures(self) -> tuple[tuple[str, dict[str, Any] | None], ...]:
        """(picture, mask) of everything that a question about this shows, in order."""
        return ((self.picture, self.mask), *self.more)


def read_items(sources: Sources, private: Path) -> tuple[list[Item], list[Skip], dict[str, Any]]:
    """Every item of every dataset, what was skipped, and counts per dataset (units, pictures, targets).

    Raises BadInput where nothing at all can be read.
    """
    (private / PICTURES).mkdir(parents=True, exist_ok=True)
    ids = pseudonyms_of(private.with_name("dataset"))
    gone = read_withdrawn(private)
    items: list[Item] = []
    skips: list[Skip] = []
    counts: dict[str, Any] = {}
    with Journal(private / JOURNAL) as journal, FileIds(private.with_name("dataset")) as files:
        done = {(entry["dataset"], entry["unit"]): entry for entry in journal.entries}
        for dataset in sources.datasets:
            units, left_out = units_of(dataset, sources)
            skips += [_keyed(skip, files) for skip in left_out]
            read = _settings(dataset, sources)
            found: list[Item] = []
            for unit in tqdm(units, desc=f"reading {dataset.name}", unit="unit", disable=None):
                state = _state(unit, read)
                entry = done.get((dataset.name, files.of(dataset.name, unit.key)))
                if (
                    entry is None
                    or entry["state"] != state
                    or not _is_there(entry, private)
                    or not files.knows(skipped_files(entry))
                ):
                    entry = _read(unit, dataset, sources, private, ids, gone, files) | {"state": state}
                    journal.append(entry)
                if entry["items"] or skipped_files(entry):  # of a patient who has withdrawn nothing is listed
                    files.add(dataset.name, unit.key)
                    files.keep(skipped_files(entry))
                own = [_item(each) for each in entry["items"]]
                found += together(own) if dataset.together else own
                skips += [Skip(**each) for each in entry["skips"]]
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
    if not items:
        first = "; ".join(
            f"{what} ({count})" for (_, what), count in Counter((s.dataset, s.reason) for s in skips).most_common(5)
        )
        raise BadInput(
            f"no dataset gives a single target. {'What was skipped: ' + first if first else 'They are empty'}."
        )
    return items, skips, counts


def _keyed(skip: Skip, files: FileIds) -> Skip:
    """The same with an id in place of the file."""
    return skip if skip.reason == HAS_WITHDRAWN else replace(skip, what=files.add(skip.dataset, skip.what))


def skipped_files(entry: dict[str, Any]) -> list[str]:
    """The ids of what a journal's entry says was skipped, but for patients who have withdrawn."""
    return [skip["what"] for skip in entry["skips"] if skip["reason"] != HAS_WITHDRAWN]


def _item(entry: dict[str, Any]) -> Item:
    box = tuple(entry["box"]) if entry["box"] is not None else None
    return Item(**entry | {"box": box, "present": tuple(entry["present"])})


def together(items: list[Item]) -> list[Item]:
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
            present=tuple(sorted({label for each in own for label in each.present})),
            more=tuple((each.picture, each.mask) for each in own[1:]),
        )
        for own in slices.values()
    ]


def read_withdrawn(private: Path) -> frozenset[str]:
    """The keyed ids of patients who have withdrawn."""
    path = private / WITHDRAWN
    return frozenset(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else frozenset()


def _settings(dataset: Dataset, sources: Sources) -> str:
    """What decides how a unit is read, beside its files."""
    later = {"license", "ethics", "exhaustive", "task", "department", "region", "together"}
    given = dataset.model_dump(mode="json", exclude=later)
    return json.dumps([VERSION, given, sources.slices, sources.min_area, sources.longest_side], sort_keys=True)


def _state(unit: Unit, settings: str) -> str:
    digest = hashlib.sha256(settings.encode())
    for path in unit.files:
        state = Path(path).stat()
        digest.update(f"{path}\0{state.st_size}\0{state.st_mtime_ns}\n".encode("utf-8", "replace"))
    return digest.hexdigest()


def _is_there(entry: dict[str, Any], private: Path) -> bool:
    return all((private / PICTURES / f"{item['picture']}.png").is_file() for item in entry["items"])


def _read(
    unit: Unit, dataset: Dataset, sources: Sources, private: Path, ids: Pseudonyms, gone: frozenset[str], files: FileIds
) -> dict[str, Any]:
    """The journal's entry of one unit; its pictures are on the disk, and what was skipped of it goes on the list of files."""
    items: list[dict[str, Any]] = []
    skips: list[Skip] = []
    try:
        for picture in unit.load():
            made, left_out = _store(picture, dataset, sources, private, ids, gone)
            items += made
            skips += left_out
    except Skipped as reason:
        items, skips = [], [Skip(dataset.name, unit.key, str(reason))]
    except (BadInput, MemoryError, OSError) as error:
        items, skips = [], [Skip(dataset.name, unit.key, f"cannot be read ({cause(error)})")]
    if items or not any(skip.reason == HAS_WITHDRAWN for skip in skips):
        skips += unit.skips
    return {
        "dataset": dataset.name,
        "registry": dataset.registry,
        "unit": files.of(dataset.name, unit.key),
        "items": items,
        "skips": [asdict(_keyed(skip, files)) for skip in skips],
    }


def _store(
    picture: Picture, dataset: Dataset, sources: Sources, private: Path, ids: Pseudonyms, gone: frozenset[str]
) -> tuple[list[dict[str, Any]], list[Skip]]:
    """A picture as a PNG without metadata, and its items; targets that are too small are skipped, and patients who have withdrawn."""
    import imagehash

    # Without a patient, what belongs to one study (the slices of a volume) stays together in splits and limits.
    own_study = f"\0{dataset.name}\0{picture.study or picture.key}"
    patient = ids.group(f"{dataset.registry}\0{picture.patient or own_study}")
    if patient in gone:
        return [], [Skip(dataset.name, patient, HAS_WITHDRAWN)]
    original = picture.pixels.shape
    factor = fit(sources.longest_side, picture.pixels)
    pixels = np.ascontiguousarray(scale_pixels(picture.pixels, factor))
    image = Image.fromarray(pixels)
    sha = hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).hexdigest()
    file = private / PICTURES / f"{sha}.png"
    if not file.is_file():
        replace_file(file, lambda path: image.save(path, "PNG"))
    study = ids.of("s", f"{dataset.registry}\0{picture.patient or ''}\0{picture.study or own_study}")
    shared = {
        "dataset": dataset.name,
        "picture": sha,
        "phash": str(imagehash.phash(image)),
        "patient": patient,
        "study": study,
        "is_known_patient": bool(picture.patient),
        "present": sorted(picture.present),
        "modality": picture.modality or dataset.modality or "",
        "attributes": picture.attributes,
        "tags": picture.tags,
    }
    items, skips = [], []
    for number, target in enumerate(_merged(picture.targets)):
        area = target.area / (original[0] * original[1]) if target.kind != "class" else 1.0
        is_small = target.kind != "class" and area < max(sources.min_area, 1e-9)
        mask = None
        if target.mask is not None and not is_small:
            mask = scale_mask(target.mask, (pixels.shape[0], pixels.shape[1]))
        if is_small or (mask is not None and not mask.any()):
            skips.append(Skip(dataset.name, f"{picture.key} ({target.label})", "the target is too small"))
            continue
        items.append(
            shared
            | {
                "item": ids.of("t", "\0".join((dataset.name, picture.key, sha, str(number), target.label))),
                "label": target.label,
                "kind": target.kind,
                "box": None if target.box is None else tuple(side * factor for side in target.box),
                "mask": None if mask is None else encode_mask(mask),
                "area": area,
            }
        )
    return items, skips


def _merged(targets: list[Target]) -> list[Target]:
    """The targets, all masks of one label as one: a label that is drawn in several pieces is one target."""
    masks: dict[str, np.ndarray] = {}
    merged: list[Target] = []
    for target in targets:
        if target.mask is None:
            merged.append(target)
        elif target.label in masks:
            masks[target.label] |= target.mask
        else:
            masks[target.label] = target.mask.copy()
    return [*merged, *(Target(label, "mask", mask=mask) for label, mask in masks.items())]
