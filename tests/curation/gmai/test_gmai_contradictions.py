"""One contradiction is enough to refuse a dataset, for every reader, and the message names the
entry.

Ambiguous headers and masks are read as viewers show them, by `gmai` and by `deidentify`.
"""

import copy
import io
import json
import random
import re
from collections import defaultdict
from functools import partial
from xml.etree import ElementTree

import nibabel
import numpy as np
import pandas as pd
import pydicom
import pytest
from PIL import Image

from curation.deidentify.image_folder import deidentify_folder
from curation.deidentify.image_labels import load_image_labels
from curation.gmai.pipeline import run_pipeline
from curation.gmai.sources import read_items, read_sources
from curation.readers.pictures import refuse_contradictions
from curation.readers.pixels import IGNORED_ELEMENT
from curation.readers.shapes import fill_polygons
from curation.readers.units import _fill_nested, list_units
from tests.curation.gmai.phantoms import (
    ORGAN_ELLIPSES,
    SIDE_PX,
    ellipse,
    load_pictures,
    read_dataset,
    save_png,
    save_volume,
    write_all,
    write_sources,
)
from tests.curation.gmai.test_gmai_readers import write_dicom
from tests.helpers import edit_json, refused
from tests.sampling import few

ORGAN_NAMES = list(ORGAN_ELLIPSES)


def change_lines(base, change):
    for path in sorted((base / "labels").glob("[0-9]*.txt")):
        rows = [line.split() for line in path.read_text().splitlines()]
        path.write_text("\n".join(" ".join(map(str, change(number, list(map(float, row))))) for number, *row in rows))


def yolo(base, rng):
    class_list = "\n".join(ORGAN_NAMES)

    def corners(number, row):
        x, y, w, h = row
        return number, x + w / 2, y + h / 2, x + w, y + h

    shuffled = rng.sample(ORGAN_NAMES, 4)
    # An unchanged order would not contradict anything.
    while shuffled == ORGAN_NAMES:
        shuffled = rng.sample(ORGAN_NAMES, 4)
    categories = [{"id": number, "name": name} for number, name in enumerate(shuffled)]
    return {
        "counts from 1": (
            lambda: change_lines(base, lambda number, row: (int(number) + 1, *row)),
            "class has no name",
        ),
        "blank line": (
            lambda: (base / "labels/classes.txt").write_text("\n" + class_list),
            "blank line",
        ),
        "yaml above": (
            lambda: (base / "data.yaml").write_text(f"nc: 4\nnames: {shuffled}"),
            "differently",
        ),
        "yaml beside": (
            lambda: (base / "images/x.yaml").write_text(f"names: {shuffled}"),
            "differently",
        ),
        "too few": (
            lambda: (base / "data.yaml").write_text(f"nc: 5\nnames: {ORGAN_NAMES}"),
            "not a list of classes",
        ),
        "notes": (
            lambda: (base / "notes.json").write_text(json.dumps({"categories": categories})),
            "differently",
        ),
        "keypoints": (
            lambda: (base / "pose.yaml").write_text(f"names: {ORGAN_NAMES}\nkpt_shape: [17, 2]"),
            "not a list of classes",
        ),
        "a key twice": (
            lambda: (base / "data.yaml").write_text(f"{{names: {{0: {ORGAN_NAMES[0]}, 0: {ORGAN_NAMES[1]}}}}}"),
            "not a list of classes",
        ),
        "corners": (lambda: change_lines(base, corners), "outside"),
        "pixels": (
            lambda: change_lines(base, lambda number, row: (number, *(64 * n for n in row))),
            "outside 0 to 1",
        ),
    }


