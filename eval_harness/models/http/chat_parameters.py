"""The parameters a chat server is sent beside the messages, and what changes where it does not take one.

What a server takes is settled with the first question, before any other is sent (`openai_chat.py`). See also: reading its errors
(`server_errors.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from dataset_builders.errors import BadInput
from eval_harness.models.http.server_errors import ServerFailure
from eval_harness.models.interface import THINKING_ROOM, Settings, Thinking
from eval_harness.records.request import Request

_VALUE = re.compile(r"too (large|small|long)|at (least|most)|m(ax|in)imum|exceed|[<>]|greater|less", re.IGNORECASE)
"""Words of an error about the value of an output limit, not about its name."""
TOP_LOGPROBS = 20
"""The most alternatives that OpenAI's API gives for a token."""

EFFORTS = ((2048, "low"), (8192, "medium"))
"""Reasoning budgets as the efforts of servers that take no budget; above the last one `high`."""


class Parameters:
    """Parameters sent with every question. `deviate` is called with any that could not be set as requested."""

    def __init__(self, model: str, base_url: str | None, settings: Settings, deviate: Callable[[str], None]) -> None:
        self.model = model
        self.settings = settings
        self._deviate = deviate
        self.limit_name = "max_tokens"
        self.room: int | None = None
        """Output tokens allowed where the model reasons; None: as the request says."""
        self._dropped: set[str] = set()
        self._thinking = thinking_form(base_url, settings.thinking) if settings.thinking is not None else {}

    def of(self, request: Request) -> dict[str, Any]:
        """The parameters of one request."""
        sent: dict[str, Any] = {self.limit_name: self.limit(request), "temperature": request.temperature}
        if request.temperature > 0:
            sent["seed"] = request.seed + request.sample
        sent = {name: value for name, value in sent.items() if name not in self._dropped}
        sent |= self.settings.generation | self._of_template()
        if request.candidates:
            top = 5 if "top_logprobs" in self._dropped else TOP_LOGPROBS
            sent |= {self.limit_name: 1, "logprobs": True, "top_logprobs": top}
        return sent

    def of_scoring(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a question that is asked for log-probabilities of tokens, beside `more`."""
        return {self.limit_name: 1, "temperature": 0, "return_token_ids": True, **self._of_template(), **more}

    def _of_template(self) -> dict[str, Any]:
        """The parameters that affect how the server renders a conversation."""
        sent: dict[str, Any] = {}
        if self.settings.chat_template is not None:
            sent["chat_template"] = self.settings.chat_template
        sent |= self._thinking
        if self.settings.chat_template_kwargs:
            sent["chat_template_kwargs"] = sent.get("chat_template_kwargs", {}) | self.settings.chat_template_kwargs
        return sent

    def limit(self, request: Request) -> int:
        """The output tokens that a request is allowed."""
        return max(request.max_tokens, self.room or 0)

    def adjust(self, failure: ServerFailure, request: Request, limit: int) -> bool:
        """Change what is sent after the server refused it; False where nothing can be changed. `limit`: what was sent as such.

        Raises BadInput if the server does not take what the user asked for.
        """
        name = failure.parameter
        if name is None:
            return False
        if name == self.limit_name and _VALUE.search(str(failure)):
            return self._fit(request, limit)
        if name == "max_tokens" and self.limit_name == name:
            self.limit_name = "max_completion_tokens"
            return True
        if name in ("logprobs", "top_logprobs"):
            if name == "logprobs" or name in self._dropped:
                raise BadInput(
                    f"--method gd: the server of openai:{self.model} gives no log-probabilities. Use --method mc."
                )
            self._dropped.add(name)
            return True
        if name in self._thinking:
            raise BadInput(
                f"--thinking {self.settings.thinking}: openai:{self.model} does not let it be set ({failure}). Leave it out, or give the "
                "server's own parameter with --generation."
            )
        if name in self.settings.generation or name in ("chat_template", "chat_template_kwargs"):
            option = name if name.startswith("chat") else f"generation {name}"
            raise BadInput(
                f"--{option.replace('_', '-')}: openai:{self.model} does not take it ({failure}). Leave it out."
            )
        if name in ("temperature", "seed") and name not in self._dropped:
            self._dropped.add(name)
            words = {
                "temperature": "the server does not let the temperature be set; its own was used",
                "seed": "the server takes no seed, so the samples cannot be drawn again",
            }
            self._deviate(words[name])
            return True
        return False

    def _fit(self, request: Request, limit: int) -> bool:
        """Bring the output limit into what the server takes; the request's own is never made smaller."""
        if limit != self.limit(request):
            return True  # another question's refusal has changed it meanwhile
        if self.room and limit == self.room:
            self.room = max(request.max_tokens, self.room // 2)
            return self.room < limit
        return False

    def allow_thinking(self, request: Request, why: str, limit: int) -> bool:
        """Give the model room to reason, once, unless the limit is what the user asked for; whether it has more than `limit`, which the
        request was sent with."""
        if self.settings.max_tokens is not None or request.candidates or request.max_tokens >= THINKING_ROOM:
            return False
        if self.room is not None:
            return limit < self.limit(request)
        self.room = THINKING_ROOM
        self._deviate(f"{why}, so {self.room} output tokens were allowed instead of {request.max_tokens}")
        return True

    def describe(self) -> dict[str, Any]:
        """The parameters negotiated with the server."""
        found: dict[str, Any] = {"output_limit_parameter": self.limit_name}
        if self.room:
            found["output_limit"] = self.room
        if self._thinking:
            found["thinking_parameter"] = self._thinking
        return found


def thinking_form(base_url: str | None, thinking: Thinking) -> dict[str, Any]:
    """How a server is told to reason (or not): a known host's own parameter, else the arguments of the model's chat template (vLLM, SGLang,
    `transformers serve`).

    Sources: the reasoning pages of OpenAI, OpenRouter, Anthropic's OpenAI-compatible endpoint, DeepSeek, Gemini, DashScope, vLLM.
    """
    on = thinking != "off"
    budget = thinking if isinstance(thinking, int) else None
    host = urlsplit(base_url or "https://api.openai.com").hostname or ""

    def is_of(*endings: str) -> bool:
        return any(host == each or host.endswith(f".{each}") for each in endings)

    if is_of("openai.com", "openai.azure.com", "googleapis.com", "x.ai"):
        effort = "medium" if on else "none"
        if budget is not None:
            effort = next((name for most, name in EFFORTS if budget <= most), "high")
        return {"reasoning_effort": effort}
    if is_of("openrouter.ai"):
        return {"reasoning": {"max_tokens": budget} if budget else {"enabled": on}}
    if is_of("anthropic.com", "deepseek.com", "z.ai", "bigmodel.cn", "volces.com"):
        return {
            "thinking": {"type": "enabled", "budget_tokens": budget or THINKING_ROOM // 2}
            if on
            else {"type": "disabled"}
        }
    if is_of("aliyuncs.com"):
        return {"enable_thinking": on} | ({"thinking_budget": budget} if budget else {})
    switches = {"enable_thinking": on, "thinking": on} | ({"thinking_budget": budget} if budget else {})
    return {"chat_template_kwargs": switches}
