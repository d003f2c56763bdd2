"""Check that a Space receives the board and the layers below it, and runs from these alone."""

import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dataset_builders.errors import BadInput
from dataset_builders.hub.publish import publish, select_space_files
from tests.localhub.fixture import resolve_requirements
from tests.localhub.small_repo import small_repo
from tests.processes import output_of

SPACE_CARD = "---\ntitle: A board\nsdk: gradio\napp_file: app.py\n---\n"
SPACE_APP = """
from pathlib import Path
from typing import TYPE_CHECKING

from leaderboard_space.views.first import words

if TYPE_CHECKING:
    from eval_harness.runs.config import EvalConfig

def scores():
    from eval_harness.derive.metrics import HEADLINE_METRICS
    return HEADLINE_METRICS

if __name__ == "__main__":
    print(words(), scores()["mediconfusion"], (Path(__file__).parent / "style.css").read_text())
"""


@pytest.fixture
def board(tmp_path):
    folder = tmp_path / "checkout" / "leaderboard_space"
    (folder / "views" / "__pycache__").mkdir(parents=True)
    for name, text in {
        "__init__.py": "",
        "app.py": SPACE_APP,
        "README.md": SPACE_CARD,
        "requirements.txt": "pandas\n",
        "style.css": "plain",
        ".env": "HF_TOKEN=secret",
        "views/__init__.py": "",
        "views/first.py": "from ..words import WORDS\nfrom dataset_builders import errors\n\ndef words():\n    return WORDS\n",
        "views/__pycache__/first.pyc": "",
        "words.py": "WORDS = 'it starts'\n",
    }.items():
        (folder / name).write_text(text)

    return folder


@pytest.mark.exhaustive
def test_space_starts_from_its_own_folder(board, stranger, tmp_path, api):
    report = publish(board, "ORG/board", space=True)
    assert report.repo_type == "space" and report.url.endswith("/spaces/ORG/board") and report.left_out == (".env",)
    assert api.space_info("ORG/board").sdk == "gradio"
    paths = set(api.list_repo_files("ORG/board", repo_type="space"))
    assert {
        "app.py",
        "README.md",
        "requirements.txt",
        "leaderboard_space/app.py",
        "leaderboard_space/style.css",
    } <= paths
    assert {
        "dataset_builders/errors.py",
        "eval_harness/scores/__init__.py",
        "eval_harness/__init__.py",
    } <= paths
    assert "leaderboard_space/README.md" not in paths
    assert not any(".env" in path or "__pycache__" in path for path in paths)
    space = api.snapshot_download("ORG/board", repo_type="space", local_dir=tmp_path / "space")
    code = f"""
import os, runpy, sys
os.chdir({space!r})
sys.path.insert(0, {space!r})
runpy.run_path("app.py", run_name="__main__")
"""
    assert stranger().run(code).split() == ["it", "starts", "set_accuracy", "plain"]
    assert not publish(board, "ORG/board", space=True).committed


def test_incomplete_space_folder_is_rejected(board, local_hub):
    (board / "requirements.txt").unlink()
    with pytest.raises(BadInput, match=r"requirements\.txt is missing"):
        publish(board, "ORG/board", space=True)
    assert not local_hub.record.requests()


def test_space_variables_and_required_secret(board, local_hub, api, tmp_path):
    api.create_repo("ORG/results", repo_type="dataset", private=True)
    publish(small_repo(tmp_path / "small"), "ORG/small", gated="manual")
    assert api.dataset_info("ORG/small").gated == "manual"
    shows = {"space": True, "results": "ORG/results", "data": ["ORG/small"]}
    report = str(publish(board, "ORG/board", **shows))
    assert (
        "still needed: the secret HF_TOKEN, a token that can read ORG/results (private)" in report
        and "read-repos" in report
    )
    assert "read-repos" in api.space_info("ORG/board").card_data.hf_oauth_scopes

    # The board reads these variables on startup.
    variables = {name: variable.value for name, variable in api.get_space_variables("ORG/board").items()}
    assert variables == {"MEDPROBE_RESULTS": "ORG/results", "MEDPROBE_DATA": "ORG/small"}
    assert api.space_info("ORG/board").card_data.datasets == ["ORG/results", "ORG/small"]
    local_hub.record.clear()
    assert not publish(board, "ORG/board", **shows).committed and not local_hub.record.requests(
        "POST", "/(commit|variables)"
    )
    with pytest.raises(BadInput, match="ORG/absent"):
        publish(board, "ORG/other", space=True, results="ORG/absent")

    assert not api.repo_exists("ORG/other", repo_type="space")
    with pytest.raises(BadInput, match="Add --space"):
        publish(tmp_path / "small", "ORG/small", results="ORG/results")


@pytest.mark.exhaustive
def test_space_runs_from_a_wheel(board, stranger, tmp_path, api):
    """Switch from copies to a wheel in one commit; the wheel contains the same packages."""
    publish(board, "ORG/board", space=True)

    # Build a wheel from the files that a Space would receive.
    files, _ = select_space_files(board)
    wheel = tmp_path / "medprobe-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name, content in files.items():
            if "/" in name:
                file.writestr(name, content if isinstance(content, bytes) else content.read_bytes())

    assert publish(board, "ORG/board", space=True, wheel=wheel).committed
    paths = set(api.list_repo_files("ORG/board", repo_type="space"))
    assert wheel.name in paths and {name for name in paths if name.endswith(".py")} == {"app.py"}
    space = api.snapshot_download("ORG/board", repo_type="space", local_dir=tmp_path / "space")
    code = f"import os, runpy; os.chdir({space!r}); runpy.run_path('app.py', run_name='__main__')"
    assert stranger().run(code).split() == ["it", "starts", "set_accuracy", "plain"]
    (tmp_path / "x-1-py3-none-any.whl").write_bytes(b"no zip")
    with pytest.raises(BadInput, match="is not a medprobe wheel"):
        publish(board, "ORG/board", space=True, wheel=tmp_path / "x-1-py3-none-any.whl")

    with pytest.raises(BadInput, match="Add --space"):
        publish(board, "ORG/board", wheel=wheel)


@pytest.mark.exhaustive  # imports the whole board in a separate process
def test_space_requirements_cover_the_imports():
    board = Path(__file__).parents[3] / "leaderboard_space"
    code = "import sys, leaderboard_space.app; print(*{name.partition('.')[0] for name in sys.modules})"
    owners = packages_distributions()

    # Map imported modules to the distributions that provide them.
    modules = output_of([sys.executable, "-c", code], cwd=board.parent).split()
    loaded = {canonicalize_name(owner) for module in modules for owner in owners.get(module, ())}
    project = tomllib.loads((board.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *extras["space"], *extras["human"]]
    # `space` names the extra `human` of this package.
    declared = {canonicalize_name(Requirement(line).name) for line in requirements} - {"medprobe"}
    assert loaded & declared <= resolve_requirements((board / "requirements.txt").read_text().splitlines())
