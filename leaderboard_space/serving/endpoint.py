"""Endpoint of the pages over plain HTTP: POST /board/PAGE/FUNCTION with the request as JSON.

Gradio's own way for a page's script (`server_functions`) begins a session for every reader first, a copy of every component: 12 ms of the
processor and 80 kB each, for pages that keep all they know in their address.
See also: the browser's side (`server` in `assets/router.js`), which functions there are (`app.py`).
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from dataset_builders.errors import BadInput
from leaderboard_space.service import Service

Function = Callable[[dict[str, Any]], Any]
"""Answers a request with what JSON can hold; raises BadInput where something is wrong with it."""

PREFIX = "/board/"
WORKERS = ThreadPoolExecutor(2, thread_name_prefix="answer")
"""Threads that answer readers of a benchmark's page. Scoring is the interpreter's work: more threads would only take turns on it (see
benchmarks/README.md)."""
WAITING = ThreadPoolExecutor(40, thread_name_prefix="wait")
"""Threads of readers who wait for answers that are still being read, and must not keep the other pages waiting."""
COMPRESSED_FROM = 2000
"""Bytes of an answer from which on it is compressed (at level 1: a tenth of the size for 1 ms per 100 kB)."""


class Endpoint:
    """ASGI middleware: answers a request for PREFIX and a function's path by that function; everything else passes.

    `functions`: path ("PAGE/FUNCTION") -> function."""

    def __init__(self, app: Any, functions: Mapping[str, Function]) -> None:
        self.app, self.functions = app, functions

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        function = self._function(scope) if scope["type"] == "http" else None
        if function is None:
            await self.app(scope, receive, send)
            return
        if scope["method"] != "POST":
            await _send(send, 404, {"error": "The board has no such page."})
            return
        body = await _body(receive)
        if body is None:
            return  # the client has gone
        try:
            request = _request(body)
        except (ValueError, RecursionError):
            await _send(send, 400, {"error": "The request is not JSON."})
            return
        answer = await answer_to(function, request if isinstance(request, dict) else {})
        packs = b"gzip" in dict(scope["headers"]).get(b"accept-encoding", b"")
        await _send(send, 200, answer, packs)

    def _function(self, scope: Any) -> Function | None:
        """The function of a request's path, which begins with the root that the board is served under, or a proxy has removed that. Both
        are looked up: the root may itself be called as PREFIX is."""
        root = scope.get("root_path", "").rstrip("/")
        names = [scope["path"].removeprefix(prefix) for prefix in (root + PREFIX, PREFIX)]
        return next((self.functions[name] for name in names if name in self.functions), None)


async def answer_to(function: Function, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request (`ok`), or one line about what is wrong with it (`error`); nothing a browser sends takes the board down.

    What a benchmark's service can answer at once is left to WORKERS; who waits for answers still being read waits in another thread.
    """
    loop = asyncio.get_running_loop()
    service = getattr(function, "__self__", None)
    try:
        if isinstance(service, Service):
            pool = WORKERS if service.ready(request) else WAITING
            return {"ok": await loop.run_in_executor(pool, function, request)}
        return {"ok": await loop.run_in_executor(None, function, request)}
    except BadInput as error:
        return {"error": str(error)}


def _request(body: bytes) -> Any:
    """A body read as JSON, with "?" for halves of a character: JSON can write them, but no address, file or answer can hold one."""
    request = json.loads(body.decode())
    if b"\\u" in body:
        request = json.loads(json.dumps(request, ensure_ascii=False).encode("utf-8", "replace"))
    return request


async def _body(receive: Any) -> bytes | None:
    """A request's body; None where its sender hung up."""
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _send(send: Any, status: int, answer: dict[str, Any], packs: bool = False) -> None:
    content = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    if packs and len(content) >= COMPRESSED_FROM:
        content = _packed(content)
        headers.append((b"content-encoding", b"gzip"))
    headers.append((b"content-length", str(len(content)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


@lru_cache(32)
def _packed(content: bytes) -> bytes:
    """`content` compressed: once for all readers who open the same page."""
    return gzip.compress(content, 1, mtime=0)
