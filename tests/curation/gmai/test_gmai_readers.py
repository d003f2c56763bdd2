"""Readers of the GMAI pipeline: known truth is recovered, and everything unusable is listed."""

import json
import shutil
from pathlib import Path
from typing import get_args

import numpy as np
import pydicom.data
import pytest
from PIL import Image
from pycocotools import mask as encoder
from pydicom.pixels import apply_modality_lut, apply_voi_lut
from scipy.ndimage import binary_fill_holes

from curation.gmai.benchmark_files import mask_outline
from curation.gmai.sources import read_sources
from curation.readers.dataset import SourceDataset
from curation.readers.pixels import encode_mask, read_dicom_header, read_frame, render_frame, to_grey
from curation.readers.shapes import decode_segmentation
from tests.curation.dicom_files import set_elements
from tests.curation.gmai.phantoms import (
    SIDE_PX,
    SOURCE_WRITERS,
    TRUTH,
    bounding_box,
    ct_slices,
    ellipse,
    load_pictures,
    read_dataset,
    save_volume,
    write_all,
)
from tests.helpers import refused


@pytest.fixture(scope="module")
def all_sources(tmp_path_factory):
    base = tmp_path_factory.mktemp("sources")
    return read_sources(write_all(base))


def read_source(sources, name):
    """Return (pictures, skips) of one dataset."""
    return load_pictures(next(dataset for dataset in sources.datasets if dataset.name == name))


@pytest.mark.parametrize("name", ["coco-ct", "voc-us", "yolo-us", "masks-mr", "nifti-ct", "dicom-ct"])
def test_targets_are_where_they_were_drawn(all_sources, name):
    pictures, _ = read_source(all_sources, name)
    truth = {key[1:]: mask for key, mask in TRUTH.items() if key[0] == name}
    target_count = 0
    for picture in pictures:
        assert picture.pixels.shape == (SIDE_PX, SIDE_PX, 3)
        assert picture.pixels.dtype == np.uint8
        assert picture.present == {label for key, label in truth if key == picture.key}
        for target in picture.targets:
            mask = truth[picture.key, target.label]
            target_count += 1
            if target.mask is None:
                assert target.box == pytest.approx(bounding_box(mask), abs=1e-6)
            elif name == "coco-ct" and target.mask.sum() == np.prod(
                bounding_box(target.mask)[2:]
            ):  # the polygon is a box
                assert bounding_box(target.mask) == bounding_box(mask)
            else:
                assert (target.mask == mask).all()
    assert target_count >= 12


def test_patients_come_from_patterns_tables_and_headers(all_sources):
    skin, _ = read_source(all_sources, "skin")
    assert {p.facts["patient"] for p in skin} == {f"P{sign}{k}" for sign in "MnB" for k in range(6)}
    chest, _ = read_source(all_sources, "chest")
    assert chest[3].facts == {"patient": "p1", "age": "33", "sex": "M"}
    ct, _ = read_source(all_sources, "dicom-ct")
    assert {p.facts["patient"] for p in ct} == {"MRN0", "MRN1", "MRN2"}
    # A pattern takes precedence over the header.
    by_pattern, _ = load_pictures(all_sources.datasets[-1].model_copy(update={"patient": r"(case\d)/"}))
    assert {p.facts["patient"] for p in by_pattern} == {"case0", "case1", "case2"}
    # Names, dates and other attributes of the header are not used.
    assert ct[0].facts.keys() == {"patient", "study", "age", "sex", "modality"}
    assert (ct[0].facts["modality"], ct[0].facts["age"], ct[0].facts["sex"]) == ("CT", "061Y", "F")


def test_a_volume_gives_the_k_largest_slices_per_label(all_sources):
    pictures, _ = read_source(all_sources, "nifti-ct")
    areas = {}
    for (name, key, label), mask in TRUTH.items():
        if name == "nifti-ct":
            areas.setdefault((key.split()[0], label), []).append(mask.sum())
    chosen_areas = {}
    for picture in pictures:
        for target in picture.targets:
            chosen_areas.setdefault((picture.key.split()[0], target.label), []).append(target.mask.sum())
    assert chosen_areas.keys() == areas.keys()
    for key, chosen in chosen_areas.items():
        assert sorted(chosen, reverse=True) == sorted(areas[key], reverse=True)[:2]


def write_dicom(path, values, **elements):
    """Write one generated CT slice with other elements."""
    (data,) = ct_slices(path.parent, values[None].astype(float), "P1", path.stem)
    (path.parent / f"{path.stem}0.dcm").rename(path)
    set_elements(data, elements)
    data.save_as(path, enforce_file_format=True)


