"""Environments with other harnesses and with old clients: created once and kept in the pytest
cache; tests are skipped if the package index is unreachable.
"""

import json
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

from medprobe import __version__

ROOT = Path(__file__).resolve().parents[1]
NO_INDEX = re.compile(
    r"connection|temporary failure|timed out|proxy|network|no matching "
    r"distribution|ssl|resolve",
    re.IGNORECASE,
)


def environment(cache: pytest.Cache, name: str, requirements: tuple[str, ...], with_ours: bool = True) -> Path:
    """Return the Python of an environment that has these requirements (and, `with_ours`, this
    project with everything installed here). Skip the test, with the reason, if they cannot be
    installed.
    """
    folder = cache.mkdir(f"harness-{name}") / f"{sys.version_info.major}.{sys.version_info.minor}"
    python, stamp = folder / "bin" / "python", folder / "installed.json"
    if not stamp.exists() or json.loads(stamp.read_text()) != list(requirements):
        venv.EnvBuilder(with_pip=True, clear=True).create(folder)
        if with_ours:
            (_libraries(folder) / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        options = ("--quiet", "--disable-pip-version-check", "--no-compile", "--retries", "1")
        try:
            done = subprocess.run(
                [python, "-m", "pip", "install", *options, *requirements],
                capture_output=True, text=True, timeout=550, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            pytest.skip(f"{name} could not be installed within 550 seconds")
        if done.returncode and NO_INDEX.search(done.stderr):
            pytest.skip(f"the package index cannot be reached, so {name} is not tested: {done.stderr.strip()[-200:]}")
        assert done.returncode == 0, done.stderr
        stamp.write_text(json.dumps(list(requirements)))
    if with_ours:
        _install_us(_libraries(folder))
    return python


def _libraries(folder: Path) -> Path:
    return next((folder / "lib").glob("python*")) / "site-packages"


def _install_us(libraries: Path) -> None:
    """Write what an editable install leaves: a path and a distribution with its entry points."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (libraries / "medprobe.pth").write_text(f"{ROOT}\n")
    about = libraries / f"medprobe-{__version__}.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: medprobe\nVersion: {__version__}\n")
    (about / "direct_url.json").write_text(json.dumps({"url": ROOT.as_uri(), "dir_info": {"editable": True}}))
    groups = project["entry-points"]
    lines = [
        line
        for group, entry_points in groups.items()
        for line in (f"[{group}]", *(f"{k} = {v}" for k, v in entry_points.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
