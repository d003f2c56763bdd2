"""Asking a model: the cache of replies answers only requests that were sent before, in the same
form, to the same model; questions that a processor rejects, interrupted runs, the dry run, answers
too long for a store, files beside a plug-in, and `--model` values that name no model
(`tests/chaos/test_every_run_ends.py` has the faults).
"""

import json
from dataclasses import replace

import pytest

from dataset_builders.errors import BadInput
from eval_harness.models.interface import Settings
from eval_harness.models.load import load_backend
from eval_harness.records.limits import Limits
from eval_harness.records.request import Request
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.dry_run import describe_first_request
from eval_harness.runs.plan import make_plan
from eval_harness.runs.run_folder import read_answer_journal
from eval_harness.runs.runner import keep_answered_cases, run_evaluation, score_run
from eval_harness.store.submit import build_submission
from medprobe.stores import load_results
from tests.chaos.server import ChaosServer, answer_to, completion
from tests.eval_harness.models.http.asking import picture
from tests.eval_harness.models.tiny_families import make
from tests.helpers import refused


@pytest.fixture
def data(phantoms):
    return phantoms / "mediconfusion"


def asked(data, folder, server, **changes):
    settings = Settings(base_url=server.url, timeout=60, price=(1.0, 10.0), no_look=True, **changes.pop("settings", {}))
    values = {"benchmark": "mediconfusion", "model": "openai:m", "data": str(data), "limit": 8}
    return EvalConfig(**(values | {"cache": folder / "cache", "settings": settings} | changes))


def test_the_same_request_is_not_sent_again(data, tmp_path):
    with ChaosServer(answer=lambda body: (200, completion(answer_to(body), reasoning_content="hm"))) as server:
        first_result, _ = run_evaluation(asked(data, tmp_path, server, out=tmp_path / "one"))
        requests_before = sum(server.asked.values())
        again, folder = run_evaluation(asked(data, tmp_path, server, out=tmp_path / "two"))
        assert sum(server.asked.values()) == requests_before == 8
    assert again.scores == first_result.scores
    assert again.deviations == first_result.deviations != []
    assert (again.environment["answers_from_cache"], first_result.environment.get("answers_from_cache")) == (8, None)
    assert (first_result.environment["cost"], again.environment.get("cost")) == (8 * (10 + 20) / 1e6, None)
    lines = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert {line["reasoning"] for line in lines} == {"hm"}
    assert {line["from_cache"] for line in lines} == {True}


@pytest.mark.parametrize(
    "changes",
    [
        {"form": "authors"},
        {"system": "Be brief."},
        {"model": "openai:other"},
        {"settings": {"generation": {"top_p": 0.5}}},
        {"permute": True},
    ],
    ids=str,
)
def test_whatever_changes_what_is_sent_is_sent(data, tmp_path, changes):
    with ChaosServer() as server:
        run_evaluation(asked(data, tmp_path, server, out=tmp_path / "one"))
        server.asked.clear()
        run_evaluation(asked(data, tmp_path, server, out=tmp_path / "two", **dict(changes)))
        # One of the two option orders is the original one, but it still belongs to a different run.
        assert sum(server.asked.values()) == (16 if "permute" in changes else 8)


def test_samples_of_a_server_failures_and_damaged_files_are_not_kept(data, tmp_path):
    with ChaosServer() as server:
        for run in ("one", "two"):
            run_evaluation(asked(data, tmp_path, server, samples=2, out=tmp_path / run))
        assert sum(server.asked.values()) == 2 * 16
    assert not list((tmp_path / "cache").rglob("*.json"))
    with ChaosServer() as server:
        run_evaluation(asked(data, tmp_path, server, out=tmp_path / "three"))
        files = sorted((tmp_path / "cache").rglob("*.json"))
        assert len(files) == 8
        files[0].write_text("{")
        files[1].write_bytes(files[1].read_bytes()[:20])
        server.asked.clear()
        run_evaluation(asked(data, tmp_path, server, out=tmp_path / "four"))
        assert sum(server.asked.values()) == 2


def test_a_model_that_is_not_behind_a_server_has_no_cache(data, tmp_path):
    with pytest.raises(BadInput, match="replies of servers"):
        run_evaluation(
            EvalConfig("mediconfusion", "baseline:chance", data=str(data), cache=tmp_path / "c", out=tmp_path / "run")
        )
    assert not (tmp_path / "run").exists()


def test_a_dry_run_says_how_much_would_be_asked_and_what_it_costs(data, tmp_path):
    with ChaosServer() as server:
        words = describe_first_request(asked(data, tmp_path, server))
        assert not server.asked
        dear = describe_first_request(replace(asked(data, tmp_path, server), samples=3, max_tokens=8000))
        plan = make_plan(asked(data, tmp_path, server))
    assert next(plan.requests(plan.instances[:1]))[0].prompt in words
    assert not list(tmp_path.iterdir())
    assert "in all: 8 requests, 8 distinct images" in words
    assert "at most 4,100 output tokens" in words
    assert "at most 0.04 for output" in words
    assert "in all: 24 requests, 8 distinct images" in dear
    assert "at most 190,000 output tokens" in dear


