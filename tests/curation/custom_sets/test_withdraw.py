"""No byte of a withdrawn patient stays in a set; other patients keep ids, images and answers."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from datasets import load_dataset
from PIL import Image

from curation.custom_sets.hallucination import NONE_OPTION, UNKNOWN_OPTION
from curation.custom_sets.probing import text_only_accuracy
from curation.gmai import pipeline
from curation.gmai.sources import keyed_patient_id
from curation.review.review import ReviewLog
from curation.withdraw import group_ids, withdraw_group
from curation.writing.question_writing import DRAFTS_FILE
from dataset_builders.build import build
from dataset_builders.contents.pseudonyms import load_pseudonyms
from dataset_builders.hub.repository import open_repository
from eval_harness.store.contents import scan_store
from eval_harness.store.submit import add_to_store, build_submission
from medprobe import evaluate, load_run
from tests.curation.commands import curate, score_pair
from tests.curation.gmai.phantoms import write_all
from tests.helpers import refused, write_lines


def write_reviewed_pairs(names, questions):
    """Write a questions folder of reviewed pairs; captions name patients, and every third is
    rejected.
    """
    questions.mkdir()
    drafts = [
        {
            "pair_id": f"{k}-{k + 5}", "i": k, "j": k + 5, "sim_med": 0.95, "sim_gen": 0.4, "image_1": names[k], "image_2": names[k + 5],
            "caption_1": f"seen in {names[k]}", "caption_2": f"seen in {names[k + 5]}", "question": f"Which lesion is shown ({k})?",
            "option_A": "a cyst", "option_B": "a stone", "correct_1": "A", "correct_2": "B",
        }
        for k in range(len(names) - 5)
    ]  # fmt: skip
    pd.DataFrame(drafts).to_parquet(questions / DRAFTS_FILE)
    log = ReviewLog(questions)
    for k, pair in enumerate(log.pairs):
        score_pair(log, "Ada", pair, 9, 9 if k % 3 else 4)


@pytest.fixture(params=["probmed", "halt-medvqa", "mediconfusion"])
def custom_set(request, tmp_path):
    rng = random.Random(7)
    (tmp_path / "images").mkdir()
    rows = []
    for n in range(24):
        pixels = np.random.default_rng(n).integers(0, 256, (24, 24), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"Patient {n // 2} {n}.png")
        organ = ("chest", "brain", "knee")[n % 3]
        rows.append(
            {
                "image": f"Patient {n // 2} {n}.png", "group": f"Patient {n // 2}", "organ": organ, "modality": rng.choice(["CT", "MRI"]),
                "findings": rng.choice(["spur", "aneurysm", "normal"]), "question": f"Which lesion of the {organ} is shown ({n})?",
                "option_A": "a cyst", "option_B": "a stone", "option_C": "a clot", "answer": "A",
            }
        )  # fmt: skip
    for row in rows:
        # Probes need findings that are known to be absent.
        row["absent"] = {"spur": "aneurysm", "aneurysm": "spur"}.get(str(row["findings"]), "")
    pd.DataFrame(rows).to_csv(tmp_path / "table.csv", index=False)
    table, out = tmp_path / "table.csv", tmp_path / "my-set"
    options = f"--images {tmp_path / 'images'} --out {out} --table {table}"
    if request.param == "mediconfusion":
        write_reviewed_pairs([row["image"] for row in rows], tmp_path / "questions")
        command = f"export my-set --questions {tmp_path / 'questions'} {options}"
    elif request.param == "probmed":
        command = f"probe {table} --images {tmp_path / 'images'} --out {out}"
    else:
        fakes = [{"question": f"Which moon is number {n}?", "options": ["Io", "Europa"]} for n in range(24)]
        write_lines(tmp_path / "fakes.jsonl", fakes)
        command = f"hallucinate {table} {options} --fake-questions {tmp_path / 'fakes.jsonl'} --accept-text-alone"
    curate(command)
    return request.param, out, command


def test_withdrawing_removes_one_patient_and_changes_no_other(custom_set, tmp_path):
    """The patient is given by name, or for ProbMed's format by keyed id."""
    family, out, _ = custom_set
    build(family, name="my-set", source=out, out=tmp_path / "before")
    original_rows = open_repository(tmp_path / "before").questions("test").set_index("question_id")
    notes = json.loads((out / "manifest.json").read_text()).get("notes")
    patient = load_pseudonyms(out).group("Patient 3")
    output = curate("withdraw", out, "--group", patient if family == "probmed" else "Patient 3")
    assert "removed: 2 images" in output and f"medprobe build {family} --as my-set" in output
    build(family, name="my-set", source=out, out=tmp_path / "after")
    reduced_rows = open_repository(tmp_path / "after").questions("test").set_index("question_id")
    assert patient in set(original_rows["group"]) and patient not in set(reduced_rows["group"])
    images = {path.name for path in (out / "images").iterdir()}
    assert len(images) == len(json.loads((out / "image_dict.json").read_text()))
    withdrawn_images = set(original_rows[original_rows["group"] == patient]["image_id"])
    # Search all files, so that no format is forgotten.
    all_bytes = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert (
        not any(image.removesuffix(".png").encode() in all_bytes for image in withdrawn_images)
        and patient.encode() not in all_bytes
    )
    # Captions and reviews of the removed pairs name the patient as well.
    assert family != "mediconfusion" or all(f"seen in Patient 3 {n}".encode() not in all_bytes for n in (6, 7))
    remaining_rows = original_rows[original_rows["group"] != patient]
    assert set(reduced_rows.index) <= set(remaining_rows.index) and len(reduced_rows) >= 0.8 * len(
        remaining_rows
    )  # a question is removed with its own image, too, if swapped
    assert reduced_rows["answer"].map(tuple).equals(remaining_rows.loc[reduced_rows.index, "answer"].map(tuple))
    assert reduced_rows["image_id"].equals(remaining_rows.loc[reduced_rows.index, "image_id"])
    assert family != "probmed" or set(reduced_rows.index) == set(remaining_rows.index)
    manifest = json.loads((out / "manifest.json").read_text())
    if family == "mediconfusion":
        assert manifest["pairs"] == len(json.loads((out / "dataset.json").read_text()))
    else:  # notes with measurements are updated
        assert len(manifest["notes"]) == len(notes) and all(
            note in (tmp_path / "after" / "README.md").read_text() for note in manifest["notes"]
        )
        assert np.sum(
            list(manifest["questions"].values()) if family == "halt-medvqa" else manifest["questions"]
        ) == len(reduced_rows)
    if family == "halt-medvqa":
        gives_up = [
            row["options"][row["answer"][0]] in (NONE_OPTION, UNKNOWN_OPTION) for row in reduced_rows.to_dict("records")
        ]
        assert f"Always giving up scores {100 * np.mean(gives_up):.1f} %" in manifest["notes"][0]
    if family == "probmed":
        rows = json.loads((out / "probmed.json").read_text())
        assert manifest["text_only_majority"] == text_only_accuracy(rows)
    # Withdrawing twice is an error: the patient is already gone.
    assert "no image belongs to that group" in refused(curate, "withdraw", out, "--group", "Patient 3")
    # As from an unset variable of a shell: not the images without a group.
    assert "the name of the group is empty" in refused(curate, "withdraw", out, "--group", " ")


