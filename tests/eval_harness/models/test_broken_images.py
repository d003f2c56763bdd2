"""Undecodable images: their questions fail and the run continues, with every back end."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_builders.build import build
from eval_harness.models.interface import Settings
from eval_harness.models.local.tiny_vlm import make_tiny_vlm
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.run_folder import read_answer_journal
from eval_harness.runs.runner import run_evaluation
from tests.chaos.server import ChaosServer
from tests.eval_harness.store.submitting import update_card

EXAMPLE_PLUG_IN = Path(__file__).resolve().parents[3] / "docs/examples/my_model.py"
BROKEN_IMAGES = (b"", b"no image", b"\xff\xd8\xff\xe0 half a JPEG")


def damage(folder, which):
    """Put broken images into the cases of a built dataset; returns the ids of their questions."""
    hit = set()
    for path in folder.glob("cases/*.parquet"):
        table = pq.read_table(path)
        rows = table.to_pylist()
        for number, row in enumerate(rows):
            if number in which:
                row["images"][0]["bytes"] = BROKEN_IMAGES[number % 3] or row["images"][0]["bytes"][:-200]
                hit |= {q["question_id"] for q in row["questions"] if q["image_id"] == row["image_ids"][0]}
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    # Otherwise the changed files would not match the dataset's card.
    update_card(folder)
    return hit


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken") / "data"
    build("halt-medvqa", out=folder)
    return folder, damage(folder, {1, 2, 3})


def check(data, folder, **changes):
    data_folder, hit = data
    result, _ = run_evaluation(
        EvalConfig(benchmark="halt-medvqa", data=str(data_folder), out=folder, limit=12, **changes)
    )
    answers = {record["question_id"]: record for record in read_answer_journal(folder / "answers.jsonl")}
    failing_ids = hit & answers.keys()
    assert failing_ids
    assert {name for name, record in answers.items() if record["status"] == "failed"} == failing_ids
    assert all("image" in answers[name]["error"] for name in failing_ids)
    assert result.statuses["failed"] == len(failing_ids)


@pytest.mark.parametrize("kind", ["a plug-in", "a local model", "a server that refuses such images"])
def test_questions_on_broken_images_fail_and_the_run_continues(data, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with ChaosServer() as server:
        model, settings = f"{EXAMPLE_PLUG_IN}:BrightSide", Settings()
        if kind == "a local model":
            model, settings = str(make_tiny_vlm(tmp_path / "tiny")), Settings(batch_size=4)
        elif kind != "a plug-in":
            model, settings = "openai:m", Settings(base_url=server.url, no_look=True)
        check(data, tmp_path / "run", model=model, settings=settings)