def test_windows_match_pydicom(tmp_path):
    """For generated rescale values, windows and VOI functions, pictures equal pydicom's to one grey
    level.
    """
    rng = np.random.default_rng(1)
    for k in range(24):
        path = tmp_path / f"{k}.dcm"
        slope, intercept = float(rng.choice([0.5, 1, 2])), int(rng.integers(-1024, 1))
        kind = ("LINEAR", "LINEAR_EXACT", "SIGMOID")[k % 3]
        mono = ("MONOCHROME1", "MONOCHROME2")[k % 2]
        write_dicom(
            path, rng.integers(-1000, 2000, (16, 16)), RescaleSlope=slope, RescaleIntercept=intercept,
            WindowCenter=int(rng.integers(-200, 300)), WindowWidth=int(rng.integers(50, 1500)), VOILUTFunction=kind,
            PhotometricInterpretation=mono,
        )  # fmt: skip
        data = read_dicom_header(path)
        seen = apply_voi_lut(apply_modality_lut(data.pixel_array, data), data)
        # pydicom maps to the range of the stored values (12 bits), so scale it to 8 bits.
        low, high = 0 * slope + intercept, 4095 * slope + intercept
        expected = (seen - low) / (high - low) * 255
        if mono == "MONOCHROME1":
            expected = 255 - expected
        assert np.abs(render_frame(data, None, []).astype(float) - expected).max() <= 1


@pytest.mark.parametrize("flips", range(8))
def test_slices_are_upright_in_all_stored_orientations(tmp_path, flips):
    """An image stored in any of the eight in-plane orientations gives the same picture."""
    rng = np.random.default_rng(2)
    upright = rng.integers(0, 1000, (12, 20))
    row, column, stored = np.array([1, 0, 0]), np.array([0, 1, 0]), upright
    if flips & 1:
        stored, row = stored[:, ::-1], -row
    if flips & 2:
        stored, column = stored[::-1], -column
    if flips & 4:
        stored, row, column = stored.T, column, row
    path = tmp_path / "a.dcm"
    write_dicom(
        path,
        np.ascontiguousarray(stored),
        ImageOrientationPatient=[*map(int, row), *map(int, column)],
        PixelSpacing=[1, 1],
    )
    pixels, _ = read_frame(path, (500.0, 1000.0), [])
    assert (pixels[..., 0] == to_grey(upright.astype(float), (500.0, 1000.0))).all()


@pytest.mark.parametrize(("plane", "shape"), [("axial", (12, 10)), ("coronal", (14, 10)), ("sagittal", (14, 12))])
def test_nifti_planes_are_in_radiological_view(tmp_path, plane, shape):
    values = np.zeros((10, 12, 14), np.float32)  # RAS+
    values[9, 11, 13] = 100  # right, front, top
    save_volume(tmp_path / "i" / "a.nii", values)
    save_volume(tmp_path / "l" / "a.nii", np.ones(values.shape, np.uint8))
    entry = {"reader": "nifti", "path": "i", "annotations": "l", "modality": "MRI", "classes": {1: "liver"}}
    pictures, _ = load_pictures(read_dataset(tmp_path, **entry, plane=plane, window=[50, 100], slices=20))
    (bright,) = [p.pixels[..., 0] for p in pictures if p.pixels.max() == 255]
    # The bright corner is at the patient's right, which radiological view shows on the left.
    assert bright.shape == shape and bright[0, 0] == 255 and np.count_nonzero(bright) == 1


def test_anisotropic_pixels_and_masks_become_square(tmp_path):
    label = np.zeros((20, 20, 3), np.uint8)
    label[5:15, 5:15, 1] = 1
    for name, values in (("i", label.astype(np.float32)), ("l", label)):
        save_volume(tmp_path / name / "a.nii", values, np.diag([1.0, 2.0, 5.0, 1.0]))
    entry = {"reader": "nifti", "path": "i", "annotations": "l", "modality": "MRI", "classes": {1: "liver"}}
    (picture,), _ = load_pictures(read_dataset(tmp_path, **entry))
    assert picture.pixels.shape == (40, 20, 3)
    assert bounding_box(picture.targets[0].mask)[2:] == (10, 20)


def test_bundled_pydicom_files_are_read_or_skipped_with_a_reason(tmp_path):
    """Every file becomes a picture or a skip with a reason; no file causes a crash."""
    folder = Path(pydicom.data.__file__).parent / "test_files"
    files = [path for path in sorted(folder.glob("*.dcm")) if path.stat().st_size < 2_000_000]
    (tmp_path / "files").mkdir()
    for path in files:
        shutil.copyfile(path, tmp_path / "files" / path.name)
    (tmp_path / "labels.csv").write_text("image,label\n" + "".join(f"{path.name},lung\n" for path in files))
    pictures, skips = load_pictures(read_dataset(tmp_path, reader="dicom", path="files", annotations="labels.csv"))
    assert {p.key for p in pictures} | {subject for subject, _ in skips} == {path.name for path in files}
    assert len(pictures) >= 13
    reasons = dict(skips)
    assert reasons["reportsi.dcm"] == "DICOM of SR is not a picture to ask about"
    assert reasons["rtdose.dcm"] == "DICOM of RTDOSE is not a picture to ask about"
    assert "none of its referenced images" in reasons["liver_1frame.dcm"]
    assert "cannot be decoded" in reasons["MR_truncated.dcm"]
    assert {
        "CT_small.dcm",
        "MR_small.dcm",
        "MR_small_RLE.dcm",
        "MR_small_jpeg_ls_lossless.dcm",
    } <= {p.key for p in pictures}


