"""Test exams from generated studies: every key follows from the studies' geometry, and nothing else
gives it away.
"""

import csv
import io
import json
import re
import shutil
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageDraw, ImageFont
from scipy.stats import binomtest

import medprobe
from curation.exam.exam_tasks import TASKS
from curation.exam.series import read_slices
from dataset_builders.errors import BadInput
from tests.curation.commands import curate
from tests.curation.exam.studies import WRONG_RADIOGRAPHS, WRONG_SLICES, Series, Studies, Truth, read_answer

BORDER_PX = 8


def make_exam(folder: Path, patients: int, limit: int, seed: int, *words: object) -> tuple[Studies, Path]:
    studies = Studies(folder / "studies", seed)
    for number in range(patients):
        studies.write_patient(f"Doe-{number:04}")
    curate(
        f"exam {folder}/studies --out {folder}/exam --limit {limit} --seed {seed} --no-text-search --body-part chest",
        *("--patient", r"(Doe-\d+)/", *words),
    )
    return studies, folder / "exam"


def read_pairs(exam: Path) -> list[dict]:
    return list(json.loads((exam / "dataset.json").read_text()).values())


def open_picture(exam: Path, pair: dict, number: int) -> np.ndarray:
    return np.asarray(Image.open(exam / "images" / pair[f"im_{number}"]))


def count_wrong_keys(exam: Path, truths: list[Truth]) -> int:
    wrong = 0
    for pair in read_pairs(exam):
        assert {pair["im_1_correct"], pair["im_2_correct"]} == {"A", "B"}
        for number in (1, 2):
            key = pair[f"option_{pair[f'im_{number}_correct']}"]
            wrong += read_answer(pair["question"], open_picture(exam, pair, number), truths) != key
    return wrong


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return make_exam(tmp_path_factory.mktemp("small"), 3, 5, 2)


def test_keys_are_those_of_the_geometry(small):
    studies, exam = small
    pairs = read_pairs(exam)
    assert len(pairs) > 4 * len(TASKS) and count_wrong_keys(exam, studies.truths) == 0


@pytest.mark.timeout(1200)
@pytest.mark.exhaustive
def test_no_key_of_a_thousand_pairs_is_wrong(tmp_path):
    studies, exam = make_exam(tmp_path, 40, 100, 100)  # seeds 100 to 104 are 5,000 pairs
    assert len(read_pairs(exam)) >= 1000 and count_wrong_keys(exam, studies.truths) == 0


def test_nothing_but_the_pixels_tells_the_answer(small):
    _, exam = small
    pairs = read_pairs(exam)
    files = list((exam / "images").iterdir())
    assert len({path.stat().st_size for path in files}) == 1 and all(
        re.fullmatch(r"i-\w{16}\.png", path.name) for path in files
    )
    for path in files:
        with Image.open(path) as image:
            border = np.array(image)
        border[BORDER_PX:-BORDER_PX, BORDER_PX:-BORDER_PX] = 0
        assert border.shape == (256, 256) and image.mode == "L" and not border.any() and not image.info
    # In each task, A and B are equally often right for the first picture, and no option favours a
    # letter or a position.
    table = pd.DataFrame(pairs).assign(task=[pair["category_1"][0] for pair in pairs])
    is_a = table["im_1_correct"] == "A"
    is_first_a = is_a.groupby(table["task"])
    assert ((2 * is_first_a.sum() - is_first_a.count()).abs() <= 1).all()
    first_text = table["option_A"].where(is_a, table["option_B"])
    second_text = table["option_B"].where(is_a, table["option_A"])
    for clue, key in (
        (table.index % 2 == 0, is_a),
        (table["im_1"] < table["im_2"], is_a),
        (table["option_A"] < table["option_B"], is_a),
        (first_text < second_text, True),
    ):
        assert binomtest(int((clue == key).sum()), len(table)).pvalue > 1e-3


def test_a_reader_of_pixels_gets_everything_and_text_alone_nothing(small, tmp_path):
    studies, exam = small
    medprobe.build("mediconfusion", name="exam", source=exam, out=tmp_path / "data" / "exam")

    class Reader:
        def generate(self, requests):
            assert len({len(request.images[0]) for request in requests}) == 1
            for request in requests:
                question, *options = re.findall(r"(?:Question: |[AB]: )(.+)", request.prompt)
                picture = np.asarray(Image.open(io.BytesIO(request.images[0])).convert("L"))
                yield "AB"[options.index(read_answer(question, picture, studies.truths))]

    run = medprobe.evaluate("exam", Reader(), data=tmp_path / "data" / "exam", out=tmp_path / "run")
    scores = run.scores.set_index("metric")
    assert scores.loc["set_accuracy", ["value", "chance"]].tolist() == [100, 25]
    assert set(run.result.breakdown["category"]) == {task.ability for task in TASKS.values()}
    report = curate(f"quality {tmp_path}/data/exam --out {tmp_path}/quality.html")
    assert "gives answers away" not in report and "same picture" not in report
    rules = json.loads((tmp_path / "quality.json").read_text())["rules"]
    assert all(scores["individual_accuracy"]["value"] == 50 for scores in rules.values())


