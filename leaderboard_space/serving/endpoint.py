"""Endpoint of the pages over plain HTTP: POST /board/PAGE/FUNCTION with the request as JSON.

Gradio's own way for a page's script (`server_functions`) begins a session for every reader first, a copy of every component: 12 ms of the
processor and 80 kB each, for pages that keep all they know in their address.
See also: the browser's side (`server` in `assets/router.js`), which functions there are (`app.py`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from dataset_builders.errors import BadInput

Function = Callable[[dict[str, Any]], Any]
"""Answers a request with what JSON can hold; raises BadInput where something is wrong with it."""

PREFIX = "/board/"


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
        try:
            answer = await _answer(function, Request(scope, receive))
        except ClientDisconnect:
            return
        answer.headers["cache-control"] = "no-store"
        await answer(scope, receive, send)

    def _function(self, scope: Any) -> Function | None:
        """The function of a request's path, which begins with the root that the board is served under, or a proxy has removed that. Both
        are looked up: the root may itself be called as PREFIX is."""
        root = scope.get("root_path", "").rstrip("/")
        names = [scope["path"].removeprefix(prefix) for prefix in (root + PREFIX, PREFIX)]
        return next((self.functions[name] for name in names if name in self.functions), None)


async def _answer(function: Function, request: Request) -> JSONResponse:
    """The answer to a request (`ok`), or one line about what is wrong with it (`error`); nothing a browser sends takes the board down."""
    if request.method != "POST":
        return JSONResponse({"error": "The board has no such page."}, 404)
    try:
        # "?" for halves of a character: JSON can write them, but no address, file or answer can hold one.
        asked = json.loads(json.dumps(await request.json(), ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return JSONResponse({"error": "The request is not JSON."}, 400)
    try:
        return JSONResponse({"ok": await asyncio.to_thread(function, asked if isinstance(asked, dict) else {})})
    except BadInput as error:
        return JSONResponse({"error": str(error)})
