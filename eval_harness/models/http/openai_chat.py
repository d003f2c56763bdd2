"""Any server that speaks OpenAI's chat completions (OpenAI, Azure, vLLM, SGLang, TGI, `transformers serve`), many questions at a time.

A server is judged by what it does, not by what it says. One question at a time is in flight until the server has answered one: what it
takes is found by trying then (`chat_parameters.py`) and stays so for the others. The openai client tries a question again; where the server
is busy or gone, it is asked again until `--wait-server` is over. Before any error ends the run, a question that was answered is asked
again, else a drawn one. See also: the client (`client.py`), messages (`chat_messages.py`), replies (`chat_replies.py`), errors
(`server_errors.py`).
"""

from __future__ import annotations

import asyncio
import io
import queue
import re
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from tqdm import tqdm

from dataset_builders.errors import BadInput
from eval_harness.models.http.chat_client import AZURE_PREFIX, OPENAI_URL, open_client, post
from eval_harness.models.http.chat_messages import build_messages
from eval_harness.models.http.chat_parameters import Parameters, RequestForm
from eval_harness.models.http.chat_replies import Reply, candidate_logprob, parse_chat_reply
from eval_harness.models.http.server_errors import Refusal, ServerFailure, redact_keys
from eval_harness.models.http.token_scores import TokenScores
from eval_harness.models.interface import Backend, Settings, response_from_scores
from eval_harness.models.option_tokens import SCORED_IN_REASONING, NotScorable
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Item = TypeVar("Item")
GIVE_UP_AFTER = 10
"""Questions that fail one after another, with no answer in between, before it is checked again whether the server answers at all."""
PROBE_COUNT = 3
"""Drawn questions of such a check, and questions of a run, that have to fail before a server that has answered nothing is given up."""

DEFAULT_WAIT_S = 600.0
"""Seconds for which a server that answers nothing is waited for (`--wait-server`)."""

REPORT_INTERVAL_S = 10.0
"""Seconds without an answer after which a line says what is waited for."""

DRAIN_TIMEOUT_S = 5.0
"""Seconds for which replies under way are waited for when the asking ends in an error: they are paid for."""

