"""Nothing leaves the machine unasked: every address, every command that calls a model."""

import pandas as pd
import pytest
from typer.testing import CliRunner

from curation.command_line import app
from dataset_builders.build import build
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from dataset_builders.phantom_sources import write_sources
from dataset_builders.source_files import ORIGIN_MARKER
from eval_harness.models.http.chat_client import permit_sending, remote_host, server_address
from eval_harness.models.interface import Settings
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.dry_run import check_sending_allowed
from eval_harness.runs.plan import make_plan
from eval_harness.runs.runner import run_evaluation
from tests.helpers import write_lines

HERE = (
    "http://127.0.0.1:8000/v1",
    "http://localhost/v1",
    "http://[::1]:1/v1",
    "http://127.9.9.9",
    "https://a.localhost:9",
)
AWAY = ("https://api.openai.com/v1", "http://10.0.0.7:8000/v1", "http://localhost.example.org/v1", "http://127.0.0.1.example.org", "http://0.0.0.0",
        "http://127.0.0.1@example.org/v1", "http://[2001:db8::1]/v1", "http://2130706434")  # fmt: skip


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@pytest.mark.parametrize("address", HERE)
def test_what_stays(address, monkeypatch):
    assert remote_host(address) is None
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example.org:3128")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org:3128")
    assert remote_host(address) == "proxy.example.org"
    monkeypatch.setenv("NO_PROXY", "*")
    assert remote_host(address) is None


@pytest.mark.parametrize("address", [*AWAY, None])
def test_what_leaves(address, monkeypatch):
    assert remote_host(server_address("m", address))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert (remote_host(server_address("m", address)) is None) == (address is None)


def test_it_is_said_what_how_much_and_to_whom(capsys):
    def amount():
        return "2 texts (captions; 7 characters)"

    away = "https://api.example.org/v1"
    with pytest.raises(
        BadInput, match=r"api\.example\.org.*2 texts \(captions; 7 char.*Nothing was sent.*--send-to-provider"
    ):
        permit_sending("m", away, amount, False)
    permit_sending("m", away, amount, True)
    assert "sending 2 texts (captions; 7 characters) to api.example.org" in capsys.readouterr().err
    permit_sending("m", "http://127.0.0.1:1/v1", lambda: pytest.fail("not worth counting"), False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("address", ["http://192.0.2.1:9/v1", None])
def test_every_command_that_calls_a_model_asks_first(address, tmp_path):
    """192.0.2.1 is an address for documentation, which nothing answers: sending would fail in another way, and later."""
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
    where = ["--base-url", address] if address else []
    for words in (
        ["write", str(pairs), "--table", str(tmp_path / "table.csv"), "--model", "m", "--out", str(tmp_path / "o")],
        ["categorize", str(questions), "--model", "m"],
        ["categorize", str(questions), "--model", "m", "--discover"],
        ["patterns", str(questions), "--model", "m"],
        f"hallucinate {tmp_path / 'own.csv'} --images {tmp_path} --model m --out {tmp_path / 'h'}".split(),
    ):
        done = CliRunner().invoke(app, [*words, *where])
        assert isinstance(done.exception, BadInput), words
        assert "--send-to-provider" in str(done.exception) and "Nothing was sent" in str(done.exception), words
        assert (address or "api.openai.com").removeprefix("http://").split(":")[0] in str(done.exception)


@pytest.fixture
def custom_set(tmp_path):
    """A hospital's two questions in ProbMed's format, built under a name of their own."""
    write_sources("probmed", tmp_path / "source")
    (tmp_path / "source" / ORIGIN_MARKER).unlink()
    build("probmed", name="ward-7", source=tmp_path / "source", out=tmp_path / "ward-7")
    return tmp_path / "ward-7"


def test_eval_asks_before_a_custom_set_leaves_the_machine(custom_set, tmp_path, capsys):
    def run(**given):
        run_evaluation(EvalConfig("ward-7", data=str(custom_set), out=tmp_path / "run", limit=2, **given))

    away = Settings(base_url="http://192.0.2.1:9/v1", timeout=1)
    with pytest.raises(
        BadInput, match=r"192\.0\.2\.1.*up to \d+ prompts of ward-7 .* with [1-9]\d* images.*Nothing was sent"
    ):
        run(model="openai:m", settings=away)
    asked = open_repository(custom_set).questions("test")["question_id"]
    write_lines(tmp_path / "given.jsonl", [{"question_id": name, "response": "yes"} for name in asked])
    with pytest.raises(
        BadInput, match=r"--judge openai:j is asked at 192\.0\.2\.1.*answers to questions of ward-7.*Nothing was sent"
    ):
        run(model=f"recorded:{tmp_path / 'given.jsonl'}", judge="openai:j", settings=away)
    assert not (tmp_path / "run").exists()
    run(model="baseline:chance", settings=away)  # sends nothing
    assert "sending" not in capsys.readouterr().err


def test_eval_does_not_ask_about_a_public_set(tmp_path):
    """What its authors published, and phantoms, may go to any server: it fails where no server answers, later and for another reason."""
    build("probmed", out=tmp_path / "probmed")
    check_sending_allowed(
        make_plan(EvalConfig("probmed", "openai:m", str(tmp_path / "probmed"), settings=Settings(base_url=AWAY[1])))
    )