@pytest.fixture
def config(phantoms, tmp_path):
    return EvalConfig(
        benchmark="mediconfusion", model="baseline:always-A", data=str(phantoms / "mediconfusion"), out=tmp_path / "run"
    )


def test_an_interrupted_run_becomes_one_of_the_cases_that_were_asked(config):
    """Never-asked questions do not count as failed: no score until the run is completed or
    marked.
    """
    run_evaluation(config, max_questions=9)
    assert "19 of 28 answers were never requested" in refused(score_run, config.out)
    for folder in (config.out, config.out.parent):
        assert "contains no finished run" in refused(load_results, folder)
    keep_answered_cases(config.out)
    result = score_run(config.out)
    assert result.benchmark.selection == "only the 8 of 28 questions that were asked"
    assert result.statuses == {"answered": 8} | {name: 0 for name in result.statuses if name != "answered"}
    assert len(read_answer_journal(next(config.out.glob(".before-*")) / "answers.jsonl")) == 9
    submission = build_submission(config.out, data=config.data)
    assert not submission.problems


def test_answers_that_no_store_will_take_are_told_while_the_run_can_be_stopped(config, monkeypatch, capsys):
    for byte_limit, warnings in ((27, 1), (28, 0)):  # 28 answers of one letter
        monkeypatch.setattr(
            "eval_harness.runs.ask.limits_for", lambda *_, byte_limit=byte_limit: Limits(0, 0, byte_limit, 0)
        )
        run_evaluation(replace(config, out=config.out.with_name(f"run-{byte_limit}")))
        assert capsys.readouterr().err.count("that a results store accepts for this run") == warnings


@pytest.mark.exhaustive
def test_questions_that_a_processor_or_a_model_refuses_fail_alone(tmp_path):
    """An image of 1 x 400 pixels, which Qwen's processor rejects; a prompt longer than the model's
    context.
    """
    from eval_harness.models.local.transformers_vlm import TransformersVLM
    from eval_harness.runs.ask import Sender

    def request(number, image, prompt="Which side?"):
        return Request(str(number), 0, prompt, image, ("a", "b"), "single", max_tokens=3)

    for family, odd in (
        ("qwen2_vl", request(3, picture(size=(1, 400)))),
        ("blip2", request(3, picture(size=(60, 44)), "left or right " * 600)),
    ):
        backend = TransformersVLM(str(make(family, tmp_path / family)), Settings(batch_size=4))
        requests = [
            odd if number == 3 else request(number, picture(size=(60, 40 + number), colour=9 * number))
            for number in range(9)
        ]
        responses = {
            response.question_id: response
            for response in Sender(backend.generate, lambda: None, "--model m", tmp_path / "error.txt").responses(
                requests
            )
        }
        assert {name for name, response in responses.items() if response.status == "failed"} == {"3"}, responses["3"]
        assert responses["3"].error
        assert len(responses) == 9


def test_what_names_no_model_is_one_line_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "class M:\n    def __init__(self, settings):\n        raise KeyError('weights')\n"
    )
    (tmp_path / "broken.py").write_text("1 / 0")
    for name, words in {
        "mine.py:Nobody": "mine.py defines no Nobody",
        "mine.py:M": "M cannot be made (KeyError",
        "broken.py:M": "ZeroDivisionError",
        "yours.py:M": "there is no file yours.py",
        "mine.py": "Add :ClassName, e.g. mine.py:MyModel",
        "yours.py": "there is no file yours.py",
        "./nowhere": "there is no folder ./nowhere",
        "a/b/c": "there is no folder a/b/c",
        "vllm:./nowhere": "there is no folder ./nowhere",
        "fake:vlm": "there is no kind of model called 'fake'",
        "baseline:always-AB": "no such baseline",
    }.items():
        assert words in refused(load_backend, name, Settings())


FINDS_ITS_FILES = """
import importlib.util
import pkgutil
from pathlib import Path

class M:
    def __init__(self):
        assert importlib.util.find_spec(__name__).origin == __file__
        assert pkgutil.get_data(__name__, "weights.txt") == b"7"
        self.weights = Path(__file__).parent / "weights.txt"

    def generate(self, requests):
        return [self.weights.read_text() for _ in requests]
"""


def test_a_plug_in_finds_the_files_beside_it(tmp_path, monkeypatch):
    """By a relative path, too, and after the working directory has changed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "finds_its_files.py").write_text(FINDS_ITS_FILES)
    (tmp_path / "weights.txt").write_text("7")
    backend = load_backend("finds_its_files.py:M", Settings())
    monkeypatch.chdir("/")
    question = Request("1", 0, "Which side?", None, ("a", "b"), "single", max_tokens=3)
    assert [response.text for response in backend.generate([question])] == ["7"]


def test_a_name_that_may_be_the_hubs_is_asked_for_once(local_hub):
    for count, name in enumerate(("fake-vlm", "org/fake-vlm"), 1):
        assert "no model on the Hub" in refused(load_backend, name, Settings())
        assert len(local_hub.record.requests()) == count
