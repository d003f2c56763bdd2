"""Fixture `api`: a loopback Hub on which this process is signed in as the curator."""

import pytest
from huggingface_hub import HfApi

from tests.localhub.accounts import CURATOR


@pytest.fixture
def api(local_hub, monkeypatch):
    """Sign in as the curator, and return a client of the Hub."""
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    return HfApi(endpoint=local_hub.endpoint, token=CURATOR)
