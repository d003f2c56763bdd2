"""Turn texts and numbers into HTML.

Here untrusted text is escaped and truncated, and numbers are rounded.
"""

import html
import math
import re

from eval_harness.records.result import Score
from eval_harness.store import formatting
from eval_harness.store.formatting import format_score

DEFAULT_MAX_LENGTH = 120
"""Maximum number of characters shown of a name or a note, including the ellipsis."""
MAX_CHOICE_LENGTH = 300
"""Maximum number of characters of a name that a form field offers."""

INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters (except tab and line feed), lone surrogates, and marks that change the
direction of text."""

_RIGHT = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]+"
RIGHT_TO_LEFT = re.compile(rf"{_RIGHT}(?:[\s-]+{_RIGHT})*")
"""Words of scripts that are written from right to left, such as Hebrew and Arabic, with the spaces
between them."""


def visible(value: object, max_length: int = DEFAULT_MAX_LENGTH) -> str:
    """Return a text as visitors see it, and may send it back.

    Invisible characters are replaced by U+FFFD, and long texts are cut.

    Args:
        value: The text.
        max_length: Maximum number of characters.
    """
    plain = str(value)
    cut = plain if len(plain) <= max_length else plain[: max_length - 1] + "…"
    return INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", cut)


def text(value: object, max_length: int = DEFAULT_MAX_LENGTH) -> str:
    """Return a text as HTML: made `visible`, then escaped.

    >>> text("<b>A</b>")
    '&lt;b&gt;A&lt;/b&gt;'
    """
    return html.escape(visible(value, max_length), quote=True)


def is_shown_as(name: str, field: str) -> bool:
    """Return True if `field` is what a form field that offered `name` sends back.

    Browsers return the visible text without surrounding spaces.

    >>> is_shown_as("\u202eName ", "\ufffdName"), is_shown_as("Name", "name")
    (True, False)
    """
    return visible(name, MAX_CHOICE_LENGTH).strip() == visible(field, MAX_CHOICE_LENGTH).strip()


def prose(value: object, max_length: int = DEFAULT_MAX_LENGTH) -> str:
    """Return a sentence that contains untrusted names as HTML.

    A direction mark after a right-to-left name keeps the numbers and punctuation that follow it in
    their place.
    """
    return RIGHT_TO_LEFT.sub(r"\g<0>&lrm;", text(value, max_length))


def number(value: float | None, digits: int = 1) -> str:
    """Format a number; a dash if there is none. Numbers that round to zero have no sign.

    Args:
        value: The number.
        digits: Digits after the point.

    >>> number(29.545), number(None), number(1e308), number(-0.04), number(-12.0)
    ('29.5', '–', '1e+308', '0.0', '−12.0')
    """
    if value is None or not math.isfinite(value):
        return "–"
    # Avoid "-0.0".
    value = value if round(value, digits) else 0.0
    formatted = f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.3g}"
    return f"\N{MINUS SIGN}{formatted[1:]}" if formatted.startswith("-") else formatted


def score_text(value: float | None, unit: str = "percent") -> str:
    """Format a score in its unit, rounded as on the command line (`format_score`).

    A missing score gives a dash.

    Args:
        value: The score.
        unit: As `MetricInfo.unit`.

    >>> score_text(99.97), score_text(12.0, "count"), score_text(None)
    ('>99.9', '12', '–')
    """
    formatted = format_score(value, unit)
    return "–" if formatted == "-" else formatted.replace("-", "\N{MINUS SIGN}")


def interval(score: Score) -> str:
    """Format the 95 % interval of a score; a dash if there is none."""
    return formatting.format_interval(score).replace(" - ", "–") or "–"


def count(value: int) -> str:
    """Format a whole number with thousands separators: 26,000."""
    return f"{value:,}"


def plural(value: int, noun: str) -> str:
    """Format a count with its noun: `1 model`, `2 models`."""
    return f"{count(value)} {noun if value == 1 else noun + 's'}"


SMALL_NUMBER_WORDS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)


def in_words(value: int) -> str:
    """Write a whole number for running text: in words up to twelve."""
    return SMALL_NUMBER_WORDS[value] if 0 <= value < len(SMALL_NUMBER_WORDS) else count(value)


def options(pairs: list[tuple[str, str]], chosen: str | None) -> str:
    """Build the `<option>` elements of a form field from (value, label) pairs."""
    return "".join(
        f'<option value="{text(value, 200)}"{" selected" if value == chosen else ""}>{text(label)}</option>'
        for value, label in pairs
    )
