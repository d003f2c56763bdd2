"""The site of guides is built by the real tools without a warning, and the notebooks run in a real kernel."""

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.environments import ROOT, environment

pytestmark = [pytest.mark.harness, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def docs_python(request):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return environment(request.config.cache, "docs", tuple(project["optional-dependencies"]["docs"]))


def run(python, *arguments, cwd):
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [python, *map(str, arguments)], cwd=cwd, env=variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_site_has_every_guide(docs_python, tmp_path):
    run(docs_python, "-m", "mkdocs", "build", "--quiet", "--site-dir", tmp_path / "site", cwd=ROOT)
    for guide in (ROOT / "docs").glob("*.md"):
        page = "index.html" if guide.stem == "index" else f"{guide.stem}/index.html"
        assert (tmp_path / "site" / page).is_file(), guide


@pytest.mark.parametrize("path", sorted((ROOT / "docs/notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_in_a_kernel(docs_python, path: Path, tmp_path):
    (tmp_path / path.name).write_bytes(path.read_bytes())
    run(docs_python, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", path.name, cwd=tmp_path)
