"""Test questions that a processor rejects, interrupted runs, and `--model` values that name no
model (`tests/chaos/test_every_run_ends.py` has the faults).
"""

from dataclasses import replace

import pytest

from eval_harness.models.interface import Settings
from eval_harness.models.load import load_backend
from eval_harness.records.limits import Limits
from eval_harness.records.request import Request
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.run_folder import read_answer_journal
from eval_harness.runs.runner import keep_answered_cases, run_evaluation, score_run
from eval_harness.store.submit import build_submission
from medprobe.stores import load_results
from tests.eval_harness.models.http.asking import picture
from tests.eval_harness.models.tiny_families import make
from tests.helpers import refused


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


@pytest.mark.slow
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


def test_a_name_that_may_be_the_hubs_is_asked_for_once(local_hub):
    for count, name in enumerate(("fake-vlm", "org/fake-vlm"), 1):
        assert "no model on the Hub" in refused(load_backend, name, Settings())
        assert len(local_hub.record.requests()) == count
