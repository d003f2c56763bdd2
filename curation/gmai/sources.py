"""First stage: read sources.yaml, and every unit of its datasets once, into items.

sources.yaml states how each dataset is read, and how the benchmark is drawn from them. Its values
include those of the official lexical tree: 18 clinical tasks, 18 departments, 4 granularities
(GMAI-MMBench, tables 5 to 7).

`private/` in the work folder has `journal.jsonl` (one line per unit, appended after its pictures
are on disk, so a killed run resumes) and `pictures/<sha256>.png` without metadata. It must not be
published. The ids of files, patients and items are hashes with the key `dataset.key`, since a file
name may contain the patient's name.

See also: one dataset (`readers/dataset.py`), the label table (`label_table.py`).
"""

import hashlib
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from PIL import Image
from pydantic import Field, ValidationError, model_validator
from tqdm import tqdm

from curation.images.privacy import name_list_path, privacy_manifest
from curation.readers.dataset import ExistingPath, SourceDataset, StrictModel
from curation.readers.pictures import Picture, PictureLabel, Skip, Unit, skip_from_error
from curation.readers.pixels import Skipped, encode_mask, error_cause, resize_plane
from curation.readers.units import list_units
from dataset_builders.contents.pseudonyms import (
    Pseudonyms,
    load_pseudonyms,
    normalize_group_name,
    read_withdrawn_ids,
    record_withdrawn_ids,
)
from dataset_builders.errors import BadInput, replace_surrogates
from dataset_builders.files import Journal, encode_entry, lock_folder, read_journal, replace_file
from dataset_builders.source_files import read_yaml
from dataset_builders.terms import load_terms

CLINICAL_TASKS = tuple(term.concept for term in load_terms("task"))
"""Table 5 of the paper has a nineteenth task, Anatomical Structure Recognition, which is neither in
the paper's text nor in the public tree.
"""
DEPARTMENTS = (
    "Cardiovascular Surgery", "Dermatology", "Endocrinology", "Gastroenterology and Hepatology",
    "General Surgery", "Hematology", "Infectious Diseases", "Laboratory Medicine and Pathology",
    "Nephrology and Hypertension", "Neurosurgery",
    "Obstetrics and Gynecology", "Oncology (Medical)", "Ophthalmology", "Orthopedic Surgery",
    "Otolaryngology (ENT)/Head and Neck Surgery", "Pulmonary Medicine", "Sports Medicine", "Urology",
)  # fmt: skip
IMAGE_LEVEL, BOX_LEVEL, MASK_LEVEL, CONTOUR_LEVEL = (
    "Image Level",
    "Box Level",
    "Mask Level",
    "Contour Level",
)
GRANULARITIES = (IMAGE_LEVEL, BOX_LEVEL, MASK_LEVEL, CONTOUR_LEVEL)
KIND_GRANULARITIES = {
    "class": (IMAGE_LEVEL,),
    "box": (BOX_LEVEL,),
    "mask": (MASK_LEVEL, CONTOUR_LEVEL),
}
"""Kind of annotation -> granularities of its questions; a mask gets two questions."""


class Overlay(StrictModel):
    """How a target is marked on a copy of its image."""

    color: Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")] = "#ff2020"
    opacity: Annotated[float, Field(gt=0, le=0.5)] = 0.3
    """Opacity of a mask; more than 0.5 would hide the target."""
    width: Annotated[int, Field(ge=1, le=20)] = 2
    """Line width of a box or contour in pixels; both are drawn outside the target."""


