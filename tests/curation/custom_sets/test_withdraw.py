"""A patient who withdraws is in no byte of the set any more; everybody else keeps ids, images and answers."""

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
from curation.gmai.items import keyed_patient_id
from curation.review.review_log import CHECK_FIELDS, SCORE_FIELDS, ReviewLog
from curation.withdraw import withdraw_group
from curation.writing.question_writing import DRAFTS_FILE
from dataset_builders.build import build
from dataset_builders.contents.pseudonyms import load_pseudonyms
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from eval_harness.store.scan import scan_store
from eval_harness.store.submit import add_to_store, build_submission
from medprobe import evaluate, load_run
from tests.curation.commands import curate
from tests.curation.gmai.phantoms import write_all
from tests.helpers import write_lines


def reviewed_pairs(names, questions):
    """A questions folder of pairs of images, every third rejected, all with captions that name the patient."""
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
        for field, value in (
            (SCORE_FIELDS[0], 9),
            (SCORE_FIELDS[1], 9 if k % 3 else 4),
            *((check, "yes") for check in CHECK_FIELDS),
        ):
            log.change("Ada", pair, field, value)


@pytest.fixture(params=["probmed", "halt-medvqa", "mediconfusion"])
def a_set(request, tmp_path):
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
        row["absent"] = {"spur": "aneurysm", "aneurysm": "spur"}.get(str(row["findings"]), "")
    pd.DataFrame(rows).to_csv(tmp_path / "table.csv", index=False)
    table, out = tmp_path / "table.csv", tmp_path / "my-set"
    where = f"--images {tmp_path / 'images'} --out {out} --table {table}"
    if request.param == "mediconfusion":
        reviewed_pairs([row["image"] for row in rows], tmp_path / "questions")
        command = f"export my-set --questions {tmp_path / 'questions'} {where}"
    elif request.param == "probmed":
        command = f"probe {table} --images {tmp_path / 'images'} --out {out}"
    else:
        fakes = [{"question": f"Which moon is number {n}?", "options": ["Io", "Europa"]} for n in range(24)]
        write_lines(tmp_path / "fakes.jsonl", fakes)
        command = f"hallucinate {table} {where} --fake-questions {tmp_path / 'fakes.jsonl'} --accept-text-alone"
    curate(command)
    return request.param, out, command


@pytest.mark.parametrize("by", ["name", "id"])
def test_one_patient_less_and_no_other_changed(a_set, by, tmp_path):
    family, out, _ = a_set
    build(family, name="my-set", source=out, out=tmp_path / "before")
    before = open_repository(tmp_path / "before").questions("test").set_index("question_id")
    notes = json.loads((out / "manifest.json").read_text()).get("notes")
    patient = load_pseudonyms(out).group("Patient 3")
    said = curate("withdraw", out, "--group", "Patient 3" if by == "name" else patient)
    assert "taken out: 2 images" in said and f"medprobe build {family} --as my-set" in said
    build(family, name="my-set", source=out, out=tmp_path / "after")
    after = open_repository(tmp_path / "after").questions("test").set_index("question_id")
    assert patient in set(before["group"]) and patient not in set(after["group"])
    images = {path.name for path in (out / "images").iterdir()}
    assert len(images) == len(json.loads((out / "image_dict.json").read_text()))
    gone = set(before[before["group"] == patient]["image_id"])
    everything = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert (
        not any(image.removesuffix(".png").encode() in everything for image in gone)
        and patient.encode() not in everything
    )
    assert family != "mediconfusion" or all(f"seen in Patient 3 {n}".encode() not in everything for n in (6, 7))
    left = before[before["group"] != patient]
    assert set(after.index) <= set(left.index) and len(after) >= 0.8 * len(
        left
    )  # a question swapped to another's image goes with its own
    assert after["answer"].map(tuple).equals(left.loc[after.index, "answer"].map(tuple))
    assert after["image_id"].equals(left.loc[after.index, "image_id"])
    assert family != "probmed" or set(after.index) == set(left.index)
    manifest = json.loads((out / "manifest.json").read_text())
    if family == "mediconfusion":
        assert manifest["pairs"] == len(json.loads((out / "dataset.json").read_text()))
    else:  # what is measured on the set is measured anew
        assert len(manifest["notes"]) == len(notes) and all(
            note in (tmp_path / "after" / "README.md").read_text() for note in manifest["notes"]
        )
        assert np.sum(
            list(manifest["questions"].values()) if family == "halt-medvqa" else manifest["questions"]
        ) == len(after)
    if family == "halt-medvqa":
        gives_up = [
            row["options"][row["answer"][0]] in (NONE_OPTION, UNKNOWN_OPTION) for row in after.to_dict("records")
        ]
        assert f"Always giving up scores {100 * np.mean(gives_up):.1f} %" in manifest["notes"][0]
    if family == "probmed":
        rows = json.loads((out / "probmed.json").read_text())
        assert manifest["text_only_majority"] == text_only_accuracy(rows)
    with pytest.raises(BadInput, match="no image is of that group"):
        withdraw_group(out, "Patient 3")


