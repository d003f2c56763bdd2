"""From sources of every format, generated and real, to a built benchmark on the board.

The choices of taggers and reviewers are journalled, and the next run uses them.
"""

import base64
import csv
import io
import json
import random
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from curation.deidentify.review_texts import build_text_review, decide_on_image, pending_images
from curation.gmai import benchmark_files, pipeline, sources
from curation.gmai.label_table import TAGS_FILE
from curation.gmai.pipeline import VALIDATION_LOG, build_tagging, build_validation
from curation.gmai.question_templates import CANDIDATES_FILE
from curation.images.privacy import read_boxes
from dataset_builders.browser_page.page import record_decision
from dataset_builders.errors import BadInput
from dataset_builders.files import read_journal
from dataset_builders.hub.publish import select_dataset_files
from dataset_builders.hub.repository import open_repository
from dataset_builders.schema import row_image_ids
from tests.commands import medprobe
from tests.curation.gmai.phantoms import save_png, write_all, write_sources
from tests.curation.model_server import model_server
from tests.helpers import refused

csv.field_size_limit(1 << 30)


DERMOSCOPY = {"name": "skin", "reader": "folders", "path": "skin", "modality": "Dermoscopy"}


@pytest.fixture(scope="module")
def built_set(tmp_path_factory):
    base = tmp_path_factory.mktemp("gmai")
    process = medprobe("curate", "gmai", write_all(base), "--out", base / "our-hospital", cwd=base)
    return base / "our-hospital", process.stdout


def read_rows(folder, pattern):
    rows = []
    for file in sorted((folder / "tsv").glob(pattern)):
        with file.open(newline="") as stream:
            rows += list(csv.DictReader(stream, delimiter="\t"))
    return rows


def test_every_format_gives_questions_and_every_skip_is_listed(built_set):
    folder, stdout = built_set
    assert {row["source"] for row in read_rows(folder, "*.tsv")} == {
        "skin", "chest", "wide", "coco-ct", "voc-us", "yolo-us", "masks-mr", "nifti-ct", "dicom-ct",
    }  # fmt: skip
    assert "chest: 1 x its image is missing\n" in stdout
    assert "nifti-ct: 1 x not a 3D volume\n" in stdout and "four.nii.gz" not in stdout  # output may be logged
    assert (folder / "private").stat().st_mode & 0o077 == 0
    names = folder / "dataset.names.csv"
    assert {"900.png", "gone.png", "odd.png", "four.nii.gz"} <= set(pd.read_csv(names)["file"])
    assert names.stat().st_mode & 0o077 == 0


def test_test_answers_are_stored_separately(built_set):
    folder, _ = built_set
    validation_rows, test_rows = read_rows(folder, "*_VAL*.tsv"), read_rows(folder, "*_TEST*.tsv")
    assert validation_rows and all(row["answer"] and row["category"] for row in validation_rows)
    assert test_rows and not any(row["answer"] or row["category"] for row in test_rows)
    answer_key = pd.read_csv(folder / "private" / "our-hospital_TEST_answers.tsv", sep="\t")
    assert set(answer_key["index"]) == {int(row["index"]) for row in test_rows}
    assert (folder / "dataset-answers").is_dir() and not list((folder / "dataset").rglob("*answers*"))


def test_vlmevalkit_can_read_the_tsvs(built_set):
    """VLMEvalKit reads with pandas, and expects an integer index, no NaN in options, and single
    letters as answers (except in _MULTI files).
    """
    folder, _ = built_set
    for file in (folder / "tsv").glob("*.tsv"):
        table = pd.read_csv(file, sep="\t")
        assert pd.api.types.is_integer_dtype(table["index"])
        assert not table[["A", "B", "question", "image"]].isna().any().any()
        if "MULTI" not in file.name and "VAL" in file.name:
            assert table["answer"].str.fullmatch("[A-E]").all()


