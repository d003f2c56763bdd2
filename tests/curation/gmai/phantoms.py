"""Generated sources in every format that the GMAI pipeline reads, with known truth.

The pictures show ellipses at known positions on a noisy grey background.
"""

import json
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import yaml
from PIL import Image
from pydicom.dataset import Dataset
from pydicom.uid import CTImageStorage, RTStructureSetStorage, generate_uid

from curation.gmai.sources import read_sources
from curation.readers.pixels import Skipped
from curation.readers.units import list_units
from tests.curation.dicom_files import make_dicom, set_elements

SIDE_PX = 64
ORGAN_ELLIPSES = {
    "liver": (20, 40, 11, 9),
    "spleen": (48, 22, 7, 8),
    "kidney_left": (46, 44, 6, 7),
    "pancreas": (30, 20, 7, 5),
}
"""Label -> x, y, half width, half height."""
FINDINGS = ("Atelectasis", "Effusion", "Mass", "Pneumothorax")

TRUTH: dict[tuple[str, str, str], np.ndarray] = {}
"""(dataset, picture, label) -> mask of everything that was drawn at a known position."""


def record_truth(dataset, picture, masks):
    TRUTH.update({(dataset, picture, label): mask for label, mask in masks.items()})


def ellipse(x, y, rx, ry, shape=(SIDE_PX, SIDE_PX)):
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    return ((columns - x) / rx) ** 2 + ((rows - y) / ry) ** 2 <= 1


def draw(rng, labels):
    """Return (pixels, masks by label) of jittered ellipses on a unique background."""
    # A background of its own keeps pictures from counting as near-duplicates.
    coarse = rng.integers(20, 200, (8, 8)).astype(np.uint8)
    pixels = np.asarray(Image.fromarray(coarse).resize((SIDE_PX, SIDE_PX), Image.Resampling.BICUBIC)).astype(float)
    masks = {}
    for label in labels:
        x, y, rx, ry = ORGAN_ELLIPSES[label]
        masks[label] = ellipse(x + rng.integers(-2, 3), y + rng.integers(-2, 3), rx, ry)
        pixels[masks[label]] += 40
    return np.clip(pixels, 0, 255).astype(np.uint8), masks


def bounding_box(mask):
    """Return (x, y, width, height) of a mask."""
    rows, columns = np.nonzero(mask)
    return (int(columns.min()), int(rows.min()), int(np.ptp(columns)) + 1, int(np.ptp(rows)) + 1)


