"""The real lighteval, in an environment of its own: our task module and model give our numbers, its details land."""

import json

import pytest

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from tests import commands
from tests.chaos.server import ChaosServer
from tests.environments import ROOT, environment
from tests.eval_harness.integrations.real_harnesses import check_against_ours, run_harness
from tests.eval_harness.integrations.test_inspect_ai import by_text

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
    run_harness(
        [
            *(python, "-m", "eval_harness.integrations.lighteval_tasks", "custom", "openai:m", module, task),
            *("--custom-tasks", module, "--save-details", "--output-dir", "out"),
        ],
        folder,
        **{"HOME": str(folder), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        **{"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "x"},
    )
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
        check_against_ours(shown, details, data, server.url, tmp_path / "run")
    assert "data:image/" in asked
