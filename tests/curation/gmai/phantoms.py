"""Made sources of every format the GMAI pipeline reads, with known truth: ellipses of known place on noisy grey pictures."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

SIDE = 64
ORGANS = {"liver": (20, 40, 11, 9), "spleen": (48, 22, 7, 8), "kidney_left": (46, 44, 6, 7), "pancreas": (30, 20, 7, 5)}
"""label -> x, y, half width, half height"""
FINDINGS = ("Atelectasis", "Effusion", "Mass", "Pneumothorax")


TRUTH: dict[tuple[str, str, str], np.ndarray] = {}
"""(dataset, picture, label) -> mask, of everything that was drawn with a place."""


def remember(dataset, picture, masks):
    TRUTH.update({(dataset, picture, label): mask for label, mask in masks.items()})


@dataclass
class Drawn:
    pixels: np.ndarray
    masks: dict[str, np.ndarray]


def ellipse(x, y, rx, ry, shape=(SIDE, SIDE)):
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    return ((columns - x) / rx) ** 2 + ((rows - y) / ry) ** 2 <= 1


def draw(rng, labels):
    """A picture with the ellipses of these labels, each moved a little; every picture has a pattern of its own."""
    coarse = rng.integers(20, 200, (8, 8)).astype(np.uint8)
    pixels = np.asarray(Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)).astype(float)
    masks = {}
    for label in labels:
        x, y, rx, ry = ORGANS[label]
        masks[label] = ellipse(x + rng.integers(-2, 3), y + rng.integers(-2, 3), rx, ry)
        pixels[masks[label]] += 40
    return Drawn(np.clip(pixels, 0, 255).astype(np.uint8), masks)


def box_of(mask):
    """x, y, width, height"""
    rows, columns = np.nonzero(mask)
    return (int(columns.min()), int(rows.min()), int(np.ptp(columns)) + 1, int(np.ptp(rows)) + 1)


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def folders(folder, rng, count=6):
    for label in ("Melanoma", "nevus", "BCC"):
        for k in range(count):
            save(folder / label / f"P{label[0]}{k}_a.png", draw(rng, []).pixels)
    return {
        "name": "skin",
        "reader": "folders",
        "path": folder.name,
        "modality": "Dermoscopy",
        "patient": r"/(P\w\d+)_",
    }


def csv_many(folder, rng, count=12):
    rows = []
    for k in range(count):
        save(folder / "images" / f"{k:03}.png", draw(rng, []).pixels)
        some = list(rng.choice(FINDINGS, size=1 + k % 3, replace=False))
        row = {"file": f"{k:03}.png", "finding": "|".join(some), "person": f"p{k // 2}"}
        rows.append(row | {"sex": "FM"[k % 2], "years": 30 + k})
    rows.append({"file": "900.png", "finding": "Mass", "person": "p99", "sex": "F", "years": 1})
    pd.DataFrame(rows).to_csv(folder / "list.csv", index=False)
    columns = {"image": "file", "label": "finding", "patient": "person", "sex": "sex", "age": "years"}
    return {
        "name": "chest", "reader": "csv", "path": f"{folder.name}/images", "annotations": f"{folder.name}/list.csv", "modality": "X-ray",
        "columns": columns, "exhaustive": True, "region": "chest",
    }  # fmt: skip


def wide(folder, rng, count=12):
    """A column per finding: 1, 0, -1 (uncertain) or blank (not stated)."""
    rows = []
    for k in range(count):
        save(folder / "images" / f"P{k // 2}" / f"view{k % 2}.png", draw(rng, []).pixels)
        cells = dict(zip(FINDINGS, rng.choice(["1", "0", "0", "-1", ""], len(FINDINGS)), strict=True))
        rows.append({"Path": f"wide/images/P{k // 2}/view{k % 2}.png", "Sex": "FM"[k % 2]} | cells)
    pd.DataFrame(rows).to_csv(folder / "list.csv", index=False)
    return {
        "name": "wide", "reader": "wide", "path": f"{folder.name}/images", "annotations": f"{folder.name}/list.csv", "modality": "X-ray",
        "columns": {"image": "Path", "sex": "Sex", "labels": list(FINDINGS)}, "patient": r"(P\d+)/", "region": "chest",
    }  # fmt: skip


def drawings(folder, dataset, rng, count, labels_of):
    """(number, masks by label) of drawn pictures, saved as <number>.png."""
    for k in range(count):
        drawn = draw(rng, labels_of(k))
        save(folder / f"{k}.png", drawn.pixels)
        remember(dataset, f"{k}.png", drawn.masks)
        yield k, drawn.masks


def coco(folder, rng, count=8):
    from pycocotools import mask as encoder

    images, annotations, names = [], [], list(ORGANS)
    for k, drawn in drawings(folder / "images", "coco-ct", rng, count, lambda k: names[: 2 + k % 3]):
        images.append({"id": k, "file_name": f"{k}.png", "width": SIDE, "height": SIDE, "patient_id": f"c{k}"})
        for label, mask in drawn.items():
            x, y, w, h = box_of(mask)
            common = {"image_id": k, "category_id": names.index(label) + 1, "bbox": [x, y, w, h]}
            if k % 3 == 0:
                rle = encoder.encode(np.asfortranarray(mask.astype(np.uint8)))
                common["segmentation"] = {"size": rle["size"], "counts": rle["counts"].decode()}
            elif k % 3 == 1:
                common["segmentation"] = [[x, y, x + w, y, x + w, y + h, x, y + h]]
            annotations.append(common)
    images.append({"id": 99, "file_name": "gone.png", "width": SIDE, "height": SIDE})
    categories = [{"id": i + 1, "name": n} for i, n in enumerate(names)]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "instances.json").write_text(json.dumps(document))
    return {
        "name": "coco-ct", "reader": "coco", "path": f"{folder.name}/images", "modality": "CT",
        "annotations": f"{folder.name}/instances.json",
    }  # fmt: skip


def voc(folder, rng, count=6):
    for k, drawn in drawings(folder, "voc-us", rng, count, lambda k: list(ORGANS)[:3]):
        objects = ""
        for label, mask in drawn.items():
            x, y, w, h = box_of(mask)
            box = f"<xmin>{x + 1}</xmin><ymin>{y + 1}</ymin><xmax>{x + w}</xmax><ymax>{y + h}</ymax>"
            objects += f"<object><name>{label}</name><bndbox>{box}</bndbox></object>"
        size = f"<size><width>{SIDE}</width><height>{SIDE}</height><depth>3</depth></size>"
        (folder / f"{k}.xml").write_text(f"<annotation><filename>{k}.png</filename>{size}{objects}</annotation>")
    return {"name": "voc-us", "reader": "voc", "path": folder.name, "modality": "UltraSound"}


def yolo(folder, rng, count=6):
    names = list(ORGANS)
    (folder / "labels").mkdir()
    for k, drawn in drawings(folder / "images", "yolo-us", rng, count, lambda k: names[1:]):
        lines = []
        for label, mask in drawn.items():
            x, y, w, h = box_of(mask)
            shares = ((x + w / 2) / SIDE, (y + h / 2) / SIDE, w / SIDE, h / SIDE)
            lines.append(" ".join(map(str, (names.index(label), *shares))))
        (folder / "labels" / f"{k}.txt").write_text("\n".join(lines))
    (folder / "labels" / "classes.txt").write_text("\n".join(names))
    return {
        "name": "yolo-us", "reader": "yolo", "path": f"{folder.name}/images", "modality": "UltraSound",
        "annotations": f"{folder.name}/labels",
    }  # fmt: skip


def masks(folder, rng, count=6):
    names = list(ORGANS)
    for k, drawn in drawings(folder / "images", "masks-mr", rng, count, lambda k: names[: 2 + k % 3]):
        indexed = np.zeros((SIDE, SIDE), np.uint8)
        for number, label in enumerate(names, 1):
            indexed[drawn.get(label, indexed > 255)] = number
        remember("masks-mr", f"{k}.png", {label: indexed == names.index(label) + 1 for label in drawn})
        save(folder / "masks" / f"{k}.png", indexed)
    save(folder / "images" / "odd.png", draw(rng, names).pixels)
    save(folder / "masks" / "odd.png", np.ones((SIDE // 2, SIDE), np.uint8))
    return {
        "name": "masks-mr", "reader": "masks", "path": f"{folder.name}/images", "annotations": f"{folder.name}/masks", "modality": "MRI",
        "classes": dict(enumerate(names, 1)),
    }  # fmt: skip


def volume(rng, names, slices=7):
    """(values in HU (slices, rows, columns), label values): axial, first row is the front, first column the patient's right."""
    values = np.full((slices, SIDE, SIDE), -100.0, np.float32) + rng.normal(0, 5, (slices, SIDE, SIDE)).astype(
        np.float32
    )
    coarse = rng.integers(-60, 60, (8, 8)).astype(np.float32)
    values += np.asarray(Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC))
    label = np.zeros(values.shape, np.uint8)
    for number, name in enumerate(names, 1):
        x, y, rx, ry = ORGANS[name]
        for at in range(number, min(number + 3, slices)):  # a slice shows two or three of the four
            shrink = 1 - 0.1 * abs(at - number - 1)
            label[at][ellipse(x, y, rx * shrink, ry * shrink)] = number
            values[at][ellipse(x, y, rx * shrink, ry * shrink)] += 120
    return values, label


