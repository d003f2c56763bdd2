"""Classify errors of OpenAI-compatible servers: message, kind, and what to do about it.

See also: waiting (`openai_chat.py`), changing what is sent (`chat_parameters.py`).
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Collection, Iterator
from typing import Any, Literal

Kind = Literal["again", "wait", "unreachable", "unreadable", "cut", "question", "fatal"]

_FILTER = re.compile(r"content[_ -]?(filter|policy|management)|safety system|moderation|ResponsibleAI", re.IGNORECASE)
_NO_CREDIT = re.compile(r"insufficient_quota|credit balance|billing|payment required|out of credit", re.IGNORECASE)
_CUT = re.compile(
    r"could not finish|(max_tokens|output limit|token limit|max_completion_tokens)\b.{0,40}\b(was|were|been) (reached|exceeded|hit)",
    re.IGNORECASE,
)
_TOO_LARGE = re.compile(r"request too large|too many tokens in|image.{0,40}too large", re.IGNORECASE)
_NOT_TAKEN = re.compile(
    r"support|unknown|unrecogni[sz]ed|unexpected|invalid|permitted|allowed|extra|deprecated|not (?:available|accept|valid|a )|forbidden|"
    r"cannot|can't|must|only|illegal|unable",
    re.IGNORECASE,
)


class Refusal(Exception):
    """A filter or the model held the answer back; asking again is no use."""


class ServerFailure(Exception):
    """No answer came. `kind` says what to do:

    `wait` (busy, or no reply in time), `unreachable` (no connection): the server may answer later. `again` (it failed), `unreadable`
    (something came that is no reply of a chat server): not after the client's own tries. `cut`: the output limit was reached before an
    answer. `question`: this question gets no answer. `fatal`: no question will. `parameter`: the one of those sent that it does not take.
    """

    def __init__(self, words: str, kind: Kind = "again", parameter: str | None = None) -> None:
        super().__init__(words)
        self.kind: Kind = kind
        self.parameter = parameter


def failure_of(error: BaseException) -> ServerFailure:
    """Classify an exception of a request. The openai package wraps those of its transport, aiohttp, which are more specific."""
    import aiohttp
    import httpx2

    causes = list(_causes(error))
    last = short(causes[-1])

    def found(*types: type[BaseException]) -> bool:
        return any(isinstance(cause, types) for cause in causes)

    if found(ssl.SSLError, aiohttp.ClientSSLError):
        return ServerFailure(f"its certificate cannot be verified, or it does not speak https ({last})", "fatal")
    if found(httpx2.ProxyError, aiohttp.ClientProxyConnectionError):
        return ServerFailure(
            f"the proxy refuses the connection ({last}); check HTTPS_PROXY and NO_PROXY", "unreachable"
        )
    if found(socket.gaierror, aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        return ServerFailure(f"no server answers there ({last})", "unreachable")
    if found(TimeoutError):
        return ServerFailure("no answer in time", "wait")
    if found(httpx2.DecodingError):
        return ServerFailure(last, "unreadable")
    if found(ValueError):
        return ServerFailure(f"it cannot be asked: {last}; check OPENAI_API_KEY and HTTPS_PROXY", "fatal")
    return ServerFailure(f"the connection broke ({last})")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what lies under it, the last cause last."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def failure_of_status(status: int, body: str, headers: Any, sent: Collection[str]) -> Refusal | ServerFailure:
    """Classify an HTTP error by its status, body (in any form) and headers. `sent`: names of the request's parameters."""
    said = f"HTTP {status}: {without_tags(body)}"
    if 300 <= status < 400:
        there = short(headers.get("location", "an unnamed address"))
        return ServerFailure(
            f"it sends on to {there} (HTTP {status}): give the server's own address with --base-url", "fatal"
        )
    if status in (400, 403, 422, 451) and _FILTER.search(body):
        return Refusal(said)
    if status == 402 or (status in (400, 403, 429) and _NO_CREDIT.search(body)):
        return ServerFailure(f"the account has no credit left ({said}). Every answer so far is kept.", "fatal")
    if status in (401, 403, 407):
        return ServerFailure(f"the server refuses the key ({said}). Check OPENAI_API_KEY.", "fatal")
    if status in (404, 405):
        return ServerFailure(
            f"the server knows no such model or address ({said}). Check the name and --base-url, which mostly ends in /v1.",
            "fatal",
        )
    if status == 413 or (status == 429 and _TOO_LARGE.search(body)):
        return ServerFailure(said, "question")
    if status in (408, 409, 425, 429) or status >= 500:
        return ServerFailure(said, "wait" if status in (408, 425, 429, 502, 503, 504, 529) else "again")
    if _CUT.search(body):
        return ServerFailure(said, "cut")
    return ServerFailure(said, "question", _parameter(body, sent))


def _parameter(body: str, sent: Collection[str]) -> str | None:
    """The request parameter that an error is about: the one in its `param` field, else the first that its message names."""
    if named := re.search(r'"param":\s*"([^"]+)"', body):
        return next((part for part in re.split(r"[.\[\]]", named[1]) if part in sent), None)
    if not _NOT_TAKEN.search(body):
        return None
    found = [
        (match.start(), name) for name in sent if (match := re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", body))
    ]
    return min(found)[1] if found else None


def without_tags(body: str) -> str:
    """The message in a body, shortened; the text of a web page."""
    return short(
        re.sub(r"<(script|style)\b.*?</\1>|<[!/a-zA-Z][^>]*>", " ", body, flags=re.DOTALL) or "no further words"
    )


def without_key(text: str, key: str) -> str:
    """Servers repeat keys in their error messages; here they end."""
    if key:
        text = text.replace(key, "[key]")
    return re.sub(r"\b(sk|key|Bearer)[-_ ][A-Za-z0-9*_-]{6,}", "[key]", text)


def short(thing: Any) -> str:
    """The first 300 characters on one line."""
    words = " ".join(str(thing).split()) or type(thing).__name__
    return words[:300]
