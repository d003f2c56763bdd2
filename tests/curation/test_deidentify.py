"""Made-up patients planted in DICOM files, image files and their names are in no byte of what `deidentify` writes or says."""

import io
import json
import random
import re
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pydicom
import pytest
from fastapi.testclient import TestClient
from PIL import Image, ImageDraw, ImageFont
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, ImplicitVRLittleEndian, generate_uid

from curation.deidentify.dicom import deidentify_dataset
from curation.deidentify.folder import deidentify, read_boxes
from curation.deidentify.review_texts import build_app, decide, pending_images
from curation.deidentify.table import PatientTable, identifiers_of
from curation.deidentify.texts import covered, find_text, measure_recall
from dataset_builders.contents.pseudonyms import Pseudonyms, key_file
from dataset_builders.errors import BadInput
from tests.planting import FAMILY, GIVEN, KINDS, Planted, found_below, found_in, image_file, planted

PRIVATE = (r"\.key$", r"\.names\.csv$")


def a_dataset(person, rng):
    """A CT slice that names the person at the top, in nested sequences, private elements, overlays, free text and file meta."""
    data = Dataset()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = rng.choice([ExplicitVRLittleEndian, ImplicitVRLittleEndian])
    data.file_meta.MediaStorageSOPClassUID = CTImageStorage
    data.file_meta.SourceApplicationEntityTitle = person.number[:16]
    data.SOPClassUID, data.SOPInstanceUID = CTImageStorage, generate_uid()
    data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID
    data.StudyInstanceUID, data.SeriesInstanceUID = generate_uid(), generate_uid()
    data.SpecificCharacterSet = "ISO_IR 192"
    data.PatientName, data.PatientID, data.PatientBirthDate = person.name, person.number, "19610312"
    data.Modality, data.Manufacturer, data.InstitutionName = "CT", person.name, person.everything
    data.StudyDescription, data.ImageComments, data.ProtocolName = person.everything, person.everything, person.name
    data.ImageType = ["ORIGINAL", "PRIMARY", rng.choice(["AXIAL", person.number])]
    data.SoftwareVersions, data.PositionReferenceIndicator = person.number, person.name[:16]
    inner = Dataset()
    inner.CodeValue, inner.CodingSchemeDesignator, inner.CodeMeaning = person.number, "L", person.everything
    deeper = Dataset()
    deeper.TextValue, deeper.PersonName, deeper.ReferencedSOPInstanceUID = (
        person.everything,
        person.name,
        data.SOPInstanceUID,
    )
    inner.ContentSequence = [deeper]
    data.ProcedureCodeSequence = [inner]
    data.AnatomicRegionSequence = [inner]
    block = data.private_block(0x0041, "MAKER", create=True)
    block.add_new(0x01, "LO", person.everything)
    block.add_new(0x02, "OB", person.everything.encode())
    data.add_new(0x60000022, "LO", person.name)  # OverlayDescription
    data.add_new(0x60001500, "LO", person.everything)  # OverlayLabel
    data.add_new(0x00091001, "UN", person.everything.encode())
    data.Rows, data.Columns, data.SamplesPerPixel, data.PhotometricInterpretation = 40, 48, 1, "MONOCHROME2"
    data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 16, 12, 11, 0
    data.RescaleSlope, data.RescaleIntercept = 1, -1024
    data.PixelData = np.random.default_rng(rng.randrange(9**9)).integers(0, 4096, (40, 48), dtype=np.uint16).tobytes()
    data.preamble = person.number.encode().ljust(128, b"\0")
    return data


