"""Fixtures for everybody: where the authors' real files lie, when they are there."""

from pathlib import Path

import pytest

pytest_plugins = ["tests.browser", "tests.localhub.fixture"]

SHARED = Path(__file__).resolve().parents[2] / "shared"


def _folder(name: str) -> Path:
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"needs the authors' files in {Path('..') / 'shared' / name}, which are not on this machine")
    return folder


@pytest.fixture(scope="session")
def sources() -> Path:
    """The authors' source files (`../shared/sources`); skips where absent."""
    return _folder("sources")


@pytest.fixture(scope="session")
def official_scores() -> Path:
    """Scores by the authors' own code (`../shared/official_scores`); skips where absent."""
    return _folder("official_scores")


@pytest.fixture(scope="session")
def papers() -> Path:
    """The four papers as text (`../shared/papers`); skips where absent."""
    return _folder("papers")
