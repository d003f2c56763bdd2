"""Fixtures and order for everybody: where the authors' real files lie, when they are there; a
Hugging Face home for each test process.
"""

import atexit
import os
import shutil
import ssl
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from hypothesis import HealthCheck, settings

from tests.processes import collect_less_garbage, interpreter, made_once, move_home, shared_folder

# Before any library reads it: what another run or another test process downloaded must not answer
# for a Hub that is away.
original_home, os.environ["HF_HOME"] = os.environ.get("HF_HOME"), tempfile.mkdtemp(prefix="medprobe-hf-")
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)
if original_home:  # a test process is forked from one that has read the libraries
    move_home(original_home, os.environ["HF_HOME"])

shared_folder()  # made here, before there are other test processes

# One thread each: the test processes share the processors, and threads that wait for each other
# there cost more than they give.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Made once, not for each use: certificates are read for every client (.05 s), commands are
# assembled for every call (.13 s).
ssl.create_default_context = cache(ssl.create_default_context)
typer.main.get_command = cache(typer.main.get_command)

# The same examples in every run, so that no change fails for another one's;
# `--hypothesis-profile=explore` looks for new ones. How fast an example runs is the machine's
# affair: other work on it must fail no test.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("same", settings.get_profile("explore"), derandomize=True, max_examples=40)
settings.load_profile("same")

pytest_plugins = ["tests.browser", "tests.localhub.fixture"]

SHARED = Path(__file__).resolve().parents[2] / "shared"


def _folder(name: str) -> Path:
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"needs the authors' files in {Path('..') / 'shared' / name}, which are not on this machine")
    return folder


@pytest.fixture(scope="session")
def phantoms() -> Path:
    """A folder with every benchmark's drawn dataset under its name, built once for all test
    processes: to be read only.
    """
    from dataset_builders.benchmarks import BENCHMARKS
    from dataset_builders.build import build

    def make(folder: Path) -> None:
        for name in BENCHMARKS:
            build(name, out=folder / name, eval_yaml=True)

    return made_once("phantoms", make)


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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[Any]) -> None:
    """Test processes are forked from one that has imported the libraries, which takes each of them
    8 seconds of processor time.
    """
    for spec in specs:
        spec.python = interpreter()


def pytest_collection_finish() -> None:
    collect_less_garbage()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long tests first: a process of `-n` takes a file at a time, and a long one at the
    end would run alone.
    """
    marks = ("browser", "slow", "exhaustive")
    long = {item.path for item in items if any(map(item.get_closest_marker, marks))}
    items.sort(key=lambda item: item.path not in long)
