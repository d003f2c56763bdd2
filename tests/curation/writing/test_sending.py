"""Nothing is sent to another machine without permission, by any command that calls a model."""

import re

import pandas as pd
import pytest

from dataset_builders.build import build, write_sources
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from dataset_builders.source_files import ORIGIN_MARKER
from eval_harness.models.http.chat_client import permit_sending, remote_host, server_address
from eval_harness.models.interface import Settings
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.dry_run import check_sending_allowed
from eval_harness.runs.plan import make_plan
from eval_harness.runs.runner import run_evaluation
from tests.curation.commands import curate
from tests.helpers import write_lines

LOCAL_ADDRESSES = (
    "http://127.0.0.1:8000/v1",
    "http://localhost/v1",
    "http://[::1]:1/v1",
    "http://127.9.9.9",
    "https://a.localhost:9",
)
REMOTE_ADDRESSES = ("https://api.openai.com/v1", "http://10.0.0.7:8000/v1", "http://localhost.example.org/v1", "http://127.0.0.1.example.org",
        # Addresses that look local but are treated as remote.
        "http://0.0.0.0",
        "http://127.0.0.1@example.org/v1", "http://[2001:db8::1]/v1", "http://2130706434")  # fmt: skip


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@pytest.mark.parametrize("address", [*REMOTE_ADDRESSES, None])
def test_remote_addresses(address, monkeypatch):
    """Proxies and local addresses: see `tests/eval_harness/models/http/test_requests.py`."""
    assert not any(map(remote_host, LOCAL_ADDRESSES)) and remote_host(server_address("m", address))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert (remote_host(server_address("m", address)) is None) == (address is None)


def test_the_refusal_names_amount_and_destination(capsys):
    def amount():
        return "2 texts (captions; 7 characters)"

    away = "https://api.example.org/v1"
    with pytest.raises(
        BadInput, match=r"api\.example\.org.*2 texts \(captions; 7 char.*Nothing was sent.*--send-to-provider"
    ):
        permit_sending("m", away, amount, False)
    permit_sending("m", away, amount, True)
    assert "sending 2 texts (captions; 7 characters) to api.example.org" in capsys.readouterr().err
    # A local server needs no permission, and the amount is not counted for it.
    permit_sending("m", "http://127.0.0.1:1/v1", lambda: pytest.fail("not worth counting"), False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("address", ["http://192.0.2.1:9/v1", None])
def test_every_command_that_calls_a_model_needs_permission(address, tmp_path):
    """Without permission, no request is sent to 192.0.2.1, an address for documentation only."""
    questions, pairs = tmp_path / "questions", tmp_path / "pairs"
    questions.mkdir()
    pairs.mkdir()
    draft = {
        "i": 0, "j": 1, "sim_med": 0.95, "sim_gen": 0.5, "image_1": "a.png", "image_2": "b.png", "pair_id": "0-1", "caption_1": "one " * 40,
        "caption_2": "two " * 40, "question": "Which?", "option_A": "left", "option_B": "right", "correct_1": "A", "correct_2": "B",
    }  # fmt: skip
    pd.DataFrame([draft]).to_parquet(questions / "drafts.parquet")
    pd.DataFrame([draft]).to_parquet(pairs / "pairs.parquet")
    (tmp_path / "table.csv").write_text(f"image,caption\na.png,{'one ' * 40}\nb.png,{'two ' * 40}\n")
    (tmp_path / "own.csv").write_text("image,organ,question,option_A,option_B,answer\na.png,brain,Which?,x,y,A\n")
    (tmp_path / "a.png").write_bytes(b"")
    address_options = ["--base-url", address] if address else []
    destination = (address or "api.openai.com").removeprefix("http://").split(":")[0]
    for command in (
        f"write {pairs} --table {tmp_path / 'table.csv'} --out {tmp_path / 'o'}",
        f"categorize {questions}",
        f"categorize {questions} --discover",
        f"patterns {questions}",
        f"hallucinate {tmp_path / 'own.csv'} --images {tmp_path} --out {tmp_path / 'h'}",
    ):
        with pytest.raises(BadInput, match=f"{re.escape(destination)}.*Nothing was sent.*--send-to-provider"):
            curate(f"{command} --model m", *address_options)


@pytest.fixture
def custom_set(tmp_path):
    """Build a hospital's custom set in ProbMed's format."""
    write_sources("probmed", tmp_path / "source")
    # Without the marker, the drawn source counts as real data.
    (tmp_path / "source" / ORIGIN_MARKER).unlink()
    build("probmed", name="ward-7", source=tmp_path / "source", out=tmp_path / "ward-7")
    return tmp_path / "ward-7"


def test_eval_sends_a_custom_set_only_with_permission(custom_set, tmp_path, capsys):
    def run(**options):
        run_evaluation(EvalConfig("ward-7", data=str(custom_set), out=tmp_path / "run", limit=2, **options))

    remote_settings = Settings(base_url="http://192.0.2.1:9/v1", timeout=1)
    with pytest.raises(
        BadInput, match=r"192\.0\.2\.1.*up to \d+ prompts of ward-7 .* with [1-9]\d* images.*Nothing was sent"
    ):
        run(model="openai:m", settings=remote_settings)
    # Recorded answers need no server, but a judge would receive them.
    question_ids = open_repository(custom_set).questions("test")["question_id"]
    write_lines(tmp_path / "given.jsonl", [{"question_id": name, "response": "yes"} for name in question_ids])
    with pytest.raises(
        BadInput, match=r"--judge openai:j is served by 192\.0\.2\.1.*answers to questions of ward-7.*Nothing was sent"
    ):
        run(model=f"recorded:{tmp_path / 'given.jsonl'}", judge="openai:j", settings=remote_settings)
    assert not (tmp_path / "run").exists()
    run(model="baseline:chance", settings=remote_settings)  # sends nothing
    assert "sending" not in capsys.readouterr().err


def test_eval_sends_a_public_set_without_permission(tmp_path):
    """Published sets and phantoms may be sent to any server."""
    build("probmed", out=tmp_path / "probmed")
    check_sending_allowed(
        make_plan(
            EvalConfig(
                "probmed", "openai:m", str(tmp_path / "probmed"), settings=Settings(base_url=REMOTE_ADDRESSES[1])
            )
        )
    )
