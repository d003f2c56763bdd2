"""Fixtures: a phantom dataset, a run on it, and the owner of an empty store on the loopback Hub."""

import huggingface_hub
import pytest
from huggingface_hub import HfApi

from dataset_builders.hub import client as hub
from tests.eval_harness.submissions.submitting import phantom, run_folder
from tests.localhub.accounts import CURATOR, READER


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return phantom("mediconfusion", tmp_path_factory.mktemp("data") / "mediconfusion")


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    return run_folder(data, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def owner(local_hub, monkeypatch):
    """A client of the owner of ORG/results; whoever submits is the reader."""
    monkeypatch.setenv("HF_ENDPOINT", local_hub.endpoint)
    monkeypatch.setenv("HF_TOKEN", READER)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(hub, "FIRST_WAIT", 0.02)
    api = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    api.create_repo("ORG/results", repo_type="dataset")
    return api