def loaded_groups(dataset):
    """Load the groups as a user of `load_dataset` does, with the cache of earlier calls."""
    return set(load_dataset(str(dataset), split="test", cache_dir=str(dataset.with_name("cache")))["group"])


def test_withdrawn_patients_do_not_return_and_leave_runs(custom_set, tmp_path):
    """A withdrawal applies to a repeated command, to a build from an old copy of the set, and to
    runs.
    """
    family, out, command = custom_set
    shutil.copytree(out, tmp_path / "copy")
    dataset = tmp_path / "data" / "my-set"
    build(family, name="my-set", source=out, out=dataset)
    assert load_pseudonyms(out).group("Patient 3") in loaded_groups(dataset)
    run = evaluate("my-set", "baseline:chance", data=tmp_path / "data", out=tmp_path / "runs" / "chance")
    store, full_run = tmp_path / "store", tmp_path / "whole"
    # Keep the full run, as another user may have it.
    shutil.copytree(run.folder, full_run)
    stored = add_to_store(build_submission(full_run, data=str(dataset)), store).location
    output = curate("withdraw", out, "--group", "Patient 3", "--runs", tmp_path / "runs", "--stores", store)
    assert "not reached" in output and Path(stored).name in output
    assert not scan_store(store)[0] and not [path for path in store.rglob("*") if path.is_file()]
    # The full run must not bring the patient back into the store.
    assert "has withdrawn" in refused(add_to_store, build_submission(full_run, data=str(dataset)), store)
    patient = curate("id", "Patient 3", out).split()[-1]
    assert patient == load_pseudonyms(out).group("Patient 3")
    run_files = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    run_questions = pd.read_parquet(run.folder / "questions.parquet")
    assert (
        len(run_questions)
        and not {"caption", "ai_question", "ai_options"} & set(run_questions)
        and patient not in set(run_questions["group"])
    )
    assert not any(patient.encode() in data or b"seen in" in data for data in run_files.values())
    reduced_run = load_run(run.folder)
    assert (
        set(reduced_run.answers["question_id"]) == set(run_questions["question_id"])
        and "not withdrawn" in reduced_run.result.benchmark.selection
    )
    images = {path.stem for path in (tmp_path / "copy" / "images").iterdir()}
    withdrawn_ids = images - {path.stem for path in (out / "images").iterdir()}
    shutil.rmtree(out)
    # Restore the set from a backup that still contains the patient.
    shutil.copytree(tmp_path / "copy", out)
    assert any("have withdrawn" in line for line in build(family, name="my-set", source=out, out=dataset).lines)
    assert patient not in loaded_groups(dataset)
    add_to_store(build_submission(run.folder, data=str(dataset)), store)
    assert [r.result.scores for r in scan_store(store)[0]] == [reduced_run.result.scores]
    assert patient.encode() not in b"".join(path.read_bytes() for path in store.rglob("*.parquet"))
    shutil.rmtree(out)
    curate(command)
    assert not withdrawn_ids & {path.stem for path in (out / "images").iterdir()}
    build(family, name="my-set", source=out, out=tmp_path / "e")
    for folder in (dataset, tmp_path / "e"):
        rows = open_repository(folder).questions("test")
        assert (
            len(rows)
            and patient not in set(rows["group"])
            and not any(name in str(set(rows["image_id"])) for name in withdrawn_ids)
        )