class Sources(StrictModel):
    """The content of sources.yaml."""

    labels: ExistingPath | None = None
    questions: ExistingPath | None = None
    """Custom templates: columns task, granularity, question (with <modality>)."""
    tasks: tuple[str, ...] = CLINICAL_TASKS
    departments: tuple[str, ...] = DEPARTMENTS
    seed: int = 0
    options: tuple[int, int] = (2, 5)
    per_answer: Annotated[int, Field(ge=1)] = 30
    per_patient: Annotated[int, Field(ge=1)] | None = 1
    """Cases per patient and answer; null: unlimited."""
    even: tuple[Literal["source", "age", "sex", "site"], ...] = ("source",)
    near_duplicate: Annotated[int, Field(ge=-1, le=64)] = 6
    """Pictures count as near-duplicates if their perceptual hashes differ in at most this many of
    64 bits; -1: never.
    """
    validation: Annotated[float, Field(ge=0, le=1)] = 0.18
    """Share of questions with public answers (4,550 of 25,831 in the paper)."""
    separate_registries: bool = False
    """Set by the user to state that no patient is in two registries."""
    overlay: Overlay = Overlay()
    longest_side: Annotated[int, Field(ge=32, le=4096)] = 1024
    datasets: tuple[SourceDataset, ...]

    @model_validator(mode="after")
    def _consistent(self) -> "Sources":
        names = [dataset.name for dataset in self.datasets]
        if not names:  # `min_length` would only count valid datasets
            raise ValueError("datasets: give at least one")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two datasets are called {twice[0]!r}")
        if not 2 <= self.options[0] <= self.options[1] <= 5:
            raise ValueError("options: give a minimum and a maximum, from 2 to 5")
        return self


def read_sources(path: Path) -> Sources:
    """Read sources.yaml and resolve its paths.

    Raises:
        BadInput: fields are invalid or paths are missing; the message lists up to ten.
    """
    if not path.is_file():
        raise BadInput(f"{path}: file not found. docs/gmai_pipeline.md shows how to write one.")
    try:
        raw = read_yaml(path)
        sources = Sources.model_validate(raw, context=path.parent)
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: not valid YAML ({' '.join(str(error).split())}).") from None
    except ValidationError as error:
        messages = [
            f"{_error_location(raw, problem['loc'])}{problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors()
        ]
        raise BadInput(f"{path}: {'; '.join(messages[:10])}. docs/gmai_pipeline.md lists the fields.") from None
    _check_registries(sources, path)
    return sources


def _check_registries(sources: Sources, path: Path) -> None:
    """Raise BadInput if patient ids of different datasets cannot be compared.

    Otherwise a patient of two datasets could end up in both splits.
    """
    # `deidentify` derives patient ids with a key, so ids made with different keys cannot be
    # compared.
    registries = {
        (
            dataset.patients,
            privacy_manifest(dataset.path).get("deidentification", {}).get("key", ""),
        ): dataset.name
        for dataset in sources.datasets
        if dataset.names_patients
    }

    if len(registries) > 1 and not sources.separate_registries:
        raise BadInput(
            f"{path}: the patient ids of datasets {' and '.join(sorted(registries.values()))} "
            "belong to different registries, or were made with different `deidentify` keys, so a "
            "patient "
            "of both may end up in both splits. Omit `patients` and de-identify all datasets with "
            "one key "
            "(copy CLEAN.key to OTHER.key before --out OTHER), or set `separate_registries: true` "
            "if no patient is in two of them."
        )


def _error_location(raw: Any, location: tuple[int | str, ...]) -> str:
    """Return the location of a validation error, with the dataset's name; "" for the whole file."""
    # Skip union members, such as "dict[int,str]".
    parts = [str(part) for part in location if "[" not in str(part)]
    if len(location) > 1 and location[0] == "datasets" and isinstance(raw["datasets"][location[1]], dict):
        parts[:2] = [f"dataset {raw['datasets'][location[1]].get('name', location[1])}"]
    return f"{' '.join(parts)}: " if parts else ""


# Items

PRIVATE_FOLDER = "private"
"""Folder of the pictures and journals within the output of `medprobe curate gmai`."""
UNIT_JOURNAL = "journal.jsonl"
PICTURES_FOLDER = "pictures"
SHEETS_FOLDER = "sheets"
"""Folder of the contact sheets, which every run rewrites (`benchmark_files.py`)."""
PATIENT_WITHDRAWN = "its patient has withdrawn"
JOURNAL_VERSION = 2


@dataclass(frozen=True, slots=True)
class Item:
    """One target on one stored picture."""

    item: str
    dataset: str
    picture: str
    """SHA-256 of the pixels, which is also the name of the PNG."""
    phash: str
    patient: str
    is_known_patient: bool
    label: str
    """Raw label."""
    kind: str
    box: list[float] | None
    """(x, y, width, height) in pixels of the stored picture."""
    mask: dict[str, Any] | None
    area: float
    """Area of the target as a share of the picture."""
    present: Sequence[str]
    """All raw labels on the picture."""
    modality: str
    overlapping: Sequence[str] = ()
    """Raw labels on the picture whose region overlaps the target's or is unknown."""
    unsure: Sequence[str] = ()
    """Raw labels whose presence on the picture is unknown."""
    attributes: dict[str, str] = field(default_factory=dict)
    further_slices: tuple[tuple[str, dict[str, Any] | None], ...] = ()
    """(picture, mask) of further slices of its volume, in order, if one question shows them
    together.
    """

    @property
    def pictures(self) -> tuple[tuple[str, dict[str, Any] | None], ...]:
        """Return (picture, mask) of every picture that a question about this item shows."""
        return ((self.picture, self.mask), *self.further_slices)


