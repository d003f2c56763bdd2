"""What a shared link shows of the board: Gradio's own page says "Gradio" in its preview, and takes no other words."""

from __future__ import annotations

import gzip
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


KEPT_FOR = (b"host", b"x-forwarded-host", b"x-forwarded-proto", b"x-gradio-server")
"""Headers that Gradio makes the page's own address of."""
MOST_KEPT = 16


class Preview:
    """ASGI middleware: puts the board's words into the head of the page itself; everything else passes as it is.

    The page is the same for every reader, who choose by what follows the # of an address. It is kept for each address it is served under,
    compressed where the browser takes that: Gradio makes it anew each time, 250 kB and 12 ms of the processor."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self._kept: dict[tuple[Any, ...], tuple[bytes, bytes]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        root = scope.get("root_path", "")
        is_page = scope["type"] == "http" and scope["path"].removeprefix(root) in ("", "/")
        if not is_page or scope["method"] != "GET" or b"deep_link" in scope["query_string"]:
            await self.app(scope, receive, send)
            return
        # Every header of these names, in their order: Gradio reads the first of several, and none may be kept under another's name.
        address = [(name, value) for name, value in scope["headers"] if name in KEPT_FOR]
        key = (scope["scheme"], root, scope["path"], *address)
        kept = self._kept.get(key)
        if kept is None:
            start, body = await self._made(scope, receive)
            if start["status"] != 200:
                await send(start)
                await send({"type": "http.response.body", "body": body})
                return
            page = TAGS.sub(b"", body).replace(b"<head>", b"<head>" + OURS.encode(), 1)
            kept = (page, gzip.compress(page, 6, mtime=0))
            self._kept[key] = kept
            if len(self._kept) > MOST_KEPT:  # the oldest goes: addresses that somebody made up do not stay
                del self._kept[next(iter(self._kept))]
        packs = b"gzip" in dict(scope["headers"]).get(b"accept-encoding", b"")
        content = kept[packs]
        said = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", str(len(content)).encode())]
        said += [(b"vary", b"accept-encoding")] + ([(b"content-encoding", b"gzip")] if packs else [])
        await send({"type": "http.response.start", "status": 200, "headers": said})
        await send({"type": "http.response.body", "body": content})

    async def _made(self, scope: Any, receive: Any) -> tuple[dict[str, Any], bytes]:
        """The page as Gradio answers: the start of the response, and its body."""
        start: dict[str, Any] = {}
        parts: list[bytes] = []

        async def collect(message: Any) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                parts.append(message.get("body", b""))

        # Without a query: Gradio would read a link of its own there (`deep_link`), also where its name is written with %5F.
        await self.app({**scope, "query_string": b""}, receive, collect)
        return start, b"".join(parts)
