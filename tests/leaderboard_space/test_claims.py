"""Scores claimed on the Hub: read in the background from the loopback Hub, kept on disk, shown apart and beside our own number."""

import huggingface_hub.constants
import pytest
import yaml
from huggingface_hub import HfApi

from dataset_builders.errors import BadInput
from eval_harness.results import Benchmark, Method, Model, Result, Score
from leaderboard_space.data.claims import Claims
from leaderboard_space.views import claims as view
from tests.localhub.accounts import CURATOR

DATASET = "ORG/mediconfusion"
TASK = "test_individual_accuracy"


def stated(value, **more):
    return yaml.safe_dump([{"dataset": {"id": DATASET, "task_id": TASK}, "value": value, **more}]).encode()


@pytest.fixture
def api(local_hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", local_hub.endpoint)
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    api = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    api.create_repo(DATASET, repo_type="dataset")
    tasks = yaml.safe_dump({"name": "x", "tasks": [{"id": TASK}]}).encode()
    api.upload_file(path_or_fileobj=tasks, path_in_repo="eval.yaml", repo_id=DATASET, repo_type="dataset")
    for name, value, more in (("a", 61.25, {"notes": "<b>x</b>"}), ("b", 40.0, {"verifyToken": "t"})):
        api.create_repo(f"medlab/{name}")
        api.upload_file(
            path_or_fileobj=stated(value, **more), path_in_repo=".eval_results/m.yaml", repo_id=f"medlab/{name}"
        )
    return api


def ours(model, value):
    return Result(
        kind="measured",
        provenance="submitted",
        benchmark=Benchmark(name="mediconfusion", format="mediconfusion", repo=DATASET, split="test", questions=10),
        model=Model(name=model),
        method=Method(name="mc"),
        scores={"individual_accuracy": Score(value=value, n=10, n_cases=5)},
        created_at="2026-11-01T00:00:00+00:00",
    )


def test_claims_are_read_kept_and_shown_apart(api, local_hub, tmp_path):
    claims = Claims([DATASET], tmp_path)
    assert claims.current() == []
    claims.refresh()
    first, second = claims.current()
    assert (first.model, first.value, first.task, first.verified) == ("medlab/a", 61.25, TASK, False)
    assert (second.model, second.verified) == ("medlab/b", True)
    assert Claims([DATASET], tmp_path).current() == [first, second]  # after a restart, before the Hub was asked
    shown = view.section(claims.current(), [ours("medlab/a", 61.2504), ours("b", 45.0)])
    assert "Claimed on the Hub" in shown and shown.count("<tr>") == 3
    assert "agrees with the recomputed" in shown and "differs from the recomputed 45.00" in shown
    assert "verified" in shown and "community" in shown
    assert view.section([first], []).count("not recomputed") == 1


def test_a_hub_that_is_away_or_knows_no_leaderboard_keeps_what_was_heard(api, local_hub, tmp_path):
    claims = Claims([DATASET, "ORG/nothing"], tmp_path)
    claims.refresh()
    heard = claims.current()
    assert len(heard) == 2 and "ORG/nothing" in claims.problems
    local_hub.faults.add("/leaderboard", 404, times=1000)
    claims.refresh()
    assert claims.current() == heard and DATASET in claims.problems
    assert "Not read" in view.section([], [], claims.problems)


def test_off_by_default_and_damaged_files_are_nothing(local_hub, monkeypatch, tmp_path):
    monkeypatch.delenv("MEDPROBE_CLAIMS", raising=False)
    silent = Claims.configured()
    silent.watch()
    assert silent.datasets == () and silent.current() == [] and view.section([], [], {}) == ""
    (tmp_path / "claims.json").write_text("{")
    assert Claims([DATASET], tmp_path).current() == []
    with pytest.raises(BadInput, match="no Hub repository id"):
        Claims(["nonsense"], tmp_path)
    assert not local_hub.record.of("GET", "leaderboard")


def test_the_about_page_shows_them_where_they_are_configured(api, monkeypatch, tmp_path):
    from leaderboard_space.app import _claimed, build_app
    from leaderboard_space.data.board import Board
    from leaderboard_space.data.published_results import board_results

    claims = Claims([DATASET], tmp_path)
    claims.refresh()
    assert "medlab/a" in _claimed(claims, Board(None, board_results()))
    monkeypatch.setenv("MEDPROBE_CLAIMS", DATASET)
    build_app(None)
