"""Classify errors of OpenAI-compatible servers: message, kind, and what to do about it.

See also: waiting and trying again (`openai_chat.py`), changing what is sent (`chat_parameters.py`).
"""

from __future__ import annotations

import email.utils
import html
import json
import math
import re
import socket
import ssl
import time
from collections.abc import Collection, Iterator
from typing import Any, Literal

Kind = Literal["again", "busy", "gateway", "late", "unreachable", "unreadable", "cut", "question", "fatal"]
TRANSIENT = ("again", "busy", "gateway", "late", "unreachable")

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
_LIMIT = re.compile(
    r"(?:at most|maximum(?: value)?(?: of| is|:)?|up to|<=|less than or equal to|context length (?:is|of)|limit (?:is|of))\D{0,20}([\d,]+)",
    re.IGNORECASE,
)
_LEAST = re.compile(
    r"(?:at least|minimum(?: value)?(?: of| is|:)?|>=|greater than or equal to)\D{0,5}(\d+)", re.IGNORECASE
)
_KEYS = (
    "error",
    "message",
    "msg",
    "detail",
    "details",
    "errors",
    "error_description",
    "title",
    "reason",
    "raw",
    "metadata",
)


class Refusal(Exception):
    """A filter or the model held the answer back; asking again is no use."""


