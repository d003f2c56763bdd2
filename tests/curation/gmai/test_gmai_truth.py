"""No wrong key in generated sets of several formats that share patients: every right option is on its picture (or in its box), no wrong
one is or may be, a patient is on one side of the split however a spreadsheet writes the number."""

import json
import random
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from curation.gmai import pipeline
from curation.gmai.items import keyed_patient_id
from curation.gmai.label_table import read_label_table
from dataset_builders.contents.pseudonyms import load_pseudonyms
from dataset_builders.errors import BadInput
from dataset_builders.terms import parse_image_context
from tests.curation.gmai.phantoms import save
from tests.helpers import refused
from tests.sampling import few

FINDINGS = (
    "pneumonia",
    "Effusion",
    "atelectasis",
    "cardiomegaly",
    "PTX",
    "pulmonary edema",
    "Nodule",
    "Mass",
    "rib fracture",
)
ORGANS = ("liver", "spleen", "kidney_left", "stomach", "pancreas", "gallbladder")
CELLS = {"1": True, "1.0": True, "0": False, "0.0": False, "-1": None, "": None}
PLACES = {
    "dx": parse_image_context(["chest"], "X-ray"),
    "wide": parse_image_context(["chest"], "X-ray"),
    "ct": parse_image_context(["abdomen"], "CT"),
}
WRITTEN = (str, lambda number: f"000{number}", lambda number: f"{number}.0", lambda number: f" {number}")


def generated(base, rng):
    """(sources.yaml's document, number in a picture's first pixels -> its dataset, labels or boxes, labels that may be there, patient)"""
    people = [str(rng.randrange(10, 10**6)) for _ in range(30)]
    truth, documents = {}, defaultdict(list)

    def add(dataset, labels, unsure=()):
        number, person = len(truth), rng.choice(people)
        coarse = Image.fromarray(np.frombuffer(rng.randbytes(36), np.uint8).reshape(6, 6))
        pixels = np.asarray(coarse.resize((64, 64)))
        pixels = np.repeat(pixels[..., None], 3, 2).copy()
        pixels[0, :2, 0] = number % 256, number // 256
        save(base / dataset / f"{number}.png", pixels)
        truth[number] = dataset, labels, set(unsure), person
        return {"image": f"{number}.png", "mrn": rng.choice(WRITTEN)(person)}

    for _ in range(50):
        labels = rng.sample(FINDINGS, rng.choice((1, 1, 2)))
        documents["dx"].append(add("dx", labels) | {"label": "|".join(labels)})
        cells = {name: rng.choice(list(CELLS)) for name in FINDINGS[:7]}
        shown = [name for name, cell in cells.items() if CELLS[cell]]
        documents["wide"].append(add("wide", shown, [n for n, cell in cells.items() if CELLS[cell] is None]) | cells)
        boxes = [(name, [rng.randrange(36), rng.randrange(36), 12 + rng.randrange(16), 12 + rng.randrange(16)])
                 for name in rng.sample(ORGANS, rng.randrange(1, 4))]  # fmt: skip
        row = add("ct", boxes)
        number = len(documents["images"])
        documents["images"].append({"id": number, "file_name": row["image"], "patient_id": row["mrn"]})
        for name, box in boxes:
            documents["annotations"].append({"image_id": number, "category_id": ORGANS.index(name), "bbox": box})
    for name in ("dx", "wide"):
        pd.DataFrame(documents.pop(name)).to_csv(base / f"{name}.csv", index=False)
    (base / "ct.json").write_text(
        json.dumps(documents | {"categories": [{"id": k, "name": n} for k, n in enumerate(ORGANS)]})
    )
    chest = {"modality": "X-ray", "region": "chest", "columns": {"patient": "mrn"}}
    return {"near_duplicate": -1, "validation": 0.5, "per_answer": 12, "datasets": [
        {"name": "dx", "reader": "csv", "path": "dx", "annotations": "dx.csv", "exhaustive": rng.random() < 0.5} | chest,
        {"name": "wide", "reader": "wide", "path": "wide", "annotations": "wide.csv"} | chest
        | {"columns": {"patient": "mrn", "labels": list(FINDINGS[:7])}},
        {"name": "ct", "reader": "coco", "path": "ct", "annotations": "ct.json", "modality": "CT", "region": "abdomen"},
    ]}, truth, people  # fmt: skip


