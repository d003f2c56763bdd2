"""Requests to a chat server: messages, parameters, and the variants tried if it rejects them.

What a server supports is found by trial with the first question, before any other is sent
(`openai_chat.py`). A parameter is omitted only if that makes the server answer. Questions that
share an image follow each other, so it is checked and encoded only once. See also: the server's
replies and errors (`replies.py`).
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from dataset_builders.errors import BadInput, replace_surrogates
from dataset_builders.images.lookup import encode_png
from dataset_builders.images.picture import encode_data_uri
from eval_harness.models.http.replies import Reply, ServerFailure
from eval_harness.models.interface import DEFAULT_REASONING_TOKENS, Settings, Thinking
from eval_harness.models.local.model_inputs import build_conversation, decode_rgb_image
from eval_harness.records.request import Request

Messages = list[dict[str, Any]]

TOP_LOGPROBS, REDUCED_TOP_LOGPROBS = 20, 5
"""Alternatives per token to request: OpenAI's maximum, and a number that stricter servers accept.
"""
MIN_OUTPUT_LIMIT = 16
"""Some servers reject a smaller output limit."""
MIN_HALVED_LIMIT = 1024
"""An output limit that the harness raised is halved down to this many tokens, then withdrawn."""
LIMIT_NAMES = ("max_tokens", "max_completion_tokens")

BUDGET_EFFORTS = ((2048, "low"), (8192, "medium"))
"""(largest reasoning budget in tokens, effort) for servers without budgets; `high` above these."""

OMISSION_DEVIATIONS = {
    "temperature": "the server does not allow setting the temperature; its default was used",
    "seed": "the server accepts no seed, so the samples are not reproducible",
    "max_tokens": "the server accepts no output limit, so only its own applied",
}
"""Omitted parameter -> deviation from the protocol to record."""

PROBE_PROMPT, PROBE_TOKENS = "What is 1 + {}? Answer with the number alone.", 1024
IMAGE_PROBE_PROMPT = "Which number is written in the picture? Answer with the number alone."
IMAGE_PROBE_NUMBER = "4817"


@dataclass(frozen=True)
class RequestForm:
    """How a request is sent: the output limit, and which parameters are omitted."""

    limit_name: str = LIMIT_NAMES[0]
    """Parameter that holds the output limit."""
    limit: int | None = None
    """Output limit to use instead of the request's own; None: the request's own."""
    omitted: frozenset[str] = frozenset()
    """Parameters that are not sent.

    Two names have a special meaning here: `top_logprobs` requests fewer alternatives, and
    `max_tokens` omits the output limit under either of its names.
    """

    def without(self, *names: str) -> "RequestForm":
        """Return this form with further parameters omitted."""
        return replace(self, omitted=self.omitted.union(names))


class Parameters:
    """Parameters sent with every question.

    `deviate` is called with a sentence for each parameter that could not be set.
    """

    def __init__(self, model: str, base_url: str | None, settings: Settings, deviate: Callable[[str], None]) -> None:
        self.model = model
        self.settings = settings
        self.form = RequestForm()
        """Form in which requests are sent now."""
        self._deviate = deviate
        self._why_larger: str | None = None
        self._larger_works = self._gave_room = False
        self._thinking = thinking_parameters(base_url, settings.thinking) if settings.thinking is not None else {}

    def for_request(self, request: Request, form: RequestForm | None = None) -> dict[str, Any]:
        """Return the parameters of a request, in the current form or another one."""
        form = form or self.form
        parameters: dict[str, Any] = {form.limit_name: self.limit(request, form), "temperature": request.temperature}
        # Greedy decoding needs no seed.
        if request.temperature > 0:
            parameters["seed"] = request.seed + request.sample
        if "max_tokens" in form.omitted:
            del parameters[form.limit_name]
        parameters |= self.settings.generation | self._template_parameters()
        if request.candidates:
            top = REDUCED_TOP_LOGPROBS if "top_logprobs" in form.omitted else TOP_LOGPROBS
            parameters |= {"logprobs": True, "top_logprobs": top}
        # `top_logprobs` is never dropped: "omitted" means reduced for it.
        omitted = form.omitted - {"top_logprobs"}
        return {name: value for name, value in parameters.items() if name not in omitted}

    def for_scoring(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a request for log-probabilities of tokens, with `extra`."""
        limit = {self.form.limit_name: self.form.limit or 1}
        return {**limit, "temperature": 0, "return_token_ids": True, **self._template_parameters(), **extra}

    def _template_parameters(self) -> dict[str, Any]:
        """Return the parameters that affect how the server renders a conversation."""
        parameters: dict[str, Any] = {}
        if self.settings.chat_template is not None:
            parameters["chat_template"] = self.settings.chat_template
        parameters |= self._thinking
        if self.settings.chat_template_kwargs:
            parameters["chat_template_kwargs"] = (
                parameters.get("chat_template_kwargs", {}) | self.settings.chat_template_kwargs
            )
        return parameters

    def limit(self, request: Request, form: RequestForm | None = None) -> int:
        """Return the output-token limit of a request, in the current form or another one."""
        return max(_requested_limit(request), (form or self.form).limit or 0)

    def limits(self, request: Request, form: RequestForm) -> Iterator[RequestForm]:
        """Yield the forms with another output limit to try after a rejection.

        A limit that the harness has raised is halved and finally withdrawn. A request's original
        limit is raised instead, unless the user set it.

        Args:
            request: The rejected request.
            form: Form in which it was rejected.

        Yields:
            Forms that differ in `limit` only.
        """
        requested_limit, limit = _requested_limit(request), self.limit(request, form)
        if limit > requested_limit:
            # The server's own limit is unknown, so approach it by halving.
            while (limit := limit // 2) > max(requested_limit, MIN_HALVED_LIMIT):
                yield replace(form, limit=limit)
            yield replace(form, limit=None)
        elif self.settings.max_tokens is None:
            larger = (MIN_OUTPUT_LIMIT,) if request.candidates else (MIN_OUTPUT_LIMIT, DEFAULT_REASONING_TOKENS)
            yield from (replace(form, limit=limit) for limit in larger if limit > requested_limit)

    def alternatives(self, request: Request, form: RequestForm) -> dict[str, list[RequestForm]]:
        """Return the forms to try after a rejection, each with one change.

        Args:
            request: The rejected request.
            form: The form in which the request was rejected.

        Returns:
            Parameter -> forms that change it, for the parameters that were sent.
        """
        renamed_limit = replace(form, limit_name=LIMIT_NAMES[1])
        names = ("temperature", "seed", "top_logprobs", *self._user_options, "logprobs")
        forms = {form.limit_name: [renamed_limit, *self.limits(request, form), form.without("max_tokens")]}
        forms |= {name: [form.without(name)] for name in names}
        sent = self.for_request(request, form)
        return {name: changed for name, changed in forms.items() if name in sent}

    async def find_form(
        self,
        request: Request,
        send: Callable[[RequestForm], Awaitable[Reply]],
        is_first: bool,
        discard: Callable[[Reply], None],
    ) -> tuple[RequestForm, Reply] | None:
        """Find a form in which the server answers a question that it has rejected.

        Every change is an experiment: the question is sent again unchanged, then with one change at
        a time (parameters named in the error first), then without all optional parameters. Changes
        that did not help are undone.

        Args:
            request: The rejected question.
            send: Sends it in a form.
            is_first: Whether the server has not answered any question yet.
            discard: Called with each reply that is not used.

        Returns:
            The form and its reply; None if there is none.

        Raises:
            ServerFailure: If the server is busy or cannot be reached.
        """
        form = self.form
        complaints: dict[RequestForm, str] = {}

        async def first_answered(forms: Iterable[RequestForm]) -> tuple[RequestForm, Reply] | None:
            for candidate in forms:
                if candidate in complaints:
                    continue
                try:
                    return candidate, await send(candidate)
                except ServerFailure as failure:
                    if failure.kind in ("wait", "unreachable"):
                        raise
                    complaints[candidate] = str(failure)
            return None

        success = await first_answered([form])
        if success is None and not is_first:
            # The parameters are known to work, but how many tokens fit depends on the question.
            success = await first_answered(self.limits(request, form))
        if success is not None or not is_first:
            return success

        current: RequestForm | None = form
        while success is None and current is not None:
            complaint, forms = complaints[current], self.alternatives(request, current)
            words = set(re.findall(r"[\w-]+", complaint))
            named_forms = next((forms[name] for name in forms if name in words), [])
            tried = len(complaints)
            success = await first_answered(named_forms)
            # A different complaint means that the change helped: continue from that form.
            current = next(
                (tried_form for tried_form in [*complaints][tried:] if complaints[tried_form] != complaint),
                None,
            )

        if success is None:
            singles = (single for forms in self.alternatives(request, form).values() for single in forms)
            bare = replace(form, limit_name=LIMIT_NAMES[1]).without("temperature", "seed", "top_logprobs")
            success = await first_answered(singles) or await first_answered([bare, bare.without("max_tokens")])
        if success is None:
            return None

        # Undo one change at a time, as long as the server still answers.
        complaints.pop(form)
        best, reply = success
        for name in (*sorted(best.omitted - form.omitted), "limit_name", "limit"):
            # An omitted parameter is sent again; a field of the form gets its first value.
            change: dict[str, Any] = {name: getattr(form, name, None)}
            if name in best.omitted:
                change = {"omitted": best.omitted - {name}}
            restored = replace(best, **change)
            if restored != best and (better := await first_answered([restored])) is not None:
                discard(reply)
                best, reply = better
        return best, reply

    def adopt(self, form: RequestForm) -> None:
        """Send requests in another form from now on, and record what could not be set.

        The output limit never falls below one that is known to work.

        Args:
            form: The form in which the server answered.

        Raises:
            BadInput: If it omits a parameter that the user set or the method needs.
        """
        for name in sorted(form.omitted - self.form.omitted):
            if name in self._user_options:
                raise BadInput(f"{self._user_options[name]}: {self.model} does not support it. Leave it out.")
            if name == "logprobs":
                raise BadInput(
                    f"--method gd: the server of {self.model} returns no log-probabilities. Use --method mc."
                )
            if name in OMISSION_DEVIATIONS:
                self._deviate(OMISSION_DEVIATIONS[name])
        # A larger limit has worked: a smaller one was needed only for this question.
        if self._larger_works:
            form = replace(form, limit=max(form.limit or 0, self.form.limit or 0) or None)
        if form.limit and form.limit > (self.form.limit or 0):
            self._why_larger, self._larger_works = "the server answers only with a larger output limit", False
        self.form = form

    @property
    def _user_options(self) -> dict[str, str]:
        """Return the parameters that the user set -> the command-line option that set them."""
        options = {name: f"--generation {name}" for name in self.settings.generation}
        names = ("chat_template", "chat_template_kwargs")
        options |= {name: f"--{name.replace('_', '-')}" for name in names if getattr(self.settings, name)}
        return options | dict.fromkeys(self._thinking, f"--thinking {self.settings.thinking}")

    def allow_thinking(self, request: Request, why: str, limit: int) -> bool:
        """Raise the output limit, once, for a model that turns out to reason.

        Does nothing if the user set the limit.

        Args:
            request: The request whose answer was cut.
            why: Reason, for the recorded deviation.
            limit: Output limit that the request was sent with.

        Returns:
            True if the limit is now larger than `limit`, so that asking again is worthwhile.
        """
        if self.settings.max_tokens is not None or request.candidates or request.max_tokens >= DEFAULT_REASONING_TOKENS:
            return False
        if not self._gave_room:
            self._gave_room, self._why_larger, self._larger_works = True, why, False
            self.form = replace(self.form, limit=DEFAULT_REASONING_TOKENS)
        return limit < self.limit(request)

    def record_success(self, request: Request, form: RequestForm) -> None:
        """Record that a request was answered in this form.

        If the output limit exceeds the request's own, that is recorded as a deviation.
        """
        limit = self.limit(request, form)
        if limit > request.max_tokens and self._why_larger and not self._larger_works and not request.candidates:
            self._larger_works = True
            self._deviate(f"{self._why_larger}, so {limit} output tokens were allowed instead of {request.max_tokens}")

    def describe(self) -> dict[str, Any]:
        """Return the parameters negotiated with the server."""
        description: dict[str, Any] = {"output_limit_parameter": self.form.limit_name}
        if self.form.limit:
            description["output_limit"] = self.form.limit
        if self._thinking:
            description["thinking_parameter"] = self._thinking
        return description


def _requested_limit(request: Request) -> int:
    """Return the request's own output limit; one token if options are scored."""
    return 1 if request.candidates else request.max_tokens


def thinking_parameters(base_url: str | None, thinking: Thinking) -> dict[str, Any]:
    """Return the parameters that switch a server's reasoning.

    Known hosts have their own parameter. All others (vLLM, SGLang, `transformers serve`) get
    variables of the model's chat template. Sources: the reasoning pages of OpenAI, OpenRouter,
    Anthropic's OpenAI-compatible endpoint, DeepSeek, Gemini, DashScope, vLLM.

    Args:
        base_url: Address of the server; None: OpenAI's.
        thinking: On, off, or a budget in tokens.

    Returns:
        Parameters of the request.
    """
    on = thinking != "off"
    budget = thinking if isinstance(thinking, int) else None
    host = urlsplit(base_url or "https://api.openai.com").hostname or ""

    def is_host_of(*domains: str) -> bool:
        return any(host == domain or host.endswith(f".{domain}") for domain in domains)

    if is_host_of("openai.com", "openai.azure.com", "googleapis.com", "x.ai"):
        effort = "medium" if on else "none"
        if budget is not None:
            effort = next((name for max_budget, name in BUDGET_EFFORTS if budget <= max_budget), "high")
        return {"reasoning_effort": effort}
    if is_host_of("openrouter.ai"):
        return {"reasoning": {"max_tokens": budget} if budget else {"enabled": on}}
    if is_host_of("anthropic.com", "deepseek.com", "z.ai", "bigmodel.cn", "volces.com"):
        return {
            "thinking": {"type": "enabled", "budget_tokens": budget or DEFAULT_REASONING_TOKENS // 2}
            if on
            else {"type": "disabled"}
        }
    if is_host_of("aliyuncs.com"):
        return {"enable_thinking": on} | ({"thinking_budget": budget} if budget else {})
    switches = {"enable_thinking": on, "thinking": on} | ({"thinking_budget": budget} if budget else {})
    return {"chat_template_kwargs": switches}


def build_messages(request: Request, longest_side: int | None) -> list[dict[str, Any]]:
    """Build OpenAI-style messages; text-only content is a plain string.

    Args:
        request: The request.
        longest_side: Maximum length of an image's longer side in pixels; None: no limit.

    Returns:
        The messages, in the order of the conversation.

    Raises:
        ImageError: If an image cannot be decoded completely. (A lenient server would answer from
            the readable part.)
    """

    def image_part(image: bytes) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": _data_url(image, longest_side)}}

    messages = build_conversation(request, image_part, replace_surrogates)
    for message in messages:
        if [part["type"] for part in message["content"]] == ["text"]:
            message["content"] = message["content"][0]["text"]
    return messages


def with_answer_start(messages: list[dict[str, Any]], answer: str) -> list[dict[str, Any]]:
    """Return the messages followed by an assistant message with the beginning of an answer."""
    return [*messages, {"role": "assistant", "content": replace_surrogates(answer)}]


@lru_cache(maxsize=64)
def _data_url(image: bytes, longest_side: int | None) -> str:
    """Return the picture shown to the model as a `data:` URL, shrunk if necessary.

    Raises ImageError.
    """
    if longest_side is not None and max(decode_rgb_image(image).size) > longest_side:
        image = encode_png(decode_rgb_image(image, longest_side))
    return encode_data_uri(image)


def probe_request(request: Request, number: int = 1, with_picture: bool = False) -> Request:
    """Make a question that any model can answer in a few words, in the form of `request`."""
    image = probe_picture() if with_picture else None
    question = replace(request, prompt=PROBE_PROMPT.format(number), max_tokens=PROBE_TOKENS, candidates=())
    return replace(question, image=image, more_images=(), shots=())


@lru_cache(maxsize=1)
def probe_picture() -> bytes:
    """Draw a PNG with a number written into it."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (336, 168), "white")
    ImageDraw.Draw(image).text((60, 40), IMAGE_PROBE_NUMBER, fill="black", font=ImageFont.load_default(84))
    return encode_png(image)
