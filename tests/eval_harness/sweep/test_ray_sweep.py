"""A sweep on a local Ray cluster with killed processes: no answer is lost or duplicated."""

import json

import pandas as pd
import pytest
import yaml

from dataset_builders.build import build
from tests.commands import medprobe
from tests.environments import environment
from tests.ray_processes import RAY, kill_workers, start

pytestmark = [pytest.mark.harness, pytest.mark.timeout(600)]

SLOW_PLUG_IN = """
import hashlib, os, time
from eval_harness.records.request import Response

class Model:
    needs_images = False
    def __init__(self, settings): pass
    def generate(self, requests):
        for request in requests:
            time.sleep(0.25)  # slow enough that four kills come before the end
            with open(f"asked.{os.getpid()}", "a") as file:
                file.write(request.question_id + "\\n")
            yield Response(request.question_id, request.sample, "AB"[hashlib.sha256(request.prompt.encode()).digest()[0] % 2])
"""


@pytest.fixture(scope="module")
def ray_python(request):
    return environment(request.config.cache, "ray", RAY)


def write_sweep(folder, models, benchmarks=("mediconfusion",)):
    """Write `models.yaml`, with the datasets and the plug-ins that it names."""
    for benchmark in benchmarks:
        build(benchmark, out=folder / "data" / benchmark)
    for name, text in models.items():
        if text:
            (folder / name.partition(":")[0]).write_text(text)
    document = {"models": list(models), "benchmarks": list(benchmarks)}
    (folder / "models.yaml").write_text(yaml.safe_dump(document))


def lines(folder):
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("answers*.jsonl"))


def test_killed_workers_lose_and_repeat_no_answer(ray_python, tmp_path):
    models = dict.fromkeys(("one.py:Model", "two.py:Model"), SLOW_PLUG_IN)
    write_sweep(tmp_path, models, ("mediconfusion", "probmed"))
    process = start(ray_python, tmp_path, "sweep", "models.yaml", "--ray", "local", "--out", "ray")
    killed = kill_workers(process, "Worker", 4, 0, lambda: lines(tmp_path / "ray"), timeout=120)
    assert process.wait(300) == 0, (tmp_path / "said").read_text()
    assert killed == 4, (tmp_path / "said").read_text()
    medprobe("sweep", "models.yaml", "--out", "calm", cwd=tmp_path)
    for calm in sorted((tmp_path / "calm").glob("*/result.json")):
        ray_folder = tmp_path / "ray" / calm.parent.name
        assert json.loads((ray_folder / "result.json").read_text())["scores"] == json.loads(calm.read_text())["scores"]
        answered = pd.DataFrame(map(json.loads, (ray_folder / "answers.jsonl").read_text().splitlines()))
        expected = pd.read_json(calm.parent / "answers.jsonl", lines=True)
        assert answered["question_id"].is_unique
        assert set(answered["question_id"]) == set(expected["question_id"])
        assert not list(ray_folder.glob("answers.rank*"))


def test_question_that_kills_every_worker_fails_only_its_task(ray_python, tmp_path):
    # Ray restarts the worker, which meets the same question again.
    loop = "        for request in requests:"
    dies = f"{loop}\n            if request.question_id.endswith('5-1'):\n                os._exit(1)"
    write_sweep(tmp_path, {"bad.py:Model": SLOW_PLUG_IN.replace(loop, dies), "good.py:Model": SLOW_PLUG_IN})
    process = start(ray_python, tmp_path, "sweep", "models.yaml", "--ray", "local", "--out", "ray")
    assert process.wait(300) == 2
    output = (tmp_path / "said").read_text()
    assert "5 workers died on question" in output and "Traceback" not in output
    assert "1 of 2 tasks are done" in output
    records = [
        json.loads(line)
        for path in (tmp_path / "ray").glob("*bad*/answers*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert 0 < len(records) == len({record["question_id"] for record in records})


def test_unreachable_cluster_gives_a_one_line_error(ray_python, tmp_path):
    write_sweep(tmp_path, {"baseline:chance": None})
    process = start(ray_python, tmp_path, "sweep", "models.yaml", "--ray", "127.0.0.1:1")
    assert process.wait(200) == 2
    assert "no cluster can be reached" in (tmp_path / "said").read_text()


def test_missing_ray_gives_a_one_line_error(tmp_path):
    write_sweep(tmp_path, {"baseline:chance": None})
    error_output = medprobe("sweep", "models.yaml", "--ray", "local", cwd=tmp_path, code=2).stderr
    assert "pip install 'medprobe[ray]'" in error_output
