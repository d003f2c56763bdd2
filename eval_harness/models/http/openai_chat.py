"""Any server that speaks OpenAI's chat completions (OpenAI, Azure, vLLM, SGLang, TGI, `transformers serve`), many questions at a time.

One question at a time is in flight until the server has answered one: what it takes is settled then (`chat_parameters.py`) and stays so for
the others. The openai client tries a question again; where the server is busy or gone, it is asked again until `--wait-server` is over.
Before the run is given up, a question that was answered is asked once more. See also: the client (`client.py`), messages
(`chat_messages.py`), replies (`chat_replies.py`), errors (`server_errors.py`).
"""

from __future__ import annotations

import asyncio
import queue
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from tqdm import tqdm

from dataset_builders.errors import BadInput
from eval_harness.models.http.chat_messages import messages_of
from eval_harness.models.http.chat_parameters import Parameters
from eval_harness.models.http.chat_replies import Reply, of_candidate, read_reply
from eval_harness.models.http.client import AZURE, PROVIDER, address_of, open_client, post
from eval_harness.models.http.server_errors import Refusal, ServerFailure, without_key
from eval_harness.models.http.token_scores import TokenScores
from eval_harness.models.interface import Backend, Settings, chosen
from eval_harness.models.option_tokens import BEGUN_REASONING, NotScorable
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Item = TypeVar("Item")
GIVE_UP_AFTER = 10
"""Questions that fail one after another, with no answer in between, before it is checked whether the server answers at all."""

WAIT_SERVER = 600.0
"""Seconds for which a server that answers nothing is waited for (`--wait-server`)."""

LINE_EVERY = 10.0
"""Seconds without an answer after which a line says what is waited for."""

LAST_REPLIES = 5.0
"""Seconds for which replies under way are waited for when the asking ends in an error: they are paid for."""

