"""Test many concurrent submissions through the Space's API: each is accepted or refused with a
reason, and no acknowledged one is lost.
"""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from dataset_builders.hub.repository import open_repository
from eval_harness.store.verification import verify
from tests.eval_harness.store.submitting import REPO
from tests.helpers import write_lines
from tests.leaderboard_space.serving import board, hand_in
from tests.localhub.accounts import CURATOR, READER

pytestmark = pytest.mark.slow

N_SUBMITTERS = 6


@pytest.fixture(scope="module")
def data(phantoms: Path) -> Path:
    return phantoms / "halt-medvqa"


@pytest.fixture(scope="module")
def files(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Make files of answers of invented models, no two alike; every fifth answers a question that
    does not exist.
    """
    questions = open_repository(data).questions("test")
    workdir = tmp_path_factory.mktemp("files")
    paths = []
    for number in range(N_SUBMITTERS):
        bits = f"{number:010b}" * len(questions)
        rows = [
            {"question_id": question_id, "response": "AB"[int(bits[at])]}
            for at, question_id in enumerate(questions["question_id"])
        ]
        if number % 5 == 4:
            rows[3]["question_id"] = "unknown-3"
        path = workdir / f"answers-{number}.jsonl"
        write_lines(path, rows)
        paths.append(path)
    return paths


def target_of(address: Path | str) -> str:
    return f"{address}@test"


def names(store: Path) -> set[str]:
    return {path.parent.relative_to(store).as_posix() for path in store.glob("results/*/*/*/result.json")}


@pytest.mark.exhaustive
def test_many_at_once_onto_the_hub(
    local_hub: Any, data: Path, files: list[Path], tmp_path: Path, monkeypatch: Any
) -> None:
    api = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    api.create_repo(**REPO)
    api.upload_file(path_or_fileobj=b"kept", path_in_repo="results/README.txt", **REPO)
    environment = {"HF_ENDPOINT": local_hub.endpoint, "HF_TOKEN": READER, "HF_HUB_DISABLE_XET": "1"}
    with (
        board("ORG/results", tmp_path / "home", [data], **environment) as (address, _),
        ThreadPoolExecutor(N_SUBMITTERS) as pool,
    ):
        outcomes = list(pool.map(lambda file: hand_in(address, target_of(data), file), files))
    landed = [answer["place"] for answer in outcomes if answer["ok"]]
    assert len(landed) == len(set(landed)) == N_SUBMITTERS - N_SUBMITTERS // 5
    pulls = list(api.get_repo_discussions(**REPO, discussion_type="pull_request", discussion_status="open"))
    assert {pull.url for pull in pulls} == set(landed) and {pull.author for pull in pulls} == {"reader"}
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    report = verify(f"ORG/results@{pulls[-1].num}", data=[str(data)])
    assert [outcome.status for outcome in report] == ["added"], report


@pytest.mark.exhaustive
def test_a_killed_space_has_lost_nothing_it_acknowledged(data: Path, files: list[Path], tmp_path: Path) -> None:
    """Kill the Space of a folder store (SIGKILL) while many submissions are in progress."""
    store, acknowledged, enough = tmp_path / "store", list[dict[str, Any]](), threading.Event()
    (store / "results").mkdir(parents=True)

    def one(file: Path) -> None:
        with suppress(Exception):  # the server is gone, so this one was not acknowledged
            acknowledged.append(hand_in(address, target_of(data), file))
            if len(acknowledged) >= 2:
                enough.set()

    with board(store, tmp_path / "home", [data]) as (address, process), ThreadPoolExecutor(N_SUBMITTERS) as pool:
        for file in files:
            pool.submit(one, file)
        assert enough.wait(120)
        process.send_signal(signal.SIGKILL)
    assert 2 <= len(acknowledged) < N_SUBMITTERS, "killed in the middle"
    stored_names = names(store)
    assert {answer["place"] for answer in acknowledged if answer["ok"]} <= stored_names
    assert all((store / name / "answers.parquet").is_file() for name in stored_names), (
        "a result is there whole or not at all"
    )
    assert {outcome.status for outcome in verify(str(store))} <= {"verified", "for a person"}
    with board(store, tmp_path / "again", [data]) as (address, _), ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda file: hand_in(address, target_of(data), file), files))
    assert sum(answer["ok"] for answer in outcomes) == N_SUBMITTERS - N_SUBMITTERS // 5
    assert stored_names <= names(store) == {answer["place"] for answer in outcomes if answer["ok"]}
