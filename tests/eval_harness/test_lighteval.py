"""The real lighteval, in an environment of its own: our task module and model give our numbers, its details land."""

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

LIGHTEVAL = ("lighteval==0.13.0", "xxhash<4")
"""lighteval hands texts to xxhash, which takes bytes alone since its version 4."""

pytestmark = [pytest.mark.harness, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def lighteval_python(request):
    return environment(request.config.cache, "lighteval", LIGHTEVAL)


def lighteval(python, folder, benchmark, url):
    """(results, details file) of one run."""
    task = f"medprobe_{benchmark.replace('-', '_')}"
    module = f"tasks/{task}.py"
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "HF_HOME") if name in os.environ}
    offline = {"HOME": str(folder), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [
            *(python, "-m", "eval_harness.integrations.lighteval_tasks", "custom", "openai:m", module, task),
            *("--custom-tasks", module, "--save-details", "--output-dir", "out"),
        ],
        cwd=folder,
        env=kept | offline | {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "x"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [results] = folder.glob("out/results/**/*.json")
    [details] = folder.glob("out/details/**/*.parquet")
    return json.loads(results.read_text())["results"][f"{task}|0"], details


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_the_same_answers_are_our_numbers(lighteval_python, tmp_path, benchmark):
    data = tmp_path / benchmark
    build(benchmark, out=data)
    commands.medprobe("export-lighteval", data, "--out", tmp_path / "tasks", cwd=tmp_path)
    with ChaosServer(answer=by_text) as server:
        shown, details = lighteval(lighteval_python, tmp_path, benchmark, server.url)
        asked = json.dumps(server.bodies[0]["messages"])
        ours, _ = evaluate(
            EvalConfig(
                benchmark, "openai:m", data=str(data), out=tmp_path / "run", settings=Settings(base_url=server.url)
            )
        )
    assert "data:image/" in asked
    values = {name: value for name, value in shown.items() if not name.endswith("_stderr")}
    assert len(values) >= 2
    for name, value in values.items():
        assert value == pytest.approx(ours.scores[name].value, abs=5e-5), name
    submitted = prepare(details, benchmark, "M", str(data))
    assert submitted.problems == [] and submitted.result.scores == ours.scores
