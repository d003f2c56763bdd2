"""The real board as a Space: published from the command line, fetched into a fresh folder, started there by itself, showing a store on
the Hub, with nothing but what its requirements.txt asks for."""

import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest
import yaml
from huggingface_hub import HfApi

from tests.commands import medprobe
from tests.leaderboard_space.serving import hand_in
from tests.localhub.accounts import CURATOR
from tests.localhub.clients import Stranger, python_with_only
from tests.processes import free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("store")
    medprobe("build", "mediconfusion", "--out", "data", cwd=workdir)
    medprobe("eval", "mediconfusion", "--data", "data", "--model", "baseline:always-A", "--out", "run", cwd=workdir)
    medprobe("submit", "run", "--to", "store", cwd=workdir)
    return workdir / "store"


@pytest.fixture
def space(local_hub, store, tmp_path):
    """The Space's files as the Hub holds them, and a results store beside it there."""
    api = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    api.create_repo("ORG/results", repo_type="dataset")
    api.upload_folder(repo_id="ORG/results", repo_type="dataset", folder_path=store)
    for said in ("/spaces/ORG/board", "nothing uploaded"):
        done = medprobe("publish", ROOT / "leaderboard_space", "ORG/board", "--space", cwd=tmp_path, HF_TOKEN=CURATOR)
        assert said in done.stdout
    return Path(api.snapshot_download("ORG/board", repo_type="space", local_dir=tmp_path / "space"))


@contextmanager
def started(space, stranger):
    """app.py in the Space's folder: its address."""
    port = free_port()
    settings = {"GRADIO_SERVER_PORT": str(port), "MEDPROBE_RESULTS": "ORG/results", "NO_PROXY": "127.0.0.1"}
    said = stranger.folder / "said"
    with said.open("wb") as file:
        process = subprocess.Popen(
            [stranger.python, "app.py"], cwd=space, env=stranger.environment() | settings, stdout=file, stderr=file
        )
    try:
        until = time.monotonic() + 240
        while True:
            assert process.poll() is None and time.monotonic() < until, said.read_text()
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=20):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
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


@pytest.mark.exhaustive  # a small Space does in test_publish_space.py
def test_the_board_starts_from_the_space_alone(space, store, local_hub, python_of_the_space, tmp_path):
    (tmp_path / "stranger").mkdir()
    stranger = Stranger(tmp_path / "stranger", python_of_the_space, local_hub.endpoint)
    not_asked_for = "print([n for n in ('torch', 'datasets', 'statsmodels') if importlib.util.find_spec(n)])"
    assert stranger.run(not_asked_for).strip() == "[]"
    with started(space, stranger) as address:
        page = httpx.get(f"{address}/config", timeout=60).raise_for_status().text
        answers = store.parent / "run" / "answers.jsonl"
        said = hand_in(address, f"store:{fingerprint_of(store)}", answers, "check_submission")
    assert "medprobe: can you trust your AI radiologist?" in page
    assert fingerprint_of(store)[:12] in page, "the store on the Hub is shown"
    assert said["ok"] and said["scores"]["set_accuracy"]["value"] == 0, (
        "always A cannot be right about both images of a pair"
    )
