"""Test how a board is served: only at its own address, whatever a browser was led to believe; in
frames only of the Hub's pages; requests have a bounded size and get a reply or one line.
An invalid variable of the Space and an occupied port are one line each; agents get the tools over
MCP.
"""

import asyncio
import http.client
import itertools
import json
import re
import socket
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import fingerprint_questions
from leaderboard_space import app
from leaderboard_space.serving import CONTENT_POLICY, SPACE_FRAME_ANCESTORS, Access, BodyLimit, Endpoint
from tests.leaderboard_space.serving import board
from tests.leaderboard_space.stores import add_run, answers, questions
from tests.processes import Process

LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1", "my.tunnel")
OTHERS = (
    *(
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.",
        "127.0.0.2",
        "evil@127.0.0.1.x",
        "evil.example@127.0.0.1",
    ),
    *(
        "127.0.0.1:80:evil.example",
        "127.0.0.1:evil",
        "",
        "a b",
        "[::2]",
        "127.1",
        "example.localhost",
        "tunnel",
        "my.tunnel.org",
    ),
)
LONG = "é" * 5000


def behind_access(names, framed_by: str = "'none'") -> TestClient:
    def page(request: Request) -> PlainTextResponse:
        return PlainTextResponse("the board")

    stack = [Middleware(Access, names=names, framed_by=framed_by)]
    return TestClient(Starlette(routes=[Route("/", page, methods=["GET", "POST"])], middleware=stack))


LOCAL_APP = behind_access(LOCAL_HOSTS)


def test_our_own_names_are_served_on_any_port_and_no_others():
    for name, port in itertools.product((*LOCAL_HOSTS, "LOCALHOST"), ("", ":80", ":65535")):
        host = (f"[{name}]" if ":" in name else name) + port
        assert LOCAL_APP.get("/", headers={"host": host}).text == "the board"
        assert LOCAL_APP.post("/", headers={"host": host, "origin": f"http://{host}"}).text == "the board"
    for name in OTHERS:
        for headers in ({"host": name}, {"host": "localhost", "origin": f"http://{name}"}):
            response = LOCAL_APP.post("/", headers=headers)
            assert response.status_code == 421 and "access-control-allow-origin" not in response.headers, name


def test_a_board_that_writes_nothing_is_served_under_any_name():
    response = behind_access(None, SPACE_FRAME_ANCESTORS).get("/", headers={"host": "anything.example"})
    assert response.status_code == 200
    assert response.headers["content-security-policy"] == f"{CONTENT_POLICY}; frame-ancestors {SPACE_FRAME_ANCESTORS}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Process, Path]]:
    folder, question_table = tmp_path_factory.mktemp("served"), questions("halt-medvqa", 12)
    for name, skill in (("One", 0.9), ("Two", 0.1)):
        add_run(folder / "store", "halt-medvqa", question_table, answers(question_table, skill), name)
    with board(folder / "store", folder) as (address, process):
        yield address, process, folder


def test_a_board_as_it_is_served(served):
    """This includes what Gradio handles before its own routes: preflight requests, pages, calls,
    uploads, missing pages.
    """
    address, _, _ = served
    own_host = address.removeprefix("http://")
    paths = ("/", "/config", "/gradio_api/upload", "/gradio_api/call/submit", "/monitoring", "/nothing")
    sent = itertools.product((own_host, "evil.example", "localhost."), (None, address, "null", "http://evil.example"))
    with httpx.Client(base_url=address, timeout=60) as browser:
        for (host, origin), path, method in itertools.product(sent, paths, ("GET", "POST", "OPTIONS", "HEAD")):
            headers = {"host": host, "access-control-request-method": "POST"} | ({"origin": origin} if origin else {})
            response = browser.request(method, path, headers=headers)
            if host == own_host and origin in (None, address):
                assert response.status_code != 421
                assert response.headers["content-security-policy"] == f"{CONTENT_POLICY}; frame-ancestors 'none'"
            else:
                assert response.status_code == 421 and "access-control-allow-origin" not in response.headers


