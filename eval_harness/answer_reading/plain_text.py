"""A response made plain before it is read: one script width, no chat markers, no markup; its marked answer.

Reasoning has been taken out before (`reasoning.py`). Deciding is in `answers.py`. Everything is linear in the length of the response.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from eval_harness.answer_reading.words import beginnings, says, words_in

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
_ECHO = re.compile(r"\s*(?:user|human):.{0,4000}?\n\s*assistant:(?=.*\w)", re.IGNORECASE | re.DOTALL)
_OWN_NAME = re.compile(r"\s*assistant\s*:\s*(?=\w)", re.IGNORECASE)
_PROGRAM = re.compile(r"```py(?:thon)?\b.*?(?:```|\Z)", re.DOTALL)
_CAVEAT = re.compile(
    r"(?:it(?: is|'s) (?:important|crucial|essential) to (?:note|remember)|please (?:note|remember)|disclaimer:)(?: that)?"
    r" (?:i am|i'm|as) (?:only |just )?an ai\b[^.!\n]*",
    re.IGNORECASE,
)
"""What a model adds to an answer about itself ("It is important to note that I am an AI and can not give a diagnosis.")."""
_ANSWER_TAG = re.compile(
    r"<(/?)(?:answer|final_answer|final|response|output|choice|conclusion)\b[^<>]{0,40}>", re.IGNORECASE
)
_HTML = re.compile(
    r"</?(?:em|strong|mark|code|pre|span|div|center|font|sup|sub|br|li|ul|ol)(?:\s[^<>]{0,80})?/?>", re.IGNORECASE
)
_FIELD = re.compile(
    r"[\"'](?!(?:wrong|incorrect|other|excluded|eliminated|next|second))[\w ]{0,30}?(?:answer|choice|option|prediction|letter"
    r"|conclusion|decision)s?"
    r"(?:[_ ](?:letter|choice|option|text|label)s?)?[\"']\s*:\s*"
    r"(?P<value>\"(?:[^\"\\]|\\.)*\"|'[^'\n]*'|\[[^\[\]]*\]|true|false|null|none|-?\d+(?:\.\d+)?)(?=\s*[,}\n])",
    re.IGNORECASE,
)
_JSON_OBJECT = re.compile(r"\s*(?:```(?:json)?\s*)?\{")
_LABEL_FIELD = re.compile(
    r"[\"'](?:label|class(?:ification)?|category|diagnosis|verdict|result|response)[\"']\s*:\s*"
    r"(?P<value>\"(?:[^\"\\]|\\.)*\")(?=\s*[,}\n])",
    re.IGNORECASE,
)
"""A field that holds the answer of a response that is one JSON object and has no field that is called so."""
_SHORT_HTML = re.compile(r"<([biup])>([^<>]{0,400})</\1>", re.IGNORECASE)
_LATEX = re.compile(
    r"\\(?:text|textbf|textit|mathrm|mathbf|mathit|boldsymbol|emph|mathsf|texttt|underline|fbox)\s*\{([^{}]*)\}"
)
_MARKUP = (
    ("_", re.compile(r"(?<![^\W_])_+|_+(?![^\W_])")),
    ("\\", re.compile(r"\\[()\[\],;!]")),
    ("#", re.compile(r"^[ \t]*#{1,6}[ \t]*", re.MULTILINE)),
    (">", re.compile(r"^[ \t]*>+[ \t]+(?!\d)", re.MULTILINE)),
)
_IS_SHORT = re.compile(r"'(?:(?<=\bthere')|(?<=\bthat')|(?<=\bit'))s\b", re.IGNORECASE)
_DECADE = re.compile(r"(?<=\d0)'s\b")
_CONTRACTED = (
    ("an't", "an not"),
    ("won't", "would not"),
    ("Won't", "Would not"),
    ("AN'T", "AN NOT"),
    ("n't", " not"),
    ("N'T", " NOT"),
)

CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_CJK_EDGE = re.compile(rf"(?<=[{CJK}])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9])(?=[{CJK}])")
_BLANKS, _LINES, _RUN = re.compile(r"[^\S\n]{2,}"), re.compile(r"\n\s+"), re.compile(r"([^\w\s])\1{3,}")
_SIGNS, _ASCII_SIGNS = re.compile(r"[^\w\s]{4}"), re.compile(r"[!-/:-@\[-^`{-~]{4}")

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


_ERROR_SIGNS = (
    "error", "exception", "failed", "traceback", "http", "gateway", "service unavailable", "too many requests", "rate limit", "ratelimit",
    "quota", "context length", "connection", "timed out", "out of memory", "api key", "api_key", "status code", "max retries", "api call",
)  # fmt: skip
"""What the text of an error says, in lower case."""
_ERROR_WORDS = beginnings(
    "fail traceback http gateway unavailable requests rate ratelimit quota length connection timed memory api status retries"
)
"""Words of which such a text says one, if neither error nor exception."""


def holds(text: str, parts: Iterable[str]) -> bool:
    """Whether a text holds any of the parts: a loop, since every response goes through here many times."""
    for part in parts:  # noqa: SIM110
        if part in text:
            return True
    return False


def marked_answers(text: str, most: int) -> list[tuple[str, str]]:
    r"""The contents that a response marks as its answer, and what follows each: a JSON field, `<answer>` tags, \boxed{...}; the last ones,
    the last first."""
    if "{" in text and text.find("{") < text.rfind(":"):
        fields = list(_FIELD.finditer(text, text.find("{")))
        if not fields and _JSON_OBJECT.match(text) and len(labels := list(_LABEL_FIELD.finditer(text))) == 1:
            fields = labels
        if fields:
            return [(field["value"].strip("\"'[] ").replace('"', ""), "") for field in fields[: -most - 1 : -1]]
    if "<" not in text and "\\" not in text:
        return []
    spans = sorted((*_tagged(text), *_boxed(text)), reverse=True)
    found = ((text[start:end], end) for start, end in spans)
    said = ((content, text[end:]) for content, end in found if content.strip(" \n}$."))
    return list(islice(said, most))


def without_markers(response: str) -> str:
    """The model's own turn, without the special tokens of its chat template, the prompt that it repeats, programs, and
    what it says of itself."""
    text = response if response.isascii() else unicodedata.normalize("NFKC", response)
    if "<" in text or "[" in text or not text.isascii():
        text = _SPECIAL.sub(" ", _own_turn(text))
    if (echo := _ECHO.match(text) or _OWN_NAME.match(text)) is not None:
        text = text[echo.end() :]
    if "```py" in text and (rest := _PROGRAM.sub("\n", text)).strip():
        text = rest
    if " an AI" in text and (rest := _CAVEAT.sub("", text)).strip():
        text = rest
    return text


def plain(text: str) -> str:
    """Strip what is not words from a text without markers: tags, LaTeX, Markdown; negations, signs and units are spelt in one way."""
    if "<" in text:
        text = _HTML.sub("", _SHORT_HTML.sub(r"\2", _ANSWER_TAG.sub("\n", text)))
    if "\\" in text:
        text = BOX.sub(r"\\text{", text)
        text = _LATEX.sub(r"\1", _LATEX.sub(r"\1", text.replace("~", " ")))
    for mark in "*`$":
        text = text.replace(mark, "")
    for mark, pattern in _MARKUP:
        if mark in text:
            text = pattern.sub("", text)
    if not text.isascii():
        text = _CJK_EDGE.sub(" ", text.replace("。", ". ").replace("、", ", ").replace(",", ", ").replace(":", ": "))
    if "  " in text or "\t" in text:
        text = _BLANKS.sub(" ", text)
    if "\n" in text:
        text = _LINES.sub("\n", text.replace(" \n", "\n"))
    signs = _ASCII_SIGNS if text.isascii() else _SIGNS
    return spell_out(_RUN.sub(r"\1\1\1", text) if signs.search(text) else text).strip()


def of_each(make: Callable[[str], str], texts: Sequence[str]) -> list[str]:
    """What `make` makes of every text: of those with LaTeX, which take the longest, together. What stands between two of them ends every
    pattern."""
    latex = [text for text in texts if "\\" in text]
    if len(latex) < 2 or "\1" in "".join(latex):
        return list(map(make, texts))
    made = iter(make("\n\1{\n".join(latex)).split("\1"))
    return [next(made) if "\\" in text else make(text) for text in texts]


def spell_out(text: str) -> str:
    """One way to write quotes, negations and British words, for responses and options alike: "cannot" -> "can not", "oedema" -> "edema"."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        text = text.replace("’", "'").replace("‘", "'").replace("“", '"').replace("”", '"').replace("′", "'")
    if "'" in text:
        for short, long in _CONTRACTED:
            text = text.replace(short, long)
        text = _DECADE.sub("s", _IS_SHORT.sub(" is", text))
    text = spell_measures(text)
    lowered = text.lower()
    if holds(lowered, _VOWELS) and holds(lowered, _BRITISH):
        text = _ENDS_IN_RE.sub("er", _EXTRA_VOWEL.sub("", text))
    if " & " in text:
        text = text.replace(" & ", " and ")
    if "annot" in text:
        text = text.replace("cannot", "can not").replace("Cannot", "Can not")
    return text


