"""What the pages ask over plain HTTP, and the page itself: answers, refusals, compression; no reader gets what another one asked."""

import gzip
import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from dataset_builders.errors import BadInput
from leaderboard_space.serving.body_limit import BodyLimit
from leaderboard_space.serving.endpoint import Endpoint
from leaderboard_space.serving.preview import Preview

LONG = "é" * 5000


def answer(request: dict[str, Any]) -> Any:
    if request.get("wrong"):
        raise BadInput("that is wrong.")
    json.dumps(request, ensure_ascii=False).encode()  # what an address or a file is made of
    return [LONG, request]


@pytest.fixture
def client() -> TestClient:
    drawn = []

    def page(request: Request) -> HTMLResponse:
        drawn.append(1)
        body = f"{len(drawn)} {request.url.query}{request.url.netloc}"
        return HTMLResponse(f'<html><head><meta property="og:title" content="Gradio"></head>{body}</html>')

    stack = [Middleware(BodyLimit), Middleware(Preview), Middleware(Endpoint, functions={"page/ask": answer})]
    return TestClient(Starlette(routes=[Route("/", page)], middleware=stack), raise_server_exceptions=False)


def test_a_request_is_answered_or_refused_in_one_line(client: TestClient) -> None:
    ask = "/board/page/ask"
    assert client.post(ask, json={"a": "<b>"}).json() == {"ok": [LONG, {"a": "<b>"}]}
    assert client.post(ask, json={"wrong": True}).json() == {"error": "that is wrong."}
    assert client.post(ask, json=[1, 2]).json() == {"ok": [LONG, {}]}
    assert client.post(ask, content=b"\xff{").status_code == client.post(ask, content=b"[" * 100_000).status_code == 400
    assert client.post(ask, content=rb'{"a": "\ud800 \ud83d\ude00"}').json() == {"ok": [LONG, {"a": "? 😀"}]}
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


def test_no_page_is_kept_for_an_address_that_another_one_named(client: TestClient) -> None:
    """Gradio writes the first of several such headers into the page: a second one must not decide for whom it is kept."""
    forwarded = [("x-forwarded-host", "made-up"), ("x-forwarded-host", "board.example")]
    client.get("/", headers=forwarded)
    behind_proxy = client.get("/", headers=forwarded[1:]).text
    assert "2 " in behind_proxy and behind_proxy == client.get("/", headers=forwarded[1:]).text
    for number in range(50):  # addresses that are made up push no other out for good
        client.get("/", headers={"host": f"made-up-{number}"})
    again = client.get("/", headers={"host": "elsewhere"}).text
    assert again == client.get("/", headers={"host": "elsewhere"}).text


def test_the_kept_page_is_that_of_no_readers_query(client: TestClient) -> None:
    first = client.get("/?deep%5Flink=x").text
    assert first.endswith("1 testserver</html>") and client.get("/").text == first


@pytest.mark.parametrize("root", ["", "/sub", "/sub/", "/board", "/b"])
def test_a_page_is_answered_under_every_root_with_a_proxy_that_removes_it_and_one_that_does_not(root: str) -> None:
    routes = [Route("/{rest:path}", lambda request: JSONResponse({"passed": True}))]
    client = TestClient(
        Starlette(routes=routes, middleware=[Middleware(Endpoint, functions={"page/ask": answer})]), root_path=root
    )
    for served in ("", root.rstrip("/")):
        assert client.post(f"{served}/board/page/ask", json={}).json() == {"ok": [LONG, {}]}
        assert client.get(f"{served}/assets/page.js").json() == {"passed": True}