@pytest.mark.parametrize("seed", range(12))
def test_a_data_set_holds_nothing_of_its_patient(seed):
    rng = random.Random(seed)
    person = planted(rng)
    data = a_dataset(person, rng)
    before = data.pixel_array.copy()
    study, own = data.StudyInstanceUID, data.SOPInstanceUID
    whole = io.BytesIO()
    data.save_as(whole, enforce_file_format=True)
    assert found_in(whole.getvalue(), [person])
    removed = deidentify_dataset(data, Pseudonyms(b"k" * 32))
    clean = io.BytesIO()
    data.save_as(clean, enforce_file_format=True)
    assert found_in(clean.getvalue(), [person]) == []
    assert (
        b"19610312" not in clean.getvalue()
        and study.encode() not in clean.getvalue()
        and own.encode() not in clean.getvalue()
    )
    again = pydicom.dcmread(io.BytesIO(clean.getvalue()))
    assert (again.pixel_array == before).all()
    assert (again.PatientIdentityRemoved, again.Modality, again.RescaleIntercept) == ("YES", "CT", -1024)
    assert removed["PatientName"] == 1 and removed["private elements"] >= 2
    other = a_dataset(person, random.Random(seed + 1000))
    other.StudyInstanceUID = study
    deidentify_dataset(other, Pseudonyms(b"k" * 32))
    assert other.StudyInstanceUID == data.StudyInstanceUID != study  # one study stays one


@pytest.mark.parametrize("name", ["CT_small.dcm", "MR_small.dcm", "MR_small_implicit.dcm", "ExplVR_BigEnd.dcm"])
def test_real_files_keep_their_pixels_and_lose_their_names(name):
    path = Path(pydicom.__file__).parent / "data" / "test_files" / name
    data = pydicom.dcmread(path)
    before = data.pixel_array.copy()
    named = ("PatientName", "PatientID", "StudyInstanceUID", "SOPInstanceUID", "InstitutionName", "StationName")
    values = {str(data.get(key, "")) for key in named}
    deidentify_dataset(data, Pseudonyms(b"k" * 32))
    buffer = io.BytesIO()
    data.save_as(buffer, enforce_file_format=True)
    assert not any(value.encode() in buffer.getvalue() for value in values if len(value) >= 5)
    assert (pydicom.dcmread(io.BytesIO(buffer.getvalue())).pixel_array == before).all()


@pytest.mark.parametrize("seed", range(30))
def test_a_table_keeps_its_rows_and_loses_what_names_their_patients(tmp_path, seed):
    """Two patients in a study, several rows of an image, a column nobody asked for; whatever the accents and the case, and no word more."""
    rng = random.Random(seed)
    people = [
        Planted(f"{family}^{given}", f"PAT{rng.randrange(10**8):08d}", "")
        for family, given in zip(FAMILY, GIVEN, strict=False)
    ]
    files = [f"study {k // 2}/{rng.choice('ab')}{k}.dcm" for k in range(len(people))]
    rows, headers = [], {}
    for file, person in zip(files, people, strict=True):
        header = Dataset()
        header.PatientName, header.PatientID = person.name, person.number
        headers[file] = identifiers_of(header)
        family = rng.choice([str, str.upper, lambda text: unicodedata.normalize("NFD", text)])(
            person.name.split("^")[0]
        )
        for question in range(rng.randrange(1, 3)):
            caption = f"{family}, {person.number}: effusion of study {question}; white matter of patient {question}"
            rows.append(
                {
                    "image": rng.choice([file, Path(file).stem]),
                    "caption": caption,
                    "mrn": person.number,
                    "organ": "brain",
                }
            )
    table = PatientTable(pd.DataFrame([*rows, {"image": "gone", "caption": "x"}]), files, tmp_path / "t.csv")
    made = [row for file in files for row in table.rows_of(file, headers[file])]
    assert found_in(repr(made).encode(), people) == [] and len(made) == len(rows)
    for row in made:
        assert set(row) == {"caption", "organ"}
        assert re.fullmatch(
            r"(\[removed\]-?)+, \[removed\]: effusion of study \d; white matter of patient \d", row["caption"]
        )
    assert table.report.columns == ["mrn"] and table.report.rows_without_image == 1 and table.report.cells == len(rows)


