"""Test runs that show other images than a question's own: whose images they are, and what the
answers show about a score.
"""

import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from PIL import Image

import medprobe
from eval_harness.runs.requests import assign_partners, blank_image
from tests.commands import medprobe as command
from tests.sides import run_arms, write_sides

CASE_LISTS = st.lists(
    st.tuples(st.sampled_from("xyz"), st.sampled_from("abcd"), st.integers(0, 60), st.sampled_from((None, "p", "q"))),
    min_size=1,
    max_size=40,
)


@given(CASE_LISTS, st.booleans(), st.randoms(use_true_random=False))
def test_a_case_is_shown_another_one_with_another_key(cases, labelled, random):
    """Cases have a kind (modality), a key, an image and a patient; some share an image or a
    patient.
    """
    rows = [
        {"question_id": str(n), "case_id": f"c{n}", "question": "?", "question_type": "single", "options": list("abcd"),
         "answer": ["abcd".index(key)], "image_id": f"i{image}", "group": patient} | ({"modality": kind} if labelled else {})
        for n, (kind, key, image, patient) in enumerate(cases)
    ]  # fmt: skip
    partners = assign_partners(pd.DataFrame(rows))
    by_case = {row["case_id"]: row for row in rows}

    def fits(case, partner, any_kind=True):
        alike = any_kind or case.get("modality") == partner.get("modality")
        patient = case["group"] is not None and case["group"] == partner["group"]
        return alike and case["answer"] != partner["answer"] and case["image_id"] != partner["image_id"] and not patient

    for name, case in by_case.items():
        if name not in partners.partner_by_case:
            assert not any(fits(case, partner) for partner in rows)
            continue
        partner = by_case[partners.partner_by_case[name]]
        assert fits(case, partner)
        assert fits(case, partner, any_kind=False) or not any(fits(case, row, any_kind=False) for row in rows)
        assert partners.partner_image(name, case["image_id"]) == partner["image_id"]
    shuffled = random.sample(rows, len(rows))
    assert assign_partners(pd.DataFrame(shuffled)).partner_by_case == partners.partner_by_case
    if len({case[2] for case in cases}) == len(cases) and not any(case[3] for case in cases):
        for kind in {case[0] for case in cases} if labelled else {None}:
            of_kind = [row for row in rows if not labelled or row["modality"] == kind]
            keys = Counter(row["answer"][0] for row in of_kind)
            if 2 * max(keys.values()) <= len(of_kind):  # no key is in the majority, so each image is shown once
                assert len({partners.partner_by_case[row["case_id"]] for row in of_kind}) == len(of_kind)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(("L", "RGB", "P", "I;16")), st.integers(0, 2**32))
