"""DICOM data sets, tables and pictures lose what names their patient. See also: everything that `deidentify` writes and says
(`test_no_patient_leaves.py`)."""

import io
import random
import re
import unicodedata
from pathlib import Path

import pandas as pd
import pydicom
import pytest
from pydicom.datadict import DicomDictionary
from pydicom.dataset import Dataset

from curation.deidentify.dicom import PIXELS, deidentify_dataset, identifiers_of
from curation.deidentify.table import (
    PatientTable,
    date_words,
    name_words,
    number_words,
    without_births,
    without_words,
)
from dataset_builders.contents.pseudonyms import Pseudonyms
from tests.planting import FAMILY, GIVEN, Planted, dicom_file, found_in, planted

PRIVATE = (r"\.key$", r"\.names\.csv$")


@pytest.mark.parametrize("seed", range(4))
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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("implicit", [False, True])
def test_no_element_of_the_standard_holds_its_patient(implicit, caplog):
    """Every element of the dictionary that can hold text or a number, at the top and in a sequence, holds the patient."""
    person = planted(random.Random(5))
    number, digits = person.number, person.number.removeprefix("PAT")
    values = dict.fromkeys(("LT", "ST", "UT", "UC", "UR"), person.everything) | dict.fromkeys(
        ("LO", "PN"), f"{person.name} {number}"
    )
    values |= dict.fromkeys(("SH", "AE"), number) | {
        "CS": number,
        "UI": f"1.2.{int(digits)}",
        "IS": digits,
        "DA": "19610312",
        "DS": digits,
    }
    values |= dict.fromkeys(("OB", "OW", "UN"), person.everything.encode().ljust(80)) | {
        "TM": "101503",
        "AS": "061Y",
        "DT": "19610312",
    }
    data = dicom_file(person, random.Random(1))
    data.PatientID = number
    data.OtherPatientIDs = digits
    data.PatientComments = f"born 19610312, seen at 101503, aged 061Y, study 1.2.{int(digits)}"
    described = {element.tag for element in data} | {0x00283006, 0x00041220}  # pixels, grey values
    inner = Dataset()
    for tag, (vr, _, _, _, _) in DicomDictionary.items():
        kind = vr.split(" or ")[0]
        if (
            kind in values
            and tag not in described
            and not DicomDictionary[tag][4].endswith("SOPClassUID")
            and tag >> 16 not in (0x0000, 0x0002, 0x7FE0, 0xFFFE)
        ):
            for held in (data, inner):
                held.add_new(tag, kind, values[kind])
    data.ReferencedImageSequence = [inner]
    assert len(data) > 2000
    deidentify_dataset(data, Pseudonyms(b"k" * 32))
    if implicit:
        data.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2"
    clean = io.BytesIO()
    data.save_as(clean, enforce_file_format=True)
    left = {
        element.keyword for element in data.iterall() if element.VR != "SQ" and element.tag not in PIXELS
        and (found_in(repr(element.value).encode(), [person]) or re.search(rf"{digits}|19610312|061Y|101503", repr(element.value)))
    }  # fmt: skip
    assert left == set()
    assert found_in(clean.getvalue(), [person]) == []


@pytest.mark.parametrize("seed", range(10))
def test_a_table_keeps_its_rows_and_loses_what_names_their_patients(tmp_path, seed):
    """Two patients in a study, several rows of an image, an unrequested column; whatever the accents and the case, and no word more."""
    rng = random.Random(seed)
    people = [
        Planted(f"{family}^{given}", f"PAT{rng.randrange(10**8):08d}", "")
        for family, given in zip(FAMILY, GIVEN, strict=False)
    ]
    files = [f"study {k // 2}/{rng.choice('ab')}{k}.dcm" for k in range(len(people))]
    rows, headers = [], {}
    called = rng.choice([str, lambda file: Path(file).stem])
    for file, person in zip(files, people, strict=True):
        header = Dataset()
        header.PatientName, header.PatientID = person.name, person.number
        headers[file] = identifiers_of(header)
        family = rng.choice([str, str.upper, lambda text: unicodedata.normalize("NFD", text)])(
            person.name.split("^")[0]
        )
        for question in range(rng.randrange(1, 3)):
            caption = f"{family}, {person.number}: effusion of study {question}; white matter of patient {question}"
            rows.append({"image": called(file), "caption": caption, "mrn": person.number, "organ": "brain"})
    table = PatientTable(pd.DataFrame([*rows, {"image": "gone", "caption": "x"}]), files, tmp_path / "t.csv")
    made = [row for file in files for row in table.rows_of(file, headers[file])]
    assert found_in(repr(made).encode(), people) == [] and len(made) == len(rows)
    for row in made:
        assert set(row) == {"caption", "organ"}
        assert re.fullmatch(
            r"(\[removed\]-?)+, \[removed\]: effusion of study \d; white matter of patient \d", row["caption"]
        )
    assert (
        table.left_out == ["mrn"]
        and table.counts["rows_without_image"] == 1
        and table.counts["words_removed"] >= len(rows)
    )


