"""Fixtures: `local_hub`, a loopback Hub for one test; `stranger`, a client of it in a fresh process
without this project.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from .clients import Stranger, python_without_project
from .server import LocalHub


@pytest.fixture
def local_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    """Run a Hub and make it this process's Hub (`.endpoint`, `.faults`, `.record`).

    Tokens are in tests.localhub.accounts. Retries in this process wait hundredths of a second, also
    in huggingface_hub; their number is unchanged.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import _http

    from dataset_builders.hub import client

    # Replace only the module that huggingface_hub's retries use, not `time` itself.
    hurried = SimpleNamespace(**vars(time) | {"sleep": lambda seconds: time.sleep(min(seconds, 0.02))})
    monkeypatch.setattr(_http, "time", hurried)
    monkeypatch.setattr(client, "FIRST_BACKOFF_S", 0.01)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf-cache"))  # do not reuse what another Hub returned
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # not implemented here
    with LocalHub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


@pytest.fixture(scope="session")
def python_without_us(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a Python with the libraries but without this project."""
    return python_without_project(tmp_path_factory.mktemp("stranger") / "venv")


@pytest.fixture
def stranger(tmp_path: Path, local_hub: LocalHub, python_without_us: Path) -> Callable[..., Stranger]:
    """Create clients of `local_hub`, each with its own Hugging Face home:
    `stranger(token=None)`.
    """
    # A new folder per client, so that clients share no cache.
    count = iter(range(1000))

    def make(token: str | None = None) -> Stranger:
        folder = tmp_path / f"stranger-{next(count)}"
        folder.mkdir()
        return Stranger(folder, python_without_us, local_hub.endpoint, token)

    return make
