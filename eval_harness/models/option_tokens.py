"""Choose the tokens that score an option, identically for every engine.

Method `gd` uses the tokens that may begin the option; `ps` and `ps_official` use all of its tokens.
In this module, `tokenize` returns the token ids of a text, without special tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from eval_harness.records.request import Request

Tokenize = Callable[[str], Sequence[int]]

SCORED_IN_REASONING = "options were scored where the chat template has begun the model's reasoning"

MAX_LOGPROB_TOKENS = 128
"""Maximum number of token ids whose log-probabilities vLLM returns for one position."""


class NotScorable(ValueError):
    """Raised if the options of a question cannot be told apart by their tokens."""


def candidate_first_tokens(request: Request, tokenize: Tokenize, model: str) -> list[list[int]]:
    """Find the tokens that can begin each candidate, written with and without a leading space.

    Args:
        request: A question with candidates.
        tokenize: Tokenizer of the model.
        model: Name of the model, for the message.

    Returns:
        Token ids for each candidate; tokens shared by candidates are dropped.

    Raises:
        NotScorable: If a candidate has no token of its own.
    """
    first_tokens: list[set[int]] = []
    for candidate in request.candidates:
        spellings = (tokenize(spelling) for spelling in (candidate, f" {candidate}"))
        # Both spellings may share a token; a set counts its probability once.
        first_tokens.append({ids[0] for ids in spellings if ids})
    unique_tokens = [
        sorted(tokens.difference(*(first_tokens[:position] + first_tokens[position + 1 :])))
        for position, tokens in enumerate(first_tokens)
    ]
    if not all(unique_tokens):
        raise NotScorable(
            f"{model} begins two of the options {', '.join(request.candidates)} with the same token; "
            "--method ps or mc avoids this"
        )
    return unique_tokens


def continuation_ids(text: str, tokenize: Tokenize, space: str) -> list[int]:
    """Return the token ids of an answer as the model would write it after its prompt.

    Args:
        text: The option.
        tokenize: Tokenizer of the model.
        space: A space before the answer, or "" if the prompt ends in white space.

    Returns:
        Token ids, at least one.

    Raises:
        NotScorable: If the option is empty.
    """
    # Many tokenizers encode the start of a text differently, so tokenize after a colon and cut it
    # off.
    prompt_end = ":" if space else ":\n"
    prompt_ids, joined_ids = list(tokenize(prompt_end)), list(tokenize(f"{prompt_end}{space}{text}"))
    ids = joined_ids[len(prompt_ids) :] if joined_ids[: len(prompt_ids)] == prompt_ids else []
    if not ids:
        ids = list(tokenize(text))
    if not ids:
        raise NotScorable("an option is empty, so it has no likelihood; --method mc avoids this")
    return ids


def first_position_ids(tokens: Sequence[Sequence[int]]) -> list[int]:
    """Return the token ids to request at the first position after the prompt, for all candidates.

    Raises NotScorable if there are more than `MAX_LOGPROB_TOKENS`.
    """
    requested_ids = sorted({token for candidate in tokens for token in candidate})
    if len(requested_ids) > MAX_LOGPROB_TOKENS:
        raise NotScorable(
            f"vLLM scores at most {MAX_LOGPROB_TOKENS} tokens at one position; --method ps avoids this limit"
        )
    return requested_ids


def first_position_scores(
    logprobs: Mapping[int, float], tokens: Sequence[Sequence[int]], official: bool
) -> list[float]:
    """Score candidates by log-probabilities at the first position after the prompt.

    Args:
        logprobs: Token id -> log-probability.
        tokens: Token ids of each candidate.
        official: Compute `ps` as the MediConfusion authors' code does.

    Returns:
        One score per candidate: the logarithm of the sum of its tokens' probabilities (`gd`), or
        the mean of their log-probabilities (`official`).
    """
    candidate_logprobs = [[logprobs[token] for token in candidate] for candidate in tokens]
    return [math.fsum(values) / len(values) if official else _logsumexp(values) for values in candidate_logprobs]


def _logsumexp(values: Sequence[float]) -> float:
    maximum = max(values)  # subtracted so that exp() does not underflow
    return maximum + math.log(math.fsum(math.exp(value - maximum) for value in values))
