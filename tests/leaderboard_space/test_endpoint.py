"""What the pages ask over plain HTTP, and the page itself: answers and refusals; no reader gets what another one asked."""

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from dataset_builders.errors import BadInput
from leaderboard_space.serving.access import BodyLimit
from leaderboard_space.serving.endpoint import Endpoint

LONG = "é" * 5000


def answer(request: dict[str, Any]) -> Any:
    if request.get("wrong"):
        raise BadInput("that is wrong.")
    json.dumps(request, ensure_ascii=False).encode()  # what an address or a file is made of
    return [LONG, request]


@pytest.fixture
def client() -> TestClient:
    stack = [Middleware(BodyLimit), Middleware(Endpoint, functions={"page/ask": answer})]
    return TestClient(Starlette(middleware=stack), raise_server_exceptions=False)


def test_a_request_is_answered_or_refused_in_one_line(client: TestClient) -> None:
    ask = "/board/page/ask"
    assert client.post(ask, json={"a": "<b>"}).json() == {"ok": [LONG, {"a": "<b>"}]}
    assert client.post(ask, json={"wrong": True}).json() == {"error": "that is wrong."}
    assert client.post(ask, json=[1, 2]).json() == {"ok": [LONG, {}]}
    assert client.post(ask, content=b"\xff{").status_code == client.post(ask, content=b"[" * 100_000).status_code == 400
    assert client.post(ask, content=rb'{"a": "\ud800 \ud83d\ude00"}').json() == {"ok": [LONG, {"a": "? 😀"}]}
    assert client.get(ask).status_code == client.post("/board/page/other", json={}).status_code == 404
    assert client.post(ask, content=b" " * (5 << 20)).status_code == 413


@pytest.mark.parametrize("root", ["", "/sub", "/sub/", "/board", "/b"])
def test_a_page_is_answered_under_every_root_with_a_proxy_that_removes_it_and_one_that_does_not(root: str) -> None:
    routes = [Route("/{rest:path}", lambda request: JSONResponse({"passed": True}))]
    client = TestClient(
        Starlette(routes=routes, middleware=[Middleware(Endpoint, functions={"page/ask": answer})]), root_path=root
    )
    for served in ("", root.rstrip("/")):
        assert client.post(f"{served}/board/page/ask", json={}).json() == {"ok": [LONG, {}]}
        assert client.get(f"{served}/assets/page.js").json() == {"passed": True}