def regions(plane, names):
    return {name: plane == number for number, name in enumerate(names, 1) if (plane == number).any()}


def nifti(folder, rng, count=4):
    import nibabel

    names = list(ORGANS)
    for k in range(count):
        values, label = volume(rng, names)
        for at, plane in enumerate(label):
            key = f"n{k}_0000.nii.gz slice {at}"
            remember("nifti-ct", key, regions(plane, names))
        # LPS slices -> an RAS+ array (x to the patient's left is column up, so x is turned), and once stored in another order.
        affine = np.diag([-1.5, -1.5, 3.0, 1.0])
        for sub, array in (("images", values), ("labels", label)):
            stored = array.transpose(2, 1, 0)
            image = nibabel.Nifti1Image(stored, affine)
            if k % 2:
                image = nibabel.as_closest_canonical(image)
            (folder / sub).mkdir(parents=True, exist_ok=True)
            nibabel.save(image, folder / sub / (f"n{k}_0000.nii.gz" if sub == "images" else f"n{k}.nii.gz"))
    four = nibabel.Nifti1Image(np.zeros((8, 8, 4, 3), np.float32), np.eye(4))
    nibabel.save(four, folder / "images" / "four.nii.gz")
    nibabel.save(nibabel.Nifti1Image(np.zeros((8, 8, 4), np.uint8), np.eye(4)), folder / "labels" / "four.nii.gz")
    (folder / "dataset.json").write_text(
        json.dumps({"labels": {"background": 0, **{n: i for i, n in enumerate(names, 1)}}})
    )
    return {
        "name": "nifti-ct", "reader": "nifti", "path": f"{folder.name}/images", "annotations": f"{folder.name}/labels", "modality": "CT",
        "slices": 2,
    }  # fmt: skip