def loaded_groups(place):
    """Groups as `load_dataset` gives them, with the cache that it had before."""
    return set(load_dataset(str(place), split="test", cache_dir=str(place.with_name("cache")))["group"])


def test_nobody_who_withdrew_comes_back_and_runs_lose_them(a_set, tmp_path):
    """By the same command, from a copy of the set as it was, or in a run: the list beside the key is obeyed everywhere."""
    family, out, command = a_set
    shutil.copytree(out, tmp_path / "copy")
    place = tmp_path / "data" / "my-set"
    build(family, name="my-set", source=out, out=place)
    assert load_pseudonyms(out).group("Patient 3") in loaded_groups(place)
    run = evaluate("my-set", "baseline:chance", data=tmp_path / "data", out=tmp_path / "runs" / "chance")
    store, whole = tmp_path / "store", tmp_path / "whole"
    shutil.copytree(run.folder, whole)
    stored = add_to_store(build_submission(whole, data=str(place)), store).location
    said = curate("withdraw", out, "--group", "Patient 3", "--runs", tmp_path / "runs", "--stores", store)
    assert "not reached" in said and Path(stored).name in said
    assert not scan_store(store)[0] and not [path for path in store.rglob("*") if path.is_file()]
    with pytest.raises(BadInput, match="has withdrawn"):
        add_to_store(build_submission(whole, data=str(place)), store)
    patient = curate("id", "Patient 3", out).split()[-1]
    assert patient == load_pseudonyms(out).group("Patient 3")
    held = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    frame = pd.read_parquet(run.folder / "questions.parquet")
    assert (
        len(frame) and not {"caption", "ai_question", "ai_options"} & set(frame) and patient not in set(frame["group"])
    )
    assert not any(patient.encode() in data or b"seen in" in data for data in held.values())
    after = load_run(run.folder)
    assert (
        set(after.answers["question_id"]) == set(frame["question_id"])
        and "not withdrawn" in after.result.benchmark.selection
    )
    images = {path.stem for path in (tmp_path / "copy" / "images").iterdir()}
    theirs = images - {path.stem for path in (out / "images").iterdir()}
    shutil.rmtree(out)
    shutil.copytree(tmp_path / "copy", out)
    assert any("have withdrawn" in line for line in build(family, name="my-set", source=out, out=place).lines)
    assert patient not in loaded_groups(place)
    add_to_store(build_submission(run.folder, data=str(place)), store)
    assert [r.result.scores for r in scan_store(store)[0]] == [after.result.scores]
    assert patient.encode() not in b"".join(path.read_bytes() for path in store.rglob("*.parquet"))
    shutil.rmtree(out)
    curate(command)
    assert not theirs & {path.stem for path in (out / "images").iterdir()}
    build(family, name="my-set", source=out, out=tmp_path / "e")
    for folder in (place, tmp_path / "e"):
        rows = open_repository(folder).questions("test")
        assert (
            len(rows)
            and patient not in set(rows["group"])
            and not any(name in str(set(rows["image_id"])) for name in theirs)
        )


def test_what_is_no_set_of_ours_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(BadInput, match="is not a set"):
        withdraw_group(tmp_path, "x")
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_patient_leaves_a_gmai_set_and_every_other_question_stays(tmp_path):
    """Their pictures are gone at once, also from the work folder; the next run reads the source again and stores nothing of theirs."""
    path = write_all(tmp_path, only={"nifti", "coco"})
    out = tmp_path / "ward"
    first = pipeline.run_pipeline(path, out, search_text=False)
    group = first.written[0].case.item.patient
    theirs = {w.case.item.picture for w in first.written if w.case.item.patient == group}
    calls = [
        p for p in (f"c{k}" for k in range(8)) if keyed_patient_id("", p, load_pseudonyms(out / "dataset")) == group
    ]
    assert "taken out" in curate("withdraw", out, "--group", *(calls or [group]))
    assert not theirs & {p.stem for p in (out / "private" / "pictures").iterdir()}
    assert group not in (out / "private" / "journal.jsonl").read_text()
    second = pipeline.run_pipeline(path, out, search_text=False)
    assert not theirs & {p.stem for p in (out / "private" / "pictures").iterdir()}
    assert {w.case.item.patient for w in second.written} == {w.case.item.patient for w in first.written} - {group}
    before = {w.case.case: (w.question, w.choice, w.split, w.index) for w in first.written}
    kept = [w for w in second.written if w.case.case in before]
    assert len(kept) >= sum(w.case.item.patient != group for w in first.written) - 2
    assert all((w.question, w.choice, w.split, w.index) == before[w.case.case] for w in kept)
    assert {w.index for w in second.written}.isdisjoint(
        w.index for w in first.written if w not in kept and w.case.item.patient == group
    )
    drawn = {each["case"] for each in json.loads((out / "private" / "questions.json").read_text())["cases"]}
    assert not any(w.case.case in drawn for w in first.written if w.case.item.patient == group)
    assert any(each["reason"] == "its patient has withdrawn" for each in second.funnel["skipped"])
    assert group not in "".join(f.read_text() for f in (out / "tsv").iterdir())
    with pytest.raises(BadInput, match="0 patients match 'nobody'"):
        curate("withdraw", out, "--group", "nobody")
