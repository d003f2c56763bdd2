"""Classify errors of OpenAI-compatible servers: what kind they are of, and the line about them.

A status, a structured field and the failure of a connection decide; the sentences of a server only become part of the message. Whether
an error is about one question or about the server is not read but tried (`openai_chat.py`), and so is which parameter a server does not
take (`chat_parameters.py`).
"""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Literal

from eval_harness.records.finish_reasons import is_filter

FailureKind = Literal["again", "wait", "unreachable", "unreadable", "question"]

_NAME_FIELD = re.compile(r"code|type|status|(?:\w+_)*reasons?|.*guardrail_?action", re.IGNORECASE)
"""Fields whose values are names, not sentences."""
_FILTER_FIELD = re.compile("flagged_input|block_?reason|refusal", re.IGNORECASE)
"""Fields that tell by being filled, whatever they hold."""
_STATUS_PATTERNS = {
    429: re.compile(r"rate|throttl|too.?many|quota|exhausted", re.IGNORECASE),
    503: re.compile(r"overload|unavailable|capacity", re.IGNORECASE),
    504: re.compile(r"time.?out|deadline", re.IGNORECASE),
    401: re.compile(r"auth|api.?key", re.IGNORECASE),
    403: re.compile(r"permission|forbidden|denied", re.IGNORECASE),
    404: re.compile(r"not.?found", re.IGNORECASE),
    400: re.compile(r"invalid|bad.?request|unsupported|badrequest", re.IGNORECASE),
}
"""The status that the code or type of an error stands for, where a reply gives no number."""
_STATUS_MESSAGES = {
    **dict.fromkeys((401, 407), "the server refuses the key ({}). Check OPENAI_API_KEY."),
    402: "the account has no credit left ({}).",
    403: "the server refuses the key or the request ({}). Check OPENAI_API_KEY, and what the key may use.",
    **dict.fromkeys(
        (404, 405),
        "the server knows no such model or address ({}). Check the name and --base-url, which mostly ends in /v1.",
    ),
}


class Refusal(Exception):
    """A filter or the model held the answer back; asking again is no use."""


class ServerFailure(Exception):
    """No answer came. `kind` says what to do:

    `wait` (busy, or no reply in time), `unreachable` (no connection): the server may answer later. `again` (it failed), `unreadable`
    (something came that is no reply of a chat server): not after the client's own tries. `question`: it was refused as it was sent.
    `status`: of HTTP, if any. `meaning`: the line about it where no other question is answered either.
    """

    def __init__(self, words: str, kind: FailureKind = "again", status: int | None = None, meaning: str = "") -> None:
        super().__init__(words)
        self.kind: FailureKind = kind
        self.status = status
        self.meaning = meaning

    @property
    def may_be_a_parameter(self) -> bool:
        """True if something beside the messages may be what the server does not take."""
        return self.status in (400, 422)


