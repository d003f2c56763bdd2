"""What the pages ask over plain HTTP, and the page itself: answers, refusals, compression; no reader gets what another one asked."""

import gzip
import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from dataset_builders.errors import BadInput
from leaderboard_space.body_limit import BodyLimit
from leaderboard_space.endpoint import Endpoint
from leaderboard_space.preview import Preview

LONG = "é" * 5000


def answer(request: dict[str, Any]) -> Any:
    if request.get("wrong"):
        raise BadInput("that is wrong.")
    return [LONG, request]


@pytest.fixture
def client() -> TestClient:
    drawn = []

    def page(request: Request) -> HTMLResponse:
        drawn.append(1)
        return HTMLResponse(
            f'<html><head><meta property="og:title" content="Gradio"></head>{len(drawn)} {request.url.netloc}</html>'
        )

    stack = [Middleware(BodyLimit), Middleware(Preview), Middleware(Endpoint, functions={"page/ask": answer})]
    return TestClient(Starlette(routes=[Route("/", page)], middleware=stack), raise_server_exceptions=False)


def test_a_request_is_answered_or_refused_in_one_line(client: TestClient) -> None:
    ask = "/board/page/ask"
    assert client.post(ask, json={"a": "<b>"}).json() == {"ok": [LONG, {"a": "<b>"}]}
    assert client.post(ask, json={"wrong": True}).json() == {"error": "that is wrong."}
    assert client.post(ask, json=[1, 2]).json() == {"ok": [LONG, {}]}
    assert client.post(ask, content=b"\xff{").status_code == client.post(ask, content=b"[" * 100_000).status_code == 400
    assert client.get(ask).status_code == client.post("/board/page/other", json={}).status_code == 404
    assert client.post(ask, content=b" " * (5 << 20)).status_code == 413


@pytest.mark.parametrize("path", ["/board/page/ask", "/"])
def test_what_is_long_is_compressed_for_who_takes_it(client: TestClient, path: str) -> None:
    def asked(encoding: str) -> bytes:
        method, content = ("POST", b"{}") if len(path) > 1 else ("GET", None)
        with client.stream(method, path, headers={"accept-encoding": encoding}, content=content) as found:
            assert found.headers.get("content-encoding") == (encoding if encoding == "gzip" else None)
            return b"".join(found.iter_raw())

    assert gzip.decompress(asked("gzip")) == asked("identity")
    assert not path[1:] or json.loads(asked("identity")) == {"ok": [LONG, {}]}


def test_the_page_is_made_once_for_each_address_it_is_served_under(client: TestClient) -> None:
    first = client.get("/").text
    assert first == client.get("/?__theme=dark").text and "Gradio" not in first and "<head><meta" in first
    assert client.get("/", headers={"host": "elsewhere"}).text.endswith("2 elsewhere</html>")
    assert client.get("/", headers={"host": "elsewhere", "x-forwarded-proto": "https"}).text.endswith(
        "3 elsewhere</html>"
    )
    assert client.get("/").text == first
