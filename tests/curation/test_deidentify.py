"""DICOM data sets, tables and pictures lose what names their patient. See also: everything that `deidentify` writes and says
(`test_no_patient_leaves.py`)."""

import io
import random
import re
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pydicom
import pytest
from PIL import Image, ImageDraw, ImageFont
from pydicom.dataset import Dataset

from curation.deidentify.dicom import deidentify_dataset
from curation.deidentify.table import PatientTable, identifiers_of
from curation.deidentify.texts import covered, find_text, measure_recall
from dataset_builders.contents.pseudonyms import Pseudonyms
from tests.planting import FAMILY, GIVEN, Planted, dicom_file, found_in, planted

PRIVATE = (r"\.key$", r"\.names\.csv$")


@pytest.mark.parametrize("seed", range(12))
def test_a_data_set_holds_nothing_of_its_patient(seed):
    rng = random.Random(seed)
    person = planted(rng)
    data = dicom_file(person, rng)
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
    other = dicom_file(person, random.Random(seed + 1000))
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


def test_text_is_found_where_it_stands_and_its_recall_is_measured():
    image, box = with_text("MUSTERFRAU^ERIKA")
    assert max(covered(box, found) for found in find_text(image)) > 0.9
    assert find_text(Image.fromarray(np.random.default_rng(1).integers(0, 255, (200, 200), dtype=np.uint8))) == []
    blank = Image.fromarray(np.random.default_rng(5).integers(0, 60, (320, 320), dtype=np.uint8))
    recall = measure_recall([blank], 4, seed=2)
    assert sum(recall.planted.values()) == 4 and sum(recall.found.values()) >= 3
    assert "of 4 planted texts found" in str(recall)