def test_patients_are_neither_named_nor_split(small):
    _, exam = small
    origins = json.loads((exam / "image_dict.json").read_text())
    groups = {name: origin["group"] for name, origin in origins.items()}
    assert len(set(groups.values())) == 3
    for path in (path for path in exam.rglob("*") if path.is_file()):
        assert b"Doe" not in path.read_bytes() and "Doe" not in path.name
    left_out = exam.with_name("exam.left_out.csv")
    assert stat.S_IMODE(left_out.stat().st_mode) == 0o600
    one_patient = [pair for pair in read_pairs(exam) if groups[pair["im_1"]] == groups[pair["im_2"]]]
    assert len(one_patient) >= 6 * 5  # only the two sides of a knee always need two patients


@pytest.mark.parametrize("kind", ["slices", "radiographs"])
def test_every_contradiction_leaves_out_its_series_and_is_listed(tmp_path, kind):
    studies = Studies(tmp_path, 3)
    for number, change in enumerate(WRONG_SLICES if kind == "slices" else WRONG_RADIOGRAPHS):
        series = Series(Truth("MR", "CHEST", *studies.draw_axes()), "p", {}, change)
        if kind == "radiographs":
            tags = {"ViewPosition": "PA", "PatientOrientation": ["L", "F"]}
            series = Series(Truth("DX", "CHEST", view="PA"), "p", tags, change)
        studies.write_series(f"{number}", series, slices=4 if kind == "slices" else 1)
    slices, skips = read_slices(tmp_path, None, "")
    assert not slices and len({skip.subject for skip in skips}) == len(studies.truths)


@pytest.mark.parametrize(
    ("tags", "has_plane"),
    [
        ({"ImageType": ["ORIGINAL", "PRIMARY", "AXIAL"], "PatientPosition": "HFS"}, True),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "AXIAL"], "PatientPosition": "FFP"}, True),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "AXIAL"], "PatientPosition": "HFDR"}, False),
        ({"ImageType": ["DERIVED", "SECONDARY", "MPR"], "PatientPosition": "HFDR"}, True),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "LOCALIZER"]}, False),
        ({"BurnedInAnnotation": "YES"}, False),
        ({"PatientOrientation": ["L", "P"]}, True),
        ({"PatientOrientation": ["R", "P"]}, False),
    ],
)
def test_supine_prone_and_decubitus(tmp_path, tags, has_plane):
    truth = Truth("CT", "CHEST", *np.eye(3)[:2])
    Studies(tmp_path, 0).write_series("s", Series(truth, "p", tags), slices=4)
    slices, skips = read_slices(tmp_path, None, "")
    assert [source.plane for source in slices] == ["axial"] * 4 * has_plane and len(skips) == 4 * (not has_plane)


def test_a_withdrawn_patient_is_in_no_later_exam(small, tmp_path):
    _, exam = small
    shutil.copytree(exam, tmp_path / "exam")
    (tmp_path / "exam.key").write_bytes(exam.with_name("exam.key").read_bytes())
    curate(f"withdraw {tmp_path}/exam --group Doe-0001")
    group = curate(f"id Doe-0001 {tmp_path}/exam").split()[-1]
    assert group not in (tmp_path / "exam" / "image_dict.json").read_text()
    shutil.rmtree(tmp_path / "exam")
    words = ("--no-text-search", "--limit", 3, "--tasks", "plane,count", "--seed", 4)
    curate(f"exam {exam.parent}/studies --out {tmp_path}/exam", *words)
    assert (tmp_path / "exam" / "images").is_dir() and group not in (tmp_path / "exam" / "image_dict.json").read_text()


def test_an_exam_repeats_with_its_seed_and_key(small, tmp_path):
    _, exam = small
    for name in ("first", "second"):
        (tmp_path / f"{name}.key").write_bytes(exam.with_name("exam.key").read_bytes())
        words = "--limit 3 --seed 5 --no-text-search --tasks plane,marker"
        curate(f"exam {exam.parent}/studies/Doe-0000 --out {tmp_path}/{name} {words}")
    assert read_pairs(tmp_path / "first") == read_pairs(tmp_path / "second")


def test_pictures_with_text_are_left_out(tmp_path):
    studies = Studies(tmp_path / "in", 0)
    truth = Truth("MR", "CHEST", *np.eye(3)[:2])

    def write_name(data, number):
        picture = Image.fromarray(data.pixel_array)
        ImageDraw.Draw(picture).text((8, 8), "DOE JANE", fill=255, font=ImageFont.load_default(18))
        data.PixelData = np.asarray(picture).tobytes()

    studies.write_series("named", Series(truth, "named", change=write_name), slices=1)
    studies.write_series("clean", Series(truth, "clean"), slices=1)
    curate(f"exam {tmp_path}/in --out {tmp_path}/exam --tasks count --limit 2")
    with (tmp_path / "exam.left_out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["file"].partition("/")[0] for row in rows] == ["named"]
    assert "searched" in (tmp_path / "exam" / "manifest.json").read_text()


def test_folders_without_headers_are_refused(tmp_path):
    (tmp_path / "in").mkdir()
    Image.new("L", (64, 64)).save(tmp_path / "in" / "a.png")
    for words, reason in (("", "no pair could be made"), ("--tasks planes", "is not a task"), ("--patient x", "group")):
        with pytest.raises(BadInput, match=reason):
            curate(f"exam {tmp_path}/in --out {tmp_path}/exam {words}")
    with pytest.raises(BadInput, match="missing"):
        curate(f"exam {tmp_path}/missing --out {tmp_path}/exam")
