"""Programs run as a stranger would run them: a fresh interpreter with the installed libraries and without this project, and a
Hugging Face home of its own (`load_dataset` silently serves its cache when the Hub refuses, so no two tests may share one)."""

from __future__ import annotations

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

NOT_OURS = """
import importlib.util
for name in ("medprobe", "dataset_builders", "eval_harness", "leaderboard_space", "tests"):
    assert importlib.util.find_spec(name) is None, f"{name} is importable here"
"""


@dataclass
class Stranger:
    """A Python without this project, in an empty folder. `run(code)` returns what it prints, and shows its errors when it fails."""

    folder: Path
    python: Path
    endpoint: str
    token: str | None = None

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        kept |= {"HOME": str(self.folder), "HF_HOME": str(self.folder / "hf"), "HF_ENDPOINT": self.endpoint}
        kept |= {
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "*",
            "HF_HUB_DISABLE_XET": "1",
        }
        if self.token:
            kept["HF_TOKEN"] = self.token
        return kept

    def run(self, code: str, timeout: float = 120, **environment: str) -> str:
        done = subprocess.run(
            [self.python, "-c", NOT_OURS + code],
            cwd=self.folder,
            env=self.environment() | environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def python_with_only(requirements: list[str], folder: Path) -> Path:
    """An environment that holds what `pip install` of these would, taken from this one (linked, not downloaded)."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    libraries = next((folder / "lib").glob("python*")) / "site-packages"
    for name in closure(requirements):
        for file in distribution(name).files or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (libraries / top).exists():
                (libraries / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    return folder / "bin" / "python"


def closure(requirements: list[str]) -> set[str]:
    """Names of the installed distributions that these requirements need, directly or not."""
    found: set[tuple[str, str]] = set()
    waiting = [Requirement(line) for line in requirements]
    while waiting:
        wanted = waiting.pop()
        for extra in ("", *wanted.extras):
            key = (canonicalize_name(wanted.name), extra)
            if key not in found:
                found.add(key)
                needs = [Requirement(line) for line in distribution(wanted.name).requires or []]
                waiting += [need for need in needs if not need.marker or need.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def strangers_python(folder: Path) -> Path:
    """An environment that sees this one's libraries, but not what is installed here as editable (a .pth below a path is not followed)."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = folder / "lib" / version / "site-packages" / "libraries.pth"
    libraries.write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin" / "python"
