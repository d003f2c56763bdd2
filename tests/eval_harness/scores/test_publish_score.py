"""Test `medprobe publish-score` on the loopback Hub: one pull request, only the declared metric, on
the dataset's leaderboard.
"""

import re

import pytest
import yaml
from huggingface_hub import HfApi

from dataset_builders.build import build
from dataset_builders.hub.publish import publish
from eval_harness.records.result import read_result
from eval_harness.store.submit import submit_to_store
from eval_harness.store.verification import verify
from tests import commands
from tests.eval_harness.store.submitting import run_folder
from tests.localhub.accounts import CURATOR, READ_ONLY, READER

DATASET, MODEL, STORE = "ORG/mediconfusion-test", "medlab/model-a", "ORG/results"


def official(folder):
    """A built phantom dataset that declares itself the official one."""
    build("mediconfusion", out=folder, text_only=True, eval_yaml=True)
    for name in ("manifest.json", "README.md"):
        path = folder / name
        path.write_text(path.read_text().replace('"phantom"', '"official"').replace("- phantom\n", "- official\n"))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return official(tmp_path_factory.mktemp("data") / "mediconfusion")


@pytest.fixture
def api(local_hub, monkeypatch, data):
    """Client of the owner of dataset, store and model; the reader account publishes scores."""
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    publish(data, DATASET)
    owner = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    owner.create_repo(MODEL)
    owner.create_repo(STORE, repo_type="dataset")
    monkeypatch.setenv("HF_TOKEN", READER)
    return owner


@pytest.fixture
def run(api, data, tmp_path):
    folder = run_folder(data, tmp_path / "run")
    return folder


@pytest.fixture
def publish_score(tmp_path):
    def command(run, *options, model=MODEL, dataset=DATASET, code=0):
        return commands.medprobe("publish-score", run, model, "--dataset", dataset, *options, cwd=tmp_path, code=code)

    return command


def pulls(api):
    return [discussion for discussion in api.get_repo_discussions(MODEL) if discussion.is_pull_request]


def test_publishing_opens_one_pull_request_for_the_leaderboard(api, run, publish_score, monkeypatch):
    dry_run = publish_score(run, "--dry-run")
    assert ".eval_results/mediconfusion.yaml" in dry_run.stdout and pulls(api) == []
    done = publish_score(run)
    [pull] = pulls(api)
    assert pull.url in done.stdout and pull.status == "open"
    again = publish_score(run)
    # Publishing is idempotent while the pull request is open, and after it was merged.
    assert "already there" in again.stdout and len(pulls(api)) == 1

    score = read_result(run / "result.json").scores["individual_accuracy"]
    [entry] = api.get_dataset_leaderboard(DATASET)
    assert (entry.rank, entry.model_id, entry.pull_request, entry.verified) == (
        1,
        MODEL,
        pull.num,
        False,
    )
    assert entry.value == round(score.value, 4)
    for words in (f"n = {score.n}", "95% interval", "prompt", "individual_accuracy"):
        assert words in entry.notes
    [claimed] = api.model_info(MODEL, expand=["evalResults"]).eval_results
    assert (claimed.dataset_id, claimed.task_id) == (DATASET, "test_individual_accuracy")
    assert claimed.dataset_revision == api.repo_info(DATASET, repo_type="dataset").sha
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    api.merge_pull_request(MODEL, pull.num)
    merged = publish_score(run)
    assert "already there" in merged.stdout and "/blob/main/" in merged.stdout and len(pulls(api)) == 1


def test_new_score_of_the_same_name_updates_the_pull_request(api, run, data, publish_score, tmp_path):
    publish_score(run)
    # Another seed is another run with its own score.
    other_run = run_folder(data, tmp_path / "other", seed=2)
    done = publish_score(other_run)
    assert done.stdout.startswith("updated: ") and len(pulls(api)) == 1
    [entry] = api.get_dataset_leaderboard(DATASET)
    assert entry.value == round(read_result(other_run / "result.json").scores["individual_accuracy"].value, 4)


def test_the_source_is_the_result_in_the_store(api, run, publish_score, monkeypatch):
    assert "Submit the run there first" in publish_score(run, "--store", STORE, code=2).stderr
    submit_to_store(run, STORE, data=DATASET)
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    verify(STORE, everything=True, data=[DATASET])
    dry_run = publish_score(run, "--store", STORE, "--dry-run")
    [entry] = yaml.safe_load(dry_run.stdout.split("\n", 1)[1])
    assert f"/datasets/{STORE}/tree/main/results/mediconfusion/" in entry["source"]["url"]


def test_unpublishable_results_are_refused(api, run, data, publish_score, monkeypatch, tmp_path):
    def refused(words, folder=run, **options):
        error_text = publish_score(folder, code=2, **options).stderr
        assert re.search(words, error_text) and error_text.count("\n") == 1, error_text
        assert pulls(api) == []

    def published(folder):
        monkeypatch.setenv("HF_TOKEN", CURATOR)
        publish(folder, "ORG/mediconfusion-bare")
        monkeypatch.setenv("HF_TOKEN", READER)

    refused("a part", run_folder(data, tmp_path / "part", limit=6))
    custom = tmp_path / "custom" / "mine"
    build("mediconfusion", name="mine", out=custom, text_only=True)
    refused("which the result is about", run_folder(custom, tmp_path / "of-custom"))
    refused("it does not exist", model="medlab/nobody")
    refused("it does not exist", dataset="ORG/nothing")
    refused("is not a Hub repository id", model="nobody")
    bare = tmp_path / "bare" / "mediconfusion"
    official(bare)
    (bare / "eval.yaml").unlink()
    published(bare)
    refused("has no eval.yaml", dataset="ORG/mediconfusion-bare")


def test_unwritable_model_repository_is_a_one_line_error(api, local_hub, run, publish_score, monkeypatch):
    """Discussions disabled, or a read-only token."""
    local_hub.faults.add(f"/api/models/{MODEL}/commit", 403, times=1000)
    error_text = publish_score(run, code=2).stderr
    assert error_text.count("\n") == 1 and MODEL in error_text
    local_hub.faults.clear()
    monkeypatch.setenv("HF_TOKEN", READ_ONLY)
    assert publish_score(run, code=2).stderr.count("\n") == 1
    assert pulls(api) == []
