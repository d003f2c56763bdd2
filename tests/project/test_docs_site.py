"""Build the site of guides with the real tools, without a warning."""

import subprocess
import tomllib

import pytest

from tests.environments import ROOT, environment

pytestmark = [pytest.mark.harness, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def docs_python(request):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return environment(request.config.cache, "docs", tuple(project["optional-dependencies"]["docs"]))


def test_the_site_has_every_guide(docs_python, tmp_path):
    command = [docs_python, "-m", "mkdocs", "build", "--quiet", "--site-dir", tmp_path / "site"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for guide in (ROOT / "docs").glob("*.md"):
        page = "index.html" if guide.stem == "index" else f"{guide.stem}/index.html"
        assert (tmp_path / "site" / page).is_file(), guide
