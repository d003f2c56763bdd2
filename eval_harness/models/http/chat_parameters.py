"""The parameters a chat server is sent beside the messages, and the forms in which they are tried where it refuses them.

What a server takes is found by trying, with the first question and before any other is sent (`openai_chat.py`): a parameter is left out
only where that makes the server answer. See also: reading its errors (`server_errors.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from dataset_builders.errors import BadInput
from eval_harness.models.interface import DEFAULT_REASONING_TOKENS, Settings, Thinking
from eval_harness.records.request import Request

TOP_LOGPROBS, REDUCED_TOP_LOGPROBS = 20, 5
"""The most alternatives that OpenAI's API gives for a token, and what servers that give fewer take."""
MIN_OUTPUT_LIMIT = 16
"""Output tokens below which some servers take no limit."""
MIN_HALVED_LIMIT = 1024
"""Output tokens below which a larger limit is not halved, but taken back."""
LIMIT_NAMES = ("max_tokens", "max_completion_tokens")

BUDGET_EFFORTS = ((2048, "low"), (8192, "medium"))
"""Reasoning budgets as the efforts of servers that take no budget; above the last one `high`."""

OMISSION_DEVIATIONS = {
    "temperature": "the server does not let the temperature be set; its own was used",
    "seed": "the server takes no seed, so the samples cannot be drawn again",
    "max_tokens": "the server takes no output limit, so the answers had none but its own",
}
"""What is said where a parameter was left out."""


@dataclass(frozen=True)
class RequestForm:
    """How requests are sent: the name of the output limit, the limit where that is another than the request's, and what is left out (of
    `top_logprobs` the most alternatives, of `max_tokens` any limit)."""

    limit_name: str = LIMIT_NAMES[0]
    limit: int | None = None
    left_out: frozenset[str] = frozenset()

    def without(self, *names: str) -> RequestForm:
        """The same without further parameters."""
        return replace(self, left_out=self.left_out.union(names))

    def nearer(self, to: RequestForm, name: str) -> RequestForm:
        """The same with one thing as in `to`: a parameter that was left out, or the field of a name."""
        if name in self.left_out:
            return replace(self, left_out=self.left_out - {name})
        return replace(self, **{name: getattr(to, name)})


