"""Test sets other than the benchmarks, from the source to the board: build, run with its arms,
sight, store, and a page with the set's own facets as filters; also recorded answers of real models.
"""

import base64
import csv

import numpy as np
import pandas as pd
import pytest

from dataset_builders.build import build
from dataset_builders.hub.repository import open_repository
from dataset_builders.images.phantom_drawings import Drawing, Lesion, draw_phantom
from eval_harness.benchmarks.gmai_mmbench import read_official
from leaderboard_space.data.board import Board
from leaderboard_space.query import parse_query
from leaderboard_space.service import Service
from medprobe import evaluate, load_run
from tests.commands import medprobe
from tests.helpers import write_lines
from tests.localhub.accounts import CURATOR

ORGANS_OF_SET = ("brain", "chest", "abdomen", "spine")
RUNS = {"Chance": "chance", "Always A": "always-A", "Oracle": "oracle"}
"""Model's name -> its baseline, which is also the name of its run folder."""


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A set of 64 questions on 32 images with two facets of its own; a store with three runs."""
    folder = tmp_path_factory.mktemp("sets")
    rows = []
    for number in range(32):
        organ = ORGANS_OF_SET[number % 4]
        lesion = Lesion(
            ("left", "right")[number // 4 % 2], ("upper", "lower")[number // 8 % 2], ("small", "large")[number // 16]
        )
        image = base64.b64encode(draw_phantom(Drawing(organ, "xray" if organ == "spine" else "ct", (lesion,)))).decode()
        labels = {
            "image": image,
            "modality": "CT",
            "scanner vendor": "XY"[number % 2],
            "length": "long" if number % 3 else "short",
        }
        rows.append(
            {"Q": "Which organ?", **dict(zip("ABCD", ORGANS_OF_SET, strict=True)), "key": "ABCD"[number % 4], **labels}
        )
        rows.append({"Q": "Which side?", "A": "left", "B": "right", "key": "AB"[lesion.side == "right"], **labels})
    with (folder / "own.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    fields = "question=Q,answer=key,facets=modality;scanner vendor;length"
    medprobe("build", "vqa", "--as", "own", "--source", "own.csv", "--map", fields, cwd=folder)
    for name in RUNS.values():
        run = ("--model", f"baseline:{name}", "--out", f"runs/{name}", "--quiet")
        medprobe("eval", "data/own", *run, *(["--arms"] if name == "oracle" else []), cwd=folder)
        medprobe("submit", f"runs/{name}", "--to", "store", cwd=folder)
    return folder


@pytest.mark.exhaustive
def test_the_board_filters_by_the_facets_of_the_set(workdir):
    board = Board(workdir / "store")
    (section,) = board.snapshot.sections["vqa"]
    assert (section.benchmark, section.questions, section.kind, len(section.entries)) == ("own", 64, "custom", 3)
    assert {part["facet"] for part in Service(board).tree({"format": "vqa"})} == {
        "modality",
        "scanner_vendor",
        "length",
    }
    # The expected score is the share of right answers to the selected questions, counted from the
    # runs.
    questions = open_repository(workdir / "data" / "own").questions("test").set_index("question_id")
    selections = [[["scanner_vendor", "X"]], [["length", "short"]], [["scanner_vendor", "Y"], ["length", "long"]]]
    for branches in selections:
        chosen = np.logical_and.reduce([questions[facet] == label for facet, label in branches])
        rows = parse_query(board, {"format": "vqa", "branches": branches, "shown": "all"}).standings.rows
        for row in rows:
            answers = load_run(workdir / "runs" / RUNS[row.entry.result.model.name]).answers
            right = answers.set_index("question_id")["correct"].loc[questions.index[chosen]]
            assert (row.score.n, row.score.value) == (chosen.sum(), pytest.approx(100 * right.astype(float).mean()))
        assert len(rows) == 3


def test_a_part_of_the_set_its_sight_and_its_quality(workdir):
    ran = ("eval", "own", "--model", "baseline:oracle", "--facet", "scanner_vendor=X", "--out", "runs/part", "--quiet")
    assert "n = 32 (worth 16 independent)" in medprobe(*ran, cwd=workdir).stdout  # two questions on an image
    assert "accuracy" in medprobe("sight", "runs/oracle", cwd=workdir).stdout
    assert "length=short" in medprobe("results", "store", "--facet", "length=short", cwd=workdir).stdout
    medprobe("curate", "quality", "data/own", cwd=workdir)
    refusal = medprobe("eval", "own", "--model", "baseline:oracle", "--extraction", "official", cwd=workdir, code=2)
    assert "--extraction official" in refusal.stderr


@pytest.mark.exhaustive
def test_a_published_set_is_evaluated_by_its_name(workdir, local_hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    refusal = medprobe("publish", "data/own", "ORG/own", "--private", cwd=workdir, code=2)
    assert "de-identified" in refusal.stderr
    (workdir / "about.yaml").write_text("deidentification: drawn images\n")  # beside the table
    fields = "question=Q,answer=key,facets=modality;scanner vendor;length"
    build("vqa", name="own", source=workdir / "own.csv", fields=fields, out=workdir / "public" / "own")
    medprobe("publish", "public/own", "ORG/own", "--private", cwd=workdir)
    run = ("--data", "ORG/own", "--model", "baseline:oracle", "--out", "runs/hub", "--quiet")
    assert "accuracy 100.0 %" in medprobe("eval", "own", *run, cwd=workdir).stdout
    assert (
        load_run(workdir / "runs/hub").result.benchmark.fingerprint
        == open_repository(workdir / "data" / "own").manifest["splits"]["test"]["fingerprint"]
    )


@pytest.mark.sources
@pytest.mark.exhaustive
@pytest.mark.parametrize("model", ["huatuogpt-vision-7b", "qwen-vl-7b-chat"])
def test_answers_of_real_models_to_a_set_that_is_read_from_their_result_file(sources, tmp_path, model):
    """VLMEvalKit's verdict (`hit`) on an answer differs from ours only where its rule reads another
    option than our reader: 0 wrong keys. (Their verdicts on the other models' answers:
    `eval_harness/scores/test_scores_official.py`.)
    """
    files = sorted(sources.glob(f"later_answers/gmai_vlmevalkit/{model}/*_result.xlsx"))
    if not files:
        pytest.skip("the recorded answers are not here")
    table = pd.read_excel(files[0], keep_default_na=False, dtype=str).set_index("index", drop=False)
    table.drop(columns=["prediction", "hit"]).to_csv(tmp_path / "set.tsv", sep="\t", index=False)
    fields = (
        "id=index,case=index,facets=task=clinical vqa task;department;granularity=perceptual granularity;modality;"
        "keyword=category;original task"
    )
    report = build(
        "vqa", name="real", source=tmp_path / "set.tsv", fields=fields, text_only=True, out=tmp_path / "real"
    )
    answers = [{"question_id": name, "response": text} for name, text in table["prediction"].items()]
    recorded = write_lines(tmp_path / "answers.jsonl", answers)
    run = evaluate("real", f"recorded:{recorded}", data=str(report.folder), out=tmp_path / "run")
    facets = {"task", "department", "granularity", "modality", "keyword", "original_task"}
    assert facets == set(run.result.breakdown)
    ours = run.answers.set_index("question_id").loc[table.index]
    n_differing = 0
    for (name, row), choice, is_right in zip(table.iterrows(), ours["choice"], ours["correct"], strict=True):
        if bool(int(float(row["hit"]))) != bool(is_right):
            n_differing += 1
            options = [row[letter] for letter in "ABCDE" if row[letter]]
            official = read_official(row["prediction"], options, "single")
            assert "".join("ABCDE"[at] for at in official.choice) != (choice or ""), name
    assert n_differing < len(table) / 8
