"""No annotation comes to another image than its own, whatever the folders look like, and what has none is listed: for every reader, over
generated trees with names that recur, differ in case or Unicode form, hold blanks and dots, and are missing on either side."""

import json
import random
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from curation.gmai.sources import read_sources
from curation.images.pairing import AMBIGUOUS_NAME, IMAGE_MISSING, pair_names, split_path, strip_suffix
from curation.readers.pixels import Skipped
from curation.readers.registry import list_units
from tests.curation.gmai.phantoms import ct_slices
from tests.helpers import refused
from tests.sampling import few

FOLDERS = ["", "P1", "P5", "train", "val", "images", "P1/day 1", "Größe/Fälle", "scan", "x/images"]
NAMES = ["f5", "10", "1", "1_2", "Scan", "scan", "IMG 1", "müller", "0000", "case.1.2", "a-b", "liver", "f5 ", " 10"]
READERS = ["csv", "wide", "boxes", "coco", "voc", "yolo", "indexed", "class folders", "class names", "nifti", "dicom"]
WRITTEN = ["path", "backslash", "other form", "no suffix", "another suffix", "absolute", "bare"]
SIDE = 8
TABLES = ("csv", "wide", "boxes", "coco", "dicom")
"""Readers whose annotations name images with their suffix."""


@dataclass
class Tree:
    """Images by their path; `labels`: what each shows, an own label. `images`, `annotated`: what is there."""

    labels: dict[str, str]
    images: list[str]
    annotated: list[str]


def tree(rng, suffix, short):
    """A folder tree of 6 to 24 images; each image and each annotation may be missing. `short`: a path -> what annotations say of it; of
    images that they call alike none is missing, since nothing could tell that it is."""
    paths = []
    while len(paths) < rng.randint(6, 24):
        path = (
            f"{rng.choice(FOLDERS)}/{rng.choice(NAMES)}{suffix or rng.choice(['.png', '.PNG', '.jpg', '.tif'])}".lstrip(
                "/"
            )
        )
        if path not in paths:
            paths.append(path)
    missing = rng.choice([0, 0.1, 0.3])
    times = Counter(map(short, paths))
    images = [path for path in paths if rng.random() >= missing or times[short(path)] > 1]
    annotated = [path for path in paths if rng.random() >= missing]
    labels = {path: f"label{letters(at)}" for at, path in enumerate(paths)}
    return Tree(labels, images or paths[:1], annotated or paths[:1])


def shortened(reader, written):
    """How the annotations of a reader call images, written so: a path -> what is left of it."""

    def short(path):
        if reader not in TABLES or written in ("no suffix", "another suffix"):
            path = strip_suffix(path)
        path = path.replace(".PNG", ".png")  # the case of a suffix is no difference
        return path.rpartition("/")[2] if written == "bare" else path

    return short


def letters(number):
    return "abcdefghijklmnopqrstuvwxyz"[number]


def other_form(name):
    form = "NFD" if unicodedata.is_normalized("NFC", name) else "NFC"
    return unicodedata.normalize(form, name)


