"""The real lmms-eval in its own environment: our metrics, submission of its samples, unreachable
servers.
"""

import json

import pytest

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from eval_harness.derive.run_files import table_to_frame
from eval_harness.store.submit import build_submission
from tests import commands
from tests.chaos.server import ChaosServer
from tests.environments import ROOT, environment
from tests.eval_harness.interop.real_harnesses import check_against_ours, run_harness
from tests.eval_harness.interop.test_inspect_ai import by_text

LMMS = ("lmms-eval==0.7.3",)

pytestmark = [pytest.mark.harness, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def lmms_python(request):
    return environment(request.config.cache, "lmms-eval", LMMS)


def lmms_eval(python, folder, benchmark, url):
    """Run lmms-eval; returns (results, samples file)."""
    task = f"medprobe_{benchmark.replace('-', '_')}"
    run_harness(
        [
            *(python, "-m", "lmms_eval", "--model", "openai"),
            *("--model_args", f"model=m,base_url={url},api_key=x,max_retries=2,timeout=5"),
            *(
                "--include_path",
                "tasks",
                "--tasks",
                task,
                "--log_samples",
                "--output_path",
                "out",
                "--batch_size",
                "1",
            ),
        ],
        folder,
        **{"PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "x", "HF_HUB_OFFLINE": "1"},
    )
    [results] = folder.glob("out/*/*_results.json")
    [samples] = folder.glob(f"out/*/*_samples_{task}.jsonl")
    return json.loads(results.read_text())["results"][task], samples


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_harness_metrics_equal_ours_for_the_same_answers(lmms_python, tmp_path, benchmark):
    data = tmp_path / benchmark
    build(benchmark, out=data)
    commands.medprobe("export-lmms-eval", data, "--out", tmp_path / "tasks", cwd=tmp_path)
    with ChaosServer(answer=by_text) as server:
        metrics, samples = lmms_eval(lmms_python, tmp_path, benchmark, server.url)
        values = {name.removesuffix(",none"): value for name, value in metrics.items() if name.endswith(",none")}
        check_against_ours(values, samples, data, server.url, tmp_path / "run")


def test_unreachable_server_gives_failed_answers(lmms_python, tmp_path):
    data = tmp_path / "mediconfusion"
    build("mediconfusion", out=data)
    commands.medprobe("export-lmms-eval", data, "--out", tmp_path / "tasks", cwd=tmp_path)
    # lmms-eval exits with 0 and stores a placeholder as the answer.
    _, samples = lmms_eval(lmms_python, tmp_path, "mediconfusion", "http://127.0.0.1:9/v1")
    submission = build_submission(samples, "mediconfusion", "M", str(data))
    # The placeholder must not be read as an answer.
    assert submission.result.statuses["failed"] == 28
    assert set(table_to_frame(submission.sent.answers)["response"]) == {""}
