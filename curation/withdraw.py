"""Remove a patient (study, article) from curated sets, de-identified folders, runs and stores.

A withdrawn group's images, their questions and all entries about them are deleted. Withdrawals are
recorded as keyed ids (`contents/pseudonyms.py`) in a list next to the set's key; every later
`export`, `probe`, `hallucinate`, `gmai` and `build` leaves these groups out. A store has a list of
its own next to it, which `submit` checks. All other questions keep their ids, so results stay
comparable question by question.
"""

import json
import shutil
from collections import Counter
from collections.abc import Set
from pathlib import Path
from typing import Any

from curation.custom_sets.hallucination import CONTROLS_NOTE_START, describe_controls
from curation.custom_sets.probing import TEXT_ONLY_NOTE_START, measure_text_only
from curation.deidentify.image_labels import delete_labels
from curation.deidentify.patient_table import delete_rows
from curation.deidentify.review_texts import is_gmai_folder
from curation.gmai.sources import PRIVATE_FOLDER, UNIT_JOURNAL, keyed_patient_id, withdraw_patient
from curation.images.privacy import (
    DEIDENTIFICATION_REPORT,
    DEIDENTIFIED_TABLE,
    PENDING_FOLDER,
    load_patient_groups,
    name_list_path,
    read_boxes,
    write_boxes,
)
from curation.mediconfusion_export import category_counts
from curation.writing.question_writing import REVIEWS_FILE
from dataset_builders.benchmarks.halt_medvqa.reader import SCENARIO_FILES
from dataset_builders.build import replace_folder
from dataset_builders.contents.pseudonyms import (
    KEYED_IDS,
    key_path,
    load_pseudonyms,
    normalize_group_name,
    record_withdrawn_ids,
)
from dataset_builders.errors import BadInput
from dataset_builders.files import read_journal, remove_temp_files, write_json
from eval_harness.runs.runner import keep_cases, score_run
from eval_harness.store.adding import has_groups
from eval_harness.store.contents import StoredResult, result_paths

MEASURED_NOTE_STARTS = (TEXT_ONLY_NOTE_START, CONTROLS_NOTE_START)
"""First words of the dataset card's notes that state measurements; a withdrawal measures them
again.
"""
METADATA_FILES = ("manifest.json", "image_dict.json", "statistics.json", "funnel.json")
"""JSON files of a set that contain no questions."""

UNREACHED_COPIES = (
    "not reached; delete or rebuild these yourself: datasets built earlier, copies on the Hub "
    "(datasets, results stores, old "
    "revisions), caches of load_dataset (~/.cache/huggingface), the folders of `embed`, `pairs` "
    "and `write` with their drafts and "
    "reviews, a judge's cached replies in runs, copies and backups, and texts sent to a provider"
)


def keyed_group_ids(folder: Path, group: str) -> set[str]:
    """Compute the keyed ids of a patient (study, article) under the key of a folder.

    Args:
        folder: folder of a set, of `deidentify` or of `curate gmai`.
        group: the group's name in the original table.

    Returns:
        One id; for a folder of `curate gmai`, one per registry that lists the patient.

    Raises:
        BadInput: the name is empty, or there is no key next to the folder.
    """
    # Images without a group have the id "": an empty name, such as an unset variable of a shell,
    # must not stand for all of them.
    if not normalize_group_name(group):
        raise BadInput(f"{folder}: the name of the group is empty. Give it as in the original table.")
    keyed = _keyed_folder(folder)
    if not key_path(keyed).is_file():
        raise BadInput(
            f"{folder}: there is no key {key_path(keyed)}. Only its owner can compute an id.",
        )

    pseudonyms = load_pseudonyms(keyed)
    if keyed == folder:
        return {pseudonyms.group(group)}
    entries = read_journal(folder / PRIVATE_FOLDER / UNIT_JOURNAL)
    patients = {item["patient"] for entry in entries for item in entry["items"]}
    # A patient's id depends on the registry, so the name is keyed once for each registry.
    return {keyed_patient_id(entry["registry"], group, pseudonyms) for entry in entries} & patients


def _keyed_folder(folder: Path) -> Path:
    """Return the folder beside which the key is: `dataset` in a folder of `curate gmai`."""
    return folder / "dataset" if is_gmai_folder(folder) else folder


def group_ids(folder: Path, group: str) -> set[str]:
    """Return the ids that a group may have in a folder, in runs on it and in stores.

    Args:
        folder: folder of a set, of `deidentify` or of `curate gmai`.
        group: the group's name in the original table, or its keyed id (`g-...`). A set that was
            made from another keyed folder has that folder's ids as names.

    Raises:
        BadInput: the name is empty, or a name is given and there is no key next to the folder.
    """
    if not group.startswith("g-"):
        return keyed_group_ids(folder, group)
    has_key = key_path(_keyed_folder(folder)).is_file()
    return {group} | (keyed_group_ids(folder, group) if has_key else set())


