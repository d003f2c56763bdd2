"""Parse chat completions: answer, reasoning, finish reason, tokens, log-probabilities.

Read from the reply's JSON, for servers differ in more than their documentation says. See also: reading a choice out of the answer
(`eval_harness/reader/`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from eval_harness.models.http.server_errors import ServerFailure
from eval_harness.reader.reasoning import split_reasoning
from eval_harness.records.finish_reasons import normalize_finish_reason

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking", "reasoning_details", "thinking_blocks")
"""Fields in which servers return reasoning: DeepSeek, SGLang and older vLLM; vLLM and OpenRouter; Ollama; the structured forms of
OpenRouter and LiteLLM. The first that holds any is used: the others repeat it."""

_REASONING_PART_TYPES = ("thinking", "reasoning", "redacted_thinking", "thought")


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's reply. `alternatives`: log-probabilities of the first token's alternatives, empty if not given; `usage`: tokens
    in and out, `reasoning_tokens` of them for reasoning, as the server counts; `unfinished`: the text stops inside the reasoning."""

    text: str
    reasoning: str | None
    finish_reason: str | None
    alternatives: dict[str, float]
    usage: tuple[int, int] | None
    unfinished: bool = False
    reasoning_tokens: int = 0

    @property
    def was_cut(self) -> bool:
        """The output limit came before any answer."""
        return not self.text.strip() and (self.unfinished or self.finish_reason == "length")

    @property
    def shows_no_end(self) -> bool:
        """The output limit cut a text in which nothing tells reasoning from answer."""
        return self.finish_reason == "length" and self.reasoning is None and bool(self.text.strip())

    def as_reasoning(self) -> Reply:
        """The same, its text being the beginning of a reasoning that was cut."""
        return replace(self, text="", reasoning=self.text, unfinished=True)


def parse_chat_reply(document: Any, limit: int | None = None) -> Reply:
    """Parse a reply. `limit`: the maximum output tokens, by which truncation is detected if a server gives no finish reason.

    Raises ServerFailure where the document is no chat completion with a message. What a filter or the model held back does not come here:
    the client takes it for an error (`client.py`)."""
    fields = document if isinstance(document, dict) else {}
    choices = fields.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = choice.get("message")
    if not isinstance(message, dict):
        raise ServerFailure("the server's reply is not a chat completion (it has no message)", "unreadable")
    finish = normalize_finish_reason(choice.get("finish_reason"))
    content = message.get("content")
    if content is not None and not isinstance(content, str | list):
        raise ServerFailure("the answer's content is not text", "unreadable")
    said, thought = _split_content(content)
    if not said and (message.get("tool_calls") or message.get("function_call")):
        raise ServerFailure("the reply calls a tool instead of answering; serve it without tools", "question")
    own = next((text for name in REASONING_FIELDS if (text := _reasoning_text(message.get(name)))), "") or thought
    split = split_reasoning(said)
    if own.strip() == (split.reasoning or "").strip():
        own = ""  # some servers send it in a field of its own and in the text
    usage = parse_usage(fields.get("usage"))
    if finish is None and limit is not None and usage is not None and usage[1] >= limit:
        finish = "length"
    reply = Reply(
        text=split.answer if split.reasoning is not None else said,
        reasoning="\n".join(text for text in (own, split.reasoning) if text) or None,
        finish_reason=finish,
        alternatives=_alternatives(choice),
        usage=usage,
        unfinished=split.unfinished,
        reasoning_tokens=_reasoning_tokens(fields),
    )
    only_reasoned = usage is not None and 0 < usage[1] <= reply.reasoning_tokens
    return reply.as_reasoning() if reply.shows_no_end and only_reasoned else reply


def _reasoning_tokens(document: dict[str, Any]) -> int:
    usage = document.get("usage")
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    count = details.get("reasoning_tokens") if isinstance(details, dict) else None
    return count if isinstance(count, int) else 0


def _split_content(content: Any) -> tuple[str, str]:
    """(text, reasoning) of a message's content: a text, or parts of which some are reasoning (Anthropic, Mistral)."""
    if not isinstance(content, list):
        return content or "", ""
    said: list[str] = []
    thought: list[str] = []
    for part in content:
        if isinstance(part, str):
            said.append(part)
        elif isinstance(part, dict):
            if part.get("type") in _REASONING_PART_TYPES or part.get("thought") is True:
                thought.append(_reasoning_text(part))
            elif isinstance(part.get("text"), str) and part.get("type") != "refusal":
                said.append(part["text"])
    return "".join(said), "\n".join(thought)


def _reasoning_text(value: Any) -> str:
    """The text of a reasoning field, in whatever form."""
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
    """Tokens in and out that a reply says; None where it does not."""
    if not isinstance(usage, dict):
        return None
    counts = [usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens")]
    return (counts[0], counts[1]) if all(isinstance(count, int) for count in counts) else None


def _alternatives(choice: dict[str, Any]) -> dict[str, float]:
    """Log-probabilities of the first token's alternatives; none where the reply has none, or has them in another form."""
    try:
        first = choice["logprobs"]["content"][0]
        found = {str(each["token"]): float(each["logprob"]) for each in (first, *(first.get("top_logprobs") or ()))}
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError):
        return {}
    return {token: value for token, value in found.items() if not math.isnan(value)}


def candidate_logprob(candidate: str, alternatives: dict[str, float]) -> float | None:
    """Log-probability that the token is this candidate, written with or without space, in any case for words; None if not given."""
    wanted = candidate if len(candidate) == 1 else candidate.casefold()
    values = [
        value
        for token, value in alternatives.items()
        if (token.strip() if len(candidate) == 1 else token.strip().casefold()) == wanted
    ]
    return math.log(sum(math.exp(value) for value in values)) if values and max(values) > -700 else None
