"""Labels that go with de-identified images: COCO, Pascal VOC, YOLO, masks and NIfTI, written anew under the images' ids with nothing in
them but classes and geometry.

    OUT/labels/<number>.json                one COCO file
    OUT/labels/<id>.xml|.txt|.png|.nii.gz   VOC, YOLO, indexed masks, label volumes; OUT/labels/<class>/<id>.png for a mask per class
    OUT/labels/classes.txt, dataset.json    what the numbers mean, where the source says so

`medprobe curate gmai` reads them with `path: OUT/images`, `annotations: OUT/labels`. Names of classes are copied as they are.

See also: which label belongs to which image (`curation/images/pairing.py`), the images (`folder.py`).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from curation.gmai.files import DICOM, below, files_below, paired
from curation.gmai.pictures import Skip, Skipped
from curation.gmai.read_shapes import LISTS, coco_lists, id_text, mask_pairs, mask_values, voc_pairs, yolo_classes
from curation.gmai.read_volumes import SUFFIXES as VOLUMES
from curation.gmai.read_volumes import volume_classes, volume_pairs
from curation.gmai.sources import Dataset
from dataset_builders.errors import BadInput
from dataset_builders.files import write_json
from dataset_builders.images.lookup import SUFFIXES, as_png
from dataset_builders.sources.files import read_text

LABELS = "labels"


@dataclass
class Labels:
    """The labels of one folder or file. `write(folder, ids)` writes those of images that have an id (path -> id without suffix, name of the
    new file), and returns how many."""

    kind: str
    files: set[Path]
    """Not to be taken for images."""
    images: list[Path]
    """Image volumes; pictures are found by `deidentify` itself."""
    skips: list[Skip]
    write: Callable[[Path, Mapping[Path, str]], int]
    classes: set[str] = field(default_factory=set)
    """Their names, which are copied."""


def read_labels(path: Path, folder: Path) -> Labels:
    """What labels a file or folder holds, and which image below `folder` each belongs to. Raises BadInput where it holds none, or labels of
    several kinds."""
    if not path.exists():
        raise BadInput(
            f"--labels {path}: does not exist. Give a COCO JSON, or a folder of XML, text, mask or NIfTI files."
        )
    base = Dataset(name="labels", reader="dicom", path=folder.absolute(), annotations=path.absolute())
    files, _ = files_below(path.absolute(), base)
    pictures = [
        each
        for each in files_below(base.path, base)[0]
        if each.suffix.lower() in SUFFIXES or each.suffix.lower() in DICOM or not each.suffix
    ]
    names = [each.name.lower() for each in files]
    kinds = {
        "coco": path.is_file() and path.suffix.lower() == ".json",
        "nifti": any(name.endswith(VOLUMES) for name in names),
        "voc": any(name.endswith(".xml") for name in names),
        "masks": path.is_dir() and path.absolute() != base.path and any(name.endswith(SUFFIXES) for name in names),
        "yolo": path.is_dir() and any(name.endswith(".txt") and name not in LISTS for name in names),
    }
    found = [kind for kind, is_there in kinds.items() if is_there]
    if len(found) != 1:
        what = f"labels of several kinds ({', '.join(found)})" if found else "no labels"
        raise BadInput(
            f"--labels {path}: holds {what}. Give a COCO JSON, or a folder of XML, text, mask or NIfTI files."
        )
    return {"coco": _coco, "nifti": _nifti, "voc": _voc, "masks": _masks, "yolo": _yolo}[found[0]](base, pictures)


def _coco(dataset: Dataset, pictures: list[Path]) -> Labels:
    images, categories, annotations = coco_lists(dataset)
    pairs = paired([str(entry.get("file_name", "")) for entry in images], pictures, dataset, suffix=True)
    times = Counter(id_text(entry.get("id")) for entry in images)
    path_of: dict[str, tuple[Path, dict[str, Any]]] = {}
    for entry, path in zip(images, pairs.images, strict=True):
        key = id_text(entry.get("id"))
        if path is not None and key and times[key] == 1:
            path_of[key] = path, {side: entry[side] for side in ("height", "width") if _is_number(entry.get(side))}
        elif path is not None:
            pairs.skips.append(
                Skip(dataset.name, str(entry.get("file_name")), "its id is none, or several images have it")
            )
    classes = {id_text(each.get("id")): str(each.get("name") or "").strip() for each in categories}
    classes = {key: name for key, name in classes.items() if key and name}
    class_number = {key: at for at, key in enumerate(classes, 1)}

    def write(folder: Path, ids: Mapping[Path, str]) -> int:
        kept = {key: (ids[path], size) for key, (path, size) in path_of.items() if path in ids}
        number = {key: at for at, key in enumerate(kept, 1)}
        shapes: list[dict[str, Any]] = []
        for each in annotations:
            image, category = id_text(each.get("image_id")), id_text(each.get("category_id"))
            if image in number and category in class_number:
                geometry = {
                    name: each[name] for name in ("bbox", "segmentation", "area") if _is_geometry(each.get(name))
                }
                made = {
                    "id": len(shapes) + 1,
                    "image_id": number[image],
                    "category_id": class_number[category],
                    "iscrowd": 0,
                }
                shapes.append(made | geometry)
        document = {
            "images": [{"id": number[key], "file_name": name} | size for key, (name, size) in kept.items()],
            "categories": [{"id": class_number[key], "name": name} for key, name in classes.items()],
            "annotations": shapes,
        }
        write_json(folder / f"{1 + len(list(folder.glob('*.json')))}.json", document)
        return len(kept)

    assert dataset.annotations is not None
    return Labels("coco", {dataset.annotations}, [], pairs.skips, write, set(classes.values()))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_geometry(value: Any) -> bool:
    """Whether a value is numbers, or run-length encoding: no text that may name anybody."""
    if isinstance(value, dict):
        runs, size = value.get("counts"), value.get("size")
        is_text = isinstance(runs, str) and all(48 <= ord(sign) < 112 for sign in runs)
        return set(value) == {"counts", "size"} and (is_text or _is_geometry(runs)) and _is_geometry(size)
    if isinstance(value, list):
        return bool(value) and all(_is_number(each) or _is_geometry(each) for each in value)
    return _is_number(value)


def _voc(dataset: Dataset, pictures: list[Path]) -> Labels:
    pairs, skips, _ = voc_pairs(pictures, dataset)

    def write(folder: Path, ids: Mapping[Path, str]) -> int:
        written = 0
        for _, root, path in pairs:
            if path not in ids:
                continue
            made = ElementTree.Element("annotation")
            ElementTree.SubElement(made, "filename").text = ids[path]
            _copy_numbers(root.find("size"), made, "size")
            for each in root.iter("object"):
                target = ElementTree.SubElement(made, "object")
                ElementTree.SubElement(target, "name").text = (each.findtext("name") or "").strip()
                _copy_numbers(each.find("bndbox"), target, "bndbox")
            (folder / f"{Path(ids[path]).stem}.xml").write_bytes(ElementTree.tostring(made, "utf-8"))
            written += 1
        return written

    named = {(each.findtext("name") or "").strip() for _, root, _ in pairs for each in root.iter("object")}
    return Labels("voc", {page for page, _, _ in pairs}, [], skips, write, named)


def _copy_numbers(given: ElementTree.Element | None, parent: ElementTree.Element, name: str) -> None:
    made = ElementTree.SubElement(parent, name)
    for each in given if given is not None else ():
        try:
            ElementTree.SubElement(made, each.tag).text = f"{float(each.text or ''):.12g}"
        except ValueError:
            continue


def _yolo(dataset: Dataset, pictures: list[Path]) -> Labels:
    assert dataset.annotations is not None
    folder = dataset.annotations
    texts = [
        path for path in files_below(folder, dataset)[0] if path.suffix.lower() == ".txt" and path.name not in LISTS
    ]
    pairs = paired([below(path, folder) for path in texts], pictures, dataset)
    try:
        classes = yolo_classes(folder, dataset)
    except BadInput:
        classes = {}

    def write(out: Path, ids: Mapping[Path, str]) -> int:
        written = 0
        for text, path in zip(texts, pairs.images, strict=True):
            if path is None or path not in ids:
                continue
            try:
                rows = [[float(word) for word in line.split()] for line in read_text(text).splitlines() if line.strip()]
            except (BadInput, ValueError):
                pairs.skips.append(Skip(dataset.name, below(text, folder), "its text file is no numbers"))
                continue
            lines = [" ".join([f"{row[0]:g}", *(repr(value) for value in row[1:])]) for row in rows]
            (out / f"{Path(ids[path]).stem}.txt").write_text("\n".join(lines) + "\n")
            written += 1
        if classes:
            names = [classes.get(at, f"class {at}") for at in range(max(classes) + 1)]
            (out / "classes.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        return written

    return Labels("yolo", set(texts), [], pairs.skips, write, set(classes.values()))


def _masks(dataset: Dataset, pictures: list[Path]) -> Labels:
    folder = dataset.annotations
    assert folder is not None
    pictures = [path for path in pictures if not path.is_relative_to(folder)]
    try:
        pairs, skips, _ = mask_pairs(pictures, dataset)
    except BadInput:  # called like their images: indexed, whatever the values mean
        pairs, skips, _ = mask_pairs(pictures, dataset.model_copy(update={"classes": {1: "any"}}))

    def write(out: Path, ids: Mapping[Path, str]) -> int:
        written = 0
        for mask, label, path in pairs:
            if path not in ids:
                continue
            try:
                values = mask_values(mask)
            except Skipped as reason:
                skips.append(Skip(dataset.name, below(mask, folder), str(reason)))
                continue
            (out / label).mkdir(exist_ok=True)
            kind = np.uint8 if values.max(initial=0) < 256 else np.uint16
            (out / label / f"{Path(ids[path]).stem}.png").write_bytes(as_png(Image.fromarray(values.astype(kind))))
            written += 1
        return written

    files = {path for path in files_below(folder, dataset)[0] if path.suffix.lower() in SUFFIXES}
    return Labels("masks", files, [], skips, write, {label for _, label, _ in pairs} - {""})


def _nifti(dataset: Dataset, pictures: list[Path]) -> Labels:
    pairs, skips, alone = volume_pairs(dataset)
    skips += [Skip(dataset.name, below(path, dataset.path), "has no label volume") for path in alone]
    try:
        names = volume_classes(dataset)
    except BadInput:  # the source says nowhere what the values mean
        names = {}

    def write(out: Path, ids: Mapping[Path, str]) -> int:
        written = 0
        for label, image in pairs:
            if image in ids:
                try:
                    write_volume(label, out / f"{ids[image].removesuffix('.nii.gz')}.nii.gz")
                    written += 1
                except Skipped as reason:
                    skips.append(Skip(dataset.name, below(label, dataset.path), str(reason)))
        if names:
            write_json(out / "dataset.json", {"labels": {name: value for value, name in names.items()}})
        return written

    return Labels(
        "nifti", {label for label, _ in pairs}, [image for _, image in pairs], skips, write, set(names.values())
    )


def write_volume(path: Path, out: Path) -> None:
    """A volume as NIfTI-1 with nothing in its header but the grid, its place in space, and how values are stored. Raises Skipped."""
    import nibabel as untyped

    nibabel: Any = untyped
    try:
        loaded = nibabel.load(path)
        given = loaded.header
        slope, intercept = given.get_slope_inter() if hasattr(given, "get_slope_inter") else (None, None)
        made = nibabel.Nifti1Image(
            np.asanyarray(loaded.dataobj.get_unscaled()), loaded.affine, dtype=given.get_data_dtype()
        )
        made.header.set_zooms(given.get_zooms())
        made.header.set_slope_inter(slope, intercept)
        if hasattr(given, "get_xyzt_units"):
            made.header.set_xyzt_units(*given.get_xyzt_units())
        nibabel.save(made, out)
    except Exception as error:  # nibabel raises errors of many kinds on damaged files
        raise Skipped(f"is no complete NIfTI ({type(error).__name__})") from None


def drop_labels(out: Path, image: str) -> None:
    """Take the labels of an image out of a finished folder."""
    stem = image.removesuffix(".nii.gz").rpartition(".")[0] or image
    for path in (out / LABELS).rglob(f"{stem}.*") if (out / LABELS).is_dir() else ():
        path.unlink()
    for path in (out / LABELS).glob("*.json") if (out / LABELS).is_dir() else ():
        document = json.loads(path.read_text(encoding="utf-8"))
        if gone := {each["id"] for each in document.get("images", ()) if each["file_name"] == image}:
            document["images"] = [each for each in document["images"] if each["id"] not in gone]
            document["annotations"] = [each for each in document["annotations"] if each["image_id"] not in gone]
            write_json(path, document)
