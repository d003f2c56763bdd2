"""Check for every reader that no annotation is paired with an image other than its own, and that
unpaired ones are listed.

The folder trees are generated. They have repeated names, names that differ only in case or Unicode
form, spaces and dots in names, and files that are missing on either side.
"""

import json
import random
import shutil
import string
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from curation.images.pairing import (
    AMBIGUOUS_NAME,
    IMAGE_MISSING,
    pair_names,
    split_path,
    strip_suffix,
)
from curation.readers.units import list_units
from tests.curation.gmai.phantoms import ct_slices, load_pictures, read_dataset, save_png, save_volume
from tests.helpers import refused
from tests.sampling import few

FOLDER_PATHS = ("", "P1", "P5", "train", "val", "images", "P1/day 1", "Größe/Fälle", "scan", "x/images")
STEMS = (
    "f5", "10", "1", "1_2", "Scan", "scan", "IMG 1", "müller", "0000", "case.1.2", "a-b", "liver", "f5 ", " 10",
)  # fmt: skip
READERS = (
    "csv", "wide", "boxes", "coco", "voc", "yolo", "indexed", "class folders", "class names", "nifti", "dicom",
)  # fmt: skip
NAME_SPELLINGS = ("path", "backslash", "other form", "no suffix", "another suffix", "absolute", "bare")
IMAGE_SIDE_PX = 8
TABLE_READERS = ("csv", "wide", "boxes", "coco", "dicom")
"""Readers whose annotations state image names with their suffix."""


@dataclass
class Tree:
    """A generated tree: `labels` maps every path to a unique label.

    `images` and `annotated` list the paths that exist on each side.
    """

    labels: dict[str, str]
    images: list[str]
    annotated: list[str]


def make_tree(rng, suffix, short):
    """Generate a tree of 6 to 24 images, of which some images and annotations are missing.

    `short` maps a path to the name that annotations state for it. Images that share this name are
    never missing, since no reader could notice that.
    """
    paths = []
    while len(paths) < rng.randint(6, 24):
        path = f"{rng.choice(FOLDER_PATHS)}/{rng.choice(STEMS)}{suffix or rng.choice(['.png', '.PNG', '.jpg', '.tif'])}".lstrip(
            "/"
        )
        if path not in paths:
            paths.append(path)

    # Some trees are complete, some have gaps on either side.
    missing = rng.choice([0, 0.1, 0.3])
    name_counts = Counter(map(short, paths))
    images = [path for path in paths if rng.random() >= missing or name_counts[short(path)] > 1]
    annotated = [path for path in paths if rng.random() >= missing]
    labels = {path: f"label{string.ascii_lowercase[index]}" for index, path in enumerate(paths)}
    return Tree(labels, images or paths[:1], annotated or paths[:1])


def name_shortener(reader, written):
    """Return a function that shortens a path to what a reader's annotations state of it."""

    def short(path):
        if reader not in TABLE_READERS or written in ("no suffix", "another suffix"):
            path = strip_suffix(path)
        path = path.replace(".PNG", ".png")  # the case of suffixes never matters
        return path.rpartition("/")[2] if written == "bare" else path

    return short


def other_unicode_form(name):
    # macOS stores names in NFD, most other systems in NFC.
    form = "NFD" if unicodedata.is_normalized("NFC", name) else "NFC"
    return unicodedata.normalize(form, name)


def stated_image_name(path, written, root):
    """Return the image name that an annotation states, in this spelling."""
    return {
        "path": path,
        "backslash": "./" + path.replace("/", "\\"),
        "other form": other_unicode_form(path),
        "no suffix": strip_suffix(path),
        "another suffix": f"{strip_suffix(path)}.webp",
        "absolute": f"{root}/{path}",
        "bare": path.rpartition("/")[2],
    }[written]