def read_items(sources: Sources, private: Path) -> tuple[list[Item], list[Skip], dict[str, Any]]:
    """Read every item of every dataset; unchanged units are taken from the journal.

    Args:
        sources: sources.yaml.
        private: private folder of the work folder.

    Returns:
        Items, what was skipped, and counts per dataset (units, pictures, targets, patients).
    """
    (private / PICTURES_FOLDER).mkdir(parents=True, exist_ok=True)
    ids = load_pseudonyms(private.with_name("dataset"))
    withdrawn = read_withdrawn_ids(private.with_name("dataset"))

    items: list[Item] = []
    skips: list[Skip] = []
    counts: dict[str, Any] = {}

    with Journal(private / UNIT_JOURNAL) as journal:
        journalled = {(entry["dataset"], entry["unit"]): entry for entry in journal.entries}
        for dataset in sources.datasets:
            units, left_out = list_units(dataset)
            skips += left_out
            settings = _reading_settings(dataset, sources)
            dataset_items: list[Item] = []
            for unit in tqdm(units, desc=f"reading {dataset.name}", unit="unit", disable=None):
                name = ids.id_for("f", f"{dataset.name}\0{unit.key}")
                state = _unit_digest(unit, settings)
                entry = journalled.get((dataset.name, name), {})
                if entry.get("state") != state or not all(
                    (private / PICTURES_FOLDER / f"{item['picture']}.png").is_file() for item in entry["items"]
                ):
                    head = {"dataset": dataset.name, "registry": dataset.patients, "unit": name, "state": state}
                    entry = head | _read_unit(unit, dataset, sources, private, ids, withdrawn)
                    journal.append(entry)

                unit_items = [Item(**fields) for fields in entry["items"]]
                dataset_items += join_slices(unit_items) if dataset.together else unit_items
                skips += [
                    Skip(dataset.name, "" if reason == PATIENT_WITHDRAWN else unit.key, reason, is_contradiction)
                    for reason, is_contradiction in entry["skips"]
                ]

            items += dataset_items
            counts[dataset.name] = {
                "units": len(units),
                "pictures": len({picture for item in dataset_items for picture, _ in item.pictures}),
                "targets": len(dataset_items),
                "patients": len({item.patient for item in dataset_items}),
                "pictures_without_patient": len(
                    {picture for item in dataset_items if not item.is_known_patient for picture, _ in item.pictures}
                ),
            }
    return items, skips, counts


def join_slices(items: list[Item]) -> list[Item]:
    """Join all slices of a label in a volume into one item."""
    slices: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        slices[item.label if item.kind == "mask" else item.item].append(item)
    return [
        label_items[0]
        if len(label_items) == 1
        else replace(
            label_items[0],
            item=f"{label_items[0].item}-{len(label_items)}",
            area=max(item.area for item in label_items),
            present=sorted({label for item in label_items for label in item.present}),
            overlapping=sorted({label for item in label_items for label in item.overlapping}),
            further_slices=tuple((item.picture, item.mask) for item in label_items[1:]),
        )
        for label_items in slices.values()
    ]


def keyed_patient_id(registry: str, name: str, ids: Pseudonyms) -> str:
    """Return the keyed id of a patient.

    Differences that spreadsheets introduce (leading zeros, a trailing `.0`, case, spaces) are
    ignored.

    Args:
        registry: registry that the patient id belongs to.
        name: the patient's id in the source.
        ids: key of the work folder.
    """
    # Unicode form and case depend on the program that wrote the table.
    name = normalize_group_name(name).casefold()
    if number := re.fullmatch(r"0*(\d+?)(\.0)?", name):
        name = number[1]
    return ids.group(f"{registry}\0{name}")


