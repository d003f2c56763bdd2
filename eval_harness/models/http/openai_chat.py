"""Back end for servers with OpenAI's chat completions, with many concurrent questions.

Works with OpenAI, Azure, vLLM, SGLang, TGI and `transformers serve`. A server is judged by what it
does, not by what it says. Until it has answered a first question, only one is in flight: with that
one, trial and error finds which parameters the server supports (`chat_requests.py`), and they
apply to all others. The openai client retries a question; while the server is busy or unreachable,
the question is sent again until `--wait-server` has passed. Before an error ends the run, a
question that was answered earlier is sent again, or else a made-up one. See also: the client
(`chat_client.py`), messages and parameters (`chat_requests.py`), replies and errors
(`replies.py`).
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tqdm import tqdm

from dataset_builders.errors import BadInput
from eval_harness.models.answer_tokens import SCORED_IN_REASONING, NotScorable, response_from_scores
from eval_harness.models.http.chat_client import AZURE_PREFIX, OPENAI_URL, in_background, open_client, post
from eval_harness.models.http.chat_requests import (
    IMAGE_PROBE_PROMPT,
    Messages,
    Parameters,
    RequestForm,
    build_messages,
    probe_picture,
    probe_request,
)
from eval_harness.models.http.replies import (
    Refusal,
    Reply,
    ServerFailure,
    candidate_logprob,
    parse_chat_reply,
    redact_keys,
)
from eval_harness.models.http.token_scores import TokenScores
from eval_harness.models.interface import Backend, Settings
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

if TYPE_CHECKING:
    from openai import AsyncOpenAI

GIVE_UP_AFTER = 10
"""Consecutive failures after a passed check before the server is checked again."""
PROBE_COUNT = 3
"""Number of made-up questions in a check.

