"""Withdrawing results: only by the submitter or the store's owner."""

import json
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, HfApi

from dataset_builders.errors import BadInput
from eval_harness.store.acceptance import Withdrawal, parse_record, read_provenance, utc_now
from eval_harness.store.submit import submit_to_store
from eval_harness.store.verification import verify
from eval_harness.store.withdrawing import withdraw
from tests.localhub.accounts import CURATOR, READER

REPO = {"repo_id": "ORG/results", "repo_type": "dataset"}


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


def test_on_the_hub_only_submitter_or_owner_may_withdraw(owner, run, data, monkeypatch, tmp_path):
    done = submit_to_store(run, "ORG/results", data=str(data))
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    assert verify("ORG/results@1", data=[str(data)])[0].status == "added"
    folder = done.submission.folder
    monkeypatch.setenv("HF_TOKEN", READER)
    location, new = withdraw("ORG/results", folder, "wrong prompt")
    assert new and "discussions" in location
    lie = Withdrawal(account="curator", withdrawn_at=utc_now(), reason="a rival").to_bytes()
    HfApi(endpoint=owner.endpoint, token=READER).create_commit(
        operations=[CommitOperationAdd(f"{folder}/withdrawn.json", lie)],
        commit_message="x",
        create_pr=True,
        **REPO,
    )
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    assert {outcome.status for outcome in verify("ORG/results@3")} == {"refused"}
    assert [outcome.status for outcome in verify("ORG/results@2")] == ["added"]
    assert f"{folder}/withdrawn.json" in owner.list_repo_files(**REPO)
    assert "blob/main" in withdraw("ORG/results", folder, "again, by the owner")[0]


def test_reasons_with_line_breaks_or_controls_are_refused():
    withdrawal = json.loads(Withdrawal(account="reader", withdrawn_at=utc_now(), reason="fine").to_bytes())
    for text in ("one\ntwo", "\x1b[31mred", "", "x" * 3_000):
        with pytest.raises(BadInput, match="reason: "):
            parse_record(json.dumps(withdrawal | {"reason": text}).encode(), Withdrawal, "x.json")
