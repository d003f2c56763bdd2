"""A response made plain before it is read: one script width, no chat markers, no markup; its marked answer; and its options' texts.

Reasoning has been taken out before (`reasoning.py`). Deciding is in `answers.py`. Everything is linear in the length of the response.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from eval_harness.answer_reading.measures import exact, has_status, spell_measures, spell_status

_SPECIAL = re.compile(
    r"<\|[^|<>\n]{1,40}\|>|</?s>|<(?:eos|bos|pad|unk|end_of_turn|start_of_turn|end_of_utterance)>|\[/?INST\]|<0x0A>"
    r"|<\|?eot_id\|?>|\ufeff|[\u200b-\u200f\u2060]",
    re.IGNORECASE,
)
_TURN_ENDS = re.compile(
    r"<\|(?:im_end|eot_id|endoftext|end|end_of_text)\|>|</s>|<(?:end_of_turn|eos|end_of_utterance)>"
)
_OTHERS_TURN = re.compile(
    r"(?:<\|(?:im_start|start_header_id|start)\|>|<start_of_turn>|<\|(?=user|system))\s*(?:user|system)\b|\[INST\]"
)
_ANSWER_TAG = re.compile(
    r"<(/?)(?:answer|final_answer|final|response|output|choice|conclusion)\b[^<>]{0,40}>", re.IGNORECASE
)
_HTML = re.compile(
    r"</?(?:em|strong|mark|code|pre|span|div|center|font|sup|sub|br|li|ul|ol)(?:\s[^<>]{0,80})?/?>", re.IGNORECASE
)
_SHORT_HTML = re.compile(r"<([biup])>([^<>]{0,400})</\1>", re.IGNORECASE)
_FIELD = re.compile(
    r"[\"'](?!(?:wrong|incorrect|other|excluded|eliminated|next|second))[\w ]{0,30}?(?:answer|choice|option|prediction|letter"
    r"|conclusion|decision)s?"
    r"(?:[_ ](?:letter|choice|option|text|label)s?)?[\"']\s*:\s*"
    r"(?P<value>\"(?:[^\"\\]|\\.)*\"|'[^'\n]*'|\[[^\[\]]*\]|true|false|null|none|-?\d+(?:\.\d+)?)(?=\s*[,}\n])",
    re.IGNORECASE,
)
_TRUTH = re.compile(r"[\"']\s*:\s*(true|false)\b", re.IGNORECASE)
_LATEX = re.compile(
    r"\\(?:text|textbf|textit|mathrm|mathbf|mathit|boldsymbol|emph|mathsf|texttt|underline|fbox)\s*\{([^{}]*)\}"
)
_ESCAPED_LINE = re.compile(r"(?<!\\)\\n(?![a-z])")
_MARKUP = re.compile(
    r"\*+|(?<![^\W_])_+|_+(?![^\W_])|`+|\\[()\[\],;!]|\$+|^[ \t]*(?:#{1,6}[ \t]*|>+[ \t]+)", re.MULTILINE
)
_THERE_IS = re.compile(r"\b(there)'s\b", re.IGNORECASE)
_NOT = {"ca": "n not", "wo": "uld not"}
_ABBREVIATED = re.compile(r"(.*?\w)\s*\(([A-Z][A-Za-z0-9-]{1,9})\)(.*)", re.DOTALL)
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


def marked_answers(text: str) -> list[tuple[str, str]]:
    r"""The contents that a response marks as its answer, and what follows each: a JSON field, `<answer>` tags, \boxed{...}; last first."""
    if "{" in text and text.find("{") < text.rfind(":"):
        fields = list(_FIELD.finditer(text, text.find("{")))
        if fields:
            return [(field["value"].strip("\"'[] ").replace('"', ""), "") for field in reversed(fields)]
        truths = _TRUTH.findall(text) if text.lstrip("`json \n").startswith("{") else []
        if len(truths) == 1:
            return [(truths[0], "")]
    found = [(start, end, text[start:end]) for start, end in (*_tagged(text), *_boxed(text))]
    return [(content, text[end:]) for _, end, content in sorted(found, reverse=True) if content.strip(" \n}$.")]


def without_markers(response: str) -> str:
    """The model's own turn, without the special tokens of its chat template."""
    text = response if response.isascii() else unicodedata.normalize("NFKC", response)
    if "<" in text or "[" in text or not text.isascii():
        text = _SPECIAL.sub(" ", _own_turn(text))
    return _ESCAPED_LINE.sub("\n", text) if "\\" in text else text


