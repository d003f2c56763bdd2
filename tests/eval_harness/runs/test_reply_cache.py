"""Test the cache of replies: it answers only requests that were sent before, in the same form, to
the same model.
"""

import json
from dataclasses import replace

import pytest

from dataset_builders.errors import BadInput
from eval_harness.models.interface import Settings
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.dry_run import describe_first_request
from eval_harness.runs.plan import make_plan
from eval_harness.runs.runner import run_evaluation
from tests.chaos.server import ChaosServer, answer_to, completion


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
