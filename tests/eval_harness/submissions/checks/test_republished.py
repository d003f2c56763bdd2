"""Datasets under other names and revisions: what is scored by them is flagged or refused, and their questions never become the store's."""

import random
import shutil
from pathlib import Path

import pandas as pd
import pytest
from huggingface_hub import CommitOperationAdd, HfApi

from dataset_builders.hub.publish import publish
from eval_harness.records.result import Result
from eval_harness.submissions.submit import prepare, submit
from eval_harness.submissions.verification import verify
from tests.eval_harness.submissions.submitting import responses
from tests.helpers import write_lines
from tests.localhub.accounts import CURATOR, READER, STRANGER

OURS = "ORG/phantoms"
REPO = {"repo_id": "ORG/results", "repo_type": "dataset"}
SEED = 7


def pairs(questions: pd.DataFrame, draw: random.Random) -> pd.DataFrame:
    """The same questions in other pairs: those that "A" answers right come together."""
    order = sorted(questions.index, key=lambda row: (list(questions["answer"][row]), draw.random()))
    return questions.loc[order].assign(case_id=list(questions["case_id"])).reset_index(drop=True)


def keys(questions: pd.DataFrame, draw: random.Random) -> pd.DataFrame:
    """The same questions with another key: some, or all, are answered by the first option."""
    share = draw.choice([0.3, 1.0])
    answers = [[0] if draw.random() < share else list(answer) for answer in questions["answer"]]
    answers[0] = [1 - answers[0][0]]
    return questions.assign(answer=pd.Series(answers, dtype=object))


def other(data: Path, folder: Path, change) -> Path:
    """A copy of a dataset with its questions changed."""
    shutil.copytree(data, folder)
    (path,) = folder.glob("questions_text/test*.parquet")
    questions = change(pd.read_parquet(path), random.Random(SEED))
    questions.to_parquet(path, index=False)
    return folder


@pytest.fixture
def ours(owner, data, monkeypatch):
    """The owner's dataset on the Hub; returns its commit."""
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    publish(data, OURS)
    monkeypatch.setenv("HF_TOKEN", READER)
    return str(owner.repo_info(OURS, repo_type="dataset").sha)


def as_owner(monkeypatch, **options):
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    (outcome,) = verify("ORG/results@1", **options)
    monkeypatch.setenv("HF_TOKEN", READER)
    return outcome


def questions_kept(owner) -> list[str]:
    return [name for name in owner.list_repo_files(**REPO) if name.startswith("questions/")]


@pytest.mark.parametrize("change", [pairs, keys])
def test_another_pairing_or_key_neither_lands_unseen_nor_becomes_the_stores(
    owner, ours, data, change, monkeypatch, tmp_path
):
    theirs = other(data, tmp_path / "theirs", change)
    api = HfApi(endpoint=owner.endpoint, token=READER)
    api.create_repo("reader/phantoms", repo_type="dataset")
    api.upload_folder(folder_path=theirs, repo_id="reader/phantoms", repo_type="dataset")
    answers = write_lines(tmp_path / "a.jsonl", [record | {"response": "A"} for record in responses(data)])
    submit(answers, "ORG/results", "mediconfusion", "Model", "reader/phantoms")
    refused = as_owner(monkeypatch, data=[OURS], with_questions=True)
    assert refused.word == "refused" and "not those of the dataset" in "; ".join(refused.reasons)
    flagged = as_owner(monkeypatch, with_questions=True)
    assert flagged.word == "for a human" and any("vouches" in line for line in flagged.reasons)
    assert as_owner(monkeypatch, with_questions=True, accept_flagged=True).word == "added"
    assert questions_kept(owner) == [], "a stranger's questions are not the store's"


def test_the_owners_questions_are_kept(owner, ours, data, monkeypatch, tmp_path):
    submit(write_lines(tmp_path / "a.jsonl", responses(data)), "ORG/results", "mediconfusion", "Model", OURS)
    assert as_owner(monkeypatch, with_questions=True).word == "added" and len(questions_kept(owner)) == 1


def propose(owner, submission, repo, revision):
    """A pull request of a submission that names another dataset."""
    document = submission.result.model_dump(mode="json")
    document["benchmark"] |= {"repo": repo, "revision": revision}
    result = Result.model_validate(document).to_json().encode()
    files = submission.files() | {f"{submission.folder}/result.json": result}
    HfApi(endpoint=owner.endpoint, token=READER).create_commit(
        operations=[CommitOperationAdd(path, content) for path, content in files.items()],
        commit_message="A result", create_pr=True, **REPO,
    )  # fmt: skip


@pytest.mark.parametrize("change", [keys, None], ids=["other keys", "the same questions"])
def test_a_commit_of_a_pull_request_is_not_the_owners_word(owner, ours, data, change, monkeypatch, tmp_path):
    theirs = other(data, tmp_path / "theirs", change) if change else data
    files = [CommitOperationAdd("images/1.png", b"another image")]
    if change:
        files += [
            CommitOperationAdd(f"questions_text/{path.name}", path.read_bytes())
            for path in theirs.glob("questions_text/*.parquet")
        ]
    commit = HfApi(endpoint=owner.endpoint, token=READER).create_commit(
        OURS, files, commit_message="x", repo_type="dataset", create_pr=True
    )
    found = prepare(write_lines(tmp_path / "a.jsonl", responses(data)), "mediconfusion", "Model", str(theirs))
    propose(owner, found, OURS, commit.oid)
    assert as_owner(monkeypatch).word == "for a human"
    with_data = as_owner(monkeypatch, data=[OURS])
    if change:
        assert with_data.word == "refused"
    else:
        assert with_data.word == "for a human" and "behind a tag" in "; ".join(with_data.reasons)


@pytest.mark.parametrize("kind", ["another repository", "an earlier release", "the newest"])
def test_the_repository_that_is_named_is_compared(owner, ours, data, kind, monkeypatch, tmp_path):
    found = prepare(write_lines(tmp_path / "a.jsonl", responses(data)), "mediconfusion", "Model", str(data))
    repo, revision = ("reader/phantoms", "0" * 40) if kind == "another repository" else (OURS, ours)
    if kind == "an earlier release":
        owner.upload_file(path_or_fileobj=b"x", path_in_repo="NOTES", repo_id=OURS, repo_type="dataset")
    propose(owner, found, repo, revision)
    outcome = as_owner(monkeypatch, data=[OURS])
    assert outcome.word == ("for a human" if kind == "another repository" else "added"), outcome


def test_what_was_read_again_since_is_the_same_submission(owner, ours, data, run, monkeypatch, tmp_path):
    """`medprobe rescore` writes other bytes for the same answers: they are neither proposed twice nor refused."""
    first = submit(run, "ORG/results", data=str(data))
    monkeypatch.setenv("HF_TOKEN", STRANGER)
    submit(run, "ORG/results", data=str(data))
    assert as_owner(monkeypatch, data=[OURS], accept_flagged=True).word == "added"
    name = f"{first.submission.folder}/answers.parquet"
    answers = pd.read_parquet(owner.hf_hub_download(**REPO, filename=name)).assign(rule="read again")
    answers.to_parquet(tmp_path / "again.parquet", index=False)
    owner.upload_file(path_or_fileobj=tmp_path / "again.parquet", path_in_repo=name, **REPO)
    again = submit(run, "ORG/results", data=str(data))
    assert not again.new and "tree/main" in again.location
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    (late,) = verify("ORG/results@2", data=[OURS])
    assert late.word == "added" and "on main already" in "; ".join(late.notes)
