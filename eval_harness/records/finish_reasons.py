"""Translate finish reasons, from servers or recorded answers, to those of OpenAI's API."""

from __future__ import annotations

import re
from typing import Any

_LENGTHS = (
    "length max_tokens max_output_tokens model_length max_length token_limit incomplete model_context_window_exceeded"
)
_STOPS = "stop end_turn stop_sequence eos eos_token end_of_turn complete completed"
FINISH_REASONS = {"length": _LENGTHS.split(), "stop": _STOPS.split(), "error": ["error"]}
"""OpenAI's finish reason -> what other APIs call it, compared case-insensitively.

They are Anthropic, Gemini, Mistral, Cohere, TGI, OpenAI's Responses API and inspect-ai.
"""
STATUS_BY_FINISH_REASON = {"content_filter": "refused", "error": "failed"}
"""Finish reason -> status of a response that ended with it."""
_FILTER = re.compile(
    r"content[ "
    r"_-]?(?:filter|policy|management|violation)|moderat|(?<!case_)(?<!in)sensitive|safety(?!_?(?:identifier|setting))"
    r"|responsible[ "
    r"_-]?ai|inspection|guardrail|intervened|prohibited|blocklist|censor|toxic|recitation|refusal|flagged"
    r"|^(?:blocked|block_?reason|filtered|hap|spii|invalid_prompt|1301)$",
    re.IGNORECASE,
)
"""Error codes, error types and finish reasons that content filters give.

`invalid_prompt` is OpenAI's code for a flagged prompt, 1301 is Zhipu's.
"""


def is_filter(name: Any) -> bool:
    """Whether a code, type or finish reason is that of a content filter."""
    return isinstance(name, str) and _FILTER.search(name) is not None


def normalize_finish_reason(reason: Any) -> str | None:
    """Return OpenAI's name for a finish reason.

    A reason unknown to OpenAI is returned unchanged; anything but a non-empty string gives None.

    >>> normalize_finish_reason("FinishReason.MAX_TOKENS"), normalize_finish_reason("refusal")
    ('length', 'content_filter')
    >>> normalize_finish_reason("tool_use"), normalize_finish_reason(2)
    ('tool_use', None)
    """
    if not isinstance(reason, str) or not reason.strip():
        return None
    # Gemini's library puts the name of the enumeration before the reason.
    word = reason.rpartition(".")[2].strip().casefold()
    openai_reason = next((name for name, words in FINISH_REASONS.items() if word in words), None)
    return openai_reason or ("content_filter" if is_filter(word) else reason)
