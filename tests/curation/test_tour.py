"""Run docs/tour.md and docs/exam.md command by command, with drawn images and small models."""

import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from curation.exam.exam_tasks import TASKS
from curation.review.review import CHECK_FIELDS, SCORE_FIELDS, ReviewLog
from dataset_builders.hub.repository import open_repository
from leaderboard_space.data.board import Board
from medprobe import load_results
from tests.commands import medprobe
from tests.curation.model_server import model_server, stand_in_answer

ROOT = Path(__file__).resolve().parents[2]
IMAGE_COUNT = 30


def run_page(page, folder, stand_ins, **environment):
    """Run the commands of a page of docs, with other words for some; return command -> output."""
    blocks = re.findall(r"(?ms)^```bash\n(.*?)^```", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    lines = [line for block in blocks for line in block.splitlines()]
    outputs = {}
    for line in lines:
        command = line
        for text, replacement in stand_ins.items():
            command = command.replace(text, replacement)
        program, *arguments = shlex.split(command)
        if program == "python":
            words = [sys.executable, ROOT / arguments[0], *arguments[1:]]
            outputs[line] = subprocess.run(words, check=True, cwd=folder, capture_output=True).stdout
        else:
            outputs[line] = medprobe(*arguments, cwd=folder, **environment).stdout
    assert len(outputs) == len(lines)
    return outputs


@pytest.fixture
def served(monkeypatch):
    """List the (store, built sets) of every board that is served."""
    boards = []
    monkeypatch.setattr("leaderboard_space.app.serve", lambda store, **options: boards.append((store, options["data"])))
    return boards


def draw_images(folder):
    """Draw spots on a grey ground, with captions. Two images each are of one patient.

    The images are too small to be searched for burned-in text, which would take half a minute.
    """
    (folder / "images").mkdir()
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:60, :60]
    rows = [("image", "caption", "group", "license", "source")]
    for k in range(IMAGE_COUNT):
        spot = 150 * np.exp(-((x - rng.integers(10, 50)) ** 2 + (y - rng.integers(10, 50)) ** 2) / 60)
        picture = np.clip(30 + 2 * k + spot + rng.normal(0, 8, (60, 60)), 0, 255).astype(np.uint8)
        Image.fromarray(picture).save(folder / "images" / f"{k}.png")
        rows.append(
            (f"{k}.png", f"Drawn picture {k}. " + "A bright spot on a grey ground. " * 4, k // 2, "CC0-1.0", "drawn")
        )
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_tour_puts_a_custom_benchmark_on_the_board(models, tmp_path, monkeypatch, served):
    draw_images(tmp_path)

    def review(app, **_):
        """Review through the page: all pairs but the first are good."""
        client = TestClient(app)
        for index, pair in enumerate(ReviewLog(tmp_path / "questions").pairs):
            assert client.get("/picture/0", params={"item": pair}).status_code == 200
            for field, value in (
                (SCORE_FIELDS[0], "9"),
                (SCORE_FIELDS[1], "8" if index else "3"),
                *((check, "yes") for check in CHECK_FIELDS),
            ):
                decision = {"reviewer": "Ada", "item": pair, "field": field, "value": value, "seen": None}
                assert client.post("/save", json=decision).json()["said"].startswith("saved")

    monkeypatch.setattr("uvicorn.run", review)
    with model_server(stand_in_answer) as (address, _):
        # The tour's models are too large for a test; its other words are run as they are.
        stand_ins = {
            "--encoder biomedclip": f"--encoder open_clip:local-dir:{models / 'biomedclip'}",
            "--encoder dinov2": f"--encoder transformers:{models / 'dinov2'}",
            "--top 30": "--top 30 --med-at-least=-1 --gen-at-most=1",  # random weights see hardly any difference
            "http://127.0.0.1:8000/v1": address,
        }
        outputs = run_page("tour.md", tmp_path, stand_ins, OPENAI_API_KEY="none")
    assert len(outputs) > 12
    pairs = pd.read_parquet(tmp_path / "pairs" / "pairs.parquet")
    counts = json.loads((tmp_path / "pairs" / "report.json").read_text())["counts"]
    assert (len(pairs), counts["found"], counts["same_group"]) == (
        IMAGE_COUNT // 2,
        # With these thresholds, every two images count as similar.
        IMAGE_COUNT * (IMAGE_COUNT - 1) // 2,
        IMAGE_COUNT // 2,
    )
    # No image is in two pairs.
    assert pd.concat([pairs["image_1"], pairs["image_2"]]).value_counts().max() == 1
    funnel = json.loads((tmp_path / "our-hospital" / "funnel.json").read_text())
    # The reviewer rejects one pair.
    assert funnel["exported"] == funnel["review"]["kept"] == len(pairs) - 1
    rows = open_repository(tmp_path / "data" / "our-hospital").questions("test")
    assert all(list(value) == ["Pulmonary"] for value in rows["categories"])
    quality = json.loads((tmp_path / "quality.json").read_text())
    assert quality["of_pairs"]["pairs"] == len(pairs) - 1 and quality["images_seen"] == quality["images"]
    results = outputs["medprobe results"].splitlines()
    assert results[0].split()[2] == "our-hospital" and {line.split()[0] for line in results[2:5]} == {
        "Chance",
        "NAME",
        "guessing",
    }
    assert served == [("store", ["data/our-hospital"])]
    [section] = [
        candidate
        for candidate in Board(tmp_path / "store").snapshot.sections["mediconfusion"]
        if candidate.kind == "custom"
    ]
    assert (section.title(), section.questions, len(section.entries)) == ("our-hospital", 2 * (len(pairs) - 1), 2)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.exhaustive
def test_the_tour_puts_an_exam_on_the_board(tmp_path, monkeypatch, served):
    # The search, which takes most of the time, has tests of its own.
    monkeypatch.setattr("curation.exam.pairs.find_text", lambda image, letters: [])
    run_page("exam.md", tmp_path, {"demo/models/tiny-vlm": "baseline:chance"})
    assert served == [("demo", ["demo/data/exam"])]
    labels = load_results(tmp_path / "demo")["facet_value"]
    assert {task.ability for task in TASKS.values()} <= set(labels)
