"""Uploads and requests beyond the limits: cut off in bounded memory, with nothing kept."""

import asyncio
import http.client
import re
import socket
import urllib.parse
from contextlib import suppress
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from leaderboard_space.app import launch_options
from leaderboard_space.serving.access import BodyLimit
from tests.leaderboard_space.serving import board

pytestmark = pytest.mark.slow


def most_memory(pid: int) -> int:
    found = re.search(r"VmHWM:\s+([0-9]+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) << 10


def test_an_upload_beyond_the_limit_is_cut_off(tmp_path: Path) -> None:
    """2 GB are announced, and half a GB is sent, twice the limit: refused, held in no memory, kept on no disk."""
    (tmp_path / "store" / "results").mkdir(parents=True)
    with board(tmp_path / "store", tmp_path / "home") as (address, process):
        before = most_memory(process.pid)
        parts = urllib.parse.urlsplit(address)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        head = b'--edge\r\nContent-Disposition: form-data; name="files"; filename="big.jsonl"\r\n\r\n'
        connection.putrequest("POST", "/gradio_api/upload")
        connection.putheader("Content-Type", "multipart/form-data; boundary=edge")
        connection.putheader("Content-Length", str((2 << 30) + len(head)))
        connection.endheaders()
        connection.send(head)
        piece = bytes(1 << 20)
        with suppress(ConnectionError):  # it may hang up, or answer and throw away what still comes
            for _ in range((512 << 20) // len(piece)):
                connection.send(piece)
            connection.sock.shutdown(socket.SHUT_WR)
            assert connection.getresponse().status == 413
        assert most_memory(process.pid) - before < 256 << 20
        assert sum(path.stat().st_size for path in (tmp_path / "home").rglob("*") if path.is_file()) < 1 << 20


@pytest.mark.parametrize(("announced", "path", "size", "status"), [
    (True, "/gradio_api/call/check_submission", 300 << 20, 413),
    (False, "/gradio_api/call/check_submission", 300 << 20, 500),
    (True, "/gradio_api/call/check_submission", 1 << 20, 200),
    (False, "/gradio_api/call/check_submission", 1 << 20, 200),
    (True, "/gradio_api/upload", 20 << 20, 200),
])  # fmt: skip
def test_a_request_that_is_no_upload_has_a_small_body(
    announced: bool, path: str, size: int, status: int | None
) -> None:
    """A model's name of 300 MB, with its length in the header and without."""
    read, said = 0, []

    async def receive() -> dict:
        nonlocal read
        read += 1 << 20
        return {"type": "http.request", "body": bytes(1 << 20), "more_body": read < size}

    async def send(message: dict) -> None:
        said.append(message)

    async def page(request: Request) -> Response:
        await request.body()
        return Response()

    (middleware,) = (each for each in launch_options()["app_kwargs"]["middleware"] if each.cls is BodyLimit)
    app = Starlette(routes=[Route("/{rest:path}", page, methods=["POST"])], middleware=[middleware])
    headers = [(b"content-length", str(size).encode())] if announced else []
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
    with suppress(ClientDisconnect):
        asyncio.run(app(scope, receive, send))
    assert read <= max(size if path.endswith("upload") else 0, 5 << 20)
    assert [message["status"] for message in said if "status" in message] == [status]
