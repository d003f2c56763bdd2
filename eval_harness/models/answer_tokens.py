"""Tokens that have a meaning: those that score an option, and those that delimit reasoning.

Options are scored by the same tokens with every engine: method `gd` uses the tokens that may begin
the option; `ps` and `ps_official` use all of its tokens. `tokenize` returns the token ids of a
text, without special tokens.

Variables of the chat template turn reasoning on and off. Special tokens such as `<unused95>`
disappear from decoded text, so the ones that delimit reasoning are kept while decoding.

See also: separating reasoning from the answer in text (`reader/reasoning.py`), ending it after a
budget (`local/network.py`).
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS
from eval_harness.models.interface import Thinking
from eval_harness.reader.reasoning import SplitResponse, split_reasoning
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


def nan_response(request: Request) -> Response:
    """Return the failed response to a question for which the network computed NaN."""
    return Response(request.question_id, request.sample, "", "failed", error="its logits are NaN")


THINKING_VARIABLES = ("enable_thinking", "thinking", "reasoning", "thinking_mode", "use_thinking")
"""Template variables that switch reasoning.

`enable_thinking` is used by Qwen 3, GLM 4.5, Gemma 4 and SmolLM 3; `thinking` by DeepSeek V3.1,
Granite and Kimi; `reasoning` by Command A.
"""

DELIMITERS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel>", "<channel|>"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<unused94>", "<unused95>"),
)
"""Tokens that begin and end reasoning.

The last pair is in the vocabulary of every Gemma 3, so it is tried last.
"""

HARMONY_TOKENS = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>", "<|call|>")

ANSWER_MARKERS = (
    "<|begin_of_box|>",
    "<|end_of_box|>",
    "<|begin_of_solution|>",
    "<|end_of_solution|>",
    "<answer>",
    "</answer>",
)

_CUT_OPENING = re.compile(r"(?:<\|start\|>(?:assistant)?)?<\|channel\|?>\w{0,9}$|<\|start\|>\w{0,9}$")
"""Matches the end of an output that was cut inside a channel's header.

There it is unknown whether reasoning or the answer would have followed.
"""

Render = Callable[[Mapping[str, Any]], str]
"""Render a prompt with template variables; returns its text from the end of the question on."""


def thinking_variables(render: Render, variables: Mapping[str, Any], thinking: Thinking | None) -> dict[str, Any]:
    """Find the template variable that implements `--thinking`.

    Args:
        render: Renders the end of a prompt with template variables.
        variables: Variables that are already set; they are not changed.
        thinking: Value of `--thinking`.

    Returns:
        Variables to add; empty if none is needed.

    Raises:
        BadInput: If the template has no such variable, and its default is not what was asked for.
    """
    if thinking is None:
        return {}
    on = thinking != "off"
    for name in THINKING_VARIABLES:
        # A template ignores variables it does not know, so a known one changes the prompt.
        if name not in variables and render({**variables, name: True}) != render({**variables, name: False}):
            return {name: on}
    if on == opens_reasoning(render(variables)):
        return {}
    if on and not isinstance(thinking, str):
        return {}  # a budget limits whatever reasoning the model starts unprompted
    raise BadInput(
        f"--thinking {thinking}: the chat template has no variable for it (looked for {', '.join(THINKING_VARIABLES)}). "
        "Leave it out, or set the template's own with --chat-template-kwargs."
    )


def opens_reasoning(prompt_end: str) -> bool:
    """True if a rendered prompt ends inside reasoning that it opened.

    Args:
        prompt_end: The text that the template writes after the question.
    """
    # The pair whose start or end occurs last decides.
    opened, closed = max(((prompt_end.rfind(start), prompt_end.rfind(stop)) for start, stop in DELIMITERS), key=max)
    return opened > closed or prompt_end.rstrip().endswith("<|channel|>analysis<|message|>")


def reasoning_delimiter_ids(tokenizer: Any, template: str) -> tuple[int, int]:
    """Find the tokens that begin and end reasoning.

    Args:
        tokenizer: Tokenizer of transformers.
        template: The chat template; a pair that it mentions takes precedence.

    Returns:
        (start token id, end token id).

    Raises:
        BadInput: If the tokenizer has no pair of `DELIMITERS`.
    """
    vocabulary = tokenizer.get_vocab()
    pairs = [pair for pair in DELIMITERS if pair[0] in vocabulary and pair[1] in vocabulary]
    # The sort is stable: pairs that the template does not mention keep the order of DELIMITERS.
    pairs.sort(key=lambda pair: pair[1] not in template)
    if not pairs:
        raise BadInput(
            "--thinking with a number of tokens: the tokenizer has no tokens that begin and end reasoning, so it cannot be limited. "
            "Use --thinking on or off."
        )
    start, end = pairs[0]
    return int(vocabulary[start]), int(vocabulary[end])


class OutputReader:
    """Decodes new tokens into reasoning and answer.

    `opened`: whether the prompt has opened the reasoning.
    """

    def __init__(self, tokenizer: Any, opened: bool) -> None:
        self.tokenizer = tokenizer
        self.opened = opened
        vocabulary = tokenizer.get_vocab()
        marks = [mark for pair in DELIMITERS for mark in pair] + list(ANSWER_MARKERS)
        if "<|channel|>" in vocabulary:
            marks += HARMONY_TOKENS
        self._special = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._special.update(tokenizer.all_special_ids)
        mark_ids = {vocabulary[mark] for mark in marks if mark in vocabulary}
        self._marks = re.compile(
            "|".join(re.escape(mark) for mark in marks if vocabulary.get(mark) in self._special) or "(?!)"
        )
        # Tokens to drop before decoding: those that `skip_special_tokens` drops, except the marks.
        self._dropped = self._special - mark_ids

    def read(self, tokens: Sequence[Sequence[int]]) -> list[SplitResponse]:
        """Decode each row of new token ids into reasoning and answer."""
        rows = [[token for token in row if token not in self._dropped] for row in tokens]
        return [self._split(text) for text in self.tokenizer.batch_decode(rows, skip_special_tokens=False)]

    def _split(self, text: str) -> SplitResponse:
        if cut := _CUT_OPENING.search(text):
            return SplitResponse(reasoning="", answer=text[: cut.start()], unfinished=True)
        split = split_reasoning(text, opened=self.opened)
        if split.reasoning is None:
            return replace(split, answer=self._marks.sub("", text))
        answer, reasoning = (self._marks.sub("", part).strip() for part in (split.answer, split.reasoning))
        return replace(split, answer=answer, reasoning=reasoning)
