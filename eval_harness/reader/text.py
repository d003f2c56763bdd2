"""Normalize a response and find its marked answers.

Strips chat markers and markup, and unifies signs and units. Reasoning has already been removed
(`reasoning.py`). `normalize_text` keeps line breaks and letter case.
"""

import re
import unicodedata
from collections.abc import Callable

CJK_RANGES = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Character-class ranges of scripts without spaces between words."""

_SPECIAL_TOKEN = re.compile(
    r"<\|[^|<>\n]{1,40}\|>|</?s>|<(?:eos|bos|pad|unk|end_of_turn|start_of_turn|end_of_utterance)>"
    r"|\[/?INST\]|<0x0A>"
    r"|<\|?eot_id\|?>|\ufeff|[\u200b-\u200f\u2060]",
    re.IGNORECASE,
)
_TURN_END = re.compile(r"<\|(?:im_end|eot_id|endoftext|end|end_of_text)\|>|</s>|<(?:end_of_turn|eos|end_of_utterance)>")
_OTHER_ROLE_START = re.compile(
    r"(?:<\|(?:im_start|start_header_id|start)\|>|<start_of_turn>|<\|(?=user|system))\s*(?:user"
    r"|system)\b|\[INST\]"
)
_ECHOED_PROMPT = re.compile(
    r"\s*(?:(?:user|human):.{0,4000}?\n\s*assistant:|\[(?:context"
    r"|question)\].{0,4000}\[choices\].{0,2000}\banswer:)(?=.*\w)",
    re.IGNORECASE | re.DOTALL,
)
_CHAT_OPENER = re.compile(
    r"[\s#]*(?:assistant\s*:\s*(?=\S)|(?:sure|okay|ok|alright|(?:great|good) question)[!.]\s+(?=\S))",
    re.IGNORECASE,
)
_PICTOGRAPH = re.compile("[\U0001f300-\U0001f448\U0001f44a-\U0001f64f\U0001f680-\U0001faff\ufe0f]")
"""Pictographs without meaning: all but the hand that points to an option."""
_AI_CAVEAT = re.compile(
    r"(?:it(?: is|'s) (?:important|crucial|essential) to (?:note|remember)|please (?:note|remember)"
    r"|disclaimer:)(?: that)?"
    r" (?:i am|i'm|as) (?:only |just )?an ai\b[^.!\n]*[.!]?",
    re.IGNORECASE,
)
"""A model's caveat about itself ("Please note that I am an AI and cannot diagnose.")."""


def _normalize_unicode(text: str) -> str:
    """Apply NFKC (full-width letters and the like become plain), keeping superscripts as powers."""
    return unicodedata.normalize("NFKC", text.replace("²", "^2").replace("³", "^3"))


def strip_chat_markers(response: str) -> str:
    """Remove chat-template tokens, an echoed prompt, other speakers' turns and AI caveats.

    Args:
        response: The answer part of a response.

    Returns:
        The model's own turn.
    """
    text = response if response.isascii() else _PICTOGRAPH.sub(" ", _normalize_unicode(response))
    if "<" in text or "[" in text or not text.isascii():
        text = _SPECIAL_TOKEN.sub(" ", _assistant_turn(text))
    if (echo := _ECHOED_PROMPT.match(text) or _CHAT_OPENER.match(text)) is not None:
        text = text[echo.end() :]
    if " an AI" in text and (without_caveat := _AI_CAVEAT.sub("", text)).strip():
        text = without_caveat
    return text


def _assistant_turn(text: str) -> str:
    """Return the first turn that is not the user's or the system's."""
    turns = _TURN_END.split(text)
    assistant_turns = (
        turn for turn in turns if _OTHER_ROLE_START.search(turn) is None and _SPECIAL_TOKEN.sub("", turn).strip()
    )
    return next(assistant_turns, text) if len(turns) > 1 else text


_ANSWER_TAG = re.compile(
    r"(?:<|(?<=\n)(?=answer>))(/?)(?:answer|ans|final_answer|final|response|output|choice|option"
    r"|conclusion)\b[^<>]{0,40}>",
    re.IGNORECASE,
)
_HTML_TAG = re.compile(
    r"</?(?:em|strong|mark|code|pre|span|div|center|font|sup|sub|li|ul|ol"
    r"|(?-i:[biup]))(?:\s[^<>]{0,80})?/?>",
    re.IGNORECASE,
)
_LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
BOXED = re.compile(r"\\f?boxed\s?\{")
_Replacement = tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]]


