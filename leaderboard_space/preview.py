"""What a shared link shows of the board: Gradio's own page says "Gradio" in its preview, and takes no other words."""

from __future__ import annotations

import re
from typing import Any

from leaderboard_space.html import text

TITLE = "medprobe: can you trust your AI radiologist?"
SAID = (
    "Which vision-language models are better than guessing on medical reliability benchmarks, where, and with what certainty: "
    "scores with 95% intervals, ties, and where every number comes from."
)
TAGS = re.compile(rb'<meta\s+(?:property="og:|name="twitter:)[^>]*>', re.S)
NAMES = {"og:site_name": "medprobe", "og:type": "website", "og:title": TITLE, "og:description": SAID}
OURS = "".join(f'<meta property="{name}" content="{text(said, 300)}" />' for name, said in NAMES.items())
OURS += f'<meta name="twitter:card" content="summary" /><meta name="description" content="{text(SAID, 300)}" />'


class Preview:
    """ASGI middleware: puts the board's words into the head of the page itself; everything else passes as it is."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        root = scope.get("root_path", "")
        if scope["type"] != "http" or scope["path"].removeprefix(root) not in ("", "/"):
            await self.app(scope, receive, send)
            return
        start: dict[str, Any] = {}
        body = b""

        async def changed(message: Any) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            page = TAGS.sub(b"", body)
            if b"<head>" in page:
                page = page.replace(b"<head>", b"<head>" + OURS.encode(), 1)
            kept = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
            await send({**start, "headers": [*kept, (b"content-length", str(len(page)).encode())]})
            await send({"type": "http.response.body", "body": page})

        await self.app(scope, receive, changed)
