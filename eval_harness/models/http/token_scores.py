"""Options scored by a server that gives the log-probabilities of named tokens and of a prompt's tokens, as vLLM's does.

`gd` and `ps_official` name the tokens (`logprob_token_ids`). `ps` puts each option after the prompt as the beginning of the assistant's
turn (`continue_final_message`) and reads `prompt_logprobs` there. A reply says which tokens it is about; a score is made of those that
belong to the option and of no others. Whether a server can do this is tried once, with a question that shows nothing.

See also: which tokens those are (`option_tokens.py`), servers that give the alternatives of a token only (`openai_chat.py`).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar

from eval_harness.models.http.chat_messages import build_messages, with_answer_start
from eval_harness.models.http.chat_replies import parse_usage
from eval_harness.models.http.server_errors import Refusal, ServerFailure, shorten
from eval_harness.models.interface import response_from_scores
from eval_harness.models.option_tokens import (
    Tokenize,
    candidate_first_tokens,
    continuation_ids,
    first_position_ids,
    first_position_scores,
)
from eval_harness.models.thinking import opens_reasoning
from eval_harness.records.request import Request, Response

PROBE_QUESTION, PROBE_OPTION = "Which side is shown?", "left"
"""Request that tests whether a server can score options."""

Messages = list[dict[str, Any]]
Target = TypeVar("Target")
Computed = TypeVar("Computed")
Ask = Callable[[Target, dict[str, Any]], Awaitable[Any]]
Usage = tuple[int, int] | None
"""Tokens in and out; None where the server does not say."""


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """A conversation with an answer begun: the token ids before the answer, and the log-probability of each of its own."""

    prompt: list[int]
    logprobs: list[float]
    usage: Usage


class TokenScores:
    """Scores options at one server. `chat` gives the document of the chat completion of messages and further parameters; `beside` that of
    the address of a name (`tokenize`, `detokenize`) beside /v1. Both raise ServerFailure or Refusal."""

    def __init__(self, model: str, chat: Ask[Messages], beside: Ask[str]) -> None:
        self.model = model
        self.begins_reasoning = False
        """True if the server's chat template begins the model's reasoning."""
        self._chat, self._post_beside = chat, beside
        self._known: dict[str, list[int]] = {}
        self._lacks: dict[bool, str | None] = {}
        self._space = self._lead = ""
        """The text the model writes before an answer; the text to send before an option so that the server renders the same."""

    async def lacks(self, request: Request) -> str | None:
        """The capability that the server lacks to score a request's options, or None. Raises ServerFailure if that is unknown yet."""
        by_sequence = request.scoring == "sequence"
        if by_sequence not in self._lacks:
            self._lacks[by_sequence] = await self._tried(by_sequence)
        return self._lacks[by_sequence]

    @property
    def can_score(self) -> bool:
        """True if the server was seen to score options by their tokens."""
        return None in self._lacks.values()

    async def score(self, request: Request, messages: Messages) -> Response:
        """The response to a request whose conversation is `messages`.

        Raises ServerFailure, also where a reply is about other tokens than asked for; NotScorable as `option_tokens.py`.
        """
        if request.scoring == "sequence":
            answers = [await self._read(messages, text, self._lead) for text in request.candidates]
            if any(answer.prompt != answers[0].prompt for answer in answers):
                raise ServerFailure("the server reads other tokens before one option than before another", "question")
            scores = [math.fsum(answer.logprobs) / len(answer.logprobs) for answer in answers]
            return response_from_scores(request, scores, usage=_sum_usage([answer.usage for answer in answers]))
        official = request.scoring == "sequence_official"
        if official:
            tokens = [await self._continuation(text) for text in request.candidates]
        else:
            tokens = await self._with_tokens(lambda tokenize: candidate_first_tokens(request, tokenize, self.model))
        logprobs, usage = await self._first_position(messages, tokens)
        return response_from_scores(request, first_position_scores(logprobs, tokens, official), usage=usage)

    async def _read(self, messages: Messages, option: str, lead: str) -> ScoredAnswer:
        """The conversation with an option begun as the answer, as the server reads it. `lead`: what is sent before the option."""
        document = await self._chat(
            with_answer_start(messages, lead + option),
            {"add_generation_prompt": False, "continue_final_message": True, "prompt_logprobs": 0},
        )
        ids = _token_ids(document.get("prompt_token_ids"))
        positions = document.get("prompt_logprobs")
        if ids is None or not isinstance(positions, list):
            raise ServerFailure(
                "the server gives no log-probabilities of a prompt's tokens (prompt_logprobs)", "question"
            )
        if len(positions) != len(ids):
            raise ServerFailure(
                f"log-probabilities came for {len(positions)} of {len(ids)} tokens of a prompt", "question"
            )
        tokens = await self._continuation(option)
        start = len(ids) - len(tokens)
        if start < 1 or ids[start:] != tokens:
            raise ServerFailure(
                f"the server reads the option {shorten(option)!r} as other tokens than it has after the prompt",
                "question",
            )
        logprobs = [_logprob(at, token) for at, token in zip(positions[start:], tokens, strict=True)]
        return ScoredAnswer(ids[:start], logprobs, parse_usage(document.get("usage")))

    async def _first_position(
        self, messages: Messages, tokens: Sequence[Sequence[int]]
    ) -> tuple[Mapping[int, float], Usage]:
        """Token id -> log-probability after the prompt, of all of `tokens`; and what was used."""
        wanted = first_position_ids(tokens)
        document = await self._chat(
            messages, {"logprobs": True, "logprob_token_ids": wanted, "return_tokens_as_token_ids": True}
        )
        found = _first_token_logprobs(document)
        if missing := [token for token in wanted if token not in found]:
            raise ServerFailure(
                f"the server gives no log-probability of {len(missing)} of the {len(wanted)} tokens asked for "
                "(logprob_token_ids)",
                "question",
            )
        return found, parse_usage(document.get("usage"))

    async def _tried(self, by_sequence: bool) -> str | None:
        """The capability that the server lacks, tested with a question without images; None if it has all of them."""
        request = Request("", 0, PROBE_QUESTION, None, (PROBE_OPTION,), "single", candidates=(PROBE_OPTION,))
        messages = build_messages(request, None)
        try:
            await self._tokens(PROBE_OPTION)  # first: most servers lack this, and are sent nothing else
            prompt = _token_ids((await self._chat(messages, {})).get("prompt_token_ids"))
            if not prompt:
                return "it does not say which tokens it read (return_token_ids)"
            text = (await self._beside("detokenize", {"tokens": prompt})).get("prompt")
            if not isinstance(text, str) or PROBE_QUESTION not in text:
                return "its /detokenize does not give a prompt back"
            end = text.rpartition(PROBE_QUESTION)[2]
            self.begins_reasoning = opens_reasoning(end)
            self._space = "" if end[-1:].isspace() else " "
            if not by_sequence:
                await self._first_position(messages, [await self._continuation(PROBE_OPTION)])
                return None
            return await self._find_lead(messages, prompt)
        except ServerFailure as failure:
            if failure.kind == "question":
                return str(failure)
            raise

    async def _find_lead(self, messages: Messages, prompt: list[int]) -> str | None:
        """Find what has to be sent before an option for it to follow the prompt; returns what is wrong where nothing does."""
        why = "its chat template writes an assistant's turn otherwise than it begins one"
        for lead in dict.fromkeys((self._space, "")):  # a template may write the space by itself
            try:
                if (await self._read(messages, PROBE_OPTION, lead)).prompt == prompt:
                    self._lead = lead
                    return None
            except ServerFailure as failure:
                if failure.kind != "question":
                    raise
                why = str(failure)
        return why

    async def _continuation(self, text: str) -> list[int]:
        return await self._with_tokens(lambda tokenize: continuation_ids(text, tokenize, self._space))

    async def _with_tokens(self, compute: Callable[[Tokenize], Computed]) -> Computed:
        """Result of `compute` with the server's tokenizer, repeated until every text that it needs is tokenized."""
        while True:
            try:
                return compute(self._known.__getitem__)
            except KeyError as unknown:
                (text,) = unknown.args
                self._known[text] = await self._tokens(text)

    async def _tokens(self, text: str) -> list[int]:
        ids = _token_ids((await self._beside("tokenize", {"prompt": text, "add_special_tokens": False})).get("tokens"))
        if ids is None:
            raise ServerFailure("its /tokenize gives no tokens", "question")
        return ids

    async def _beside(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Raises ServerFailure, of kind `question` where the server has no such address."""
        try:
            document = await self._post_beside(name, {"model": self.model, **body})
        except Refusal:
            document = None
        except ServerFailure as failure:
            if failure.kind in ("again", "wait", "unreachable"):
                raise
            document = None
        if not isinstance(document, dict):
            raise ServerFailure("it has no /tokenize and /detokenize", "question")
        return document


def _token_ids(value: Any) -> list[int] | None:
    """A list of token ids, None for anything else."""
    return value if isinstance(value, list) and all(type(each) is int for each in value) else None


def _logprob(position: Any, token: int) -> float:
    """The log-probability of a token at a position of the prompt. Raises ServerFailure where the reply has none of it."""
    entry = position.get(str(token)) if isinstance(position, dict) else None
    value = entry.get("logprob") if isinstance(entry, dict) else None
    if not _is_logprob(value):
        raise ServerFailure("a token of the prompt came without its log-probability", "question")
    return float(value)


def _first_token_logprobs(document: Any) -> dict[int, float]:
    """Token id -> log-probability at the first new position, of tokens named `token_id:ID`."""
    try:
        [first, *_] = document["choices"][0]["logprobs"]["content"]
        said = [(entry["token"], entry["logprob"]) for entry in (first, *first["top_logprobs"])]
    except (KeyError, IndexError, TypeError, ValueError):
        return {}
    return {
        int(token.removeprefix("token_id:")): float(value)
        for token, value in said
        if isinstance(token, str) and token.removeprefix("token_id:").isdecimal() and _is_logprob(value)
    }


def _is_logprob(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float) and math.isfinite(value)


def _sum_usage(usages: Sequence[Usage]) -> Usage:
    known = [usage for usage in usages if usage is not None]
    return (sum(usage[0] for usage in known), sum(usage[1] for usage in known)) if len(known) == len(usages) else None