def _reading_settings(dataset: SourceDataset, sources: Sources) -> str:
    """Return everything besides its files that determines how a unit is read, as JSON."""
    # These fields only matter after reading, so changing them must not invalidate the journal.
    downstream_fields = {"license", "ethics", "exhaustive", "task", "department", "region"}
    if dataset.reader == "wide":
        downstream_fields -= {"exhaustive"}
    dataset_settings = dataset.model_dump(mode="json", exclude=downstream_fields)
    return json.dumps([JOURNAL_VERSION, dataset_settings, sources.longest_side], sort_keys=True)


def _unit_digest(unit: Unit, settings: str) -> str:
    """Return a digest of the settings and of the files' paths, sizes and modification times."""
    digest = hashlib.sha256(settings.encode())
    for path in unit.files:
        state = path.stat()
        digest.update(f"{path}\0{state.st_size}\0{state.st_mtime_ns}\n".encode("utf-8", "replace"))
    return digest.hexdigest()


def _read_unit(
    unit: Unit,
    dataset: SourceDataset,
    sources: Sources,
    private: Path,
    ids: Pseudonyms,
    withdrawn: frozenset[str],
) -> dict[str, Any]:
    """Read a unit and store its pictures.

    Returns:
        The entry's `items`, and its `skips` as (reason, True if it is a contradiction).
    """
    items: list[dict[str, Any]] = []
    try:
        for picture in unit.load(unit):
            items += _store_picture(picture, dataset, sources, private, ids, withdrawn, unit)
    except Skipped as error:
        skip = skip_from_error(dataset.name, "", error)
        return {"items": [], "skips": [(skip.reason, skip.is_contradiction)]}
    except (BadInput, MemoryError, OSError) as error:
        return {"items": [], "skips": [(f"cannot be read ({error_cause(error)})", False)]}

    # A withdrawn patient's unit must leave no other trace in the journal.
    reasons = [PATIENT_WITHDRAWN] if PATIENT_WITHDRAWN in unit.skips else unit.skips
    return {"items": items, "skips": [(reason, False) for reason in reasons]}


def _store_picture(
    picture: Picture,
    dataset: SourceDataset,
    sources: Sources,
    private: Path,
    ids: Pseudonyms,
    withdrawn: frozenset[str],
    unit: Unit,
) -> list[dict[str, Any]]:
    """Store a picture as a PNG without metadata; return its items.

    Targets that are too small are skipped, and so are all pictures of patients who have withdrawn.
    """
    import imagehash

    # If the patient is unknown, each study (the slices of a volume) counts as a patient in splits
    # and limits.
    facts = picture.facts
    study_key = f"\0{dataset.name}\0{facts.get('study') or picture.key}"
    patient = keyed_patient_id(dataset.patients, facts.get("patient") or study_key, ids)
    if patient in withdrawn:
        unit.skips.append(PATIENT_WITHDRAWN)
        return []

    original_shape = picture.pixels.shape
    factor = min(1.0, sources.longest_side / max(original_shape[:2]))
    height, width = (max(1, round(side * factor)) for side in original_shape[:2])
    pixels = np.ascontiguousarray(resize_plane(picture.pixels, height, width, Image.Resampling.LANCZOS))
    image = Image.fromarray(pixels)

    # The hash covers the shape, too: the same bytes could be pictures of different proportions.
    picture_hash = hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).hexdigest()
    file = private / PICTURES_FOLDER / f"{picture_hash}.png"
    if not file.is_file():
        replace_file(file, lambda path: image.save(path, "PNG"))

    picture_fields = {
        "dataset": dataset.name,
        "picture": picture_hash,
        "phash": str(imagehash.phash(image)),
        "patient": patient,
        "is_known_patient": "patient" in facts,
        "present": sorted(map(replace_surrogates, picture.present)),
        "unsure": sorted(map(replace_surrogates, picture.unsure - picture.present)),
        "modality": dataset.modality or facts.get("modality", ""),
        "attributes": {name: facts[name] for name in ("age", "sex", "site") if name in facts},
    }

    items = []
    targets = _merge_masks(picture.targets)
    for number, target in enumerate(targets):
        area = target.area / (original_shape[0] * original_shape[1]) if target.kind != "class" else 1.0
        mask = None if target.mask is None else resize_plane(target.mask, height, width)
        # Resizing may erase a thin mask although its area is large enough.
        if area < max(dataset.min_area, 1e-9) or (mask is not None and not mask.any()):
            unit.skips.append(f"the target is too small ({target.label})")
            continue

        neighbours = [neighbour for neighbour in (*targets, *picture.also) if neighbour is not target]
        name = "\0".join((dataset.name, picture.key, picture_hash, str(number), target.label))
        items.append(
            picture_fields
            | {
                "item": ids.id_for("t", name),
                "label": target.label,
                "kind": target.kind,
                "box": None if target.box is None else [side * factor for side in target.box],
                "mask": None if mask is None else encode_mask(mask),
                "area": area,
                "overlapping": sorted(
                    {neighbour.label for neighbour in neighbours if _targets_overlap(target, neighbour)}
                ),
            }
        )
    return items


