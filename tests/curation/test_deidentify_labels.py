"""Labels of every format go with their images under the images' ids, say the same as before, and nothing of the patient."""

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

NAMES = {"coco": "coco-ct", "voc": "voc-us", "yolo": "yolo-us", "masks": "masks-mr", "nifti": "nifti-ct"}


def targets(base, entry):
    """(picture, slice) -> its targets, of a dataset with this entry of sources.yaml."""
    (base / "read.yaml").write_text(json.dumps({"datasets": [entry | {"min_area": 0}]}))
    sources = read_sources(base / "read.yaml")
    units, skips = list_units(sources.datasets[0])
    found = {}
    for unit in units:
        try:
            for picture in unit.load(unit):
                found[picture.key] = picture
        except Exception as reason:  # odd.png and the like, which are left out before and after
            skips.append((unit.key, str(reason)))
    return found


@pytest.mark.parametrize("reader", list(NAMES))
def test_labels_say_the_same_of_the_same_image_and_nothing_of_the_patient(tmp_path, reader):
    person = planted(random.Random(3))
    write_all(tmp_path, only={reader})
    document = yaml.safe_load((tmp_path / "sources.yaml").read_text())
    (entry,) = document["datasets"]
    base = tmp_path / reader
    named = person.name.replace("^", "_")
    if reader == "coco":
        coco = json.loads((base / "instances.json").read_text())
        coco["info"] = {"description": person.everything}
        for image in coco["images"]:
            image["comment"] = person.everything
        for image in coco["annotations"]:
            image["by"] = person.name
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
                path.rename(path.with_name(f"{named}-{path.name}"))
    images = base if reader == "voc" else base / "images"
    out = tmp_path / "clean"
    report = deidentify_folder(images, out, search_text=False, labels=[load_image_labels(labels, images)])
    before = targets(tmp_path, entry)
    where = {"path": str(out / "images"), "annotations": str(out / "labels")}
    if reader != "nifti":
        where |= {"reader": "coco", "annotations": str(out / "labels" / "1.json"), "classes": {}}
    after = targets(tmp_path, entry | where)
    original = load_file_names(out)
    unnamed = {f"class {value}": name for value, name in entry.get("classes", {}).items()} if reader == "masks" else {}
    assert len(after) == len(before) >= 5 and sum(report["labels"].values()) >= 4
    for key, picture in after.items():
        name, _, at = key.partition(" ")
        old = before[f"{original[name]} {at}".strip()]
        assert (picture.pixels == old.pixels).all()
        picture.targets = [replace(each, label=unnamed.get(each.label, each.label)) for each in picture.targets]
        in_order = [sorted(each.targets, key=lambda t: (t.label, t.box)) for each in (picture, old)]
        for one, other in zip(*in_order, strict=True):
            assert one.label == other.label and (one.mask is None) == (other.mask is None)
            assert one.box == pytest.approx(other.box) if one.mask is None else (one.mask == other.mask).all()
    assert found_below(out, [person]) == []


def test_labels_of_a_dropped_image_go_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "curation.deidentify.image_folder.find_text", lambda image: [(0, 0, 9, 9)] * (image.getpixel((0, 0))[0] == 0)
    )
    for folder in ("raw", "txt"):
        (tmp_path / folder).mkdir()
    for at in range(4):
        Image.new("L", (32, 24), 60 * at).save(tmp_path / "raw" / f"{at}.png")
        (tmp_path / "txt" / f"{at}.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    (tmp_path / "raw" / "3.png").unlink()
    out = tmp_path / "clean"
    labels = load_image_labels(tmp_path / "txt", tmp_path / "raw")
    report = deidentify_folder(tmp_path / "raw", out, labels=[labels])
    assert report["labels"] == {"yolo": 3} and report["labels_left_out"] == {"its image is missing": 1}
    assert not report["not_taken"]
    (waiting,) = pending_images(out)
    decide_on_image(out, waiting, "drop", "Ada")
    coco = json.loads((out / "labels" / "1.json").read_text())
    named = {image["file_name"] for image in coco["images"]}
    assert named == {path.name for path in (out / "images").iterdir()} and len(named) == len(coco["annotations"]) == 2


def test_patients_of_two_deidentified_sets_are_one_where_one_key_made_their_ids(tmp_path):
    """The labels name no patient: the table beside the images does, for every reader."""
    entries = {}
    for name in ("one", "other"):
        path = write_all(tmp_path / name, only={"coco"})
        images = tmp_path / name / "coco" / "images"
        files = sorted(each.name for each in images.iterdir())
        table = pd.DataFrame({"image": files, "group": [f"MRN{at // 2}" for at in range(len(files))]})
        known = PatientTable(table, files, tmp_path / "t.csv")
        labels = load_image_labels(path.parent / "coco" / "instances.json", images)
        deidentify_folder(images, tmp_path / f"clean-{name}", known, search_text=False, labels=[labels])
        entries[name] = {
            "name": name, "reader": "coco", "path": f"clean-{name}/images", "annotations": f"clean-{name}/labels/1.json", "modality": "CT",
        }  # fmt: skip
    (tmp_path / "s.yaml").write_text(json.dumps({"datasets": list(entries.values())}))
    assert "different `deidentify` keys" in refused(read_sources, tmp_path / "s.yaml")
    (tmp_path / "s.yaml").write_text(json.dumps({"datasets": [entries["one"]]}))
    (dataset,) = read_sources(tmp_path / "s.yaml").datasets
    pictures = [picture for unit in list_units(dataset)[0] for picture in unit.load(unit)]
    assert len(pictures) == 8 and all(picture.patient.startswith("g-") for picture in pictures)
    assert len({picture.patient for picture in pictures}) == 4


def test_names_of_classes_lose_the_names_of_patients_and_stay_apart(tmp_path):
    """Known from a table; `lung` stays a lung, though a patient is called so."""
    classes = ["lesion Vögtlander", "Lung", "QUIGLEY lesion", "Vögtlander", "Quigley"]
    for at in range(5):
        (tmp_path / "raw").mkdir(exist_ok=True)
        Image.fromarray(np.full((32, 32), 40 * at, np.uint8)).save(tmp_path / "raw" / f"{at}.png")
        (tmp_path / "txt").mkdir(exist_ok=True)
        (tmp_path / "txt" / f"{at}.txt").write_text(f"{at} 0.5 0.5 0.3 0.3")
    (tmp_path / "txt" / "classes.txt").write_text("\n".join(classes))
    table = pd.DataFrame({"image": [f"{at}.png" for at in range(3)], "who": ["Vögtlander^Anna", "Quigley^Lung", ""]})
    known = PatientTable(table, [f"{at}.png" for at in range(5)], tmp_path / "t.csv", names=["who"])
    labels = load_image_labels(tmp_path / "txt", tmp_path / "raw")
    deidentify_folder(tmp_path / "raw", tmp_path / "out", known, search_text=False, labels=[labels])
    written = json.loads((tmp_path / "out" / "labels" / "1.json").read_text())
    names = [each["name"] for each in written["categories"]]
    assert names == ["lesion [removed]", "Lung", "[removed] lesion", "[removed]", "[removed] 4"]
    assert len(written["annotations"]) == 5 and labels.classes == set(names)