BAD_COCO = (
    ({"bbox": [1, 1, 5, 5]}, {"width": 31}, "size"),
    ({"segmentation": {"size": [5, 5], "counts": [25]}}, {}, "size"),
    ({"segmentation": {"size": [20, 30], "counts": {}}}, {}, "cannot be decoded"),
    ({"segmentation": [[1, 1, 2, 2]]}, {}, "three corners"),
    ({"bbox": [25, 1, 9, 5]}, {}, "outside its image"),
    ({"bbox": [2, 1, 0, 5]}, {}, "no area"),
    ({"bbox": [1, 1, 5, 5], "category_id": 7}, {}, "category 7"),
    ({"bbox": [1, 1, 5, 5]}, {"turned": True}, "EXIF rotation"),
)
"""Fields of the annotation, fields of the image, and the reason for the skip."""


@pytest.mark.parametrize(("annotation", "image", "reason"), BAD_COCO)
def test_coco_annotations_that_contradict_their_image_are_skipped(tmp_path, annotation, image, reason):
    exif = Image.Exif()
    if "turned" in image:
        exif[0x0112] = 6
    Image.new("L", (30, 20)).save(tmp_path / "a.png", exif=exif)
    document = {
        "images": [{"id": 1, "file_name": "a.png", "width": 30, "height": 20} | image],
        "categories": [{"id": 1, "name": "liver"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1} | annotation],
    }
    (tmp_path / "c.json").write_text(json.dumps(document))
    _, [(subject, skip_reason)] = load_pictures(read_dataset(tmp_path, reader="coco", path=".", annotations="c.json"))
    assert subject == "a.png" and reason in skip_reason


def test_dicom_without_pixels_or_with_burned_in_text_is_skipped(tmp_path):
    (tmp_path / "liver").mkdir()
    write_dicom(tmp_path / "liver" / "none.dcm", np.zeros((4, 4)), PixelData=None)
    write_dicom(tmp_path / "liver" / "named.dcm", np.zeros((4, 4)), BurnedInAnnotation="YES")
    reasons = dict(load_pictures(read_dataset(tmp_path, reader="folders", path="."))[1])
    assert "no pixel data" in reasons["liver/none.dcm"] and "burned into" in reasons["liver/named.dcm"]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("datasets: [{name: a, reader: coco, path: ., modality: CT}]", "dataset a: reader coco needs `annotations`"),
        ("datasets: [{name: a, reader: folders, path: .}]", "needs `modality`"),
        ("datasets: [{name: a, reader: dicom, path: missing}]", "does not exist"),
        ("datasets: [{name: a, reader: dicom, path: ~there-is-no-such-user/x}]", "does not exist"),
        ("datasets: []", "datasets: give at least one"),
        ("datasets: [{name: a, reader: dicom, path: ., patient: '(' }]", "regular expression"),
        ("datasets: [{name: a, reader: dicom, path: ., colour: red}]", "colour"),
        ("options: [1, 9]\ndatasets: [{name: a, reader: dicom, path: .}]", "from 2 to 5"),
        ("datasets: [{name: a, reader: dicom, path: ., window: lungs}]", "Input should be 'soft tissue', 'lung'"),
        ("datasets: [\n", "not valid YAML"),
    ],
)  # fmt: skip
def test_an_invalid_sources_file_fails_in_one_line(tmp_path, document, expected):
    (tmp_path / "sources.yaml").write_text(document)
    assert expected in refused(read_sources, tmp_path / "sources.yaml")


def test_rle_and_contours_match_the_mask():
    """Every kind of RLE decodes to the same mask, and the mask's contour encloses it."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        mask = np.zeros((50, 52), bool)
        for _ in range(2):
            mask |= ellipse(*rng.integers(12, 40, 2), *rng.integers(3, 9, 2), shape=mask.shape)
        flat = mask.ravel(order="F")
        runs = np.diff([0, *(np.flatnonzero(np.diff(flat)) + 1), flat.size]).tolist()
        compressed = encoder.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"].decode()
        for counts in (runs, compressed):
            assert (decode_segmentation({"size": [50, 52], "counts": counts}, (50, 52)) == mask).all()
        assert (decode_segmentation(encode_mask(mask), mask.shape) == mask).all()
        line = mask_outline(mask, 2)
        # The contour is outside the mask and closed around it.
        assert not (line & mask).any() and (binary_fill_holes(line) & mask).sum() == mask.sum()


def test_all_formats_have_a_phantom():
    readers = get_args(SourceDataset.model_fields["reader"].annotation)
    # The reader of boxes has tests of its own.
    assert {"csv" if name == "csv_many" else name for name in SOURCE_WRITERS} == set(readers) - {"boxes"}
