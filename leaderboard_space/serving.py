"""Serve the board's pages over plain HTTP, and restrict requests by host, origin and size.

A board that may write to a store serves its own address only: a page on the internet could
otherwise reach it through a hostname resolving to 127.0.0.1 (DNS rebinding).

Pages send POST /board/PAGE/FUNCTION with the request as JSON. Gradio's own mechanism
(`server_functions`) would start a session for every visitor, with a copy of every component: 12 ms
of CPU and 80 kB each, for pages whose whole state is in their address. See also: the browser's side
(`server` in `assets/router.js`), the list of functions (`app.py`).
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from dataset_builders.errors import BadInput

SPACE_FRAME_ANCESTORS = "'self' https://huggingface.co https://*.hf.space"
"""Origins that may show a Space in a frame."""

CONTENT_POLICY = "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'"
"""Content Security Policy: nothing from other hosts, such as the badge that Gradio fetches on a
Space. Gradio's components run inline scripts."""

HOST_PATTERN = re.compile(r"([^:@\[\]]+|\[[0-9a-fA-F:.]+\])(?::[0-9]{1,5})?")
"""A host name or address, optionally with a port."""


def on_space() -> bool:
    """Return True if the board runs as a Hugging Face Space."""
    return os.environ.get("SYSTEM") == "spaces"


def access_lifespan(
    names: Collection[str] | None, framed_by: str
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Create a lifespan that installs `Access` before all other middleware.

    Gradio's own middleware precedes any that it is given, and answers preflight requests for any
    host.

    Args:
        names: Host names that are served; None for all.
        framed_by: Sources of `frame-ancestors`.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        assert app.middleware_stack is not None  # the lifespan is a server's first call, which builds it
        app.middleware_stack = Access(app.middleware_stack, names, framed_by)
        yield

    return lifespan


class Access:
    """ASGI middleware that refuses other hosts and origins, and sets the Content Security Policy.

    `names`: host names that are served, compared without the port, which a tunnel changes; None for
    all. `framed_by`: sources of `frame-ancestors`.
    """

    def __init__(self, app: Any, names: Collection[str] | None, framed_by: str) -> None:
        self.app, self.framed_by = app, framed_by
        self.names = None if names is None else frozenset(map(str.casefold, names))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        if self.names is not None and not self._is_ours(scope):
            if scope["type"] == "websocket":
                # 1008: policy violation.
                await send({"type": "websocket.close", "code": 1008})
                return
            # 421 (Misdirected Request): this server does not answer for the requested host.
            refusal = "This board serves its own address only; `medprobe board --host-name NAME` allows another name."
            await PlainTextResponse(refusal, 421)(scope, receive, send)
            return

        async def framed(message: Any) -> None:
            if message["type"] == "http.response.start":
                policy = (b"content-security-policy", f"{CONTENT_POLICY}; frame-ancestors {self.framed_by}".encode())
                message = message | {"headers": [*message.get("headers", []), policy]}
            await send(message)

        await self.app(scope, receive, framed)

    def _is_ours(self, scope: Any) -> bool:
        """Return True if the host, and the origin if present, are served by this board."""
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), [urlsplit(value).netloc for value in headers.getlist("origin")]
        return len(hosts) == 1 and all(map(self._is_named, (*hosts, *origins)))

    def _is_named(self, host: str) -> bool:
        match = HOST_PATTERN.fullmatch(host)
        return self.names is not None and match is not None and match[1].strip("[]").casefold() in self.names


MAX_BODY_BYTES = 4 << 20
"""Maximum bytes of a request that is not an upload; pages send choices and names of uploaded
files."""


class BodyLimit:
    """ASGI middleware that limits request bodies to MAX_BODY_BYTES.

    A request that announces more gets status 413; one that sends more is disconnected.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"].rstrip("/").endswith("/upload"):
            await self.app(scope, receive, send)
            return
        # Refuse by the announced length before reading anything.
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if not announced.isdigit() or int(announced) > MAX_BODY_BYTES:
            await PlainTextResponse("The request is too large.", 413)(scope, receive, send)
            return
        # Clients may send more than they announced, or announce nothing.
        received = 0

        async def bounded() -> Any:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return {"type": "http.disconnect"} if received > MAX_BODY_BYTES else message

        await self.app(scope, bounded, send)


JsonHandler = Callable[[dict[str, Any]], Any]
"""Answers a request with JSON-serialisable content; raises BadInput for an invalid request."""

FileHandler = Callable[[Mapping[str, str]], tuple[bytes, str]]
"""Answers a GET request with (content, media type); raises BadInput if there is no such file."""

ENDPOINT_PREFIX = "/board/"


class Endpoint:
    """ASGI middleware: answers requests for ENDPOINT_PREFIX plus a function's path; passes on all
    others.

    `functions`, `files`: path ("PAGE/FUNCTION") -> function.
    """

    def __init__(self, app: Any, functions: Mapping[str, JsonHandler], files: Mapping[str, FileHandler]) -> None:
        self.app, self.functions, self.files = app, functions, files

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        # The path may start with the board's root, which some proxies remove.
        path = scope["path"].rpartition(ENDPOINT_PREFIX)[2] if scope["type"] == "http" else ""
        if path in self.files:
            await (await _file_response(self.files[path], Request(scope, receive)))(scope, receive, send)
            return
        function = self.functions.get(path)
        if function is None:
            await self.app(_without_page_query(scope), receive, send)
            return
        try:
            answer = await _json_response(function, Request(scope, receive))
        except ClientDisconnect:
            return
        answer.headers["cache-control"] = "no-store"
        await answer(scope, receive, send)


def _without_page_query(scope: Any) -> Any:
    """Remove the query parameter `page`.

    Gradio takes it for a page of a multipage app, and any value fails.
    """
    if scope["type"] != "http" or not scope["path"].endswith("/") or not scope["query_string"]:
        return scope
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return {**scope, "query_string": urlencode([pair for pair in query if pair[0] != "page"]).encode()}


async def _file_response(file: FileHandler, request: Request) -> Response:
    """Answer a GET request for a file.

    Content at an address never changes; only the visitor's browser may cache it.
    """
    try:
        body, kind = await asyncio.to_thread(file, dict(request.query_params))
    except BadInput as error:
        return PlainTextResponse(str(error), 404)
    headers = {"cache-control": "private, max-age=3600", "x-content-type-options": "nosniff"}
    return Response(body, media_type=kind, headers=headers)


async def _json_response(function: JsonHandler, request: Request) -> JSONResponse:
    """Call a function with a request's JSON; answer with its result (`ok`) or a line (`error`)."""
    if request.method != "POST":
        return JSONResponse({"error": "The board has no such page."}, 404)
    try:
        # Replace lone surrogates by "?": JSON can express them, but they cannot be encoded in an
        # address, a file or a response.
        body = json.loads(json.dumps(await request.json(), ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return JSONResponse({"error": "The request is not JSON."}, 400)
    try:
        return JSONResponse({"ok": await asyncio.to_thread(function, body if isinstance(body, dict) else {})})
    except BadInput as error:
        return JSONResponse({"error": str(error)})