def _compile_replacements(
    *steps: tuple[str, str, str | Callable[[re.Match[str]], str]],
) -> tuple[_Replacement, ...]:
    return tuple((mark, re.compile(pattern, re.IGNORECASE), replacement) for mark, pattern, replacement in steps)


def _format_fraction(match: re.Match[str]) -> str:
    numerator, denominator = match[1] or match[2], match[3] or match[4]
    return "/".join(f"({part})" if re.search(r"\w\s*[+-]", part) else part for part in (numerator, denominator))


_LATEX_REPLACEMENTS = _compile_replacements(
    (
        "{",
        r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|it|sf|tt)|boldsymbol|emph|underline|mbox)\s*\{([^{}]*)\}",
        r"\1",
    ),
    (
        "frac",
        r"\\[dt]?frac\s*(?:\{([^{}]{1,40})\}|(\d))\s*(?:\{([^{}]{1,40})\}|(\w))",
        _format_fraction,
    ),
    ("sqrt", r"\\sqrt\s*\{([^{}]*)\}", r"√\1"),
    ("sqrt", r"\\sqrt\s?(?=\w)", "√"),
    ("circ", r"\^?\{?\\circ\}?", "°"),
    ("degree", r"\\degree\b", "°"),
    ("\\times", r"\\times(?![a-z])", "*"),
    ("\\cdot", r"\\cdot(?![a-z])", "*"),
    ("\\pi", r"\\pi(?![a-z])", " π "),
    ("\\ge", r"\\geq?(?:slant)?(?![a-z])", ">="),
    ("\\le", r"\\leq?(?:slant)?(?![a-z])", "<="),
    ("\\lt", r"\\lt(?![a-z])", "<"),
    ("\\gt", r"\\gt(?![a-z])", ">"),
    ("\\pm", r"\\pm(?![a-z])", "±"),
    ("\\\\", r"\\\\(?:\s*\[\d+\s*\w\w\])?", " "),
    ("\\", r"\\(?:[,;:!]|\s*$)", ""),
    ("\\", r"\\(?:left|right|displaystyle|quad|qquad|[()\[\] ])", " "),
    ("\\", r"\\([%$&#_{}])", r"\1"),
)
"""LaTeX replacements, in order.

Each has a marker that the lower-case text must contain, a pattern and its replacement.
"""
_MARKUP_AND_CONTRACTIONS = _compile_replacements(
    ("_", r"(?<![^\W_])_+|_+(?![^\W_])", ""),
    ("#", r"(?m)^[ \t]*#{1,6}[ \t]*", ""),
    (">", r"(?m)^[ \t]*>+[ \t]+(?!\d)", ""),
    ("-", r"(?m)^[ \t]*-+[ \t]+(?=\d)|^[ \t]*-{3,}[ \t]*$", ""),
    ("an't", "(?-i:an't)", "an not"),
    ("won't", "(?-i:won't)", "would not"),
    ("n't", "(?-i:n't)", " not"),
    ("annot", "(?-i:annot)", "an not"),
)
"""Remove Markdown and spell contractions out; they have the form of _LATEX_REPLACEMENTS."""
_CONTRACTED_IS = re.compile(r"'(?:(?<=\bthere')|(?<=\bth(?:at|is)')|(?<=\bshe')|(?<=\b(?:it|he)'))s\b", re.IGNORECASE)
_PUNCTUATION_VARIANTS = str.maketrans("’‘“”′−–‒‐‑×·≥⩾≤⩽", "''\"\"'-----**≥≥≤≤")
_BLANK_RUN, _BLANK_LINES, _REPEATED_SIGN = (
    re.compile(r"(?:  |\t)[^\S\n]*"),
    re.compile(r"\n\s+"),
    re.compile(r"([!-/:-@\[-^`{-~…–—])\1{3,}"),
)
_NUMBER_REPLACEMENTS = _compile_replacements(
    (",", r",(?<=\d,)(?=\d{3}(?!\d))", ""),
    ("≥", "≥", ">="),
    ("≤", "≤", "<="),
    ("at least ", r"\bat least\s+(?=\.?\d)", ">="),
    ("at most ", r"\bat most\s+(?=\.?\d)", "<="),
    ("or equal", r"\b(?:greater|more|larger|higher) than or equal to\s+(?=\.?\d)", ">="),
    ("or equal", r"\b(?:less|lower|smaller|fewer) than or equal to\s+(?=\.?\d)", "<="),
    ("than ", r"\b(?:no|not) (?:less|fewer) than\s+(?=\.?\d)", ">="),
    ("than ", r"\b(?:no|not) more than\s+(?=\.?\d)", "<="),
    ("than ", r"\b(?:less|lower|smaller|fewer) than\s+(?=\.?\d)", "<"),
    ("than ", r"\b(?:greater|more|larger|higher) than\s+(?=\.?\d)", ">"),
    ("below ", r"\bbelow\s+(?=\.?\d)", "<"),
    ("under ", r"\bunder\s+(?=\.?\d)", "<"),
    ("above ", r"\babove\s+(?=\.?\d)", ">"),
    ("over ", r"\bover\s+(?=\.?\d)", ">"),
    ("exceed", r"\bexceed(?:s|ing)?\s+(?=\.?\d)", ">"),
    ("minus ", r"\bminus\s+(?=\d)", "-"),
    ("negative ", r"\bnegative\s+(?=\d)", "-"),
    ("'s", r"'s(?<=\d0's)\b", "s"),
    ("cent", r"(?<=\d)\s*per\s?cent\b", "%"),
    ("℃", r"\s?℃", "°c"),
    ("°", r"\s?°\s?C(?:elsius)?\b(?!\.\s+\d)", "°c"),
    ("deg", r"(?<=\d)\s*\b(?:degrees?|deg)\s?C(?:elsius)?\b(?!\.\s+\d)", "°c"),
    ("deg", r"(?<=\d)\s*\b(?:degrees?|deg)\b", "°"),
    ("millimet", r"(?<=\d)[\s-]*millimet(?:er|re)s?\b", " mm"),
    ("centimet", r"(?<=\d)[\s-]*centimet(?:er|re)s?\b", " cm"),
    (" met", r"(?<=\d) met(?:er|re)s?\b", " m"),
    ("m", r"(\d\s?[cmµ]?m)(?=[23]\b)", r"\1^"),
    ("", r"\d(?=(?!(?:st|nd|rd|th)\b)(?:[a-zµ]{2,}|[mglkvwnj])\b)", r"\g<0> "),
    ("sqrt", r"\bsqrt\s?\(?(\d+)\)?", r"√\1"),
    ("pi", r"(\d)\s?pi\b", r"\1 π "),
    ("π", r"(?<=\d)π", " π "),
    (" to ", r" to (?<=\d to )(?=\d)", "-"),
    ("between ", r"\bbetween (\d+(?:\.\d+)?) and (?=\d)", r"\1-"),
)
"""Unify comparisons, percent, degrees and units next to numbers.

They have the form of _LATEX_REPLACEMENTS.
"""