_EXTRA_VOWEL = re.compile(
    r"(?<=\w)a(?=em)|\bo(?=edem|esoph|estr)|(?<=rrh)o(?=e)|(?<=pn)o(?=e)|(?<=\bf)(?:o(?=et)|a(?=ec))|(?<=\bc)a(?=ec)|(?<=p)a(?=ed)"
    r"|(?<=an)a(?=esth)|\ba(?=etiol)|(?<=tumo|colo)u(?=r)",
    re.IGNORECASE,
)
_ENDS_IN_RE = re.compile(r"(?:(?<=met|lit|fib|tit)|(?<=cent))re(?=s?\b)", re.IGNORECASE)
_VOWELS = ("ae", "oe", "our", "tre", "bre")
_BRITISH = words_in(
    "aem oedem oesoph oestr rrhoe pnoe foet faec caec paed anaesth aetiol tumour colour metre litre fibre titre centre"
)
"""British spelling, which is made American (haemorrhage, oedema, diarrhoea, foetal, tumour, fibre), and what each of these holds."""


def is_error(text: str) -> bool:
    """Whether a response is the text of an error and no answer. Long prose may name errors; an error text is short."""
    beginning = text[:400].lower()
    if len(text) > 40 and not says(text, _ERROR_WORDS) and "error" not in beginning and "exception" not in beginning:
        return False
    return holds(beginning, _ERROR_SIGNS) and _ERROR.search(beginning) is not None


