"""Programs run as a stranger would run them: a fresh interpreter with the installed libraries and without this project, and a
Hugging Face home of its own (`load_dataset` silently serves its cache when the Hub refuses, so no two tests may share one)."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

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
    xet: bool = False

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        kept |= {"HOME": str(self.folder), "HF_HOME": str(self.folder / "hf"), "HF_ENDPOINT": self.endpoint}
        kept |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "NO_PROXY": "*"}
        if self.token:
            kept["HF_TOKEN"] = self.token
        if not self.xet:
            kept["HF_HUB_DISABLE_XET"] = "1"
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


def strangers_python(folder: Path) -> Path:
    """An environment that sees this one's libraries, but not what is installed here as editable (a .pth below a path is not followed)."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = folder / "lib" / version / "site-packages" / "libraries.pth"
    libraries.write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin" / "python"
