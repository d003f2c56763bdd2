"""Which address is answered by which function: a table filled by the modules beside it.

Patterns match the RAW path: a revision or a tree path is one percent-encoded segment.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tests.localhub.wire import Answer, Refused, Request

if TYPE_CHECKING:
    from tests.localhub.server import Hub

Handler = Callable[..., Answer]
_TABLE: list[tuple[frozenset[str], re.Pattern[str], Handler]] = []

KIND = "(?P<kind>models|datasets|spaces)"
REPO = "(?P<repo_id>[^/]+/[^/]+)"
REVISION = "(?P<revision>[^/]+)"
API = f"/api/{KIND}/{REPO}"


def route(methods: str, pattern: str) -> Callable[[Handler], Handler]:
    def remember(handler: Handler) -> Handler:
        _TABLE.append((frozenset(methods.split()), re.compile(pattern), handler))
        return handler

    return remember


def dispatch(hub: Hub, request: Request) -> Answer:
    for methods, pattern, handler in _TABLE:
        found = pattern.fullmatch(request.path) if request.method in methods else None
        if found:
            return handler(
                hub, request, **{name: unquote(text) if text else text for name, text in found.groupdict().items()}
            )
    raise Refused(404, f"This loopback Hub has no {request.method} {request.path}")
