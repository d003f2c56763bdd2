"""What the store's owner ran again: marked so in folders and on the Hub, by who may and of what was run, and by no one else."""

from functools import partial
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, HfApi
from typer.testing import CliRunner

from dataset_builders.hub.publish import publish
from eval_harness.derive.files import DERIVED
from eval_harness.records.names import model_slug
from eval_harness.records.result import read_result
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import evaluate
from eval_harness.store.scan import scan_store
from eval_harness.store.submit import prepare, submit
from eval_harness.store.verification import verify
from medprobe.command_line import app
from tests import helpers
from tests.eval_harness.store.submitting import responses, run_folder
from tests.helpers import write_lines
from tests.localhub.accounts import CURATOR, READ_ONLY, READER

STORE = "ORG/results"
REPO = {"repo_id": STORE, "repo_type": "dataset"}


def really_run(data, folder, model="baseline:always-A", **more) -> Path:
    """A run of something that really answers here."""
    evaluate(EvalConfig("mediconfusion", model, str(data), out=folder, **more))
    return folder


@pytest.fixture
def run(data, tmp_path):
    return really_run(data, tmp_path / "run")


@pytest.fixture
def api(local_hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    owner = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    owner.create_repo(**REPO)
    return owner


refused = partial(helpers.refused, submit, reproduced=True)


def files(api, revision="main") -> set[str]:
    return {path for path in api.list_repo_files(**REPO, revision=revision) if path != ".gitattributes"}


def test_a_folder_holds_it_beside_the_submitted_one(run, data, tmp_path):
    store = tmp_path / "store"
    submitted, reproduced = submit(run, store), submit(run, store, reproduced=True)
    assert reproduced.new and not submit(run, store, reproduced=True).new
    assert sorted(stored.result.provenance for stored in scan_store(store)[0]) == ["reproduced", "submitted"]
    assert Path(reproduced.location).parent == Path(submitted.location).parent
    assert read_result(Path(reproduced.location) / "result.json").scores == submitted.submission.result.scores


def test_the_owner_verifies_them_like_the_others(run, data, tmp_path):
    store = tmp_path / "store"
    submit(run, store)
    submit(run, store, reproduced=True)
    for known in ([], [str(data)]):
        assert {outcome.word for outcome in verify(str(store), data=known)} == {"verified"}


def test_answers_from_a_file_are_nothing_we_ran(data, tmp_path):
    recorded = run_folder(data, tmp_path / "recorded")
    answers = write_lines(tmp_path / "a.jsonl", responses(data))
    ready = Path(submit(recorded, tmp_path / "other").location)
    store = tmp_path / "store"
    for what, options in (
        (recorded, {}),
        (ready, {"data": str(data)}),
        (answers, {"benchmark": "mediconfusion", "model": "M", "data": str(data)}),
    ):
        line = refused(what, store, **options)
        assert "--reproduced" in line and "medprobe eval" in line
    assert not store.exists()
    assert any("medprobe eval" in problem for problem in prepare(recorded, reproduced=True).problems)


def test_on_the_hub_it_goes_straight_to_main(run, api, data):
    api.upload_file(path_or_fileobj=b"kept", path_in_repo="notes.txt", **REPO)
    done = submit(run, STORE, reproduced=True)
    assert done.new and done.location == f"{api.endpoint}/datasets/{STORE}/tree/main/{done.submission.folder}"
    expected = {
        f"{done.submission.folder}/{name}" for name in ("answers.parquet", "run.json", "acceptance.json", *DERIVED)
    }
    assert files(api) == expected | {"notes.txt"}
    assert list(api.get_repo_discussions(**REPO)) == []
    for path, content in done.submission.files().items():
        assert Path(api.hf_hub_download(**REPO, filename=path)).read_bytes() == content
    commits = len(api.list_repo_commits(**REPO))
    assert not submit(run, STORE, reproduced=True).new
    assert len(api.list_repo_commits(**REPO)) == commits


def test_its_questions_come_along_when_asked_for(run, api):
    done = submit(run, STORE, reproduced=True, with_questions=True)
    assert f"questions/{done.submission.result.benchmark.fingerprint}.parquet" in files(api)


@pytest.mark.parametrize("token", [READER, READ_ONLY])
def test_who_may_not_write_is_told_in_one_line(run, api, monkeypatch, token):
    before = files(api)
    monkeypatch.setenv("HF_TOKEN", token)
    line = refused(run, STORE)
    assert "may not write" in line and "pull request" in line
    assert files(api) == before and list(api.get_repo_discussions(**REPO)) == []


def test_no_other_may_take_its_name(run, api, data, tmp_path, monkeypatch):
    reproduced = prepare(run, reproduced=True)
    monkeypatch.setenv("HF_TOKEN", READER)
    operations = [CommitOperationAdd(path, content) for path, content in reproduced.files().items()]
    HfApi(endpoint=api.endpoint, token=READER).create_commit(
        **REPO, operations=operations, commit_message="Mine", create_pr=True
    )
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    (outcome,) = verify(f"{STORE}@1", data=[str(data)])
    assert outcome.word == "refused" and "belongs in" in outcome.reasons[0]
    stored = Path(submit(run, tmp_path / "store", reproduced=True).location)
    assert prepare(stored, data=str(data)).folder == prepare(run).folder


def test_a_submission_that_was_reproduced_is_no_suspicious_twin(run, api, data, monkeypatch):
    submit(run, STORE, reproduced=True)
    monkeypatch.setenv("HF_TOKEN", READER)
    submit(run, STORE)
    other = really_run(data, run.with_name("other"), name="Another")
    submit(other, STORE)
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    first, second = verify(STORE, everything=True, data=[str(data)])
    assert first.word == "added"
    assert second.word == "added", "a baseline's answers are those of every other, whatever it is called"


def test_from_a_published_dataset_by_command(run, api, data, tmp_path, monkeypatch):
    """The submission bundle of one store becomes a pull request to another, by the dataset revision that it names."""
    publish(data, "ORG/phantoms")
    folder = really_run("ORG/phantoms", tmp_path / "hub-run")
    command = CliRunner()

    def medprobe_says(*arguments: str) -> str:
        done = command.invoke(app, list(arguments), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    there = medprobe_says("submit", str(folder), "--to", str(tmp_path / "store"), "--reproduced", "--dry-run")
    assert "would add results/mediconfusion/" in there and not (tmp_path / "store").exists()
    medprobe_says("submit", str(folder), "--to", str(tmp_path / "store"), "--reproduced")
    (stored,) = scan_store(tmp_path / "store")[0]
    assert (stored.result.provenance, stored.result.benchmark.repo) == ("reproduced", "ORG/phantoms")
    assert model_slug(stored.result.model.name) == stored.folder.parent.name
    monkeypatch.setenv("HF_TOKEN", READER)
    said = medprobe_says("submit", str(stored.folder), "--to", STORE)
    assert "discussions/1" in said
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    assert f"{STORE}@1: added" in medprobe_says("verify", f"{STORE}@1")
