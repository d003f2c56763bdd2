"""A board that may write serves its own address only, whatever a browser was made to believe; frames are for the Hub's pages."""

import itertools

import httpx
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from leaderboard_space.serving.access import LOADS, SPACE, Access
from tests.leaderboard_space.serving import board

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
            "evil.example@127.0.0.1",
            "127.0.0.1:80:evil.example",
            "127.0.0.1:evil",
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


def test_a_board_that_writes_nothing_is_served_under_any_name():
    found = client(None, SPACE).get("/", headers={"host": "anything.example"})
    assert found.status_code == 200
    assert found.headers["content-security-policy"] == f"{LOADS}; frame-ancestors {SPACE}"


def test_a_board_as_it_is_served(tmp_path):
    """Whatever Gradio puts before its own routes: preflight requests, pages, calls, uploads, pages that are not there."""
    (tmp_path / "store/results").mkdir(parents=True)
    with board(tmp_path / "store", tmp_path) as (address, _), httpx.Client(base_url=address, timeout=60) as browser:
        own = address.removeprefix("http://")
        paths = ("/", "/config", "/gradio_api/upload", "/gradio_api/call/submit", "/monitoring", "/nothing")
        for path, method in itertools.product(paths, ("GET", "POST", "OPTIONS", "HEAD")):
            for host, origin in itertools.product(
                (own, "evil.example", "localhost."), (None, address, "null", "http://evil.example")
            ):
                headers = {"host": host, "access-control-request-method": "POST"} | (
                    {"origin": origin} if origin else {}
                )
                found = browser.request(method, path, headers=headers)
                if host == own and origin in (None, address):
                    assert found.status_code != 421
                    assert found.headers["content-security-policy"] == f"{LOADS}; frame-ancestors 'none'"
                else:
                    assert found.status_code == 421 and "access-control-allow-origin" not in found.headers