def classify_exception(error: BaseException) -> ServerFailure:
    """Classify an exception of a request. The openai package wraps those of its transport, aiohttp, which are more specific."""
    import aiohttp
    import httpx2

    causes = list(_causes(error))
    last = shorten(causes[-1])

    def is_of(*types: type[BaseException]) -> bool:
        return any(isinstance(cause, types) for cause in causes)

    if is_of(ssl.SSLError, aiohttp.ClientSSLError):
        meaning = f"its certificate cannot be verified, or it does not speak https ({last})"
        return ServerFailure(meaning, meaning=meaning)
    if is_of(httpx2.ProxyError, aiohttp.ClientProxyConnectionError):
        return ServerFailure(
            f"the proxy refuses the connection ({last}); check HTTPS_PROXY and NO_PROXY", "unreachable"
        )
    if is_of(socket.gaierror, aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        return ServerFailure(f"no server answers there ({last})", "unreachable")
    if is_of(TimeoutError):
        return ServerFailure("no answer in time", "wait")
    if is_of(httpx2.DecodingError):
        return ServerFailure(last, "unreadable")
    if is_of(ValueError):
        meaning = f"it cannot be asked: {last}; check OPENAI_API_KEY and HTTPS_PROXY"
        return ServerFailure(meaning, meaning=meaning)
    return ServerFailure(f"the connection broke ({last})")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def classify_status(status: int, body: str, headers: Any) -> Refusal | ServerFailure:
    """Classify an HTTP error by its status and the structured fields of its body."""
    words = f"HTTP {status}: {strip_tags(body)}"
    if 300 <= status < 400:
        address = shorten(headers.get("location", "an unnamed address"))
        meaning = f"it sends on to {address} (HTTP {status}): give the server's own address with --base-url"
        return ServerFailure(meaning, "question", status, meaning)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if status < 500 and status != 429 and _is_filtered(document):
        return Refusal(f"a filter or the model held the answer back: {strip_tags(body)}")
    if status == 429 and "insufficient_quota" in _error_names(document):
        return ServerFailure(words, "question", status, _STATUS_MESSAGES[402].format(words))
    if status in (408, 409, 425, 429) or status >= 500:
        return ServerFailure(words, "wait" if status in (408, 425, 429, 502, 503, 504, 529) else "again", status)
    return ServerFailure(words, "question", status, _STATUS_MESSAGES.get(status, "").format(words))


def _error_names(document: Any) -> Iterator[str]:
    """The values of all fields for names (codes, types, reasons), and the fields that tell by themselves; no sentences."""
    if isinstance(document, list):
        for part in document:
            yield from _error_names(part)
    elif isinstance(document, dict):
        for field, value in document.items():
            if value is True or (value and _FILTER_FIELD.fullmatch(field)):
                yield field
            elif _NAME_FIELD.fullmatch(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", field)):
                values = value if isinstance(value, list) else [value]
                words = (str(one).partition(": ")[0] for one in values)  # "content_filter: SAFETY"
                yield from (name for name in words if " " not in name)
            yield from _error_names(value)


def _is_filtered(document: Any) -> bool:
    """True if a structured field says that a filter or the model itself held something back."""
    return any(map(is_filter, _error_names(document)))


def embedded_status(document: Any) -> int | None:
    """The HTTP status of the error that a reply with status 200 holds: the one it names, else 500, and 400 for what was held back; None
    where it holds none.

    An error stands in `error`, of the document or of its first choice, or the document calls itself one; a choice without a message, or
    that ended in an error, is one.
    """
    if not isinstance(document, dict):
        return None
    if _is_filtered(document):
        return 400
    choices = document.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    ended = str(choice.get("finish_reason")).casefold() == "error"
    error = document.get("error") or choice.get("error") or (document if document.get("object") == "error" else None)
    if not error and not ended and (isinstance(choice.get("message"), dict) or not choice):
        return None
    names = [*_error_names(error)]
    numbers = (int(name) for name in names if re.fullmatch("[45][0-9][0-9]", name))
    meant = (status for status, words in _STATUS_PATTERNS.items() if any(map(words.search, names)))
    return next(numbers, next(meant, 500))


def strip_tags(body: str) -> str:
    """The message in a body, shortened; the text of a web page."""
    return shorten(
        re.sub(r"<(script|style)\b.*?</\1>|<[!/a-zA-Z][^>]*>", " ", body, flags=re.DOTALL) or "no further words"
    )


def redact_keys(text: str, key: str) -> str:
    """Servers repeat keys in their error messages; here they end."""
    if key:
        text = text.replace(key, "[key]")
    return re.sub(r"\b(sk|key|Bearer)[-_ ][A-Za-z0-9*_-]{6,}", "[key]", text)


def shorten(thing: Any) -> str:
    """The first 300 characters on one line."""
    words = " ".join(str(thing).split()) or type(thing).__name__
    return words[:300]
