"""Write the labels of de-identified images under the images' ids.

Annotations in COCO, Pascal VOC, YOLO or mask files become one COCO file; NIfTI stays NIfTI. Only
geometry and class names are copied, and words known to name a patient are removed from the class
names.

    OUT/labels/<number>.json                    one COCO file per --labels; file names are the ids
    OUT/labels/<id>.nii.gz, dataset.json        label volumes; names of their values, if known

`medprobe curate gmai` reads them with `path: OUT/images` and `annotations: OUT/labels/1.json`
(reader coco) or `OUT/labels` (nifti).

See also: the readers (`curation/readers/`), the images (`image_folder.py`).
"""

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from curation.deidentify.patient_table import redact_birth_dates, redact_words
from curation.readers.dataset import SourceDataset
from curation.readers.pictures import (
    EXIF_ROTATED,
    AnnotatedImages,
    DatasetFiles,
    NoClassNames,
    PictureLabel,
    Skip,
    is_volume,
    skip_from_error,
)
from curation.readers.pixels import Skipped, encode_mask, skip_on_error
from curation.readers.shapes import is_class_list
from curation.readers.units import pair_dataset
from curation.readers.volumes import open_volume, read_volume_classes
from dataset_builders.errors import BadInput
from dataset_builders.files import write_json
from dataset_builders.images.lookup import IMAGE_SUFFIXES
from dataset_builders.label_reading import describe_requirements, parse_label

LABELS_FOLDER = "labels"
DEFAULT_CLASS_NAMES = {number: f"class {number}" for number in range(256)}
"""Class names if the source gives none."""


@dataclass(frozen=True)
class CleanFile:
    """A picture or volume of the de-identified folder.

    Attributes:
        group: its keyed group; "" if unknown.
        patient: PatientID of its header; "" if it has none.
        size: (height, width) in pixels; None for volumes, and for pictures that EXIF rotates, whose
            labels may refer to either orientation.
    """

    name: str
    group: str
    patient: str = ""
    size: tuple[int, int] | None = None


@dataclass
class ImageLabels:
    """The labels of one folder or file, paired with their images."""

    kind: str
    files: set[Path]
    """Files that contain labels and must not be read as images."""
    pairs: AnnotatedImages
    skips: list[Skip]
    values: dict[int, str] = field(default_factory=dict)
    """Value in label volumes -> class, if the source names them."""
    classes: set[str] = field(default_factory=set)
    """Class names in the files that were written."""

    @property
    def volumes(self) -> list[Path]:
        """Image volumes of the labels; `deidentify_folder` finds pictures itself."""
        return [path for _, path in self.pairs] if self.kind == "nifti" else []


def load_image_labels(path: Path, folder: Path) -> ImageLabels:
    """Read labels, and pair them with the images below a folder.

    Args:
        path: COCO JSON, or folder of VOC, YOLO, mask or NIfTI files.
        folder: folder of the images.

    Returns:
        The labels; those without an image are among the skips.

    Raises:
        BadInput: there are no labels, or labels of several kinds.
    """
    if not path.exists():
        raise BadInput(
            f"--labels {path}: does not exist. Give a COCO JSON, or a folder of XML, text, mask or NIfTI files."
        )
    dataset = SourceDataset.model_construct(
        name="labels", reader="dicom", path=folder.absolute(), annotations=path.absolute()
    )
    files = DatasetFiles(dataset)
    names = [file.name.lower() for file in files.annotation_files]
    kinds = {
        "coco": path.is_file() and path.suffix.lower() == ".json",
        "nifti": any(map(is_volume, files.annotation_files)),
        "voc": any(name.endswith(".xml") for name in names),
        "masks": path.is_dir()
        and path.absolute() != dataset.path
        and any(name.endswith(IMAGE_SUFFIXES) for name in names),
        "yolo": path.is_dir() and any(name.endswith(".txt") and not is_class_list(Path(name)) for name in names),
    }
    matches = [kind for kind, is_match in kinds.items() if is_match]
    if len(matches) != 1:
        content = f"labels of several kinds ({', '.join(matches)})" if matches else "no labels"
        raise BadInput(
            f"--labels {path}: contains {content}. Give a COCO JSON, or a folder of XML, text, mask or NIfTI files."
        )

    kind = matches[0]
    dataset = dataset.model_copy(update={"reader": kind})
    values: dict[int, str] = {}
    try:
        values = read_volume_classes(dataset)[0] if kind == "nifti" else {}
        pairs, skips, unpaired_images, label_files = pair_dataset(dataset, files)
    except NoClassNames:
        # Numbers are enough here; `medprobe curate gmai` asks for the class names.
        dataset = dataset.model_copy(update={"classes": DEFAULT_CLASS_NAMES})
        pairs, skips, unpaired_images, label_files = pair_dataset(dataset, files)
    if kind == "nifti":
        skips += [Skip(dataset.name, str(image), "has no label volume") for image in unpaired_images]
    return ImageLabels(kind, label_files, pairs, skips, values)