_OFFERED = r"(?:above|given|listed|provided|available|other|presented|offered|answer)"
_NONE_OF_THE_OPTIONS = re.compile(
    rf"\b(?:none|neither) of (?:(?:the|these|those) (?:{_OFFERED} |\w+ (?=options|choices"
    rf"|answers))*"
    rf"(?:options?|choices?|answers?|alternatives?)(?: {_OFFERED})?"
    rf"|the (?:{_OFFERED} )+(?:findings|conditions|diagnos[ei]s|diseases)|these|those"
    rf"|them)(?![\w-])"
    rf"|\bno (?:{_OFFERED} )?(?:option|choice|answer)(?= (?:is|fits|applies|matches)\b)",
    re.IGNORECASE,
)


def normalize_text(text: str) -> str:
    """Normalize a text: no tags, LaTeX or Markdown.

    Negations, quotes, signs, units and phrases for "none of these" are written in one way.

    Args:
        text: Text without chat markers.

    Returns:
        The text with its line breaks and letter case.
    """
    # Each step is preceded by a cheap test, because most responses need few of the steps.
    if "<" in text:
        text = _HTML_TAG.sub("", _ANSWER_TAG.sub("\n", _LINE_BREAK.sub("\n", text)))
    if "\\" in text:
        text = BOXED.sub(r"\\text{", text.replace("~", " "))
        for _ in range(2):  # a wrapper within a wrapper
            text = _apply_replacements(text, _LATEX_REPLACEMENTS)
    text = text.replace("{,}", ",").replace(" & ", " and ")
    if not text.isascii():
        text = _normalize_unicode(text.translate(_PUNCTUATION_VARIANTS)).translate(_PUNCTUATION_VARIANTS)
        text = text.replace("。", ". ").replace("、", ", ").replace("、", ", ")
    text = _STRUCK_THROUGH.sub("", text)
    # Markdown table: cells become "label: value".
    if text.count("|") > 3:
        text = _TABLE_CELL_BORDER.sub(": ", text)
    if "*" in text:
        text = _BOLD.sub(r"\1", text)
        if not _ITALICS_START.search(text):
            text = _STAR_SIGN.sub(" star", text)
        # An asterisk that multiplies numbers is not Markdown.
        is_product = "**" not in text and _PRODUCT.search(text) is not None
        text = text.replace("*", " * " if is_product else "")
    text = _apply_replacements(text.replace("`", "").replace("$", ""), _MARKUP_AND_CONTRACTIONS)
    if "'s" in text:
        text = _CONTRACTED_IS.sub(" is", text)
    if "one of th" in text or "ither of th" in text or " option " in text:
        text = _NONE_OF_THE_OPTIONS.sub("None of the above", text)
    if _DIGIT.search(text) or "≥" in text or "≤" in text:
        text = _apply_replacements(text, _NUMBER_REPLACEMENTS)
    text = _BLANK_LINES.sub("\n", _BLANK_RUN.sub(" ", text).replace(" \n", "\n"))
    return _REPEATED_SIGN.sub(lambda run: 3 * run[1], text).strip()


