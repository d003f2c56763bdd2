"""The real inspect-ai and lmms-eval in environments of their own, asking a server whose answers
depend on the prompt: their metrics against ours, submission of their logs and samples, eval.yaml
from a local Hub, unreachable servers.
"""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import huggingface_hub.constants
import pytest
import yaml

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.hub.publish import publish
from eval_harness.derive.run_files import table_to_frame
from eval_harness.models.interface import Settings
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from eval_harness.store.submit import build_submission
from tests import commands
from tests.chaos.server import ChaosServer
from tests.environments import ROOT, environment
from tests.localhub.accounts import CURATOR
from tests.processes import output_of

INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "HF_HOME")
"""Environment variables that a harness inherits."""


def run_harness(command: Sequence[str | Path], folder: Path, **variables: str) -> str:
    """Run a harness in a folder and return what it prints."""
    inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    return output_of(command, cwd=folder, env=inherited | variables, timeout=600)


def our_result(data: Path, server_url: str, out: Path):
    """Return our own result for the answers of the same server."""
    settings = Settings(base_url=server_url)
    return run_evaluation(EvalConfig(data.name, "openai:m", data=str(data), out=out, settings=settings))[0]


def check_metrics(harness_metrics, result):
    """Check a harness's metrics (in percent) against ours; at least one is neither 0 nor 100."""
    # Metrics without a value are omitted.
    values = {
        name: value
        for name, value in harness_metrics.items()
        if isinstance(value, int | float) and name in result.scores
    }
    # All 0 or all 100 would also agree if nothing were read.
    assert len(values) >= 2 and any(0 < value < 100 for value in values.values()), harness_metrics
    assert values == pytest.approx({name: result.scores[name].value for name in values}, abs=5e-5)


LETTER_ANSWERS = ("{0}", "The answer is {0}.", "ANSWER: {0}", "I cannot tell.", "{0} or {1}", "")

READ_LOG_SCRIPT = """
import json, sys
from inspect_ai.log import read_eval_log
from pathlib import Path
log, path = read_eval_log(sys.argv[1]), Path(sys.argv[1])
metrics = {name: metric.value for each in log.results.scores for name, metric in each.metrics.items()}
right = [each.scores["choice"].value == "C" for each in log.samples if "choice" in (each.scores or {})]
said = {"task": log.eval.task, "metrics": metrics, "right": sum(right) / len(right) if right else None}
if sys.argv[2:]:
    from eval_harness.store.submit import submit_to_store
    found = submit_to_store(path, sys.argv[2]).submission
    scores = {name: score.model_dump() for name, score in found.result.scores.items()}
    said |= {"problems": found.problems, "scores": scores, "statuses": found.result.statuses, "samples": found.result.method.samples}
print(json.dumps(said))
"""
"""Print inspect-ai's own reading of a log and, given a store, the outcome of our submission."""

