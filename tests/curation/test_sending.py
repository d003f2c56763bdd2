"""Nothing leaves the machine unasked: every address, every command that calls a model."""

import pandas as pd
import pytest
from typer.testing import CliRunner

from curation.command_line import app
from dataset_builders.errors import BadInput
from eval_harness.models.http.sending import destination, permit_sending

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
    assert destination(address) is None
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example.org:3128")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org:3128")
    assert destination(address) == "proxy.example.org"
    monkeypatch.setenv("NO_PROXY", "*")
    assert destination(address) is None


@pytest.mark.parametrize("address", [*AWAY, None])
def test_what_leaves(address, monkeypatch):
    assert destination(address)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert (destination(address) is None) == (address is None)


def test_it_is_said_what_how_much_and_to_whom(capsys):
    class Model:
        is_api, name, base_url = True, "m", "https://api.example.org/v1"

    with pytest.raises(
        BadInput,
        match=r"api\.example\.org.*2 texts \(captions; 7 char.*\) and 3 images.*Nothing was sent.*--send-to-provider",
    ):
        permit_sending(Model(), ["abc", "defg"], "captions", False, 3)
    permit_sending(Model(), ["abc", "defg"], "captions", True)
    assert "sending 2 texts (captions; 7 characters) to api.example.org" in capsys.readouterr().err
    Model.base_url = "http://127.0.0.1:1/v1"
    permit_sending(Model(), ["abc"], "captions", False)
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
        [
            "hallucinate",
            str(tmp_path / "own.csv"),
            "--images",
            str(tmp_path),
            "--model",
            "m",
            "--out",
            str(tmp_path / "h"),
        ],
    ):
        done = CliRunner().invoke(app, [*words, *where])
        assert isinstance(done.exception, BadInput), words
        assert "--send-to-provider" in str(done.exception) and "Nothing was sent" in str(done.exception), words
        assert (address or "api.openai.com").removeprefix("http://").split(":")[0] in str(done.exception)
