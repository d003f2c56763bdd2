"""Any server that speaks OpenAI's chat completions (OpenAI, vLLM, SGLang, TGI, `transformers serve`), patiently.

Not here: the image's data URL and messages (`chat_messages.py`), waiting and trying again (`patience.py`), what is asked (`prompts.py`).
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dataset_builders.errors import BadInput
from eval_harness.models.chat_messages import messages_of
from eval_harness.models.interface import Request, Response, Settings, chosen
from eval_harness.models.patience import Crowd, Refusal, Trouble, trouble_of, without_key
from eval_harness.results import Model

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

TRIES = 8
"""How often one question is sent before it counts as failed (it is asked again when the run is resumed)."""

GIVE_UP_AFTER = 3
"""So many questions failing after all their tries, with no answer in between, mean that the server is gone."""

THINKING_TOKENS = 4096
"""Room given to a model that spends its tokens on reasoning before the first visible one."""

TOP_LOGPROBS = 20
"""The most alternatives that OpenAI's API gives for a token."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server said: the text, log-probabilities of the first token's alternatives (empty where not given), tokens in and out."""

    text: str
    alternatives: dict[str, float]
    usage: tuple[int, int] | None


class OpenAIChat:
    """A model behind a server. The key is read from OPENAI_API_KEY, sent, and written nowhere."""

    needs_images = True
    one_token = True
    options = ("chat_template", "chat_template_kwargs", "generation")
    is_api = True

    def __init__(self, name: str, settings: Settings) -> None:
        """Raises BadInput when no name is given, or a server that is not on this machine is to be asked without a key."""
        if not name:
            raise BadInput("--model openai: names no model. Give openai:NAME, as the server calls it.")
        self.name = name
        self.base_url = settings.base_url or os.environ.get("OPENAI_BASE_URL") or None
        self._key = os.environ.get("OPENAI_API_KEY", "").strip()
        if not self._key and not _is_local(self.base_url):
            raise BadInput(
                f"--model openai:{name}: OPENAI_API_KEY is not set. Set it to your key, or name a server on this machine with "
                "--base-url http://127.0.0.1:8000/v1."
            )
        self.settings = settings
        self.model = Model(name=name)
        self.deviations: list[str] = []
        self.first_wait = 1.0
        """Seconds before the second try; doubles with each further one, up to a minute."""
        self.unsupported: set[str] = set()
        """Parameters this server refuses; they are left out from then on, and said under `deviations`."""
        self.thinks = False
        self.tokens = [0, 0]
        self.retries = 0

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Answers as they come, in any order. A filter's refusal is `refused`; what fails after all tries is `failed`.

        Raises BadInput when the server refuses the key or the model, or has gone.
        """
        return self._ask_all(requests)

    def score(self, requests: Sequence[Request]) -> Iterator[Response]:
        """`gd` by the first token's log-probabilities, where the server gives them.

        Raises BadInput for `ps` (chat servers give no likelihood of a given text) and for servers without log-probabilities.
        """
        if any(request.scoring != "next_token" for request in requests):
            raise BadInput(
                "--method ps: a chat server gives no likelihood of a given answer. Use --method mc, gd or ff."
            )
        return self._ask_all(requests)

    def _ask_all(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Run the asynchronous client in a thread of its own and hand on what it puts into a queue."""
        done: queue.SimpleQueue[Response | BaseException | None] = queue.SimpleQueue()
        loop = asyncio.new_event_loop()

        def run() -> None:
            try:
                loop.run_until_complete(self._ask_crowd(requests, done.put))
                done.put(None)
            except BaseException as error:  # handed to the caller's thread, which raises it
                done.put(error)
            finally:
                loop.close()

        thread = threading.Thread(target=run, name="openai", daemon=True)
        thread.start()
        try:
            while (item := done.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            if thread.is_alive() and not loop.is_closed():
                for task in asyncio.all_tasks(loop):
                    loop.call_soon_threadsafe(task.cancel)
            thread.join(timeout=10)

    async def _ask_crowd(self, requests: Sequence[Request], put: Any) -> None:
        import httpx2
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        crowd = Crowd(self.settings.in_flight, GIVE_UP_AFTER)
        # A connection carries one question: where a server delivers a reply twice, a reused connection would hand the second copy to the
        # next question, and it would pass for its answer.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        async with AsyncOpenAI(
            api_key=self._key or "none",
            base_url=self.base_url,
            max_retries=0,
            timeout=self.settings.timeout,
            http_client=DefaultAsyncHttpxClient(limits=limits, timeout=self.settings.timeout),
        ) as client:

            async def one(request: Request) -> None:
                start = time.perf_counter()
                response = await self._patiently(client, request, crowd)
                seconds = round(time.perf_counter() - start, 4)
                put(_timed(response, seconds))

            await crowd.run(one, requests)

    async def _patiently(self, client: AsyncOpenAI, request: Request, crowd: Crowd) -> Response:
        """One question, tried until it is answered, refused, or has failed too often."""
        last = ""
        tries = 0
        while tries < TRIES:
            try:
                async with crowd.place():
                    reply = await self._once(client, request)
            except Refusal as refusal:
                crowd.answered()
                return Response(request.question_id, request.sample, "", "refused", error=str(refusal))
            except Trouble as trouble:
                last = without_key(str(trouble), self._key)
                if trouble.fatal:
                    raise BadInput(f"--model openai:{self.name}: {last}") from None
                if trouble.parameter and self._do_without(trouble.parameter):
                    continue
                if not trouble.again:
                    crowd.failed(f"--model openai:{self.name}: the server refuses every question: {last}", at_once=True)
                    break
                tries += 1
                self.retries += 1
                crowd.troubled(trouble.busy)
                if tries < TRIES:
                    await crowd.wait(tries, self.first_wait, trouble.retry_after)
            else:
                crowd.answered()
                return self._response(request, reply)
        else:
            crowd.failed(
                f"--model openai:{self.name}: the server gives no answers any more ({last}). Every answer so far is kept; run the same "
                "command again to go on."
            )
        return Response(request.question_id, request.sample, "", "failed", error=last)

    async def _once(self, client: AsyncOpenAI, request: Request) -> Reply:
        """Send one question. Raises Refusal or Trouble."""
        import openai

        try:
            async with asyncio.timeout(self.settings.timeout):
                completion = await client.chat.completions.create(**self._parameters(request))
        except (openai.OpenAIError, json.JSONDecodeError, UnicodeDecodeError, TimeoutError) as error:
            raise trouble_of(error) from None
        return self._reply(completion, request)

    def _parameters(self, request: Request) -> dict[str, Any]:
        limit = "max_completion_tokens" if "max_tokens" in self.unsupported else "max_tokens"
        parameters: dict[str, Any] = {
            "model": self.name,
            "messages": messages_of(request, self.settings.max_image_side),
            limit: max(request.max_tokens, THINKING_TOKENS) if self.thinks else request.max_tokens,
        }
        if "temperature" not in self.unsupported:
            parameters["temperature"] = request.temperature
        if request.temperature > 0 and "seed" not in self.unsupported:
            parameters["seed"] = request.seed + request.sample
        parameters |= self._extra()
        if request.candidates:
            parameters |= {limit: 1, "logprobs": True, "top_logprobs": TOP_LOGPROBS}
            if "top_logprobs" in self.unsupported:
                parameters["top_logprobs"] = 5
        return parameters

    def _extra(self) -> dict[str, Any]:
        """What the user gave beyond the client's own parameters: generation parameters, and vLLM's and SGLang's template fields."""
        body = dict(self.settings.generation)
        if self.settings.chat_template is not None:
            body["chat_template"] = self.settings.chat_template
        if self.settings.chat_template_kwargs:
            body["chat_template_kwargs"] = self.settings.chat_template_kwargs
        return {"extra_body": body} if body else {}

    def _do_without(self, parameter: str) -> bool:
        """Leave a refused parameter out from now on, or say that it cannot be done without. False when that was tried already."""
        if parameter in self.unsupported:
            return False
        if parameter in ("logprobs", "max_completion_tokens"):
            if parameter == "logprobs":
                raise BadInput(
                    f"--method gd: the server of openai:{self.name} gives no log-probabilities. Use --method mc."
                )
            return False
        self.unsupported.add(parameter)
        if parameter == "temperature":
            self._deviate("the server does not let the temperature be set; its own was used")
        return True

    def _reply(self, completion: ChatCompletion, request: Request) -> Reply:
        """The first choice. Raises Refusal where a filter held it back, Trouble where the body is no answer."""
        choice = _first_choice(completion)
        content = choice.message.content
        usage = getattr(completion, "usage", None)
        counted = (usage.prompt_tokens or 0, usage.completion_tokens or 0) if usage else None
        if counted:
            self.tokens = [self.tokens[0] + counted[0], self.tokens[1] + counted[1]]
        if choice.finish_reason == "content_filter":
            raise Refusal("the server's content filter held the answer back")
        if not content and getattr(choice.message, "refusal", None):
            raise Refusal(str(choice.message.refusal))
        if not content and choice.finish_reason == "length" and not self.thinks and not request.candidates:
            self.thinks = True
            self._deviate(
                f"the model spends its first tokens on reasoning: {request.max_tokens} output token(s) gave no text, so "
                f"{max(request.max_tokens, THINKING_TOKENS)} were allowed"
            )
            raise Trouble("the answer was cut off before its first visible token")
        if content is not None and not isinstance(content, str):
            raise Trouble("the answer's content is not text")
        return Reply(content or "", _alternatives(choice), counted)

    def _response(self, request: Request, reply: Reply) -> Response:
        if not request.candidates:
            return Response(request.question_id, request.sample, reply.text, usage=reply.usage)
        if not reply.alternatives:
            raise BadInput(
                f"--method gd: the server of openai:{self.name} gives no log-probabilities. Use --method mc."
            )
        found = [_of_candidate(candidate, reply.alternatives) for candidate in request.candidates]
        if all(value is None for value in found):
            return Response(request.question_id, request.sample, reply.text, usage=reply.usage)
        if any(value is None for value in found):
            self._deviate(
                f"the server gives only {len(reply.alternatives)} alternatives of a token; an option that is not among them "
                "counts as less likely than all of them"
            )
        below = min(reply.alternatives.values())
        scores = [below - 1 if value is None else value for value in found]
        response = chosen(request, scores)
        return Response(response.question_id, response.sample, response.text, scores=response.scores, usage=reply.usage)

    def _deviate(self, words: str) -> None:
        if words not in self.deviations:
            self.deviations.append(words)

    def describe(self) -> dict[str, Any]:
        import openai

        host = urlsplit(self.base_url).netloc.rpartition("@")[2] if self.base_url else "default"
        return {"openai_client": openai.__version__, "server": host, "retries": self.retries}


def _is_local(url: str | None) -> bool:
    host = urlsplit(url or "").hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _first_choice(completion: Any) -> Any:
    """Raises Trouble when what came is not a chat completion with a message (a proxy's web page, half a body, an error in a 200)."""
    choices = getattr(completion, "choices", None)
    if not choices or getattr(choices[0], "message", None) is None:
        said = getattr(completion, "error", None) or type(completion).__name__
        raise Trouble(f"the server's reply is not a chat completion ({str(said)[:200]})")
    return choices[0]


def _alternatives(choice: Any) -> dict[str, float]:
    content = getattr(getattr(choice, "logprobs", None), "content", None)
    if not content:
        return {}
    found = {content[0].token: float(content[0].logprob)}
    for alternative in content[0].top_logprobs or []:
        found[alternative.token] = float(alternative.logprob)
    return found


def _of_candidate(candidate: str, alternatives: dict[str, float]) -> float | None:
    """Log-probability that the token is this candidate, written with or without space, in any case for words; None if not given."""
    wanted = candidate if len(candidate) == 1 else candidate.casefold()
    values = [
        value
        for token, value in alternatives.items()
        if (token.strip() if len(candidate) == 1 else token.strip().casefold()) == wanted
    ]
    return math.log(sum(math.exp(value) for value in values)) if values and max(values) > -700 else None


def _timed(response: Response, seconds: float) -> Response:
    from dataclasses import replace

    return replace(response, seconds=seconds)
