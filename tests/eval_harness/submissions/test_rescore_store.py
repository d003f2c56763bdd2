"""Stored answers derived again: a result of another version is replaced, kept as history, and found by no board; a crash loses nothing."""

import json
import shutil

import pandas as pd
import pytest

import eval_harness.results.rescore_store as rescore_store_module
from dataset_builders.errors import BadInput
from eval_harness.records.result import DERIVE_VERSION, read_result
from eval_harness.results.rescore_store import rescore_store
from eval_harness.results.store_source import scan_store
from eval_harness.submissions.submit import submit
from tests.localhub.accounts import CURATOR


@pytest.fixture
def store(run, tmp_path):
    """A store with one result of the version before, which read the first four answers as irrelevant."""
    submit(run, tmp_path / "store")
    (stored,) = scan_store(tmp_path / "store")[0]
    shutil.copytree(stored.folder, tmp_path / "today")
    answers = pd.read_parquet(stored.folder / "answers.parquet")
    answers.loc[:3, "status"] = "irrelevant"
    answers["choice"] = [[] if number < 4 else list(choice) for number, choice in enumerate(answers["choice"])]
    answers.to_parquet(stored.folder / "answers.parquet", index=False)
    document = json.loads((stored.folder / "result.json").read_text())
    document["derive_version"] = DERIVE_VERSION - 1
    document["scores"]["set_accuracy"]["value"] = 12.5
    (stored.folder / "result.json").write_text(json.dumps(document))
    return tmp_path / "store"


def test_a_result_of_another_version_is_replaced_and_kept_as_history(store, tmp_path):
    (before,) = scan_store(store)[0]
    old = (before.folder / "result.json").read_bytes()
    (outcome,) = rescore_store(store)
    assert outcome.written and outcome.changed == 4 and outcome.moved["set_accuracy"][0] == 12.5
    assert "4 of" in str(outcome) and "set_accuracy 12.50 ->" in str(outcome)
    (after,), problems = scan_store(store)
    today = read_result(tmp_path / "today" / "result.json")
    assert not problems and after.folder == before.folder
    assert after.result.derive_version == DERIVE_VERSION
    assert (after.result.scores, after.result.breakdown, after.result.statuses) == (
        today.scores, today.breakdown, today.statuses,
    )  # fmt: skip
    assert after.result.created_at == before.result.created_at and after.result.model == before.result.model
    pd.testing.assert_frame_equal(
        pd.read_parquet(after.folder / "answers.parquet"), pd.read_parquet(tmp_path / "today" / "answers.parquet")
    )
    assert (after.folder / "history" / f"derived-{DERIVE_VERSION - 1}.json").read_bytes() == old
    (again,) = rescore_store(store)
    assert (
        not again.written
        and not again.skipped
        and (after.folder / "history" / f"derived-{DERIVE_VERSION - 1}.json").read_bytes() == old
    )


@pytest.mark.parametrize("written", ["history", "answers"])
def test_a_crash_is_made_good_by_the_next_call(store, monkeypatch, written):
    (before,) = scan_store(store)[0]
    old = (before.folder / "result.json").read_bytes()
    real = rescore_store_module.write_result

    def crash(folder, result, answers):
        if written == "answers":
            real(folder, result, answers)
            (folder / "result.json").write_bytes(old)  # the answers came through, the result did not
        raise KeyboardInterrupt

    monkeypatch.setattr(rescore_store_module, "write_result", crash)
    with pytest.raises(KeyboardInterrupt):
        rescore_store(store)
    monkeypatch.setattr(rescore_store_module, "write_result", real)
    (outcome,) = rescore_store(store)
    assert outcome.written and read_result(before.folder / "result.json").derive_version == DERIVE_VERSION
    assert (before.folder / "history" / f"derived-{DERIVE_VERSION - 1}.json").read_bytes() == old


def test_what_cannot_be_read_again_is_left_and_said(store, data):
    (stored,) = scan_store(store)[0]
    shutil.rmtree(store / "questions")
    old = (stored.folder / "result.json").read_bytes()
    (outcome,) = rescore_store(store)
    assert "--data" in (outcome.skipped or "") and (stored.folder / "result.json").read_bytes() == old
    (outcome,) = rescore_store(store, [str(data)])
    assert outcome.written
    document = json.loads((stored.folder / "result.json").read_text())
    (stored.folder / "result.json").write_text(json.dumps(document | {"derive_version": DERIVE_VERSION + 1}))
    (outcome,) = rescore_store(store)
    assert "update medprobe" in (outcome.skipped or "")
    with pytest.raises(BadInput, match="not a results store"):
        rescore_store(store / "results")


def test_a_store_on_the_hub_is_read_again_in_one_commit(store, owner, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    owner.upload_folder(repo_id="ORG/results", folder_path=store, repo_type="dataset")
    before = owner.list_repo_commits("ORG/results", repo_type="dataset")
    (outcome,) = rescore_store("ORG/results")
    assert outcome.written and outcome.changed == 4
    assert len(owner.list_repo_commits("ORG/results", repo_type="dataset")) == len(before) + 1
    files = owner.list_repo_files("ORG/results", repo_type="dataset")
    assert f"{outcome.folder}/history/derived-{DERIVE_VERSION - 1}.json" in files
    (again,) = rescore_store("ORG/results")
    assert not again.written
    assert len(owner.list_repo_commits("ORG/results", repo_type="dataset")) == len(before) + 1


@pytest.mark.parametrize("free_form", [False, True])
def test_a_judge_is_kept_where_the_rules_still_read_nothing(store, free_form):
    """Of six answers that the judge had read, the rules now read some: those count by the rules (free form: none does)."""
    (stored,) = scan_store(store)[0]
    path = stored.folder / "answers.parquet"
    answers = pd.read_parquet(path)
    unreadable = [0, 1, 2]
    for row in range(6):
        answers.at[row, "rule"], answers.at[row, "status"] = "judge: option", "answered"
        answers.at[row, "choice"] = [row % 2]
        answers.at[row, "response"] = "Who knows which one." if row in unreadable else "B" if row % 2 else "A"
    answers.loc[6, ["response", "rule", "status"]] = ["Nobody could say.", "old rule", "answered"]
    answers.at[6, "choice"] = [1]
    answers.to_parquet(path, index=False)
    document = json.loads((stored.folder / "result.json").read_text())
    document["method"] |= {"judge": {"model": "j", "prompt": "p", "asked": 6, "share": 1.0, "decided": 6, "failed": 0}}
    document["method"] |= {"name": "ff"} if free_form else {}
    (stored.folder / "result.json").write_text(json.dumps(document))
    (outcome,) = rescore_store(store)
    assert outcome.written, outcome
    after = pd.read_parquet(path)
    kept = after["rule"].str.startswith("judge: ")
    assert kept.sum() == (6 if free_form else 3) and not kept[6:].any()
    assert all(list(after.at[row, "choice"]) == [row % 2] for row in range(6))
    judge = read_result(stored.folder / "result.json").method.judge
    assert judge["model"] == "j" and judge["asked"] == judge["decided"] == kept.sum()
    assert judge["not_asked"] == (after["status"] == "irrelevant").sum() >= 1
