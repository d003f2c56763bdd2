"""Test that labels of every format are written unchanged, without what identifies a patient."""

import json
import random
from dataclasses import replace

import nibabel
import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from curation.deidentify.image_folder import deidentify_folder
from curation.deidentify.image_labels import load_image_labels
from curation.deidentify.patient_table import PatientTable
from curation.deidentify.review_texts import decide_on_image, pending_images
from curation.gmai.sources import read_sources
from curation.images.file_names import load_file_names
from curation.readers.registry import list_units
from tests.curation.gmai.phantoms import write_all
from tests.helpers import refused
from tests.planting import found_below, planted

DATASET_NAMES = {"coco": "coco-ct", "voc": "voc-us", "yolo": "yolo-us", "masks": "masks-mr", "nifti": "nifti-ct"}


def targets(base, entry):
    """Read the dataset of an entry of sources.yaml: key -> picture with its targets."""
    (base / "read.yaml").write_text(json.dumps({"datasets": [entry | {"min_area": 0}]}))
    sources = read_sources(base / "read.yaml")
    units, skips = list_units(sources.datasets[0])
    pictures = {}
    for unit in units:
        try:
            for picture in unit.load(unit):
                pictures[picture.key] = picture
        except Exception as reason:  # odd.png and the like, which are left out before and after
            skips.append((unit.key, str(reason)))
    return pictures


@pytest.mark.parametrize("reader", list(DATASET_NAMES))
def test_labels_are_unchanged_and_without_patient_data(tmp_path, reader):
    person = planted(random.Random(3))
    write_all(tmp_path, only={reader})
    document = yaml.safe_load((tmp_path / "sources.yaml").read_text())
    (entry,) = document["datasets"]
    base = tmp_path / reader
    # Plant the patient wherever the format has room: free fields, headers, file names.
    file_prefix = person.name.replace("^", "_")
    if reader == "coco":
        coco = json.loads((base / "instances.json").read_text())
        coco["info"] = {"description": person.everything}
        for image in coco["images"]:
            image["comment"] = person.everything
        for annotation in coco["annotations"]:
            annotation["by"] = person.name
        (base / "instances.json").write_text(json.dumps(coco))
        labels = base / "instances.json"
    if reader == "voc":
        for page in base.glob("*.xml"):
            page.write_text(page.read_text().replace("<filename>", f"<owner>{person.name}</owner><filename>"))
        labels = base
    if reader == "nifti":
        for path in base.rglob("*.nii.gz"):
            image = nibabel.load(path)
            image.header["descrip"] = person.name.encode()[:79]
            image.header.extensions.append(nibabel.nifti1.Nifti1Extension(6, person.everything.encode()))
            nibabel.save(image, path)
    if reader in ("yolo", "masks", "nifti"):
        labels = base / {"masks": "masks"}.get(reader, "labels")
    if reader in ("yolo", "masks"):  # called like their patient
        for path in [*(base / "images").iterdir(), *labels.iterdir()]:
            if path.name != "classes.txt":
                path.rename(path.with_name(f"{file_prefix}-{path.name}"))
    images = base if reader == "voc" else base / "images"
    out = tmp_path / "clean"
    report = deidentify_folder(images, out, search_text=False, labels=[load_image_labels(labels, images)])
    original_pictures = targets(tmp_path, entry)
    overrides = {"path": str(out / "images"), "annotations": str(out / "labels")}
    if reader != "nifti":
        # Labels of every other format are written as COCO.
        overrides |= {"reader": "coco", "annotations": str(out / "labels" / "1.json"), "classes": {}}
    deidentified_pictures = targets(tmp_path, entry | overrides)
    original_names = load_file_names(out)
    # Masks have numbers for classes until sources.yaml names them.
    class_names = (
        {f"class {value}": name for value, name in entry.get("classes", {}).items()} if reader == "masks" else {}
    )
    assert len(deidentified_pictures) == len(original_pictures) >= 5 and sum(report["labels"].values()) >= 4
    for key, picture in deidentified_pictures.items():
        name, _, slice_index = key.partition(" ")
        original = original_pictures[f"{original_names[name]} {slice_index}".strip()]
        assert (picture.pixels == original.pixels).all()
        picture.targets = [
            replace(target, label=class_names.get(target.label, target.label)) for target in picture.targets
        ]
        # COCO does not keep the order of the original targets.
        sorted_targets = [
            sorted(side.targets, key=lambda target: (target.label, target.box)) for side in (picture, original)
        ]
        for target, original_target in zip(*sorted_targets, strict=True):
            assert target.label == original_target.label and (target.mask is None) == (original_target.mask is None)
            assert (
                target.box == pytest.approx(original_target.box)
                if target.mask is None
                else (target.mask == original_target.mask).all()
            )
    assert found_below(out, [person]) == []