def plain(text: str) -> str:
    """Strip what is not words from a text without markers: tags, LaTeX, Markdown; negations, signs and units are spelt in one way."""
    if "<" in text:
        text = _HTML.sub("", _SHORT_HTML.sub(r"\2", _ANSWER_TAG.sub("\n", text)))
    if "\\" in text:
        text = _BOX.sub(r"\\text{", text)
        text = _LATEX.sub(r"\1", _LATEX.sub(r"\1", text))
    text = _MARKUP.sub("", text)
    if not text.isascii():
        text = _CJK_EDGE.sub(" ", text.replace("。", ". ").replace("、", ", ").replace(",", ", ").replace(":", ": "))
    return spell_out(_RUN.sub(r"\1\1\1", _LINES.sub("\n", _BLANKS.sub(" ", text)))).strip()


def spell_out(text: str) -> str:
    """One way to write quotes and negations, for responses and options alike: "don't" -> "do not", "cannot" -> "can not"."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        text = text.replace("’", "'").replace("‘", "'").replace("“", '"').replace("”", '"').replace("′", "'")
    if "'" in text:
        text = _CONTRACTED.sub(lambda match: match[1] + _NOT.get(match[1].lower(), " not"), text)
        text = _THERE_IS.sub(r"\1 is", text)
    text = spell_measures(text)
    if "cannot" in text or "Cannot" in text:
        text = text.replace("cannot", "can not").replace("Cannot", "Can not")
    return text


def is_error(text: str) -> bool:
    """Whether a response is the text of an error and no answer. Long prose may name errors; an error text is short."""
    beginning = text[:400].lower()
    return any(hint in beginning for hint in _ERROR_HINTS) and _ERROR.search(beginning) is not None


def _own_turn(text: str) -> str:
    """What the model says itself, before it goes on with other turns: the first turn that is not the user's or the system's."""
    turns = _TURN_ENDS.split(text)
    own = (turn for turn in turns if _OTHERS_TURN.search(turn) is None and _SPECIAL.sub("", turn).strip())
    return next(own, text) if len(turns) > 1 else text


_BOX = re.compile(r"\\f?boxed\s?\{")


def _tagged(text: str) -> list[tuple[int, int]]:
    """Where the content of each `<answer>` begins and ends."""
    tags = list(_ANSWER_TAG.finditer(text)) if "<" in text else []
    ends = [tag.start() for tag in tags[1:]] + [len(text)]
    return [(tag.end(), end) for tag, end in zip(tags, ends, strict=False) if not tag[1]]


def _boxed(text: str) -> list[tuple[int, int]]:
    r"""Where the content of each of the last twenty \boxed{...} begins and ends (braces may nest; an unclosed one runs to the end)."""
    found = []
    for box in list(_BOX.finditer(text))[-20:] if "\\" in text else []:
        depth, end = 1, box.end()
        while end < min(len(text), box.end() + 400):
            depth += (text[end] == "{") - (text[end] == "}")
            if depth == 0:
                break
            end += 1
        found.append((box.end(), end))
    return found


_WORD = re.compile(r"\d+(?:\.\d+)+(?![^\W_])|[^\W_]+")
_TOO_COMMON = frozenset(
    {"yes", "no", "none", "all", "both", "true", "false", "other", "others", "unknown", "present", "absent"}
)
"""Options that are everyday words: named only where the response leads with them or an answer statement does."""


STOP = frozenset(
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


@lru_cache(maxsize=16384)
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
    `stems` are the stems of each option's words, `telling` those that no other option has; `exact` maps an option as a formula to it;
    `numeric` are options that are numbers or formulas; `status` whether options say "+" or "-" of a marker."""

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
    exact: dict[str, int | None]
    numeric: frozenset[int]
    status: bool


def words_of(text: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(spell_out(text)))


def _stems(option: tuple[str, ...]) -> frozenset[str]:
    """Stems of an option's words; none where a single letter is among them ("stage I"), which other words can not replace."""
    if any(
        len(word) == 1 and word.isalpha() and (word != "a" or place == len(option) - 1)
        for place, word in enumerate(option)
    ):
        return frozenset()
    return frozenset(stem(word) for word in option if word not in STOP and word != "a")


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


_WORDS_TO_TWELVE = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBER_WORDS = dict(zip(_WORDS_TO_TWELVE, map(str, range(1, 13)), strict=True))
_BOUNDS = frozenset({"minus", "plus", "lessthan", "morethan", "atleast", "atmost", "plusminus"})
_UNITS = frozenset(
    {"percent", "degrees", "celsius", "fahrenheit", "mm", "cm", "m", "km", "nm", "um", "µm", "ml", "l", "mg", "g", "kg"}
    | {
        "cc",
        "hz",
        "khz",
        "mmhg",
        "bpm",
        "ms",
        "s",
        "min",
        "hu",
        "frac",
        "sqrt",
        "cdot",
        "times",
        "pi",
        "text",
        "mathrm",
    }
)


