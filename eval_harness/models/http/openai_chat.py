"""Any server that speaks OpenAI's chat completions (OpenAI, vLLM, SGLang, TGI, `transformers serve`), many questions at a time.

The first question is asked alone, until the server has answered it: what it takes is settled then (`chat_parameters.py`) and stays so for
the others. See also: messages (`chat_messages.py`), what a reply says (`chat_replies.py`), what an error means (`server_errors.py`), how
many are in flight (`in_flight.py`).
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from urllib3.exceptions import HTTPError

from dataset_builders.errors import BadInput
from dataset_builders.images.lookup import ImageError
from eval_harness.models.http.chat_messages import messages_of
from eval_harness.models.http.chat_parameters import Parameters
from eval_harness.models.http.chat_replies import Reply, of_candidate, read_reply
from eval_harness.models.http.in_flight import InFlight, Stopped, in_threads
from eval_harness.models.http.posting import Address, is_local, server_address
from eval_harness.models.http.sending import PROVIDER
from eval_harness.models.http.server_errors import (
    Refusal,
    ServerFailure,
    failure_of,
    failure_of_status,
    without_key,
    words_of,
)
from eval_harness.models.http.token_scores import Answer, TokenScores
from eval_harness.models.interface import Backend, Settings, chosen
from eval_harness.models.option_tokens import BEGUN_REASONING
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

TRIES = 8
"""How often one question is sent before it counts as failed (it is asked again when the run is resumed)."""

BUSY_TRIES = 30
"""The same for replies that say no more than that the server is busy."""

TRIES_OF_A_STRANGER = 3
"""How often something that is no reply of a chat server is tried before the first answer came."""

GIVE_UP_AFTER = 3
"""So many questions failing after all their tries, with no answer in between, mean that the server is gone."""

START_TIMEOUT = 2.0
"""Seconds for which a server that nobody ever reached is tried."""

PROBE, PROBE_TOKENS = "What is 1 + 1? Answer with the number alone.", 1024
REASONS = "the model spends its first output tokens on reasoning"


class OpenAIChat(Backend):
    """A model behind a server. The key is read from OPENAI_API_KEY, sent, and written nowhere."""

    needs_images = True
    several_images = True
    one_token = True
    is_api = True
    takes_stream = True
    options = ("thinking", "chat_template", "chat_template_kwargs", "generation")

    def __init__(self, name: str, settings: Settings, called: str | None = None) -> None:
        """`called`: what messages call it, if not `--model openai:NAME`.

        Raises BadInput when no name is given, the address is none, or a server elsewhere is to be asked without a key.
        """
        if not name:
            raise BadInput("--model openai: names no model. Give openai:NAME, as the server calls it.")
        self.name = name
        self.called = called or f"--model openai:{name}"
        self.base_url = server_address(settings.base_url or os.environ.get("OPENAI_BASE_URL") or None)
        self._key = os.environ.get("OPENAI_API_KEY", "").strip()
        if not self._key and not is_local(self.base_url):
            raise BadInput(
                f"{self.called}: OPENAI_API_KEY is not set. Set it to your key, or name a server on this machine with "
                "--base-url http://127.0.0.1:8000/v1."
            )
        if not re.fullmatch(r"[!-~]*", self._key):
            raise BadInput("OPENAI_API_KEY: holds characters that no key has. Set it to the key and nothing else.")
        self.settings = settings
        self.model = Model(name=name)
        self.deviations: list[str] = []
        self.parameters = Parameters(name, self.base_url, settings, self.deviations)
        self.first_wait = 1.0
        """Seconds before the second try; doubles with each further one, up to a minute."""
        self.retries = 0
        self._settled = False
        self._probing = threading.Lock()
        self.reasons: bool | None = None
        """Whether the model is seen to reason before it answers; None: nothing tells yet."""
        self._any_answer = False
        self._failures = 0
        self._token_scores: TokenScores | None = None

    def generate(self, requests: Iterable[Request]) -> Iterator[Response]:
        """Answers as they come, in any order; requests are taken as there is room for them in flight. A filter's refusal is `refused`;
        what fails after all tries is `failed`.

        Raises BadInput when the server cannot be reached, refuses the key or the model, or has gone.
        """
        return self._ask_all(requests)

    def score(self, requests: Iterable[Request]) -> Iterator[Response]:
        """By the log-probabilities of the options' own tokens, where the server gives them (`token_scores.py`); elsewhere `gd` by the
        alternatives of the first token.

        Raises BadInput where the server can do neither, before a question is sent.
        """
        self._token_scores = self._token_scores or self._make_token_scores()
        return self._ask_all(requests)

    def _make_token_scores(self) -> TokenScores:
        server = self._server()
        root = (self.base_url or PROVIDER).removesuffix("/v1")

        def chat(messages: bytes, more: dict[str, Any]) -> dict[str, Any]:
            document: dict[str, Any] = self._document(server, messages, self.parameters.of_scoring(more))
            read_reply(document)  # raises for what is none
            self._any_answer = True
            return document

        return TokenScores(self.name, chat, self._server(f"{root}/tokenize"), self._server(f"{root}/detokenize"))

    def _ask_all(self, requests: Iterable[Request]) -> Iterator[Response]:
        """The first questions one by one, then as many at a time as may be in flight."""
        waiting, flight, server = iter(requests), InFlight(self.settings.in_flight), self._server()
        if not self._settled:
            yield from self._settle(waiting, server, flight)
        yield from in_threads(flight, waiting, lambda request: self._timed(request, server, flight))

    def _server(self, url: str | None = None) -> Address:
        """An address of the server; None: where chat completions are asked for."""
        headers = {"Authorization": f"Bearer {self._key or 'none'}"}
        for name, variable in (("OpenAI-Organization", "OPENAI_ORG_ID"), ("OpenAI-Project", "OPENAI_PROJECT_ID")):
            if value := os.environ.get(variable):
                headers[name] = value
        return Address(url or f"{self.base_url or PROVIDER}/chat/completions", headers, self.settings.timeout)

    def _settle(self, requests: Iterator[Request], server: Address, flight: InFlight) -> Iterator[Response]:
        """Ask the first questions one by one until one is answered; each is asked until the server takes what it is sent.

        Raises BadInput when the first few all fail.
        """
        failed = 0
        for number, request in enumerate(requests, 1):
            response = self._timed(request, server, flight)
            yield response
            failed += response.status == "failed"
            if response.status == "answered" or (number >= GIVE_UP_AFTER and failed < number):
                break
            if failed >= GIVE_UP_AFTER:
                raise BadInput(f"{self.called}: the server refuses every question: {response.error}")
        self._settled = True

    def _timed(self, request: Request, server: Address, flight: InFlight) -> Response:
        start = time.perf_counter()
        response = self._ask(request, server, flight)
        return replace(response, seconds=round(time.perf_counter() - start, 4))

    def _ask(self, request: Request, server: Address, flight: InFlight) -> Response:
        """One question, tried until it is answered, refused, or has failed too often. Raises Stopped, BadInput."""
        start = time.monotonic()
        failed = Response(request.question_id, request.sample, "", "failed")
        try:
            messages = messages_of(request, self.settings.max_image_side)
        except ImageError as error:
            return replace(failed, error=f"its image cannot be shown: {error}")
        tries = busy = done = 0
        read: dict[str, Answer] = {}
        while True:
            limit, sent = self.parameters.limit(request), self.parameters.of(request)
            try:
                with flight.one():
                    scored = self._scored(request, messages, read)
                    if scored is None:
                        reply = self._once(server, messages, sent)
                if scored is not None:
                    self._answered(flight)
                    return scored
                reply = self._told_from_reasoning(server, request, reply)
                if reply.was_cut and self.parameters.allow_thinking(request, REASONS, limit):
                    continue
                if not self._settled:
                    self._look_for_reasoning(reply)
                    if reply.reasoning:
                        self.parameters.allow_thinking(request, REASONS, limit)
                self._answered(flight)
                return self._response(request, reply)
            except Refusal as refusal:
                self._answered(flight)
                return replace(failed, status="refused", error=without_key(str(refusal), self._key))
            except ServerFailure as failure:
                if flight.stopped:
                    raise Stopped from None
                words = without_key(str(failure), self._key)
                if failure.kind == "fatal":
                    raise BadInput(f"{self.called}: {words}") from None
                if failure.kind == "cut" and self.parameters.allow_thinking(request, REASONS, limit):
                    continue
                if (not self._settled or failure.parameter == self.parameters.limit_name) and self.parameters.adjust(
                    failure, request, limit
                ):
                    continue
                if failure.kind == "cut":
                    return replace(failed, error=words, finish_reason="length")
                if failure.kind == "question":
                    return replace(failed, error=words)
                self._check_it_was_ever_there(failure, words, time.monotonic() - start, tries)
                self.retries += 1
                if len(read) > done:
                    tries, busy, done = 0, 0, len(read)
                if failure.kind == "busy":
                    busy += 1
                    flight.busy()
                else:
                    tries += 1
                if tries >= TRIES or busy >= BUSY_TRIES:
                    self._count_failure(words)
                    return replace(failed, error=words)
                flight.wait(
                    max(tries, 1) if failure.kind != "busy" else busy, self._first_wait(failure), failure.retry_after
                )

    def _answered(self, flight: InFlight) -> None:
        self._any_answer, self._failures = True, 0
        flight.answered()

    def _scored(self, request: Request, messages: bytes, read: dict[str, Answer]) -> Response | None:
        """The response to a request whose options the server scores by their tokens; None for any other request. `read`: as there.

        Raises BadInput where the method needs that and the server cannot do it; ServerFailure, Refusal.
        """
        if not request.candidates or self._token_scores is None:
            return None
        lacks = self._token_scores.lacks(request)
        if lacks is None:
            if self._token_scores.begins_reasoning:
                self.parameters.deviate(BEGUN_REASONING)
            return self._token_scores.score(request, messages, read)
        if request.scoring == "next_token":
            return None
        raise BadInput(
            f"--method ps, ps_official: the server of openai:{self.name} cannot score options: {lacks}. vLLM's server can; elsewhere use "
            "--method mc, gd or ff."
        )

    def _first_wait(self, failure: ServerFailure) -> float:
        """A server that nobody reached yet is tried at short intervals, for a few seconds."""
        return min(self.first_wait, 0.5) if failure.kind == "unreachable" and not self._any_answer else self.first_wait

    def _check_it_was_ever_there(self, failure: ServerFailure, words: str, seconds: float, tries: int) -> None:
        """Raise BadInput where nothing suggests that a chat server is at this address; one that answered before is waited for."""
        if self._any_answer:
            return
        address = self.base_url or PROVIDER
        if failure.kind == "unreachable" and seconds >= START_TIMEOUT:
            raise BadInput(f"--base-url {address}: no server can be reached: {words}. Start it, or check the address.")
        if failure.kind == "unreadable" and tries + 1 >= TRIES_OF_A_STRANGER:
            raise BadInput(f"--base-url {address}: {words}. Give the address of a chat server; it mostly ends in /v1.")

    def _count_failure(self, words: str) -> None:
        """Raise BadInput when question after question fails with no answer in between."""
        self._failures += 1
        if self._failures >= GIVE_UP_AFTER:
            raise BadInput(
                f"{self.called}: the server has stopped answering ({words}). Every answer so far is kept; run the same "
                "command again to resume."
            )

    def _once(self, server: Address, messages: bytes, sent: dict[str, Any]) -> Reply:
        """Send one question. `messages`: as JSON. Raises Refusal or ServerFailure."""
        return read_reply(self._document(server, messages, sent), sent.get(self.parameters.limit_name))

    def _document(self, server: Address, messages: bytes, sent: dict[str, Any]) -> Any:
        """The JSON of a reply. Raises Refusal or ServerFailure."""
        others = json.dumps({"model": self.name, **sent}, ensure_ascii=False, allow_nan=False)
        try:
            posted = server.post(others[:-1].encode("utf-8", "replace") + b', "messages": ' + messages + b"}")
        except (TimeoutError, HTTPError) as error:
            raise failure_of(error) from None
        if not 200 <= posted.status < 300:
            raise failure_of_status(posted.status, posted.text, posted.headers, sent)
        try:
            return json.loads(posted.body)
        except ValueError as error:
            said = words_of(posted.text) if "html" in posted.headers.get("content-type", "") else str(error)
            raise ServerFailure(f"the server's reply is not a chat completion ({said})", "unreadable") from None

    def _told_from_reasoning(self, server: Address, request: Request, reply: Reply) -> Reply:
        """The reply, its text as reasoning where the limit cut it and the model is known to reason: chat templates may open the reasoning,
        so that the text holds its end alone, or nothing of it when cut. Whether the model does that is asked with the first cut reply."""
        if reply.reasoning is not None:
            self.reasons = True
        if not reply.shows_no_end:
            return reply
        with self._probing:
            if self.reasons is None:
                self.reasons = self._reasons_unseen(server, request)
        if self.reasons and request.candidates:
            self.parameters.deviate("options were scored where the model begins to reason")
        return reply.as_reasoning() if self.reasons and not request.candidates else reply

    def _reasons_unseen(self, server: Address, request: Request) -> bool:
        """Whether the model reasons before the answer to a question that anyone can answer in a few words."""
        probe = replace(
            request, prompt=PROBE, image=None, more_images=(), shots=(), candidates=(), max_tokens=PROBE_TOKENS
        )
        try:
            reply = self._once(server, messages_of(probe, None), self.parameters.of(probe))
        except (Refusal, ServerFailure):
            return False
        if reply.shows_no_end:
            self.parameters.deviate(
                f"answers were cut by the output limit, and one of {PROBE_TOKENS} tokens to a simple question too: whether they stop "
                "inside a reasoning cannot be told, so only what states an answer was read"
            )
        return reply.reasoning is not None

    def _look_for_reasoning(self, reply: Reply) -> None:
        """Say where the first answer shows that the reasoning is not as it was asked for."""
        reasons = bool(reply.reasoning or reply.reasoning_tokens)
        thinking = self.settings.thinking
        if thinking == "off" and reasons:
            self.parameters.deviate("the model reasoned before its first answer although it was asked not to")
        elif thinking not in (None, "off") and not reasons:
            self.parameters.deviate("the first answer shows no reasoning although it was asked for")

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
            raise BadInput(
                f"--method gd: the server of openai:{self.name} gives no log-probabilities. Use --method mc."
            )
        found = [of_candidate(candidate, reply.alternatives) for candidate in request.candidates]
        if all(value is None for value in found):
            return response
        if any(value is None for value in found):
            self.parameters.deviate(
                f"the server gives only {len(reply.alternatives)} alternatives of a token; an option that is not among them "
                "counts as less likely than all of them"
            )
        below = min(reply.alternatives.values())
        best = chosen(request, [below - 1 if value is None else value for value in found])
        # The one token that was asked for is always cut by its limit; the option is no less chosen for that.
        return replace(response, text=best.text, scores=best.scores, finish_reason=None)

    def describe(self) -> dict[str, Any]:
        host = urlsplit(self.base_url).netloc.rpartition("@")[2] if self.base_url else "default"
        settled = self.parameters.describe() if self._settled else {}
        if self._token_scores is not None:
            settled["options_scored_by"] = "their tokens" if self._token_scores.can_score else "alternatives of a token"
        return {"server": host, "retries": self.retries, **settled}
