"""Errors of servers that do not answer: one line within seconds, quoting the server."""

import json
import threading
import time

import pytest

from dataset_builders.errors import BadInput
from eval_harness.models.http import openai_chat
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.interface import Settings
from tests.chaos.server import ChaosServer, Raw
from tests.eval_harness.models.http.asking import KEY, model, request


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000/v1",
        "api.example.org/v1",
        "ftp://127.0.0.1/v1",
        "http://",
        "http://127.0.0.1:port/v1",
    ],
)
def test_invalid_address_is_reported(url):
    with pytest.raises(BadInput, match="not an address"):
        OpenAIChat("m", Settings(base_url=url))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:9/v1", "no server answers at this address"),
        ("http://no-such-host.invalid/v1", "cannot be resolved|no server"),
    ],
)
def test_unreachable_server_is_reported_within_seconds(monkeypatch, url, words):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    # Connection errors are retried by the client.
    start = time.monotonic()
    with pytest.raises(BadInput, match=f"no server can be reached: .*({words})"):
        list(OpenAIChat("m", Settings(base_url=url)).generate([request(i) for i in range(20)]))
    assert time.monotonic() - start < 60  # 2 to 4; more on a busy machine


LOGIN_PAGE = "<!DOCTYPE html><html><head><title>Sign in &amp; go on</title><style>x</style></head><body>A</body></html>"


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (403, LOGIN_PAGE, "Sign in &amp; go on"),
        (402, '{"error": {"message": "Insufficient credits"}}', "no credit left"),
        (
            429,
            '{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}',
            "no credit left",
        ),
        (
            400,
            '{"detail": [{"loc": ["body", "messages"], "msg": "System role not supported"}]}',
            "System role not supported",
        ),
        (400, "", "no further words"),
    ],
)
def test_error_message_is_quoted_from_any_body_format(status, body, words):
    with (
        ChaosServer(answer=lambda _: (status, Raw(body))) as server,
        pytest.raises(BadInput, match=words),
    ):
        list(model(server).generate([request(i) for i in range(4)]))


def test_pending_replies_do_not_delay_an_error(monkeypatch):
    monkeypatch.setattr(openai_chat, "DRAIN_TIMEOUT_S", 1.0)

    def answer(body):
        if "Question 3?" in json.dumps(body) or withdrawn.is_set():
            withdrawn.set()
            return 401, {"error": {"message": "withdrawn"}}
        # This reply is still pending when the key is withdrawn.
        if "Question 2?" in json.dumps(body):
            over.wait(250)
        return "A"

    over, withdrawn, start, got = threading.Event(), threading.Event(), time.monotonic(), []
    with ChaosServer(answer=answer) as server, pytest.raises(BadInput, match="refuses the key"):
        for response in model(server, timeout=250, in_flight=8).generate([request(i) for i in range(8)]):
            got.append(response.question_id)
    assert time.monotonic() - start < 200  # DRAIN_TIMEOUT_S plus the delays of a busy machine
    # Release the server's thread.
    over.set()
    assert "0" in got and not {"2", "3"} & set(got)
