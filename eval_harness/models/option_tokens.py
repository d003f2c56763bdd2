"""Choose the tokens that score an option, identically for every engine, and answer by the scores.

Method `gd` uses the tokens that may begin the option; `ps` and `ps_official` use all of its tokens.
In this module, `tokenize` returns the token ids of a text, without special tokens.
"""

import math
from collections.abc import Callable, Sequence

from dataset_builders.schema import LETTERS
from eval_harness.records.request import Request, Response

Tokenize = Callable[[str], Sequence[int]]

SCORED_IN_REASONING = "options were scored where the chat template has begun the model's reasoning"


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


def nan_response(request: Request) -> Response:
    """Return the failed response to a question for which the network computed NaN."""
    return Response(request.question_id, request.sample, "", "failed", error="its logits are NaN")


def response_from_scores(request: Request, scores: Sequence[float], usage: tuple[int, int] | None = None) -> Response:
    """Make the response of a method that scores options.

    The option with the highest score is chosen, or the first of equal ones.

    Args:
        request: The question.
        scores: One score per option.
        usage: Tokens in and out, if counted.

    Returns:
        A response whose text is the option's letter, or for a yes/no question its text; `failed` if
        a score is NaN.
    """
    if any(map(math.isnan, scores)):
        return nan_response(request)
    # max() returns the first of equal scores.
    best = max(range(len(scores)), key=lambda position: scores[position])
    text = request.options[best] if request.question_type == "yes_no" else LETTERS[best]
    return Response(request.question_id, request.sample, text, scores=tuple(map(float, scores)), usage=usage)