def write_labels(
    labels: ImageLabels,
    out: Path,
    clean_files: Mapping[Path, CleanFile],
    patient_words: set[str],
) -> int:
    """Write the labels of de-identified images.

    Args:
        labels: the labels, to which skips and the written class names are added.
        out: folder to write to.
        clean_files: path of an image -> its de-identified file; labels of other images are left
            out.
        patient_words: words that name patients, which are removed from class names that are not
            medical terms.

    Returns:
        Number of images whose labels were written.
    """
    images: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    numbers: dict[str, int] = {}
    for annotation, path in [(annotation, path) for annotation, path in labels.pairs if path in clean_files]:
        clean_file = clean_files[path]
        try:
            if labels.kind == "nifti":
                write_volume(annotation.files[0], out / clean_file.name)
                images.append({})
                continue
            if clean_file.size is None:
                raise Skipped(EXIF_ROTATED)
            targets = annotation.targets(clean_file.size)
        except Skipped as error:
            labels.skips.append(skip_from_error("labels", annotation.image, error))
            continue
        height, width = clean_file.size
        images.append({"id": len(images) + 1, "file_name": clean_file.name, "height": height, "width": width})
        for target in targets:
            number = numbers.setdefault(target.label, len(numbers) + 1)
            shape = {
                "id": len(shapes) + 1,
                "image_id": len(images),
                "category_id": number,
                "iscrowd": 0,
            }
            shapes.append(shape | _coco_geometry(target))

    class_names = _redact_class_names([*numbers, *labels.values.values()], patient_words)
    labels.classes = set(class_names.values())
    if labels.kind != "nifti":
        categories = [
            {
                "id": number,
                "name": class_names[label],
            }
            for label, number in numbers.items()
        ]
        document = {"images": images, "categories": categories, "annotations": shapes}
        write_json(out / f"{1 + len(list(out.glob('[0-9]*.json')))}.json", document)
    elif labels.values:
        write_json(
            out / "dataset.json",
            {"labels": {str(value): class_names[label] for value, label in labels.values.items()}},
        )
    return len(images)


def _redact_class_names(labels: list[str], patient_words: set[str]) -> dict[str, str]:
    """Remove words that name a patient from class names; the resulting names are all different.

    Medical terms are kept, even if they are also names.
    """
    redacted: dict[str, str] = {}
    for label in dict.fromkeys(labels):
        is_term = parse_label(label).term is not None or describe_requirements(label)
        text = label if is_term else redact_words(redact_birth_dates(label)[0], patient_words)[0]
        redacted[label] = text if text not in redacted.values() else f"{text} {len(redacted)}"
    return redacted


def _coco_geometry(target: PictureLabel) -> dict[str, Any]:
    """Return the mask or box of a label as fields of a COCO annotation."""
    if target.mask is not None:
        return {"segmentation": encode_mask(target.mask), "area": target.area}
    return {} if target.box is None else {"bbox": list(target.box), "area": target.area}


def write_volume(path: Path, out: Path) -> None:
    """Write a volume as NIfTI-1 with a minimal header: grid, position in space, data type.

    Args:
        path: the volume.
        out: file to write.

    Raises:
        Skipped: the file is not a complete NIfTI volume.
    """
    import nibabel

    loaded = open_volume(path)
    # Copy field by field: a header's free texts and extensions may name the patient.
    with skip_on_error("not a complete NIfTI file"):
        header = loaded.header
        slope, intercept = header.get_slope_inter() if hasattr(header, "get_slope_inter") else (None, None)
        stored = np.asanyarray(loaded.dataobj.get_unscaled())
        clean = nibabel.Nifti1Image(stored, loaded.affine, dtype=header.get_data_dtype())
        clean.header.set_zooms(header.get_zooms())
        clean.header.set_slope_inter(slope, intercept)
        if hasattr(header, "get_xyzt_units"):
            clean.header.set_xyzt_units(*header.get_xyzt_units())
        nibabel.save(clean, out)


def delete_labels(out: Path, images: Set[str]) -> None:
    """Delete the labels of images from a finished folder.

    Args:
        out: the folder.
        images: names of the images in it.
    """
    for image in images:
        (out / LABELS_FOLDER / image).unlink(missing_ok=True)
    for path in (out / LABELS_FOLDER).glob("[0-9]*.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        if image_ids := {entry["id"] for entry in document["images"] if entry["file_name"] in images}:
            document["images"] = [entry for entry in document["images"] if entry["id"] not in image_ids]
            document["annotations"] = [shape for shape in document["annotations"] if shape["image_id"] not in image_ids]
            write_json(path, document)