def _own_turn(text: str) -> str:
    """What the model says itself, before it goes on with other turns: the first turn that is not the user's or the system's."""
    turns = _TURN_ENDS.split(text)
    own = (turn for turn in turns if _OTHERS_TURN.search(turn) is None and _SPECIAL.sub("", turn).strip())
    return next(own, text) if len(turns) > 1 else text


BOX = re.compile(r"\\f?boxed\s?\{")


def _tagged(text: str) -> list[tuple[int, int]]:
    """Where the content of each `<answer>` begins and ends."""
    tags = list(_ANSWER_TAG.finditer(text)) if "<" in text else []
    ends = [tag.start() for tag in tags[1:]] + [len(text)]
    return [(tag.end(), end) for tag, end in zip(tags, ends, strict=False) if not tag[1]]


def _boxed(text: str) -> list[tuple[int, int]]:
    r"""Where the content of each of the last twenty \boxed{...} begins and ends (braces may nest; an unclosed one runs to the end)."""
    found = []
    for box in list(BOX.finditer(text))[-20:] if "\\" in text else []:
        depth, end = 1, box.end()
        while end < min(len(text), box.end() + 400):
            depth += (text[end] == "{") - (text[end] == "}")
            if depth == 0:
                break
            end += 1
        found.append((box.end(), end))
    return found


_DIGIT = re.compile(r"[\d℃√\\]")


def _as_word(found: re.Match[str]) -> str:
    """The name of the group that was found, as a word of its own."""
    return f" {found.lastgroup} "


_Step = tuple[tuple[str, ...], re.Pattern[str], str | Callable[[re.Match[str]], str]]


