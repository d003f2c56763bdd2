"""Labels that go with de-identified images: what COCO, Pascal VOC, YOLO and mask files annotate, written as one COCO file; NIfTI as NIfTI.
Nothing is in them but geometry and names of classes, which are copied without words that are known to name a patient.

    OUT/labels/<number>.json                    one COCO file for each --labels, images by their ids
    OUT/labels/<id>.nii.gz, dataset.json        label volumes; what their values mean, where the source says so

`medprobe curate gmai` reads them with `path: OUT/images` and `annotations: OUT/labels/1.json` (reader coco) or `OUT/labels` (nifti).

See also: the readers (`curation/readers/`), the images (`folder.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from curation.deidentify.patient_table import redact_birth_dates, redact_words
from curation.readers.consistency import NoClassNames, Skip, skip_from_error
from curation.readers.dataset import SourceDataset
from curation.readers.pictures import EXIF_ROTATED, AnnotatedImages, DatasetFiles, PictureLabel, is_volume
from curation.readers.pixels import Skipped, encode_mask, skip_on_error
from curation.readers.registry import pair_dataset
from curation.readers.shapes import is_class_list
from curation.readers.volumes import open_volume, read_volume_classes
from dataset_builders.errors import BadInput
from dataset_builders.files import write_json
from dataset_builders.images.lookup import IMAGE_SUFFIXES
from dataset_builders.label_reading import describe_requirements, parse_label

LABELS_FOLDER = "labels"
DEFAULT_CLASS_NAMES = {number: f"class {number}" for number in range(256)}
"""Default names of classes, if the source gives none."""


@dataclass
class ImageLabels:
    """The labels of one folder or file, each with its image."""

    kind: str
    files: set[Path]
    """Not to be taken for images."""
    pairs: AnnotatedImages
    skips: list[Skip]
    values: dict[int, str] = field(default_factory=dict)
    """of label volumes -> class, where the source says"""
    classes: set[str] = field(default_factory=set)
    """Their names, as written."""

    @property
    def volumes(self) -> list[Path]:
        """Image volumes; pictures are found by `deidentify` itself."""
        return [path for _, path in self.pairs] if self.kind == "nifti" else []


def load_image_labels(path: Path, folder: Path) -> ImageLabels:
    """The labels in a file or folder, and the image below `folder` that each belongs to. Raises BadInput if it holds none, or labels of
    several kinds."""
    if not path.exists():
        raise BadInput(
            f"--labels {path}: does not exist. Give a COCO JSON, or a folder of XML, text, mask or NIfTI files."
        )
    dataset = SourceDataset.model_construct(
        name="labels", reader="dicom", path=folder.absolute(), annotations=path.absolute()
    )
    files = DatasetFiles(dataset)
    names = [each.name.lower() for each in files.annotation_files]
    kinds = {
        "coco": path.is_file() and path.suffix.lower() == ".json",
        "nifti": any(map(is_volume, files.annotation_files)),
        "voc": any(name.endswith(".xml") for name in names),
        "masks": path.is_dir()
        and path.absolute() != dataset.path
        and any(name.endswith(IMAGE_SUFFIXES) for name in names),
        "yolo": path.is_dir() and any(name.endswith(".txt") and not is_class_list(Path(name)) for name in names),
    }
    found = [kind for kind, is_there in kinds.items() if is_there]
    if len(found) != 1:
        what = f"labels of several kinds ({', '.join(found)})" if found else "no labels"
        raise BadInput(
            f"--labels {path}: holds {what}. Give a COCO JSON, or a folder of XML, text, mask or NIfTI files."
        )
    kind = found[0]
    dataset = dataset.model_copy(update={"reader": kind})
    values: dict[int, str] = {}
    try:
        values = read_volume_classes(dataset)[0] if kind == "nifti" else {}
        pairs, skips, alone, taken = pair_dataset(dataset, files)
    except NoClassNames:
        pairs, skips, alone, taken = pair_dataset(dataset.model_copy(update={"classes": DEFAULT_CLASS_NAMES}), files)
    if kind == "nifti":
        skips += [Skip(dataset.name, str(each), "has no label volume") for each in alone]
    return ImageLabels(kind, taken, pairs, skips, values)


def write_labels(
    labels: ImageLabels, out: Path, ids: Mapping[Path, str], sizes: Mapping[Path, tuple[int, int]], named: set[str]
) -> int:
    """Write the labels of images that have an id to `out`; returns of how many images. ids: path -> name of the new file. sizes: path of a
    picture that is not turned -> (height, width). named: words that name patients, which are taken out of names of classes that are no
    medical terms."""
    kept = [(annotation, path) for annotation, path in labels.pairs if path in ids]
    images: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    numbers: dict[str, int] = {}
    for annotation, path in kept:
        try:
            if labels.kind == "nifti":
                write_volume(annotation.files[0], out / ids[path])
                images.append({})
                continue
            if path not in sizes:
                raise Skipped(EXIF_ROTATED)
            height, width = sizes[path]
            targets = annotation.targets((height, width))
        except Skipped as error:
            labels.skips.append(skip_from_error("labels", annotation.image, error))
            continue
        images.append({"id": len(images) + 1, "file_name": ids[path], "height": height, "width": width})
        for target in targets:
            number = numbers.setdefault(target.label, len(numbers) + 1)
            entry = {"id": len(shapes) + 1, "image_id": len(images), "category_id": number, "iscrowd": 0}
            shapes.append(entry | _coco_geometry(target))
    names = _redact_class_names([*numbers, *labels.values.values()], named)
    labels.classes = set(names.values())
    if labels.kind != "nifti":
        categories = [{"id": number, "name": names[raw]} for raw, number in numbers.items()]
        document = {"images": images, "categories": categories, "annotations": shapes}
        write_json(out / f"{1 + len(list(out.glob('[0-9]*.json')))}.json", document)
    elif labels.values:
        write_json(out / "dataset.json", {"labels": {str(value): names[raw] for value, raw in labels.values.items()}})
    return len(images)


def _redact_class_names(raw: list[str], named: set[str]) -> dict[str, str]:
    """Name of a class -> the same without words that name a patient, one of its own for each; medical terms stay, even if they are also
    names."""
    clean: dict[str, str] = {}
    for name in dict.fromkeys(raw):
        is_term = parse_label(name).term is not None or describe_requirements(name)
        text = name if is_term else redact_words(redact_birth_dates(name)[0], named)[0]
        clean[name] = text if text not in clean.values() else f"{text} {len(clean)}"
    return clean


def _coco_geometry(target: PictureLabel) -> dict[str, Any]:
    if target.mask is not None:
        return {"segmentation": encode_mask(target.mask), "area": target.area}
    return {} if target.box is None else {"bbox": list(target.box), "area": target.area}


def write_volume(path: Path, out: Path) -> None:
    """A volume as NIfTI-1 with nothing in its header but the grid, its place in space, and how values are stored. Raises Skipped."""
    import nibabel as untyped

    nibabel: Any = untyped
    loaded = open_volume(path)
    with skip_on_error("is no complete NIfTI"):
        given = loaded.header
        slope, intercept = given.get_slope_inter() if hasattr(given, "get_slope_inter") else (None, None)
        stored = np.asanyarray(loaded.dataobj.get_unscaled())
        made = nibabel.Nifti1Image(stored, loaded.affine, dtype=given.get_data_dtype())
        made.header.set_zooms(given.get_zooms())
        made.header.set_slope_inter(slope, intercept)
        if hasattr(given, "get_xyzt_units"):
            made.header.set_xyzt_units(*given.get_xyzt_units())
        nibabel.save(made, out)


def delete_labels(out: Path, image: str) -> None:
    """Take the labels of an image out of a finished folder."""
    (out / LABELS_FOLDER / image).unlink(missing_ok=True)
    for path in (out / LABELS_FOLDER).glob("[0-9]*.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        if gone := {each["id"] for each in document["images"] if each["file_name"] == image}:
            document["images"] = [each for each in document["images"] if each["id"] not in gone]
            document["annotations"] = [each for each in document["annotations"] if each["image_id"] not in gone]
            write_json(path, document)