def test_a_run_killed_while_reading_resumes(tmp_path, monkeypatch):
    """A run that is killed repeatedly, with a torn last line in its journal, reads every unit once.

    Its result equals that of an uninterrupted run with the same seed; another seed gives another
    result.
    """
    path = write_all(tmp_path, only={"coco", "nifti"})
    uninterrupted = [(w.question, w.choice) for w in pipeline.run_pipeline(path, tmp_path / "whole").written]
    read_counts = Counter()
    read_unit = sources._read_unit

    def dying(unit, *args):
        if sum(read_counts.values()) == dying.after:
            raise KeyboardInterrupt
        read_counts[unit.key] += 1
        return read_unit(unit, *args)

    monkeypatch.setattr(sources, "_read_unit", dying)
    out = tmp_path / "killed"
    for dying.after in (0, 1, 4, 9):
        with pytest.raises(KeyboardInterrupt):
            pipeline.run_pipeline(path, out)
        assert not (out / "dataset").exists()
        with (out / "private" / "journal.jsonl").open("a") as journal:
            journal.write('{"dataset": "coco-ct", "un')
    dying.after = -1
    assert [(w.question, w.choice) for w in pipeline.run_pipeline(path, out).written] == uninterrupted
    assert set(read_counts.values()) == {1}
    path.write_text(path.read_text() + "seed: 7\n")
    assert {choice for _, choice in uninterrupted} != {
        w.choice for w in pipeline.run_pipeline(path, tmp_path / "other").written
    }


def test_changed_files_are_read_again_and_lost_pictures_restored(tmp_path):
    path = write_all(tmp_path, only={"folders"})
    first_run = pipeline.run_pipeline(path, tmp_path / "set")
    pictures = sorted((tmp_path / "set" / "private" / "pictures").iterdir())
    pictures[0].unlink()
    # Same path, other content: the unit must be read again.
    save_png(tmp_path / "folders" / "nevus" / "Pn0_a.png", np.full((64, 64), 9, np.uint8))
    second_run = pipeline.run_pipeline(path, tmp_path / "set")
    assert (
        len({w.case.item.picture for w in second_run.written} - {w.case.item.picture for w in first_run.written}) == 1
    )
    assert len(second_run.written) == len(first_run.written)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("unmapped", "no label is mapped"),
        ("alone", "can be a wrong option"),
        ("empty", "no dataset has a single target"),
        ("missing", "does not exist"),
        ("taken", "is reserved"),
    ],
)
def test_a_run_without_questions_fails_in_one_line_and_writes_nothing(tmp_path, name, expected):
    out = tmp_path / ("gmai-mmbench" if name == "taken" else "set")
    for label in {"unmapped": ["zyx", "wvu"], "alone": ["melanoma"]}.get(name, ["melanoma", "nevus"]):
        rng = np.random.default_rng(len(label))
        for k in range(2):
            save_png(tmp_path / "d" / label / f"{k}.png", rng.integers(0, 255, (32, 32), dtype=np.uint8))
            if name == "empty":
                (tmp_path / "d" / label / f"{k}.png").write_bytes(b"no picture")
    folder = "gone" if name == "missing" else "d"
    sources = write_sources(tmp_path, DERMOSCOPY | {"path": folder})
    assert expected in refused(pipeline.run_pipeline, sources, out)
    assert not (out / "dataset").exists() and not (out / "tsv").exists()


def test_a_failed_run_keeps_the_previous_output(tmp_path):
    path = write_all(tmp_path, only={"folders"})
    pipeline.run_pipeline(path, tmp_path / "set")
    files_before = {file: file.read_bytes() for file in (tmp_path / "set" / "tsv").iterdir()}
    # The error occurs late, after all sources have been read.
    (tmp_path / "labels.csv").write_text("name,task\nmelanoma,Bakery\n")
    path.write_text(path.read_text() + "labels: labels.csv\n")
    with pytest.raises(BadInput, match="Bakery"):
        pipeline.run_pipeline(path, tmp_path / "set")
    assert {file: file.read_bytes() for file in (tmp_path / "set" / "tsv").iterdir()} == files_before