def name_of(path, written, root):
    """How an annotation calls its image."""
    return {
        "path": path,
        "backslash": "./" + path.replace("/", "\\"),
        "other form": other_form(path),
        "no suffix": strip_suffix(path),
        "another suffix": f"{strip_suffix(path)}.webp",
        "absolute": f"{root}/{path}",
        "bare": path.rpartition("/")[2],
    }[written]


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def write(base, reader, made, rng, written):
    """The tree on the disk, and its entry of sources.yaml. Every image of a class holds it everywhere."""
    root = base / "pictures"
    root.mkdir(parents=True)
    noise = np.random.default_rng(rng.randrange(2**32))
    for path in made.images:
        if reader == "nifti":
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            volume = noise.normal(size=(SIDE, SIDE, 3)).astype(np.float32)
            nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), root / path)
        elif reader == "dicom":
            made_at = root / path
            ct_slices(made_at.parent, np.zeros((1, SIDE, SIDE)), "P", f"{made_at.stem}\0"[:-1] + "-tmp")
            (made_at.parent / f"{made_at.stem}-tmp0.dcm").rename(made_at)
        else:
            save(root / path, noise.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))
    names = {path: name_of(path, written, root) for path in made.annotated}
    entry = {"name": "x", "reader": reader, "path": "pictures", "modality": "CT", "annotations": "marks"}
    labels, number = list(made.labels.values()), {label: at for at, label in enumerate(made.labels.values(), 1)}
    order = rng.sample(made.annotated, len(made.annotated))
    if reader == "coco":
        document = {
            "images": [{"id": path, "file_name": names[path]} for path in order],
            "categories": [{"id": at, "name": label} for label, at in number.items()],
            "annotations": [
                {"image_id": path, "category_id": number[made.labels[path]], "bbox": [1, 1, 4, 4]}
                for path in made.annotated
            ],
        }
        (base / "marks.json").write_text(json.dumps(document))
        entry["annotations"] = "marks.json"
    elif reader in TABLES:
        rows = [{"image": names[path], "label": made.labels[path], "x": 1, "y": 1, "w": 4, "h": 4} for path in order]
        if reader == "wide":
            rows = [{"image": row["image"]} | {each: int(each == row["label"]) for each in labels} for row in rows]
        pd.DataFrame(rows).to_csv(base / "marks.csv", index=False)
        columns = {"boxes": {"box": list("xywh")}, "wide": {"labels": labels}}
        entry |= {"annotations": "marks.csv", "columns": columns.get(reader, {})}
    elif reader in ("yolo", "indexed", "nifti", "class names"):
        entry["classes"] = labels if reader == "class names" else {at: label for label, at in number.items()}
    word = rng.choice(["", "_mask", "-seg"])
    for path in () if reader in TABLES else made.annotated:
        stem, label = strip_suffix(other_form(path) if written == "other form" else path), made.labels[path]
        stem = stem.rpartition("/")[2] if written == "bare" else stem
        file = base / "marks" / {
            "voc": f"{stem}.xml", "yolo": f"{stem}.txt", "indexed": f"{stem}{word}.png", "class folders": f"{label}/{stem}.png",
            "class names": f"{stem}_{label}.png", "nifti": f"{stem}{rng.choice(['.nii', '.nii.gz'])}",
        }[reader]  # fmt: skip
        file.parent.mkdir(parents=True, exist_ok=True)
        if reader == "voc":
            box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>4</ymax></bndbox>"
            object_ = f"<object><name>{label}</name>{box}</object>"
            # Images that were renamed without their XMLs: a name that no image has contradicts none.
            named = rng.choice([names[path], "before.png"])
            file.write_text(f"<annotation><filename>{named}</filename>{object_}</annotation>")
        elif reader == "yolo":
            file.write_text(f"{number[label]} 0.5 0.5 0.5 0.5")
        elif reader == "nifti":
            nibabel.save(nibabel.Nifti1Image(np.full((SIDE, SIDE, 3), number[label], np.uint8), np.eye(4)), file)
        else:
            save(file, np.full((SIDE, SIDE), number[label] if reader == "indexed" else 1, np.uint8))
    if reader in ("indexed", "class folders", "class names"):
        entry["reader"] = "masks"
    (base / "sources.yaml").write_text(json.dumps({"datasets": [entry | {"min_area": 0}]}))
    return read_sources(base / "sources.yaml")


def read(sources):
    """(picture's path -> labels, what was skipped)"""
    units, skips = list_units(sources.datasets[0])
    found, left_out = {}, [skip.subject for skip in skips]
    for unit in units:
        try:
            for picture in unit.load(unit):
                path = picture.key.rpartition(" slice ")[0] or picture.key
                found.setdefault(path, set()).update(target.label for target in picture.targets)
        except Skipped:
            left_out.append(unit.key)
    return found, left_out


