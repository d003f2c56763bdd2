"""What a store's owner or the submitter may do with results: mark one as reproduced, vouch for a
dataset, withdraw a result, derive outdated ones again (a crash loses nothing).
"""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from huggingface_hub import HfApi

from dataset_builders.errors import BadInput
from dataset_builders.hub.publish import publish
from eval_harness.derive.run_files import DERIVED_FILES
from eval_harness.records.result import read_result
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from eval_harness.store import verification
from eval_harness.store.adding import withdraw
from eval_harness.store.contents import Withdrawal, parse_record, read_provenance, scan_store, utc_now
from eval_harness.store.submit import build_submission, submit_to_store
from eval_harness.store.verification import accept, rescore_store, verify
from tests.eval_harness.store.submitting import REPO, STORE, main_files, propose, pull_head, responses, update_card
from tests.helpers import edit_json, refused, write_lines
from tests.localhub.accounts import CURATOR, READER


@pytest.fixture
def real_run(data, tmp_path):
    """A run of a model that really answers here."""
    run_evaluation(EvalConfig("mediconfusion", "baseline:always-A", str(data), out=tmp_path / "run"))
    return tmp_path / "run"


def test_a_reproduced_result_is_stored_beside_the_submitted_one(real_run, tmp_path):
    store = tmp_path / "store"
    submitted, reproduced = submit_to_store(real_run, store), submit_to_store(real_run, store, reproduced=True)
    assert reproduced.new and not submit_to_store(real_run, store, reproduced=True).new
    provenances = sorted(stored.result.provenance for stored in scan_store(store)[0])
    assert provenances == ["reproduced", "submitted"]
    assert Path(reproduced.location).parent == Path(submitted.location).parent
    assert read_result(Path(reproduced.location) / "result.json").scores == submitted.submission.result.scores
    assert {outcome.status for outcome in verify(str(store))} == {"verified"}


def test_answers_from_a_file_cannot_be_reproduced(data, run, tmp_path):
    answers = write_lines(tmp_path / "a.jsonl", responses(data))
    ready = Path(submit_to_store(run, tmp_path / "other").location)
    store = tmp_path / "store"
    for model, options in (
        (run, {}),
        (ready, {"data": str(data)}),
        (answers, {"benchmark": "mediconfusion", "model": "M", "data": str(data)}),
    ):
        line = refused(submit_to_store, model, store, reproduced=True, **options)
        assert "--reproduced" in line and "medprobe eval" in line
    assert not store.exists()


def test_a_reproduced_result_is_committed_to_main(owner, as_owner, real_run):
    owner.upload_file(path_or_fileobj=b"kept", path_in_repo="notes.txt", **REPO)
    files_before = main_files(owner)
    line = refused(submit_to_store, real_run, STORE, reproduced=True)
    assert "may not write" in line and "pull request" in line
    assert main_files(owner) == files_before

    as_owner()
    done = submit_to_store(real_run, STORE, reproduced=True, with_questions=True)
    assert done.new and done.location == f"{owner.endpoint}/datasets/{STORE}/tree/main/{done.submission.folder}"
    names = ("answers.parquet", "run.json", "acceptance.json", *DERIVED_FILES)
    questions = f"questions/{done.submission.result.benchmark.fingerprint}.parquet"
    added = {f"{done.submission.folder}/{name}" for name in names} | {questions}
    assert main_files(owner).keys() - files_before.keys() == added
    assert list(owner.get_repo_discussions(**REPO)) == []
    for path, content in done.submission.files().items():
        assert Path(owner.hf_hub_download(**REPO, filename=path)).read_bytes() == content
    commits = len(owner.list_repo_commits(**REPO))
    assert not submit_to_store(real_run, STORE, reproduced=True).new
    assert len(owner.list_repo_commits(**REPO)) == commits


def test_submitters_cannot_use_a_reproduced_id(owner, as_owner, real_run, data, tmp_path):
    propose(owner, build_submission(real_run, reproduced=True).files())
    as_owner()
    (outcome,) = verify(f"{STORE}@1", data=[str(data)])
    assert outcome.status == "refused" and "belong in" in outcome.reasons[0]
    stored = Path(submit_to_store(real_run, tmp_path / "store", reproduced=True).location)
    assert build_submission(stored, data=str(data)).folder == build_submission(real_run).folder


