"""Classify errors of OpenAI-compatible servers: the kind of failure and its one-line message.

The kind follows from status codes, structured fields and connection failures; a server's free text
only becomes part of the message. Whether an error concerns one question or the whole server is
found by trial (`openai_chat.py`), and so is the parameter that a server rejects
(`chat_requests.py`).
"""

import json
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Literal

from eval_harness.records.request import is_filter

FailureKind = Literal["again", "wait", "unreachable", "unreadable", "question"]

_NAME_FIELD = re.compile(r"code|type|status|(?:\w+_)*reasons?|.*guardrail_?action", re.IGNORECASE)
"""Fields whose values are identifiers, not sentences."""
_FILTER_FIELD = re.compile("flagged_input|block_?reason|refusal", re.IGNORECASE)
"""Fields that indicate a filter if they have any value."""
_STATUS_PATTERNS = {
    429: re.compile(r"rate|throttl|too.?many|quota|exhausted", re.IGNORECASE),
    503: re.compile(r"overload|unavailable|capacity", re.IGNORECASE),
    504: re.compile(r"time.?out|deadline", re.IGNORECASE),
    401: re.compile(r"auth|api.?key", re.IGNORECASE),
    403: re.compile(r"permission|forbidden|denied", re.IGNORECASE),
    404: re.compile(r"not.?found", re.IGNORECASE),
    400: re.compile(r"invalid|bad.?request|unsupported|badrequest", re.IGNORECASE),
}
"""HTTP status -> error codes or types that imply it, for errors that state no number."""
_STATUS_MESSAGES = {
    **dict.fromkeys((401, 407), "the server refuses the key ({}). Check OPENAI_API_KEY."),
    402: "the account has no credit left ({}).",
    403: "the server refuses the key or the request ({}). Check OPENAI_API_KEY, and what the key may use.",
    **dict.fromkeys(
        (404, 405),
        "the server has no such model or address ({}). Check the name and --base-url, which usually ends in /v1.",
    ),
}


class Refusal(Exception):
    """Raised if a filter or the model withheld the answer; retrying will not help."""


class ServerFailure(Exception):
    """Raised if a question got no answer.

    Attributes:
        kind: What happened, and whether to try again. `wait` (busy, or no reply in time) and
            `unreachable` (no connection): the server may answer later. `again` (it failed) and
            `unreadable` (not a chat server's reply): give up after the client's own retries.
            `question`: it rejected this request.
        status: HTTP status, if any.
        meaning: Message for the user in case no other question is answered either.
    """

    def __init__(self, words: str, kind: FailureKind = "again", status: int | None = None, meaning: str = "") -> None:
        super().__init__(words)
        self.kind: FailureKind = kind
        self.status = status
        self.meaning = meaning

    @property
    def may_be_a_parameter(self) -> bool:
        """True if the server may have rejected a parameter rather than the messages."""
        return self.status in (400, 422)