def with_text(text, size=22, side=320):
    image = Image.fromarray(np.random.default_rng(3).integers(0, 50, (side, side), dtype=np.uint8))
    draw = ImageDraw.Draw(image)
    draw.text((20, 30), text, font=ImageFont.load_default(size), fill=235)
    box = tuple(int(side) for side in draw.textbbox((20, 30), text, font=ImageFont.load_default(size)))
    return image, box


@pytest.mark.parametrize("seed", range(1))
def test_a_folder_loses_every_name_and_a_person_decides_about_text(tmp_path, seed, capfd):
    rng = random.Random(seed)
    people = [planted(rng) for _ in range(5)]
    raw = tmp_path / "raw"
    for number, person in enumerate(people):
        folder = raw / person.name.replace("^", " ")
        folder.mkdir(parents=True, exist_ok=True)
        a_dataset(person, rng).save_as(folder / f"{person.number}.dcm", enforce_file_format=True)
        data, suffix = image_file(rng.choice(KINDS), person, rng)
        (folder / f"{person.number} {number}{suffix}").write_bytes(data)
    for k in range(3):
        with_text("MUSTERFRAU^ERIKA 12.03.1961")[0].save(raw / f"text {people[0].number} {k}.png")
    (raw / "broken.dcm").write_bytes(b"nothing")
    (raw / f"{people[1].name}.png").write_bytes(b"nothing")
    out = tmp_path / "out" / "clean"
    report = deidentify(raw, out, planted=1, keep_dicom=True)
    assert found_below(tmp_path / "out", people, PRIVATE) == []
    assert found_in("".join(capfd.readouterr()).encode(), people) == []
    assert report["files"] == {"dicom": 5, "images": 8} and sum(report["not_taken"].values()) == 2
    assert report["groups"] == 5 and report["text"]["images_with_text"] >= 3
    assert "planted texts found" in report["text"]["recall"]
    for private in (key_file(out), out.with_name("clean.names.csv")):
        assert private.stat().st_mode & 0o077 == 0
    waiting = pending_images(out)
    assert len(waiting) == report["text"]["images_with_text"]
    client = TestClient(build_app(out))
    assert waiting[0] in client.get("/").text
    assert client.get(f"/picture/{waiting[0]}").headers["content-type"] == "image/png"
    assert client.post("/decide", data={"image": waiting[0], "decision": "mask", "reviewer": " "}).status_code in (
        409,
        422,
    )
    assert pending_images(out) == waiting
    for image, decision in zip(waiting, ["mask", "keep", "drop"], strict=False):
        boxes = read_boxes(out)[image]
        assert client.post("/decide", data={"image": image, "decision": decision, "reviewer": "Ada"}).status_code == 200
        assert (out / "images" / image).is_file() == (decision != "drop")
        if decision == "mask":
            shown = np.asarray(Image.open(out / "images" / image).convert("L"))
            assert all((shown[top:bottom, left:right] == 0).all() for left, top, right, bottom in boxes)
    report = json.loads((out / "deidentification.json").read_text())
    assert report["text"]["decisions"] == {"mask": 1, "keep": 1, "drop": 1}
    assert report["text"]["undecided"] == len(pending_images(out)) == len(waiting) - 3
    with pytest.raises(BadInput, match="waits for no decision"):
        decide(out, waiting[0], "keep", "Ada")
    assert found_below(tmp_path / "out", people, PRIVATE) == []


def test_text_is_found_where_it_stands_and_its_recall_is_measured():
    image, box = with_text("MUSTERFRAU^ERIKA")
    assert max(covered(box, found) for found in find_text(image)) > 0.9
    assert find_text(Image.fromarray(np.random.default_rng(1).integers(0, 255, (200, 200), dtype=np.uint8))) == []
    blank = Image.fromarray(np.random.default_rng(5).integers(0, 60, (320, 320), dtype=np.uint8))
    recall = measure_recall([blank], 4, seed=2)
    assert sum(recall.planted.values()) == 4 and sum(recall.found.values()) >= 3
    assert "of 4 planted texts found" in str(recall)