def test_questions_are_stored_only_if_the_owner_vouches_for_them(owner, as_owner, data, tmp_path, monkeypatch):
    """A stranger's copy of the owner's dataset with another key is flagged."""
    as_owner()
    publish(data, "ORG/phantoms")
    forged_data = Path(shutil.copytree(data, tmp_path / "theirs"))
    (path,) = forged_data.glob("questions_text/test*.parquet")
    questions = pd.read_parquet(path)
    questions.assign(answer=pd.Series([[0]] * len(questions), dtype=object)).to_parquet(path, index=False)
    api = HfApi(endpoint=owner.endpoint, token=READER)
    api.create_repo("reader/phantoms", repo_type="dataset")
    api.upload_folder(folder_path=update_card(forged_data), repo_id="reader/phantoms", repo_type="dataset")
    monkeypatch.setenv("HF_TOKEN", READER)
    answers = write_lines(tmp_path / "a.jsonl", [record | {"response": "A"} for record in responses(data)])
    submit_to_store(answers, STORE, "mediconfusion", "Model", "reader/phantoms")
    as_owner()
    by_ours, by_theirs = (verify(f"{STORE}@1", data=trusted)[0] for trusted in (["ORG/phantoms"], []))
    assert by_ours.status == "for a person" and "images were not compared" in "; ".join(by_ours.reasons)
    assert by_theirs.status == "for a person" and any("vouches" in line for line in by_theirs.reasons)
    assert accept(f"{STORE}@1", pull_head(owner, 1), with_questions=True).status == "added"
    assert not any(path.startswith("questions/") for path in main_files(owner))

    monkeypatch.setenv("HF_TOKEN", READER)
    answers = write_lines(tmp_path / "b.jsonl", responses(data))
    submit_to_store(answers, STORE, "mediconfusion", "Another", "ORG/phantoms")
    as_owner()
    assert verify(f"{STORE}@2", with_questions=True)[0].status == "added"
    assert any(path.startswith("questions/") for path in main_files(owner))


def test_withdraw_in_a_folder(run, data, tmp_path):
    store = tmp_path / "store"
    stored = Path(submit_to_store(run, store, data=str(data), account="ann").location)
    assert read_provenance(stored).acceptance.account == "ann" and read_provenance(stored).withdrawal is None
    assert (
        withdraw(store, stored.name, "wrong prompt", "ann")[1] and not withdraw(store, stored.name, "again", "ann")[1]
    )
    assert read_provenance(stored).withdrawal.reason == "wrong prompt"
    assert [outcome.status for outcome in verify(str(store), data=[str(data)])] == ["verified"]
    for result, reason in (
        ("nobody", "x"),
        (stored.name, ""),
        (stored.name, "a\x07b"),
        (stored.name, "x" * 3_000),
    ):
        with pytest.raises(BadInput):
            withdraw(store, result, reason)


def test_on_the_hub_only_submitter_or_owner_may_withdraw(owner, run, data, monkeypatch):
    done = submit_to_store(run, STORE, data=str(data))
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    assert verify(f"{STORE}@1", data=[str(data)])[0].status == "added"
    folder = done.submission.folder
    monkeypatch.setenv("HF_TOKEN", READER)
    location, new = withdraw(STORE, folder, "wrong prompt")
    assert new and "discussions" in location
    lie = Withdrawal(account="curator", withdrawn_at=utc_now(), reason="a rival").to_bytes()
    propose(owner, {f"{folder}/withdrawn.json": lie})
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    assert {outcome.status for outcome in verify(f"{STORE}@3")} == {"refused"}
    assert [outcome.status for outcome in verify(f"{STORE}@2")] == ["added"]
    assert f"{folder}/withdrawn.json" in owner.list_repo_files(**REPO)
    owner.delete_file(f"{folder}/withdrawn.json", **REPO)
    location, new = withdraw(STORE, folder, "by the owner")
    assert new and "blob/main" in location


def test_reasons_with_line_breaks_or_controls_are_refused():
    withdrawal = json.loads(Withdrawal(account="reader", withdrawn_at=utc_now(), reason="fine").to_bytes())
    for text in ("one\ntwo", "\x1b[31mred", "", "x" * 3_000):
        with pytest.raises(BadInput, match="reason: "):
            parse_record(json.dumps(withdrawal | {"reason": text}).encode(), Withdrawal, "x.json")


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
    real, count = verification.replace_file, iter(range(9))

    def crash(path, content):
        if path.name in DERIVED_FILES and next(count) == 2:
            raise KeyboardInterrupt
        real(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(verification, "replace_file", crash)
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
    owner.upload_folder(folder_path=store, repo_id=STORE, repo_type="dataset")
    commits = len(owner.list_repo_commits(STORE, repo_type="dataset"))
    (outcome,) = rescore_store(STORE)
    assert outcome.written
    assert len(owner.list_repo_commits(STORE, repo_type="dataset")) == commits + 1
    path = owner.hf_hub_download(STORE, f"{outcome.folder}/result.json", repo_type="dataset")
    assert json.loads(Path(path).read_text())["key"] == read_result(tmp_path / "today" / "result.json").key
    (again,) = rescore_store(STORE)
    assert not again.written
    assert len(owner.list_repo_commits(STORE, repo_type="dataset")) == commits + 1
