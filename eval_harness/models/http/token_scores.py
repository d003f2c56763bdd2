"""Score options with a server that returns log-probabilities of given tokens, as vLLM's does.

For `gd` and `ps_official`, the request lists the tokens to score (`logprob_token_ids`). For `ps`,
each option is appended to the prompt as the beginning of the assistant's turn
(`continue_final_message`), and its log-probabilities are read from `prompt_logprobs`. A reply
states which tokens it covers; a score uses only tokens that belong to the option. Whether a server
can do this is tested once, with a question that reveals nothing about the benchmark.

See also: which tokens those are (`answer_tokens.py`), servers that return only the alternatives of
a token (`openai_chat.py`).
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from eval_harness.models.answer_tokens import (
    NotScorable,
    Tokenize,
    candidate_first_tokens,
    continuation_ids,
    opens_reasoning,
    response_from_scores,
)
from eval_harness.models.http.chat_requests import Messages, build_messages, with_answer_start
from eval_harness.models.http.replies import (
    Refusal,
    ServerFailure,
    first_choice,
    first_token_logprobs,
    parse_usage,
    shorten,
)
from eval_harness.records.request import Request, Response

PROBE_QUESTION, PROBE_OPTION = "Which side is shown?", "left"
"""Question and option that test whether a server can score options."""

MAX_LOGPROB_TOKENS = 128
"""Maximum number of token ids whose log-probabilities vLLM returns for one position."""

Target = TypeVar("Target")
Computed = TypeVar("Computed")
Ask = Callable[[Target, dict[str, Any]], Awaitable[Any]]
Usage = tuple[int, int] | None
"""Tokens in and out; None if the server does not state them."""


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """A conversation followed by the beginning of an answer, as the server tokenizes it."""

    prompt: list[int]
    """Token ids before the answer."""
    logprobs: list[float]
    """Log-probability of each token of the answer."""
    usage: Usage


class TokenScores:
    """Scores options with the help of one server."""

    def __init__(self, model: str, chat: Ask[Messages], post_to_endpoint: Ask[str]) -> None:
        """Set up scoring; nothing is sent yet.

        Args:
            model: Name of the model, for messages.
            chat: Returns the chat completion of messages, requested with further parameters.
            post_to_endpoint: Returns the reply of an endpoint next to /v1 (`tokenize`,
                `detokenize`) to a body. Both functions raise ServerFailure or Refusal.
        """
        self.model = model
        self.begins_reasoning = False
        """True if the server's chat template opens the model's reasoning."""
        self._chat, self._post_to_endpoint = chat, post_to_endpoint
        self._token_cache: dict[str, list[int]] = {}
        self._missing: dict[bool, str | None] = {}
        """Whether scored by sequence -> the capability that the server lacks for that, or None."""
        self._space = self._lead = ""
        """The text that the model writes before an answer, and the text to send before an option so
        that the server renders the same."""

    async def missing_capability(self, request: Request) -> str | None:
        """Return what the server lacks for scoring a request's options, or None.

        Raises ServerFailure if that cannot be determined yet.
        """
        by_sequence = request.scoring == "sequence"
        if by_sequence not in self._missing:
            self._missing[by_sequence] = await self._probe(by_sequence)
        return self._missing[by_sequence]

    @property
    def can_score(self) -> bool:
        """True if the server was seen to score options by their tokens."""
        return None in self._missing.values()

    async def score(self, request: Request, messages: Messages) -> Response:
        """Score the options of a request.

        Args:
            request: The request, with candidates.
            messages: Its conversation.

        Returns:
            A response with one score per option.

        Raises:
            ServerFailure: If there is no reply, or it covers other tokens than the requested ones.
            NotScorable: See `answer_tokens.py`.
        """
        if request.scoring == "sequence":
            answers = [await self._score_answer(messages, text, self._lead) for text in request.candidates]
            # Otherwise the likelihoods would be conditioned on different prompts.
            if any(answer.prompt != answers[0].prompt for answer in answers):
                raise ServerFailure(
                    "the server reads different tokens before the options",
                    "question",
                )
            scores = [fmean(answer.logprobs) for answer in answers]
            return response_from_scores(request, scores, usage=_sum_usage([answer.usage for answer in answers]))
        official = request.scoring == "sequence_official"
        if official:
            tokens = [await self._continuation(text) for text in request.candidates]
        else:
            tokens = await self._with_tokens(lambda tokenize: candidate_first_tokens(request, tokenize, self.model))
        logprobs, usage = await self._first_position(messages, tokens)
        scores = []
        for candidate_tokens in tokens:
            token_logprobs = [logprobs[token] for token in candidate_tokens]
            # `gd` sums the tokens' probabilities, in logarithms so that none underflows.
            scores.append(fmean(token_logprobs) if official else float(np.logaddexp.reduce(token_logprobs)))
        return response_from_scores(request, scores, usage=usage)

    async def _score_answer(self, messages: Messages, option: str, lead: str) -> ScoredAnswer:
        """Score an option as the beginning of the answer. `lead`: text to send before it."""
        document = await self._chat(
            with_answer_start(messages, lead + option),
            {"add_generation_prompt": False, "continue_final_message": True, "prompt_logprobs": 0},
        )
        ids = _token_ids(document.get("prompt_token_ids"))
        positions = document.get("prompt_logprobs")
        if ids is None or not isinstance(positions, list):
            raise ServerFailure(
                "the server returns no log-probabilities of a prompt's tokens (prompt_logprobs)",
                "question",
            )
        if len(positions) != len(ids):
            raise ServerFailure(
                f"the server returned log-probabilities for {len(positions)} of {len(ids)} tokens of a prompt",
                "question",
            )
        tokens = await self._continuation(option)
        start = len(ids) - len(tokens)
        # A template may append tokens after the option, or merge its beginning into an earlier
        # token.
        if start < 1 or ids[start:] != tokens:
            raise ServerFailure(
                f"the server reads the option {shorten(option)!r} as different tokens after the prompt",
                "question",
            )
        logprobs = [_prompt_logprob(position, token) for position, token in zip(positions[start:], tokens, strict=True)]
        return ScoredAnswer(ids[:start], logprobs, parse_usage(document.get("usage")))

    async def _first_position(
        self, messages: Messages, tokens: Sequence[Sequence[int]]
    ) -> tuple[Mapping[int, float], Usage]:
        """Return (token id -> log-probability at the first position after the prompt, usage).

        All of `tokens` are covered; otherwise ServerFailure is raised. Raises NotScorable if there
        are more than `MAX_LOGPROB_TOKENS`.
        """
        requested_ids = sorted({token for candidate_tokens in tokens for token in candidate_tokens})
        if len(requested_ids) > MAX_LOGPROB_TOKENS:
            raise NotScorable(
                f"vLLM scores at most {MAX_LOGPROB_TOKENS} tokens at one position; --method ps avoids this limit"
            )
        document = await self._chat(
            messages,
            {
                "logprobs": True,
                "logprob_token_ids": requested_ids,
                "return_tokens_as_token_ids": True,
            },
        )
        logprobs = {
            int(token.removeprefix("token_id:")): logprob
            for token, logprob in first_token_logprobs(first_choice(document)).items()
            if token.removeprefix("token_id:").isdecimal() and math.isfinite(logprob)
        }
        if missing := [token for token in requested_ids if token not in logprobs]:
            raise ServerFailure(
                f"the server returns no log-probability for {len(missing)} of the {len(requested_ids)} tokens asked for "
                "(logprob_token_ids)",
                "question",
            )
        return logprobs, parse_usage(document.get("usage"))

    async def _probe(self, by_sequence: bool) -> str | None:
        """Test the server with a question without images; return what it lacks, or None."""
        request = Request("", 0, PROBE_QUESTION, None, (PROBE_OPTION,), "single", candidates=(PROBE_OPTION,))
        messages = build_messages(request, None)
        try:
            await self._tokenize(PROBE_OPTION)  # first, because most servers lack this endpoint
            prompt = _token_ids((await self._chat(messages, {})).get("prompt_token_ids"))
            if not prompt:
                return "it does not return the tokens it read (return_token_ids)"
            text = (await self._call_endpoint("detokenize", {"tokens": prompt})).get("prompt")
            if not isinstance(text, str) or PROBE_QUESTION not in text:
                return "its /detokenize does not return a prompt"
            prompt_end = text.rpartition(PROBE_QUESTION)[2]
            self.begins_reasoning = opens_reasoning(prompt_end)
            self._space = "" if prompt_end[-1:].isspace() else " "
            if not by_sequence:
                await self._first_position(messages, [await self._continuation(PROBE_OPTION)])
                return None
            return await self._find_lead(messages, prompt)
        except ServerFailure as failure:
            if failure.kind == "question":
                return str(failure)
            raise

    async def _find_lead(self, messages: Messages, prompt: list[int]) -> str | None:
        """Find the text to send before an option so that it directly follows the prompt.

        Returns what is wrong if there is no such text.
        """
        why = "its chat template renders an assistant's turn differently from its generation prompt"
        for lead in dict.fromkeys((self._space, "")):  # some templates write the space themselves
            try:
                if (await self._score_answer(messages, PROBE_OPTION, lead)).prompt == prompt:
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
        """Call `compute` with the server's tokenizer.

        `compute` is synchronous, so it reads tokens from a cache. Whenever the cache lacks a text,
        the server tokenizes it and `compute` is called again.
        """
        while True:
            try:
                return compute(self._token_cache.__getitem__)
            except KeyError as missing:
                (text,) = missing.args
                self._token_cache[text] = await self._tokenize(text)

    async def _tokenize(self, text: str) -> list[int]:
        ids = _token_ids(
            (await self._call_endpoint("tokenize", {"prompt": text, "add_special_tokens": False})).get("tokens")
        )
        if ids is None:
            raise ServerFailure("its /tokenize returns no tokens", "question")
        return ids

    async def _call_endpoint(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Call an endpoint. Raises ServerFailure, of kind `question` if the server lacks it."""
        try:
            document = await self._post_to_endpoint(name, body)
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
    """Return a list of token ids; None for anything else."""
    return value if isinstance(value, list) and all(type(token) is int for token in value) else None


def _prompt_logprob(position: Any, token: int) -> float:
    """Return the log-probability of a token at a position of the prompt.

    Raises ServerFailure if the reply lacks it.
    """
    entry = position.get(str(token)) if isinstance(position, dict) else None
    logprob: Any = entry.get("logprob") if isinstance(entry, dict) else None
    if type(logprob) not in (int, float) or not math.isfinite(logprob):
        raise ServerFailure("the server returned a token of the prompt without its log-probability", "question")
    return float(logprob)


def _sum_usage(usages: Sequence[Usage]) -> Usage:
    counts = [usage for usage in usages if usage is not None]
    return (
        (sum(count[0] for count in counts), sum(count[1] for count in counts)) if len(counts) == len(usages) else None
    )
