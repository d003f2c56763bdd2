"""Fixtures: `local_hub`, a loopback Hub for one test; `stranger`, a client of it in a fresh process without this project."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .clients import Stranger, strangers_python
from .server import LocalHub


@pytest.fixture
def local_hub(tmp_path: Path) -> Iterator[LocalHub]:
    """A running Hub (`.endpoint`, `.faults`, `.record`); tokens are in tests.localhub.accounts."""
    with LocalHub(tmp_path / "hub") as hub:
        yield hub


@pytest.fixture(scope="session")
def python_without_us(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the libraries and not this project."""
    return strangers_python(tmp_path_factory.mktemp("stranger") / "venv")


@pytest.fixture
def stranger(tmp_path: Path, local_hub: LocalHub, python_without_us: Path) -> Callable[..., Stranger]:
    """Makes a client of `local_hub` with a Hugging Face home of its own: `stranger(token=None, xet=False)`."""
    count = iter(range(1000))

    def make(token: str | None = None, xet: bool = False) -> Stranger:
        folder = tmp_path / f"stranger-{next(count)}"
        folder.mkdir()
        return Stranger(folder, python_without_us, local_hub.endpoint, token, xet)

    return make