def withdraw_from_runs(root: Path, ids: Set[str]) -> int:
    """Remove withdrawn groups from every run below a folder, and score these runs again.

    Args:
        root: folder that is searched for runs.
        ids: keyed ids of the groups.

    Returns:
        Number of questions removed.

    Raises:
        BadInput: a run would have no questions left.
    """
    removed_questions = 0
    for path in sorted(root.rglob("run.json")):
        if count := keep_cases(
            path.parent, lambda question: question.get("group") not in ids, "that are not withdrawn"
        ):
            removed_questions += count
            # A copy that an interrupted rewrite left behind still has the withdrawn cases.
            for backup in path.parent.glob(".before-*"):
                shutil.rmtree(backup)
            score_run(path.parent)
    return removed_questions


def withdraw_from_store(store: Path, ids: Set[str]) -> list[str]:
    """Delete from a store the questions about these groups, and all results on these question sets.

    A result is valid for its whole question set only. For the smaller set, `submit` makes a new
    result from the run that `withdraw_from_runs` has reduced. The list next to the store prevents
    the old results from being submitted again.

    Args:
        store: folder of the store.
        ids: keyed ids of the groups.

    Returns:
        Folders of the deleted results, relative to the store.

    Raises:
        BadInput: the folder is not a store; nothing is changed then.
    """
    results = [StoredResult.read(path) for path in result_paths(store)]
    # A killed `submit` leaves a copy beside the questions that it was writing.
    remove_temp_files(store / "questions")
    questions = [path for path in store.glob("questions/*.parquet") if has_groups(path.read_bytes(), ids)]
    fingerprints = {path.stem for path in questions}
    deleted = [stored.folder for stored in results if stored.result.benchmark.fingerprint in fingerprints]
    record_withdrawn_ids(store, ids)
    # Delete the questions last: as long as they exist, an interrupted call can be repeated.
    for folder in deleted:
        shutil.rmtree(folder)
    for path in questions:
        path.unlink()
    return [folder.relative_to(store).as_posix() for folder in deleted]


def _withdraw_images(folder: Path, ids: Set[str]) -> dict[str, int]:
    """Remove a group from a folder of `deidentify`.

    Removes its images (including those that wait for a decision about their text), their labels,
    their boxes of text, their table rows and their entries in the list of file names.
    """
    groups = load_patient_groups(folder / "images")
    withdrawn = {name for name, image_group in groups.items() if image_group in ids}
    if not withdrawn:
        raise BadInput(f"{folder}: no image belongs to that group. Give its name, or its id (g-...).")

    record_withdrawn_ids(
        folder,
        {*(groups[name] for name in withdrawn), *(name.partition(".")[0] for name in withdrawn)},
    )
    counts = Counter(images=len(withdrawn))
    for name in withdrawn:
        for part in ("images", PENDING_FOLDER):
            (folder / part / name).unlink(missing_ok=True)
    delete_labels(folder, withdrawn)
    write_boxes(folder, {name: boxes for name, boxes in read_boxes(folder).items() if name not in withdrawn})
    for path in (folder / DEIDENTIFIED_TABLE, name_list_path(folder)):
        if path.is_file():
            counts["rows"] += delete_rows(path, withdrawn)
    return dict(counts)