def applies(reader, written):
    return written in ("path", "other form", "bare") or reader in TABLES


CASES = [
    (reader, written, seed)
    for seed in range(3)
    for reader in READERS
    for written in WRITTEN
    if applies(reader, written)
]


@pytest.mark.parametrize(("reader", "written", "seed"), few(CASES, len(CASES) // 2))
def test_no_image_gets_the_labels_of_another(tmp_path, reader, written, seed):
    rng = random.Random(f"{reader} {written} {seed}")
    short = shortened(reader, written)
    made = tree(rng, {"nifti": ".nii.gz", "dicom": ".dcm"}.get(reader), short)
    if reader not in TABLES:  # one file of each name
        seen = Counter(map(short, made.annotated))
        made.annotated = [path for path in made.annotated if seen[short(path)] == 1]
    found, left_out = read(write(tmp_path, reader, made, rng, written))
    found = {"/".join(split_path(path)): labels for path, labels in found.items()}
    there = {"/".join(split_path(path)): path for path in made.images}
    wrong = {path: labels for path, labels in found.items() if labels != {made.labels[there[path]]}}
    assert not wrong, (wrong, made)
    times = Counter(map(short, made.labels))
    sure = {path for path in set(made.images) & set(made.annotated) if times[short(path)] == 1}
    if written not in ("bare", "absolute"):
        assert sure <= {there[path] for path in found}
    listed = {strip_suffix("/".join(split_path(name))) for name in left_out}
    unlisted = {path for path in there if path not in found and strip_suffix(path) not in listed}
    assert len(unlisted) <= sum(each not in there for each in listed), (unlisted, listed)


def test_what_pairs_and_what_does_not():
    """Names, images, what each name gets: an image, or why none. The images lie in /data/train."""
    missing, several = IMAGE_MISSING, AMBIGUOUS_NAME
    for names, images, expected in (
        (["P1/f5.png", "P5/f5.png"], ["P5/f5.png"], [missing, "P5/f5.png"]),
        (["P1/f5.png"], ["P5/f5.png"], [missing]),
        (["P1/f5.png"], ["f5.png", "P2/x.png"], [missing]),
        (["f5.png", "g.png"], ["P5/f5.png", "P1/f5.png", "P2/g.png"], [several, "P2/g.png"]),
        (["f5.png"], ["f5.png", "P5/f5.png"], [several]),
        (["10", "1"], ["1.png", "100.png"], [missing, "1.png"]),
        (["A.PNG", "b.png"], ["a.png", "b.PNG"], [missing, "b.PNG"]),
        (["train/P1/0.png", "train/P2/0.png"], ["P1/0.png"], ["P1/0.png", missing]),
        (["train/0.png", "val/0.png"], ["0.png"], ["0.png", missing]),
        (["/data/train/P1/0.png", "/data/val/P1/0.png"], ["P1/0.png"], ["P1/0.png", missing]),
        (["set-1.0/P1/a.png", "set-1.0/P2/a.png"], ["P1/a.png", "P3/a.png"], ["P1/a.png", missing]),
        (["P1/a.png", "P2/a.png"], ["export/P1/a.jpg", "export/P3/a.jpg"], ["export/P1/a.jpg", missing]),
        (["labels/train/7.txt", "labels/val/7.txt"], ["images/train/7.png"], ["images/train/7.png", missing]),
        (["", "."], ["a.png"], [missing, missing]),
    ):
        found = pair_names(names, images, Path("/data/train"))
        said = [why if at is None else images[at] for at, why in zip(found.image_indices, found.reasons, strict=True)]
        assert said == expected, (names, images)


def test_a_prefix_is_no_name(tmp_path):
    """Masks of 1 and 10: neither is a part of the other, and what no class ends is no mask of a shorter name."""
    for name in ("1", "10", "scan"):
        save(tmp_path / "i" / f"{name}.png", np.full((SIDE, SIDE), len(name), np.uint8))
    for name in ("1_mask", "10_mask", "scan_2_mask"):
        save(tmp_path / "m" / f"{name}.png", np.full((SIDE, SIDE), 1 + (name == "10_mask"), np.uint8))
    entry = {"name": "x", "reader": "masks", "path": "i", "annotations": "m", "modality": "CT"}
    indexed = entry | {"classes": {1: "liver", 2: "spleen"}}
    (tmp_path / "s.yaml").write_text(json.dumps({"datasets": [indexed]}))
    assert read(read_sources(tmp_path / "s.yaml"))[0] == {"1.png": {"liver"}, "10.png": {"spleen"}}
    (tmp_path / "s.yaml").write_text(json.dumps({"datasets": [entry]}))
    assert "Give `classes" in refused(list_units, read_sources(tmp_path / "s.yaml").datasets[0])
    for file in (tmp_path / "m").iterdir():
        file.unlink()
    for name in ("1_left lung", "10_left_lung", "scan_2_liver", "scan_liver", "1_spleen"):
        save(tmp_path / "m" / f"{name}.png", np.ones((SIDE, SIDE), np.uint8))
    listed = entry | {"classes": ["lung", "liver", "left lung", "left_lung"]}
    (tmp_path / "s.yaml").write_text(json.dumps({"datasets": [listed]}))
    assert read(read_sources(tmp_path / "s.yaml"))[0] == {
        "1.png": {"left lung"}, "10.png": {"left_lung"}, "scan.png": {"liver"},
    }  # fmt: skip


def test_a_channel_of_nnunet_is_no_part_of_a_name(tmp_path):
    """Also where only some images have one."""
    for number, (image, label) in enumerate((("a/scan", "a/scan"), ("b/scan_0000", "b/scan"), ("c_0000", "c_0000"))):
        for folder, name, value in (("i", image, 0), ("m", label, number + 1)):
            path = tmp_path / folder / f"{name}.nii.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(np.full((SIDE, SIDE, 3), value, np.uint8), np.eye(4)), path)
    entry = {"name": "x", "reader": "nifti", "path": "i", "annotations": "m", "modality": "CT"}
    (tmp_path / "s.yaml").write_text(
        json.dumps({"datasets": [entry | {"classes": {1: "liver", 2: "spleen", 3: "lung"}}]})
    )
    found = {"a/scan.nii.gz": {"liver"}, "b/scan_0000.nii.gz": {"spleen"}, "c_0000.nii.gz": {"lung"}}
    assert read(read_sources(tmp_path / "s.yaml")) == (found, [])


def test_what_one_id_or_name_means_twice_is_not_used(tmp_path):
    """Two files of one SOP instance, rows of two patients for one image."""
    for name in ("a", "b", "c"):
        save(tmp_path / "i" / f"{name}.png", np.zeros((SIDE, SIDE), np.uint8))

    def sources(**fields):
        entry = {"name": "x", "path": "i", "modality": "CT"} | fields
        (tmp_path / "s.yaml").write_text(json.dumps({"datasets": [entry]}))
        return read_sources(tmp_path / "s.yaml")

    rows = {"image": ["a.png", "./a.png", "b.png"], "label": "lung", "mrn": [1, 2, 3]}
    pd.DataFrame(rows).to_csv(tmp_path / "t.csv", index=False)
    found, left_out = read(sources(reader="csv", annotations="t.csv", columns={"patient": "mrn"}))
    assert found == {"b.png": {"lung"}} and "a.png" in left_out
    (data,) = ct_slices(tmp_path / "i" / "lung", np.zeros((1, SIDE, SIDE)), "P1", "one")
    data.save_as(tmp_path / "i" / "lung" / "copy.dcm", enforce_file_format=True)
    pd.DataFrame({"image": [data.SOPInstanceUID], "label": "lung"}).to_csv(tmp_path / "t.csv", index=False)
    found, left_out = read(sources(reader="dicom", annotations="t.csv"))
    assert found == {} and {"lung/copy.dcm", "lung/one0.dcm"} <= set(left_out)
