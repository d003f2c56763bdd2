"""The real lmms-eval, in an environment of its own: the task folder gives our numbers, its samples land, a dead server is no answer."""

import json
import os
import subprocess

import pytest

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from eval_harness.models.interface import Settings
from eval_harness.runs.planning.config import EvalConfig
from eval_harness.runs.runner import evaluate
from eval_harness.submissions.submit import prepare
from tests import commands
from tests.chaos.server import ChaosServer
from tests.environments import ROOT, environment
from tests.eval_harness.test_inspect_ai import by_text

LMMS = ("lmms-eval==0.7.3",)

pytestmark = [pytest.mark.harness, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def lmms_python(request):
    return environment(request.config.cache, "lmms-eval", LMMS)


def lmms_eval(python, folder, benchmark, url):
    """(results, file of samples) of one run."""
    task = f"medprobe_{benchmark.replace('-', '_')}"
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR", "HF_HOME") if name in os.environ}
    done = subprocess.run(
        [
            *(python, "-m", "lmms_eval", "--model", "openai"),
            *("--model_args", f"model=m,base_url={url},api_key=x,max_retries=2,timeout=5"),
            *("--include_path", "tasks", "--tasks", task, "--log_samples", "--output_path", "out", "--batch_size", "1"),
        ],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "x", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [results] = folder.glob("out/*/*_results.json")
    [samples] = folder.glob(f"out/*/*_samples_{task}.jsonl")
    return json.loads(results.read_text())["results"][task], samples


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_the_same_answers_are_our_numbers(lmms_python, tmp_path, benchmark):
    data = tmp_path / benchmark
    build(benchmark, out=data)
    commands.medprobe("export-lmms-eval", data, "--out", tmp_path / "tasks", cwd=tmp_path)
    with ChaosServer(answer=by_text) as server:
        shown, samples = lmms_eval(lmms_python, tmp_path, benchmark, server.url)
        ours, _ = evaluate(
            EvalConfig(
                benchmark, "openai:m", data=str(data), out=tmp_path / "run", settings=Settings(base_url=server.url)
            )
        )
    compared = 0
    for name, score in ours.scores.items():
        value = shown.get(f"{name},none")
        if isinstance(value, int | float):
            assert value == pytest.approx(score.value, abs=5e-5), name
            compared += 1
    assert compared >= 2
    submitted = prepare(samples, benchmark, "M", str(data))
    assert submitted.problems == [] and submitted.result.scores == ours.scores


def test_a_dead_server_gives_failed_answers(lmms_python, tmp_path):
    data = tmp_path / "mediconfusion"
    build("mediconfusion", out=data)
    commands.medprobe("export-lmms-eval", data, "--out", tmp_path / "tasks", cwd=tmp_path)
    _, samples = lmms_eval(lmms_python, tmp_path, "mediconfusion", "http://127.0.0.1:9/v1")
    found = prepare(samples, "mediconfusion", "M", str(data))
    assert found.result.statuses["failed"] == 28
    assert set(found.answers["response"]) == {""}