Also the number of failures after which a server that has never answered is given up.
"""

DEFAULT_WAIT_S = 600.0
"""Seconds to wait for a server that does not answer (`--wait-server`)."""

REPORT_INTERVAL_S = 10.0
"""Seconds without an answer before a line is printed about it."""

DRAIN_TIMEOUT_S = 5.0
"""Seconds to wait for replies in flight when a run ends in an error: they are paid for already."""

QueuedRequest = tuple[Request, Messages | Exception]
"""A request with its messages, or with the exception that kept its image from being shown."""
AWAITING_REPLY = "its reply is awaited"
DROPS_IMAGES = (
    "the server seems to drop images: a drawn picture changed neither its answer nor the number of tokens it read"
)
ONLY_REASONING = (
    "the server returns whole answers as reasoning, which is not read: its reasoning parser does not match the model "
    "(vLLM: --reasoning-parser)"
)
REASONING_USES_LIMIT = "the model spends its first output tokens on reasoning"


class OpenAIChat(Backend):
    """A model behind a server.

    The key is read from OPENAI_API_KEY (AZURE_OPENAI_API_KEY); it is sent to the server and never
    written anywhere.
    """

    several_images = True
    is_local = False
    uses_http = True
    takes_stream = True
    options: tuple[str, ...] = ("thinking", "chat_template", "chat_template_kwargs", "generation")
    first_wait = 1.0
    """Delay in seconds before a question is sent again to a server that is busy or gone."""

    def __init__(self, name: str, settings: Settings, label: str | None = None, key: str | None = None) -> None:
        """Set up the client; nothing is sent yet.

        Args:
            name: Name of the model, as the server calls it, or `azure:NAME` for a deployment of
                Azure OpenAI.
            settings: Address, timeouts and generation options.
            label: How error messages refer to the model (default: `--model openai:NAME`).
            key: Key of the server (default: from the environment).

        Raises:
            BadInput: If the name is empty, the address is invalid, or a remote server would be
                asked without a key.
        """
        self.name = name.removeprefix(AZURE_PREFIX)
        kind = "azure" if name.startswith(AZURE_PREFIX) else "openai"
        if not self.name:
            raise BadInput(f"--model {kind}: the name is missing. Give {kind}:NAME, as the server calls the model.")
        self.label = label or f"--model {kind}:{self.name}"
        self._open: Callable[[], AsyncOpenAI] = lambda: open_client(name, settings, self.label, key)
        client = self._open()
        self.base_url = str(client.base_url).rstrip("/")
        self._key = client.api_key
        self.settings = settings
        self._patience = DEFAULT_WAIT_S if settings.wait_server is None else settings.wait_server
        self.model = Model(name=self.name)
        self.deviations: list[str] = []
        self._title = self.label.partition(" ")[2]
        self.parameters = Parameters(self._title, self.base_url, settings, self.deviate)

        self.answered_request: Request | None = None
        """A request that the server has answered, now or in an earlier part of the run."""
        self.probe_images = False
        """True to test once, after the first answer, whether the server sees images."""
        self.reasons: bool | None = None
        """Whether the model reasons before it answers; None: unknown so far."""
        self._settled = False  # True once the server has answered, so that its parameters are known
        self._failures = 0
        self._checked = self._lost = False  # since the last answer: a check was made; the last one failed
        # Tokens in and out of probes and discarded replies; they are added to the next response.
        self._paid = (0, 0)
        self._token_scores: TokenScores | None = None

        # State of the running call, which has its own event loop.
        self._client, self._check_lock, self._may_start = client, asyncio.Lock(), asyncio.Event()
        self._alive_at = self._began = 0.0  # time.monotonic(); 0: never
        self._trouble, self._meaning = AWAITING_REPLY, ""

    def generate(self, requests: Iterable[Request]) -> Iterator[Response]:
        """Yield answers as they arrive, in any order.

        A request is taken when one of the `in_flight` places is free. A filter's refusal is
        `refused`; a question that fails after all attempts is `failed`.

        Args:
            requests: The requests; may be consumed from another thread.

        Yields:
            One response per request.

        Raises:
            BadInput: If the server cannot be reached, rejects the key or the model, or stops
                answering.
        """
        return in_background(lambda emit: self._ask_all(requests, emit))

    def score(self, requests: Iterable[Request]) -> Iterator[Response]:
        """Score each request's candidates.

        Uses the log-probabilities of the options' own tokens if the server returns them
        (`token_scores.py`); otherwise `gd` uses the alternatives of the first token.

        Args:
            requests: Requests with candidates.

        Yields:
            One response with scores per request, in any order.

        Raises:
            BadInput: If the server supports neither; raised before a question is sent.
        """
        self._token_scores = self._token_scores or TokenScores(self.name, self.chat, self._post)
        return self.generate(requests)

    async def chat(self, messages: Messages, extra: dict[str, Any]) -> dict[str, Any]:
        """Request a chat completion for `token_scores.py`.

        Args:
            messages: The conversation.
            extra: Parameters in addition to those of `Parameters.for_scoring`.

        Returns:
            The reply's JSON.

        Raises:
            ServerFailure: If there is no chat completion.
            Refusal: If a filter or the model withheld it.
        """
        parameters = self.parameters.for_scoring(extra)
        document: dict[str, Any] = await self._post("/chat/completions", {**parameters, "messages": messages})
        parse_chat_reply(document)  # raises if it is not a chat completion
        self._alive_at = time.monotonic()
        return document

    async def _ask_all(self, requests: Iterable[Request], emit: Callable[[Response], None]) -> None:
        """Ask up to `in_flight` questions at a time; only one until the server has answered."""
        waiting, queue_lock, stopping = iter(requests), asyncio.Lock(), False
        self._check_lock, self._may_start, self._failures = asyncio.Lock(), asyncio.Event(), 0
        self._checked, self._lost, self._began = False, False, time.monotonic()
        if self._settled:
            self._may_start.set()

        async def take() -> QueuedRequest | None:
            async with queue_lock:
                return None if stopping else await asyncio.to_thread(self._next, waiting)

        async def work(is_first_worker: bool) -> None:
            upcoming = asyncio.create_task(take())
            try:
                if not is_first_worker:
                    await self._may_start.wait()
                while (queued := await upcoming) is not None:
                    upcoming = asyncio.create_task(take())  # prepares the next request meanwhile
                    emit(await self._timed(queued))
            finally:
                upcoming.cancel()
                await asyncio.gather(upcoming, return_exceptions=True)
            # The first worker may run out of questions without any answer: the others must end,
            # too.
            self._may_start.set()

        async with self._open() as self._client:
            # Worker 0 starts at once and settles the parameters; the others wait for it.
            workers = {asyncio.create_task(work(not number)) for number in range(self.settings.in_flight)}
            reporting = asyncio.create_task(self._report())
            try:
                done, in_flight = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
                stopping = True
                if in_flight and self._settled:
                    await asyncio.wait(in_flight, timeout=DRAIN_TIMEOUT_S)
            finally:
                for task in (reporting, *workers):
                    task.cancel()
                await asyncio.gather(reporting, *workers, return_exceptions=True)
            for worker in done:
                worker.result()  # raises the error that stopped the run
            if self._lost:
                raise self._gone()

    async def _report(self) -> None:
        """Print a line from time to time while no answers arrive."""
        reported_at = self._began
        while True:
            await asyncio.sleep(REPORT_INTERVAL_S / 10)
            since = self._silent_since
            if time.monotonic() - max(since, reported_at) >= REPORT_INTERVAL_S:
                reported_at = time.monotonic()
                line = f"no answer from {self.base_url} for {reported_at - since:.0f} s; giving up after {self._patience:.0f} s"
                tqdm.write(f"{self.label}: {line} ({self._trouble})", file=sys.stderr)

    def _next(self, waiting: Iterator[Request]) -> QueuedRequest | None:
        """Take the next request and build its messages.

        Returns the exception in their place if an image cannot be shown; None if no request is
        left.
        """
        request = next(waiting, None)
        if request is None:
            return None
        try:
            return request, build_messages(request, self.settings.max_image_side)
        except Exception as error:  # a decoder may raise anything on a damaged image
            return request, error

    async def _timed(self, queued: QueuedRequest) -> Response:
        start = time.perf_counter()
        response = await self._ask(*queued)
        usage = response.usage
        # The run's cost is computed from the responses' usage, so add the tokens of probes there.
        if any(self._paid):
            usage, self._paid = _add_usage(usage, self._paid), (0, 0)
        return replace(response, usage=usage, seconds=round(time.perf_counter() - start, 4))

    async def _ask(self, request: Request, messages: Messages | Exception) -> Response:
        """Ask one question until it is answered, refused, or has failed. Raises BadInput."""
        failed = Response(request.question_id, request.sample, "", "failed")
        if isinstance(messages, Exception):
            return replace(failed, error=f"its image cannot be shown: {messages}")
        deadline = self._silent_since + self._patience
        while True:
            try:
                response = await self._response_to(request, messages)
                self._record_sign_of_life()
                self.answered_request = self.answered_request or request
                self._settle()
                if self.probe_images:
                    self.probe_images = False
                    await self._test_images(request)
                return response
            except Refusal as refusal:
                self._record_sign_of_life()
                return replace(failed, status="refused", error=redact_keys(str(refusal), self._key))
            except ServerFailure as failure:
                self._trouble, self._meaning = (
                    redact_keys(text, self._key) for text in (str(failure), failure.meaning)
                )
                may_recover = failure.kind in ("wait", "unreachable")
                if failure.kind == "unreachable" and not self._has_answered and self.settings.wait_server is None:
                    raise BadInput(
                        f"--base-url {self.base_url}: no server can be reached: {self._trouble}. Start it (--wait-server SECONDS "
                        "waits for it), or check the address."
                    ) from None
                if may_recover and time.monotonic() < deadline:
                    await asyncio.sleep(min(self.first_wait, self._patience))
                    continue
                error = self._trouble
                self._failures += 1
                await self._check(request, failure)
                return replace(failed, error=error)

    async def _check(self, request: Request, failure: ServerFailure) -> None:
        """After a failure, check whether the server still answers another question.

        Checked once in a series of failures, and again after `GIVE_UP_AFTER` more. Raises BadInput
        if the server does not answer.
        """
        is_quick = failure.kind in ("again", "question")
        # A server that has not answered yet may be rejecting only the first few questions.
        enough = PROBE_COUNT if is_quick else 1
        may_be_the_question = is_quick and self._has_answered and not failure.meaning
        due = enough if self._lost else GIVE_UP_AFTER if self._checked else PROBE_COUNT if may_be_the_question else 1
        if self._failures < due or await self._still_answers(request):
            return
        if self.answered_request is not None or self._failures >= enough:
            raise self._gone()
        # A failure of unknown cause may concern only the first few questions: ask some more.
        self._lost = bool(failure.meaning)

    async def _response_to(self, request: Request, messages: Messages) -> Response:
        """Ask one question in the form that the server accepts.

        Raises ServerFailure, Refusal or BadInput.
        """
        scored = await self._scored(request, messages)
        if scored is not None:
            return scored
        while True:
            limit = self.parameters.limit(request)
            reply = await self._separate_reasoning(request, await self._reply_to(request, messages))
            if reply.was_cut and self.parameters.allow_thinking(request, REASONING_USES_LIMIT, limit):
                self._pay(reply)
                continue
            if not self._settled:
                self._check_reasoning(reply)
                if reply.reasoning:
                    self.parameters.allow_thinking(request, REASONING_USES_LIMIT, limit)
            return self._response(request, reply)

    async def _reply_to(self, request: Request, messages: Messages) -> Reply:
        """Send a question; if it is rejected, try other forms. Raises ServerFailure or Refusal."""
        form = self.parameters.form
        try:
            reply = await self._send(request, messages, form)
        except ServerFailure as failure:
            if failure.status not in (400, 422):  # it rejected no parameter
                raise
            send = partial(self._send, request, messages)
            success = await self.parameters.find_form(request, send, not self._settled, self._pay)
            if success is None:
                raise
            form, reply = success
            self.parameters.adopt(form)
        self.parameters.record_success(request, form)
        return reply

    def _pay(self, reply: Reply) -> None:
        """Count the tokens of a reply that answers no question of the run."""
        self._paid = _add_usage(reply.usage, self._paid)

    def _record_sign_of_life(self) -> None:
        """Reset the failure state: the server has responded to a question."""
        self._failures, self._alive_at, self._trouble = 0, time.monotonic(), AWAITING_REPLY
        self._checked = self._lost = False

    def _settle(self) -> None:
        """Let all workers start: the server answers, and its parameters are known."""
        self._settled = True
        self._may_start.set()

    @property
    def _has_answered(self) -> bool:
        return self._settled or self.answered_request is not None

    @property
    def _silent_since(self) -> float:
        """Time of the server's last answer, or of the first question."""
        return max(self._began, self._alive_at)

    async def _scored(self, request: Request, messages: Messages) -> Response | None:
        """Score a request's options by their tokens; None if that is not the way for this request.

        Raises ServerFailure, Refusal, or BadInput if the method needs token scores and the server
        does not support them.
        """
        if not request.candidates or self._token_scores is None:
            return None
        missing = await self._token_scores.missing_capability(request)
        if missing is None:
            if self._token_scores.begins_reasoning:
                self.deviate(SCORED_IN_REASONING)
            try:
                return await self._token_scores.score(request, messages)
            except NotScorable as error:
                raise ServerFailure(str(error), "question") from None
        if request.scoring == "next_token":
            return None
        raise BadInput(
            f"--method ps, ps_official: the server of {self._title} cannot score options: {missing}. vLLM's server can; elsewhere "
            "use --method mc, gd or ff."
        )

    async def _still_answers(self, request: Request) -> bool:
        """Check whether the server still answers.

        Sends a question that was answered before, if there is one, then a few made-up ones in the
        form of `request`, until one is answered. The made-up ones share the timeout of one answer.
        """
        since = time.monotonic()
        async with self._check_lock:
            if self._alive_at > since:
                return True  # another check, or a question, got an answer while this one waited
            example = self.answered_request or request
            probes = [probe_request(example, number, bool(example.images)) for number in range(1, PROBE_COUNT + 1)]
            for question in [self.answered_request, *probes] if self.answered_request else probes:
                timeout_divisor = 1 if question is self.answered_request else PROBE_COUNT
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.settings.timeout / timeout_divisor):
                        if await self._probe(question) is not None:
                            self._record_sign_of_life()
                            self._checked = True
                            self._settle()
                            return True
            return False

    async def _probe(self, question: Request) -> Reply | None:
        """Send a question that is not part of the run.

        Returns its reply; an empty one if it is refused; None if it fails.
        """
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
        """Make the error for a server that never answered or stopped answering."""
        hint = " Every answer so far is kept; run the same command again to resume." if self.answered_request else ""
        if self._meaning:
            return BadInput(f"{self.label}: {self._meaning}{hint}")
        if self.answered_request is not None:
            return BadInput(f"{self.label}: the server does not answer ({self._trouble}).{hint}")
        return BadInput(
            f"{self.label}: the server does not answer any question: {self._trouble}. Its address is {self.base_url} "
            "(--base-url), which usually ends in /v1."
        )

    async def _test_images(self, request: Request) -> None:
        """Ask about a drawn picture with and without it, because some servers silently drop images.

        Records a deviation if neither the answer nor the number of tokens read differs. Draws no
        conclusion if tokens are not counted or a question fails.
        """
        question = replace(probe_request(request), prompt=IMAGE_PROBE_PROMPT)
        with_image, without_image = [
            await self._probe(replace(question, image=image)) for image in (probe_picture(), None)
        ]
        if not (with_image and without_image and with_image.usage and without_image.usage) or not (
            without_image.usage[0] and with_image.text.strip()
        ):
            return
        if with_image.usage[0] <= without_image.usage[0] and with_image.text == without_image.text:
            self.deviate(DROPS_IMAGES)
            tqdm.write(f"{self.label}: {DROPS_IMAGES}", file=sys.stderr)

    async def _send(self, request: Request, messages: Messages, form: RequestForm | None = None) -> Reply:
        """Send a question, in the current form or another one. Raises Refusal or ServerFailure."""
        parameters = self.parameters.for_request(request, form)
        document = await self._post("/chat/completions", {**parameters, "messages": messages})
        return parse_chat_reply(document, parameters.get((form or self.parameters.form).limit_name))

    async def _post(self, name: str, body: dict[str, Any]) -> Any:
        """Return the JSON reply of an endpoint to a body, to which the model's name is added.

        A name that begins with a slash is below /v1, any other next to it. Raises ServerFailure or
        Refusal.
        """
        url = name if name.startswith("/") else f"{self.base_url.removesuffix('/v1')}/{name}"
        # Even a server that has been silent for too long gets the time of one answer.
        remaining_s = self._silent_since + self._patience - time.monotonic()
        timeout = max(remaining_s, 0.0) + self.settings.timeout
        return await post(self._client, url, {"model": self.name, **body}, timeout)

    async def _separate_reasoning(self, request: Request, reply: Reply) -> Reply:
        """Treat a text cut by the output limit as reasoning if the model is known to reason.

        Chat templates may open the reasoning themselves. The text then contains only the mark that
        ends reasoning, or no mark at all if it was cut earlier. Whether the model reasons is tested
        when the first such reply arrives.
        """
        if reply.reasoning is not None:
            self.reasons = True
        if not reply.is_cut_unmarked_text:
            return reply
        async with self._check_lock:
            # Another question may have settled it while this one waited for the lock.
            if self.reasons is None:
                probe_reply = await self._probe(probe_request(request))
                self.reasons = probe_reply is not None and probe_reply.reasoning is not None
        if self.reasons and request.candidates:
            self.deviate("options were scored where the model begins to reason")
        return reply.as_reasoning() if self.reasons and not request.candidates else reply

    def _check_reasoning(self, reply: Reply) -> None:
        """Report if the first answer shows reasoning contrary to `--thinking`."""
        reasons = bool(reply.reasoning or reply.reasoning_tokens)
        thinking = self.settings.thinking
        if thinking == "off" and reasons:
            self.deviate("the model reasoned before its first answer although reasoning was switched off")
        elif thinking not in (None, "off") and not reasons:
            self.deviate("the first answer shows no reasoning although it was requested")

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
            why = f"the server of {self._title} returns no log-probabilities"
            if self._settled:
                return replace(response, text="", status="failed", error=why)
            raise BadInput(f"--method gd: {why}. Use --method mc.")

        logprobs = [candidate_logprob(candidate, reply.alternatives) for candidate in request.candidates]
        if all(logprob is None for logprob in logprobs):
            return response
        if any(logprob is None for logprob in logprobs):
            self.deviate(
                f"the server returns only {len(reply.alternatives)} alternatives of a token; an option that is not among "
                "them counts as less likely than all of them"
            )
        lowest = min(reply.alternatives.values())
        best = response_from_scores(request, [lowest - 1 if logprob is None else logprob for logprob in logprobs])
        # Only one token was requested, so the reply is always cut; the choice is valid all the
        # same.
        return replace(response, text=best.text, scores=best.scores, finish_reason=None)

    def describe(self) -> dict[str, Any]:
        host = "default" if self.base_url == OPENAI_URL else urlsplit(self.base_url).netloc.rpartition("@")[2]
        negotiated = self.parameters.describe() if self._settled else {}
        if self._token_scores is not None:
            negotiated["options_scored_by"] = (
                "their tokens" if self._token_scores.can_score else "alternatives of a token"
            )
        return {"server": host, **negotiated}


def _add_usage(usage: tuple[int, int] | None, total: tuple[int, int]) -> tuple[int, int]:
    return (usage[0] + total[0], usage[1] + total[1]) if usage else total
