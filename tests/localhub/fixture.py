"""Fixtures: `local_hub`, a loopback Hub for one test; `stranger`, a client of it in a fresh process without this project."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from .clients import Stranger, strangers_python
from .server import LocalHub


@pytest.fixture
def local_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    """A running Hub (`.endpoint`, `.faults`, `.record`), which is this process's Hub; tokens are in tests.localhub.accounts.

    Who tries again in this process waits hundredths of a second, in huggingface_hub too: as often as elsewhere, only sooner.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import _http

    from dataset_builders.hub import client

    hurried = SimpleNamespace(**vars(time) | {"sleep": lambda seconds: time.sleep(min(seconds, 0.02))})
    monkeypatch.setattr(_http, "time", hurried)
    monkeypatch.setattr(client, "FIRST_BACKOFF_S", 0.01)
    monkeypatch.setattr(
        constants, "HF_HUB_CACHE", str(tmp_path / "hf-cache")
    )  # what another Hub said is not this one's word
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # this Hub has none
    with LocalHub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


@pytest.fixture(scope="session")
def python_without_us(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the libraries and not this project."""
    return strangers_python(tmp_path_factory.mktemp("stranger") / "venv")


@pytest.fixture
def stranger(tmp_path: Path, local_hub: LocalHub, python_without_us: Path) -> Callable[..., Stranger]:
    """Makes a client of `local_hub` with a Hugging Face home of its own: `stranger(token=None)`."""
    count = iter(range(1000))

    def make(token: str | None = None) -> Stranger:
        folder = tmp_path / f"stranger-{next(count)}"
        folder.mkdir()
        return Stranger(folder, python_without_us, local_hub.endpoint, token)

    return make
