"""Parse what an OpenAI-compatible server sends: chat completions, and errors.

The JSON is read leniently, because servers deviate from their documentation. An error's kind
follows from status codes, structured fields and connection failures; a server's free text only
becomes part of the message. Whether an error concerns one question or the whole server is found by
trial (`openai_chat.py`), and so is the parameter that a server rejects (`chat_requests.py`).

See also: reading a choice from the answer (`eval_harness/reader/`).
"""

import json
import math
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from eval_harness.reader.reasoning import split_reasoning
from eval_harness.records.request import is_filter, normalize_finish_reason

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking", "reasoning_details", "thinking_blocks")
"""Fields in which servers return reasoning; the first non-empty one is used, others repeat it.

In this order they are used by: DeepSeek, SGLang and older vLLM; vLLM and OpenRouter; Ollama;
OpenRouter (structured); LiteLLM (structured).
"""

_REASONING_PART_TYPES = ("thinking", "reasoning", "redacted_thinking", "thought")

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


@dataclass(frozen=True, slots=True)
class Reply:
    """A parsed reply of a server."""

    text: str
    reasoning: str | None
    finish_reason: str | None
    alternatives: dict[str, float]
    """Log-probabilities of the first token's alternatives; empty if not given."""
    usage: tuple[int, int] | None
    """Tokens in and out, as the server counts them."""
    unfinished: bool = False
    """True if the text stops inside the reasoning."""
    reasoning_tokens: int = 0
    """Output tokens spent on reasoning, as the server counts them."""

    @property
    def was_cut(self) -> bool:
        """True if the output limit was reached before any answer."""
        return not self.text.strip() and (self.unfinished or self.finish_reason == "length")

    @property
    def is_cut_unmarked_text(self) -> bool:
        """True for a text cut by the output limit that has no marks of reasoning."""
        return self.finish_reason == "length" and self.reasoning is None and bool(self.text.strip())

    def as_reasoning(self) -> "Reply":
        """Return the reply with its text as the beginning of unfinished reasoning."""
        return replace(self, text="", reasoning=self.text, unfinished=True)


def parse_chat_reply(document: dict[str, Any], limit: int | None = None) -> Reply:
    """Parse a chat completion.

    Replies withheld by a filter or the model never arrive here: the client treats them as errors
    (`chat_client.py`).

    Args:
        document: The reply's JSON.
        limit: Output-token limit, to detect truncation if the server gives no finish reason.

    Returns:
        The reply.

    Raises:
        ServerFailure: If the document is not a chat completion with a message.
    """
    choice = first_choice(document)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise ServerFailure("the server's reply is not a chat completion (it has no message)", "unreadable")
    finish = normalize_finish_reason(choice.get("finish_reason"))
    content = message.get("content")
    if content is not None and not isinstance(content, str | list):
        raise ServerFailure("the answer's content is not text", "unreadable")
    text, part_reasoning = _split_content(content)
    if not text and (message.get("tool_calls") or message.get("function_call")):
        raise ServerFailure("the reply calls a tool instead of answering; serve it without tools", "question")

    reasoning = (
        next(filter(None, (_reasoning_text(message.get(name)) for name in REASONING_FIELDS)), "") or part_reasoning
    )
    split = split_reasoning(text)
    if reasoning.strip() == (split.reasoning or "").strip():
        reasoning = ""  # some servers send it twice, in its own field and in the text
    usage = parse_usage(document.get("usage"))
    # Some servers give no finish reason: an answer as long as the limit was cut.
    if finish is None and limit is not None and usage is not None and usage[1] >= limit:
        finish = "length"
    reply = Reply(
        text=split.answer if split.reasoning is not None else text,
        reasoning="\n".join(part for part in (reasoning, split.reasoning) if part) or None,
        finish_reason=finish,
        alternatives=first_token_logprobs(choice),
        usage=usage,
        unfinished=split.unfinished,
        reasoning_tokens=_reasoning_tokens(document),
    )
    # If the server counts every output token as reasoning, an unmarked text is reasoning, too.
    only_reasoned = usage is not None and 0 < usage[1] <= reply.reasoning_tokens
    return reply.as_reasoning() if reply.is_cut_unmarked_text and only_reasoned else reply


def first_choice(document: dict[str, Any]) -> dict[str, Any]:
    """Return the first choice of a chat completion; an empty one if there is none."""
    choices = document.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def _reasoning_tokens(document: dict[str, Any]) -> int:
    usage = document.get("usage")
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    count = details.get("reasoning_tokens") if isinstance(details, dict) else None
    return count if isinstance(count, int) else 0


def _split_content(content: Any) -> tuple[str, str]:
    """Return (text, reasoning) of a message's content.

    The content is a text, or a list of parts, some of which are reasoning (Anthropic, Mistral).
    """
    texts: list[str] = []
    reasoning: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            if part.get("type") in _REASONING_PART_TYPES or part.get("thought") is True:
                reasoning.append(_reasoning_text(part))
            elif isinstance(part.get("text"), str) and part.get("type") != "refusal":
                texts.append(part["text"])
    return "".join(texts), "\n".join(reasoning)


def _reasoning_text(value: Any) -> str:
    """Return the text of a reasoning field in any form."""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_reasoning_text, value)))
    if isinstance(value, dict):
        keys = ("thinking", "reasoning", "text", "summary", "content")
        return _reasoning_text(next((value[key] for key in keys if value.get(key)), ""))
    return value if isinstance(value, str) else ""


def parse_usage(usage: Any) -> tuple[int, int] | None:
    """Return the tokens in and out of a reply's `usage`; None if it does not state them."""
    if not isinstance(usage, dict):
        return None
    counts = [usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens")]
    return (counts[0], counts[1]) if all(isinstance(count, int) for count in counts) else None


def first_token_logprobs(choice: dict[str, Any]) -> dict[str, float]:
    """Return the log-probabilities of a choice's first token and its alternatives.

    Empty if they are absent or have an unknown form.
    """
    try:
        token = choice["logprobs"]["content"][0]
        # The chosen token need not be among its own alternatives.
        logprobs = {
            str(entry["token"]): float(entry["logprob"]) for entry in (token, *(token.get("top_logprobs") or ()))
        }
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError):
        return {}
    return {text: logprob for text, logprob in logprobs.items() if not math.isnan(logprob)}


def candidate_logprob(candidate: str, alternatives: dict[str, float]) -> float | None:
    """Return the log-probability that a token spells a candidate.

    Sums over spellings with and without white space, and for words over upper and lower case.

    Args:
        candidate: A letter or a word.
        alternatives: Token text -> log-probability.

    Returns:
        The log-probability; None if no alternative spells the candidate.
    """
    normalize = str if len(candidate) == 1 else str.casefold
    logprobs = [logprob for token, logprob in alternatives.items() if normalize(token.strip()) == normalize(candidate)]
    # exp() underflows to 0 below about -745, and log(0) fails.
    return math.log(sum(math.exp(logprob) for logprob in logprobs)) if logprobs and max(logprobs) > -700 else None


def classify_exception(error: BaseException) -> ServerFailure:
    """Classify an exception of a request.

    The openai package wraps the exceptions of its transport, aiohttp, which are more specific, so
    the whole chain of causes is examined.
    """
    import aiohttp
    import httpx2

    causes = [error]
    # An exception raised without `from` still refers to the one being handled.
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
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


def _is_filtered(document: Any) -> bool:
    """True if a structured field says that a filter or the model withheld something."""
    return any(map(is_filter, _error_names(document)))


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