def save_png(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def folders(folder, rng, count=6):
    for label in ("Melanoma", "nevus", "BCC"):
        for number in range(count):
            save_png(folder / label / f"P{label[0]}{number}_a.png", draw(rng, [])[0])
    return {
        "name": "skin",
        "reader": "folders",
        "path": folder.name,
        "modality": "Dermoscopy",
        "patient": r"/(P\w\d+)_",
    }


def csv_many(folder, rng, count=12):
    rows = []
    for number in range(count):
        save_png(folder / "images" / f"{number:03}.png", draw(rng, [])[0])
        findings = list(rng.choice(FINDINGS, size=1 + number % 3, replace=False))
        row = {"file": f"{number:03}.png", "finding": "|".join(findings), "person": f"p{number // 2}"}
        rows.append(row | {"sex": "FM"[number % 2], "years": 30 + number})
    # a row whose image is missing
    rows.append({"file": "900.png", "finding": "Mass", "person": "p99", "sex": "F", "years": 1})
    pd.DataFrame(rows).to_csv(folder / "list.csv", index=False)
    return {
        "name": "chest", "reader": "csv", "path": f"{folder.name}/images", "annotations": f"{folder.name}/list.csv",
        "columns": {"image": "file", "label": "finding", "patient": "person", "sex": "sex", "age": "years"},
        "modality": "X-ray", "exhaustive": True, "region": "chest",
    }  # fmt: skip


def wide(folder, rng, count=12):
    """Write a table with one column per finding: 1, 0, -1 (uncertain) or blank (not stated)."""
    rows = []
    for number in range(count):
        save_png(folder / "images" / f"P{number // 2}" / f"view{number % 2}.png", draw(rng, [])[0])
        cells = dict(zip(FINDINGS, rng.choice(["1", "0", "0", "-1", ""], len(FINDINGS)), strict=True))
        rows.append({"Path": f"wide/images/P{number // 2}/view{number % 2}.png", "Sex": "FM"[number % 2]} | cells)
    pd.DataFrame(rows).to_csv(folder / "list.csv", index=False)
    return {
        "name": "wide", "reader": "wide", "path": f"{folder.name}/images", "annotations": f"{folder.name}/list.csv", "modality": "X-ray",
        "columns": {"image": "Path", "sex": "Sex", "labels": list(FINDINGS)}, "patient": r"(P\d+)/", "region": "chest",
    }  # fmt: skip


def draw_pictures(folder, dataset, rng, count, labels_of):
    """Draw and save pictures as <number>.png; yield (number, masks by label)."""
    for number in range(count):
        pixels, masks_by_label = draw(rng, labels_of(number))
        save_png(folder / f"{number}.png", pixels)
        record_truth(dataset, f"{number}.png", masks_by_label)
        yield number, masks_by_label


def coco(folder, rng, count=8):
    from pycocotools import mask as encoder

    images, annotations, names = [], [], list(ORGAN_ELLIPSES)
    for number, masks in draw_pictures(
        folder / "images", "coco-ct", rng, count, lambda number: names[: 2 + number % 3]
    ):
        images.append(
            {
                "id": number,
                "file_name": f"{number}.png",
                "width": SIDE_PX,
                "height": SIDE_PX,
                "patient_id": f"c{number}",
            }
        )
        for label, mask in masks.items():
            x, y, w, h = bounding_box(mask)
            annotation = {
                "image_id": number,
                "category_id": names.index(label) + 1,
                "bbox": [x, y, w, h],
            }
            # Masks as RLE, masks as polygons, and boxes only, in turn.
            if number % 3 == 0:
                rle = encoder.encode(np.asfortranarray(mask.astype(np.uint8)))
                annotation["segmentation"] = {"size": rle["size"], "counts": rle["counts"].decode()}
            elif number % 3 == 1:
                annotation["segmentation"] = [[x, y, x + w, y, x + w, y + h, x, y + h]]
            annotations.append(annotation)
    # an image that is not on disk
    images.append({"id": 99, "file_name": "gone.png", "width": SIDE_PX, "height": SIDE_PX})
    categories = [{"id": i + 1, "name": n} for i, n in enumerate(names)]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "instances.json").write_text(json.dumps(document))
    return {
        "name": "coco-ct", "reader": "coco", "path": f"{folder.name}/images", "modality": "CT",
        "annotations": f"{folder.name}/instances.json",
    }  # fmt: skip


def voc(folder, rng, count=6):
    for number, masks in draw_pictures(folder, "voc-us", rng, count, lambda number: list(ORGAN_ELLIPSES)[:3]):
        objects = ""
        for label, mask in masks.items():
            x, y, w, h = bounding_box(mask)
            # VOC counts pixels from 1 and includes the last one.
            box = f"<xmin>{x + 1}</xmin><ymin>{y + 1}</ymin><xmax>{x + w}</xmax><ymax>{y + h}</ymax>"
            objects += f"<object><name>{label}</name><bndbox>{box}</bndbox></object>"
        size = f"<size><width>{SIDE_PX}</width><height>{SIDE_PX}</height><depth>3</depth></size>"
        (folder / f"{number}.xml").write_text(
            f"<annotation><filename>{number}.png</filename>{size}{objects}</annotation>"
        )
    return {"name": "voc-us", "reader": "voc", "path": folder.name, "modality": "UltraSound"}


