"""A response made plain before it is read: one script width, no chat markers, no reasoning trace, no markup; and where options are named.

Not here: deciding (`answers.py`). Everything is linear in the length of the response.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_SPECIAL = re.compile(
    r"<\|[^|<>\n]{1,40}\|>|</?s>|<(?:eos|bos|pad|unk|end_of_turn|start_of_turn|end_of_utterance)>|\[/?INST\]|<0x0A>"
    r"|<\|?eot_id\|?>|\ufeff|[\u200b-\u200f\u2060]",
    re.IGNORECASE,
)
_TRACE_TAG = re.compile(
    r"<(/?)(?:\w{1,12}:)?(?:think|thinking|thought|thoughts|reasoning|analysis|reflection|scratchpad|rationale|cot)\b[^<>]{0,40}>|◁(/?)think▷|\[(/?)think\]",
    re.IGNORECASE,
)
_TURN_ENDS = re.compile(
    r"<\|(?:im_end|eot_id|endoftext|end|end_of_text)\|>|</s>|<(?:end_of_turn|eos|end_of_utterance)>"
)
_OTHERS_TURN = re.compile(
    r"(?:<\|(?:im_start|start_header_id|start)\|>|<start_of_turn>|<\|(?=user|system))\s*(?:user|system)\b|\[INST\]"
)
_FINAL_CHANNEL = re.compile(r"<\|channel\|>final[^<\n]{0,40}<\|message\|>|(?<=[^\w\s]|\w)assistantfinal(?=\W|[A-Z\d])")
_CHANNEL = re.compile(r"\s*(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)|analysis(?=[A-Z])")
_ANSWER_TAG = re.compile(r"<(/?)(?:answer|final_answer|final|response|output|choice)\b[^<>]{0,40}>", re.IGNORECASE)
_LATEX = re.compile(
    r"\\(?:text|textbf|textit|mathrm|mathbf|mathit|boldsymbol|emph|mathsf|texttt|underline|fbox)\s*\{([^{}]*)\}"
)
_ESCAPED_LINE = re.compile(r"(?<!\\)\\n(?![a-z])")
_MARKUP = re.compile(
    r"\*+|(?<![^\W_])_+|_+(?![^\W_])|`+|\\[()\[\],;!]|\$+|^[ \t]*(?:#{1,6}[ \t]*|>+[ \t]+)", re.MULTILINE
)
_NOT = {"ca": "n not", "wo": "uld not"}
_ABBREVIATED = re.compile(r"(.*?\w)\s*\(([A-Z][A-Za-z0-9-]{1,9})\)(.*)", re.DOTALL)
_MEASURE = re.compile(r"(\d)(mm|cm|ml|mg|kg|cc|weeks?|days?|months?|years?)\b", re.IGNORECASE)
_CONTRACTED = re.compile(r"\b(ca|do|does|did|is|are|was|were|would|could|should|has|have|had|wo)n't\b", re.IGNORECASE)

_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_CJK_EDGE = re.compile(rf"(?<=[{_CJK}])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9])(?=[{_CJK}])")
_BLANKS, _LINES, _RUN = re.compile(r"[^\S\n]{2,}"), re.compile(r" ?\n\s*"), re.compile(r"([^\w\s])\1{3,}")

_ERROR = re.compile(
    r"failed to obtain answer|^\W*an (?:\w+ )?error (?:has )?occurred\b"
    r"|\bapi (?:error|call failed|request failed)|^\W*(?:error|exception|traceback"
    r"|http(?: error)?)\b\W*(?:code|:|\d|\(most)"
    r"|\b(?:internal server error|bad gateway|service unavailable|gateway time-?out|too many requests|rate ?limit(?:ed| exceeded"
    r"| reached)?"
    r"|insufficient[_ ]quota|context length exceeded|maximum context length|connection (?:error|refused|reset|aborted|timed out)"
    r"|read timed out|request timed out|cuda (?:error|out of memory)|out of memory|traceback \(most recent call last\)"
    r"|invalid[_ ]api[_ ]key|incorrect api key|\w+(?:error|exception):|status code:? ?[45]\d\d|max retries exceeded)",
    re.IGNORECASE,
)


_ERROR_HINTS: tuple[str, ...] = (
    "error",
    "fail",
    "timed out",
    "timeout",
    "time-out",
    "traceback",
    "exception",
    "quota",
    "rate",
    "too many",
    "unavailable",
)
_ERROR_HINTS += ("gateway", "refused", "memory", "api", "exceeded", "http", "context length", "status code")


@dataclass(frozen=True, slots=True)
class Plain:
    """A response made plain. `unfinished`: it stops inside its reasoning. `final`: it was marked as the final answer (tag, box)."""

    text: str
    unfinished: bool = False
    final: bool = False


def plain(response: str) -> Plain:
    """Strip what is not answer from a response: chat markers, reasoning traces (closed or not), tags, LaTeX, Markdown."""
    text = response if response.isascii() else unicodedata.normalize("NFKC", response)
    unfinished = final = False
    if "<|channel|>" in text or text.startswith("analysis"):
        text, unfinished = _after_channels(text)
        if unfinished:
            return Plain("", True)
    if "<" in text or "[" in text or not text.isascii():
        text = _SPECIAL.sub(" ", _own_turn(text))
        text, unfinished = _after_trace(text)
        inner = _last_tagged(text)
        if inner is not None:
            text, final = inner, True
    if "\\" in text:
        text = _ESCAPED_LINE.sub("\n", text)
        boxed = _last_boxed(text)
        if boxed is not None:
            text, final = boxed, True
        text = _LATEX.sub(r"\1", _LATEX.sub(r"\1", text))
    text = _MARKUP.sub("", text)
    if not text.isascii():
        text = _CJK_EDGE.sub(" ", text.replace("。", ". ").replace("、", ", "))
    text = _RUN.sub(r"\1\1\1", _LINES.sub("\n", _BLANKS.sub(" ", text)))
    return Plain(spell_out(text), unfinished, final)


def spell_out(text: str) -> str:
    """One way to write quotes and negations, for responses and options alike: "don't" -> "do not", "cannot" -> "can not"."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        text = text.replace("’", "'").replace("‘", "'").replace("“", '"').replace("”", '"').replace("′", "'")
    if "'" in text:
        text = _CONTRACTED.sub(lambda match: match[1] + _NOT.get(match[1].lower(), " not"), text)
    if _MEASURE.search(text):
        text = _MEASURE.sub(r"\1 \2", text)
    if "cannot" in text or "Cannot" in text:
        text = text.replace("cannot", "can not").replace("Cannot", "Can not")
    return text