def ct_slices(folder, values, patient, prefix):
    """The slices of a CT series as files; returns their data sets."""
    import pydicom
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    study, series, frame = (generate_uid(entropy_srcs=[prefix, word]) for word in ("study", "series", "frame"))
    made = []
    folder.mkdir(parents=True, exist_ok=True)
    for at, plane in enumerate(values):
        data = pydicom.Dataset()
        data.file_meta = pydicom.dataset.FileMetaDataset()
        data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        data.SOPClassUID = data.file_meta.MediaStorageSOPClassUID = CTImageStorage
        data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=[prefix, str(at)])
        data.StudyInstanceUID, data.SeriesInstanceUID, data.FrameOfReferenceUID = study, series, frame
        data.Modality, data.PatientID, data.PatientName = "CT", patient, "Doe^Jane"
        data.PatientSex, data.PatientAge = "F", "061Y"
        data.PatientBirthDate = data.StudyDate = data.StudyTime = data.AccessionNumber = data.StudyID = ""
        data.SeriesNumber, data.InstanceNumber, data.Manufacturer = 1, at + 1, "made"
        data.PositionReferenceIndicator = data.ReferringPhysicianName = ""
        data.ImagePositionPatient, data.ImageOrientationPatient = [-40.0, -40.0, 3.0 * at], [1, 0, 0, 0, 1, 0]
        data.PixelSpacing, data.SliceThickness = [1.5, 1.5], 3.0
        data.Rows, data.Columns = plane.shape
        data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
        data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 16, 12, 11, 0
        data.RescaleSlope, data.RescaleIntercept = 1, -1024
        data.PixelData = (plane + 1024).clip(0, 4095).astype(np.uint16).tobytes()
        data.save_as(folder / f"{prefix}{at}.dcm", enforce_file_format=True)
        made.append(data)
    return made


