"""Fixtures: a read-only phantom dataset and run, and the owner of an empty store on the loopback
Hub.
"""

import pytest
from huggingface_hub import HfApi

from tests.eval_harness.store.submitting import make_phantom, run_folder
from tests.localhub.accounts import CURATOR, READER


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return make_phantom("mediconfusion", tmp_path_factory.mktemp("data") / "mediconfusion")


@pytest.fixture(scope="session")
def run(data, tmp_path_factory):
    return run_folder(data, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def owner(local_hub, monkeypatch):
    """Client of the owner of ORG/results; the submitter is the reader."""
    monkeypatch.setenv("HF_TOKEN", READER)
    api = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    api.create_repo("ORG/results", repo_type="dataset")
    return api


@pytest.fixture
def as_owner(monkeypatch):
    return lambda: monkeypatch.setenv("HF_TOKEN", CURATOR)
