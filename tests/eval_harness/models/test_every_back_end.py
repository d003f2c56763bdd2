"""Every back end: questions on undecodable images fail and the run continues; a model answers the
same in this process and behind a real server (`transformers serve`).
"""

import time
import urllib.request
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
from tests.processes import free_port, start

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


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_tiny_vlm(tmp_path_factory.mktemp("model") / "tiny")


@pytest.mark.parametrize("kind", ["a plug-in", "a local model", "a server that refuses such images"])
def test_questions_on_broken_images_fail_and_the_run_continues(data, tiny, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    (data_folder, hit), folder = data, tmp_path / "run"
    with ChaosServer() as server:
        model, settings = {
            "a plug-in": (f"{EXAMPLE_PLUG_IN}:BrightSide", Settings()),
            "a local model": (str(tiny), Settings(batch_size=4)),
            "a server that refuses such images": ("openai:m", Settings(base_url=server.url, no_look=True)),
        }[kind]
        options = {"data": str(data_folder), "out": folder, "limit": 12, "settings": settings}
        result, _ = run_evaluation(EvalConfig("halt-medvqa", model, **options))
    answers = {record["question_id"]: record for record in read_answer_journal(folder / "answers.jsonl")}
    failing_ids = hit & answers.keys()
    assert failing_ids
    assert {name for name, record in answers.items() if record["status"] == "failed"} == failing_ids
    assert all("image" in answers[name]["error"] for name in failing_ids)
    assert result.statuses["failed"] == len(failing_ids)


@pytest.fixture(scope="module")
def server(tiny, tmp_path_factory):
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    port = free_port()
    command = [
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        port,
        "--device",
        "cpu",
        "--dtype",
        "float32",
        tiny,
    ]
    run = "import sys; sys.argv[0] = 'transformers'; from transformers.cli.transformers import main; main()"
    # Wait until the server has loaded the model.
    process = start(run, *command, cwd=tmp_path_factory.mktemp("serve"), HF_HUB_OFFLINE="1")
    try:
        for _ in range(600):
            assert process.poll() is None, process.output_file.read_text()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                    break
            except OSError:
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait(30)


def texts(folder):
    return {record["question_id"]: record["response"] for record in read_answer_journal(folder / "answers.jsonl")}


@pytest.mark.exhaustive
def test_http_answers_equal_local_answers(tiny, server, tmp_path):
    build("halt-medvqa", out=tmp_path / "data")
    sides = {
        "local": (str(tiny), Settings()),
        "http": (f"openai:{tiny}", Settings(base_url=server, in_flight=4, no_look=True)),
    }
    for name, (model, settings) in sides.items():
        options = {"form": "text-first", "system": "Be brief.", "max_tokens": 8, "limit": 6, "settings": settings}
        run_evaluation(EvalConfig("halt-medvqa", model, data=str(tmp_path / "data"), out=tmp_path / name, **options))
    local, http = texts(tmp_path / "local"), texts(tmp_path / "http")
    assert len(local) >= 6
    assert len(set(local.values())) > 1, "the model says different things to different questions"
    assert http == local
