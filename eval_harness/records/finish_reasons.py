"""Translate why a reply ended, as providers say it, into the words of OpenAI's API: for servers and for files of answers alike."""

from __future__ import annotations

import re
from typing import Any

_LENGTHS = (
    "length max_tokens max_output_tokens model_length max_length token_limit incomplete model_context_window_exceeded"
)
_STOPS = "stop end_turn stop_sequence eos eos_token end_of_turn complete completed"
FINISH_REASONS = {"length": _LENGTHS.split(), "stop": _STOPS.split(), "error": ["error"]}
"""OpenAI's word -> those of others, in any case of letters: Anthropic, Gemini, Mistral, Cohere, TGI, the Responses API, inspect-ai."""
STATUS_BY_FINISH_REASON = {"content_filter": "refused", "error": "failed"}
"""The status of a response that ended so."""
_FILTER = re.compile(
    r"content[ _-]?(?:filter|policy|management|violation)|moderat|(?<!case_)(?<!in)sensitive|safety(?!_?(?:identifier|setting))"
    r"|responsible[ _-]?ai|inspection|guardrail|intervened|prohibited|blocklist|censor|toxic|recitation|refusal|flagged"
    r"|^(?:blocked|block_?reason|filtered|hap|spii|invalid_prompt|1301)$",
    re.IGNORECASE,
)
"""What providers write into a code, a type or a reason where a filter held something back; `invalid_prompt` is OpenAI's code of a flagged
prompt, 1301 Zhipu's."""


def is_filter(name: Any) -> bool:
    """True if a code, type or reason is a filter's."""
    return isinstance(name, str) and _FILTER.search(name) is not None


def normalize_finish_reason(reason: Any) -> str | None:
    """The reason in OpenAI's words where they have one for it, else as it is; None for what is no text.

    >>> finish_reason_of("FinishReason.MAX_TOKENS"), finish_reason_of("refusal"), finish_reason_of("tool_use"), finish_reason_of(2)
    ('length', 'content_filter', 'tool_use', None)
    """
    if not isinstance(reason, str) or not reason.strip():
        return None
    word = reason.rpartition(".")[2].strip().casefold()  # Gemini's library writes the name of its enumeration in front
    known = next((name for name, words in FINISH_REASONS.items() if word in words), None)
    return known or ("content_filter" if is_filter(word) else reason)
