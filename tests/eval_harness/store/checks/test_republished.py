"""Republished datasets: results on them are flagged or refused, and their questions are never
stored.
"""

import random
import shutil
from pathlib import Path

import pandas as pd
import pytest
from huggingface_hub import HfApi

from dataset_builders.hub.publish import publish
from eval_harness.store.submit import submit_to_store
from eval_harness.store.verification import accept, verify
from tests.eval_harness.store.submitting import responses, update_card
from tests.eval_harness.store.verifying import pull_head
from tests.helpers import write_lines
from tests.localhub.accounts import CURATOR, READER

OURS = "ORG/phantoms"
REPO = {"repo_id": "ORG/results", "repo_type": "dataset"}
SEED = 7


def change_keys(questions: pd.DataFrame, draw: random.Random) -> pd.DataFrame:
    """Change the key: some or all questions are answered by the first option."""
    share = draw.choice([0.3, 1.0])
    answers = [[0] if draw.random() < share else list(answer) for answer in questions["answer"]]
    answers[0] = [1 - answers[0][0]]
    return questions.assign(answer=pd.Series(answers, dtype=object))


def copy_dataset(data: Path, folder: Path, change) -> Path:
    """Copy a dataset and change its questions."""
    shutil.copytree(data, folder)
    (path,) = folder.glob("questions_text/test*.parquet")
    questions = change(pd.read_parquet(path), random.Random(SEED))
    questions.to_parquet(path, index=False)
    return update_card(folder)


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


def stored_questions(owner) -> list[str]:
    return [name for name in owner.list_repo_files(**REPO) if name.startswith("questions/")]


def test_another_key_is_flagged_and_its_questions_are_not_stored(owner, ours, data, monkeypatch, tmp_path):
    forged_data = copy_dataset(data, tmp_path / "theirs", change_keys)
    api = HfApi(endpoint=owner.endpoint, token=READER)
    api.create_repo("reader/phantoms", repo_type="dataset")
    api.upload_folder(folder_path=forged_data, repo_id="reader/phantoms", repo_type="dataset")
    answers = write_lines(tmp_path / "a.jsonl", [record | {"response": "A"} for record in responses(data)])
    submit_to_store(answers, "ORG/results", "mediconfusion", "Model", "reader/phantoms")
    ours_ = as_owner(monkeypatch, data=[OURS], with_questions=True)
    assert ours_.status == "for a person" and "images were not compared" in "; ".join(ours_.reasons)
    flagged = as_owner(monkeypatch, with_questions=True)
    assert flagged.status == "for a person" and any("vouches" in line for line in flagged.reasons)
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    assert accept("ORG/results@1", pull_head(owner, 1), with_questions=True).status == "added"
    assert stored_questions(owner) == [], "a stranger's questions are not the store's"


def test_the_owners_questions_are_stored(owner, ours, data, monkeypatch, tmp_path):
    submit_to_store(
        write_lines(tmp_path / "a.jsonl", responses(data)),
        "ORG/results",
        "mediconfusion",
        "Model",
        OURS,
    )
    assert as_owner(monkeypatch, with_questions=True).status == "added" and len(stored_questions(owner)) == 1