def most_memory(pid: int) -> int:
    match = re.search(r"VmHWM:\s+([0-9]+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match
    return int(match[1]) << 10


def test_an_upload_beyond_the_limit_is_cut_off(served):
    """An upload announces 2 GB and sends half a GB, twice the limit. It is refused, and neither
    kept in memory nor written to disk.
    """
    address, process, folder = served
    memory_before = most_memory(process.pid)
    parts = urllib.parse.urlsplit(address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    head = b'--edge\r\nContent-Disposition: form-data; name="files"; filename="big.jsonl"\r\n\r\n'
    connection.putrequest("POST", "/gradio_api/upload")
    connection.putheader("Content-Type", "multipart/form-data; boundary=edge")
    connection.putheader("Content-Length", str((2 << 30) + len(head)))
    connection.endheaders()
    connection.send(head)
    piece = bytes(1 << 20)
    with suppress(ConnectionError):  # the server may hang up, or reply and discard the rest
        for _ in range((512 << 20) // len(piece)):
            connection.send(piece)
        connection.sock.shutdown(socket.SHUT_WR)
        assert connection.getresponse().status == 413
    assert most_memory(process.pid) - memory_before < 256 << 20
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 1 << 20


def answer(request: dict[str, Any]) -> Any:
    if request.get("wrong"):
        raise BadInput("that is wrong.")
    json.dumps(request, ensure_ascii=False).encode()  # strings in addresses and files must be encodable
    return [LONG, request]


def picture(query: Mapping[str, str]) -> tuple[bytes, str]:
    if query.get("name") != "a b":
        raise BadInput("this image is not on the board.")
    return b"\x89PNG", "image/png"


def test_a_file_has_an_address_of_its_own() -> None:
    app = Starlette(middleware=[Middleware(Endpoint, functions={}, files={"page/file": picture})])
    client = TestClient(app)
    response = client.get("/board/page/file", params={"name": "a b"})
    assert (response.content, response.headers["content-type"]) == (b"\x89PNG", "image/png")
    assert response.headers["x-content-type-options"] == "nosniff" and "private" in response.headers["cache-control"]
    assert client.get("/board/page/file").status_code == 404


def test_a_request_is_answered_or_refused_in_one_line() -> None:
    """Of a body that is too large, no more than the limit is read, whether its length is announced
    or not; uploads have their own limit.
    """
    stack = [Middleware(BodyLimit), Middleware(Endpoint, functions={"page/ask": answer}, files={"page/file": picture})]
    routes = [Route("/gradio_api/upload", lambda request: JSONResponse({}), methods=["POST"])]
    client = TestClient(Starlette(routes=routes, middleware=stack), raise_server_exceptions=False)
    ask, large = "/board/page/ask", b" " * (5 << 20)
    assert client.post(ask, json={"a": "<b>"}).json() == {"ok": [LONG, {"a": "<b>"}]}
    assert client.post(ask, json={"wrong": True}).json() == {"error": "that is wrong."}
    assert client.post(ask, json=[1, 2]).json() == {"ok": [LONG, {}]}
    assert client.post(ask, content=b"\xff{").status_code == client.post(ask, content=b"[" * 100_000).status_code == 400
    assert client.post(ask, content=rb'{"a": "\ud800 \ud83d\ude00"}').json() == {"ok": [LONG, {"a": "? 😀"}]}
    assert client.get(ask).status_code == client.post("/board/page/other", json={}).status_code == 404
    assert client.post(ask, content=large).status_code == 413
    assert client.post(ask, content=iter([large])).status_code == 500  # the server hangs up
    assert client.post("/gradio_api/upload", content=large).status_code == 200


@pytest.mark.parametrize("root", ["", "/sub", "/sub/", "/board", "/b"])
def test_a_page_is_answered_under_every_root_with_a_proxy_that_removes_it_and_one_that_does_not(root: str) -> None:
    routes = [Route("/{rest:path}", lambda request: JSONResponse({"passed": True}))]
    client = TestClient(
        Starlette(
            routes=routes,
            middleware=[Middleware(Endpoint, functions={"page/ask": answer}, files={"page/file": picture})],
        ),
        root_path=root,
    )
    for served in ("", root.rstrip("/")):
        assert client.post(f"{served}/board/page/ask", json={}).json() == {"ok": [LONG, {}]}
        assert client.get(f"{served}/assets/page.js").json() == {"passed": True}


def test_a_taken_port_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(BadInput, match="cannot listen on"):
        app.serve(None, port=listener.getsockname()[1])


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("MEDPROBE_SCORINGS_PER_DAY", "many", "MEDPROBE_SCORINGS_PER_DAY: 'many'"),
        ("MEDPROBE_SCORINGS_PER_DAY", "0", "MEDPROBE_SCORINGS_PER_DAY: '0'"),
        ("GRADIO_SERVER_PORT", "-1", "GRADIO_SERVER_PORT: '-1'"),
        ("MEDPROBE_HIDDEN", "only/one", "MEDPROBE_HIDDEN: give three"),
        ("MEDPROBE_RESULTS", "no such place/at all/here", "error: "),
    ],
)
def test_a_wrong_variable_is_one_line(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str) -> None:
    monkeypatch.setenv(variable, value)
    if variable != "MEDPROBE_RESULTS":
        monkeypatch.setattr(app, "serve", lambda *args: pytest.fail("served"))
    with pytest.raises(SystemExit) as ended:
        app.main()
    line = str(ended.value)
    assert line.startswith(message) and "\n" not in line


def asked(address: str, *calls: tuple[str, dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
    """Return the tools by name, and the results of the calls, as a real MCP client gets them."""
    mcp = pytest.importorskip("mcp", reason="needs mcp (extra space)")

    async def talk() -> tuple[dict[str, Any], list[Any]]:
        from mcp.client.streamable_http import streamablehttp_client

        async with (
            streamablehttp_client(f"{address}/gradio_api/mcp/") as (read, write, _),
            mcp.ClientSession(read, write) as session,
        ):
            await session.initialize()
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            return tools, [await session.call_tool(name, given) for name, given in calls]

    return asyncio.run(asyncio.wait_for(talk(), 60))


def test_an_agent_finds_the_tools_and_gets_the_numbers_of_a_selection(served):
    question_set = f"test.{fingerprint_questions(questions('halt-medvqa', 12))[:12]}"
    which = {"benchmark": "halt-medvqa", "metric": "average", "question_set": question_set}
    tools, (full, fake, wrong) = asked(
        served[0],
        ("leaderboard", which),
        ("leaderboard", which | {"branches": ["scenario: fake"]}),
        ("leaderboard", which | {"metric": "no such score"}),
    )
    # A file cannot be sent over MCP.
    assert set(tools) == {"question_sets", "leaderboard", "branches_of", "breakdown", "reported"}
    for text in ("leaderboard_space/assets/about.html", "leaderboard_space/README.md", "docs/commands.md"):
        after = (Path(__file__).parents[2] / text).read_text(encoding="utf-8").split("/gradio_api/mcp/")[1]
        listed = re.findall(r"(?:<code>|`)(\w+)(?:</code>|`)", after)[: len(tools)]
        assert set(listed) == set(tools), text
    assert "95 % interval" in tools["leaderboard"].description
    parameters = tools["leaderboard"].inputSchema["properties"]
    assert set(parameters) == {"benchmark", "branches", "facets", "metric", "question_set", "every_run"}
    fields = [field for tool in tools.values() for field in tool.inputSchema.get("properties", {}).values()]
    assert all(field.get("description") for field in fields)
    assert not full.isError and not fake.isError
    rows_full, rows_fake = (json.loads(reply.content[0].text) for reply in (full, fake))
    assert [row["model"] for row in rows_full] == ["One", "Two"]
    assert all(row["n"] > part["n"] > 0 for row, part in zip(rows_full, rows_fake, strict=True))
    assert wrong.isError and "no such score" in wrong.content[0].text
