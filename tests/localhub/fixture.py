"""Fixtures: `local_hub`, a loopback Hub for one test; `stranger`, a client of it.

A client runs programs as an outsider would: a fresh interpreter with the installed libraries but
without this project. Each has its own Hugging Face home: `load_dataset` silently uses its cache if
the Hub refuses, so tests must not share one.
"""

import os
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.processes import output_of

from .server import LocalHub

ASSERT_PROJECT_ABSENT = """
import importlib.util
for name in ("medprobe", "dataset_builders", "eval_harness", "leaderboard_space", "tests"):
    assert importlib.util.find_spec(name) is None, f"{name} is importable here"
"""


@dataclass
class Stranger:
    """A Python without this project, in an empty folder.

    `run(code)` returns what the code prints; if it fails, the assertion shows its errors.
    """

    folder: Path
    python: Path
    endpoint: str
    token: str | None = None

    def environment(self) -> dict[str, str]:
        environment = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}

        # A separate home, so that no cache or token of this machine is used.
        environment |= {
            "HOME": str(self.folder),
            "HF_HOME": str(self.folder / "hf"),
            "HF_ENDPOINT": self.endpoint,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "*",
            "HF_HUB_DISABLE_XET": "1",
        }
        if self.token:
            environment["HF_TOKEN"] = self.token
        return environment

    def run(self, code: str, timeout: float = 120, **environment: str) -> str:
        command = [self.python, "-c", ASSERT_PROJECT_ABSENT + code]
        return output_of(command, cwd=self.folder, env=self.environment() | environment, timeout=timeout)


def python_with_requirements(requirements: list[str], folder: Path) -> Path:
    """Create an environment with what `pip install` of these requirements would give, linked from
    this one.
    """
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    libraries = next((folder / "lib").glob("python*")) / "site-packages"
    for name in resolve_requirements(requirements):
        for file in distribution(name).files or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (libraries / top).exists():
                (libraries / top).symlink_to(Path(str(distribution(name).locate_file(top))))

    return folder / "bin" / "python"


def resolve_requirements(requirements: list[str]) -> set[str]:
    """Return the names of the installed distributions that these requirements need, directly or
    indirectly.
    """
    resolved: set[tuple[str, str]] = set()
    pending = [Requirement(line) for line in requirements]
    while pending:
        requirement = pending.pop()

        # Markers are evaluated per extra, and without any.
        for extra in ("", *requirement.extras):
            key = (canonicalize_name(requirement.name), extra)
            if key not in resolved:
                resolved.add(key)
                needs = [Requirement(line) for line in distribution(requirement.name).requires or []]
                pending += [need for need in needs if not need.marker or need.marker.evaluate({"extra": extra})]

    return {name for name, _ in resolved}


def python_without_project(folder: Path) -> Path:
    """Create an environment with this one's libraries but without editable installs (nested .pth
    files are ignored).
    """
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = folder / "lib" / version / "site-packages" / "libraries.pth"
    libraries.write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin" / "python"


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