def _apply_replacements(text: str, steps: tuple[_Replacement, ...]) -> str:
    lowered = text.lower()
    for mark, pattern, replacement in steps:
        if mark in lowered:
            text = pattern.sub(replacement, text)
    return text


_STRUCK_THROUGH, _TABLE_CELL_BORDER = re.compile(r"~~[^~\n]*~~"), re.compile(r"[^\S\n]*\|[^\S\n]*")
_BOLD = re.compile(r"\*\*([^*\n]+(?:\*(?!\*)[^*\n]*|\*)?)\*\*(?!\*)")
_ITALICS_START, _STAR_SIGN = re.compile(r"\*(?<!\w\*)(?=\w)"), re.compile(r"\*(?<=\w\*)(?![\w*])")
"""An asterisk that is a sign ("T2*"): it ends a word, and no emphasis was opened before."""
_DIGIT = re.compile(r"\d")
_PRODUCT = re.compile(r"\d\s?\*\s?[\d√πa-z(]")


def lower_aligned(text: str) -> str:
    """Lower-case a text without changing its length, so offsets stay valid."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(lower_letter if len(lower_letter := letter.lower()) == 1 else letter for letter in text)


_JSON_ANSWER_FIELD = re.compile(
    r"[\"'](?!(?:wrong|incorrect|other|excluded|eliminated|next|second"
    r"|confidence))[\w ]{0,30}?(?:answer|choice"
    r"|option|prediction|letter"
    r"|conclusion|decision)s?(?:[_ ](?:letter|choice|option|text|label)s?)?[\"']\s*:\s*"
    r"(?P<value>\"(?:[^\"\\]|\\.)*\"|\"[^\n{}]{0,300}?\"|'[^'\n]*'|\[[^\[\]]*\]|true|false|null"
    r"|none|-?\d+(?:\.\d+)?)(?=\s*[,}\n])",
    re.IGNORECASE,
)
_JSON_FIELD = re.compile(
    r"[\"'](?P<name>[\w ]{1,40})[\"']\s*:\s*(?P<value>\"(?:[^\"\\]|\\.)*\"|true|false)(?=\s*[,}\n])",
    re.IGNORECASE,
)
_LABEL_FIELD_NAMES = frozenset(
    {
        "label",
        "class",
        "classification",
        "category",
        "diagnosis",
        "verdict",
        "result",
        "response",
        "final",
    }
)
_JSON_START = re.compile(r"\s*(?:```(?:json)?\s*)?\{")


def extract_json_answers(text: str) -> list[str]:
    """Return the values of JSON fields named answer, choice, prediction, ...; the last five."""
    if "{" not in text or text.find("{") > text.rfind(":"):
        return []
    return [field.strip("\"'[] ").replace('"', "") for field in _answer_field_values(text)][-5:]


def extract_marked_answers(text: str) -> list[str]:
    r"""Return the content of `<answer>` tags and of \boxed{...}; the last five."""
    if "<" not in text and "\\" not in text:
        return []
    spans = sorted((*_tagged_spans(text), *_boxed_spans(text)))
    return [text[start:end] for start, end in spans if text[start:end].strip(" \n}$.")][-5:]


def _answer_field_values(text: str) -> list[str]:
    """Return the values of the fields named answer (choice, prediction, ...).

    For a JSON object without such a field: its only label (class, ...), or its only field that is
    true, false, yes or no.
    """
    fields = [field["value"] for field in _JSON_ANSWER_FIELD.finditer(text, text.find("{"))]
    if fields or not _JSON_START.match(text):
        return fields
    other_fields = list(_JSON_FIELD.finditer(text))
    labels = [field["value"] for field in other_fields if field["name"].lower() in _LABEL_FIELD_NAMES]
    yes_no_values = [
        field["value"] for field in other_fields if field["value"].lower().strip('"') in ("true", "false", "yes", "no")
    ]
    return labels if len(labels) == 1 else yes_no_values if len(yes_no_values) == 1 else []


def _tagged_spans(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of the content of each `<answer>` tag."""
    tags = list(_ANSWER_TAG.finditer(text)) if "<" in text else []
    ends = [tag.start() for tag in tags[1:]] + [len(text)]
    return [(tag.end(), end) for tag, end in zip(tags, ends, strict=False) if not tag[1]]