def is_error(text: str) -> bool:
    """Whether a response is the text of an error and no answer. Long prose may name errors; an error text is short."""
    beginning = text[:400].lower()
    return any(hint in beginning for hint in _ERROR_HINTS) and _ERROR.search(beginning) is not None


def _after_trace(text: str) -> tuple[str, bool]:
    """What stands outside the reasoning trace: after it, else before it."""
    tags = list(_TRACE_TAG.finditer(text))
    if not tags:
        return text, False
    closing = [tag for tag in tags if _closes(tag)]
    start = closing[-1].end() if closing else 0
    opening = next((tag for tag in tags if tag.start() >= start and not _closes(tag)), None)
    rest = text[start : opening.start()] if opening else text[start:]
    if not rest.strip():
        rest = text[: tags[0].start()] if not _closes(tags[0]) else ""
    return rest, opening is not None


def _closes(tag: re.Match[str]) -> bool:
    return bool(tag[1] or tag[2] or tag[3])


def _own_turn(text: str) -> str:
    """What the model says itself, before it goes on with other turns: the first turn that is not the user's or the system's."""
    turns = _TURN_ENDS.split(text)
    own = (turn for turn in turns if _OTHERS_TURN.search(turn) is None and _SPECIAL.sub("", turn).strip())
    return next(own, text) if len(turns) > 1 else text


def _after_channels(text: str) -> tuple[str, bool]:
    """The last final channel of a response in channels ("<|channel|>final<|message|>B", or "analysis...assistantfinalB" where the
    markers were dropped), and whether it stops before one."""
    finals = list(_FINAL_CHANNEL.finditer(text))
    if finals:
        return text[finals[-1].end() :], False
    return ("", True) if _CHANNEL.match(text) else (text, False)


def _last_tagged(text: str) -> str | None:
    """The content of the last `<answer>` that holds anything."""
    tags = list(_ANSWER_TAG.finditer(text))
    for position in range(len(tags) - 1, -1, -1):
        if not tags[position][1]:
            end = tags[position + 1].start() if position + 1 < len(tags) else len(text)
            inner = text[tags[position].end() : end]
            if inner.strip():
                return inner
    return None


def _last_boxed(text: str) -> str | None:
    r"""The content of the last \boxed{...} that holds anything (braces may nest; an unclosed one runs to the end)."""
    place = max(text.rfind("\\boxed{"), text.rfind("\\boxed {"))
    if place < 0:
        return None
    start = text.index("{", place) + 1
    depth = 1
    for end in range(start, min(len(text), start + 2000)):
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            break
    else:
        end = min(len(text), start + 2000)
    return text[start:end] if text[start:end].strip() else None


_WORD = re.compile(r"[^\W_]+")
_TOO_COMMON = frozenset(
    {"yes", "no", "none", "all", "both", "true", "false", "other", "others", "unknown", "present", "absent"}
)
"""Options that are everyday words: named only where the response leads with them or an answer statement does."""


_STOP = frozenset(
    {
        "the",
        "of",
        "in",
        "on",
        "at",
        "to",
        "and",
        "or",
        "with",
        "for",
        "by",
        "from",
        "is",
        "are",
        "was",
        "be",
        "an",
        "as",
    }
    | {"it", "its", "this", "that", "into", "other", "than", "both"}
)
_NEGATIVE = frozenset({"no", "not", "without", "absence", "absent", "negative", "none", "non"})
_IRREGULAR = {"torn": "tear", "broken": "break", "bled": "bleed", "swollen": "swell", "grown": "grow"}
_SUFFIX = re.compile(
    r"(?:ication|isation|ization|ations?|ements?|ances?|ancy|ants?|ions?|ities|ity|ures?|ured|uring|ings?|ously|ial|al|ly"
    r"|ified|ify|ies|ied|edly|ed|es|e|s|y|ous|ive)$"
)


