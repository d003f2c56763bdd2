"""The real board as a Space: published from the command line, fetched into a fresh folder, started there by itself, showing a store on
the Hub, with nothing but what its requirements.txt asks for."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from huggingface_hub import HfApi

from tests.localhub.accounts import CURATOR
from tests.localhub.clients import NOT_OURS, Stranger, python_with_only
from tests.processes import free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


UPLOAD = """
import sys
from huggingface_hub import HfApi
HfApi().upload_folder(repo_id="ORG/results", repo_type="dataset", folder_path=sys.argv[1])
"""


def medprobe(*arguments, cwd, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    command = [sys.executable, "-c", "import medprobe; medprobe.main()", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=cwd, env=kept | environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    place = tmp_path_factory.mktemp("store")
    medprobe("build", "mediconfusion", "--out", "data", cwd=place)
    medprobe("eval", "mediconfusion", "--data", "data", "--model", "baseline:always-A", "--out", "run", cwd=place)
    medprobe("submit", "run", "--to", "store", cwd=place)
    return place / "store"


@pytest.fixture
def space(local_hub, store, tmp_path):
    """The Space's files as the Hub holds them, and a results store beside it there."""
    api = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    api.create_repo("ORG/results", repo_type="dataset")
    hub = {"HF_ENDPOINT": local_hub.endpoint, "HF_TOKEN": CURATOR, "HF_HUB_DISABLE_XET": "1"}
    hub["HF_HOME"] = str(tmp_path / "home")
    subprocess.run([sys.executable, "-c", UPLOAD, store], env=os.environ | hub, check=True, timeout=100)
    said = medprobe("publish", ROOT / "leaderboard_space", "ORG/board", "--space", cwd=tmp_path, **hub)
    assert "/spaces/ORG/board" in said
    again = medprobe("publish", ROOT / "leaderboard_space", "ORG/board", "--space", cwd=tmp_path, **hub)
    assert "nothing uploaded" in again
    return Path(api.snapshot_download("ORG/board", repo_type="space", local_dir=tmp_path / "space"))


HAND_IN = """
import json, sys
from gradio_client import Client, handle_file
client = Client(sys.argv[1], verbose=False)
said = client.predict(sys.argv[2], [handle_file(sys.argv[3])], "Handed in", "open", api_name="/check_submission")
print(json.dumps(said[-1]))
client.close()
"""


def page_of(space, stranger, target, answers):
    """Start app.py in the Space's folder: (the page that it serves, what it says of a file of answers that is handed in)."""
    subprocess.run([stranger.python, "-c", NOT_OURS], cwd=stranger.folder, env=stranger.environment(), check=True)
    port = free_port()
    settings = {"GRADIO_SERVER_PORT": str(port), "MEDPROBE_RESULTS": "ORG/results", "NO_PROXY": "127.0.0.1"}
    process = subprocess.Popen(
        [stranger.python, "app.py"],
        cwd=space,
        env=stranger.environment() | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        for _ in range(600):
            assert process.poll() is None, process.stdout.read()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/config", timeout=20) as answer:
                    page = json.dumps(json.load(answer))
                break
            except OSError:
                time.sleep(0.1)
        else:
            raise AssertionError("the board does not answer")
        command = [stranger.python, "-c", HAND_IN, f"http://127.0.0.1:{port}", target, str(answers)]
        done = subprocess.run(command, capture_output=True, text=True, env=stranger.environment(), check=False)
        assert done.returncode == 0, done.stderr
        return page, json.loads(done.stdout)
    finally:
        process.kill()
        process.wait()


def fingerprint_of(store):
    return next((store / "questions").iterdir()).stem


@pytest.fixture(scope="module")
def python_of_the_space(tmp_path_factory):
    """What a Space build installs: the SDK that the card names, and requirements.txt."""
    board = ROOT / "leaderboard_space"
    card = yaml.safe_load((board / "README.md").read_text().split("---")[1])
    lines = [line.split("#")[0].strip() for line in (board / "requirements.txt").read_text().splitlines()]
    assert card["sdk_version"] == version("gradio"), "the card names the version that the tests run with"
    return python_with_only(["gradio", *filter(None, lines)], tmp_path_factory.mktemp("space") / "venv")


def test_the_board_starts_from_the_space_alone(space, store, local_hub, python_of_the_space, tmp_path):
    (tmp_path / "stranger").mkdir()
    stranger = Stranger(tmp_path / "stranger", python_of_the_space, local_hub.endpoint)
    not_asked_for = "print([n for n in ('torch', 'datasets', 'statsmodels') if importlib.util.find_spec(n)])"
    assert stranger.run(not_asked_for).strip() == "[]"
    answers = tmp_path / "answers.jsonl"
    answers.write_text(next(store.parent.glob("run/answers.jsonl")).read_text())
    page, said = page_of(space, stranger, f"store:{fingerprint_of(store)}", answers)
    assert "medprobe: can you trust your AI radiologist?" in page
    assert fingerprint_of(store)[:12] in page, "the store on the Hub is shown"
    assert said["ok"] and said["scores"]["set_accuracy"]["value"] == 0, (
        "always A cannot be right about both images of a pair"
    )
