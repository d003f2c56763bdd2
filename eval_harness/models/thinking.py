"""Reasoning of a local model: switching it on and off through its chat template, and telling it from the answer by its tokens.

Special tokens such as `<unused95>` vanish from decoded text, so the ones that mark reasoning are kept while decoding. See also: telling
reasoning from answer in a text (`reader/reasoning.py`), ending it after a budget (`network.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataset_builders.errors import BadInput
from eval_harness.models.interface import Thinking
from eval_harness.reader.reasoning import split_reasoning

THINKING_VARIABLES = ("enable_thinking", "thinking", "reasoning", "thinking_mode", "use_thinking")
"""Variables by which chat templates let their model reason or not: Qwen 3, GLM 4.5, Gemma 4, SmolLM 3 (the first); DeepSeek V3.1, Granite,
Kimi (the second); Command A (the third)."""

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
"""Tokens that begin and end a reasoning. Gemma 3's tokenizers all have the last pair, so it comes last."""

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
"""An output that stops in the words that begin a channel, so that it is not known yet whether it is reasoning."""

Render = Callable[[Mapping[str, Any]], str]
"""The text that the template writes after a question with these variables, up to where the model continues."""


@dataclass(frozen=True, slots=True)
class DecodedOutput:
    """A decoded output: the answer, the reasoning before it (None: none was marked), and whether the output stops inside it."""

    text: str
    reasoning: str | None
    unfinished: bool


def thinking_variables(render: Render, given: Mapping[str, Any], thinking: Thinking | None) -> dict[str, Any]:
    """The template variables that do what `--thinking` says; empty where it says nothing.

    Raises BadInput if the template has no switch and so does not do it by itself.
    """
    if thinking is None:
        return {}
    on = thinking != "off"
    for name in THINKING_VARIABLES:
        if name not in given and render({**given, name: True}) != render({**given, name: False}):
            return {name: on}
    if on == opens_reasoning(render(given)):
        return {}
    if on and not isinstance(thinking, str):
        return {}  # a budget bounds whatever reasoning the model begins by itself
    raise BadInput(
        f"--thinking {thinking}: the chat template has no variable for it (looked for {', '.join(THINKING_VARIABLES)}). "
        "Leave it out, or set the template's own with --chat-template-kwargs."
    )


def opens_reasoning(end: str) -> bool:
    """True if a rendered prompt ends inside a reasoning that it opened itself. `end`: what the template writes after the question."""
    last = max(((end.rfind(start), end.rfind(stop)) for start, stop in DELIMITERS), key=max)
    return last[0] > last[1] or end.rstrip().endswith("<|channel|>analysis<|message|>")


def reasoning_delimiter_ids(tokenizer: Any, template: str) -> tuple[int, int]:
    """The token ids that begin and end a reasoning. Raises BadInput if the tokenizer has no such pair of tokens."""
    vocabulary = tokenizer.get_vocab()
    found = [pair for pair in DELIMITERS if pair[0] in vocabulary and pair[1] in vocabulary]
    found.sort(key=lambda pair: pair[1] not in template)
    if not found:
        raise BadInput(
            "--thinking with a number of tokens: the tokenizer has no tokens that begin and end a reasoning, so it cannot be ended. "
            "Use --thinking on or off."
        )
    start, end = found[0]
    return int(vocabulary[start]), int(vocabulary[end])


class OutputReader:
    """Decodes new tokens into reasoning and answer. `opened`: the prompt has opened the reasoning."""

    def __init__(self, tokenizer: Any, opened: bool) -> None:
        self.tokenizer = tokenizer
        self.opened = opened
        vocabulary = tokenizer.get_vocab()
        marks = [mark for pair in DELIMITERS for mark in pair] + list(ANSWER_MARKERS)
        if "<|channel|>" in vocabulary:
            marks += HARMONY_TOKENS
        self._special = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._special.update(tokenizer.all_special_ids)
        kept = {vocabulary[mark] for mark in marks if mark in vocabulary}
        self._marks = re.compile(
            "|".join(re.escape(mark) for mark in marks if vocabulary.get(mark) in self._special) or "(?!)"
        )
        self._dropped = self._special - kept

    def read(self, tokens: Sequence[Sequence[int]]) -> list[DecodedOutput]:
        """Reasoning and answer of each row of new token ids."""
        rows = [[token for token in row if token not in self._dropped] for row in tokens]
        return [self._split(text) for text in self.tokenizer.batch_decode(rows, skip_special_tokens=False)]

    def _split(self, text: str) -> DecodedOutput:
        if cut := _CUT_OPENING.search(text):
            return DecodedOutput(text[: cut.start()], "", True)
        split = split_reasoning(text, opened=self.opened)
        if split.reasoning is None:
            return DecodedOutput(self._marks.sub("", text), None, split.unfinished)
        answer, reasoning = (self._marks.sub("", part).strip() for part in (split.answer, split.reasoning))
        return DecodedOutput(answer, reasoning, split.unfinished)