class ServerFailure(Exception):
    """No answer came. `kind` says what to do:

    `again`, `busy` (the server has too much to do), `gateway` (what stands before it got no answer from it), `late` (no reply in time),
    `unreachable` (no connection), `unreadable` (something came that is no reply of a chat server): worth another try. `cut`: the output
    limit was reached before an answer. `question`: this question gets no answer. `fatal`: no question will.

    `parameter`: the one of those sent that the server does not take; `most`, `least`: the largest and smallest output limit it takes;
    `retry_after`: seconds the server asked to wait.
    """

    def __init__(
        self,
        words: str,
        kind: Kind = "again",
        *,
        parameter: str | None = None,
        most: int | None = None,
        least: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(words)
        self.kind: Kind = kind
        self.parameter, self.most, self.least, self.retry_after = parameter, most, least, retry_after


def failure_of(error: BaseException) -> ServerFailure:
    """What an exception on the way to a reply means. The openai package wraps those of its transport, aiohttp, which say more."""
    import aiohttp

    causes = list(_causes(error))
    last = short(causes[-1])

    def found(*types: type[BaseException]) -> bool:
        return any(isinstance(cause, types) for cause in causes)

    if found(socket.gaierror, aiohttp.ClientConnectorDNSError):
        return ServerFailure(f"its host name cannot be resolved ({last})", "unreachable")
    if found(ssl.SSLCertVerificationError, aiohttp.ClientConnectorCertificateError):
        return ServerFailure(f"its certificate cannot be verified ({last})", "fatal")
    if found(ssl.SSLError) and any("WRONG_VERSION" in str(cause).upper() for cause in causes):
        return ServerFailure(f"it does not speak https ({last}); try http://", "fatal")
    if found(aiohttp.ClientHttpProxyError, aiohttp.ClientProxyConnectionError):
        return ServerFailure(
            f"the proxy refuses the connection ({last}); check HTTPS_PROXY and NO_PROXY", "unreachable"
        )
    if found(aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        return ServerFailure(f"no server answers there ({last})", "unreachable")
    if found(TimeoutError):
        return ServerFailure("no answer in time", "late")
    if found(aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError):
        return ServerFailure(f"the connection broke ({last})")
    return ServerFailure(f"the server's reply cannot be read ({last})", "unreadable")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what lies under it, the last cause last."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def failure_of_status(status: int, body: str, headers: Any, sent: Collection[str]) -> Refusal | ServerFailure:
    """What an HTTP error means, from its status, its body in whatever form, and its headers. `sent`: names of the request's parameters."""
    document = _json(body)
    page = document is None and _is_page(body)
    message = words_of(body)
    said = f"HTTP {status}: {short(message)}"
    if 300 <= status < 400:
        there = short(headers.get("location", "an unnamed address"))
        return ServerFailure(
            f"it sends on to {there} (HTTP {status}): give the server's own address with --base-url", "fatal"
        )
    if page and status in (401, 403, 404, 407):
        return ServerFailure(f"a web page came instead of a reply ({said}): check --base-url and HTTPS_PROXY", "fatal")
    if status in (400, 403, 422, 451) and _FILTER.search(body):
        return Refusal(said)
    if status == 402 or (status in (400, 403, 429) and _NO_CREDIT.search(body)):
        return ServerFailure(f"the account has no credit left ({said}). Every answer so far is kept.", "fatal")
    if status in (401, 403):
        return ServerFailure(f"the server refuses the key ({said}). Check OPENAI_API_KEY.", "fatal")
    if status in (404, 405):
        return ServerFailure(
            f"the server knows no such model or address ({said}). Check the name and --base-url, which mostly ends in /v1.",
            "fatal",
        )
    if status == 413 or (status == 429 and _TOO_LARGE.search(message)):
        return ServerFailure(said, "question")
    if status in (408, 409, 425, 429) or status >= 500:
        kind: Kind = "busy" if status in (408, 425, 429, 503, 529) else "gateway" if status in (502, 504) else "again"
        parameter = _parameter(document, message, sent) if "keyword" in message else None
        return ServerFailure(said, kind, parameter=parameter, retry_after=retry_after_of(headers))
    if _CUT.search(message):
        return ServerFailure(said, "cut")
    parameter = _parameter(document, message, sent)
    limits = {"most": _number(_LIMIT, message), "least": _number(_LEAST, message)}
    return ServerFailure(said, "question", parameter=parameter, **limits)


def _parameter(document: Any, message: str, sent: Collection[str]) -> str | None:
    """Which of the parameters that were sent an error is about: the one it names as such, else the first that its words name."""
    named = [part for part in _named(document) if part in sent]
    if named:
        return named[0]
    if not _NOT_TAKEN.search(message):
        return None
    found = [
        (match.start(), name)
        for name in sent
        if (match := re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", message))
    ]
    return min(found)[1] if found else None


def _named(document: Any) -> Iterator[str]:
    """The names under `param` and `loc` anywhere in an error document."""
    if isinstance(document, dict):
        for key in ("param", "loc"):
            value = document.get(key)
            for part in value if isinstance(value, list) else [value]:
                yield from re.split(r"[.\[\]]", part) if isinstance(part, str) else ()
        document = list(document.values())
    if isinstance(document, list):
        for part in document:
            yield from _named(part)


def _number(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message)
    return int(found[1].replace(",", "")) if found else None


def words_of(body: str) -> str:
    """What an error body says: `error.message`, `detail` as text or list, lists, plain text, the text of a web page."""
    document = _json(body)
    if document is not None:
        return "; ".join(dict.fromkeys(part for part in _words(document) if part)) or short(body)
    if _is_page(body):
        title = re.search(r"<title[^>]*>(.*?)</title>", body, re.IGNORECASE | re.DOTALL)
        visible = re.sub(r"<(script|style)\b.*?</\1>", " ", body, flags=re.IGNORECASE | re.DOTALL)
        text = html.unescape(re.sub(r"<[^>]*>", " ", title[1] if title else visible))
        return f"a web page: {' '.join(text.split())[:200]}"
    return body.strip() or "no further words"


def _words(document: Any) -> Iterator[str]:
    if isinstance(document, str):
        inner = _json(document)
        if isinstance(inner, dict | list):
            yield from _words(inner)
        else:
            yield document.strip()
    elif isinstance(document, list):
        for part in document:
            yield from _words(part)
    elif isinstance(document, dict):
        location = document.get("loc")
        if isinstance(location, list | tuple) and "msg" in document:
            yield f"{'.'.join(map(str, location))}: {document['msg']}"
            return
        for key in _KEYS:
            yield from _words(document.get(key))


def _json(text: str) -> Any:
    """The document where the text is a JSON object, list or string; None otherwise."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict | list | str) and document else None


def _is_page(body: str) -> bool:
    return bool(re.match(r"\s*(<!doctype|<html|<\?xml|<head|<body)", body, re.IGNORECASE))


def retry_after_of(headers: Any) -> float | None:
    """Seconds the server asked to wait (`retry-after-ms`, `retry-after`), None where it did not."""
    milliseconds = seconds_of(headers.get("retry-after-ms"))
    return milliseconds / 1000 if milliseconds is not None else seconds_of(headers.get("retry-after"))


def seconds_of(header: str | None) -> float | None:
    """A Retry-After header in seconds: a number, or a date. None where it is absent or makes no sense."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def without_key(text: str, key: str) -> str:
    """Servers repeat keys in their error messages; here they end."""
    if key:
        text = text.replace(key, "[key]")
    return re.sub(r"\b(sk|key|Bearer)[-_ ][A-Za-z0-9*_-]{6,}", "[key]", text)


def short(thing: Any) -> str:
    """The first 300 characters on one line."""
    words = " ".join(str(thing).split()) or type(thing).__name__
    return words[:300]
