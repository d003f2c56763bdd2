"""Fixtures for all tests: the authors' real files if present, and a Hugging Face home for each test
process; also the order of the tests.
"""

import atexit
import gc
import os
import shutil
import ssl
import tempfile
from functools import cache
from pathlib import Path

import pytest
import typer.main
from hypothesis import HealthCheck, settings

from eval_harness.store import sandbox
from tests.processes import made_once, shared_folder

# Set before any library reads it: downloads of another run or test process must not hide that a Hub
# is unreachable.
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="medprobe-hf-")
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)

shared_folder()  # made here, before there are other test processes

# One thread each: the test processes share the processors, and threads waiting for each other would
# cost more than they gain.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Made once instead of for each use: certificates are read for every client (0.05 s), the commands
# are assembled for every call (0.13 s).
ssl.create_default_context = cache(ssl.create_default_context)
typer.main.get_command = cache(typer.main.get_command)

# Tests read submissions in their own process, since a child costs a second of processor time. A
# test of the child or of its limits requests `examine_in_child`.
CAN_PASS_PIPES, sandbox.CAN_PASS_PIPES = sandbox.CAN_PASS_PIPES, False

# The same examples in every run, so that an unrelated change never fails on new ones;
# `--hypothesis-profile=explore` searches for new ones. No deadline: other load on the machine must
# not fail a test.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("same", settings.get_profile("explore"), derandomize=True, max_examples=40)
settings.load_profile("same")

pytest_plugins = ["tests.browser", "tests.localhub.fixture"]

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture
def examine_in_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read submissions in a child process with limits, as users and servers do."""
    monkeypatch.setattr(sandbox, "CAN_PASS_PIPES", CAN_PASS_PIPES)


def _folder(name: str) -> Path:
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"needs the authors' files in {Path('..') / 'shared' / name}, which are not on this machine")
    return folder


@pytest.fixture(scope="session")
def phantoms() -> Path:
    """Return a folder with the phantom dataset of every benchmark under its name, built once for
    all test processes; tests must not change it.
    """
    from dataset_builders.benchmarks import BENCHMARKS
    from dataset_builders.build import build

    def make(folder: Path) -> None:
        for name in BENCHMARKS:
            build(name, out=folder / name, eval_yaml=True)

    return made_once("phantoms", make)


@pytest.fixture(scope="session")
def sources() -> Path:
    """Return the authors' source files (`../shared/sources`); skip the test if they are absent."""
    return _folder("sources")


@pytest.fixture(scope="session")
def official_scores() -> Path:
    """Return scores by the authors' own code (`../shared/official_scores`); skip the test if they
    are absent.
    """
    return _folder("official_scores")


@pytest.fixture(scope="session")
def papers() -> Path:
    """Return the four papers as text (`../shared/papers`); skip the test if they are absent."""
    return _folder("papers")


def pytest_collection_finish() -> None:
    """Exempt the imported libraries from garbage collection: traversing them again and again took a
    quarter of the tests' time.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files with long tests first: with `-n`, a process takes one file at a time, and a long
    file at the end would run alone.
    """
    marks = ("browser", "slow", "exhaustive")
    long = {item.path for item in items if any(map(item.get_closest_marker, marks))}
    items.sort(key=lambda item: item.path not in long)
