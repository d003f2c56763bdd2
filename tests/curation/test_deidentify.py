"""DICOM data sets, tables, pictures and labels lose what identifies their patient.

See also: everything that `deidentify` writes and prints (`test_workflows.py`).
"""

import csv
import io
import json
import random
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.uid import JPEG2000, JPEGBaseline8Bit

from curation.deidentify.image_folder import deidentify_folder
from curation.deidentify.image_labels import load_image_labels
from curation.deidentify.patient_table import (
    PatientTable,
    date_words,
    header_identifiers,
    name_words,
    number_words,
    redact_birth_dates,
    redact_words,
)
from curation.deidentify.review_texts import TEXT_DECISION, decide_on_image, pending_images
from curation.gmai.sources import read_sources
from curation.images.privacy import (
    DEIDENTIFICATION_REPORT,
    DEIDENTIFIED_TABLE,
    load_file_names,
    load_patient_groups,
    read_boxes,
)
from dataset_builders.browser_page.page_markup import KEY_HELP
from tests.commands import medprobe
from tests.curation.gmai.phantoms import load_pictures, read_dataset, write_all
from tests.helpers import refused
from tests.planting import FAMILY_NAMES, GIVEN, Planted, dicom_file, exif, found_below, found_in, planted

KEY_FILES = (r"\.key$", r"\.names\.csv$")


def dicom_with_hidden_name(kind, person, rng):
    """Build a DICOM file whose pixel data hide its patient, and return the pixels expected from
    it.
    """
    data = dicom_file(person, rng)
    values = np.random.default_rng(rng.randrange(2**32)).integers(
        0,
        4096,
        (40, 48),
        dtype=np.uint16,
    )
    name = person.everything.encode()
    data.RescaleSlope, data.RescaleIntercept, data.WindowCenter, data.WindowWidth = 1, 0, 2048, 4095
    data.PixelData = values.tobytes()
    if kind == "unused bits":  # an overlay plane in bits 12 to 15: a bit of the name in each pixel
        bits = np.resize(np.unpackbits(np.frombuffer(name, np.uint8)), values.shape).astype(np.uint16)
        data.PixelData = (values | bits << rng.randrange(12, 16)).tobytes()
    elif kind == "after the pixels":
        data.PixelData += name + name
    elif kind in ("JPEG", "JPEG 2000"):
        stream = io.BytesIO()
        values = (values >> 4).astype(np.uint8)
        exif_of = {"exif": exif(person), "comment": name} if kind == "JPEG" else {"no_jp2": True, "comment": name}
        Image.fromarray(values).save(stream, kind.replace(" ", ""), **exif_of)
        data.BitsAllocated, data.BitsStored, data.HighBit, data.WindowCenter, data.WindowWidth = 8, 8, 7, 128, 255
        data.PixelData = encapsulate([stream.getvalue()])
        data.file_meta.TransferSyntaxUID = JPEGBaseline8Bit if kind == "JPEG" else JPEG2000
        values = np.asarray(Image.open(stream)).astype(np.uint16) * 16
    return data, values


@pytest.mark.parametrize("seed", range(8))
def test_names_hidden_in_dicom_pixel_data_are_not_written(tmp_path, seed):
    rng = random.Random(seed)
    person = planted(rng)
    (tmp_path / "raw").mkdir()
    data, values = dicom_with_hidden_name(
        ("unused bits", "after the pixels", "JPEG", "JPEG 2000")[seed % 4], person, rng
    )
    data.save_as(tmp_path / "raw" / f"{person.name}.dcm", enforce_file_format=True)
    assert found_below(tmp_path / "raw", [person])
    report = deidentify_folder(tmp_path / "raw", tmp_path / "clean", search_text=False)
    assert report["files"] == {"dicom": 1} and found_below(tmp_path, [person], (r"^raw(/|$)", *KEY_FILES)) == []
    (picture,) = (tmp_path / "clean" / "images").iterdir()
    # The window turns 12 bits to 8; rounding may differ by one grey level.
    assert np.abs(np.asarray(Image.open(picture)) - values / 4095 * 255).max() <= 1.5