def withdraw_group(folder: Path, group: str, ids: Set[str]) -> dict[str, int]:
    """Rewrite a set without a group, and add the group to the list next to the key.

    Args:
        folder: set written by `curate`, or folder of `deidentify` or of `curate gmai`.
        group: the group's name in the original table, or its keyed id.
        ids: the group's ids (`group_ids`).

    Returns:
        Kind of thing removed -> count; kinds of which nothing was removed are left out.

    Raises:
        BadInput: `curate` did not write the folder, the folder does not have the group, or no
            question would be left.
    """
    if is_gmai_folder(folder):
        return withdraw_patient(folder / PRIVATE_FOLDER, group, ids)
    if (folder / DEIDENTIFICATION_REPORT).is_file():
        return _withdraw_images(folder, ids)
    manifest = _read_json(folder / "manifest.json")
    images = _read_json(folder / "image_dict.json")
    if not isinstance(manifest, dict) or manifest.get("ids") != KEYED_IDS or not isinstance(images, dict):
        raise BadInput(
            f"{folder}: not a set that `medprobe curate` wrote with keyed ids. Give the folder "
            "that it wrote, not the built one."
        )
    withdrawn = {name for name, origin in images.items() if origin.get("group") in ids}
    if not withdrawn:
        raise BadInput(
            f"{folder}: no image belongs to that group. Give its name as in the table, or its id (g-...).",
        )
    # An empty set could not be built.
    if len(withdrawn) == len(images):
        raise BadInput(
            f"{folder}: all {len(images)} images belong to that group. Delete the folder and {key_path(folder)}."
        )

    counts: Counter[str] = Counter(images=len(withdrawn))
    # Work on a copy that replaces the folder at the end: an interruption changes nothing.
    with replace_folder(folder) as fresh:
        shutil.copytree(folder, fresh, dirs_exist_ok=True)
        for name in withdrawn:
            (fresh / "images" / name).unlink(missing_ok=True)

        removed_pairs: set[str] = set()
        remaining_entries = 0
        for file in sorted(fresh.glob("*.json")):
            if file.name in METADATA_FILES:
                continue
            document = _read_json(file)
            cleaned = _remove_entries(document, withdrawn)
            if file.name == "dataset.json":
                removed_pairs |= set(document) - set(cleaned)
            # An entry of dataset.json is a pair of questions.
            counts["questions"] += (len(document) - len(cleaned)) * (2 if file.name == "dataset.json" else 1)
            remaining_entries += len(cleaned)
            write_json(file, cleaned)
        if not remaining_entries:
            raise BadInput(
                f"{folder}: no question would be left. Delete the folder and {key_path(folder)}.",
            )

        if (fresh / REVIEWS_FILE).is_file():
            lines = (fresh / REVIEWS_FILE).read_text(encoding="utf-8").splitlines()
            remaining_lines = [line for line in lines if json.loads(line).get("item") not in removed_pairs]
            (fresh / REVIEWS_FILE).write_text(
                "".join(line + "\n" for line in remaining_lines),
                encoding="utf-8",
            )
            counts["review entries"] = len(lines) - len(remaining_lines)

        write_json(
            fresh / "image_dict.json",
            {name: origin for name, origin in images.items() if name not in withdrawn},
        )
        write_json(fresh / "manifest.json", _update_manifest(manifest, fresh))
        if (fresh / "statistics.json").is_file():
            write_json(
                fresh / "statistics.json",
                category_counts(_read_json(fresh / "dataset.json")),
            )
        # Record the withdrawal just before the set is replaced: sets that are made from the same
        # images later must leave the group out, too.
        record_withdrawn_ids(
            folder,
            {
                *(images[name]["group"] for name in withdrawn),
                *(Path(name).stem for name in withdrawn),
            },
        )
    return {kind: count for kind, count in counts.items() if count}


def describe_rebuild(folder: Path) -> str:
    """Return how to rebuild the datasets that were made from a folder before the withdrawal."""
    if is_gmai_folder(folder):
        return f"medprobe curate gmai SOURCES --out {folder}, which rebuilds {folder / 'dataset'} and {folder / 'tsv'}"
    if (folder / DEIDENTIFICATION_REPORT).is_file():
        return (
            f"withdraw them from every set made from {folder / 'images'} (`medprobe curate id` prints their id there)"
        )
    manifest = _read_json(folder / "manifest.json")
    return f"medprobe build {manifest['format']} --as {manifest['name']} --source {folder}"


def _remove_entries(document: Any, withdrawn: set[str]) -> Any:
    """Return a list or object without the entries that name a withdrawn image."""

    def is_withdrawn(entry: Any) -> bool:
        return isinstance(entry, dict) and any(
            entry.get(key) in withdrawn for key in ("image", "img", "original_img", "im_1", "im_2")
        )

    if isinstance(document, list):
        return [entry for entry in document if not is_withdrawn(entry)]
    return {key: entry for key, entry in document.items() if not is_withdrawn(entry)}


def _update_manifest(manifest: dict[str, Any], fresh: Path) -> dict[str, Any]:
    """Return the manifest with the counts and measurements of the reduced set in `fresh`."""
    updated = dict(manifest)
    if (fresh / "dataset.json").is_file():
        updated["pairs"] = len(_read_json(fresh / "dataset.json"))
    notes = []
    if (fresh / "probmed.json").is_file():
        rows = _read_json(fresh / "probmed.json")
        updated["questions"] = len(rows)
        updated["text_only_majority"], note = measure_text_only(rows)
        notes = [note]
    elif (fresh / SCENARIO_FILES["none"]).is_file():
        scenarios = {
            scenario: _read_json(fresh / file) for scenario, file in SCENARIO_FILES.items() if (fresh / file).is_file()
        }
        updated["questions"] = {scenario: len(entries) for scenario, entries in scenarios.items()}
        notes = [describe_controls(scenarios)]
    if notes:
        updated["notes"] = notes + [
            note for note in manifest.get("notes", []) if not note.startswith(MEASURED_NOTE_STARTS)
        ]
    # The manifest is public: it may hold the number of withdrawn groups, but not their ids.
    updated["withdrawn_groups"] = int(updated.get("withdrawn_groups", 0)) + 1
    return updated


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
