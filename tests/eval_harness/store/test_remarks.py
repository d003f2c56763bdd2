"""Withdrawing a result and putting notes under it: by who submitted it or the store's owner, and by no one else."""

import json
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, HfApi

from dataset_builders.errors import BadInput
from eval_harness.store import pull_requests
from eval_harness.store.acceptance import Withdrawal, now, parse_record, read_provenance
from eval_harness.store.notes import annotate, withdraw
from eval_harness.store.submit import submit
from eval_harness.store.verification import verify
from tests.localhub.accounts import CURATOR, READER

REPO = {"repo_id": "ORG/results", "repo_type": "dataset"}


def test_in_a_folder(run, data, tmp_path):
    store = tmp_path / "store"
    stored = Path(submit(run, store, data=str(data), account="ann").location)
    assert read_provenance(stored).acceptance.account == "ann" and read_provenance(stored).withdrawal is None
    assert (
        withdraw(store, stored.name, "wrong prompt", "ann")[1] and not withdraw(store, stored.name, "again", "ann")[1]
    )
    annotate(store, stored.relative_to(store).as_posix(), "the prompt lacked its image")
    provenance = read_provenance(stored)
    assert provenance.withdrawal.reason == "wrong prompt" and [note.text for note in provenance.notes]
    assert [outcome.word for outcome in verify(str(store), data=[str(data)])] == ["verified"]
    for result, reason in (("nobody", "x"), (stored.name, ""), (stored.name, "a\x07b"), (stored.name, "x" * 3_000)):
        with pytest.raises(BadInput):
            withdraw(store, result, reason)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"schema_version": 0}, "schema_version"),
        ({"schema_version": 2}, "schema_version"),
        ({"reason": ""}, "reason"),
        (None, "the file"),
    ],
)
def test_a_damaged_record_is_refused_with_the_field_that_is_wrong(changes, field):
    record = json.loads(Withdrawal(account="ann", withdrawn_at=now(), reason="wrong prompt").to_bytes())
    content = b"{torn" if changes is None else json.dumps(record | changes).encode()
    with pytest.raises(BadInput, match=rf"^withdrawn\.json: {field}: "):
        parse_record(content, Withdrawal, "withdrawn.json")


def test_on_the_hub_only_who_submitted_it_or_the_owner(owner, run, data, monkeypatch, tmp_path):
    done = submit(run, "ORG/results", data=str(data))
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    assert verify("ORG/results@1", data=[str(data)])[0].word == "added"
    folder = done.submission.folder
    monkeypatch.setenv("HF_TOKEN", READER)
    location, new = withdraw("ORG/results", folder, "wrong prompt")
    assert new and "discussions" in location
    lie = Withdrawal(account="curator", withdrawn_at=now(), reason="a rival").to_bytes()
    HfApi(endpoint=owner.endpoint, token=READER).create_commit(
        operations=[CommitOperationAdd(f"{folder}/withdrawn.json", lie)], commit_message="x", create_pr=True, **REPO
    )
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    assert {outcome.word for outcome in verify("ORG/results@3")} == {"refused"}
    assert [outcome.word for outcome in verify("ORG/results@2")] == ["added"]
    assert f"{folder}/withdrawn.json" in owner.list_repo_files(**REPO)
    assert "blob/main" in annotate("ORG/results", folder, "seen by the owner")[0]


def test_remarks_of_others_words_are_bounded(owner, run, data, monkeypatch):
    """What `annotate` would never write, handed in by who may: notes without end, several lines, markup in the time."""
    from eval_harness.store.acceptance import Note

    done = submit(run, "ORG/results", data=str(data))
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    assert verify("ORG/results@1", data=[str(data)])[0].word == "added"
    monkeypatch.setattr(pull_requests, "MOST_NOTES", 1)
    reader = HfApi(endpoint=owner.endpoint, token=READER)

    def handed_in(note):
        operation = CommitOperationAdd(f"{done.submission.folder}/{note.file_name}", note.to_bytes())
        pull = reader.create_commit(operations=[operation], commit_message="x", create_pr=True, **REPO)
        (outcome,) = verify(f"ORG/results@{pull.pr_num}")
        return outcome.word, "; ".join(outcome.reasons)

    for text, when, words in (
        ("one\ntwo", now(), "line breaks"),
        ("\x1b[31mred", now(), "plain text"),
        ("fine", "<b>today</b>", "is no time"),
    ):
        word, told = handed_in(Note(account="reader", written_at=when, text=text))
        assert word == "refused" and words in told, told
    assert handed_in(Note(account="reader", written_at=now(), text="first"))[0] == "added"
    word, told = handed_in(Note(account="reader", written_at=now(), text="second"))
    assert word == "refused" and "notes already" in told