def meet(one, other):
    return all(max(one[k], other[k]) < min(one[k] + one[k + 2], other[k] + other[k + 2]) for k in (0, 1))


@pytest.mark.parametrize("seed", few(range(4), 2))
def test_no_key_is_wrong_and_no_patient_on_both_sides(tmp_path, seed):
    document, truth, people = generated(tmp_path, random.Random(seed))
    sources, out = tmp_path / "s.yaml", tmp_path / "set"
    sources.write_text(json.dumps(document))
    made = pipeline.run_pipeline(sources, out, accept_text_alone=True)
    table, splits, kinds = read_label_table(None), defaultdict(set), set()
    for each in made.written:
        with Image.open(out / "private" / "pictures" / f"{each.case.item.picture}.png") as image:
            low, high = np.asarray(image)[0, :2, 0]
        dataset, labels, unsure, person = truth[int(low) + 256 * int(high)]
        name_of = {raw: table.canonical_name(raw, PLACES[dataset]) for raw in (*FINDINGS, *ORGANS)}
        right = {each.choice.options[at] for at in each.choice.right}
        wrong = set(each.choice.options) - right
        splits[person].add(each.split)
        kinds.add((dataset, len(right) > 1))
        if dataset == "ct":
            box = each.case.item.box
            there = {name_of[raw] for raw, other in labels if meet(box, other)}
            elsewhere = {name_of[raw] for raw, _ in labels} - there
            assert right == {name_of[raw] for raw, other in labels if tuple(other) == tuple(box)} and not wrong & there
            assert not elsewhere or wrong & elsewhere  # else the mark would not be needed
        else:
            assert right == {name_of[raw] for raw in labels} and not wrong & {name_of[raw] for raw in unsure}
    exhaustive = document["datasets"][0]["exhaustive"]
    assert kinds == {("wide", False), ("wide", True), ("ct", False)} | (
        {("dx", False), ("dx", True)} if exhaustive else set()
    )
    assert all(len(sides) == 1 for sides in splits.values()) and {"validation", "test"} == set.union(*splits.values())
    ids = load_pseudonyms(out / "dataset")
    assert {each.case.item.patient for each in made.written} <= {keyed_patient_id("", person, ids) for person in people}
    for dataset in document["datasets"]:
        dataset["patients"] = dataset["name"]
    sources.write_text(json.dumps(document))
    assert "different registries" in refused(pipeline.run_pipeline, sources, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("seed", few(range(6), 3))
def test_pictures_that_are_labelled_twice_contradict_nothing(tmp_path, seed):
    """Files with the same pixels in two classes or two sets, of one patient or two, with and without the search for near-duplicates."""
    rng = random.Random(seed)
    labels = ("pneumonia", "atelectasis", "cardiomegaly", "pneumothorax")
    truth, datasets = defaultdict(set), []
    pixels = [
        np.asarray(Image.fromarray(np.frombuffer(rng.randbytes(36), np.uint8).reshape(6, 6)).resize((48, 48)))
        for _ in range(30)
    ]
    for name in ("a", "b"):
        rows = []
        for at in range(60):
            which, label = rng.randrange(30), rng.choice(labels)
            save(tmp_path / name / f"{at}.png", pixels[which])
            truth[pixels[which].tobytes()].add(label)
            rows.append({"image": f"{at}.png", "label": label, "mrn": f"p{rng.choice((which, at))}"})
        pd.DataFrame(rows).to_csv(tmp_path / f"{name}.csv", index=False)
        datasets.append({"name": name, "reader": "csv", "path": name, "annotations": f"{name}.csv", "columns": {"patient": "mrn"},
                         "modality": "X-ray", "region": "chest"})  # fmt: skip
    near = rng.choice((-1, 6))
    (tmp_path / "s.yaml").write_text(json.dumps({"datasets": datasets, "near_duplicate": near, "per_patient": None}))
    try:
        written = pipeline.run_pipeline(tmp_path / "s.yaml", tmp_path / "set", accept_text_alone=True).written
    except BadInput as nothing:  # every picture may be contradicted
        assert "no questions (" in str(nothing) and near == 6
        return
    for each in written:
        with Image.open(tmp_path / "set" / "private" / "pictures" / f"{each.case.item.picture}.png") as image:
            there = truth[np.asarray(image)[..., 0].tobytes()]
        right = {each.choice.options[at] for at in each.choice.right}
        assert len(right) == 1 and right <= there and not (set(each.choice.options) - right) & there