def test_an_interrupted_call_resumes(tmp_path, monkeypatch):
    """After an interruption at any file, only new and changed files are searched."""
    (tmp_path / "raw").mkdir()
    for at in range(6):
        Image.new("L", (80, 80), 40 * at).save(tmp_path / "raw" / f"{at}.png")
    searched, stop = [], [0]

    def find(image):
        if len(searched) == stop[0]:
            raise KeyboardInterrupt
        searched.append(image.getpixel((0, 0))[0] // 40)
        return [(1, 1, 9, 9)] if searched[-1] % 2 else []

    monkeypatch.setattr("curation.deidentify.image_folder.find_text", find)
    # Each call searches one more file.
    for stop[0] in range(1, 6):
        with pytest.raises(KeyboardInterrupt):
            deidentify_folder(tmp_path / "raw", tmp_path / "clean")
    assert searched == [0, 1, 2, 3, 4] and not (tmp_path / "clean").exists()
    # One file is deleted and one changed before the call that completes.
    (tmp_path / "raw" / "1.png").unlink()
    Image.new("L", (80, 80), 240).save(tmp_path / "raw" / "3.png")
    stop[0] = 99
    report = deidentify_folder(tmp_path / "raw", tmp_path / "clean")
    # 6 is the changed file 3.png; 5 is the file that no earlier call reached.
    assert searched == [0, 1, 2, 3, 4, 6, 5] and report["files"] == {"images": 5}
    assert [len(list((tmp_path / "clean" / part).iterdir())) for part in ("images", "pending")] == [4, 1]
    assert set(pending_images(tmp_path / "clean")) == read_boxes(tmp_path / "clean").keys()
    assert {path.name for path in tmp_path.iterdir()} == {"raw", "clean", "clean.key", "clean.names.csv"}
    assert not any(
        path.name.startswith(".") or path.name == "finished.jsonl" for path in (tmp_path / "clean").iterdir()
    )


@pytest.fixture
def labelled_images(tmp_path, monkeypatch):
    """Return a function that writes raw/<n>.png of grey level 40 n and the YOLO label txt/<n>.txt,
    whose class is n or 0. Text is found in images whose level `has_text` accepts.
    """

    def write(count, has_text, classes=()):
        for number in range(count):
            for folder in ("raw", "txt"):
                (tmp_path / folder).mkdir(exist_ok=True)
            Image.new("L", (80, 80), 40 * number).save(tmp_path / "raw" / f"{number}.png")
            (tmp_path / "txt" / f"{number}.txt").write_text(f"{number if classes else 0} 0.5 0.5 0.1 0.1\n")
        if classes:
            (tmp_path / "txt" / "classes.txt").write_text("\n".join(classes))
        monkeypatch.setattr(
            "curation.deidentify.image_folder.find_text",
            lambda image: [(1, 1, 9, 9)] * has_text(image.getpixel((0, 0))[0]),
        )
        return tmp_path / "clean"

    return write


def test_a_withdrawal_reaches_images_that_wait_for_a_decision(tmp_path, labelled_images):
    """A later decision must not bring a withdrawn patient's image back; its labels are deleted."""
    clean = labelled_images(3, has_text=bool)
    groups = "image,group\n0.png,Patient 1\n1.png,Patient 1\n2.png,Patient 2\n"
    (tmp_path / "table.csv").write_text(groups)
    options = ("--table", "table.csv", "--labels", "txt", "--out", "clean")
    medprobe("curate", "deidentify", "raw", *options, cwd=tmp_path)
    assert len(pending_images(clean)) == 2
    medprobe("curate", "withdraw", "clean", "--group", "Patient 1", cwd=tmp_path)
    (remaining,) = pending_images(clean)
    assert read_boxes(clean).keys() == {remaining} and list((clean / "images").iterdir()) == []
    assert list(pd.read_csv(clean / "table.csv")["image"]) == [remaining]
    coco = json.loads((clean / "labels" / "1.json").read_text())
    assert [image["file_name"] for image in coco["images"]] == [remaining] and len(coco["annotations"]) == 1


def test_decisions_about_text_use_no_key_of_the_page():
    """For example, `d` shows details according to the page's help, so it must not drop the
    image.
    """
    page_keys = set(re.findall(r"(?:^|[;,.] )(\w) ", KEY_HELP))
    assert {"n", "p", "o", "d", "r"} <= page_keys
    assert len(TEXT_DECISION.keys) == len(TEXT_DECISION.choices) and page_keys.isdisjoint(TEXT_DECISION.keys)


@pytest.mark.parametrize("seed", range(10))
def test_a_table_keeps_its_rows_without_identifying_words(tmp_path, seed):
    """Two patients share a study folder, an image has several rows, and names are in any case."""
    rng = random.Random(seed)
    people = [
        Planted(f"{family}^{given_name}", f"PAT{rng.randrange(10**8):08d}", "")
        for family, given_name in zip(FAMILY_NAMES, GIVEN, strict=False)
    ]
    files = [f"study {k // 2}/{rng.choice('ab')}{k}.dcm" for k in range(len(people))]
    rows, headers = [], {}
    # The table names images by path or by bare name.
    file_name = rng.choice([str, lambda file: Path(file).stem])
    for file, person in zip(files, people, strict=True):
        header = Dataset()
        header.PatientName, header.PatientID = person.name, person.number
        headers[file] = header_identifiers(header)
        family = rng.choice([str, str.upper, lambda text: unicodedata.normalize("NFD", text)])(
            person.name.split("^")[0]
        )
        for question in range(rng.randrange(1, 3)):
            # The words that are no part of a name must survive.
            caption = f"{family}, {person.number}: effusion of study {question}; white matter of patient {question}"
            rows.append({"image": file_name(file), "caption": caption, "mrn": person.number, "organ": "brain"})
    table = PatientTable(
        pd.DataFrame([*rows, {"image": "gone", "caption": "x"}]),
        files,
        tmp_path / "t.csv",
    )
    redacted = [row for file in files for row in table.redacted_rows(file, headers[file] | table.patient_words(file))]
    assert found_in(repr(redacted).encode(), people) == [] and len(redacted) == len(rows)
    for row in redacted:
        assert set(row) == {"caption", "organ"}
        assert re.fullmatch(
            r"(\[removed\]-?)+, \[removed\]: effusion of study \d; white matter of patient \d", row["caption"]
        )
    assert (
        table.left_out == ["mrn"]
        and table.counts["rows_without_image"] == 1
        and table.counts["words_removed"] >= len(rows)
    )


def spell_name(name, rng):
    """Spell a name, or one of its parts, in a random way."""
    parts = re.split(r"[\^ -]", name)
    rng.shuffle(parts)
    joined = rng.choice(["", " ", "-", "_", ", ", "\u00ad", "."]).join(parts if rng.random() < 0.7 else parts[:1])
    # Case, accents, digraphs (ae for ä), composed letters, plural, genitive, a file-name suffix.
    transform = rng.choice(
        [str.upper, str.lower, str.title, without_accents, with_digraphs, lambda text: unicodedata.normalize("NFD", text,),
         lambda text: f"{text}s", lambda text: f"{text}'s", lambda text: f"{text}_ct_2"]
    )  # fmt: skip
    return transform(joined)


def without_accents(text):
    plain = "".join(sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign))
    return plain.translate(str.maketrans("łŁøØđ", "lLoOd"))