def _boxed_spans(text: str) -> list[tuple[int, int]]:
    r"""Return (start, end) of the content of the last twenty \boxed{...}.

    Braces may nest; an unclosed one extends to the end of the text, at most 400 characters.
    """
    spans = []
    # The last boxes are the answers; the cap bounds the time on looping output.
    for box in list(BOXED.finditer(text))[-20:] if "\\" in text else []:
        depth, end = 1, box.end()
        while end < min(len(text), box.end() + 400):
            depth += (text[end] == "{") - (text[end] == "}")
            if depth == 0:
                break
            end += 1
        spans.append((box.end(), end))
    return spans


_ERROR_TEXT = re.compile(
    r"failed to obtain answer|^\W*an (?:\w+ )?error (?:has )?occurred\b"
    r"|\bapi (?:error|call failed|request failed)|^\W*(?:error|exception|traceback"
    r"|http(?: error)?)\b\W*(?:code|:"
    r"|\d|\(most)"
    r"|\b(?:internal server error|bad gateway|service unavailable|gateway time-?out"
    r"|too many requests"
    r"|rate ?limit(?:ed| exceeded| reached)?|insufficient[_ ]quota|context length exceeded"
    r"|maximum context length"
    r"|connection (?:error|refused|reset|aborted|timed out)|(?:read|request) timed out"
    r"|cuda (?:error"
    r"|out of memory)|out of memory"
    r"|traceback \(most recent call last\)|invalid[_ ]api[_ ]key|incorrect api key|\w+(?:error"
    r"|exception):"
    r"|status code:? ?[45]\d\d"
    r"|max retries exceeded)",
)

_ERROR_WORDS = (
    "error", "exception", "fail", "traceback", "http", "gateway", "unavailable", "request", "limit", "quota", "length", "connection",
    "timed", "memory", "api", "retries", "status",
)  # fmt: skip
"""Every error text contains one of these words: a cheap test before the pattern is tried."""


def is_error_text(text: str) -> bool:
    """Return True if a response is an error message instead of an answer.

    Long prose may mention errors; an error message is short, so only the beginning is searched.
    """
    beginning = text[:400].lower()
    return (
        len(text) > 8 and any(word in beginning for word in _ERROR_WORDS) and _ERROR_TEXT.search(beginning) is not None
    )