def write_dataset(base, reader, image_tree, rng, written):
    """Write a tree to disk; return its sources.

    In masks, all pixels belong to the picture's class.
    """
    root = base / "pictures"
    root.mkdir(parents=True)
    rng_pixels = np.random.default_rng(rng.randrange(2**32))
    shape = (IMAGE_SIDE_PX, IMAGE_SIDE_PX, 3)
    for path in image_tree.images:
        if reader == "nifti":
            save_volume(root / path, rng_pixels.normal(size=shape).astype(np.float32))
        elif reader == "dicom":
            ct_slices(
                (root / path).parent,
                np.zeros((1, IMAGE_SIDE_PX, IMAGE_SIDE_PX)),
                "P",
                f"{path}-tmp-".rpartition("/")[2],
            )
            (root / f"{path}-tmp-0.dcm").rename(root / path)
        else:
            save_png(root / path, rng_pixels.integers(0, 256, shape, dtype=np.uint8))
    names = {path: stated_image_name(path, written, root) for path in image_tree.annotated}
    entry = {"reader": reader, "path": "pictures", "annotations": "marks", "min_area": 0}
    labels = list(image_tree.labels.values())
    number = {label: index for index, label in enumerate(labels, 1)}
    # Pairing must not depend on the order of the rows.
    order = rng.sample(image_tree.annotated, len(image_tree.annotated))
    if reader == "coco":
        document = {
            "images": [{"id": path, "file_name": names[path]} for path in order],
            "categories": [{"id": index, "name": label} for label, index in number.items()],
            "annotations": [
                {"image_id": path, "category_id": number[image_tree.labels[path]], "bbox": [1, 1, 4, 4]}
                for path in image_tree.annotated
            ],
        }
        (base / "marks.json").write_text(json.dumps(document))
        entry["annotations"] = "marks.json"
    elif reader in TABLE_READERS:
        rows = [
            {"image": names[path], "label": image_tree.labels[path], "x": 1, "y": 1, "w": 4, "h": 4} for path in order
        ]
        if reader == "wide":
            rows = [
                {"image": row["image"]} | {column: int(column == row["label"]) for column in labels} for row in rows
            ]
        pd.DataFrame(rows).to_csv(base / "marks.csv", index=False)
        columns = {"boxes": {"box": list("xywh")}, "wide": {"labels": labels}}
        entry |= {"annotations": "marks.csv", "columns": columns.get(reader, {})}
    elif reader in ("yolo", "indexed", "nifti", "class names"):
        entry["classes"] = labels if reader == "class names" else {index: label for label, index in number.items()}
    mask_suffix = rng.choice(["", "_mask", "-seg"])
    for path in () if reader in TABLE_READERS else image_tree.annotated:
        stem = strip_suffix(other_unicode_form(path) if written == "other form" else path)
        stem = stem.rpartition("/")[2] if written == "bare" else stem
        label = image_tree.labels[path]
        file = base / "marks" / {
            "voc": f"{stem}.xml", "yolo": f"{stem}.txt", "indexed": f"{stem}{mask_suffix}.png", "class folders": f"{label}/{stem}.png",
            "class names": f"{stem}_{label}.png", "nifti": f"{stem}{rng.choice(['.nii', '.nii.gz'])}",
        }[reader]  # fmt: skip
        file.parent.mkdir(parents=True, exist_ok=True)
        if reader == "voc":
            box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>4</ymax></bndbox>"
            object_ = f"<object><name>{label}</name>{box}</object>"
            # Images may be renamed without their XMLs: a name that no image has is ignored.
            stated_name = rng.choice([names[path], "before.png"])
            file.write_text(f"<annotation><filename>{stated_name}</filename>{object_}</annotation>")
        elif reader == "yolo":
            file.write_text(f"{number[label]} 0.5 0.5 0.5 0.5")
        elif reader == "nifti":
            save_volume(file, np.full(shape, number[label], np.uint8))
        else:
            value = number[label] if reader == "indexed" else 1
            save_png(file, np.full(shape[:2], value, np.uint8))
    if reader in ("indexed", "class folders", "class names"):
        entry["reader"] = "masks"
    return read_dataset(base, **entry)


def read_labels_by_picture(dataset):
    """Return (picture's path -> labels, what was skipped)."""
    pictures, skips = load_pictures(dataset)
    labels_by_picture = {}
    for picture in pictures:
        path = picture.key.rpartition(" slice ")[0] or picture.key
        labels_by_picture.setdefault(path, set()).update(target.label for target in picture.targets)
    return labels_by_picture, [subject for subject, _ in skips]


