"""The real inspect-ai in its own environment: our tasks, submission of its logs, eval.yaml from a
local Hub.
"""

import hashlib
import json
import re
from pathlib import Path

import huggingface_hub.constants
import pytest
import yaml

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.hub.publish import publish
from eval_harness.models.interface import Settings
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from tests.chaos.server import ChaosServer
from tests.environments import environment
from tests.eval_harness.interop.real_harnesses import run_harness
from tests.localhub.accounts import CURATOR

INSPECT_REQUIREMENTS = ("inspect-ai==0.3.285",)
INSPECT_ANSWERS = ("{0}", "The answer is {0}.", "ANSWER: {0}", "I cannot tell.", "{0} or {1}", "")

CHECKOUT = Path(__file__).resolve().parents[3]
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
    return environment(request.config.cache, "inspect-ai", INSPECT_REQUIREMENTS)


def by_text(body):
    """Answer by the text of the prompt alone: equal prompts get equal answers."""
    content = body["messages"][-1]["content"]
    text = content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)
    # A hash, so that the harness and our run get equal answers.
    draw = hashlib.sha256(text.encode()).digest()
    if not re.search(r"\bA\b\W", text):  # without lettered options: a yes/no question
        return ("Yes.", "No.", "The answer is yes", "No", "I cannot tell.")[draw[0] % 9 // 2]
    return INSPECT_ANSWERS[draw[0] % len(INSPECT_ANSWERS)].format("AB"[draw[1] % 2], "BA"[draw[1] % 2])


def inspect_eval(python, folder, task, url, *options, **environment_variables):
    variables = {"LOOP_BASE_URL": url, "LOOP_API_KEY": "x", "INSPECT_LOG_DIR": str(folder / "logs")}
    command = [python, "-m", "inspect_ai", "eval", task, "--model", "openai-api/loop/m", "--display", "plain"]
    run_harness([*command, *options], folder, **variables | environment_variables)
    return sorted((folder / "logs").glob("*.eval"))


def read_log_report(python, log, *store):
    return json.loads(run_harness([python, "-c", READ_LOG_SCRIPT, log, *store], log.parent).splitlines()[-1])


def test_inspect_logs_are_submitted_unchanged(inspect_python):
    tests = [inspect_python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    assert "passed" in run_harness([*tests, CHECKOUT / "tests/eval_harness/interop/test_inspect_logs.py"], CHECKOUT)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_harness_metrics_equal_ours_for_the_same_answers(inspect_python, tmp_path, benchmark):
    data = tmp_path / benchmark
    build(benchmark, out=data)
    with ChaosServer(answer=by_text) as server:
        [log] = inspect_eval(inspect_python, tmp_path, f"medprobe/{benchmark}", server.url, "-T", f"data={data}")
        result, _ = run_evaluation(
            EvalConfig(
                benchmark,
                "openai:m",
                data=str(data),
                out=tmp_path / "run",
                settings=Settings(base_url=server.url),
            )
        )
    log_report = read_log_report(inspect_python, log, tmp_path / "store")
    metrics = {name: value for name, value in log_report["metrics"].items() if name in result.scores}
    # Metrics without a value are omitted.
    assert len(metrics) >= 2
    assert metrics == pytest.approx({name: result.scores[name].value for name in metrics}, abs=5e-5)
    assert log_report["problems"] == [] and log_report["statuses"] == result.statuses
    assert log_report["scores"] == json.loads(
        json.dumps({name: score.model_dump() for name, score in result.scores.items()})
    )


def test_epochs_become_samples(inspect_python, tmp_path):
    data = tmp_path / "mediconfusion"
    build("mediconfusion", out=data)
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
