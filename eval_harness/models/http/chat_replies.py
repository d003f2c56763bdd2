"""Parse chat completions: answer, reasoning, finish reason, token counts, log-probabilities.

The JSON is read leniently, because servers deviate from their documentation. See also: reading a
choice from the answer (`eval_harness/reader/`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from eval_harness.models.http.server_errors import ServerFailure, first_choice
from eval_harness.reader.reasoning import split_reasoning
from eval_harness.records.request import normalize_finish_reason

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking", "reasoning_details", "thinking_blocks")
"""Fields in which servers return reasoning; the first non-empty one is used, others repeat it.

In this order they are used by: DeepSeek, SGLang and older vLLM; vLLM and OpenRouter; Ollama;
OpenRouter (structured); LiteLLM (structured).
"""

_REASONING_PART_TYPES = ("thinking", "reasoning", "redacted_thinking", "thought")


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
    return "\n".join(text for text in _reasoning_pieces(value) if text)


def _reasoning_pieces(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _reasoning_pieces(part)
    elif isinstance(value, dict):
        for key in ("thinking", "reasoning", "text", "summary", "content"):
            if value.get(key):
                yield from _reasoning_pieces(value[key])
                return


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
