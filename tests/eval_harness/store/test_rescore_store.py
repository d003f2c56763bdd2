"""What a store derived is derived again where it is out of date: another version, a corrected answer key; a crash loses nothing."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from dataset_builders.errors import BadInput
from eval_harness.derive.run_files import DERIVED_FILES
from eval_harness.interop.convert import convert_and_submit
from eval_harness.records.result import read_result
from eval_harness.store import rescoring
from eval_harness.store.rescoring import rescore_store
from eval_harness.store.scan import scan_store
from eval_harness.store.verification import verify
from tests.eval_harness.store.submitting import restate
from tests.helpers import edit_json
from tests.localhub.accounts import CURATOR


@pytest.fixture
def store(run, tmp_path):
    """A store with one result as another version derived it: it read the first four answers as irrelevant."""
    convert_and_submit(run, tmp_path / "store")
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


def same(one, other):
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in DERIVED_FILES)


def test_what_another_version_derived_is_derived_again(store, tmp_path):
    (before,) = scan_store(store)[0]
    (found,) = rescore_store(store)
    assert found.written and found.changed == 4 and found.moved["set_accuracy"][0] == 12.5
    assert "4 of" in str(found) and "set_accuracy 12.5 ->" in str(found)
    assert same(before.folder, tmp_path / "today")
    (again,) = rescore_store(store)
    assert not again.written and not again.skipped
    assert len(scan_store(store)[0]) == 1


def test_a_crash_is_made_good_by_the_next_call(store, monkeypatch, tmp_path):
    (before,) = scan_store(store)[0]
    real, count = rescoring.replace_file, iter(range(9))

    def crash(path, content):
        if path.name in DERIVED_FILES and next(count) == 2:
            raise KeyboardInterrupt
        real(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(rescoring, "replace_file", crash)
        with pytest.raises(KeyboardInterrupt):
            rescore_store(store)
    assert read_result(before.folder / "result.json").derive_version == 0
    (found,) = rescore_store(store)
    assert found.written and same(before.folder, tmp_path / "today")


def test_a_corrected_answer_key_scores_the_same_answers_anew(run, data, tmp_path):
    convert_and_submit(run, tmp_path / "store")
    (before,) = scan_store(tmp_path / "store")[0]
    corrected = shutil.copytree(data, tmp_path / "corrected")
    (path,) = corrected.glob("questions_text/test*.parquet")
    questions = pd.read_parquet(path)
    questions["answer"] = [[1 - key[0]] for key in questions["answer"]]
    questions.to_parquet(path, index=False)
    (found,) = rescore_store(tmp_path / "store", [str(restate(corrected))])
    assert found.written and found.changed == 0 and found.moved
    after = read_result(before.folder / "result.json")
    assert after.benchmark.fingerprint != before.result.benchmark.fingerprint
    was, now = (each.scores["individual_accuracy"].value for each in (before.result, after))
    assert now == pytest.approx(100 - was)
    assert (tmp_path / "store/questions" / f"{after.benchmark.fingerprint}.parquet").is_file()
    assert not rescore_store(tmp_path / "store")[0].written, "it is up to date by the questions that the store keeps"
    assert [result.status for result in verify(str(tmp_path / "store"))] == ["verified"]


def test_what_cannot_be_derived_is_left_and_said(store):
    (stored,) = scan_store(store)[0]
    shutil.rmtree(store / "questions")
    old = (stored.folder / "result.json").read_bytes()
    (found,) = rescore_store(store)
    assert not found.written and "--data" in found.skipped
    assert (stored.folder / "result.json").read_bytes() == old
    with pytest.raises(BadInput, match="not a results store"):
        rescore_store(store / "questions")


def test_on_the_hub_it_is_one_commit(store, owner, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    owner.upload_folder(folder_path=store, repo_id="ORG/results", repo_type="dataset")
    commits = len(owner.list_repo_commits("ORG/results", repo_type="dataset"))
    (found,) = rescore_store("ORG/results")
    assert found.written
    assert len(owner.list_repo_commits("ORG/results", repo_type="dataset")) == commits + 1
    path = owner.hf_hub_download("ORG/results", f"{found.folder}/result.json", repo_type="dataset")
    assert json.loads(Path(path).read_text())["key"] == read_result(tmp_path / "today" / "result.json").key
    (again,) = rescore_store("ORG/results")
    assert not again.written
    assert len(owner.list_repo_commits("ORG/results", repo_type="dataset")) == commits + 1