class Parameters:
    """Parameters sent with every question. `deviate` is called with any that could not be set as requested."""

    def __init__(self, model: str, base_url: str | None, settings: Settings, deviate: Callable[[str], None]) -> None:
        self.model = model
        self.settings = settings
        self.form = RequestForm()
        """As requests are sent now."""
        self._deviate = deviate
        self._why_larger: str | None = None
        self._larger_works = self._gave_room = False
        self._thinking = thinking_parameters(base_url, settings.thinking) if settings.thinking is not None else {}

    def of(self, request: Request, form: RequestForm | None = None) -> dict[str, Any]:
        """The parameters of one request, as they are sent now or in another `form`."""
        form = form or self.form
        sent: dict[str, Any] = {form.limit_name: self.limit(request, form), "temperature": request.temperature}
        if request.temperature > 0:
            sent["seed"] = request.seed + request.sample
        if "max_tokens" in form.left_out:
            del sent[form.limit_name]
        sent |= self.settings.generation | self._of_template()
        if request.candidates:
            top = REDUCED_TOP_LOGPROBS if "top_logprobs" in form.left_out else TOP_LOGPROBS
            sent |= {"logprobs": True, "top_logprobs": top}
        kept = form.left_out - {"top_logprobs"}
        return {name: value for name, value in sent.items() if name not in kept}

    def of_scoring(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a question that is asked for log-probabilities of tokens, beside `more`."""
        limit = {self.form.limit_name: self.form.limit or 1}
        return {**limit, "temperature": 0, "return_token_ids": True, **self._of_template(), **more}

    def _of_template(self) -> dict[str, Any]:
        """The parameters that affect how the server renders a conversation."""
        sent: dict[str, Any] = {}
        if self.settings.chat_template is not None:
            sent["chat_template"] = self.settings.chat_template
        sent |= self._thinking
        if self.settings.chat_template_kwargs:
            sent["chat_template_kwargs"] = sent.get("chat_template_kwargs", {}) | self.settings.chat_template_kwargs
        return sent

    def limit(self, request: Request, form: RequestForm | None = None) -> int:
        """The output tokens that a request is allowed."""
        return max(_requested_limit(request), (form or self.form).limit or 0)

    def limits(self, request: Request, form: RequestForm) -> Iterator[RequestForm]:
        """The forms with another output limit, where a request was refused: a larger one that the harness chose is halved and then taken
        back; one that is the request's own is made larger, unless it is the user's."""
        own, limit = _requested_limit(request), self.limit(request, form)
        if limit > own:
            while (limit := limit // 2) > max(own, MIN_HALVED_LIMIT):
                yield replace(form, limit=limit)
            yield replace(form, limit=None)
        elif self.settings.max_tokens is None:
            larger = (MIN_OUTPUT_LIMIT,) if request.candidates else (MIN_OUTPUT_LIMIT, DEFAULT_REASONING_TOKENS)
            yield from (replace(form, limit=limit) for limit in larger if limit > own)

    def alternatives(self, request: Request, form: RequestForm) -> dict[str, list[RequestForm]]:
        """The forms to try where the server refuses a request, by the parameter that they change, one at a time."""
        other_name = replace(form, limit_name=LIMIT_NAMES[1])
        names = ("temperature", "seed", "top_logprobs", *self._of_user, "logprobs")
        forms = {form.limit_name: [other_name, *self.limits(request, form), form.without("max_tokens")]}
        forms |= {name: [form.without(name)] for name in names}
        sent = self.of(request, form)
        return {name: changed for name, changed in forms.items() if name in sent}

    def all_left_out(self, form: RequestForm) -> list[RequestForm]:
        """The forms without everything that may be left out: first with the other name of the output limit, then without any."""
        bare = replace(form, limit_name=LIMIT_NAMES[1]).without("temperature", "seed", "top_logprobs")
        return [bare, bare.without("max_tokens")]

    def adopt(self, form: RequestForm) -> None:
        """Send requests in another form from now on, with no smaller limit than is seen to work, and say what could not be set.

        Raises BadInput if what is left out is what the user asked for, or what the method needs.
        """
        for name in sorted(form.left_out - self.form.left_out):
            if name in self._of_user:
                raise BadInput(f"{self._of_user[name]}: openai:{self.model} does not take it. Leave it out.")
            if name == "logprobs":
                raise BadInput(
                    f"--method gd: the server of openai:{self.model} gives no log-probabilities. Use --method mc."
                )
            if name in OMISSION_DEVIATIONS:
                self._deviate(OMISSION_DEVIATIONS[name])
        if self._larger_works:  # a smaller limit is for that question alone
            form = replace(form, limit=max(form.limit or 0, self.form.limit or 0) or None)
        if form.limit and form.limit > (self.form.limit or 0):
            self._why_larger, self._larger_works = "the server answers only with a larger output limit", False
        self.form = form

    @property
    def _of_user(self) -> dict[str, str]:
        """The parameters that the user asked for -> the option."""
        options = {name: f"--generation {name}" for name in self.settings.generation}
        names = ("chat_template", "chat_template_kwargs")
        options |= {name: f"--{name.replace('_', '-')}" for name in names if getattr(self.settings, name)}
        return options | dict.fromkeys(self._thinking, f"--thinking {self.settings.thinking}")

    def allow_thinking(self, request: Request, why: str, limit: int) -> bool:
        """Give the model room to reason, once, unless the limit is what the user asked for; whether it has more than `limit`, which the
        request was sent with."""
        if self.settings.max_tokens is not None or request.candidates or request.max_tokens >= DEFAULT_REASONING_TOKENS:
            return False
        if not self._gave_room:
            self._gave_room, self._why_larger, self._larger_works = True, why, False
            self.form = replace(self.form, limit=DEFAULT_REASONING_TOKENS)
        return limit < self.limit(request)

    def worked(self, request: Request, form: RequestForm) -> None:
        """A request in this form got a reply: say with how many output tokens, where these are more than its own."""
        limit = self.limit(request, form)
        if limit > request.max_tokens and self._why_larger and not self._larger_works and not request.candidates:
            self._larger_works = True
            self._deviate(f"{self._why_larger}, so {limit} output tokens were allowed instead of {request.max_tokens}")

    def describe(self) -> dict[str, Any]:
        """The parameters negotiated with the server."""
        described: dict[str, Any] = {"output_limit_parameter": self.form.limit_name}
        if self.form.limit:
            described["output_limit"] = self.form.limit
        if self._thinking:
            described["thinking_parameter"] = self._thinking
        return described


def _requested_limit(request: Request) -> int:
    """The output limit that a request asks for: of options that are scored, the one token that tells."""
    return 1 if request.candidates else request.max_tokens


def thinking_parameters(base_url: str | None, thinking: Thinking) -> dict[str, Any]:
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
            effort = next((name for most, name in BUDGET_EFFORTS if budget <= most), "high")
        return {"reasoning_effort": effort}
    if is_of("openrouter.ai"):
        return {"reasoning": {"max_tokens": budget} if budget else {"enabled": on}}
    if is_of("anthropic.com", "deepseek.com", "z.ai", "bigmodel.cn", "volces.com"):
        return {
            "thinking": {"type": "enabled", "budget_tokens": budget or DEFAULT_REASONING_TOKENS // 2}
            if on
            else {"type": "disabled"}
        }
    if is_of("aliyuncs.com"):
        return {"enable_thinking": on} | ({"thinking_budget": budget} if budget else {})
    switches = {"enable_thinking": on, "thinking": on} | ({"thinking_budget": budget} if budget else {})
    return {"chat_template_kwargs": switches}