def is_applicable(reader, written):
    return written in ("path", "other form", "bare") or reader in TABLE_READERS


PAIRING_CASES = [
    (reader, written, seed)
    for seed in range(3)
    for reader in READERS
    for written in NAME_SPELLINGS
    if is_applicable(reader, written)
]


@pytest.mark.parametrize(("reader", "written", "seed"), few(PAIRING_CASES, len(PAIRING_CASES) // 2))
def test_no_image_gets_the_labels_of_another_image(tmp_path, reader, written, seed):
    rng = random.Random(f"{reader} {written} {seed}")
    short = name_shortener(reader, written)
    image_tree = make_tree(rng, {"nifti": ".nii.gz", "dicom": ".dcm"}.get(reader), short)
    if reader not in TABLE_READERS:  # such readers need one file per name
        name_counts = Counter(map(short, image_tree.annotated))
        image_tree.annotated = [path for path in image_tree.annotated if name_counts[short(path)] == 1]
    labels_by_picture, left_out = read_labels_by_picture(write_dataset(tmp_path, reader, image_tree, rng, written))
    labels_by_picture = {"/".join(split_path(path)): labels for path, labels in labels_by_picture.items()}
    images_by_name = {"/".join(split_path(path)): path for path in image_tree.images}
    wrong = {
        path: labels
        for path, labels in labels_by_picture.items()
        if labels != {image_tree.labels[images_by_name[path]]}
    }
    assert not wrong, (wrong, image_tree)
    name_counts_of_all = Counter(map(short, image_tree.labels))
    unambiguous = {
        path for path in set(image_tree.images) & set(image_tree.annotated) if name_counts_of_all[short(path)] == 1
    }
    # Bare and absolute names may be ambiguous; all others must be paired.
    if written not in ("bare", "absolute"):
        assert unambiguous <= {images_by_name[path] for path in labels_by_picture}
    listed = {strip_suffix("/".join(split_path(name))) for name in left_out}
    # An image without labels must be listed, by its own name or by that of an annotation.
    unlisted = {path for path in images_by_name if path not in labels_by_picture and strip_suffix(path) not in listed}
    assert len(unlisted) <= sum(name not in images_by_name for name in listed), (unlisted, listed)


def test_names_pair_only_with_unambiguous_images():
    """Each case has names, images, and the expected image or reason for each name; the root is
    /data/train.
    """
    missing, ambiguous = IMAGE_MISSING, AMBIGUOUS_NAME
    for names, images, expected in (
        (["P1/f5.png", "P5/f5.png"], ["P5/f5.png"], [missing, "P5/f5.png"]),
        (["P1/f5.png"], ["P5/f5.png"], [missing]),
        (["P1/f5.png"], ["f5.png", "P2/x.png"], [missing]),
        (["f5.png", "g.png"], ["P5/f5.png", "P1/f5.png", "P2/g.png"], [ambiguous, "P2/g.png"]),
        (["f5.png"], ["f5.png", "P5/f5.png"], [ambiguous]),
        (["10", "1"], ["1.png", "100.png"], [missing, "1.png"]),
        (["A.PNG", "b.png"], ["a.png", "b.PNG"], [missing, "b.PNG"]),
        (["train/P1/0.png", "train/P2/0.png"], ["P1/0.png"], ["P1/0.png", missing]),
        (["train/0.png", "val/0.png"], ["0.png"], ["0.png", missing]),
        (["/data/train/P1/0.png", "/data/val/P1/0.png"], ["P1/0.png"], ["P1/0.png", missing]),
        (["set-1.0/P1/a.png", "set-1.0/P2/a.png"], ["P1/a.png", "P3/a.png"], ["P1/a.png", missing]),
        (
            ["P1/a.png", "P2/a.png"],
            ["export/P1/a.jpg", "export/P3/a.jpg"],
            ["export/P1/a.jpg", missing],
        ),
        (
            ["labels/train/7.txt", "labels/val/7.txt"],
            ["images/train/7.png"],
            ["images/train/7.png", missing],
        ),
        (["", "."], ["a.png"], [missing, missing]),
    ):
        results = [
            reason if index is None else images[index]
            for index, reason in zip(*pair_names(names, images, Path("/data/train")), strict=True)
        ]
        assert results == expected, (names, images)


def test_name_prefixes_do_not_match(tmp_path):
    """Masks of 1 and 10 are not confused, and a mask that ends in no listed class matches no
    image.
    """
    shape = (IMAGE_SIDE_PX, IMAGE_SIDE_PX)
    for name in ("1", "10", "scan"):
        save_png(tmp_path / "i" / f"{name}.png", np.full(shape, len(name), np.uint8))
    for name in ("1_mask", "10_mask", "scan_2_mask"):
        save_png(tmp_path / "m" / f"{name}.png", np.full(shape, 1 + (name == "10_mask"), np.uint8))
    entry = {"reader": "masks", "path": "i", "annotations": "m"}
    indexed = read_dataset(tmp_path, **entry, classes={1: "liver", 2: "spleen"})
    assert read_labels_by_picture(indexed)[0] == {"1.png": {"liver"}, "10.png": {"spleen"}}
    assert "Give `classes" in refused(list_units, read_dataset(tmp_path, **entry))
    # Then with classes at the end of the names, of which one contains another.
    shutil.rmtree(tmp_path / "m")
    for name in ("1_left lung", "10_left_lung", "scan_2_liver", "scan_liver", "1_spleen"):
        save_png(tmp_path / "m" / f"{name}.png", np.ones(shape, np.uint8))
    listed = read_dataset(tmp_path, **entry, classes=["lung", "liver", "left lung", "left_lung"])
    assert read_labels_by_picture(listed)[0] == {
        "1.png": {"left lung"}, "10.png": {"left_lung"}, "scan.png": {"liver"},
    }  # fmt: skip


def test_nnunet_channel_suffix_is_ignored_in_names(tmp_path):
    """The suffix may be on all images or only on some."""
    for number, (image, label) in enumerate((("a/scan", "a/scan"), ("b/scan_0000", "b/scan"), ("c_0000", "c_0000"))):
        for name, value in ((f"i/{image}", 0), (f"m/{label}", number + 1)):
            save_volume(tmp_path / f"{name}.nii.gz", np.full((IMAGE_SIDE_PX, IMAGE_SIDE_PX, 3), value, np.uint8))
    classes = {1: "liver", 2: "spleen", 3: "lung"}
    dataset = read_dataset(tmp_path, reader="nifti", path="i", annotations="m", classes=classes)
    expected = {"a/scan.nii.gz": {"liver"}, "b/scan_0000.nii.gz": {"spleen"}, "c_0000.nii.gz": {"lung"}}
    assert read_labels_by_picture(dataset) == (expected, [])


def test_ambiguous_ids_and_names_are_not_used(tmp_path):
    """Cases: two files with the same SOP instance UID, and an image with rows of two patients."""
    for name in ("a", "b", "c"):
        save_png(tmp_path / "i" / f"{name}.png", np.zeros((IMAGE_SIDE_PX, IMAGE_SIDE_PX), np.uint8))
    rows = {"image": ["a.png", "./a.png", "b.png"], "label": "lung", "mrn": [1, 2, 3]}
    pd.DataFrame(rows).to_csv(tmp_path / "t.csv", index=False)
    entry = {"path": "i", "annotations": "t.csv"}
    table = read_dataset(tmp_path, **entry, reader="csv", columns={"patient": "mrn"})
    labels_by_picture, skipped = read_labels_by_picture(table)
    assert labels_by_picture == {"b.png": {"lung"}} and "a.png" in skipped
    (data,) = ct_slices(tmp_path / "i" / "lung", np.zeros((1, IMAGE_SIDE_PX, IMAGE_SIDE_PX)), "P1", "one")
    # A copy has the same UID: a reference to it is ambiguous.
    data.save_as(tmp_path / "i" / "lung" / "copy.dcm", enforce_file_format=True)
    pd.DataFrame({"image": [data.SOPInstanceUID], "label": "lung"}).to_csv(tmp_path / "t.csv", index=False)
    labels_by_picture, skipped = read_labels_by_picture(read_dataset(tmp_path, **entry, reader="dicom"))
    assert labels_by_picture == {} and {"lung/copy.dcm", "lung/one0.dcm"} <= set(skipped)
