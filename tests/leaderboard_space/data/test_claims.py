"""Scores claimed on the Hub: read in the background from the loopback Hub, kept on disk, shown apart and beside our own number."""

from dataclasses import replace

import pytest
import yaml
from huggingface_hub import HfApi

from dataset_builders.errors import BadInput
from eval_harness.records.result import Benchmark, Method, Model, Result, Score
from eval_harness.store.acceptance import Provenance, Withdrawal
from leaderboard_space.data.board import Board
from leaderboard_space.data.claims import Claim, Claims
from leaderboard_space.data.published_tables import read_table
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.model_results import entries_of
from leaderboard_space.service import Service
from leaderboard_space.views import claims as view
from leaderboard_space.views.model_pages import model
from tests.leaderboard_space.stores import add_run, answers, questions
from tests.localhub.accounts import CURATOR

DATASET = "ORG/mediconfusion"
TASK = "test_individual_accuracy"


def stated(value, **more):
    return yaml.safe_dump([{"dataset": {"id": DATASET, "task_id": TASK}, "value": value, **more}]).encode()


@pytest.fixture
def api(local_hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", CURATOR)
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


def entry(model, value, **more):
    return Entry(f"mediconfusion/{model}/{value}", ours(model, value), **more)


def test_claims_are_read_kept_and_shown_apart(api, local_hub, tmp_path):
    claims = Claims([DATASET], tmp_path)
    assert claims.current() == []
    claims.refresh()
    first, second = claims.current()
    assert (first.model, first.value, first.task, first.verified) == ("medlab/a", 61.25, TASK, False)
    assert (second.model, second.verified) == ("medlab/b", True)
    assert Claims([DATASET], tmp_path).current() == [first, second]  # after a restart, before the Hub was asked
    shown = view.section(claims.current(), [entry("medlab/a", 61.2504), entry("b", 45.0)])
    assert "Claimed on the Hub" in shown and shown.count("<tr>") == 3
    assert "agrees with the recomputed" in shown and "differs from the recomputed 45.00" in shown
    assert "verified" in shown and "community" in shown
    assert view.section([first], []).count("not recomputed") == 1
    withdrawn = entry(
        "medlab/a",
        50.0,
        provenance=Provenance(
            withdrawal=Withdrawal(account="me", withdrawn_at="2026-11-01T00:00:00+00:00", reason="wrong")
        ),
    )
    assert "not recomputed" in view.section([first], [withdrawn])
    assert "agrees" in view.section([first], [entry("a", 50.0), entry("a", 61.25)])  # asked in two ways


def test_a_claim_belongs_to_the_model_of_its_repository():
    claim = Claim(DATASET, TASK, "someone/LLaVA-Med", 99.0, False, "m.yaml")
    assert not view.is_of(claim, "LLaVA-Med v1.5")
    known = next(row for row in read_table("model_facts") if row["weights"])
    assert view.is_of(replace(claim, model=known["weights"].upper()), known["name"])
    assert not view.is_of(replace(claim, model=f"stranger/{known['name']}"), known["name"])
    assert view.is_of(replace(claim, model="medlab/New-VLM"), "new-vlm")


def test_the_model_page_says_where_a_claim_differs(api, local_hub, tmp_path):
    """The page never waits for the Hub: it shows what was heard, and asks nothing."""
    asked = questions("mediconfusion", cases=4)
    add_run(tmp_path, "mediconfusion", asked, answers(asked, 0.5), "medlab/b", repo=DATASET)
    claims = Claims([DATASET], tmp_path / "kept")
    service = Service(Board(tmp_path), claims=claims)
    assert "Claimed on the Hub" not in model.page(service.memory, service.claims, {"id": "medlab/b"})
    claims.refresh()
    [number] = [entry.result.scores["individual_accuracy"].value for _, entry in entries_of(service.memory, "medlab/b")]
    before = len(local_hub.record.of(path="leaderboard|medlab"))
    shown = model.page(service.memory, service.claims, {"id": "medlab/b"})
    assert f"differs from the recomputed {number:.2f}" in shown and "verified" in shown and "medlab/a" not in shown
    assert len(local_hub.record.of(path="leaderboard|medlab")) == before


def test_a_hub_that_is_away_or_knows_no_leaderboard_keeps_what_was_heard(api, local_hub, tmp_path):
    claims = Claims([DATASET, "ORG/nothing"], tmp_path)
    claims.refresh()
    heard = claims.current()
    assert len(heard) == 2 and "ORG/nothing" in claims.problems
    local_hub.faults.add("/leaderboard", 404, times=1000)
    claims.refresh()
    assert claims.current() == heard and DATASET in claims.problems
    assert "Not read" in view.section([], [], claims.problems)


def test_a_model_that_is_gone_takes_no_other_claim_along(api, local_hub, tmp_path):
    local_hub.faults.add("/api/models/medlab/a", 404, times=1000)
    claims = Claims([DATASET], tmp_path)
    claims.refresh()
    assert [(claim.model, claim.task) for claim in claims.current()] == [("medlab/a", ""), ("medlab/b", TASK)]
    assert claims.problems == {}


def test_off_by_default_and_damaged_files_are_nothing(local_hub, monkeypatch, tmp_path):
    monkeypatch.delenv("MEDPROBE_CLAIMS", raising=False)
    silent = Claims.configured()
    silent.watch()
    assert silent.datasets == () and silent.current() == [] and view.section([], [], {}) == ""
    (tmp_path / "claims.json").write_text("{")
    assert Claims([DATASET], tmp_path).current() == []
    with pytest.raises(BadInput, match="not a Hub repository id"):
        Claims(["nonsense"], tmp_path)
    assert not local_hub.record.of("GET", "leaderboard")


def test_the_about_page_shows_them_where_they_are_configured(api, monkeypatch, tmp_path):
    from leaderboard_space.app import build_app

    claims = Claims([DATASET], tmp_path)
    claims.refresh()
    monkeypatch.setattr(Claims, "configured", lambda: claims)
    _, endpoint, _ = build_app(None)
    assert "medlab/a" in endpoint.kwargs["functions"]["about/page"]({})
