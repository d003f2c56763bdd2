"""Remove a patient (study, article) from a set that `curate` wrote or a folder that `deidentify` wrote: images, questions on them, entries
about them; and from runs and stores of results.

Who withdrew is kept in one list beside the set's key, in keyed ids (`contents/pseudonyms.py`), which every later `export`, `probe`,
`hallucinate`, `gmai` and `build` obeys; a store has such a list beside it, which `submit` obeys. The rest keeps its ids, so that
results on it stay comparable question by question.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections import Counter
from collections.abc import Set
from pathlib import Path
from typing import Any

from curation.custom_sets.hallucination import CONTROLS_NOTE_START, describe_controls
from curation.custom_sets.probing import TEXT_ONLY_NOTE_START, measure_text_only
from curation.gmai.items import UNIT_JOURNAL, keyed_patient_id
from curation.images.file_names import DEIDENTIFICATION_REPORT, DEIDENTIFIED_TABLE, load_patient_groups, name_list_path
from curation.mediconfusion_export import category_counts
from curation.writing.question_writing import REVIEWS_FILE
from dataset_builders.benchmarks.halt_medvqa.reader import SCENARIO_FILES
from dataset_builders.build import replace_folder
from dataset_builders.contents.pseudonyms import KEYED_IDS, key_path, load_pseudonyms, record_withdrawn_ids
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file, write_json
from dataset_builders.journal import read_journal
from eval_harness.runs.run_scoring import score_run
from eval_harness.runs.runner import keep_cases
from eval_harness.store.folder_store import has_groups
from eval_harness.store.scan import StoredResult, result_paths

MEASURED_NOTE_STARTS = (TEXT_ONLY_NOTE_START, CONTROLS_NOTE_START)
"""How notes begin that are measured on the set, and are anew."""
METADATA_FILES = ("manifest.json", "image_dict.json", "statistics.json", "funnel.json")


UNREACHED_COPIES = (
    "not reached, and to be deleted or made anew by you: datasets built before, what is on the Hub (datasets, results stores, old "
    "revisions), caches of load_dataset (~/.cache/huggingface), the folders of `embed`, `pairs` and `write` with their drafts and "
    "reviews, labels of `deidentify`, a judge's cached replies in runs, copies and backups, and what was sent to a provider"
)


def keyed_group_ids(folder: Path, group: str) -> set[str]:
    """The keyed ids that a patient (study, article) has under the key of a folder: of `curate gmai` one for each registry that knows them.

    Raises BadInput where no key lies beside the folder.
    """
    private, beside = folder / "private", folder
    is_gmai = (private / UNIT_JOURNAL).is_file()
    if is_gmai:
        beside = folder / "dataset"
    if not key_path(beside).is_file():
        raise BadInput(f"{folder}: there is no key {key_path(beside)}. Only its owner can compute an id.")
    pseudonyms = load_pseudonyms(beside)
    if not is_gmai:
        return {pseudonyms.group(group)}
    entries = read_journal(private / UNIT_JOURNAL)
    held = {item["patient"] for entry in entries for item in entry["items"]}
    return {keyed_patient_id(entry["registry"], group, pseudonyms) for entry in entries} & held


def withdraw_from_runs(root: Path, ids: Set[str]) -> int:
    """Reduce every run below a folder to the cases without these groups, and score it anew; returns how many questions went.

    Raises BadInput for a run of which nothing would be left.
    """
    gone = 0
    for path in sorted(root.rglob("run.json")):
        if taken := keep_cases(
            path.parent, lambda question: question.get("group") not in ids, "that are not withdrawn"
        ):
            gone += taken
            for aside in path.parent.glob(".before-*"):
                shutil.rmtree(aside)
            score_run(path.parent)
    return gone


def withdraw_from_store(store: Path, ids: Set[str]) -> list[str]:
    """Take the questions about these groups out of a store in a folder, with all results on these sets of questions.

    A result is of its set of questions as a whole: with fewer questions it is another result, which `submit` makes of the run that
    `withdraw_from_runs` reduced. The list beside the store keeps the old ones from coming back.

    Returns the folders of the results. Raises BadInput for a folder that is no store, before anything is changed.
    """
    results = [StoredResult.read(path) for path in result_paths(store)]
    questions = [path for path in store.glob("questions/*.parquet") if has_groups(path.read_bytes(), ids)]
    gone = [stored.folder for stored in results if stored.result.benchmark.fingerprint in {p.stem for p in questions}]
    record_withdrawn_ids(store, ids)
    # The questions go last: as long as they are there, an interrupted call can be made again.
    for folder in gone:
        shutil.rmtree(folder)
    for path in questions:
        path.unlink()
    return [folder.relative_to(store).as_posix() for folder in gone]


def _withdraw_images(folder: Path, group: str) -> dict[str, int]:
    """Take a group out of what `deidentify` wrote: images, rows of the table, lines of the list of names."""
    groups = load_patient_groups(folder / "images")
    ids = {group, *keyed_group_ids(folder, group)}
    gone = {name for name, its_group in groups.items() if its_group in ids}
    if not gone:
        raise BadInput(f"{folder}: no image is of that group. Give its name, or its id (g-...).")
    record_withdrawn_ids(folder, {*(groups[name] for name in gone), *(name.partition(".")[0] for name in gone)})
    counts = Counter(images=len(gone))
    for name in gone:
        (folder / "images" / name).unlink(missing_ok=True)
    for path in (folder / DEIDENTIFIED_TABLE, name_list_path(folder)):
        if path.is_file():
            rows = list(csv.reader(io.StringIO(path.read_text("utf-8", "surrogateescape"), newline="")))
            kept = [row for row in rows if not gone & set(row)]
            text = io.StringIO(newline="")
            csv.writer(text, lineterminator="\n").writerows(kept)
            replace_file(path, text.getvalue().encode("utf-8", "surrogateescape"))
            counts["rows"] += len(rows) - len(kept)
    return dict(counts)


def withdraw_group(folder: Path, group: str) -> dict[str, int]:
    """Rewrite the set without a group, given by its name or its keyed id, and note it on the list beside the key.

    Returns what was taken out, counted. Raises BadInput for a folder that `curate` did not write, a group that it does not have, and where
    nothing would be left.
    """
    if (folder / DEIDENTIFICATION_REPORT).is_file():
        return _withdraw_images(folder, group)
    manifest = _read_json(folder / "manifest.json")
    images = _read_json(folder / "image_dict.json")
    if not isinstance(manifest, dict) or manifest.get("ids") != KEYED_IDS or not isinstance(images, dict):
        raise BadInput(
            f"{folder}: is not a set that `medprobe curate` wrote with keyed ids. Give such a folder (not the built one)."
        )
    names = {group} | (keyed_group_ids(folder, group) if key_path(folder).is_file() else set())
    gone = {name for name, about in images.items() if about.get("group") in names}
    if not gone:
        raise BadInput(f"{folder}: no image is of that group. Give its name as in the table, or its id (g-...).")
    if len(gone) == len(images):
        raise BadInput(
            f"{folder}: all {len(images)} images are of that group. Delete the folder and {key_path(folder)}."
        )
    taken: Counter[str] = Counter(images=len(gone))
    with replace_folder(folder) as fresh:
        shutil.copytree(folder, fresh, dirs_exist_ok=True)
        for name in gone:
            (fresh / "images" / name).unlink(missing_ok=True)
        pairs: set[str] = set()
        left = 0
        for file in sorted(fresh.glob("*.json")):
            if file.name in METADATA_FILES:
                continue
            document = _read_json(file)
            cleaned, removed = _remove_entries(document, gone)
            if file.name == "dataset.json":
                pairs |= set(document) - set(cleaned)
            taken["questions"] += removed * (2 if file.name == "dataset.json" else 1)
            left += len(cleaned)
            write_json(file, cleaned)
        if not left:
            raise BadInput(f"{folder}: no question would be left. Delete the folder and {key_path(folder)}.")
        if (fresh / REVIEWS_FILE).is_file():
            lines = (fresh / REVIEWS_FILE).read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if json.loads(line).get("item") not in pairs]
            (fresh / REVIEWS_FILE).write_text("".join(line + "\n" for line in kept), encoding="utf-8")
            taken["review entries"] = len(lines) - len(kept)
        write_json(fresh / "image_dict.json", {name: about for name, about in images.items() if name not in gone})
        write_json(fresh / "manifest.json", _update_manifest(manifest, fresh))
        if (fresh / "statistics.json").is_file():
            write_json(fresh / "statistics.json", category_counts(_read_json(fresh / "dataset.json")))
        # Noted last, but before the set is replaced: what a later command makes of the same images is without them, too.
        record_withdrawn_ids(folder, {*(images[name]["group"] for name in gone), *(Path(name).stem for name in gone)})
    return {what: count for what, count in taken.items() if count}


def _remove_entries(document: Any, gone: set[str]) -> tuple[Any, int]:
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


def _update_manifest(manifest: dict[str, Any], fresh: Path) -> dict[str, Any]:
    made = dict(manifest)
    if (fresh / "dataset.json").is_file():
        made["pairs"] = len(_read_json(fresh / "dataset.json"))
    notes = []
    if (fresh / "probmed.json").is_file():
        rows = _read_json(fresh / "probmed.json")
        made["questions"] = len(rows)
        made["text_only_majority"], note = measure_text_only(rows)
        notes = [note]
    elif (fresh / SCENARIO_FILES["none"]).is_file():
        entries = {
            scenario: _read_json(fresh / file) for scenario, file in SCENARIO_FILES.items() if (fresh / file).is_file()
        }
        made["questions"] = {scenario: len(found) for scenario, found in entries.items()}
        notes = [describe_controls(entries)]
    if notes:
        made["notes"] = notes + [
            note for note in manifest.get("notes", []) if not note.startswith(MEASURED_NOTE_STARTS)
        ]
    made["withdrawn_groups"] = int(made.get("withdrawn_groups", 0)) + 1
    return made


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
