"""Run programs as an outsider would: a fresh interpreter with the installed libraries but without
this project.

Each has its own Hugging Face home: `load_dataset` silently uses its cache if the Hub refuses, so
tests must not share one.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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
        done = subprocess.run(
            [self.python, "-c", ASSERT_PROJECT_ABSENT + code],
            cwd=self.folder,
            env=self.environment() | environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


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