pytestmark = [pytest.mark.harness, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def inspect_python(request):
    return environment(request.config.cache, "inspect-ai", ("inspect-ai==0.3.285",))


def by_text(body):
    """Answer by the text of the prompt alone: equal prompts get equal answers."""
    content = body["messages"][-1]["content"]
    text = content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)
    # A hash, so that the harness and our run get equal answers.
    draw = hashlib.sha256(text.encode()).digest()
    if not re.search(r"\bA\b\W", text):  # without lettered options: a yes/no question
        return ("Yes.", "No.", "The answer is yes", "No", "I cannot tell.")[draw[0] % 9 // 2]
    return LETTER_ANSWERS[draw[0] % len(LETTER_ANSWERS)].format("AB"[draw[1] % 2], "BA"[draw[1] % 2])


def inspect_eval(python, folder, task, url, *options, **environment_variables):
    variables = {"LOOP_BASE_URL": url, "LOOP_API_KEY": "x", "INSPECT_LOG_DIR": str(folder / "logs")}
    command = [python, "-m", "inspect_ai", "eval", task, "--model", "openai-api/loop/m", "--display", "plain"]
    run_harness([*command, *options], folder, **variables | environment_variables)
    return sorted((folder / "logs").glob("*.eval"))


def read_log_report(python, log, *store):
    return json.loads(run_harness([python, "-c", READ_LOG_SCRIPT, log, *store], log.parent).splitlines()[-1])


def test_inspect_logs_are_submitted_unchanged(inspect_python):
    tests = [inspect_python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    assert "passed" in run_harness([*tests, ROOT / "tests/eval_harness/interop/test_inspect_logs.py"], ROOT)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_inspect_metrics_equal_ours_for_the_same_answers(inspect_python, phantoms, tmp_path, benchmark):
    data = phantoms / benchmark
    with ChaosServer(answer=by_text) as server:
        [log] = inspect_eval(inspect_python, tmp_path, f"medprobe/{benchmark}", server.url, "-T", f"data={data}")
        result = our_result(data, server.url, tmp_path / "run")
    log_report = read_log_report(inspect_python, log, tmp_path / "store")
    check_metrics(log_report["metrics"], result)
    assert log_report["problems"] == [] and log_report["statuses"] == result.statuses
    assert log_report["scores"] == json.loads(
        json.dumps({name: score.model_dump() for name, score in result.scores.items()})
    )


def test_epochs_become_samples(inspect_python, phantoms, tmp_path):
    data = phantoms / "mediconfusion"
    with ChaosServer(answer=by_text) as server:
        [log] = inspect_eval(
            *(inspect_python, tmp_path, "medprobe/mediconfusion", server.url),
            *("-T", f"data={data}", "--epochs", "2", "--log-format", "eval"),
        )
    log_report = read_log_report(inspect_python, log, tmp_path / "store")
    assert log_report["samples"] == 2
    assert log_report["metrics"]["set_accuracy"] == pytest.approx(
        log_report["scores"]["set_accuracy"]["value"], abs=5e-5
    )


def test_eval_yaml_tasks_run_from_the_hub(inspect_python, local_hub, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", local_hub.endpoint)
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    for benchmark in BENCHMARKS:
        build(benchmark, out=tmp_path / benchmark, eval_yaml=True)
        publish(tmp_path / benchmark, f"ORG/{benchmark}-test")
        tasks = yaml.safe_load((tmp_path / benchmark / "eval.yaml").read_text())["tasks"]
        folder = tmp_path / f"runs-{benchmark}"
        folder.mkdir()
        with ChaosServer(answer=by_text) as server:
            logs = inspect_eval(
                *(inspect_python, folder, f"hf/ORG/{benchmark}-test", server.url),
                HF_ENDPOINT=local_hub.endpoint,
                HF_HOME=str(tmp_path / "hf"),
                HF_TOKEN=CURATOR,
                HF_HUB_DISABLE_XET="1",
            )
            questions = json.dumps(server.bodies[0]["messages"])
        assert len(logs) == len(tasks)
        assert "data:image/" in questions and "ANSWER: $LETTER" in questions
        for log in logs:
            log_report = read_log_report(inspect_python, log)
            assert log_report["metrics"]["accuracy"] == pytest.approx(log_report["right"])


@pytest.fixture(scope="session")
def lmms_python(request):
    return environment(request.config.cache, "lmms-eval", ("lmms-eval==0.7.3",))


def lmms_eval(python, folder, benchmark, url):
    """Run lmms-eval; returns (results, samples file)."""
    task = f"medprobe_{benchmark.replace('-', '_')}"
    run_harness(
        [
            *(python, "-m", "lmms_eval", "--model", "openai"),
            *("--model_args", f"model=m,base_url={url},api_key=x,max_retries=2,timeout=5"),
            *("--include_path", "tasks", "--tasks", task, "--log_samples", "--output_path", "out", "--batch_size", "1"),
        ],
        folder,
        **{"PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "x", "HF_HUB_OFFLINE": "1"},
    )
    [results] = folder.glob("out/*/*_results.json")
    [samples] = folder.glob(f"out/*/*_samples_{task}.jsonl")
    return json.loads(results.read_text())["results"][task], samples


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_lmms_metrics_equal_ours_for_the_same_answers(lmms_python, phantoms, tmp_path, benchmark):
    data = phantoms / benchmark
    commands.medprobe("export-lmms-eval", data, "--out", tmp_path / "tasks", cwd=tmp_path)
    with ChaosServer(answer=by_text) as server:
        metrics, samples = lmms_eval(lmms_python, tmp_path, benchmark, server.url)
        values = {name.removesuffix(",none"): value for name, value in metrics.items() if name.endswith(",none")}
        result = our_result(data, server.url, tmp_path / "run")
    check_metrics(values, result)
    submitted = build_submission(samples, benchmark, "M", str(data))
    assert submitted.problems == [] and submitted.result.scores == result.scores


def test_unreachable_server_gives_failed_answers(lmms_python, phantoms, tmp_path):
    data = phantoms / "mediconfusion"
    commands.medprobe("export-lmms-eval", data, "--out", tmp_path / "tasks", cwd=tmp_path)
    # lmms-eval exits with 0 and stores a placeholder as the answer.
    _, samples = lmms_eval(lmms_python, tmp_path, "mediconfusion", "http://127.0.0.1:9/v1")
    submission = build_submission(samples, "mediconfusion", "M", str(data))
    # The placeholder must not be read as an answer.
    assert submission.result.statuses["failed"] == 28
    assert set(table_to_frame(submission.sent.answers)["response"]) == {""}