def test_tables_and_funnel_match_the_questions(built_set):
    folder, _ = built_set
    rows = read_rows(folder, "*_VAL.tsv") + read_rows(folder, "*_TEST.tsv")
    multi = read_rows(folder, "*_MULTI.tsv")
    tasks = pd.read_csv(folder / "report" / "tasks.csv").groupby("kind")["questions"].sum().to_dict()
    assert tasks["single"] == len(rows) and tasks.get("multiple", 0) == len(multi)
    granularities = pd.read_csv(folder / "report" / "granularities.csv").set_index("granularity")["cases"]
    # Each mask is asked about twice, as a mask and as a contour.
    assert granularities["Mask Level"] == granularities["Contour Level"]
    funnel = json.loads((folder / "report" / "funnel.json").read_text())
    assert funnel["questions"] == len(rows) + len(multi)
    assert funnel["possible_questions"] - sum(funnel["not_asked"].values()) == funnel["questions"]


def test_the_board_shows_departments_modalities_and_the_tree(built_set, tmp_path):
    from leaderboard_space.data.board import Board
    from leaderboard_space.data.published_results import board_results
    from leaderboard_space.service import Service, tools

    folder, _ = built_set
    data = ("--data", folder / "dataset")
    medprobe("eval", "gmai-mmbench", *data, "--model", "baseline:chance", "--out", "run", cwd=tmp_path)
    medprobe("submit", "run", "--to", "store", cwd=tmp_path)
    board = Board(tmp_path / "store", board_results())
    (section,) = [section for section in board.snapshot.sections["gmai-mmbench"] if section.benchmark == "our-hospital"]
    page = Service(board).view({"format": "gmai-mmbench", "section": section.key})["html"]
    assert "No person has checked the questions of this set." in page
    tools_by_name = {tool.__name__: tool for tool in tools(board)}
    question_set = next(section for section in tools_by_name["question_sets"]() if "our-hospital" in str(section))
    branches = str(tools_by_name["branches_of"](benchmark="gmai-mmbench", question_set=question_set["question_set"]))
    for row in read_rows(folder, "*_VAL*.tsv"):
        assert all(row[name] in branches for name in ("department", "modality", "clinical vqa task"))


def test_card_states_approval_and_deidentification_needed_to_publish(tmp_path):
    path = write_all(tmp_path, only={"nifti"})
    path.write_text(path.read_text().replace("slices: 2", "slices: 2\n  ethics: IRB 2026-17"))
    pipeline.run_pipeline(path, tmp_path / "set")
    card = tmp_path / "set" / "dataset" / "README.md"
    assert "- **Approval:** nifti-ct: IRB 2026-17" in card.read_text()
    # Publishing requires a statement about de-identification.
    with pytest.raises(BadInput, match="de-identified"):
        select_dataset_files(card.parent, "ORG/set", private=True)
    (tmp_path / "about.yaml").write_text("deidentification: drawn by a program\n")
    pipeline.run_pipeline(path, tmp_path / "set")
    assert "- **Deidentification:** drawn by a program" in card.read_text() and "IRB 2026-17" in card.read_text()
    assert select_dataset_files(card.parent, "ORG/set", private=True)[0]


def test_slices_of_a_volume_can_be_one_question(tmp_path):
    """A question shows several slices of a volume in order, each with the target marked."""
    path = write_all(tmp_path, only={"nifti"})
    path.write_text(path.read_text().replace("slices: 2", "slices: 2\n  together: true"))
    result = pipeline.run_pipeline(path, tmp_path / "set")
    assert result.funnel["read"]["nifti-ct"]["patients"] == 4, (
        "slices of a volume without a patient id are of one patient"
    )
    assert {len(w.case.item.pictures) for w in result.written} == {2}
    repository = open_repository(tmp_path / "set" / "dataset")
    for split_name in repository.splits:
        rows = repository.questions(split_name)
        assert set(rows["more_image_ids"].map(len)) == {1}
        assert rows["question"].str.startswith("These 2 images are slices of one volume, in their order").all()
        images = {name: data for case in repository.cases(split_name) for name, data in case.images.items()}
        for question_row in rows.to_dict("records"):
            for name in row_image_ids(question_row):
                pixels = np.asarray(Image.open(io.BytesIO(images[name]))).astype(int)
                assert (pixels[..., 0] > pixels[..., 1] + 20).any(), "the target is tinted or outlined in red"


