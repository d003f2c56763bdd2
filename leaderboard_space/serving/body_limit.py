"""Ends requests whose body is larger than anything that the pages send. Uploads have a limit of their own (Gradio's `max_file_size`)."""

from __future__ import annotations

from typing import Any

MOST = 4 << 20
"""Bytes of a request that is no upload; the pages send choices and the names of uploaded files."""


class BodyLimit:
    """ASGI middleware: says 413 where the header announces too much, and hangs up where more comes than was announced."""

    def __init__(self, app: Any, most: int = MOST) -> None:
        self.app, self.most = app, most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"].rstrip("/").endswith("/upload"):
            await self.app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if not announced.isdigit() or int(announced) > self.most:
            await send({"type": "http.response.start", "status": 413, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"The request is too large."})
            return
        received = 0

        async def bounded() -> Any:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return {"type": "http.disconnect"} if received > self.most else message

        await self.app(scope, bounded, send)