def stem(word: str) -> str:
    """A crude stem: "fractured" and "fracture", "dislocation" and "dislocated" come out the same; short words and numbers stay."""
    word = _IRREGULAR.get(word, word)
    if not word.isalpha() or len(word) < 4 or word.endswith("iae"):
        return word
    cut = _SUFFIX.sub("", word, count=1)
    return cut if len(cut) >= 4 else (word[:-1] if word[-1] in "se" and len(word) > 4 else word)


@dataclass(frozen=True, slots=True, eq=False)
class OptionTexts:
    """Options ready to be found in a text. `pattern` finds them, longest first; `index` maps the words found to the option
    (None where two options read the same); `common` are options that are everyday words, `negative` those that begin with a
    negation; `longest` is the most characters an option has; `lone` are options that are one letter; `leads` the first words;
    `stems` are the stems of each option's words, `telling` those that no other option has."""

    words: tuple[tuple[str, ...], ...]
    pattern: re.Pattern[str] | None
    index: dict[str, int | None]
    common: frozenset[int]
    negative: frozenset[int]
    stems: tuple[frozenset[str], ...]
    telling: tuple[frozenset[str], ...]
    longest: int
    lone: dict[str, int]
    leads: tuple[str, ...]


def words_of(text: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(spell_out(text)))


def _stems(option: tuple[str, ...]) -> frozenset[str]:
    """Stems of an option's words; none where a single letter is among them ("stage I"), which other words can not replace."""
    if any(
        len(word) == 1 and word.isalpha() and (word != "a" or place == len(option) - 1)
        for place, word in enumerate(option)
    ):
        return frozenset()
    return frozenset(stem(word) for word in option if word not in _STOP and word != "a")


def _aliases(options: tuple[str, ...]) -> dict[str, int | None]:
    """Other names of options that carry an abbreviation in brackets ("Anteroposterior (AP) view": "AP", "AP view", "anteroposterior
    view"); None for a name that two options would share."""
    names: dict[str, int | None] = {}
    for position, option in enumerate(options):
        match = _ABBREVIATED.fullmatch(option) if "(" in option else None
        if match is None or not match[2].isupper():
            continue
        for name in (match[1], match[2], f"{match[2]} {match[3]}", f"{match[1]} {match[3]}"):
            key = " ".join(words_of(name))
            names[key] = position if names.get(key, position) == position else None
    return names


@lru_cache(maxsize=65536)
def option_texts(options: tuple[str, ...]) -> OptionTexts:
    """Compile the options of a question (cached: questions of one run repeat theirs)."""
    words = tuple(words_of(option) for option in options)
    index: dict[str, int | None] = {}
    for position, option in enumerate(words):
        key = " ".join(option)
        if not key or (len(key) == 1 and key.isalpha()):
            continue
        index[key] = None if key in index else position
    for alias, place in _aliases(options).items():
        index.setdefault(alias, place)
    common = frozenset(i for i, option in enumerate(words) if len(option) == 1 and option[0] in _TOO_COMMON)
    negative = frozenset(i for i, option in enumerate(words) if option and option[0] in _NEGATIVE)
    own = tuple(_stems(option) if i not in common | negative else frozenset() for i, option in enumerate(words))
    telling = tuple(stems - frozenset().union(*own[:i], *own[i + 1 :]) for i, stems in enumerate(own))
    longest = max(map(len, options), default=0)
    leads = tuple(option[0] if option else "" for option in words)
    lone = {
        option[0]: i
        for i, option in enumerate(words)
        if len(option) == 1 and len(option[0]) == 1 and option[0].isalpha()
    }
    if not index:
        return OptionTexts(words, None, index, common, negative, own, telling, longest, lone, leads)
    pattern = "|".join(_pattern(key.split(" ")) for key in sorted(index, key=len, reverse=True))
    found = re.compile(rf"(?<![^\W_])(?<!\d[.,])(?<!non-)(?<!non )(?:{pattern})", re.IGNORECASE)
    return OptionTexts(words, found, index, common, negative, own, telling, longest, lone, leads)


def _pattern(words: Sequence[str]) -> str:
    body = r"[\W_]{1,4}".join(re.escape(word) for word in words)
    plural = "" if words[-1][-1].isdigit() else "(?:e?s)?"
    decimal = r"(?![.,]\d)" if words[-1][-1].isdigit() else ""
    return rf"{body}{plural}(?![^\W_]){decimal}"


@lru_cache(maxsize=4096)
def named_option(found: str, options: OptionTexts) -> int | None:
    """The option whose words were found (a plural ending may have been added); None where two read the same."""
    key = " ".join(words_of(found))
    for candidate in (key, key.removesuffix("s"), key.removesuffix("es")):
        if candidate in options.index:
            return options.index[candidate]
    return None
