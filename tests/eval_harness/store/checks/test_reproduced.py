"""Reproduced results: marked in folders and on the Hub, only by the store's owner, only for real
runs.
"""

from functools import partial
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, HfApi

from eval_harness.derive.run_files import DERIVED_FILES
from eval_harness.records.result import read_result
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from eval_harness.store.scan import scan_store
from eval_harness.store.submit import build_submission, submit_to_store
from eval_harness.store.verification import verify
from tests import helpers
from tests.eval_harness.store.submitting import responses, run_folder
from tests.helpers import write_lines
from tests.localhub.accounts import CURATOR, READER

STORE = "ORG/results"
REPO = {"repo_id": STORE, "repo_type": "dataset"}


@pytest.fixture
def run(data, tmp_path):
    """A run of a model that really answers here."""
    run_evaluation(EvalConfig("mediconfusion", "baseline:always-A", str(data), out=tmp_path / "run"))
    return tmp_path / "run"


@pytest.fixture
def api(local_hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    owner = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    owner.create_repo(**REPO)
    return owner


refused = partial(helpers.refused, submit_to_store, reproduced=True)


def files(api) -> set[str]:
    return {path for path in api.list_repo_files(**REPO) if path != ".gitattributes"}


def test_a_reproduced_result_is_stored_beside_the_submitted_one(run, data, tmp_path):
    store = tmp_path / "store"
    submitted, reproduced = (
        submit_to_store(run, store),
        submit_to_store(run, store, reproduced=True),
    )
    assert reproduced.new and not submit_to_store(run, store, reproduced=True).new
    assert sorted(stored.result.provenance for stored in scan_store(store)[0]) == [
        "reproduced",
        "submitted",
    ]
    assert Path(reproduced.location).parent == Path(submitted.location).parent
    assert read_result(Path(reproduced.location) / "result.json").scores == submitted.submission.result.scores
    assert {outcome.status for outcome in verify(str(store))} == {"verified"}


def test_answers_from_a_file_cannot_be_reproduced(data, tmp_path):
    recorded = run_folder(data, tmp_path / "recorded")
    answers = write_lines(tmp_path / "a.jsonl", responses(data))
    ready = Path(submit_to_store(recorded, tmp_path / "other").location)
    store = tmp_path / "store"
    for model, options in (
        (recorded, {}),
        (ready, {"data": str(data)}),
        (answers, {"benchmark": "mediconfusion", "model": "M", "data": str(data)}),
    ):
        line = refused(model, store, **options)
        assert "--reproduced" in line and "medprobe eval" in line
    assert not store.exists()
    assert any("medprobe eval" in problem for problem in build_submission(recorded, reproduced=True).problems)


def test_on_the_hub_it_is_committed_to_main(run, api, data):
    api.upload_file(path_or_fileobj=b"kept", path_in_repo="notes.txt", **REPO)
    done = submit_to_store(run, STORE, reproduced=True, with_questions=True)
    assert done.new and done.location == f"{api.endpoint}/datasets/{STORE}/tree/main/{done.submission.folder}"
    expected = {
        f"{done.submission.folder}/{name}"
        for name in ("answers.parquet", "run.json", "acceptance.json", *DERIVED_FILES)
    }
    questions = f"questions/{done.submission.result.benchmark.fingerprint}.parquet"
    assert files(api) == expected | {"notes.txt", questions}
    assert list(api.get_repo_discussions(**REPO)) == []
    for path, content in done.submission.files().items():
        assert Path(api.hf_hub_download(**REPO, filename=path)).read_bytes() == content
    commits = len(api.list_repo_commits(**REPO))
    assert not submit_to_store(run, STORE, reproduced=True).new
    assert len(api.list_repo_commits(**REPO)) == commits


def test_missing_write_access_is_a_one_line_error(run, api, monkeypatch):
    files_before = files(api)
    monkeypatch.setenv("HF_TOKEN", READER)
    line = refused(run, STORE)
    assert "may not write" in line and "pull request" in line
    assert files(api) == files_before and list(api.get_repo_discussions(**REPO)) == []


def test_submitters_cannot_use_a_reproduced_id(run, api, data, tmp_path, monkeypatch):
    reproduced = build_submission(run, reproduced=True)
    monkeypatch.setenv("HF_TOKEN", READER)
    operations = [CommitOperationAdd(path, content) for path, content in reproduced.files().items()]
    HfApi(endpoint=api.endpoint, token=READER).create_commit(
        **REPO, operations=operations, commit_message="Mine", create_pr=True
    )
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    (outcome,) = verify(f"{STORE}@1", data=[str(data)])
    assert outcome.status == "refused" and "belong in" in outcome.reasons[0]
    stored = Path(submit_to_store(run, tmp_path / "store", reproduced=True).location)
    assert build_submission(stored, data=str(data)).folder == build_submission(run).folder
