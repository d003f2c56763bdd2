"""Switch a local model's reasoning on or off, and separate it from the answer.

Variables of the chat template turn reasoning on and off. Special tokens such as `<unused95>`
disappear from decoded text, so the ones that delimit reasoning are kept while decoding. See also:
separating reasoning from the answer in text (`reader/reasoning.py`), ending it after a budget
(`network.py`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dataset_builders.errors import BadInput
from eval_harness.models.interface import Thinking
from eval_harness.reader.reasoning import SplitResponse, split_reasoning

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
