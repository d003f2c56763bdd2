"""Choose the tokens that score an option, the same with every engine: those that may begin it (`gd`), or all of them (`ps`, `ps_official`).

`tokenize` gives the token ids of a text, without special tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from eval_harness.records.request import Request

Tokenize = Callable[[str], Sequence[int]]

BEGUN_REASONING = "options were scored where the chat template has begun the model's reasoning"

LONGEST_LOGPROBS = 128
"""Token ids whose log-probabilities vLLM gives for one position."""


class NotScorable(ValueError):
    """A question whose options have no scores of their own."""


def next_token_forms(request: Request, tokenize: Tokenize, model: str) -> list[list[int]]:
    """For each candidate the tokens that begin it, written with and without a space before it; shared ones do not count.

    Raises NotScorable when a candidate has no token of its own.
    """
    forms: list[set[int]] = []
    for candidate in request.candidates:
        written = (tokenize(form) for form in (candidate, f" {candidate}"))
        forms.append({ids[0] for ids in written if ids})
    own = [sorted(form.difference(*(forms[:position] + forms[position + 1 :]))) for position, form in enumerate(forms)]
    if not all(own):
        raise NotScorable(
            f"{model} begins two of the options {', '.join(request.candidates)} with the same token; --method ps or mc asks otherwise"
        )
    return own


def continuation(text: str, tokenize: Tokenize, space: str) -> list[int]:
    """Token ids of an answer as the model would write it after its prompt: with a `space`, which is "" where the prompt ends in one.

    Raises NotScorable for an empty option.
    """
    prompt_end = ":" if space else ":\n"
    before, joined = list(tokenize(prompt_end)), list(tokenize(f"{prompt_end}{space}{text}"))
    ids = joined[len(before) :] if joined[: len(before)] == before else []
    if not ids:
        ids = list(tokenize(text))
    if not ids:
        raise NotScorable("an option is empty, so it has no likelihood; --method mc asks otherwise")
    return ids


def first_position_ids(tokens: Sequence[Sequence[int]]) -> list[int]:
    """The token ids, of all candidates, whose log-probabilities are asked for at the first position after the prompt.

    Raises NotScorable where they are more than vLLM gives.
    """
    wanted = sorted({token for candidate in tokens for token in candidate})
    if len(wanted) > LONGEST_LOGPROBS:
        raise NotScorable(f"vLLM scores at most {LONGEST_LOGPROBS} tokens of a position; --method ps asks otherwise")
    return wanted


def first_position_scores(
    logprobs: Mapping[int, float], tokens: Sequence[Sequence[int]], official: bool
) -> list[float]:
    """Each candidate's score from log-probabilities at the first position after the prompt: the sum of its tokens' probabilities as a
    logarithm (`gd`), or the mean of their log-probabilities (`official`: as the MediConfusion authors' code computes `ps`)."""
    values = [[logprobs[token] for token in candidate] for candidate in tokens]
    return [math.fsum(each) / len(each) if official else _logsumexp(each) for each in values]


def _logsumexp(values: Sequence[float]) -> float:
    most = max(values)
    return most + math.log(math.fsum(math.exp(value - most) for value in values))