def _steps(*steps: tuple[str, str, str | Callable[[re.Match[str]], str]]) -> tuple[_Step, ...]:
    return tuple((tuple(marks.split("|")), re.compile(pattern, re.IGNORECASE), put) for marks, pattern, put in steps)


_LATEX_STEPS = _steps(
    ("frac", r"\\[dt]?frac\s*\{([^{}]{1,40})\}\s*\{([^{}]{1,40})\}", r"\1/\2"),
    ("\\circ|\\degree", r"\^?\s?\{?\\circ\b\}?|\\degree\b", "°"),
    ("\\%", r"\\%", "%"),
    ("\\ge", r"\\geq?(?:slant)?(?![a-z])", "≥"),
    ("\\le", r"\\leq?(?:slant)?(?![a-z])", "≤"),
    ("\\lt", r"\\lt(?![a-z])", "<"),
    ("\\gt", r"\\gt(?![a-z])", ">"),
)
_NUMBER_STEPS = _steps(
    (",", r",(?<=\d,)(?=\d{3}(?!\d))", ""),
    (
        "<|>|≤|≥|⩽|⩾|than|least|most|below|under|above|over|exceed",
        r"(?:\b(?=[abefghlmnosu])|(?=[<>≥≤⩾⩽]))"
        r"(?:(?P<atleast>>=|[≥⩾]|at least|(?:no|not) less than|(?:greater|more|larger|higher) than or equal to)"
        r"|(?P<atmost><=|[≤⩽]|at most|(?:no|not) more than|(?:less|lower|smaller|fewer) than or equal to)"
        r"|(?P<lessthan>(?<![-=|<])<|(?:less|lower|smaller|fewer) than|below|under)"
        r"|(?P<morethan>(?<![-=|>])>|(?:greater|more|larger|higher) than|above|over|exceed(?:s|ing)?))\s*(?=\.?\d)",
        _as_word,
    ),
    ("minus|negative", r"\b(?:minus|negative)\s+(?=\d)", " minus "),
    (
        "-|−|–|‒|+|±",
        r"(?P<plusminus>±\s*(?=\.?\d))|(?P<minus>[-−–‒](?<![\w.,)\]}°%\"'].)(?=\.?\d))|(?P<plus>\+(?<![\w.,)\]}°%\"'].)(?=\.?\d))",
        _as_word,
    ),
    (
        "°|℃|deg",
        r"(?P<celsius>(?:°\s?|℃|\b(?:degrees?|deg)\s+)(?:(?<=℃)|C(?:elsius)?\b(?!\.\s+\d)))"
        r"|(?P<fahrenheit>(?:°\s?|\b(?:degrees?|deg)\s+)F(?:ahrenheit)?\b)|(?P<degrees>°|(?<=\d)\s*\b(?:degrees?|deg)\b)",
        _as_word,
    ),
    (" met", r"(?<=\d) met(?:er|re)s?\b", " m"),
    ("millimet", r"(?<=\d)\s*(?:millimet(?:er|re)s?)\b", " mm"),
    ("centimet", r"(?<=\d)\s*(?:centimet(?:er|re)s?)\b", " cm"),
    ("%|cent", r"(?<=\d)\s*(?:%|per\s?cent\b)", " percent "),
    (
        "m|g|c|k|l|v|w|n|j|h|p|b|day|year",
        r"(\d)(?=[a-zµ])(mm|cm|ml|mg|kg|cc|nm|um|µm|km|weeks?|days?|months?|years?|hours?|minutes?|[kmglvwnj]|k[jnwv]|k?hz|k?pa|btu)\b",
        r"\1 \2",
    ),
    (" to ", r"(?<=\d) to (?=\d)", "-"),
    ("between", r"\bbetween (\d+(?:\.\d+)?) and (?=\d)", r"\1-"),
)
"""What is written out, in this order, of LaTeX and near numbers: marks of which a text must hold one; the pattern, what is put in its
place."""
_LONG_STATUS = re.compile(r"\b([A-Z][A-Za-z0-9]{1,9})\s?(?:\(([+-])\)|([+−-])(?:ve)?(?![\w+−-]|\s?\d))")
_STATUS = re.compile(r"\b([A-Z][A-Za-z0-9]{0,9})\s?(?:\(([+-])\)|([+−-])(?:ve)?(?![\w+−-]|\s?\d))")