def with_digraphs(text):
    return text.translate(str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ö": "Oe", "ø": "oe", "å": "aa"}))


PATIENT_NAMES = (
    "Vögtlander^Anna Maria Luise", "Żółkiewski^Stanisław", "Sørensen^Åse", "Ñandúes-Ibáñez^José", "Zwettlinger^Ermentraud^Theresia",
    "O’Quigley^Máire", "Ćurčić^Đorđe", "Ιωάννου^Γιώργος",
)  # fmt: skip
UNREMARKABLE_TEXT = "The white matter of both lobes is of normal signal; 2 cysts of 12 mm at 10.5 cm, MR and CT of 2024"


@pytest.mark.parametrize("name", PATIENT_NAMES)
def test_a_name_is_removed_in_any_spelling(name):
    rng = random.Random(name)
    words = name_words(name)
    # Nothing is removed from a text without the name.
    assert redact_words(UNREMARKABLE_TEXT, words) == (UNREMARKABLE_TEXT, 0)
    for _ in range(60):
        spelling = spell_name(name, rng)
        text, count = redact_words(f"Image of {spelling}: effusion. {UNREMARKABLE_TEXT}", words)
        assert count and re.sub(
            r"\[removed\]|_ct_2|'s|[-_, .\u00ad]", "", text
        ) == f"Imageof:effusion{UNREMARKABLE_TEXT}".translate(str.maketrans("", "", " ,.")), (spelling, text)


@pytest.mark.parametrize(
    "spelling", ["19610312", "1961-03-12", "12.03.1961", "12.3.1961", "03/12/61", "12-03-1961", "610312"]
)
def test_a_day_of_birth_is_removed_in_any_spelling(spelling):
    text, _ = redact_words(
        f"Born {spelling}; 12 cysts of 3 mm on 12.03.2024",
        date_words("19610312"),
    )
    assert text == "Born [removed]; 12 cysts of 3 mm on 12.03.2024"


DATES = (
    "12.03.1961", "12/3/61", "1961-03-12", "19610312", "12 March 1961", "March 12, 1961", "12. März 1961", "12 de marzo de 1961",
    "3rd of May 1958", "12-MAR-1961", "12Mar1961", "12 / 03 / 1961", "12_03_1961",
    "03 12 1961", "1961年3月12日", "March 1961", "Mar 12 '61",
)  # fmt: skip
BIRTH_PHRASES = (
    "DOB", "DOB:", "D.O.B.", "d. o. b. :", "date of birth is", "Birth date=", "Birthday -", "born", "born on the", "geb.", "geb.dat.",
    "geboren am", "geboren op", "Geburtsdatum:", "née à Paris le", "nato il", "F. nac.", "Datum narození:", "ur.",
    "Дата рождения:", "生年月日",
)  # fmt: skip


@pytest.mark.parametrize("phrase", BIRTH_PHRASES)
def test_dates_that_a_text_calls_birth_dates_are_removed_from_any_row(phrase):
    """They are recognized without a header. Other dates and numbers are kept."""
    # A bare year counts as a birth date only after an abbreviation or a sign such as a colon.
    for date in (*DATES, "1961") if phrase[-1] in "B:.=" else DATES:
        text = f"Woman, {phrase} {date}; CT of 12.03.2024: 3 newborn-sized cysts, 12/3 mm"
        assert redact_birth_dates(text) == (text.replace(date, "[removed]"), 1)
        unchanged = (
            f"Seen on {date}; a stubborn cyst of 12 mm, born at 38 weeks, birth weight 3.5 kg, Apgar at birth: 9 10 10"
        )
        assert redact_birth_dates(unchanged) == (unchanged, 0)
    assert redact_birth_dates("*12.03.1961, b. 3/5/58: * 3 nodules") == ("*[removed], b. [removed]: * 3 nodules", 2)


def test_names_in_scripts_without_spaces_are_removed():
    assert redact_words("患者王小东，男", name_words("Wang^XiaoDong=王^小东")) == ("[removed]，男", 1)
    assert redact_words("김민수는 환자", name_words("김^민수"))[0] == "[removed] 환자"
    for spelling in ("やまだ たろう", "たろう", unicodedata.normalize("NFD", "やまだたろう")):
        assert redact_words(f"画像 {spelling} 2", name_words("やまだ^たろう")) == ("画像 [removed] 2", 1)
    assert redact_words("मोहन कुमार का चित्र", name_words("कुमार^मोहन")) == ("[removed] का चित्र", 1)
    # Short names are removed, but the pronoun "he" is not taken for the name He.
    assert redact_words("Li Wu, LI; he is ill", name_words("Wu^Li")) == ("[removed], [removed]; he is ill", 2)
    assert redact_words("He Yu; he is ill", name_words("He^Yu")) == ("[removed]; he is ill", 1)


@pytest.mark.parametrize(
    "number", ["12-34-5678", "123 45 6789", "PAT-0012345", "0012345", "A.12.34.56/7", "19610312-4711"]
)
def test_an_id_is_removed_with_any_separators(number):
    parts = re.split(r"\W", number)
    for separator in ("", "-", ".", "/", " ", "_"):
        spelling = separator.join(parts)
        # Without separators, the number is found inside a longer word too.
        for text in (spelling, f"x{spelling}y" if separator == "" else spelling, spelling.lower()):
            clean, _ = redact_words(f"No. {text}: 3 nodules", number_words(number))
            assert clean == "No. [removed]: 3 nodules", (text, clean)


# Labels

DATASET_NAMES = {"coco": "coco-ct", "voc": "voc-us", "yolo": "yolo-us", "masks": "masks-mr", "nifti": "nifti-ct"}


def pictures_by_key(base, entry):
    """Read the dataset of an entry of sources.yaml: key -> picture with its targets."""
    pictures, _ = load_pictures(read_dataset(base, **entry | {"min_area": 0}))
    return {picture.key: picture for picture in pictures}


@pytest.mark.parametrize("reader", list(DATASET_NAMES))
def test_labels_are_unchanged_and_without_patient_data(tmp_path, reader):
    person = planted(random.Random(3))
    write_all(tmp_path, only={reader})
    document = yaml.safe_load((tmp_path / "sources.yaml").read_text())
    (entry,) = document["datasets"]
    base = tmp_path / reader
    labels = base / {"coco": "instances.json", "voc": "", "masks": "masks"}.get(reader, "labels")
    # Plant the patient wherever the format has room: free fields, headers, file names.
    file_prefix = person.name.replace("^", "_")
    if reader == "coco":
        coco = json.loads((base / "instances.json").read_text())
        coco["info"] = {"description": person.everything}
        for image in coco["images"]:
            image["comment"] = person.everything
        for annotation in coco["annotations"]:
            annotation["by"] = person.name
        (base / "instances.json").write_text(json.dumps(coco))
    if reader == "voc":
        for page in base.glob("*.xml"):
            page.write_text(page.read_text().replace("<filename>", f"<owner>{person.name}</owner><filename>"))
    if reader == "nifti":
        for path in base.rglob("*.nii.gz"):
            image = nibabel.load(path)
            image.header["descrip"] = person.name.encode()[:79]
            image.header.extensions.append(nibabel.nifti1.Nifti1Extension(6, person.everything.encode()))
            nibabel.save(image, path)
    if reader in ("yolo", "masks"):  # called like their patient
        for path in [*(base / "images").iterdir(), *labels.iterdir()]:
            if path.name != "classes.txt":
                path.rename(path.with_name(f"{file_prefix}-{path.name}"))
    images = base if reader == "voc" else base / "images"
    out = tmp_path / "clean"
    report = deidentify_folder(
        images,
        out,
        search_text=False,
        labels=[load_image_labels(labels, images)],
    )
    original_pictures = pictures_by_key(tmp_path, entry)
    overrides = {"path": str(out / "images"), "annotations": str(out / "labels")}
    if reader != "nifti":
        # Labels of every other format are written as COCO.
        overrides |= {"reader": "coco", "annotations": str(out / "labels" / "1.json"), "classes": {}}
    deidentified_pictures = pictures_by_key(tmp_path, entry | overrides)
    original_names = load_file_names(out)
    # Masks have numbers for classes until sources.yaml names them.
    class_names = (
        {f"class {value}": name for value, name in entry.get("classes", {}).items()} if reader == "masks" else {}
    )
    assert len(deidentified_pictures) == len(original_pictures) >= 5 and sum(report["labels"].values()) >= 4
    for key, picture in deidentified_pictures.items():
        name, _, slice_index = key.partition(" ")
        original = original_pictures[f"{original_names[name]} {slice_index}".strip()]
        assert (picture.pixels == original.pixels).all()
        picture.targets = [
            replace(target, label=class_names.get(target.label, target.label)) for target in picture.targets
        ]
        # COCO does not keep the order of the original targets.
        sorted_targets = [
            sorted(side.targets, key=lambda target: (target.label, target.box)) for side in (picture, original)
        ]
        for target, original_target in zip(*sorted_targets, strict=True):
            assert target.label == original_target.label and (target.mask is None) == (original_target.mask is None)
            assert (
                target.box == pytest.approx(original_target.box)
                if target.mask is None
                else (target.mask == original_target.mask).all()
            )
    assert found_below(out, [person]) == []


def test_dropping_an_image_deletes_its_labels(tmp_path, labelled_images):
    out = labelled_images(4, has_text=lambda level: level == 0)
    (tmp_path / "raw" / "3.png").unlink()
    labels = load_image_labels(tmp_path / "txt", tmp_path / "raw")
    report = deidentify_folder(tmp_path / "raw", out, labels=[labels])
    # Label 3 has no image, and the image 0 has text in it.
    assert report["labels"] == {"yolo": 3} and report["labels_left_out"] == {"its image is missing": 1}
    assert not report["not_taken"]
    (pending,) = pending_images(out)
    decide_on_image(out, pending, "drop", "Ada")
    coco = json.loads((out / "labels" / "1.json").read_text())
    labelled_names = {image["file_name"] for image in coco["images"]}
    assert (
        labelled_names == {path.name for path in (out / "images").iterdir()}
        and len(labelled_names) == len(coco["annotations"]) == 2
    )


def test_patients_of_two_sets_are_matched_only_under_one_key(tmp_path):
    """Label files do not name a patient, so every reader takes patients from the images' table."""
    entries = {}
    for name in ("one", "other"):
        path = write_all(tmp_path / name, only={"coco"})
        images = tmp_path / name / "coco" / "images"
        files = sorted(path.name for path in images.iterdir())
        table = pd.DataFrame({"image": files, "group": [f"MRN{at // 2}" for at in range(len(files))]})
        patient_table = PatientTable(table, files, tmp_path / "t.csv")
        labels = load_image_labels(path.parent / "coco" / "instances.json", images)
        deidentify_folder(
            images,
            tmp_path / f"clean-{name}",
            patient_table,
            search_text=False,
            labels=[labels],
        )
        entries[name] = {
            "name": name, "reader": "coco", "path": f"clean-{name}/images", "annotations": f"clean-{name}/labels/1.json", "modality": "CT",
        }  # fmt: skip
    (tmp_path / "s.yaml").write_text(json.dumps({"datasets": list(entries.values())}))
    # One patient has a different pseudonym under each key.
    assert "different `deidentify` keys" in refused(read_sources, tmp_path / "s.yaml")
    (tmp_path / "s.yaml").write_text(json.dumps({"datasets": [entries["one"]]}))
    pictures, _ = load_pictures(read_sources(tmp_path / "s.yaml").datasets[0])
    assert len(pictures) == 8 and all(picture.facts["patient"].startswith("g-") for picture in pictures)
    assert len({picture.facts["patient"] for picture in pictures}) == 4


def test_class_names_lose_patient_names_and_stay_distinct(tmp_path, labelled_images):
    """Names from the table are removed, except `Lung`, which is a name and an organ."""
    classes = ["lesion Vögtlander", "Lung", "QUIGLEY lesion", "Vögtlander", "Quigley"]
    out = labelled_images(5, has_text=lambda level: False, classes=classes)
    table = pd.DataFrame(
        {"image": [f"{number}.png" for number in range(3)], "who": ["Vögtlander^Anna", "Quigley^Lung", ""]}
    )
    patient_table = PatientTable(
        table,
        [f"{number}.png" for number in range(5)],
        tmp_path / "t.csv",
        names=["who"],
    )
    labels = load_image_labels(tmp_path / "txt", tmp_path / "raw")
    deidentify_folder(tmp_path / "raw", out, patient_table, labels=[labels])
    written = json.loads((out / "labels" / "1.json").read_text())
    names = [category["name"] for category in written["categories"]]
    # Two classes would both be "[removed]"; the second gets a number.
    assert names == ["lesion [removed]", "Lung", "[removed] lesion", "[removed]", "[removed] 4"]
    assert len(written["annotations"]) == 5 and labels.classes == set(names)


def test_patients_are_read_beside_cells_of_any_length(tmp_path):
    (tmp_path / DEIDENTIFICATION_REPORT).write_text("{}")
    (tmp_path / DEIDENTIFIED_TABLE).write_text(f"image,report,group\na.png,{'x' * 200_000},g-1\n")
    csv.field_size_limit(131_072)  # Python's default, which other code of this process may have raised
    assert load_patient_groups(tmp_path / "images") == {"a.png": "g-1"}