Messages = list[dict[str, Any]]
Taken = tuple[Request, Messages | Exception]
AWAITED = "its reply is awaited"
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
    """Seconds before the client is let try again."""

    def __init__(self, name: str, settings: Settings, called: str | None = None) -> None:
        """`name`: as the server calls the model, or `azure:NAME` for a deployment of Azure OpenAI. `called`: what messages call it, if not
        `--model openai:NAME`.

        Raises BadInput if no name is given, the address is none, or a server elsewhere is to be asked without a key.
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
        self.worked: Request | None = None
        """A request that the server has answered, now or in an earlier part of the run."""
        self.reasons: bool | None = None
        """True if the model is seen to reason before it answers; None: nothing tells yet."""
        self._settled = False
        self._failures = 0
        self._token_scores: TokenScores | None = None
        self._client, self._alone, self._may_start = client, asyncio.Lock(), asyncio.Event()  # of the running call
        self._alive_at = 0.0  # never
        self._trouble = AWAITED

    def generate(self, requests: Iterable[Request]) -> Iterator[Response]:
        """Answers as they come, in any order; requests are taken as there is room for them in flight. A filter's refusal is `refused`;
        what fails after all tries is `failed`.

        Raises BadInput if the server cannot be reached, refuses the key or the model, or has gone.
        """
        return _in_background(lambda emit: self._ask_all(requests, emit))

    def score(self, requests: Iterable[Request]) -> Iterator[Response]:
        """By the log-probabilities of the options' own tokens, where the server gives them (`token_scores.py`); elsewhere `gd` by the
        alternatives of the first token.

        Raises BadInput if the server can do neither, before a question is sent.
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
        """The reply of an endpoint beside /v1, for `token_scores.py`. Raises ServerFailure or Refusal."""
        return await self._post(f"{self.base_url.removesuffix('/v1')}/{name}", body)

    async def _ask_all(self, requests: Iterable[Request], emit: Callable[[Response], None]) -> None:
        """As many questions at a time as may be in flight, one until the server has answered one."""
        waiting, taking, stopping = iter(requests), asyncio.Lock(), False
        self._alone, self._may_start, self._failures = asyncio.Lock(), asyncio.Event(), 0
        if self._settled:
            self._may_start.set()

        async def take() -> Taken | None:
            async with taking:
                return None if stopping else await asyncio.to_thread(self._next, waiting)

        async def work(first: bool) -> None:
            upcoming = asyncio.create_task(take())
            try:
                if not first:
                    await self._may_start.wait()
                while (taken := await upcoming) is not None:
                    upcoming = asyncio.create_task(take())  # made ready while the reply is awaited
                    emit(await self._timed(taken))
            finally:
                upcoming.cancel()
                await asyncio.gather(upcoming, return_exceptions=True)
            self._may_start.set()

        async with self._open() as self._client:
            workers = {asyncio.create_task(work(not number)) for number in range(self.settings.in_flight)}
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
            if self._failures >= 3 and not await self._still_answers():
                raise self._gone()

    async def _report(self) -> None:
        """Say what is waited for while no answers come."""
        began = said = time.monotonic()
        while True:
            await asyncio.sleep(LINE_EVERY / 10)
            since = max(began, self._alive_at)
            if time.monotonic() - max(since, said) >= LINE_EVERY:
                said = time.monotonic()
                line = f"no answer from {self.base_url} for {said - since:.0f} s; it is given up after {self._patience:.0f} s"
                tqdm.write(f"{self.called}: {line} ({self._trouble})", file=sys.stderr)

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
        """One question, tried until it is answered, refused, or has failed. Raises BadInput."""
        failed = Response(request.question_id, request.sample, "", "failed")
        if isinstance(messages, Exception):
            return replace(failed, error=f"its image cannot be shown: {messages}")
        until = time.monotonic() + self._patience
        while True:
            limit = self.parameters.limit(request)
            try:
                response = await self._scored(request, messages)
                if response is None:
                    sent = self.parameters.of(request)
                    reply = await self._told_from_reasoning(request, await self._once(messages, sent))
                    if reply.was_cut and self.parameters.allow_thinking(request, REASONS, limit):
                        continue
                    if not self._settled:
                        self._look_for_reasoning(reply)
                        if reply.reasoning:
                            self.parameters.allow_thinking(request, REASONS, limit)
                    response = self._response(request, reply)
                self._answered()
                self.worked = self.worked or request
                self._settle()
                return response
            except Refusal as refusal:
                self._answered()
                return replace(failed, status="refused", error=without_key(str(refusal), self._key))
            except ServerFailure as failure:
                self._trouble = words = without_key(str(failure), self._key)
                if failure.kind == "fatal":
                    raise BadInput(f"{self.called}: {words}") from None
                if failure.kind == "cut" and self.parameters.allow_thinking(request, REASONS, limit):
                    continue
                if (not self._settled or failure.parameter == self.parameters.limit_name) and self.parameters.adjust(
                    failure, request, limit
                ):
                    continue
                if not self._settled and self.worked is None:
                    self._check_address(failure)
                waits = failure.kind in ("wait", "unreachable")
                if waits and time.monotonic() < until:
                    await asyncio.sleep(min(self.first_wait, self._patience))
                    continue
                self._failures += 1
                if (waits or self._failures >= GIVE_UP_AFTER) and not await self._still_answers():
                    raise self._gone() from None
                return replace(failed, error=words, finish_reason="length" if failure.kind == "cut" else None)

    def _check_address(self, failure: ServerFailure) -> None:
        """Before the first answer: raise BadInput where no server is there, or something else than a chat server."""
        if failure.kind == "unreachable" and self.settings.wait_server is None:
            raise BadInput(
                f"--base-url {self.base_url}: no server can be reached: {self._trouble}. Start it (--wait-server SECONDS waits for it), or "
                "check the address."
            )
        if failure.kind == "unreadable" and not self._alive_at:
            raise BadInput(
                f"--base-url {self.base_url}: {self._trouble}. Give the address of a chat server; it mostly ends in /v1."
            )

    def _answered(self) -> None:
        """The server has said something about a question."""
        self._failures, self._alive_at, self._trouble = 0, time.monotonic(), AWAITED

    def _settle(self) -> None:
        """The server answers, and what it takes is known: all may ask."""
        self._settled = True
        self._may_start.set()

    @property
    def _patience(self) -> float:
        return WAIT_SERVER if self.settings.wait_server is None else self.settings.wait_server

    async def _scored(self, request: Request, messages: Messages) -> Response | None:
        """The response to a request whose options the server scores by their tokens; None for any other request.

        Raises BadInput if the method needs that and the server cannot do it; ServerFailure, Refusal.
        """
        if not request.candidates or self._token_scores is None:
            return None
        lacks = await self._token_scores.lacks(request)
        if lacks is None:
            if self._token_scores.begins_reasoning:
                self.deviate(BEGUN_REASONING)
            try:
                return await self._token_scores.score(request, messages)
            except NotScorable as error:
                raise ServerFailure(str(error), "question") from None
        if request.scoring == "next_token":
            return None
        raise BadInput(
            f"--method ps, ps_official: the server of openai:{self.name} cannot score options: {lacks}. vLLM's server can; elsewhere use "
            "--method mc, gd or ff."
        )

    async def _still_answers(self) -> bool:
        """True if the server answers a question that was answered before, asked again."""
        if self.worked is None:
            return False
        since = time.monotonic()
        async with self._alone:
            if self._alive_at > since:
                return True  # it was answered while this check waited for another one
            messages = await asyncio.to_thread(messages_of, self.worked, self.settings.max_image_side)
            while True:
                try:
                    await self._once(messages, self.parameters.of(self.worked))
                except ServerFailure as failure:
                    if self.parameters.adjust(failure, self.worked, self.parameters.limit(self.worked)):
                        continue
                    return False
                except Refusal:
                    pass
                self._answered()
                self._settle()
                return True

    def _gone(self) -> BadInput:
        """The one line about a server that answers nothing, or nothing any more."""
        if self.worked is None:
            return BadInput(f"{self.called}: the server answers no question: {self._trouble}")
        return BadInput(
            f"{self.called}: the server does not answer ({self._trouble}). Every answer so far is kept; run the same command again to "
            "resume."
        )

    async def _once(self, messages: Messages, sent: dict[str, Any]) -> Reply:
        """Send one question. Raises Refusal or ServerFailure."""
        return read_reply(await self._document(messages, sent), sent.get(self.parameters.limit_name))

    async def _document(self, messages: Messages, sent: dict[str, Any]) -> Any:
        """The JSON of a reply. Raises Refusal or ServerFailure."""
        return await self._post("/chat/completions", {"model": self.name, **sent, "messages": messages})

    async def _post(self, url: str, body: dict[str, Any]) -> Any:
        return await post(self._client, url, body, self._patience + self.settings.timeout)

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
        return {"server": host, **settled}


def _simple(request: Request) -> Request:
    """A question that any model can answer in a few words, asked as `request` is."""
    return replace(request, prompt=PROBE, image=None, more_images=(), shots=(), candidates=(), max_tokens=PROBE_TOKENS)


def _in_background(work: Callable[[Callable[[Item], None]], Coroutine[Any, Any, None]]) -> Iterator[Item]:
    """Run `work(emit)` in an event loop of its own thread; yield what it emits, as it comes, and raise what it raises.

    Works where the caller has an event loop, as a notebook does. Closing the iterator cancels the work.
    """
    items: queue.SimpleQueue[tuple[Item] | None] = queue.SimpleQueue()
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        await work(lambda item: items.put((item,)))

    with ThreadPoolExecutor(1, thread_name_prefix="in-flight") as thread:
        done = thread.submit(lambda: asyncio.run(main()))
        done.add_done_callback(lambda _: items.put(None))
        try:
            while (item := items.get()) is not None:
                yield item[0]
        finally:
            if not done.done():
                loop, task = begun.result()
                with suppress(RuntimeError):  # it has ended meanwhile
                    loop.call_soon_threadsafe(task.cancel)
    done.result()
