"""The fixture `local_hub`: a loopback Hub for one test, with tokens of accounts that have different rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .server import LocalHub


@pytest.fixture
def local_hub(tmp_path: Path) -> Iterator[LocalHub]:
    """A running Hub (`.endpoint`, `.faults`, `.record`); tokens are in tests.localhub.accounts."""
    with LocalHub(tmp_path / "hub") as hub:
        yield hub