def draw_noise(rng):
    coarse = np.random.default_rng(rng.randrange(2**32)).integers(0, 255, (6, 6), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((40, 40), Image.Resampling.BICUBIC))


def test_a_set_solvable_from_text_alone_is_refused_unless_accepted(tmp_path):
    rng = random.Random(0)
    # One frequent answer: always choosing it beats chance.
    for label, count in (("Melanoma", 30), ("nevus", 5), ("BCC", 5)):
        for at in range(count):
            save_png(tmp_path / "skin" / label / f"{at}.png", draw_noise(rng))
    sources = write_sources(tmp_path, DERMOSCOPY)
    message = refused(pipeline.run_pipeline, sources, tmp_path / "set")
    assert "most frequent answer: 'melanoma', 30 times" in message
    assert not any((tmp_path / "set" / name).exists() for name in ("dataset", "tsv", "report"))
    pipeline.run_pipeline(sources, tmp_path / "set", accept_text_alone=True)
    card = (tmp_path / "set" / "dataset" / "README.md").read_text()
    assert "the set was built nonetheless" in card and "no person has checked these questions" in card
    # With equally many cases per label, text alone does not help.
    pipeline.run_pipeline(write_sources(tmp_path, DERMOSCOPY, per_answer=5), tmp_path / "set")
    assert "nonetheless" not in (tmp_path / "set" / "dataset" / "README.md").read_text()


def test_pictures_with_burned_in_text_await_a_decision(tmp_path, monkeypatch):
    """Pictures with text are not used before a decision, and masked regions are black in the
    output.

    See also: detection of text (`test_workflows.py`).
    """
    monkeypatch.setattr(
        benchmark_files,
        "find_text",
        lambda image: [(4, 6, 20, 16)] * (max(image.convert("L").tobytes()) == 235),
    )
    rng = random.Random(1)
    for label in ("Melanoma", "nevus"):
        for number in range(3):
            pixels = draw_noise(rng) // 6
            # The stand-in for the detector finds "text" in pictures with this grey level.
            pixels[6:16, 4:20] = 235 if number else 0
            save_png(tmp_path / "skin" / label / f"{number}.png", pixels)
    sources, out = write_sources(tmp_path, DERMOSCOPY, near_duplicate=-1), tmp_path / "set"
    first_run = pipeline.run_pipeline(sources, out)
    waiting = pending_images(out)
    assert (len(first_run.written), len(waiting)) == (2, 4)
    assert first_run.funnel["burned_in_text"] | {"decisions": {}} == {
        "searched": 6, "with_text": 4, "undecided": 4, "decisions": {}, "searched_by_deidentify": [],
    }  # fmt: skip
    assert f"medprobe curate texts {out}" in "".join(first_run.notes)
    assert waiting[0] in TestClient(build_text_review(out)).get("/item").text
    for picture, decision in zip(waiting, ["mask", "keep", "drop"], strict=False):
        decide_on_image(out, picture, decision, "Ada")
    second_run = pipeline.run_pipeline(sources, out)
    assert {w.case.item.picture for w in second_run.written} - {w.case.item.picture for w in first_run.written} == set(
        waiting[:2]
    )
    images = {row["index"]: row["image"] for row in read_rows(out, "*.tsv")}
    (masked,) = (w for w in second_run.written if w.case.item.picture == waiting[0])
    left_px, top_px, right_px, bottom_px = read_boxes(out / "private")[waiting[0]][0]
    with Image.open(io.BytesIO(base64.b64decode(images[str(masked.index)]))) as image:
        assert np.asarray(image)[top_px:bottom_px, left_px:right_px].max() == 0
    (tmp_path / "deidentification.json").write_text(
        '{"text": {"searched": true}}'
    )  # searched by deidentify: not searched again
    assert pipeline.run_pipeline(sources, tmp_path / "searched").funnel["burned_in_text"]["searched"] == 0
    unsearched = pipeline.run_pipeline(sources, tmp_path / "other", search_text=False)
    assert len(unsearched.written) == 6
    assert "Burned-in text: not searched." in (tmp_path / "other" / "dataset" / "README.md").read_text()


