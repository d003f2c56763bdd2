"""Rescoring outdated results: another version, a corrected key; a crash loses nothing."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from dataset_builders.errors import BadInput
from eval_harness.derive.run_files import DERIVED_FILES
from eval_harness.records.result import read_result
from eval_harness.store import rescoring
from eval_harness.store.contents import scan_store
from eval_harness.store.rescoring import rescore_store
from eval_harness.store.submit import submit_to_store
from eval_harness.store.verification import verify
from tests.eval_harness.store.submitting import update_card
from tests.helpers import edit_json
from tests.localhub.accounts import CURATOR


@pytest.fixture
def store(run, tmp_path):
    """A store with one result of another version, which read the first four answers as
    irrelevant.
    """
    submit_to_store(run, tmp_path / "store")
    (stored,) = scan_store(tmp_path / "store")[0]
    shutil.copytree(stored.folder, tmp_path / "today")
    readings = pd.read_parquet(stored.folder / "readings.parquet")
    readings.loc[:3, "status"] = "irrelevant"
    readings["choice"] = [[] if number < 4 else list(choice) for number, choice in enumerate(readings["choice"])]
    readings.to_parquet(stored.folder / "readings.parquet", index=False)

    def older(document):
        document.update(derive_version=0, key="another")
        document["scores"]["set_accuracy"]["value"] = 12.5

    edit_json(stored.folder / "result.json", older)
    return tmp_path / "store"


def have_equal_files(folder_a, folder_b):
    return all((folder_a / name).read_bytes() == (folder_b / name).read_bytes() for name in DERIVED_FILES)


def test_results_of_another_version_are_rescored(store, tmp_path):
    (stored,) = scan_store(store)[0]
    (outcome,) = rescore_store(store)
    assert outcome.written and outcome.changed == 4 and outcome.moved["set_accuracy"][0] == 12.5
    assert "4 of" in str(outcome) and "set_accuracy 12.5 ->" in str(outcome)
    assert have_equal_files(stored.folder, tmp_path / "today")
    (again,) = rescore_store(store)
    assert not again.written and not again.skipped
    assert len(scan_store(store)[0]) == 1


def test_an_interrupted_rescore_is_resumed(store, monkeypatch, tmp_path):
    (stored,) = scan_store(store)[0]
    real, count = rescoring.replace_file, iter(range(9))

    def crash(path, content):
        if path.name in DERIVED_FILES and next(count) == 2:
            raise KeyboardInterrupt
        real(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(rescoring, "replace_file", crash)
        with pytest.raises(KeyboardInterrupt):
            rescore_store(store)
    assert read_result(stored.folder / "result.json").derive_version == 0
    (outcome,) = rescore_store(store)
    assert outcome.written and have_equal_files(stored.folder, tmp_path / "today")


def test_a_corrected_key_rescores_the_same_answers(run, data, tmp_path):
    submit_to_store(run, tmp_path / "store")
    (stored,) = scan_store(tmp_path / "store")[0]
    corrected = shutil.copytree(data, tmp_path / "corrected")
    (path,) = corrected.glob("questions_text/test*.parquet")
    questions = pd.read_parquet(path)
    questions["answer"] = [[1 - key[0]] for key in questions["answer"]]
    questions.to_parquet(path, index=False)
    (outcome,) = rescore_store(tmp_path / "store", [str(update_card(corrected))])
    assert outcome.written and outcome.changed == 0 and outcome.moved
    rescored = read_result(stored.folder / "result.json")
    assert rescored.benchmark.fingerprint != stored.result.benchmark.fingerprint
    old_accuracy, new_accuracy = (result.scores["individual_accuracy"].value for result in (stored.result, rescored))
    assert new_accuracy == pytest.approx(100 - old_accuracy)
    assert (tmp_path / "store/questions" / f"{rescored.benchmark.fingerprint}.parquet").is_file()
    assert not rescore_store(tmp_path / "store")[0].written, "it is up to date by the questions that the store keeps"
    assert [result.status for result in verify(str(tmp_path / "store"))] == ["verified"]


def test_results_that_cannot_be_derived_are_left_and_reported(store):
    (stored,) = scan_store(store)[0]
    shutil.rmtree(store / "questions")
    old = (stored.folder / "result.json").read_bytes()
    (outcome,) = rescore_store(store)
    assert not outcome.written and "--data" in outcome.skipped
    assert (stored.folder / "result.json").read_bytes() == old
    with pytest.raises(BadInput, match="not a results store"):
        rescore_store(store / "questions")


def test_rescoring_on_the_hub_is_one_commit(store, owner, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    owner.upload_folder(folder_path=store, repo_id="ORG/results", repo_type="dataset")
    commits = len(owner.list_repo_commits("ORG/results", repo_type="dataset"))
    (outcome,) = rescore_store("ORG/results")
    assert outcome.written
    assert len(owner.list_repo_commits("ORG/results", repo_type="dataset")) == commits + 1
    path = owner.hf_hub_download("ORG/results", f"{outcome.folder}/result.json", repo_type="dataset")
    assert json.loads(Path(path).read_text())["key"] == read_result(tmp_path / "today" / "result.json").key
    (again,) = rescore_store("ORG/results")
    assert not again.written
    assert len(owner.list_repo_commits("ORG/results", repo_type="dataset")) == commits + 1
