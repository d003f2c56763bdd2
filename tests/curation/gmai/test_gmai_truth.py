"""Answer keys are correct in generated datasets of several formats that share patients, and
generated damage is refused in one line or skipped.

Every correct option is on its picture (or in its box), and no wrong option is or may be there. Each
patient is in one split, however a spreadsheet spells the id.
"""

import json
import os
import random
import re
from collections import defaultdict

import nibabel
import numpy as np
import pandas as pd
import pydicom
import pytest
from PIL import Image

from curation.gmai import pipeline
from curation.gmai.label_table import read_label_table
from curation.gmai.sources import keyed_patient_id, read_items, read_sources
from dataset_builders.contents.pseudonyms import load_pseudonyms
from dataset_builders.errors import BadInput
from dataset_builders.terms import parse_image_context
from tests.curation.gmai.phantoms import SOURCE_WRITERS, save_png, write_all
from tests.helpers import refused
from tests.sampling import few

RAW_FINDINGS = (
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
ORGAN_LABELS = ("liver", "spleen", "kidney_left", "stomach", "pancreas", "gallbladder")
CELL_MEANINGS = {"1": True, "1.0": True, "0": False, "0.0": False, "-1": None, "": None}
IMAGE_CONTEXTS = {
    "dx": parse_image_context(["chest"], "X-ray"),
    "wide": parse_image_context(["chest"], "X-ray"),
    "ct": parse_image_context(["abdomen"], "CT"),
}
PATIENT_ID_SPELLINGS = (
    str,
    lambda number: f"000{number}",
    lambda number: f"{number}.0",
    lambda number: f" {number}",
)


def generate_sources(base, rng):
    """Return (sources.yaml's content, truth, patients).

    The truth maps a number, which is stored in the first two pixels of each picture, to the
    picture's dataset, labels or boxes, uncertain labels, and patient.
    """
    people = [str(rng.randrange(10, 10**6)) for _ in range(30)]
    truth, documents = {}, defaultdict(list)

    def add(dataset, labels, unsure=()):
        number, person = len(truth), rng.choice(people)
        coarse = Image.fromarray(np.frombuffer(rng.randbytes(36), np.uint8).reshape(6, 6))
        pixels = np.asarray(coarse.resize((64, 64)))
        pixels = np.repeat(pixels[..., None], 3, 2).copy()
        # The number identifies the picture in the output, which contains no file names.
        pixels[0, :2, 0] = number % 256, number // 256
        save_png(base / dataset / f"{number}.png", pixels)
        truth[number] = dataset, labels, set(unsure), person
        return {"image": f"{number}.png", "mrn": rng.choice(PATIENT_ID_SPELLINGS)(person)}

    for _ in range(50):
        labels = rng.sample(RAW_FINDINGS, rng.choice((1, 1, 2)))
        documents["dx"].append(add("dx", labels) | {"label": "|".join(labels)})
        cells = {name: rng.choice(list(CELL_MEANINGS)) for name in RAW_FINDINGS[:7]}
        present_findings = [name for name, cell in cells.items() if CELL_MEANINGS[cell]]
        documents["wide"].append(
            add(
                "wide",
                present_findings,
                [n for n, cell in cells.items() if CELL_MEANINGS[cell] is None],
            )
            | cells
        )
        boxes = [(name, [rng.randrange(36), rng.randrange(36), 12 + rng.randrange(16), 12 + rng.randrange(16)])
                 for name in rng.sample(ORGAN_LABELS, rng.randrange(1, 4))]  # fmt: skip
        row = add("ct", boxes)
        number = len(documents["images"])
        documents["images"].append({"id": number, "file_name": row["image"], "patient_id": row["mrn"]})
        for name, box in boxes:
            documents["annotations"].append({"image_id": number, "category_id": ORGAN_LABELS.index(name), "bbox": box})
    for name in ("dx", "wide"):
        pd.DataFrame(documents.pop(name)).to_csv(base / f"{name}.csv", index=False)
    categories = [{"id": index, "name": name} for index, name in enumerate(ORGAN_LABELS)]
    (base / "ct.json").write_text(json.dumps(documents | {"categories": categories}))
    chest = {"modality": "X-ray", "region": "chest", "columns": {"patient": "mrn"}}
    return {"near_duplicate": -1, "validation": 0.5, "per_answer": 12, "datasets": [
        {"name": "dx", "reader": "csv", "path": "dx", "annotations": "dx.csv", "exhaustive": rng.random() < 0.5} | chest,
        {"name": "wide", "reader": "wide", "path": "wide", "annotations": "wide.csv"} | chest
        | {"columns": {"patient": "mrn", "labels": list(RAW_FINDINGS[:7])}},
        {"name": "ct", "reader": "coco", "path": "ct", "annotations": "ct.json", "modality": "CT", "region": "abdomen"},
    ]}, truth, people  # fmt: skip


def boxes_overlap(first_box, second_box):
    return all(
        max(first_box[axis], second_box[axis])
        < min(first_box[axis] + first_box[axis + 2], second_box[axis] + second_box[axis + 2])
        for axis in (0, 1)
    )


@pytest.mark.parametrize("seed", few(range(4), 2))
def test_answer_keys_are_correct_and_patients_are_in_one_split(tmp_path, seed):
    document, truth, people = generate_sources(tmp_path, random.Random(seed))
    sources, out = tmp_path / "s.yaml", tmp_path / "set"
    sources.write_text(json.dumps(document))
    result = pipeline.run_pipeline(sources, out, accept_text_alone=True)
    table, splits, kinds = read_label_table(None), defaultdict(set), set()
    for question in result.written:
        with Image.open(out / "private" / "pictures" / f"{question.case.item.picture}.png") as image:
            # The number that `generate_sources` stored.
            low, high = np.asarray(image)[0, :2, 0]
        dataset, labels, unsure, person = truth[int(low) + 256 * int(high)]
        canonical_names = {
            raw: table.canonical_name(raw, IMAGE_CONTEXTS[dataset]) for raw in (*RAW_FINDINGS, *ORGAN_LABELS)
        }
        right = {question.choice.options[position] for position in question.choice.right}
        wrong = set(question.choice.options) - right
        splits[person].add(question.split)
        kinds.add((dataset, len(right) > 1))
        if dataset == "ct":
            box = question.case.item.box
            overlapping = {canonical_names[raw] for raw, other_box in labels if boxes_overlap(box, other_box)}
            elsewhere = {canonical_names[raw] for raw, _ in labels} - overlapping
            assert (
                right == {canonical_names[raw] for raw, other_box in labels if tuple(other_box) == tuple(box)}
                and not wrong & overlapping
            )
            assert not elsewhere or wrong & elsewhere  # otherwise the mark would not be needed
        else:
            assert right == {canonical_names[raw] for raw in labels} and not wrong & {
                canonical_names[raw] for raw in unsure
            }
    exhaustive = document["datasets"][0]["exhaustive"]
    # A multi-label dataset that is not exhaustive gives no questions about whole images.
    assert kinds == {("wide", False), ("wide", True), ("ct", False)} | (
        {("dx", False), ("dx", True)} if exhaustive else set()
    )
    assert all(len(sides) == 1 for sides in splits.values()) and {
        "validation",
        "test",
    } == set.union(*splits.values())
    ids = load_pseudonyms(out / "dataset")
    assert {question.case.item.patient for question in result.written} <= {
        keyed_patient_id("", person, ids) for person in people
    }
    for dataset in document["datasets"]:
        # With separate registries, a patient of two datasets could be in both splits.
        dataset["patients"] = dataset["name"]
    sources.write_text(json.dumps(document))
    assert "different registries" in refused(pipeline.run_pipeline, sources, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("seed", few(range(6), 3))
def test_pictures_labelled_twice_never_contradict_the_key(tmp_path, seed):
    """Files with the same pixels are in two classes or datasets, of one or two patients.

    Near-duplicates are dropped with some seeds, and kept with others.
    """
    rng = random.Random(seed)
    labels = ("pneumonia", "atelectasis", "cardiomegaly", "pneumothorax")
    truth, datasets = defaultdict(set), []
    pixels = [
        np.asarray(Image.fromarray(np.frombuffer(rng.randbytes(36), np.uint8).reshape(6, 6)).resize((48, 48)))
        for _ in range(30)
    ]
    for name in ("a", "b"):
        rows = []
        for number in range(60):
            pixel_index, label = rng.randrange(30), rng.choice(labels)
            save_png(tmp_path / name / f"{number}.png", pixels[pixel_index])
            truth[pixels[pixel_index].tobytes()].add(label)
            rows.append(
                {
                    "image": f"{number}.png",
                    "label": label,
                    "mrn": f"p{rng.choice((pixel_index, number))}",
                }
            )
        pd.DataFrame(rows).to_csv(tmp_path / f"{name}.csv", index=False)
        datasets.append({"name": name, "reader": "csv", "path": name, "annotations": f"{name}.csv", "columns": {"patient": "mrn"},
                         "modality": "X-ray", "region": "chest"})  # fmt: skip
    near_duplicate_bits = rng.choice((-1, 6))
    (tmp_path / "s.yaml").write_text(
        json.dumps({"datasets": datasets, "near_duplicate": near_duplicate_bits, "per_patient": None})
    )
    try:
        written = pipeline.run_pipeline(tmp_path / "s.yaml", tmp_path / "set", accept_text_alone=True).written
    except BadInput as nothing:  # all pictures may be contradictory
        assert "no questions (" in str(nothing) and near_duplicate_bits == 6
        return
    for question in written:
        with Image.open(tmp_path / "set" / "private" / "pictures" / f"{question.case.item.picture}.png") as image:
            true_labels = truth[np.asarray(image)[..., 0].tobytes()]
        right = {question.choice.options[number] for number in question.choice.right}
        assert len(right) == 1 and right <= true_labels and not (set(question.choice.options) - right) & true_labels


JUNK_VALUES = (
    "", "nan", "NaN", "inf", "x", "-5", "1e999", "1e308", "é", "'", '"', "[1]", "[[1]]", "{}", "null", "true", '"12 cm"', '"../x"',
)  # fmt: skip


def damage(path, rng):
    """Damage one file of a source."""
    data = path.read_bytes()
    kind = rng.choice(["inside", "inside", "inside", "cut", "noise", "empty", "link", "gone", "folder", "pipe"])
    if kind == "inside":
        if path.suffix in (".json", ".csv", ".txt", ".xml"):
            # Replace words but keep separators, so that the file usually still parses.
            words = re.split(r"([,\s<>]+)", data.decode())
            for _ in range(rng.randint(1, 5)):
                words[rng.randrange(len(words))] = rng.choice(JUNK_VALUES)
            path.write_text("".join(words))
            return
        if path.name.endswith(".nii.gz"):
            shape = rng.choice([(5, 5, 3), (8, 8, 1), (8, 8, 4, 2), (1, 1, 1), (0, 4, 4)])
            values = np.full(shape, rng.choice([np.nan, np.inf, 0.5, -1, 7]), np.float32)
            nibabel.save(nibabel.Nifti1Image(values, np.diag([rng.choice([1, -3]), 1, 1, 1])), path)
        elif path.suffix == ".dcm":
            dataset = pydicom.dcmread(path)
            for element in rng.sample([candidate for candidate in dataset if candidate.VR != "SQ"], 4):
                odd_values = [b"", b"\0" * 10] if element.VR == "OW" else [None, "", "x", 0, -7, [1.0], [0.0, 0.0]]
                element._value = rng.choice(odd_values)
            try:
                dataset.save_as(path)
            except Exception:  # pydicom cannot write every value
                path.write_bytes(data[: rng.randrange(len(data))])
        else:
            Image.fromarray(np.random.default_rng(0).integers(0, 255, (7, 9, 4), dtype=np.uint8)).save(path)
    elif kind == "cut":
        path.write_bytes(data[: rng.randrange(len(data) + 1)])
    elif kind == "noise":
        corrupted = bytearray(data)
        for position in rng.sample(range(len(data)), min(len(data), 30)):
            corrupted[position] = rng.randrange(256)
        path.write_bytes(rng.choice([rng.randbytes(300), corrupted]))
    elif kind == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
        if kind == "link":
            # A path may name a patient, so no message may quote it.
            path.symlink_to("/MUSTERFRAU^ERIKA/nowhere")
        elif kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("reader", "seed"),
    few([(reader, seed) for seed in range(6) for reader in SOURCE_WRITERS], len(SOURCE_WRITERS)),
)
def test_damaged_files_are_skipped_or_refused_in_one_line(tmp_path, reader, seed):
    rng = random.Random(f"{reader} {seed}")
    write_all(tmp_path, only={reader})
    files = [path for path in sorted((tmp_path / reader).rglob("*")) if path.is_file()]
    marks = [path for path in files if path.suffix in (".json", ".csv", ".xml", ".txt")]
    chosen = {*rng.sample(files, min(3, len(files))), *(rng.sample(marks, 1) if marks else [])}
    for path in sorted(chosen):
        damage(path, rng)
    # a file name that is not UTF-8
    (tmp_path / reader / os.fsdecode(b"M\xfcller.png")).write_bytes(b"")
    try:
        items, skips, _ = read_items(read_sources(tmp_path / "sources.yaml"), tmp_path / "out" / "private")
    except BadInput as error:  # anything else fails the test
        assert "\n" not in str(error)
        return
    assert not any("MUSTERFRAU" in skip.reason for skip in skips)
    for item in items:
        assert item.box is None or np.isfinite(item.box).all()
        assert 0 < item.area <= 1.001