def test_a_blank_image_has_the_size_and_the_mean_grey(width, height, mode, seed):
    grey = np.random.default_rng(seed).integers(0, 256, (height, width)).astype(np.uint8)
    image = Image.fromarray(grey.astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(grey).convert(mode)
    file = io.BytesIO()
    image.save(file, "PNG")
    blank = Image.open(io.BytesIO(blank_image(file.getvalue())))
    (colour,) = blank.convert("RGB").getcolors()
    assert blank.size == (width, height)
    assert colour[1] == (colour[1][0],) * 3 and abs(colour[1][0] - grey.mean()) <= 1
    broken = file.getvalue()[:-20]
    assert blank_image(broken) == broken  # a broken image fails as in the run with the right images


@pytest.fixture(scope="module")
def sides(tmp_path_factory) -> Path:
    return write_sides(tmp_path_factory.mktemp("sides"))


@pytest.fixture(scope="module")
def runs(sides) -> dict[str, Path]:
    return run_arms(sides)


def test_only_the_model_that_reads_pixels_is_said_to_see(runs):
    for model, folder in runs.items():
        table = medprobe.load_run(folder).sight.set_index("metric")
        row = table.loc["individual_accuracy"]
        assert bool(row["sees"]) == (model == "Pixels")
        if model == "Pixels":
            # Shown another image, the model answers for that image, whose key is the other one;
            # without an image it says left, which is right once per pair.
            assert (row["real"], row["withheld"], row["blank"], row["swapped"]) == (100, 50, 50, 0)
            assert row["from_image"] == 50 and row["low"] > 0 and row["best_arm"] in ("withheld", "blank")
            assert row["share_without"] == 50 and 0 < row["share_low"] < 50 < row["share_high"] < 100
        else:
            assert row["from_image"] == 0 and row["low"] < 0 < row["high"] and row["share_without"] == 100
        assert "confusion" not in table.index


def test_every_answer_to_a_swapped_image_names_it(runs, sides):
    answers = pd.read_parquet(runs["Pixels"].with_name("Pixels-swapped") / "answers.parquet")
    questions = medprobe.open_dataset(str(sides / "data")).questions("test")
    right = {row["image_id"]: row["options"][row["answer"][0]] for row in questions.to_dict("records")}
    image_ids = dict(zip(questions["question_id"], questions["image_id"], strict=True))
    for question, shown_ids in zip(answers["question_id"], answers["shown"], strict=True):
        (image,) = shown_ids
        assert right[image] != right[image_ids[question]]
    for folder_name in ("Pixels", "Pixels-blank", "Pixels-withheld"):
        assert pd.read_parquet(runs["Pixels"].with_name(folder_name) / "answers.parquet")["shown"].isna().all()


def test_arms_resume_and_are_whole_cases_under_a_limit(sides, tmp_path):
    model = f"{sides / 'models.py'}:Pixels"
    arguments = ["eval", "sides", "--data", sides / "data", "--model", model, "--limit", 3, "--arms"]
    command(*arguments, "--out", "run", cwd=tmp_path)
    journals = {path: path.read_bytes() for path in tmp_path.glob("run*/answers.jsonl")}
    assert {path.parent.name for path in journals} == {"run", "run-withheld", "run-blank", "run-swapped"}
    assert {len(content.splitlines()) for content in journals.values()} == {4}  # only whole cases
    cut = tmp_path / "run-swapped" / "answers.jsonl"
    cut.write_bytes(b"".join(journals[cut].splitlines(keepends=True)[:1]))
    command(*arguments, "--out", "run", cwd=tmp_path)
    assert {path: sorted(path.read_bytes().splitlines()) for path in journals} == {
        path: sorted(content.splitlines()) for path, content in journals.items()
    }  # stored answers are not requested again, and the pictures are the same
    output = command("sight", "run-blank", cwd=tmp_path).stdout
    assert "individual_accuracy" in output and "Of 100 points" in output
    (tmp_path / "run" / "run.json").unlink()
    assert "not next to it" in command("sight", "run-blank", cwd=tmp_path, code=2).stderr


def test_runs_of_one_request_have_the_arms_that_lie_beside_each(sides, tmp_path):
    class Model:
        """Is right with its own image, and for this share of the questions without it."""

        def __init__(self, share):
            self.share = share

        def generate(self, requests):
            return [
                "AB"[
                    request.answer[0]
                    if shows_own_image or int(request.question_id[-1], 36) % 3 < self.share
                    else 1 - request.answer[0]
                ]
                for request in requests
                for shows_own_image in [request.image is not None and not request.shown]
            ]

    tables = {}
    for share, name in ((1, "a-2"), (2, "a")):
        run = medprobe.evaluate("sides", Model(share), data=sides / "data", arms=True, out=tmp_path / name)
        scores = {arm: medprobe.load_run(tmp_path / f"{name}-{arm}").scores for arm in ("withheld", "swapped")}
        tables[name] = {
            arm: float(table.set_index("metric").loc["individual_accuracy", "value"]) for arm, table in scores.items()
        }
        assert run.result is not None
    assert len({str(table) for table in tables.values()}) == 2
    for name, expected in tables.items():
        row = medprobe.load_run(tmp_path / name).sight.set_index("metric").loc["individual_accuracy"]
        assert {arm: row[arm] for arm in expected} == expected
    output = command("sight", *tables, "a-blank", cwd=tmp_path).stdout
    assert output.count("Model on") == 2


def test_answers_in_a_file_have_no_arms(sides, tmp_path):
    question = medprobe.open_dataset(str(sides / "data")).questions("test")["question_id"][0]
    (tmp_path / "answers.jsonl").write_text(json.dumps({"question_id": question, "response": "A"}))
    message = command(
        "eval", "sides", "--data", sides / "data", "--model", "recorded:answers.jsonl", "--arms", cwd=tmp_path, code=2
    ).stderr
    assert "do not depend on what is shown" in message


@pytest.mark.exhaustive
def test_a_sweep_runs_arms_and_forecasts_them(sides, tmp_path):
    (tmp_path / "models.yaml").write_text(
        f"models: ['{sides / 'models.py'}:SaysA']\nbenchmarks: [{{benchmark: sides, data: "
        f"'{sides / 'data'}', limit: 2}}]\n"
        "images: [real, withheld, blank, swapped]\n"
    )
    output = command("sweep", "models.yaml", "--dry-run", cwd=tmp_path).stdout
    assert "in all: 8 requests" in output and all(
        f" mc, {image} images " in output for image in ("withheld", "blank", "swapped")
    )
    command("sweep", "models.yaml", cwd=tmp_path)
    (real,) = (
        path.parent
        for path in tmp_path.glob("runs/models/*/run.json")
        if '"image":"real"' in path.read_text().replace(" ", "")
    )
    assert set(medprobe.load_run(real).sight["best_arm"]) == {"withheld"}