Messages = list[dict[str, Any]]
QueuedRequest = tuple[Request, Messages | Exception]
AWAITING_REPLY = "its reply is awaited"
PROBE_PROMPT, PROBE_TOKENS = "What is 1 + {}? Answer with the number alone.", 1024
IMAGE_PROBE_PROMPT, IMAGE_PROBE_NUMBER = "Which number is written in the picture? Answer with the number alone.", "4817"
DROPS_IMAGES = (
    "the server seems to drop images: a drawn picture changed neither its answer nor the number of tokens it read"
)
ONLY_REASONING = (
    "the server gives whole answers as reasoning, which is not read: its reasoning parser does not fit the model "
    "(vLLM: --reasoning-parser)"
)
REASONING_USES_LIMIT = "the model spends its first output tokens on reasoning"


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
        self.name = name.removeprefix(AZURE_PREFIX)
        kind = "azure" if name.startswith(AZURE_PREFIX) else "openai"
        if not self.name:
            raise BadInput(f"--model {kind}: names no model. Give {kind}:NAME, as the server calls it.")
        self.called = called or f"--model {kind}:{self.name}"
        self._open: Callable[[], AsyncOpenAI] = lambda: open_client(name, settings, self.called)
        client = self._open()
        self.base_url = str(client.base_url).rstrip("/")
        self._key = client.api_key
        self.settings = settings
        self._patience = DEFAULT_WAIT_S if settings.wait_server is None else settings.wait_server
        self.model = Model(name=self.name)
        self.deviations: list[str] = []
        self.parameters = Parameters(self.name, self.base_url, settings, self.deviate)
        self.worked: Request | None = None
        """A request that the server has answered, now or in an earlier part of the run."""
        self.look = False
        """True to ask once, after the first answer, whether the server sees images."""
        self.reasons: bool | None = None
        """True if the model is seen to reason before it answers; None: nothing tells yet."""
        self._settled = False
        self._failures = self._checks = 0
        self._checked = self._lost = False  # since the last answer: a check was made; the last one failed
        self._paid = (0, 0)  # tokens of replies that answer no question, to be counted with the next response
        self._token_scores: TokenScores | None = None
        self._client, self._alone, self._may_start = client, asyncio.Lock(), asyncio.Event()  # of the running call
        self._alive_at = self._began = 0.0  # never
        self._trouble, self._meaning = AWAITING_REPLY, ""

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
        self._token_scores = self._token_scores or TokenScores(self.name, self.chat, self._post)
        return self.generate(requests)

    async def chat(self, messages: Messages, more: dict[str, Any]) -> dict[str, Any]:
        """A chat completion for `token_scores.py`. Raises ServerFailure or Refusal."""
        document: dict[str, Any] = await self._document(messages, self.parameters.of_scoring(more))
        parse_chat_reply(document)  # raises for what is none
        self._alive_at = time.monotonic()
        return document

    async def _ask_all(self, requests: Iterable[Request], emit: Callable[[Response], None]) -> None:
        """As many questions at a time as may be in flight, one until the server has answered one."""
        waiting, taking, stopping = iter(requests), asyncio.Lock(), False
        self._alone, self._may_start, self._failures = asyncio.Lock(), asyncio.Event(), 0
        self._checked, self._lost, self._began = False, False, time.monotonic()
        if self._settled:
            self._may_start.set()

        async def take() -> QueuedRequest | None:
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
                    await asyncio.wait(under_way, timeout=DRAIN_TIMEOUT_S)
            finally:
                for task in (reporting, *workers):
                    task.cancel()
                await asyncio.gather(reporting, *workers, return_exceptions=True)
            for worker in done:
                worker.result()
            if self._lost:
                raise self._gone()

    async def _report(self) -> None:
        """Say what is waited for while no answers come."""
        began = said = time.monotonic()
        while True:
            await asyncio.sleep(REPORT_INTERVAL_S / 10)
            since = max(began, self._alive_at)
            if time.monotonic() - max(since, said) >= REPORT_INTERVAL_S:
                said = time.monotonic()
                line = f"no answer from {self.base_url} for {said - since:.0f} s; it is given up after {self._patience:.0f} s"
                tqdm.write(f"{self.called}: {line} ({self._trouble})", file=sys.stderr)

    def _next(self, waiting: Iterator[Request]) -> QueuedRequest | None:
        """The next request with its messages, or with why its image cannot be shown."""
        request = next(waiting, None)
        if request is None:
            return None
        try:
            return request, build_messages(request, self.settings.max_image_side)
        except Exception as error:  # whatever an odd image makes a decoder raise
            return request, error

    async def _timed(self, taken: QueuedRequest) -> Response:
        start = time.perf_counter()
        response = await self._ask(*taken)
        usage = response.usage
        if any(self._paid):  # the cost is counted from the answers
            usage, self._paid = _add_usage(usage, self._paid), (0, 0)
        return replace(response, usage=usage, seconds=round(time.perf_counter() - start, 4))

    async def _ask(self, request: Request, messages: Messages | Exception) -> Response:
        """One question, tried until it is answered, refused, or has failed. Raises BadInput."""
        failed = Response(request.question_id, request.sample, "", "failed")
        if isinstance(messages, Exception):
            return replace(failed, error=f"its image cannot be shown: {messages}")
        until = self._silent_since + self._patience
        while True:
            try:
                response = await self._response_to(request, messages)
                self._answered()
                self.worked = self.worked or request
                self._settle()
                if self.look:
                    self.look = False
                    await self._look_at_a_picture(request)
                return response
            except Refusal as refusal:
                self._answered()
                return replace(failed, status="refused", error=redact_keys(str(refusal), self._key))
            except ServerFailure as failure:
                self._trouble, self._meaning = (
                    redact_keys(text, self._key) for text in (str(failure), failure.meaning)
                )
                waits = failure.kind in ("wait", "unreachable")
                if failure.kind == "unreachable" and not self._has_answered and self.settings.wait_server is None:
                    raise BadInput(
                        f"--base-url {self.base_url}: no server can be reached: {self._trouble}. Start it (--wait-server SECONDS "
                        "waits for it), or check the address."
                    ) from None
                if waits and time.monotonic() < until:
                    await asyncio.sleep(min(self.first_wait, self._patience))
                    continue
                words = self._trouble
                self._failures += 1
                await self._check(request, failure)
                return replace(failed, error=words)

    async def _check(self, request: Request, failure: ServerFailure) -> None:
        """After a question failed: ask another one before the server is given up, once in a row of failures and again after many more.

        Raises BadInput if none is answered either.
        """
        quick = failure.kind in ("again", "question")
        # A server that has answered nothing yet may dislike the first questions alone.
        enough = PROBE_COUNT if quick else 1
        of_one_question = quick and self._has_answered and not failure.meaning
        due = enough if self._lost else GIVE_UP_AFTER if self._checked else PROBE_COUNT if of_one_question else 1
        if self._failures < due or await self._still_answers(request):
            return
        if self.worked is not None or self._failures >= enough:
            raise self._gone()
        self._lost = bool(failure.meaning)  # else a few more questions may tell

    async def _response_to(self, request: Request, messages: Messages) -> Response:
        """One question, asked in the form that the server takes. Raises ServerFailure, Refusal or BadInput."""
        scored = await self._scored(request, messages)
        if scored is not None:
            return scored
        while True:
            limit = self.parameters.limit(request)
            reply = await self._told_from_reasoning(request, await self._reply_to(request, messages))
            if reply.was_cut and self.parameters.allow_thinking(request, REASONING_USES_LIMIT, limit):
                self._pay(reply)
                continue
            if not self._settled:
                self._look_for_reasoning(reply)
                if reply.reasoning:
                    self.parameters.allow_thinking(request, REASONING_USES_LIMIT, limit)
            return self._response(request, reply)

    async def _reply_to(self, request: Request, messages: Messages) -> Reply:
        """The reply to a question, which is sent in other forms where the server refuses it. Raises ServerFailure or Refusal."""
        form = self.parameters.form
        try:
            reply = await self._once(request, messages, form)
        except ServerFailure as failure:
            other = await self._other_form(request, messages, form, failure) if failure.may_be_a_parameter else None
            if other is None:
                raise
            form, reply = other
            self.parameters.adopt(form)
        self.parameters.worked(request, form)
        return reply

    async def _other_form(
        self, request: Request, messages: Messages, form: RequestForm, refused: ServerFailure
    ) -> tuple[RequestForm, Reply] | None:
        """The form in which the server answers a question that it has refused, and its reply; None if it answers in none.

        Every change is an experiment: the question is asked once more as it was, then with one thing changed at a time (what the server
        names comes first), then without all that may be left out; and what did not help is put back.
        """
        complaints: dict[RequestForm, str] = {}

        async def first_of(forms: Iterable[RequestForm]) -> tuple[RequestForm, Reply] | None:
            for changed in forms:
                if changed in complaints:
                    continue
                try:
                    return changed, await self._once(request, messages, changed)
                except ServerFailure as failure:
                    if failure.kind in ("wait", "unreachable"):
                        raise
                    complaints[changed] = str(failure)
            return None

        answered = await first_of([form])
        if answered is None and self._settled:
            # What it takes is known, but the room for an answer depends on the question.
            answered = await first_of(self.parameters.limits(request, form))
        if answered is not None or self._settled:
            return answered
        alternatives = self.parameters.alternatives
        changed: RequestForm | None = form
        while answered is None and changed is not None:
            before, forms = complaints[changed], alternatives(request, changed)
            told = set(re.findall(r"[\w-]+", before))  # a parameter that the message names is tried first
            named = next((forms[name] for name in forms if name in told), [])
            earlier = len(complaints)
            answered = await first_of(named)
            # Where the server complains of something else then, the step has helped, and the next one goes on from there.
            changed = next((other for other in [*complaints][earlier:] if complaints[other] != before), None)
        if answered is None:
            singles = (other for forms in alternatives(request, form).values() for other in forms)
            answered = await first_of(singles) or await first_of(self.parameters.all_left_out(form))
        if answered is None:
            return None
        complaints.pop(form)
        best, reply = answered
        for name in (*sorted(best.left_out - form.left_out), "limit_name", "limit"):
            nearer = best.nearer(form, name)
            if nearer != best and (better := await first_of([nearer])) is not None:
                self._pay(reply)
                best, reply = better
        return best, reply

    def _pay(self, reply: Reply) -> None:
        """Count the tokens of a reply that answers no question of the run."""
        self._paid = _add_usage(reply.usage, self._paid)

    def _answered(self) -> None:
        """The server has said something about a question."""
        self._failures, self._alive_at, self._trouble = 0, time.monotonic(), AWAITING_REPLY
        self._checked = self._lost = False

    def _settle(self) -> None:
        """The server answers, and what it takes is known: all may ask."""
        self._settled = True
        self._may_start.set()

    @property
    def _has_answered(self) -> bool:
        return self._settled or self.worked is not None

    @property
    def _silent_since(self) -> float:
        """When the server last answered, or was first asked."""
        return max(self._began, self._alive_at)

    async def _scored(self, request: Request, messages: Messages) -> Response | None:
        """The response to a request whose options the server scores by their tokens; None for any other request.

        Raises BadInput if the method needs that and the server cannot do it; ServerFailure, Refusal.
        """
        if not request.candidates or self._token_scores is None:
            return None
        lacks = await self._token_scores.lacks(request)
        if lacks is None:
            if self._token_scores.begins_reasoning:
                self.deviate(SCORED_IN_REASONING)
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

    async def _still_answers(self, request: Request) -> bool:
        """True if the server answers a question that was answered before, asked again, or else one of a few drawn ones, which are asked
        as `request` is. The drawn ones together have the time of one answer."""
        since = time.monotonic()
        async with self._alone:
            if self._alive_at > since:
                return True  # it was answered while this check waited for another one
            example = self.worked or request
            self._checks += PROBE_COUNT
            drawn = [
                _probe_request(example, self._checks - number, bool(example.images)) for number in range(PROBE_COUNT)
            ]
            for question in [self.worked, *drawn] if self.worked else drawn:
                share = 1 if question is self.worked else PROBE_COUNT
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.settings.timeout / share):
                        if await self._aside(question) is not None:
                            self._answered()
                            self._checked = True
                            self._settle()
                            return True
            return False

    async def _aside(self, question: Request) -> Reply | None:
        """The reply to a question that is none of the run's, or was answered before: an empty one where it is refused, None where it
        fails."""
        try:
            messages = await asyncio.to_thread(build_messages, question, self.settings.max_image_side)
            reply = await self._reply_to(question, messages)
        except ServerFailure:
            return None
        except Refusal:
            return Reply("", None, None, {}, None)
        self._pay(reply)
        return reply

    def _gone(self) -> BadInput:
        """The one line about a server that answers nothing, or nothing any more."""
        kept = " Every answer so far is kept; run the same command again to resume." if self.worked else ""
        if self._meaning:
            return BadInput(f"{self.called}: {self._meaning}{kept}")
        if self.worked is not None:
            return BadInput(f"{self.called}: the server does not answer ({self._trouble}).{kept}")
        return BadInput(
            f"{self.called}: the server answers no question: {self._trouble}. Its address is {self.base_url} (--base-url), which mostly "
            "ends in /v1."
        )

    async def _look_at_a_picture(self, request: Request) -> None:
        """Ask about a drawn picture with and without it, and say where that changes neither the answer nor the tokens read: some servers
        drop images in silence. Where tokens are not counted, or a question fails, nothing is concluded."""
        asked = replace(_probe_request(request), prompt=IMAGE_PROBE_PROMPT)
        shown, withheld = [await self._aside(replace(asked, image=image)) for image in (_probe_picture(), None)]
        if not (shown and withheld and shown.usage and withheld.usage and withheld.usage[0] and shown.text.strip()):
            return
        if shown.usage[0] <= withheld.usage[0] and shown.text == withheld.text:
            self.deviate(DROPS_IMAGES)
            tqdm.write(f"{self.called}: {DROPS_IMAGES}", file=sys.stderr)

    async def _once(self, request: Request, messages: Messages, form: RequestForm | None = None) -> Reply:
        """Send one question as questions are sent now, or in another form. Raises Refusal or ServerFailure."""
        sent = self.parameters.of(request, form)
        return parse_chat_reply(
            await self._document(messages, sent), sent.get((form or self.parameters.form).limit_name)
        )

    async def _document(self, messages: Messages, sent: dict[str, Any]) -> Any:
        """The JSON of a reply. Raises Refusal or ServerFailure."""
        return await self._post("/chat/completions", {"model": self.name, **sent, "messages": messages})

    async def _post(self, name: str, body: dict[str, Any]) -> Any:
        """The JSON of an endpoint, which stands beside /v1 unless its name begins with a slash. Raises ServerFailure or Refusal."""
        url = name if name.startswith("/") else f"{self.base_url.removesuffix('/v1')}/{name}"
        # A server that has been silent for long is given the time of one answer.
        left = self._silent_since + self._patience - time.monotonic()
        return await post(self._client, url, body, max(left, 0.0) + self.settings.timeout)

    async def _told_from_reasoning(self, request: Request, reply: Reply) -> Reply:
        """The reply, its text as reasoning where the limit cut it and the model is known to reason: chat templates may open the reasoning,
        so that the text holds its end alone, or nothing of it when cut. Whether the model does that is asked with the first cut reply."""
        if reply.reasoning is not None:
            self.reasons = True
        if not reply.shows_no_end:
            return reply
        async with self._alone:
            if self.reasons is None:
                aside = await self._aside(_probe_request(request))
                self.reasons = aside is not None and aside.reasoning is not None
        if self.reasons and request.candidates:
            self.deviate("options were scored where the model begins to reason")
        return reply.as_reasoning() if self.reasons and not request.candidates else reply

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
        if reply.reasoning and not reply.text.strip() and response.finish_reason == "stop":
            self.deviate(ONLY_REASONING)
        if not request.candidates:
            return response
        if not reply.alternatives:
            why = f"the server of openai:{self.name} gives no log-probabilities"
            if self._settled:
                return replace(response, text="", status="failed", error=why)
            raise BadInput(f"--method gd: {why}. Use --method mc.")
        found = [candidate_logprob(candidate, reply.alternatives) for candidate in request.candidates]
        if all(value is None for value in found):
            return response
        if any(value is None for value in found):
            self.deviate(
                f"the server gives only {len(reply.alternatives)} alternatives of a token; an option that is not among them "
                "counts as less likely than all of them"
            )
        below = min(reply.alternatives.values())
        best = response_from_scores(request, [below - 1 if value is None else value for value in found])
        # The one token that was asked for is always cut by its limit; the option is no less chosen for that.
        return replace(response, text=best.text, scores=best.scores, finish_reason=None)

    def describe(self) -> dict[str, Any]:
        host = "default" if self.base_url == OPENAI_URL else urlsplit(self.base_url).netloc.rpartition("@")[2]
        settled = self.parameters.describe() if self._settled else {}
        if self._token_scores is not None:
            settled["options_scored_by"] = "their tokens" if self._token_scores.can_score else "alternatives of a token"
        return {"server": host, **settled}


def _probe_request(request: Request, number: int = 1, shown: bool = False) -> Request:
    """A question that any model can answer in a few words, asked as `request` is, perhaps with a drawn picture."""
    image = _probe_picture() if shown else None
    asked = replace(request, prompt=PROBE_PROMPT.format(number), max_tokens=PROBE_TOKENS, candidates=())
    return replace(asked, image=image, more_images=(), shots=())


@lru_cache(maxsize=1)
def _probe_picture() -> bytes:
    """A PNG with a number written into it."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (336, 168), "white")
    ImageDraw.Draw(image).text((60, 40), IMAGE_PROBE_NUMBER, fill="black", font=ImageFont.load_default(84))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _add_usage(usage: tuple[int, int] | None, more: tuple[int, int]) -> tuple[int, int]:
    return (usage[0] + more[0], usage[1] + more[1]) if usage else more


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