def test_other_folders_are_refused(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    assert "not a set" in refused(withdraw_group, tmp_path, "x", {"x"})
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    # In a set that was made from a keyed folder, that folder's ids are names.
    assert group_ids(tmp_path, "g-1") == {"g-1"}
    keyed_id = load_pseudonyms(tmp_path).group("g-1")
    assert group_ids(tmp_path, "g-1") == {"g-1", keyed_id}


def test_a_patient_leaves_a_gmai_set_and_other_questions_stay(tmp_path):
    """Pictures are deleted immediately, and the next run stores nothing of the patient again."""
    path = write_all(tmp_path, only={"nifti", "coco"})
    out = tmp_path / "ward"
    first_run = pipeline.run_pipeline(path, out, search_text=False)
    group = first_run.written[0].case.item.patient
    withdrawn_pictures = {w.case.item.picture for w in first_run.written if w.case.item.patient == group}
    # COCO states the patients' ids; for NIfTI only the keyed id is known.
    patient_names = [
        p for p in (f"c{k}" for k in range(8)) if keyed_patient_id("", p, load_pseudonyms(out / "dataset")) == group
    ]
    assert "removed" in curate("withdraw", out, "--group", *(patient_names or [group]))
    assert not withdrawn_pictures & {p.stem for p in (out / "private" / "pictures").iterdir()}
    assert group not in (out / "private" / "journal.jsonl").read_text()
    second_run = pipeline.run_pipeline(path, out, search_text=False)
    assert not withdrawn_pictures & {p.stem for p in (out / "private" / "pictures").iterdir()}
    assert {w.case.item.patient for w in second_run.written} == {w.case.item.patient for w in first_run.written} - {
        group
    }
    original_questions = {w.case.case: (w.question, w.choice, w.split, w.index) for w in first_run.written}
    kept_questions = [w for w in second_run.written if w.case.case in original_questions]
    # Two questions may change, since the patient's labels are gone from the pools of options.
    assert len(kept_questions) >= sum(w.case.item.patient != group for w in first_run.written) - 2
    assert all((w.question, w.choice, w.split, w.index) == original_questions[w.case.case] for w in kept_questions)
    # The numbers of removed questions are not given to others.
    assert {w.index for w in second_run.written}.isdisjoint(
        w.index for w in first_run.written if w not in kept_questions and w.case.item.patient == group
    )
    drawn_cases = {case["case"] for case in json.loads((out / "private" / "questions.json").read_text())["cases"]}
    assert not any(w.case.case in drawn_cases for w in first_run.written if w.case.item.patient == group)
    assert any(skip["reason"] == "its patient has withdrawn" for skip in second_run.funnel["skipped"])
    assert group not in "".join(f.read_text() for f in (out / "tsv").iterdir())
    assert "0 patients match 'nobody'" in refused(curate, "withdraw", out, "--group", "nobody")