def dicom(folder, rng, count=3):
    import highdicom
    from highdicom.sr import CodedConcept
    from pydicom.uid import generate_uid

    names = list(ORGANS)
    for k in range(count):
        values, label = volume(rng, names)
        slices = ct_slices(folder / f"case{k}", values, f"MRN{k}", f"s{k}-")
        for at, plane in enumerate(label):
            key = f"case{k}/{'rt' if k == 2 else 'seg'}.dcm slice {at + 1}"
            remember("dicom-ct", key, regions(plane, names))
        if k == 2:
            structures(folder / f"case{k}" / "rt.dcm", slices, label, names)
            continue
        described = [
            highdicom.seg.SegmentDescription(
                number, name, CodedConcept("123037004", "SCT", "Anatomical Structure"), CodedConcept("10200004", "SCT", "Liver structure"),
                highdicom.seg.SegmentAlgorithmTypeValues.MANUAL,
            )
            for number, name in enumerate(names, 1)
        ]  # fmt: skip
        highdicom.seg.Segmentation(
            source_images=slices, pixel_array=label, segmentation_type=highdicom.seg.SegmentationTypeValues.BINARY,
            segment_descriptions=described, series_instance_uid=generate_uid(), series_number=2, sop_instance_uid=generate_uid(),
            instance_number=1, manufacturer="made", manufacturer_model_name="made", software_versions="1", device_serial_number="1",
        ).save_as(folder / f"case{k}" / "seg.dcm")  # fmt: skip
    return {"name": "dicom-ct", "reader": "dicom", "path": folder.name, "slices": 2}


def structures(path, slices, label, names):
    """An RTSTRUCT whose contours run around the ellipses, along the edges of their outermost pixels."""
    import pydicom
    from pydicom.uid import ExplicitVRLittleEndian, RTStructureSetStorage, generate_uid

    data = pydicom.Dataset()
    data.file_meta = pydicom.dataset.FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.SOPClassUID = data.file_meta.MediaStorageSOPClassUID = RTStructureSetStorage
    data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    data.Modality, data.PatientID = "RTSTRUCT", slices[0].PatientID
    data.StructureSetROISequence, data.ROIContourSequence = [], []
    for number, name in enumerate(names, 1):
        region, drawn = pydicom.Dataset(), pydicom.Dataset()
        region.ROINumber, region.ROIName = number, name
        drawn.ReferencedROINumber, drawn.ContourSequence = number, []
        for at, plane in enumerate(label):
            if (plane == number).any():
                spans = [(row, found) for row, line in enumerate(plane == number) if len(found := np.flatnonzero(line))]
                corners = [(found[-1] + 0.5, row + side) for row, found in spans for side in (-0.5, 0.5)]
                corners += [(found[0] - 0.5, row + side) for row, found in reversed(spans) for side in (0.5, -0.5)]
                contour, image = pydicom.Dataset(), pydicom.Dataset()
                image.ReferencedSOPClassUID = slices[at].SOPClassUID
                image.ReferencedSOPInstanceUID = slices[at].SOPInstanceUID
                contour.ContourImageSequence, contour.ContourGeometricType = [image], "CLOSED_PLANAR"
                contour.NumberOfContourPoints = len(corners)
                contour.ContourData = [v for cx, cy in corners for v in (-40 + 1.5 * cx, -40 + 1.5 * cy, 3.0 * at)]
                drawn.ContourSequence.append(contour)
        data.StructureSetROISequence.append(region)
        data.ROIContourSequence.append(drawn)
    data.save_as(path, enforce_file_format=True)


MAKERS = {f.__name__: f for f in (folders, csv_many, wide, coco, voc, yolo, masks, nifti, dicom)}


def write_all(base: Path, only=None, **settings):
    """Every source below `base`, and sources.yaml; returns its path."""
    import yaml

    datasets = []
    for at, (name, make) in enumerate(MAKERS.items()):
        if only is None or name in only:
            (base / name).mkdir(parents=True, exist_ok=True)
            datasets.append(make(base / name, np.random.default_rng([0, at])))
    path = base / "sources.yaml"
    path.write_text(yaml.safe_dump({"datasets": datasets, **settings}, sort_keys=False))
    return path