def _number_names(options: Sequence[tuple[str, ...]], numeric: frozenset[int]) -> dict[str, int | None]:
    """Other names of options that are numbers: "3" for "three" and back (not "one", which is an everyday word), "45" for "45 degrees"
    where every option has that unit, "1" for "+1"."""
    names: dict[str, int | None] = {}
    digits = {digit: word for word, digit in _NUMBER_WORDS.items() if digit != "1"}
    units = {option[-1] for option in options if option}
    same_unit = len(units) == 1 and units <= _UNITS
    for position, option in enumerate(options):
        others = []
        if len(option) == 1:
            others += [other for names_of in (_NUMBER_WORDS, digits) if (other := names_of.get(option[0]))]
        if position in numeric and same_unit and len(option) > 1:
            others.append(" ".join(option[:-1]))
        if position in numeric and option[0] == "plus":
            others.append(" ".join(option[1:]))
        for other in others:
            names[other] = position if other not in names else None
    return names


def _is_numeric(option: str, words: tuple[str, ...]) -> bool:
    """Whether an option is a number with its unit, or a formula."""
    if not words or not (any(char.isdigit() for char in option) or "\\" in option or words[0] in _NUMBER_WORDS):
        return False
    return all(word[0].isdigit() or len(word) < 3 or word in _UNITS | _BOUNDS | _NUMBER_WORDS.keys() for word in words)


@lru_cache(maxsize=65536)
def option_texts(options: tuple[str, ...]) -> OptionTexts:
    """Compile the options of a question (cached: questions of one run repeat theirs)."""
    status = any(has_status(option) for option in options)
    words = tuple(words_of(spell_status(option) if status else option) for option in options)
    numeric = frozenset(i for i, option in enumerate(options) if _is_numeric(option, words[i]))
    index: dict[str, int | None] = {}
    for position, option in enumerate(words):
        key = " ".join(option)
        if not key or (len(key) == 1 and key.isalpha()):
            continue
        index[key] = None if key in index else position
    for alias, place in (_aliases(options) | _number_names(words, numeric)).items():
        index.setdefault(alias, place)
    formulas: dict[str, int | None] = {}
    for position, text in enumerate(options):
        key = exact(text)
        if key and not (len(key) == 1 and key.isalpha()):
            formulas[key] = None if key in formulas else position
    common = frozenset(i for i, option in enumerate(words) if len(option) == 1 and option[0] in _TOO_COMMON)
    negative = frozenset(i for i, option in enumerate(words) if option and option[0] in _NEGATIVE)
    own = tuple(
        _stems(option) if i not in common | negative | numeric and not has_status(options[i]) else frozenset()
        for i, option in enumerate(words)
    )
    telling = tuple(stems - frozenset().union(*own[:i], *own[i + 1 :]) for i, stems in enumerate(own))
    longest = max(map(len, options), default=0)
    leads = tuple(option[0] if option else "" for option in words)
    lone = {
        option[0]: i
        for i, option in enumerate(words)
        if len(option) == 1 and len(option[0]) == 1 and option[0].isalpha()
    }
    found = None
    if index:
        pattern = "|".join(_pattern(key.split(" ")) for key in sorted(index, key=len, reverse=True))
        found = re.compile(rf"(?<!\d[.,])(?<!non-)(?<!non )(?:{pattern})", re.IGNORECASE)
    status = status or any(option[-1:] in (("positive",), ("negative",)) and len(option) > 1 for option in words)
    return OptionTexts(
        words, found, index, common, negative, own, telling, longest, lone, leads, formulas, numeric, status
    )


_UNBOUND = "".join(rf"(?<!{word} )" for word in sorted(_BOUNDS - {"plus"})) + r"(?<!\d/)"


_WIDE = re.compile(rf"[{_CJK}]")
"""Scripts without blanks between words."""


def _pattern(words: Sequence[str]) -> str:
    body = r"[\W_]{1,4}".join(re.escape(word) for word in words)
    plural = "" if words[-1][-1].isdigit() else "(?:e?s)?"
    if words[-1].endswith("sis"):  # metastasis, metastases
        body, plural = body[:-2], "[ie]s"
    decimal = r"(?![.,]\d)(?!\s?/\d)" if words[-1][-1].isdigit() else ""
    starts = "" if _WIDE.match(words[0][0]) else r"(?<![^\W_])"
    ends = "" if _WIDE.match(words[-1][-1]) else rf"{plural}(?![^\W_]){decimal}"
    return rf"{starts}{_UNBOUND if words[0][0].isdigit() else ''}{body}{ends}"


@lru_cache(maxsize=4096)
def named_option(found: str, options: OptionTexts) -> int | None:
    """The option whose words were found (a plural ending may have been added); None where two read the same."""
    key = " ".join(words_of(found))
    for candidate in (key, key.removesuffix("s"), key.removesuffix("es"), key.removesuffix("es") + "is"):
        if candidate in options.index:
            return options.index[candidate]
    return None