def yolo(folder, rng, count=6):
    names = list(ORGAN_ELLIPSES)
    (folder / "labels").mkdir()
    for number, masks in draw_pictures(folder / "images", "yolo-us", rng, count, lambda number: names[1:]):
        lines = []
        for label, mask in masks.items():
            x, y, w, h = bounding_box(mask)
            shares = ((x + w / 2) / SIDE_PX, (y + h / 2) / SIDE_PX, w / SIDE_PX, h / SIDE_PX)
            lines.append(" ".join(map(str, (names.index(label), *shares))))
        (folder / "labels" / f"{number}.txt").write_text("\n".join(lines))
    (folder / "labels" / "classes.txt").write_text("\n".join(names))
    return {
        "name": "yolo-us", "reader": "yolo", "path": f"{folder.name}/images", "modality": "UltraSound",
        "annotations": f"{folder.name}/labels",
    }  # fmt: skip


def masks(folder, rng, count=6):
    names = list(ORGAN_ELLIPSES)
    for picture_number, masks_by_label in draw_pictures(
        folder / "images",
        "masks-mr",
        rng,
        count,
        lambda picture_number: names[: 2 + picture_number % 3],
    ):
        indexed = np.zeros((SIDE_PX, SIDE_PX), np.uint8)
        for class_number, label in enumerate(names, 1):
            # An indexed mask has one class per pixel, so later labels cover earlier ones.
            indexed[masks_by_label.get(label, indexed > 255)] = class_number
        record_truth(
            "masks-mr",
            f"{picture_number}.png",
            {label: indexed == names.index(label) + 1 for label in masks_by_label},
        )
        save_png(folder / "masks" / f"{picture_number}.png", indexed)
    save_png(folder / "images" / "odd.png", draw(rng, names)[0])
    # a mask whose size differs from its image's
    save_png(folder / "masks" / "odd.png", np.ones((SIDE_PX // 2, SIDE_PX), np.uint8))
    return {
        "name": "masks-mr", "reader": "masks", "path": f"{folder.name}/images", "annotations": f"{folder.name}/masks", "modality": "MRI",
        "classes": dict(enumerate(names, 1)),
    }  # fmt: skip


def draw_volume(rng, names, slices=7):
    """Return values in HU and class numbers, both (slices, rows, columns).

    Axial; the first row is anterior, the first column the patient's right.
    """
    values = np.full((slices, SIDE_PX, SIDE_PX), -100.0, np.float32) + rng.normal(
        0, 5, (slices, SIDE_PX, SIDE_PX)
    ).astype(np.float32)
    coarse = rng.integers(-60, 60, (8, 8)).astype(np.float32)
    values += np.asarray(Image.fromarray(coarse).resize((SIDE_PX, SIDE_PX), Image.Resampling.BICUBIC))
    label = np.zeros(values.shape, np.uint8)
    for number, name in enumerate(names, 1):
        x, y, rx, ry = ORGAN_ELLIPSES[name]
        for index in range(number, min(number + 3, slices)):  # two or three organs per slice
            shrink = 1 - 0.1 * abs(index - number - 1)
            label[index][ellipse(x, y, rx * shrink, ry * shrink)] = number
            values[index][ellipse(x, y, rx * shrink, ry * shrink)] += 120
    return values, label


def save_volume(path, image, affine=None):
    """Save a NIfTI image, or an array with an affine (default: the identity)."""
    if isinstance(image, np.ndarray):
        image = nibabel.Nifti1Image(image, np.eye(4) if affine is None else affine)
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(image, path)


def masks_of_plane(plane, names):
    return {name: plane == number for number, name in enumerate(names, 1) if (plane == number).any()}


def nifti(folder, rng, count=4):
    names = list(ORGAN_ELLIPSES)
    for number in range(count):
        values, label = draw_volume(rng, names)
        for index, plane in enumerate(label):
            key = f"n{number}_0000.nii.gz slice {index}"
            record_truth("nifti-ct", key, masks_of_plane(plane, names))
        # LPS slices as an RAS+ array, so x is flipped; every second volume in another axis order.
        affine = np.diag([-1.5, -1.5, 3.0, 1.0])
        for path, array in ((f"images/n{number}_0000.nii.gz", values), (f"labels/n{number}.nii.gz", label)):
            image = nibabel.Nifti1Image(array.transpose(2, 1, 0), affine)
            # Other axis order, same anatomy: the pictures must be the same.
            save_volume(folder / path, nibabel.as_closest_canonical(image) if number % 2 else image)
    # a volume that readers must skip
    save_volume(folder / "images" / "four.nii.gz", np.zeros((8, 8, 4, 3), np.float32))
    save_volume(folder / "labels" / "four.nii.gz", np.zeros((8, 8, 4), np.uint8))
    (folder / "dataset.json").write_text(
        json.dumps({"labels": {"background": 0, **{n: i for i, n in enumerate(names, 1)}}})
    )
    return {
        "name": "nifti-ct", "reader": "nifti", "path": f"{folder.name}/images", "annotations": f"{folder.name}/labels", "modality": "CT",
        "slices": 2,
    }  # fmt: skip


def ct_slices(folder, values, patient, prefix):
    """Write a CT series as files; return its datasets."""
    study, series, frame = (generate_uid(entropy_srcs=[prefix, word]) for word in ("study", "series", "frame"))
    datasets = []
    folder.mkdir(parents=True, exist_ok=True)
    for index, plane in enumerate(values):
        data = make_dicom(
            (plane + 1024).clip(0, 4095), 12,
            SOPClassUID=CTImageStorage, SOPInstanceUID=generate_uid(entropy_srcs=[prefix, str(index)]),
            StudyInstanceUID=study, SeriesInstanceUID=series, FrameOfReferenceUID=frame,
            Modality="CT", SeriesNumber=1, InstanceNumber=index + 1, Manufacturer="made",
            # Identifying values are set, so that tests can check that they do not leave.
            PatientID=patient, PatientName="Doe^Jane", PatientSex="F", PatientAge="061Y",
            PatientBirthDate="", StudyDate="", StudyTime="", AccessionNumber="", StudyID="",
            PositionReferenceIndicator="", ReferringPhysicianName="",
            ImagePositionPatient=[-40.0, -40.0, 3.0 * index], ImageOrientationPatient=[1, 0, 0, 0, 1, 0],
            PixelSpacing=[1.5, 1.5], SliceThickness=3.0, RescaleSlope=1, RescaleIntercept=-1024,
        )  # fmt: skip
        data.save_as(folder / f"{prefix}{index}.dcm", enforce_file_format=True)
        datasets.append(data)
    return datasets


def dicom(folder, rng, count=3):
    import highdicom
    from highdicom.sr import CodedConcept

    names = list(ORGAN_ELLIPSES)
    for case_number in range(count):
        values, label = draw_volume(rng, names)
        slices = ct_slices(folder / f"case{case_number}", values, f"MRN{case_number}", f"s{case_number}-")
        for index, plane in enumerate(label):
            key = f"case{case_number}/{'rt' if case_number == 2 else 'seg'}.dcm slice {index + 1}"
            record_truth("dicom-ct", key, masks_of_plane(plane, names))
        if case_number == 2:
            write_rtstruct(folder / f"case{case_number}" / "rt.dcm", slices, label, names)
            continue
        descriptions = [
            highdicom.seg.SegmentDescription(
                number, name, CodedConcept("123037004", "SCT", "Anatomical Structure"), CodedConcept("10200004", "SCT", "Liver structure"),
                highdicom.seg.SegmentAlgorithmTypeValues.MANUAL,
            )
            for number, name in enumerate(names, 1)
        ]  # fmt: skip
        highdicom.seg.Segmentation(
            source_images=slices, pixel_array=label, segmentation_type=highdicom.seg.SegmentationTypeValues.BINARY,
            segment_descriptions=descriptions, series_instance_uid=generate_uid(), series_number=2, sop_instance_uid=generate_uid(),
            instance_number=1, manufacturer="made", manufacturer_model_name="made", software_versions="1", device_serial_number="1",
        ).save_as(folder / f"case{case_number}" / "seg.dcm")  # fmt: skip
    return {"name": "dicom-ct", "reader": "dicom", "path": folder.name, "slices": 2}


def write_rtstruct(path, slices, label, names):
    """Write an RTSTRUCT whose contours follow the outer pixel edges of the ellipses."""
    regions, contours_of_regions = [], []
    for number, name in enumerate(names, 1):
        contours = []
        for index, plane in enumerate(label):
            if (plane == number).any():
                # Trace the outer edge of each row of pixels: down the right side, up the left.
                spans = [
                    (row, columns) for row, line in enumerate(plane == number) if len(columns := np.flatnonzero(line))
                ]
                corners = [(columns[-1] + 0.5, row + side) for row, columns in spans for side in (-0.5, 0.5)]
                corners += [(columns[0] - 0.5, row + side) for row, columns in reversed(spans) for side in (0.5, -0.5)]
                image = as_dataset(
                    ReferencedSOPClassUID=CTImageStorage, ReferencedSOPInstanceUID=slices[index].SOPInstanceUID
                )
                points = [v for cx, cy in corners for v in (-40 + 1.5 * cx, -40 + 1.5 * cy, 3.0 * index)]
                contour = as_dataset(
                    ContourImageSequence=[image],
                    ContourGeometricType="CLOSED_PLANAR",
                    NumberOfContourPoints=len(corners),
                    ContourData=points,
                )
                contours.append(contour)
        regions.append(as_dataset(ROINumber=number, ROIName=name))
        contours_of_regions.append(as_dataset(ReferencedROINumber=number, ContourSequence=contours))
    data = make_dicom(
        SOPClassUID=RTStructureSetStorage, SOPInstanceUID=generate_uid(), Modality="RTSTRUCT",
        PatientID=slices[0].PatientID, StructureSetROISequence=regions, ROIContourSequence=contours_of_regions,
    )  # fmt: skip
    data.save_as(path, enforce_file_format=True)


def as_dataset(**elements):
    data = Dataset()
    set_elements(data, elements)
    return data


SOURCE_WRITERS = {f.__name__: f for f in (folders, csv_many, wide, coco, voc, yolo, masks, nifti, dicom)}


def write_all(base: Path, only=None, **settings):
    """Write all sources below `base`; return the path of sources.yaml."""
    datasets = []
    for seed, (name, write_source) in enumerate(SOURCE_WRITERS.items()):
        if only is None or name in only:
            (base / name).mkdir(parents=True, exist_ok=True)
            datasets.append(write_source(base / name, np.random.default_rng([0, seed])))
    return write_sources(base, *datasets, **settings)


def write_sources(base: Path, *datasets, **settings):
    """Write sources.yaml with these datasets; return its path."""
    path = base / "sources.yaml"
    path.write_text(yaml.safe_dump({"datasets": list(datasets), **settings}, sort_keys=False))
    return path


def read_dataset(base: Path, **entry):
    """Return the `SourceDataset` of one entry of sources.yaml."""
    (dataset,) = read_sources(write_sources(base, {"name": "x", "modality": "CT", **entry})).datasets
    return dataset


def load_pictures(dataset):
    """Return (pictures, skips as (subject, reason)) of all units of a dataset."""
    units, skips = list_units(dataset)
    pictures, reasons = [], [(skip.subject, skip.reason) for skip in skips]
    for unit in units:
        try:
            pictures += unit.load(unit)
        except Skipped as reason:
            reasons.append((unit.key, str(reason)))
        reasons += [(unit.key, reason) for reason in unit.skips]
    return pictures, reasons