@pytest.fixture(scope="module")
def real_set(tmp_path_factory, sources):
    """Build a set from ChestX-ray14 and 55 radiographs."""
    base = tmp_path_factory.mktemp("real")
    chestxray_folder = sources / "chestxray14"
    boxes = pd.read_csv(chestxray_folder / "BBox_List_2017.csv")
    rng = np.random.default_rng(0)
    (base / "boxed").mkdir()
    for name in boxes["Image Index"].unique()[::20]:  # noise of the same size replaces the original radiographs
        coarse = rng.integers(0, 256, (16, 16), dtype=np.uint8)
        Image.fromarray(coarse).resize((1024, 1024), Image.Resampling.NEAREST).save(
            base / "boxed" / name, compress_level=1
        )
    # The published table is in Latin-1; tables are read as UTF-8.
    text = (sources / "figure1_cxr" / "metadata.csv").read_text(encoding="latin-1")
    (base / "figure1.csv").write_text(text, encoding="utf-8")
    columns = {"image": "Image Index", "patient": "Patient ID", "age": "Patient Age", "sex": "Patient Gender"}
    document = {
        "longest_side": 256,
        "separate_registries": True,
        "datasets": [
            {"name": "boxes", "reader": "boxes", "path": "boxed",
             "annotations": str(chestxray_folder / "BBox_List_2017.csv"), "modality": "X-ray",
             "region": "chest", "patient": r"(\d{8})_", "patients": "nih",
             "columns": {"image": "Image Index", "label": "Finding Label", "box": list(boxes.columns[2:6])}},
            {"name": "findings", "reader": "csv", "path": str(chestxray_folder / "images"),
             "annotations": str(chestxray_folder / "Data_Entry_sample.csv"), "modality": "X-ray",
             "region": "chest", "exhaustive": True, "nothing": "No Finding", "patients": "nih",
             "columns": columns | {"label": "Finding Labels"}},
            {"name": "figure1", "reader": "csv", "path": str(sources / "figure1_cxr" / "images"), "annotations": "figure1.csv",
             "modality": "X-ray", "region": "chest", "patient": r"(COVID-\d+)", "nothing": ["No finding"],
             "columns": {"image": "patientid", "label": "finding", "age": "age", "sex": "sex"}},
        ],
    }  # fmt: skip
    (base / "sources.yaml").write_text(json.dumps(document))
    return pipeline.run_pipeline(base / "sources.yaml", base / "real-set")


@pytest.mark.sources
@pytest.mark.exhaustive
def test_real_boxes_become_box_questions_about_the_chest(real_set):
    boxes = [w for w in real_set.written if w.case.item.dataset == "boxes"]
    assert len(boxes) >= 25
    assert {w.case.granularity for w in boxes} == {"Box Level"}
    assert len({w.case.answer for w in boxes}) >= 5
    missing = [skip for skip in real_set.funnel["skipped"] if skip["dataset"] == "boxes"]
    # Of 880 boxed images, the fixture draws every twentieth.
    assert missing == [{"dataset": "boxes", "reason": "its image is missing", "count": 880 - 44}]


@pytest.mark.exhaustive
@pytest.mark.sources
def test_real_radiographs_are_read_and_skips_are_counted(real_set):
    assert real_set.funnel["read"]["findings"]["pictures"] == 9
    assert real_set.funnel["read"]["findings"]["patients"] == 2
    assert real_set.funnel["read"]["figure1"]["pictures"] > 30
    assert any(w.case.item.dataset == "findings" for w in real_set.written)