def _merge_masks(targets: list[PictureLabel]) -> list[PictureLabel]:
    """Merge all masks of a label into one target, since a label may be drawn in pieces.

    Label names are also converted to valid UTF-8.
    """
    masks: dict[str, np.ndarray] = {}
    merged: list[PictureLabel] = []
    for target in targets:
        label = replace_surrogates(target.label)
        if target.mask is None:
            merged.append(replace(target, label=label))
        else:
            masks[label] = masks.get(label, False) | target.mask
    return [*merged, *(PictureLabel(label, mask=mask) for label, mask in masks.items())]


def _targets_overlap(target: PictureLabel, neighbour: PictureLabel) -> bool:
    """Return True if two targets share pixels or may share them; a class has no known location."""
    if target.kind == "class" or neighbour.kind == "class":
        return True
    if target.mask is not None and neighbour.mask is not None:
        return bool((target.mask & neighbour.mask).any())
    first_box, second_box = target.box, neighbour.box
    if first_box is not None and second_box is not None:
        return all(
            max(first_box[axis], second_box[axis])
            < min(first_box[axis] + first_box[axis + 2], second_box[axis] + second_box[axis + 2])
            for axis in (0, 1)
        )

    box, mask = (first_box, neighbour.mask) if first_box is not None else (second_box, target.mask)
    assert box is not None and mask is not None
    left_px, top_px = (max(0, int(np.floor(side))) for side in box[:2])
    return bool(mask[top_px : int(np.ceil(box[1] + box[3])), left_px : int(np.ceil(box[0] + box[2]))].any())


def withdraw_patient(private: Path, group: str, ids: Set[str]) -> dict[str, int]:
    """Remove a patient's pictures and journal entries from the work folder.

    The private list of file names and the contact sheets, which may show the patient, are deleted,
    too. The next run writes the dataset without the patient.

    Args:
        private: private folder of the work folder.
        group: the patient's id in the sources, or the keyed id in the dataset's column `group`.
        ids: keyed ids that `group` may mean.

    Returns:
        Counts of removed images and targets.

    Raises:
        BadInput: no patient has this id, or patients of several registries have it.
    """
    with lock_folder(private, "gmai"):
        entries = read_journal(private / UNIT_JOURNAL)
        patient_ids = ids & {item["patient"] for entry in entries for item in entry["items"]}
        if len(patient_ids) != 1:
            raise BadInput(
                f"{private}: {len(patient_ids)} patients match {group!r}. "
                "Give the id in the dataset's column `group` (g-...)."
            )

        patient_entries = [entry for entry in entries if any(item["patient"] in patient_ids for item in entry["items"])]
        remaining_entries = [entry for entry in entries if entry not in patient_entries]

        # Record the withdrawal first: even if this process dies, the next run omits the patient.
        record_withdrawn_ids(private.with_name("dataset"), patient_ids)
        replace_file(private / UNIT_JOURNAL, b"".join(map(encode_entry, remaining_entries)))
        name_list_path(private.with_name("dataset")).unlink(missing_ok=True)
        shutil.rmtree(private / SHEETS_FOLDER, ignore_errors=True)

        # A picture that another patient's item also uses stays on disk.
        remaining_pictures = {item["picture"] for entry in remaining_entries for item in entry["items"]}
        pictures = {item["picture"] for entry in patient_entries for item in entry["items"]} - remaining_pictures
        for picture in pictures:
            (private / PICTURES_FOLDER / f"{picture}.png").unlink(missing_ok=True)
    return {
        "images": len(pictures),
        "targets": sum(len(entry["items"]) for entry in patient_entries),
    }