def coco(base, rng):
    from pycocotools import mask as encoder

    file = base / "instances.json"
    document = json.loads(file.read_text())
    marks = document["annotations"]
    rle_marks = [mark for mark in marks if isinstance(mark.get("segmentation"), dict)]

    def write(marks=marks, **replaced):
        file.write_text(json.dumps(document | {"annotations": marks} | replaced))

    def redrawn(change):
        # a single mask: one contradiction must be enough
        for mark in rng.sample(rle_marks, 1):
            mask = change(encoder.decode(mark["segmentation"]).astype(np.uint8))
            mark["segmentation"]["counts"] = encoder.encode(np.asfortranarray(mask))["counts"].decode()
        write()

    def as_corners():
        # Read as x, y, width, height, these boxes disagree with their area or leave their image.
        for mark in (mark for mark in marks if not mark.get("segmentation")):
            x, y, w, h = mark["bbox"]
            mark |= {"bbox": [x, y, x + w, y + h], "area": w * h}
        write()

    def smaller(**sizes):
        for path in (base / "images").glob("*.png"):
            save_png(path, np.asarray(Image.open(path).resize((SIDE_PX // 2, SIDE_PX // 2))))
        write(images=[{k: v for k, v in image.items() if k not in sizes} for image in document["images"]])

    duplicate_categories = [*document["categories"], {"id": 1, "name": "spleen"}]
    duplicate_images = [*document["images"], document["images"][0] | {"file_name": "x.png"}]
    random_mark = rng.choice(marks)
    return {
        "counts from 0": (lambda: write([m | {"category_id": m["category_id"] - 1} for m in marks]), "not listed"),
        "image ids": (lambda: write([m | {"image_id": m["image_id"] - 1} for m in marks]), "not listed"),
        "corners": (as_corners, "box"),
        "smaller": (lambda: smaller(width=0, height=0), "outside|size"),
        "smaller, size stated": (smaller, "size"),
        "by rows": (lambda: redrawn(lambda mask: mask.ravel(order="C").reshape(mask.shape, order="F")), "own bbox|own area"),
        "inverted": (lambda: redrawn(lambda mask: 1 - mask), "own bbox|own area"),
        "x and y": (lambda: redrawn(lambda mask: np.ascontiguousarray(mask.T)), "own bbox"),
        "two names": (lambda: write(categories=duplicate_categories), "two names"),
        "one id": (lambda: write(images=duplicate_images), "share its id"),
        "one box": (
            lambda: write([
                mark if mark is not random_mark else {**mark, "segmentation": [], "bbox": [60, 1, 9, 9]}
                for mark in marks
            ]),
            "outside",
        ),
    }  # fmt: skip


def voc(base, rng):
    pages = sorted(base.glob("*.xml"))

    def edit(change, pages=pages):
        for page in pages:
            # Keep all other content, so that only the planted contradiction can be found.
            tree = ElementTree.parse(page)
            change(tree.getroot(), page)
            tree.write(page)

    def as_sizes(root, page):
        for box in root.iter("bndbox"):
            left_px, top_px, right_px, bottom_px = (int(side.text) for side in box)
            box[2].text, box[3].text = str(right_px - left_px + 1), str(bottom_px - top_px + 1)

    def smaller(root, page):
        root.remove(root.find("size"))
        save_png(
            page.with_suffix(".png"),
            np.asarray(Image.open(page.with_suffix(".png")).resize((32, 32))),
        )

    def renamed(root, page):
        root.find("filename").text = f"{(int(page.stem) + 1) % len(pages)}.png"

    def larger(root, page):
        root.find("size/width").text = "640"

    return {
        "sizes": (lambda: edit(as_sizes), "no area"),
        "smaller": (lambda: edit(smaller), "outside"),
        "renamed": (lambda: edit(renamed), "belongs to another image"),
        "size": (lambda: edit(larger, [rng.choice(pages)]), "size"),
    }


def masks(base, rng):
    path = base / "masks" / f"{rng.randrange(6)}.png"
    values = np.asarray(Image.open(path))

    def blurred():
        Image.fromarray(values).save(path.with_suffix(".jpg"), quality=80)
        path.unlink()

    def by_palette(order):
        image = Image.fromarray(np.array(order, np.uint8)[values], "P")
        # A grey palette in any order is valid: its grey values are the class numbers, so one of
        # them has no name.
        image.putpalette([level for index in range(5) for level in [60 * order.index(index)] * 3])
        image.save(path)

    def coloured(suffix):
        colours = np.array([[0, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255], [9, 9, 255]], np.uint8)[values]
        path.unlink()
        Image.fromarray(colours).quantize(5).save(path.with_suffix(suffix))

    return {
        "quantized": (lambda: coloured(".png"), "arbitrary palette indices"),
        "coloured GIF": (lambda: coloured(".gif"), "arbitrary palette indices"),
        "no name": (
            lambda: save_png(path, np.where(values == 1, 9, values).astype(np.uint8)),
            "no name",
        ),
        "jpeg": (blurred, "lossy compression"),
        "palette": (lambda: by_palette([3, 0, 1, 2, 4]), "no name"),
    }


def nifti(base, rng):
    path = base / rng.choice(("images", "labels")) / "n1_0000.nii.gz"
    # Labels have no channel suffix.
    path = path if path.is_file() else base / "labels" / "n1.nii.gz"
    lists = {"labels": {"background": 0, **{name: 4 - at for at, name in enumerate(ORGAN_NAMES)}}}

    def forms(change, code):
        image = nibabel.load(path)
        image = nibabel.Nifti1Image(np.asanyarray(image.dataobj), image.affine)
        image.set_sform(image.affine, 1)
        image.set_qform(change(image.affine.copy()), code)
        nibabel.save(image, path)

    # More than a rounding error, less than a patient's size.
    def moved(affine):
        affine[:3, 3] += 5
        return affine

    value = rng.choice(ORGAN_NAMES)
    return {
        "flipped": (lambda: forms(lambda affine: affine @ np.diag([-1, 1, 1, 1.0]), rng.randint(1, 4)), "qform disagree"),
        "moved": (lambda: forms(moved, 1), "qform disagree"),
        "two names": (lambda: edit_json(base / "dataset.json", lambda d: d["labels"].update({"other": d["labels"][value]})), "two names"),
        "two lists": (lambda: (base / "labels/dataset.json").write_text(json.dumps(lists)), "differently"),
        "no name": (lambda: edit_json(base / "dataset.json", lambda d: d["labels"].pop(value)), "has no name"),
    }  # fmt: skip


def dicom(base, rng):
    def edit(change, name="case2/rt.dcm"):
        data = pydicom.dcmread(base / name)
        change(data)
        data.save_as(base / name)

    def edit_segmentation(change):
        edit(change, f"case{rng.randrange(2)}/seg.dcm")

    def number(data, value):
        data.StructureSetROISequence[2].ROINumber = data.ROIContourSequence[2].ReferencedROINumber = value

    def unlisted(data):
        data.ROIContourSequence[1].ReferencedROINumber = 9

    def move_contour(data, offset_mm, is_copied=False):
        contours = data.ROIContourSequence[rng.randrange(4)].ContourSequence
        contour = copy.deepcopy(contours[0]) if is_copied else contours[0]
        points = np.reshape(np.asarray(contour.ContourData, float), (-1, 3)) + offset_mm
        contour.ContourData = points.ravel().tolist()
        if is_copied:
            contours.append(contour)

    def move_frame(data):
        position = rng.choice(list(data.PerFrameFunctionalGroupsSequence)).PlanePositionSequence[0]
        position.ImagePositionPatient = [value + 3 for value in position.ImagePositionPatient]

    def swap_sources(data):
        first_source, second_source = (
            frame.DerivationImageSequence[0].SourceImageSequence[0]
            for frame in list(data.PerFrameFunctionalGroupsSequence)[:2]
        )
        first_source.ReferencedSOPInstanceUID, second_source.ReferencedSOPInstanceUID = (
            second_source.ReferencedSOPInstanceUID,
            first_source.ReferencedSOPInstanceUID,
        )

    def number_segment(data, value=1):
        data.SegmentSequence[rng.randrange(1, 4)].SegmentNumber = value

    return {
        "outside": (lambda: edit(lambda data: move_contour(data, [300, 0, 0])), "outside its image"),
        "no segment": (lambda: edit_segmentation(lambda data: number_segment(data, 9)), "is not listed"),
        "lifted": (lambda: edit(lambda data: move_contour(data, [0, 0, 3])), "not in the plane"),
        "one segment number": (lambda: edit_segmentation(number_segment), "share a number"),
        "one region number": (lambda: edit(lambda data: number(data, 1)), "share a number"),
        "unlisted": (lambda: edit(unlisted), "is not listed"),
        # A copy at the same place is a duplicate; one that is shifted by a few millimetres crosses
        # the first.
        "twice": (lambda: edit(lambda data: move_contour(data, [0, 0, 0], is_copied=True)), "duplicated"),
        "crossing": (lambda: edit(lambda data: move_contour(data, [6, 0, 0], is_copied=True)), "cross"),
        "moved": (lambda: edit_segmentation(move_frame), "differ in ImagePositionPatient"),
        "swapped": (lambda: edit_segmentation(swap_sources), "differ in ImagePositionPatient"),
    }  # fmt: skip


# One function per reader: each returns the contradictions that can be planted into its sources.
CONTRADICTIONS_OF_READER = (yolo, coco, voc, masks, nifti, dicom)
CONTRADICTION_CASES = [
    (plants, name, seed)
    for seed in range(3)
    # The numbers of contradictions are stated, so that none is lost unnoticed.
    for plants, names in zip(CONTRADICTIONS_OF_READER, (10, 11, 4, 5, 5, 10), strict=True)
    for name in range(names)
]


def check_contradictions(base):
    """Run the checks that `gmai` makes before any question."""
    _, skips, _ = read_items(read_sources(base / "sources.yaml"), base / "out" / "private")
    refuse_contradictions(skips)


@pytest.mark.parametrize(("plants", "at", "seed"), few(CONTRADICTION_CASES, 45))
def test_one_contradiction_refuses_the_dataset(tmp_path, plants, at, seed):
    """See also: the same sources are accepted without it (`test_gmai_pipeline.py`)."""
    write_all(tmp_path, only={plants.__name__})
    plant, reason = list(plants(tmp_path / plants.__name__, random.Random(f"{at} {seed}")).values())[at]
    plant()
    message = refused(check_contradictions, tmp_path)
    assert re.search(reason, message) and len(message) < 6000, message


SHEARED_AFFINE = np.array([[-1.5, 0, 0, 5], [0, -1.4, 0.8, 9], [0, 0.2, 3, -7], [0, 0, 0, 1]])
AFFINE_PAIRS = (  # sform, its code, affine for the qform, its code
    (SHEARED_AFFINE, 2, None, 0),
    (None, 0, SHEARED_AFFINE, 1),
    (SHEARED_AFFINE, 1, SHEARED_AFFINE, 1),
    (np.diag([1.2, 1.15, 1.1, 1]) @ SHEARED_AFFINE, 4, SHEARED_AFFINE, 1),
)


@pytest.mark.parametrize("place", AFFINE_PAIRS)
def test_volumes_with_common_sform_and_qform_are_read(tmp_path, place):
    """Cases: only one of the two, gantry tilt, which no qform can express, and a template space in
    addition to the scanner's.
    """
    write_all(tmp_path, only={"nifti"})
    for path in (tmp_path / "nifti").rglob("n*.nii.gz"):
        image = nibabel.Nifti1Image(np.asanyarray(nibabel.load(path).dataobj), SHEARED_AFFINE)
        image.set_qform(*place[2:], strip_shears=True)
        image.set_sform(*place[:2])
        nibabel.save(image, path)
    pictures, _ = load_pictures(read_sources(tmp_path / "sources.yaml").datasets[0])
    assert len(pictures) >= 8


def circle(radius, x=32, y=32):
    turns = np.linspace(0, 2 * np.pi, 99, endpoint=False)
    return np.stack([x + radius * np.cos(turns), y + radius * np.sin(turns)], 1)


NESTED_CONTOURS = (  # contours of one ROI on one slice, and how their areas combine
    ([circle(14, 16), circle(14, 48)], np.logical_or), ([circle(30), circle(12)], np.logical_xor),
    ([circle(30), circle(28.8)], np.logical_xor), ([circle(30), circle(10, 50)], np.logical_xor),
)  # fmt: skip


@pytest.mark.parametrize(("contours", "join"), NESTED_CONTOURS)
def test_adjacent_and_nested_contours_are_combined(contours, join):
    """Cases: two separate areas, a hole, a one-pixel rim, a hole that touches the edge."""
    areas = [fill_polygons([corners.ravel() * 6], (6 * SIDE_PX, 6 * SIDE_PX)) for corners in contours]
    assert (_fill_nested(areas) == join(*areas)).all()


def test_table_of_box_corners_is_refused_and_skip_contradictions_uses_the_rest(tmp_path):
    """Also checks the contact sheet and the list of skipped files."""
    rows = []
    for number in range(20):
        coarse = np.random.default_rng(number).integers(0, 255, (8, 8), dtype=np.uint8)
        save_png(tmp_path / "i" / f"{number}.png", coarse.repeat(8, 0).repeat(8, 1))
        rows += [
            {"image": f"{number}.png", "label": name, "x": 2 + 20 * index, "y": 2, "w": 12 + number, "h": 20}
            for index, name in enumerate(ORGAN_NAMES[:2])
        ]
    entry = {
        "name": "t", "reader": "boxes", "path": "i", "annotations": "t.csv", "modality": "CT", "region": "abdomen",
        "columns": {"box": list("xywh")},
    }  # fmt: skip
    build = partial(
        run_pipeline, write_sources(tmp_path, entry, near_duplicate=-1), tmp_path / "set", search_text=False
    )
    table = pd.DataFrame(rows)
    # Corners instead of sizes: some boxes still lie inside their image, and only others reveal the
    # error.
    table.assign(w=table.x + table.w, h=table.y + table.h).to_csv(tmp_path / "t.csv", index=False)
    assert "outside its image" in refused(build)
    # A single box outside its image.
    table.loc[3, "x"] = 60
    table.to_csv(tmp_path / "t.csv", index=False)
    message = refused(build)
    assert "1.png" in message and "--skip-contradictions" in message and not (tmp_path / "set" / "dataset").exists()
    assert len(build(accept_text_alone=True, skip_contradictions=True).written) > 10
    page = (tmp_path / "set" / "private" / "sheets" / "t.html").read_text()
    assert page.count("data:image/png") == 9 and {"liver", "spleen"} <= set(re.findall(r"<figcaption>(\w+)", page))


# Headers


def planted_header(rng, values):
    """Return (attribute -> value, picture as viewers show it, True if a value is ignored).

    Stored values have up to 12 bits.
    """
    windows = {"0/0": (0, 0), "negative": (40, -400), "blank": ("", ""), "beside": (90000, 2), "words": (40, "")}
    ct = {"Modality": "CT", "RescaleIntercept": -1024}
    plants = {
        "slope 0": {"RescaleSlope": 0},
        "blank slope": {"RescaleSlope": ""},
        "bits": {
            # Values in the upper bits, with noise in the unused lower ones.
            "HighBit": 15,
            "PixelData": (values << 4 | rng.randrange(16)).astype(np.uint16).tobytes(),
        },
        # An overlay in the unused upper bits must not brighten the picture.
        "overlay": {"PixelData": (values | 0xA000).astype(np.uint16).tobytes()},
        "orientation": {"ImageOrientationPatient": [0] * 6},
        **{kind: ct | {"WindowCenter": at, "WindowWidth": width} for kind, (at, width) in windows.items()},
    }
    kind = rng.choice(list(plants))
    usual = {"RescaleSlope": 1, "RescaleIntercept": 0, "Modality": "MR", "WindowCenter": 2048, "WindowWidth": 4095}
    fields = usual | plants[kind]
    # Soft tissue window for CT with an invalid window of its own, else the file's window.
    seen = (values - 1024 + 160) / 400 if kind in windows else (values - 2047.5) / 4094 + 0.5
    seen = np.clip(seen, 0, 1) * 255
    if rng.random() < 0.5:
        fields |= rng.choice([{"PhotometricInterpretation": "MONOCHROME1"}, {"PresentationLUTShape": "INVERSE"}])
        if rng.random() < 0.3:
            fields |= {"PhotometricInterpretation": "MONOCHROME1", "PresentationLUTShape": "INVERSE"}
        seen = 255 - seen
    return fields, seen, kind not in ("bits", "overlay")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", few(range(60), 20))
def test_invalid_header_values_are_ignored_and_listed_by_every_route(tmp_path, seed):
    rng = random.Random(seed)
    values = np.random.default_rng(seed).integers(0, 4096, (16, 16))
    fields, seen, is_listed = planted_header(rng, values)
    write_dicom(tmp_path / "raw" / "lung" / "a.dcm", values - 1024, **fields)
    (unit,), _ = list_units(read_dataset(tmp_path, reader="folders", path="raw", modality="MRI"))
    (picture,) = unit.load(unit)
    report = deidentify_folder(tmp_path / "raw", tmp_path / "clean", search_text=False)
    (written,) = (tmp_path / "clean" / "images").iterdir()
    assert np.abs(picture.pixels[..., 0] - seen).max() <= 1, fields
    # Both routes give the same picture.
    assert (np.asarray(Image.open(written)) == picture.pixels[..., 0]).all()
    assert bool(unit.skips) == is_listed and sorted(report["ignored_in_headers"]) == sorted(unit.skips)
    assert all(re.match(IGNORED_ELEMENT.format(r"\w+"), why) for why in unit.skips)


# Masks


def save_mask(kind, mask, path):
    """Save a single-class mask so that its picture is white (or a colour) on black."""
    grey_image = Image.fromarray(mask.astype(np.uint8) * 255)
    by_palette, alpha, blurred = (
        Image.fromarray((~mask).astype(np.uint8), "P"),
        Image.new("LA", grey_image.size),
        io.BytesIO(),
    )
    # A palette that begins with white: index 0 is the foreground.
    by_palette.putpalette([255] * 3 + [0] * 3)
    alpha.putalpha(grey_image)
    grey_image.save(blurred, "JPEG", quality=60)
    image = {
        "sorted palette": by_palette, "quantized": grey_image.convert("RGB").quantize(2), "alpha": alpha, "1 bit": grey_image.convert("1"),
        "coloured": Image.fromarray(np.where(mask[..., None], [128, 0, 0], 0).astype(np.uint8)), "once jpeg": Image.open(blurred),
        "numbers": Image.fromarray(mask.astype(np.uint8)), "16 bits": Image.fromarray(mask.astype(np.uint16) * 65535),
    }.get(kind, grey_image)  # fmt: skip
    save_options = (
        {"save_all": True, "append_images": [grey_image.point(lambda value: 255 - value)]} if kind == "tif" else {}
    )
    image.save(
        path.with_suffix(f".{kind}" if kind in ("gif", "jpeg", "tif") else ".png"),
        **save_options,
    )


MASK_KINDS = (
    "gif", "sorted palette", "quantized", "coloured", "numbers", "16 bits", "1 bit", "jpeg", "once jpeg", "alpha", "tif",
)  # fmt: skip
REFUSED_KINDS = {"alpha": "transparent", "tif": "several pages"}


@pytest.mark.parametrize("kind", MASK_KINDS)
def test_single_class_mask_equals_its_visible_foreground(tmp_path, kind):
    """Both `gmai` and `deidentify --labels` read the foreground; masks with alpha or several pages
    are refused.
    """
    rng = np.random.default_rng(1)
    truth = {}
    (tmp_path / "m" / "lesion").mkdir(parents=True)
    for number in range(6):
        mask = ellipse(*rng.integers(20, 44, 2), *rng.integers(6, 19, 2))
        truth[f"{number}.png"] = mask ^ (number % 2 == 0 and kind in ("gif", "quantized"))
        save_png(
            tmp_path / "i" / f"{number}.png",
            rng.integers(0, 255, (SIDE_PX, SIDE_PX), dtype=np.uint8),
        )
        save_mask(kind, truth[f"{number}.png"], tmp_path / "m" / "lesion" / f"{number}.png")
    pictures, skips = load_pictures(read_dataset(tmp_path, reader="masks", path="i", annotations="m"))
    labels = load_image_labels(tmp_path / "m", tmp_path / "i")
    deidentify_folder(tmp_path / "i", tmp_path / "clean", search_text=False, labels=[labels])
    if kind in REFUSED_KINDS:
        assert len(skips) == 6 and all(REFUSED_KINDS[kind] in reason for _, reason in skips)
        assert len(labels.skips) == 6
        return
    assert not skips and len(pictures) == 6
    for picture in pictures:
        (target,) = picture.targets
        # JPEG blurs the edge, so a few pixels may differ.
        assert target.label == "lesion" and (target.mask != truth[picture.key]).mean() <= 0.02 * kind.endswith("jpeg")
    written = json.loads((tmp_path / "clean" / "labels" / "1.json").read_text())
    areas = sorted(mask["area"] for mask in written["annotations"])
    assert len(areas) == 6 and np.allclose(
        areas,
        sorted(mask.sum() for mask in truth.values()),
        rtol=0.05,
    )


# Layouts

PUBLIC_LAYOUTS = (
    ("{case}/{case}_flair.nii.gz", "{case}/{case}_seg.nii.gz", "BraTS20_{}/BraTS20_{}_flair.nii.gz", "BraTS20_{}/BraTS20_{}_seg.nii.gz"),
    ("{case}/imaging.nii.gz", "{case}/segmentation.nii.gz", "case_{}/imaging.nii.gz", "case_{}/segmentation.nii.gz"),
    ("*/volume-{case}.nii", "*/segmentation-{case}.nii", "batch 1/volume-{}.nii", "batch 1/segmentation-{}.nii"),
    ("{case}/ct.nii.gz", "{case}/segmentations/{class}.nii.gz", "s{}/ct.nii.gz", "s{}/segmentations/CLASS.nii.gz"),
)  # fmt: skip


@pytest.mark.parametrize("layout", PUBLIC_LAYOUTS)
def test_layouts_of_public_datasets_are_read_by_patterns(tmp_path, layout):
    image, label, image_path, label_path = layout
    number_of = {name: number for number, name in enumerate(ORGAN_NAMES[:2], 1)}
    # Names of which one contains another must not be confused.
    for case in ("001", "01", "1"):
        label_values = np.zeros((SIDE_PX, SIDE_PX, 3), np.uint8)
        label_values[10:20, 10 : 20 + len(case), 1], label_values[30:40, 30:40, 1] = 1, 2
        volumes = {image_path: np.random.default_rng(len(case)).normal(size=label_values.shape).astype(np.float32)}
        if "{class}" in label:
            volumes |= {
                label_path.replace("CLASS", name): (label_values == n).astype(np.uint8) for name, n in number_of.items()
            }
        else:
            volumes |= {
                label_path: label_values,
                # Another volume beside the labels, which the pattern must not match.
                label_path.replace("seg", "t1"): np.zeros_like(label_values),
            }
        for path, values in volumes.items():
            save_volume(tmp_path / "v" / path.replace("{}", case), values)
    classes = {} if "{class}" in label else {number: name for name, number in number_of.items()}
    patterns = {"image": image, "label": label, "classes": classes}
    pictures, _ = load_pictures(
        read_dataset(tmp_path, reader="nifti", path="v", modality="MRI", min_area=0, **patterns)
    )
    areas = defaultdict(list)
    for picture in pictures:
        areas[picture.facts["study"]].append({target.label: target.area for target in picture.targets})
    assert areas == {
        image_path.replace("{}", case): [{"liver": 10 * (10 + len(case)), "spleen": 100}] for case in ("001", "01", "1")
    }