def test_pages_journal_tags_and_verdicts_for_the_next_run(tmp_path):
    path = write_all(tmp_path, only={"coco"})
    out = tmp_path / "set"
    with pytest.raises(BadInput, match="has no questions"):
        build_validation(out)
    first_run = pipeline.run_pipeline(path, out)
    with pytest.raises(BadInput, match="three people"):
        build_tagging(out, ["Ada", "Bo"])
    verdict_log, votes = out / "private" / VALIDATION_LOG, out / "private" / TAGS_FILE
    first_case, second_case = (question.case.case for question in first_run.written[:2])
    page = TestClient(build_validation(out))
    assert page.get("/picture/0", params={"item": first_case}).content.startswith(b"\x89PNG")
    assert page.get("/picture/9", params={"item": first_case}).status_code == 404

    def post_decision(item, field, value, **by):
        return page.post("/save", json={"item": item, "field": field, "value": value} | by).json()

    # Without a name, nothing is recorded.
    assert "error" in post_decision(first_case, "faults", ["unclear"]) and not verdict_log.is_file()
    response = post_decision(first_case, "faults", ["unclear"], reviewer="Ada")
    assert (response["done"], response["items"]) == (1, len(first_run.written))
    post_decision(second_case, "faults", [], reviewer="Ada")
    assert "error" in post_decision("none", "faults", [], reviewer="Ada")
    verdicts = [(entry["reviewer"], entry["item"], entry["value"]) for entry in read_journal(verdict_log)]
    assert verdicts == [("Ada", first_case, ["unclear"]), ("Ada", second_case, [])]
    assert page.get("/item", params={"reviewer": "Ada", "item": first_case}).json()["values"] == {"faults": ["unclear"]}
    second_run = pipeline.run_pipeline(path, out)
    old_questions, new_questions = (
        {w.case.case: (w.question, w.choice) for w in question.written} for question in (first_run, second_run)
    )
    # A fault removes the question; a verdict without faults changes nothing.
    assert first_case not in new_questions and second_run.funnel["validation"]["dropped"] == {"unclear": 1}
    assert all(new_questions[case] == old_questions[case] for case in new_questions.keys() & old_questions.keys())
    page = TestClient(build_tagging(out, ["Ada", "Bo", "Cy"]))
    response = page.get("/item", params={"reviewer": "Bo"}).json()
    label = response["item"]
    assert (response["done"], response["items"]) == (0, 4)
    # An unknown tagger, an unknown task, and a vote without a name.
    for invalid_fields in ({"reviewer": "Eve"}, {"reviewer": "Bo", "value": "Cooking"}, {}):
        assert "error" in post_decision(**({"item": label, "field": "task", "value": "Muscle"} | invalid_fields))
    post_decision(label, "task", "Muscle", reviewer="Bo")
    assert post_decision(label, "department", "Urology", reviewer="Bo")["done"] == 1
    # Three votes are needed before tags count.
    for tagger in ("Ada", "Cy"):
        record_decision(votes, tagger, label, "task", "Muscle")
        record_decision(votes, tagger, label, "department", "Urology")
    third_run = pipeline.run_pipeline(path, out)
    assert all(w.case.task != "Muscle" or w.case.answers == (label,) for w in third_run.written)
    assert label not in {a for w in third_run.written if w.case.task != "Muscle" for a in w.case.answers}


def test_model_templates_are_filtered_by_rules_and_used_after_review(tmp_path):
    from curation.commands.pair_questions import open_language_model

    valid_question = "Which abdominal organ is in the tinted area on this CT image?"
    reply_lines = [
        valid_question,
        "1. Is the liver in the box on this CT image the abdominal organ?",
        "- What is this?",
        "Which organ is boxed on this scan?",
    ]
    path = write_all(tmp_path, only={"coco"})
    out = tmp_path / "set"
    with model_server(lambda prompt, earlier_prompts: "\n".join(reply_lines)) as (address, log):
        # Replies are journalled, so the second run must not repeat any request.
        for _ in range(2):
            result = pipeline.run_pipeline(path, out, *open_language_model("m", address, False))
        request_count = len(log.requests)
    assert request_count == result.funnel["model_questions"]["asked"]  # the second run makes no requests
    assert result.funnel["model_questions"]["against the rules"] > result.funnel["model_questions"]["to review"] == 1
    # A model's question is not used until a person has accepted it.
    assert not any(valid_question == w.question for w in result.written)
    candidates = out / "private" / CANDIDATES_FILE
    template = valid_question.replace("CT", "<modality>")
    assert template in candidates.read_text()
    candidates.write_text(candidates.read_text().replace(f"{template},", f"{template},yes"))
    final_result = pipeline.run_pipeline(path, out)
    masks = [w for w in final_result.written if w.case.granularity == "Mask Level"]
    assert masks
    assert {w.question for w in masks} == {valid_question}