def written(name, rng):
    """A way in which people write a name's parts, or one of them."""
    parts = re.split(r"[\^ -]", name)
    rng.shuffle(parts)
    joined = rng.choice(["", " ", "-", "_", ", ", "\u00ad", "."]).join(parts if rng.random() < 0.7 else parts[:1])
    way = rng.choice(
        [str.upper, str.lower, str.title, without_accents, in_two_letters, lambda text: unicodedata.normalize("NFD", text),
         lambda text: f"{text}s", lambda text: f"{text}'s", lambda text: f"{text}_ct_2"]
    )  # fmt: skip
    return way(joined)


def without_accents(text):
    plain = "".join(sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign))
    return plain.translate(str.maketrans("łŁøØđ", "lLoOd"))


def in_two_letters(text):
    return text.translate(str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ö": "Oe", "ø": "oe", "å": "aa"}))


PEOPLE = (
    "Vögtlander^Anna Maria Luise", "Żółkiewski^Stanisław", "Sørensen^Åse", "Ñandúes-Ibáñez^José", "Zwettlinger^Ermentraud^Theresia",
    "O’Quigley^Máire", "Ćurčić^Đorđe", "Ιωάννου^Γιώργος",
)  # fmt: skip
WHITE = "The white matter of both lobes is of normal signal; 2 cysts of 12 mm at 10.5 cm, MR and CT of 2024"


@pytest.mark.parametrize("name", PEOPLE)
def test_a_name_is_taken_out_however_it_is_written(name):
    rng = random.Random(name)
    words = name_words(name)
    assert without_words(WHITE, words) == (WHITE, 0)
    for _ in range(60):
        said = written(name, rng)
        text, count = without_words(f"Image of {said}: effusion. {WHITE}", words)
        assert count and re.sub(
            r"\[removed\]|_ct_2|'s|[-_, .\u00ad]", "", text
        ) == f"Imageof:effusion{WHITE}".translate(str.maketrans("", "", " ,.")), (said, text)


@pytest.mark.parametrize(
    "said", ["19610312", "1961-03-12", "12.03.1961", "12.3.1961", "03/12/61", "12-03-1961", "610312"]
)
def test_a_day_of_birth_is_taken_out_however_it_is_written(said):
    text, _ = without_words(f"Born {said}; 12 cysts of 3 mm on 12.03.2024", date_words("19610312"))
    assert text == "Born [removed]; 12 cysts of 3 mm on 12.03.2024"


DATES = (
    "12.03.1961", "12/3/61", "1961-03-12", "19610312", "12 March 1961", "March 12, 1961", "12. März 1961", "12 de marzo de 1961",
    "3rd of May 1958", "12-MAR-1961", "12Mar1961", "12 / 03 / 1961", "12_03_1961",
    "03 12 1961", "1961年3月12日", "March 1961", "Mar 12 '61",
)  # fmt: skip
CALLED = (
    "DOB", "DOB:", "D.O.B.", "d. o. b. :", "date of birth is", "Birth date=", "Birthday -", "born", "born on the", "geb.", "geb.dat.",
    "geboren am", "geboren op", "Geburtsdatum:", "née à Paris le", "nato il", "F. nac.", "Datum narození:", "ur.",
    "Дата рождения:", "生年月日",
)  # fmt: skip


@pytest.mark.parametrize("called", CALLED)
def test_what_a_text_calls_a_day_of_birth_is_taken_out_of_everybodys_row(called):
    """No header has to know it; other dates, and what is no date, stay."""
    for said in (*DATES, "1961") if called[-1] in "B:.=" else DATES:
        text = f"Woman, {called} {said}; CT of 12.03.2024: 3 newborn-sized cysts, 12/3 mm"
        assert without_births(text) == (text.replace(said, "[removed]"), 1)
        kept = (
            f"Seen on {said}; a stubborn cyst of 12 mm, born at 38 weeks, birth weight 3.5 kg, Apgar at birth: 9 10 10"
        )
        assert without_births(kept) == (kept, 0)
    assert without_births("*12.03.1961, b. 3/5/58: * 3 nodules") == ("*[removed], b. [removed]: * 3 nodules", 2)


def test_names_in_writing_without_spaces_are_taken_out():
    assert without_words("患者王小东，男", name_words("Wang^XiaoDong=王^小东")) == ("[removed]，男", 1)
    assert without_words("김민수는 환자", name_words("김^민수"))[0] == "[removed] 환자"
    for said in ("やまだ たろう", "たろう", unicodedata.normalize("NFD", "やまだたろう")):
        assert without_words(f"画像 {said} 2", name_words("やまだ^たろう")) == ("画像 [removed] 2", 1)
    assert without_words("मोहन कुमार का चित्र", name_words("कुमार^मोहन")) == ("[removed] का चित्र", 1)
    assert without_words("Li Wu, LI; he is ill", name_words("Wu^Li")) == ("[removed], [removed]; he is ill", 2)
    assert without_words("He Yu; he is ill", name_words("He^Yu")) == ("[removed]; he is ill", 1)


@pytest.mark.parametrize(
    "number", ["12-34-5678", "123 45 6789", "PAT-0012345", "0012345", "A.12.34.56/7", "19610312-4711"]
)
def test_an_id_is_taken_out_however_it_is_parted(number):
    parts = re.split(r"\W", number)
    for between in ("", "-", ".", "/", " ", "_"):
        said = between.join(parts)
        for text in (said, f"x{said}y" if between == "" else said, said.lower()):
            clean, _ = without_words(f"No. {text}: 3 nodules", number_words(number))
            assert clean == "No. [removed]: 3 nodules", (text, clean)
