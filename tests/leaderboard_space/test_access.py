"""A board that may write serves its own address only, whatever a browser was made to believe; frames are for the Hub's pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from leaderboard_space.serving.access import LOADS, SPACE, Access

OURS = ("127.0.0.1", "localhost", "::1", "my.tunnel")


def client(names, framed_by: str = "'none'") -> TestClient:
    def page(request: Request) -> PlainTextResponse:
        return PlainTextResponse("the board")

    stack = [Middleware(Access, names=names, framed_by=framed_by)]
    return TestClient(Starlette(routes=[Route("/", page, methods=["GET", "POST"])], middleware=stack))


LOCAL = client(OURS)


@given(st.sampled_from(OURS), st.integers(0, 65535) | st.none(), st.booleans())
def test_our_own_names_are_served_on_any_port(name, port, upper):
    host = f"[{name}]" if ":" in name else name
    host = (host.upper() if upper else host) + ("" if port is None else f":{port}")
    assert LOCAL.get("/", headers={"host": host}).text == "the board"
    assert LOCAL.post("/", headers={"host": host, "origin": f"http://{host}"}).text == "the board"


@given(
    st.sampled_from(
        [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.",
            "127.0.0.2",
            "evil@127.0.0.1.x",
            "",
            "a b",
            "[::2]",
            "127.1",
        ]
    )
    | st.from_regex(r"[a-z]{1,12}\.(com|org|localhost)", fullmatch=True)
)
def test_other_names_are_not(name):
    for headers in ({"host": name}, {"host": "localhost", "origin": f"http://{name}"}):
        found = LOCAL.post("/", headers=headers)
        assert found.status_code == 421 and "access-control-allow-origin" not in found.headers


@pytest.mark.parametrize(("names", "framed_by"), [(OURS, "'none'"), (None, SPACE)])
def test_frames(names, framed_by):
    found = client(names, framed_by).get("/", headers={"host": "localhost"})
    assert found.headers["content-security-policy"] == f"{LOADS}; frame-ancestors {framed_by}"


def test_a_board_that_writes_nothing_is_served_under_any_name():
    assert client(None).get("/", headers={"host": "anything.example"}).status_code == 200