def classify_exception(error: BaseException) -> ServerFailure:
    """Classify an exception of a request.

    The openai package wraps the exceptions of its transport, aiohttp, which are more specific, so
    the whole chain of causes is examined.
    """
    import aiohttp
    import httpx2

    causes = list(_causes(error))
    # Most specific first: some of aiohttp's connector errors are also TimeoutErrors.
    kinds: list[tuple[tuple[type[BaseException], ...], FailureKind | Literal["final"], str]] = [
        (
            (ssl.SSLError, aiohttp.ClientSSLError),
            "final",
            "its certificate cannot be verified, or it does not speak https ({})",
        ),
        (
            (httpx2.ProxyError, aiohttp.ClientProxyConnectionError),
            "unreachable",
            "the proxy refuses the connection ({}); check HTTPS_PROXY and NO_PROXY",
        ),
        (
            (socket.gaierror, aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError),
            "unreachable",
            "no server answers at this address ({})",
        ),
        ((TimeoutError,), "wait", "no answer in time"),
        ((httpx2.DecodingError,), "unreadable", "{}"),
        ((ValueError,), "final", "the request cannot be sent: {}; check OPENAI_API_KEY and HTTPS_PROXY"),
        ((BaseException,), "again", "the connection broke ({})"),
    ]
    kind, template = next(
        (kind, template) for types, kind, template in kinds if any(isinstance(cause, types) for cause in causes)
    )
    words = template.format(shorten(causes[-1]))
    return ServerFailure(words, meaning=words) if kind == "final" else ServerFailure(words, kind)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and what caused it, down to the root."""
    while error is not None:
        yield error
        # An exception raised without `from` still refers to the one being handled.
        error = error.__cause__ or error.__context__


def classify_status(status: int, body: str, headers: Any) -> Refusal | ServerFailure:
    """Classify an HTTP error by its status and the structured fields of its body.

    Args:
        status: HTTP status, from 300.
        body: Text of the reply.
        headers: Headers of the reply.

    Returns:
        The exception to raise.
    """
    words = f"HTTP {status}: {strip_tags(body)}"
    if 300 <= status < 400:
        address = shorten(headers.get("location", "an unnamed address"))
        meaning = f"it redirects to {address} (HTTP {status}): give the server's own address with --base-url"
        return ServerFailure(meaning, "question", status, meaning)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if status < 500 and status != 429 and _is_filtered(document):
        return Refusal(f"a filter or the model withheld the answer: {strip_tags(body)}")
    # A used-up quota is reported with status 429, too, but waiting does not help.
    if status == 429 and "insufficient_quota" in _error_names(document):
        return ServerFailure(words, "question", status, _STATUS_MESSAGES[402].format(words))
    if status in (408, 409, 425, 429) or status >= 500:
        return ServerFailure(words, "wait" if status in (408, 425, 429, 502, 503, 504, 529) else "again", status)
    return ServerFailure(words, "question", status, _STATUS_MESSAGES.get(status, "").format(words))


def _error_names(document: Any) -> Iterator[str]:
    """Yield codes, types and reasons in a JSON document, and names of filter fields.

    Sentences are left out.
    """
    if isinstance(document, list):
        for part in document:
            yield from _error_names(part)
    elif isinstance(document, dict):
        for field, value in document.items():
            if value is True or (value and _FILTER_FIELD.fullmatch(field)):
                yield field
            elif _NAME_FIELD.fullmatch(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", field)):
                values = value if isinstance(value, list) else [value]
                names = (str(element).partition(": ")[0] for element in values)  # "content_filter: SAFETY"
                yield from (name for name in names if " " not in name)
            yield from _error_names(value)


def _is_filtered(document: Any) -> bool:
    """True if a structured field says that a filter or the model withheld something."""
    return any(map(is_filter, _error_names(document)))


def embedded_status(document: Any) -> int | None:
    """Return the HTTP status of an error inside a reply with status 200.

    An error is: the field `error` of the document or of its first choice; a document whose
    `object` is `error`; a choice without a message or with the finish reason `error`.

    Args:
        document: The reply's JSON.

    Returns:
        The status that the error names, else 500; 400 for a withheld answer; None if there is no
        error.
    """
    if not isinstance(document, dict):
        return None
    if _is_filtered(document):
        return 400
    choice = first_choice(document)
    ended_in_error = str(choice.get("finish_reason")).casefold() == "error"
    error = document.get("error") or choice.get("error") or (document if document.get("object") == "error" else None)
    if not error and not ended_in_error and (isinstance(choice.get("message"), dict) or not choice):
        return None
    # A number (503) is more specific than a name that implies one (overloaded).
    names = [*_error_names(error)]
    numbers = (int(name) for name in names if re.fullmatch("[45][0-9][0-9]", name))
    implied = (status for status, pattern in _STATUS_PATTERNS.items() if any(map(pattern.search, names)))
    return next(numbers, next(implied, 500))


def first_choice(document: dict[str, Any]) -> dict[str, Any]:
    """Return the first choice of a chat completion; an empty one if there is none."""
    choices = document.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def strip_tags(body: str) -> str:
    """Return the text of a reply's body, without HTML tags and shortened."""
    return shorten(
        re.sub(r"<(script|style)\b.*?</\1>|<[!/a-zA-Z][^>]*>", " ", body, flags=re.DOTALL) or "no further words"
    )


def redact_keys(text: str, key: str) -> str:
    """Replace API keys in a message, because servers repeat them in their errors."""
    if key:
        text = text.replace(key, "[key]")
    return re.sub(r"\b(sk|key|Bearer)[-_ ][A-Za-z0-9*_-]{6,}", "[key]", text)


def shorten(message: Any) -> str:
    """Return the first 300 characters of a message on one line; a type's name if it is empty."""
    line = " ".join(str(message).split()) or type(message).__name__
    return line[:300]