_LATEX_LOOKS = re.compile(r"\\(?:left|right|displaystyle|quad|qquad|[,;:! ])|[\s${}*_`]|\\[()\[\]]")
_LATEX_WRAPPERS = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|it|sf|tt)|boldsymbol|mbox)(?![a-z])")
_LATEX_NAMES = (
    ("frac", re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"(\1)/(\2)"),
    ("sqrt", re.compile(r"\\sqrt\s*\{([^{}]*)\}"), r"√(\1)"),
    ("sqrt", re.compile(r"\\sqrt\s?(\w)"), r"√(\1)"),
    ("\\cdot", re.compile(r"\\cdot(?![a-z])"), "*"),
    ("\\times", re.compile(r"\\times(?![a-z])"), "*"),
    ("\\circ", re.compile(r"\^?\{?\\circ\}?"), "°"),
    ("\\degree", re.compile(r"\\degree"), "°"),
    ("\\ge", re.compile(r"\\geq?(?:slant)?(?![a-z])"), ">="),
    ("\\le", re.compile(r"\\leq?(?:slant)?(?![a-z])"), "<="),
    ("\\pi", re.compile(r"\\pi(?![a-z])"), "π"),
)
_ONE_SIGN = str.maketrans(
    dict.fromkeys("×·", "*") | dict.fromkeys("≥⩾", ">=") | dict.fromkeys("≤⩽", "<=") | dict.fromkeys("−–‒", "-")
)
_DEGREES, _IN_BRACKETS = re.compile(r"\bdegrees?\b"), re.compile(r"(?<![\w)])\((\w+)\)")


def spell_measures(text: str) -> str:
    """Comparison signs, minus, plus, degrees and percent before or after numbers as words; LaTeX fractions as a/b."""
    if _DIGIT.search(text) is None:
        return text
    if "\\" in text:
        for marks, pattern, put in _LATEX_STEPS:
            if holds(text.lower(), marks):
                text = pattern.sub(put, text)
    near = _around_numbers(text)
    if not near.strip("0123456789. "):
        return text
    for marks, pattern, put in _NUMBER_STEPS:
        if holds(near, marks) and (spelt := pattern.sub(put, text)) != text:
            text, near = spelt, _around_numbers(spelt)
    return text


def _around_numbers(text: str) -> str:
    """What stands around the numbers and degrees of a text, in lower case: most marks change nothing elsewhere."""
    if len(text) <= 120:
        return text.lower()
    numbers = [found.span() for found in _NUMBER.finditer(text)]
    return "|".join([text[max(0, start - 30) : end + 15] for start, end in numbers]).lower()


_NUMBER = re.compile(r"\d[\d.,]*|[°℃]|deg", re.IGNORECASE)


def spell_status(text: str, letters: bool = True) -> str:
    """ "ER-", "HER2+", "Rh(-)" as "ER negative", "HER2 positive", "Rh negative": only where options are of this kind. `letters`: also
    "A+", which is a label where no option is a blood group."""
    return (_STATUS if letters else _LONG_STATUS).sub(
        lambda found: f"{found[1]} {'positive' if (found[2] or found[3]) == '+' else 'negative'}", text
    )


def has_status(text: str) -> bool:
    return _STATUS.search(text) is not None


def exact(text: str) -> str:
    """A text without blanks, markup and LaTeX's looks, in lower case: equal for two ways to write the same formula."""
    if (words := text.replace(" ", "")).isalnum() and words.isascii():
        return words.lower()
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    if "\\" in text or not text.isascii():
        if "\\" in text:
            text = _LATEX_WRAPPERS.sub("", text.replace("~", " "))
            for mark, pattern, put in _LATEX_NAMES:
                text = pattern.sub(put, text) if mark in text else text
        text = text if text.isascii() else text.translate(_ONE_SIGN)
        text = _DEGREES.sub("°", text) if "degree" in text else text
        text = _IN_BRACKETS.sub(r"\1", text) if "(" in text else text
    text = _LATEX_LOOKS.sub("", text).replace("\\%", "%")
    return text.rstrip(".,;:!").lower()
