r"""Signs, comparisons and units written out in one way, for responses and options alike, so that each of them counts as a word.

`>= 50%`, `≥50 %` and "at least 50 percent" all become `atleast 50 percent`; `-1` becomes `minus 1`; `ER-` becomes `ER negative`.
`exact` is for options that are formulas: a text without what LaTeX and Markdown add to its looks.
"""

from __future__ import annotations

import re
import unicodedata

_DIGIT = re.compile(r"\d|[℃√\\]")
_BOUND = (
    r"(?=[<>≥≤⩾⩽abefghlmnosu])(?:(?P<atleast>>=|[≥⩾]|\b(?:at least|(?:no|not) less than|(?:greater|more|larger|higher) than or equal to))"
    r"|(?P<atmost><=|[≤⩽]|\b(?:at most|(?:no|not) more than|(?:less|lower|smaller|fewer) than or equal to))"
    r"|(?P<lessthan>(?<![-=|<])<|\b(?:(?:less|lower|smaller|fewer) than|below|under))"
    r"|(?P<morethan>(?<![-=|>])>|\b(?:(?:greater|more|larger|higher) than|above|over|exceed(?:s|ing)?)))\s*(?=[\d.])"
)
_LATEX_MEASURES = (
    (r"\\[dt]?frac\s*\{([^{}]{1,40})\}\s*\{([^{}]{1,40})\}", r"\1/\2"),
    (r"\^?\s?\{?\\circ\b\}?|\\degree\b", "°"),
    (r"\\%", "%"),
    (r"\\geq?(?:slant)?(?![a-z])", "≥"),
    (r"\\leq?(?:slant)?(?![a-z])", "≤"),
    (r"\\lt(?![a-z])", "<"),
    (r"\\gt(?![a-z])", ">"),
)
_SIGN = (
    r"(?P<plusminus>±\s*(?=[\d.]))|(?P<minus>(?<![\w.,)\]}°%\"'])[-−–‒](?=\.?\d)|\b(?:minus|negative)\s+(?=\d))"
    r"|(?P<plus>(?<![\w.,)\]}°%\"'])\+(?=\.?\d))"
)
_DEGREE = (
    r"(?P<celsius>(?:°\s?|℃|\b(?:degrees?|deg)\s+)(?:(?<=℃)|C(?:elsius)?\b))"
    r"|(?P<fahrenheit>(?:°\s?|\b(?:degrees?|deg)\s+)F(?:ahrenheit)?\b)|(?P<degrees>°|(?<=\d)\s*\b(?:degrees?|deg)\b)"
)
_UNITS = (
    (r"(?<=\d)\s*(?:millimet(?:er|re)s?)\b", " mm"),
    (r"(?<=\d)\s*(?:centimet(?:er|re)s?)\b", " cm"),
    (r"(?<=\d)\s*(?:%|per\s?cent\b)", " percent "),
    (r"(\d)(mm|cm|ml|mg|kg|cc|nm|um|µm|km|weeks?|days?|months?|years?|hours?|minutes?)\b", r"\1 \2"),
)
_RANGES = ((r"(?<=\d) to (?=\d)", "-"), (r"\bbetween (\d+(?:\.\d+)?) and (?=\d)", r"\1-"))


def _as_word(found: re.Match[str]) -> str:
    """The name of the group that was found, as a word of its own."""
    return f" {found.lastgroup} "


_STEPS = tuple(
    (re.compile(hint, re.IGNORECASE), tuple((re.compile(pattern, re.IGNORECASE), put) for pattern, put in patterns))
    for hint, patterns in (
        (r"\\", _LATEX_MEASURES),
        (r",\d{3}", ((r"(?<=\d),(?=\d{3}(?!\d))", ""),)),
        (
            r"(?:[<>=≤≥⩽⩾]|than|equal to|least|most|below|under|above|over|exceed(?:s|ing)?)\s*[\d.]",
            ((_BOUND, _as_word),),
        ),
        (r"[-−–‒+±]\.?\d|±|(?:minus|negative)\s+\d", ((_SIGN, _as_word),)),
        (r"[°℃]|\bdeg", ((_DEGREE, _as_word),)),
        (r"\d\s?(?:%|[a-zµ])", _UNITS),
        (r"\d (?:to|and) \d", _RANGES),
    )
)
"""What is written out, in this order, each where its hint is found."""
_LONG_STATUS = re.compile(r"\b([A-Z][A-Za-z0-9]{1,9})\s?(?:\(([+-])\)|([+−-])(?:ve)?(?![\w+−-]|\s?\d))")
_STATUS = re.compile(r"\b([A-Z][A-Za-z0-9]{0,9})\s?(?:\(([+-])\)|([+−-])(?:ve)?(?![\w+−-]|\s?\d))")

_LATEX_LOOKS = re.compile(r"\\(?:left|right|displaystyle|quad|qquad|[,;:! ])|[\s${}*_`]|\\[()\[\]]")
_LATEX_WRAPPERS = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|it|sf|tt)|boldsymbol|mbox)(?![a-z])")
_LATEX_NAMES = (
    (re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"(\1)/(\2)"),
    (re.compile(r"\\sqrt\s*\{([^{}]*)\}"), r"√(\1)"),
    (re.compile(r"\\sqrt\s?(\w)"), r"√(\1)"),
    (re.compile(r"√(\w+)"), r"√(\1)"),
    (re.compile(r"\\(?:cdot|times)(?![a-z])|[×·]"), "*"),
    (re.compile(r"\^?\{?\\circ\}?|\\degree|\bdegrees?\b"), "°"),
    (re.compile(r"\\geq?(?:slant)?(?![a-z])|[≥⩾]"), ">="),
    (re.compile(r"\\leq?(?:slant)?(?![a-z])|[≤⩽]"), "<="),
    (re.compile(r"[−–‒]"), "-"),
    (re.compile(r"\\pi(?![a-z])"), "π"),
)


def spell_measures(text: str) -> str:
    """Comparison signs, minus, plus, degrees and percent before or after numbers as words; LaTeX fractions as a/b."""
    if _DIGIT.search(text):
        for hint, patterns in _STEPS:
            if hint.search(text):
                for pattern, put in patterns:
                    text = pattern.sub(put, text)
    return text


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
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    if "\\" in text or not text.isascii():
        text = _LATEX_WRAPPERS.sub("", text)
        for pattern, put in _LATEX_NAMES:
            text = pattern.sub(put, text)
        text = re.sub(r"(?<![\w)])\((\w+)\)", r"\1", text)
    text = _LATEX_LOOKS.sub("", text).replace("\\%", "%")
    return text.rstrip(".,;:!").lower()
