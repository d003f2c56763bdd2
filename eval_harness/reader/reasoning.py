r"""Split a response into reasoning and answer by the delimiters of every model family.

| family | delimiters |
|---|---|
| DeepSeek R1, Qwen, GLM, ... | `<think>`, `<thinking>`, `<thought>`, `<reasoning>` and end tags |
| Seed, Magistral | `<seed:think>`, `[THINK]` and their end tags |
| Kimi | `◁think▷ ... ◁/think▷` |
| Gemma 4 | `<\|channel>thought ... <channel\|>` |
| MedGemma | `<unused94>thought ... <unused95>` |
| Command A, Sky-T1, ... | `<\|START_THINKING\|>`, `<\|begin_of_thought\|>` ... and their ends |
| gpt-oss (Harmony) | `<\|channel\|>analysis<\|message\|> ... <\|channel\|>final<\|message\|>` |
| gpt-oss, special tokens dropped | `analysis ... assistantfinal` |
| agents | `Thought: ...` up to a line `Answer: ...` |

All functions take time linear in the length of the response.
"""

import re
from dataclasses import dataclass

from eval_harness.reader.text import BOXED

_TAG_NAMES = r"think(?:ing)?|thoughts?|reasoning|analysis|reflection|scratchpad|rationale|cot|cot_budget_reflect"
_TAG = re.compile(
    rf"<(?:/?(?:\w{{1,12}}:)?(?:{_TAG_NAMES})\b[^<>\n]{{0,40}}>"
    r"|\|(?:/?think(?:ing)?|(?:start|end)_thinking|(?:begin|end)_of_(?:thought|thinking|think)"
    r"|(?:thinking"
    r"|think)_(?:start|end))\|>"
    r"|\|channel>\s{0,4}(?:thought|analysis|thinking)\b|channel\|>|unused94>(?:\s{0,4}thought\b)?"
    r"|unused95>)"
    r"|◁/?think▷|\[/?think\]",
    re.IGNORECASE,
)
_END_TAG = re.compile(r"[<\[◁]\|?/|<\|\w*end|<channel\||<unused95", re.IGNORECASE)
_DELIMITER_SIGNS = ("<", "[", "◁", "analysis", "commentary")
_HARMONY_START = re.compile(r"\s*(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)\b|\s*analysis(?=[A-Z])")
_HARMONY_FINAL = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>final\b[^<\n]{0,40}<\|message\|>|(?:(?<=[^\w\s])"
    r"|(?<=\w))assistantfinal(?=\W|[A-Z\d])"
)
_HARMONY_MARKS = re.compile(
    r"<\|(?:start|end|message|return|call)\|>|(?:(?<=^)|(?<=<\|start\|>))assistant|<\|channel\|>\w+"
    r"|^\s*analysis(?=[A-Z])"
)
_NON_CONTENT = re.compile(
    r"<\|[^|<>\n]{1,40}\|>|</?s>|<(?:bos|eos|start_of_turn|end_of_turn)>|</?(?:body|html)>"
    r"|\b(?:assistant|model"
    r"|user)\b\s*:?|\W",
    re.IGNORECASE,
)
_THOUGHT_START = re.compile(
    r"\s*(?:(?:\*\*|#{1,4} )?(?:thoughts?|thinking)(?: process)?\s*(?::|\*\*:?)|thought\n)",
    re.IGNORECASE,
)
_ANSWER_LINE = re.compile(
    r"^[ \t>*#_-]{0,8}(?:final |my |the |correct )*(?:(?:answer|response|output|conclusion)\b"
    r"|答案)[ \t*_]{0,4}"
    r"(?:is\b)?[ \t*_]{0,4}[:：]",
    re.IGNORECASE | re.MULTILINE,
)
_ANSWER_TAG = re.compile(
    r"<(?:answer|final_answer|final|response|conclusion)>|<\|begin_of_(?:box|solution)\|>",
    re.IGNORECASE,
)
_ANSWER_END_TAG = re.compile(
    r"</(?:answer|final_answer|final|response|conclusion)>|<\|end_of_(?:box|solution)\|>",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SplitResponse:
    """A response split into reasoning and answer.

    Attributes:
        reasoning: The marked reasoning; None if nothing is marked as reasoning.
        answer: The answer. If `unfinished`, only the text before the reasoning, which is mostly
            empty.
        unfinished: Whether the text stops inside the reasoning.
    """

    reasoning: str | None
    answer: str
    unfinished: bool


def split_reasoning(text: str, opened: bool = False) -> SplitResponse:
    """Split a response into its reasoning and its answer. Never raises.

    The answer is what follows the last end of reasoning. If reasoning is never closed, an
    answer in `<answer>` tags or in a box at the end of the text still counts; otherwise only the
    text before the reasoning.

    Args:
        text: The response.
        opened: The chat template opened the reasoning, so the text starts inside it.

    >>> split_reasoning("<think>Looks like A.</think>B")
    SplitResponse(reasoning='Looks like A.', answer='B', unfinished=False)
    >>> split_reasoning("It could be A, but", opened=True)
    SplitResponse(reasoning='It could be A, but', answer='', unfinished=True)
    """
    if not opened and not any(mark in text for mark in _DELIMITER_SIGNS):
        return _split_thought_line(text)
    # Harmony: the answer is what follows the last `final` channel.
    final_channels = list(_HARMONY_FINAL.finditer(text)) if "final" in text else []
    if final_channels and (_HARMONY_START.match(text) or "<|channel|>" in text):
        final_channel = final_channels[-1]
        return SplitResponse(
            _HARMONY_MARKS.sub(" ", text[: final_channel.start()]).strip(),
            text[final_channel.end() :],
            False,
        )
    if _HARMONY_START.match(text):
        return _split_unclosed("", text, 0)
    tags = list(_TAG.finditer(text))
    closing = [tag for tag in tags if _is_end_tag(tag)]
    if closing and not _has_content(text[closing[-1].end() :]) and _is_misplaced_answer_end(text, closing):
        text = text[: closing.pop().start()]
    if not tags:
        return _split_unclosed("", text, 0) if opened else _split_thought_line(text)
    start = closing[-1].end() if closing else 0
    reopened = next((tag for tag in tags if tag.start() >= start and not _is_end_tag(tag)), None)
    if reopened is None:
        answer = text[start:]
        if not _has_content(answer) and (outside := _last_span_outside(text, tags, opened)) is not None:
            start, end = outside  # "<think>...</think>B</think>", "B <think>...</think>"
            return SplitResponse(_strip_tags(text[:start] + text[end:]), text[start:end], False)
        return SplitResponse(_strip_tags(text[:start]), answer, False)
    if opened and not closing:
        return _split_unclosed("", text, 0)
    prefix = text[start : reopened.start()]
    if not closing or _has_content(prefix):
        return _split_unclosed(prefix, text, reopened.end())
    return _split_unclosed("", text, 0)


def _last_span_outside(text: str, tags: list[re.Match[str]], opened: bool) -> tuple[int, int] | None:
    """Return (start, end) of the last stretch outside reasoning that has content.

    Only stretches before the last tag are considered.
    """
    span, start = None, None if opened or _is_end_tag(tags[0]) else 0
    for tag in tags:
        if start is not None and _has_content(text[start : tag.start()]):
            span = start, tag.start()
        start = tag.end() if _is_end_tag(tag) else None
    return span


def _is_misplaced_answer_end(text: str, closing: list[re.Match[str]]) -> bool:
    """Return True if the last reasoning end tag closes the answer instead ("<answer>B</think>")."""
    start = closing[-2].end() if len(closing) > 1 else 0
    answer = _ANSWER_TAG.search(text, start, closing[-1].start())
    return answer is not None and closing[-1].start() - answer.end() <= 300


def _is_end_tag(tag: re.Match[str]) -> bool:
    return _END_TAG.match(tag[0]) is not None


def _has_content(text: str) -> bool:
    return bool(_NON_CONTENT.sub("", text))


def _strip_tags(text: str) -> str:
    return _TAG.sub("", text).strip()


def _split_unclosed(prefix: str, text: str, start: int) -> SplitResponse:
    """Split a text whose reasoning starts at text[start] and is never closed.

    `prefix` is the text before the reasoning.
    """
    answer = _find_marked_answer(text, start)
    if answer is not None:
        return SplitResponse(_strip_tags(text[start:answer]), text[answer:], False)
    return SplitResponse(_strip_tags(text[start:]), prefix if _has_content(prefix) else "", True)


def _find_marked_answer(text: str, start: int) -> int | None:
    """Return the offset of a marked answer, in tags or a box, that ends the text."""
    tags = list(_ANSWER_TAG.finditer(text, start))
    if tags:
        end = _ANSWER_END_TAG.search(text, tags[-1].end())
        content = text[tags[-1].end() : end.start() if end else None]
        following = text[end.end() :] if end else ""
        if _has_content(content) and len(content) <= 300 and not _has_content(_ANSWER_END_TAG.sub("", following)):
            return tags[-1].start()
    search_from = max(text.rfind("\n", start, len(text.rstrip())) + 1, start, len(text) - 300)
    box = BOXED.search(text, search_from)
    return box.start() if box is not None and text.rstrip().rstrip("$.*)] \n").endswith("}") else None


def _split_thought_line(text: str) -> SplitResponse:
    """Split a response without delimiters at its last line "Answer: ...".

    What follows "Thought:" up to that line is reasoning. Without such a line the end of the thought
    is
    unknown: the text stays whole, and `unfinished` means that only an explicit answer may be read
    from it.
    """
    thought = _THOUGHT_START.match(text)
    if thought is None:
        return SplitResponse(None, text, False)
    lines = [line.start() for line in _ANSWER_LINE.finditer(text, thought.end())]
    if lines:
        return SplitResponse(text[thought.end() : lines[-1]].strip(), text[lines[-1] :], False)
    return SplitResponse(None, text, True)
