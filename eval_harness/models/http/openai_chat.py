"""Any server that speaks OpenAI's chat completions (OpenAI, Azure, vLLM, SGLang, TGI, `transformers serve`), many questions at a time.

One question at a time is in flight until the server has answered one: what it takes is settled then (`chat_parameters.py`) and stays
so for the others. A question is asked again after an error until it is answered, has failed `TRIES` times by itself, or `--wait-server`
is over; before the run is given up, a question that was answered is asked once more. See also: the client (`client.py`), messages
(`chat_messages.py`), replies (`chat_replies.py`), errors (`server_errors.py`), how many are in flight (`in_flight.py`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tqdm import tqdm

from dataset_builders.errors import BadInput
from eval_harness.models.http.chat_messages import messages_of
from eval_harness.models.http.chat_parameters import Parameters
from eval_harness.models.http.chat_replies import Reply, of_candidate, read_reply
from eval_harness.models.http.client import AZURE, PROVIDER, address_of, open_client, post
from eval_harness.models.http.in_flight import InFlight, in_background
from eval_harness.models.http.server_errors import TRANSIENT, Refusal, ServerFailure, without_key
from eval_harness.models.http.token_scores import Answer, TokenScores
from eval_harness.models.interface import Backend, Settings, chosen
from eval_harness.models.option_tokens import BEGUN_REASONING, NotScorable
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

if TYPE_CHECKING:
    from openai import AsyncOpenAI

TRIES = 6
"""How often a question is sent that the server fails to answer (HTTP 500, a broken connection; 502 and 504 while it answers others)
before it counts as failed; it is asked again when the run is resumed."""

LATE_TRIES = 4
"""The same for replies that do not come in time."""

STRANGER_TRIES = 3
"""How often something that is no reply of a chat server is tried before the first answer came."""

GIVE_UP_AFTER = 10
"""Questions that fail one after another, with no answer in between, before it is checked whether the server answers at all."""

WAIT_SERVER = 600.0
"""Seconds for which a server that answers nothing is waited for (`--wait-server`)."""

START_TIMEOUT = 2.0
"""Seconds for which a server that cannot be connected to is tried before the first answer, where `--wait-server` is not given."""

LINE_EVERY = 10.0
"""Seconds after which a line says what is waited for."""

LAST_REPLIES = 5.0
"""Seconds for which replies under way are waited for when the asking ends in an error: they are paid for."""

Messages = list[dict[str, Any]]
Taken = tuple[Request, Messages | Exception]
PROBE, PROBE_TOKENS = "What is 1 + 1? Answer with the number alone.", 1024
REASONS = "the model spends its first output tokens on reasoning"


class OpenAIChat(Backend):
    """A model behind a server. The key is read from OPENAI_API_KEY (AZURE_OPENAI_API_KEY), sent, and written nowhere."""

    needs_images = True
    several_images = True
    one_token = True
    is_api = True
    takes_stream = True
    options = ("thinking", "chat_template", "chat_template_kwargs", "generation")
    first_wait = 1.0
    """Seconds before the second try; doubles with each further one, up to a minute."""

    def __init__(self, name: str, settings: Settings, called: str | None = None) -> None:
        """`name`: as the server calls the model, or `azure:NAME` for a deployment of Azure OpenAI. `called`: what messages call it, if not
        `--model openai:NAME`.

        Raises BadInput when no name is given, the address is none, or a server elsewhere is to be asked without a key.
        """
        self.name = name.removeprefix(AZURE)
        kind = "azure" if name.startswith(AZURE) else "openai"
        if not self.name:
            raise BadInput(f"--model {kind}: names no model. Give {kind}:NAME, as the server calls it.")
        self.called = called or f"--model {kind}:{self.name}"
        self._open: Callable[[], AsyncOpenAI] = lambda: open_client(name, settings, self.called)
        client = self._open()
        self.base_url = address_of(client)
        self._key = client.api_key
        self.settings = settings
        self.model = Model(name=self.name)
        self.deviations: list[str] = []
        self.parameters = Parameters(self.name, self.base_url, settings, self.deviate)
        self.retries = 0
        self.worked: Request | None = None
        """A request that the server has answered, now or in an earlier part of the run."""
        self.reasons: bool | None = None
        """True if the model is seen to reason before it answers; None: nothing tells yet."""
        self._settled = False
        self._failures = 0
        self._refused = 0
        self._strange = 0
        """How often something came before the first answer that is no reply of a chat server."""
        self._token_scores: TokenScores | None = None
        self._client, self._flight, self._alone = (
            client,
            InFlight(1),
            asyncio.Lock(),
        )  # of the running call of `_ask_all`
        self._last_line = self._began = self._alive_at = 0.0  # never
        self._trouble = "its reply is awaited"

    def generate(self, requests: Iterable[Request]) -> Iterator[Response]:
        """Answers as they come, in any order; requests are taken as there is room for them in flight. A filter's refusal is `refused`;
        what fails after all tries is `failed`.

        Raises BadInput when the server cannot be reached, refuses the key or the model, or has gone.
        """
        return in_background(lambda emit: self._ask_all(requests, emit))

    def score(self, requests: Iterable[Request]) -> Iterator[Response]:
        """By the log-probabilities of the options' own tokens, where the server gives them (`token_scores.py`); elsewhere `gd` by the
        alternatives of the first token.

        Raises BadInput where the server can do neither, before a question is sent.
        """
        self._token_scores = self._token_scores or TokenScores(self.name, self.chat, self.beside)
        return self.generate(requests)

    async def chat(self, messages: Messages, more: dict[str, Any]) -> dict[str, Any]:
        """A chat completion for `token_scores.py`. Raises ServerFailure or Refusal."""
        document: dict[str, Any] = await self._document(messages, self.parameters.of_scoring(more))
        read_reply(document)  # raises for what is none
        self._alive_at = time.monotonic()
        return document

    async def beside(self, name: str, body: dict[str, Any]) -> Any:
        """What the address beside /v1 gives, for `token_scores.py`. Raises ServerFailure or Refusal."""
        return await post(self._client, f"{self.base_url.removesuffix('/v1')}/{name}", body, self.settings.timeout)

    async def _ask_all(self, requests: Iterable[Request], emit: Callable[[Response], None]) -> None:
        """As many questions at a time as may be in flight."""
        waiting, taking, stopping = iter(requests), asyncio.Lock(), False
        self._flight = InFlight(self.settings.in_flight, alone=not self._settled)
        self._alone, self._failures, self._began = asyncio.Lock(), 0, time.monotonic()

        async def take() -> Taken | None:
            async with taking:
                return None if stopping else await asyncio.to_thread(self._next, waiting)

        async def work() -> None:
            upcoming = asyncio.create_task(take())
            try:
                while (taken := await upcoming) is not None:
                    upcoming = asyncio.create_task(take())  # made ready while the reply is awaited
                    emit(await self._timed(taken))
            finally:
                upcoming.cancel()
                await asyncio.gather(upcoming, return_exceptions=True)

        async with self._open() as self._client:
            workers = {asyncio.create_task(work()) for _ in range(self._flight.most)}
            reporting = asyncio.create_task(self._report())
            try:
                done, under_way = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
                stopping = True
                if under_way and self._settled:
                    await asyncio.wait(under_way, timeout=LAST_REPLIES)
            finally:
                for task in (reporting, *workers):
                    task.cancel()
                await asyncio.gather(reporting, *workers, return_exceptions=True)
            for worker in done:
                worker.result()
            if self._failures >= STRANGER_TRIES:
                await self._check_server(self._trouble, None)

    async def _report(self) -> None:
        """Say what is waited for, until the first answer."""
        while True:
            await asyncio.sleep(LINE_EVERY)
            if self._settled:
                return
            seconds = time.monotonic() - self._began
            self._say(
                f"waiting for {self.base_url} since {seconds:.0f} s of at most {self._patience:.0f} s ({self._trouble})"
            )

    async def _check_address(self, failure: ServerFailure, request: Request) -> None:
        """Before the first answer: raise BadInput where no server is there, or something else than a chat server."""
        self._strange += failure.kind == "unreadable"
        waited = time.monotonic() - self._began
        if failure.kind == "unreachable" and self.settings.wait_server is None and waited >= START_TIMEOUT:
            raise BadInput(
                f"--base-url {self.base_url}: no server can be reached: {self._trouble}. Start it (--wait-server SECONDS waits for it), or "
                "check the address."
            )
        if self._strange >= STRANGER_TRIES and not self._alive_at:
            if self.worked is not None:
                await self._check_server(self._trouble, request)
                return
            raise BadInput(
                f"--base-url {self.base_url}: {self._trouble}. Give the address of a chat server; it mostly ends in /v1."
            )

    def _next(self, waiting: Iterator[Request]) -> Taken | None:
        """The next request with its messages, or with why its image cannot be shown."""
        request = next(waiting, None)
        if request is None:
            return None
        try:
            return request, messages_of(request, self.settings.max_image_side)
        except Exception as error:  # whatever an odd image makes a decoder raise
            return request, error

    async def _timed(self, taken: Taken) -> Response:
        start = time.perf_counter()
        response = await self._ask(*taken)
        return replace(response, seconds=round(time.perf_counter() - start, 4))

    async def _ask(self, request: Request, messages: Messages | Exception) -> Response:
        """One question, tried until it is answered, refused, or has failed too often. Raises BadInput."""
        failed = Response(request.question_id, request.sample, "", "failed")
        if isinstance(messages, Exception):
            return replace(failed, error=f"its image cannot be shown: {messages}")
        flight, until = self._flight, 0.0
        tries = dict.fromkeys(TRANSIENT, 0)
        done = 0
        read: dict[str, Answer] = {}
        while True:
            limit = self.parameters.limit(request)
            try:
                async with flight.one():
                    limit, sent = self.parameters.limit(request), self.parameters.of(request)
                    response = await self._scored(request, messages, read)
                    if response is None:
                        reply = await self._told_from_reasoning(request, await self._once(messages, sent))
                        if reply.was_cut and self.parameters.allow_thinking(request, REASONS, limit):
                            continue
                        if not self._settled:
                            self._look_for_reasoning(reply)
                            if reply.reasoning:
                                self.parameters.allow_thinking(request, REASONS, limit)
                        response = self._response(request, reply)
                    self._answered(request)
                    return response
            except Refusal as refusal:
                self._refused += 1
                self._answered(None)
                return replace(failed, status="refused", error=without_key(str(refusal), self._key))
            except ServerFailure as failure:
                words = self._trouble = without_key(str(failure), self._key)
                if failure.kind == "fatal":
                    raise BadInput(f"{self.called}: {words}") from None
                if failure.kind == "cut" and self.parameters.allow_thinking(request, REASONS, limit):
                    continue
                if (not self._settled or failure.parameter == self.parameters.limit_name) and self.parameters.adjust(
                    failure, request, limit
                ):
                    continue
                failed = replace(failed, error=words, finish_reason="length" if failure.kind == "cut" else None)
                if failure.kind in ("cut", "question"):
                    self._failures += 1
                    if self._failures >= GIVE_UP_AFTER:
                        await self._check_server(words, request)
                    return failed
                self.retries += 1
                if not self._settled:
                    await self._check_address(failure, request)
                if len(read) > done:  # an option more was scored
                    tries, done, until = dict.fromkeys(tries, 0), len(read), 0.0
                tries[failure.kind if failure.kind in tries else "again"] += 1
                if failure.kind in ("busy", "late", "gateway"):
                    flight.busy()
                until = until or (time.monotonic() if self._settled else self._began) + self._patience
                left = until - time.monotonic()
                if failure.retry_after is not None and left < failure.retry_after:
                    await self._check_server(f"{words}; it asks to wait {failure.retry_after:.0f} s", request)
                    return failed
                passed_over = tries["gateway"] >= TRIES and self._alive_at > until - self._patience
                if tries["again"] >= TRIES or tries["late"] >= LATE_TRIES or passed_over or left <= 0:
                    self._failures += 1
                    if self._failures >= GIVE_UP_AFTER or left <= 0:
                        await self._check_server(words, request)
                    return failed
                pause = min(flight.pause(max(tries.values()), self.first_wait, failure.retry_after), left)
                if pause >= LINE_EVERY:
                    self._say(f"{words}; asked again in {pause:.0f} s")
                await asyncio.sleep(pause)

    def _answered(self, request: Request | None) -> None:
        """The server has answered; `request`: what it has, None for a refusal."""
        self._failures, self._alive_at = 0, time.monotonic()
        self.worked = self.worked or request
        self._flight.answered()
        if request is not None or self._refused >= STRANGER_TRIES:
            self._settle()

    def _settle(self) -> None:
        self._settled = True
        self._flight.open()

    @property
    def _patience(self) -> float:
        return WAIT_SERVER if self.settings.wait_server is None else self.settings.wait_server

    def _say(self, line: str) -> None:
        """A line on standard error, at most one in `LINE_EVERY` seconds."""
        now = time.monotonic()
        if now - self._last_line >= 0.9 * LINE_EVERY:
            self._last_line = now
            tqdm.write(f"{self.called}: {line}", file=sys.stderr)

    async def _scored(self, request: Request, messages: Messages, read: dict[str, Answer]) -> Response | None:
        """The response to a request whose options the server scores by their tokens; None for any other request. `read`: as there.

        Raises BadInput where the method needs that and the server cannot do it; ServerFailure, Refusal.
        """
        if not request.candidates or self._token_scores is None:
            return None
        lacks = await self._token_scores.lacks(request)
        if lacks is None:
            if self._token_scores.begins_reasoning:
                self.deviate(BEGUN_REASONING)
            try:
                return await self._token_scores.score(request, messages, read)
            except NotScorable as error:
                raise ServerFailure(str(error), "question") from None
        if request.scoring == "next_token":
            return None
        raise BadInput(
            f"--method ps, ps_official: the server of openai:{self.name} cannot score options: {lacks}. vLLM's server can; elsewhere use "
            "--method mc, gd or ff."
        )

    async def _check_server(self, words: str, request: Request | None) -> None:
        """Ask a question that was answered before; where there is none, and `request` shows no image, a simple one.

        Raises BadInput where it is not answered now, or none ever was.
        """
        if self.worked is None and request is not None and not request.images:
            self.worked = _simple(request)
        if self.worked is None:
            seconds = time.monotonic() - self._began
            raise BadInput(f"{self.called}: the server answers no question, after {seconds:.0f} s: {words}")
        since, tries = time.monotonic(), 0
        async with self._alone:
            if self._alive_at > since:
                return  # the check of another question was answered while this one waited
            messages = await asyncio.to_thread(messages_of, self.worked, self.settings.max_image_side)
            while True:
                try:
                    await self._once(messages, self.parameters.of(self.worked))
                except ServerFailure as failure:
                    if self.parameters.adjust(failure, self.worked, self.parameters.limit(self.worked)):
                        continue
                    tries += 1
                    if tries >= STRANGER_TRIES or failure.kind == "late":
                        raise BadInput(
                            f"{self.called}: the server does not answer ({words}). Every answer so far is kept; run the same "
                            "command again to resume."
                        ) from None
                    await asyncio.sleep(self.first_wait)
                    continue
                except Refusal:
                    pass
                break
            self._failures, self._alive_at = 0, time.monotonic()
            self._settle()

    async def _once(self, messages: Messages, sent: dict[str, Any]) -> Reply:
        """Send one question. Raises Refusal or ServerFailure."""
        return read_reply(await self._document(messages, sent), sent.get(self.parameters.limit_name))

    async def _document(self, messages: Messages, sent: dict[str, Any]) -> Any:
        """The JSON of a reply. Raises Refusal or ServerFailure."""
        body = {"model": self.name, **sent, "messages": messages}
        return await post(self._client, "/chat/completions", body, self.settings.timeout)

    async def _told_from_reasoning(self, request: Request, reply: Reply) -> Reply:
        """The reply, its text as reasoning where the limit cut it and the model is known to reason: chat templates may open the reasoning,
        so that the text holds its end alone, or nothing of it when cut. Whether the model does that is asked with the first cut reply."""
        if reply.reasoning is not None:
            self.reasons = True
        if not reply.shows_no_end:
            return reply
        async with self._alone:
            if self.reasons is None:
                self.reasons = await self._reasons_unseen(request)
        if self.reasons and request.candidates:
            self.deviate("options were scored where the model begins to reason")
        return reply.as_reasoning() if self.reasons and not request.candidates else reply

    async def _reasons_unseen(self, request: Request) -> bool:
        """True if the model reasons before the answer to a question that anyone can answer in a few words."""
        probe = _simple(request)
        try:
            reply = await self._once(messages_of(probe, None), self.parameters.of(probe))
        except (Refusal, ServerFailure):
            return False
        if reply.shows_no_end:
            self.deviate(
                f"answers were cut by the output limit, and one of {PROBE_TOKENS} tokens to a simple question too: whether they stop "
                "inside a reasoning cannot be told, so only what states an answer was read"
            )
        return reply.reasoning is not None

    def _look_for_reasoning(self, reply: Reply) -> None:
        """Say where the first answer shows that the reasoning is not as it was asked for."""
        reasons = bool(reply.reasoning or reply.reasoning_tokens)
        thinking = self.settings.thinking
        if thinking == "off" and reasons:
            self.deviate("the model reasoned before its first answer although it was asked not to")
        elif thinking not in (None, "off") and not reasons:
            self.deviate("the first answer shows no reasoning although it was asked for")

    def _response(self, request: Request, reply: Reply) -> Response:
        response = Response(
            request.question_id,
            request.sample,
            reply.text,
            usage=reply.usage,
            reasoning=reply.reasoning,
            finish_reason=reply.finish_reason or ("length" if reply.unfinished else None),
        )
        if not request.candidates:
            return response
        if not reply.alternatives:
            why = f"the server of openai:{self.name} gives no log-probabilities"
            if self._settled:
                return replace(response, text="", status="failed", error=why)
            raise BadInput(f"--method gd: {why}. Use --method mc.")
        found = [of_candidate(candidate, reply.alternatives) for candidate in request.candidates]
        if all(value is None for value in found):
            return response
        if any(value is None for value in found):
            self.deviate(
                f"the server gives only {len(reply.alternatives)} alternatives of a token; an option that is not among them "
                "counts as less likely than all of them"
            )
        below = min(reply.alternatives.values())
        best = chosen(request, [below - 1 if value is None else value for value in found])
        # The one token that was asked for is always cut by its limit; the option is no less chosen for that.
        return replace(response, text=best.text, scores=best.scores, finish_reason=None)

    def describe(self) -> dict[str, Any]:
        host = "default" if self.base_url == PROVIDER else urlsplit(self.base_url).netloc.rpartition("@")[2]
        settled = self.parameters.describe() if self._settled else {}
        if self._token_scores is not None:
            settled["options_scored_by"] = "their tokens" if self._token_scores.can_score else "alternatives of a token"
        return {"server": host, "retries": self.retries, **settled}


def _simple(request: Request) -> Request:
    """A question that any model can answer in a few words, asked as `request` is."""
    return replace(request, prompt=PROBE, image=None, more_images=(), shots=(), candidates=(), max_tokens=PROBE_TOKENS)