def test_dropping_an_image_deletes_its_labels(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "curation.deidentify.image_folder.find_text", lambda image: [(0, 0, 9, 9)] * (image.getpixel((0, 0))[0] == 0)
    )
    for folder in ("raw", "txt"):
        (tmp_path / folder).mkdir()
    for number in range(4):
        Image.new("L", (32, 24), 60 * number).save(tmp_path / "raw" / f"{number}.png")
        (tmp_path / "txt" / f"{number}.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    (tmp_path / "raw" / "3.png").unlink()
    out = tmp_path / "clean"
    labels = load_image_labels(tmp_path / "txt", tmp_path / "raw")
    report = deidentify_folder(tmp_path / "raw", out, labels=[labels])
    # Label 3 has no image, and the image 0 has text in it.
    assert report["labels"] == {"yolo": 3} and report["labels_left_out"] == {"its image is missing": 1}
    assert not report["not_taken"]
    (pending,) = pending_images(out)
    decide_on_image(out, pending, "drop", "Ada")
    coco = json.loads((out / "labels" / "1.json").read_text())
    labelled_names = {image["file_name"] for image in coco["images"]}
    assert (
        labelled_names == {path.name for path in (out / "images").iterdir()}
        and len(labelled_names) == len(coco["annotations"]) == 2
    )


def test_patients_of_two_sets_are_matched_only_under_one_key(tmp_path):
    """Label files do not name a patient, so every reader takes patients from the images' table."""
    entries = {}
    for name in ("one", "other"):
        path = write_all(tmp_path / name, only={"coco"})
        images = tmp_path / name / "coco" / "images"
        files = sorted(path.name for path in images.iterdir())
        table = pd.DataFrame({"image": files, "group": [f"MRN{at // 2}" for at in range(len(files))]})
        patient_table = PatientTable(table, files, tmp_path / "t.csv")
        labels = load_image_labels(path.parent / "coco" / "instances.json", images)
        deidentify_folder(images, tmp_path / f"clean-{name}", patient_table, search_text=False, labels=[labels])
        entries[name] = {
            "name": name, "reader": "coco", "path": f"clean-{name}/images", "annotations": f"clean-{name}/labels/1.json", "modality": "CT",
        }  # fmt: skip
    (tmp_path / "s.yaml").write_text(json.dumps({"datasets": list(entries.values())}))
    # One patient has a different pseudonym under each key.
    assert "different `deidentify` keys" in refused(read_sources, tmp_path / "s.yaml")
    (tmp_path / "s.yaml").write_text(json.dumps({"datasets": [entries["one"]]}))
    (dataset,) = read_sources(tmp_path / "s.yaml").datasets
    pictures = [picture for unit in list_units(dataset)[0] for picture in unit.load(unit)]
    assert len(pictures) == 8 and all(picture.patient.startswith("g-") for picture in pictures)
    assert len({picture.patient for picture in pictures}) == 4


def test_class_names_lose_patient_names_and_stay_distinct(tmp_path):
    """Names from the table are removed, except `Lung`, which is a name and an organ."""
    classes = ["lesion Vögtlander", "Lung", "QUIGLEY lesion", "Vögtlander", "Quigley"]
    for number in range(5):
        (tmp_path / "raw").mkdir(exist_ok=True)
        Image.fromarray(np.full((32, 32), 40 * number, np.uint8)).save(tmp_path / "raw" / f"{number}.png")
        (tmp_path / "txt").mkdir(exist_ok=True)
        (tmp_path / "txt" / f"{number}.txt").write_text(f"{number} 0.5 0.5 0.3 0.3")
    (tmp_path / "txt" / "classes.txt").write_text("\n".join(classes))
    table = pd.DataFrame(
        {"image": [f"{number}.png" for number in range(3)], "who": ["Vögtlander^Anna", "Quigley^Lung", ""]}
    )
    patient_table = PatientTable(table, [f"{number}.png" for number in range(5)], tmp_path / "t.csv", names=["who"])
    labels = load_image_labels(tmp_path / "txt", tmp_path / "raw")
    deidentify_folder(tmp_path / "raw", tmp_path / "out", patient_table, search_text=False, labels=[labels])
    written = json.loads((tmp_path / "out" / "labels" / "1.json").read_text())
    names = [category["name"] for category in written["categories"]]
    # Two classes would both be "[removed]"; the second gets a number.
    assert names == ["lesion [removed]", "Lung", "[removed] lesion", "[removed]", "[removed] 4"]
    assert len(written["annotations"]) == 5 and labels.classes == set(names)
