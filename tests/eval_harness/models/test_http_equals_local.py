"""One model in this process and behind a real server (`transformers serve`): equal texts."""

import time
import urllib.request

import pytest

from dataset_builders.build import build
from eval_harness.models.interface import Settings
from eval_harness.models.local.tiny_vlm import make_tiny_vlm
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.run_folder import read_answer_journal
from eval_harness.runs.runner import run_evaluation
from tests.processes import free_port, start

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    make_tiny_vlm(folder)
    return folder


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
