"""Text into HTML: everything that came from outside is escaped here, cut to a length, and shown with sane digits."""

from __future__ import annotations

import html
import math
import re

from eval_harness.records.result import Score
from eval_harness.store import formatting
from eval_harness.store.formatting import format_score

LONGEST = 120
"""Characters of a name or a note that are shown; the rest is behind an ellipsis."""
LONGEST_NAME = 300
"""Characters of a name that a field offers."""

INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters (not tab and line feed), lone surrogates, and marks that change the direction of the text around them."""

_RIGHT = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]+"
RIGHT_TO_LEFT = re.compile(rf"{_RIGHT}(?:[\s-]+{_RIGHT})*")
"""Words of scripts that run from right to left (Hebrew, Arabic and their like), with what divides them."""


def visible(value: object, longest: int = LONGEST) -> str:
    """`value` with control and direction-changing characters as visible boxes, cut to a length: what a reader sees, and may send back."""
    plain = str(value)
    if len(plain) > longest:
        plain = plain[: longest - 1] + "…"
    return INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", plain)


def text(value: object, longest: int = LONGEST) -> str:
    """`value` as escaped text, `visible`.

    >>> text("<b>A</b>")
    '&lt;b&gt;A&lt;/b&gt;'
    """
    return html.escape(visible(value, longest), quote=True)


def is_shown_as(name: str, said: str) -> bool:
    """True if `said` is a name as it comes back from a field that offered it: browsers keep what is visible, and cut its ends.

    >>> is_shown_as("\u202eName ", "\ufffdName"), is_shown_as("Name", "name")
    (True, False)
    """
    return visible(name, LONGEST_NAME).strip() == visible(said, LONGEST_NAME).strip()


def prose(value: object, longest: int = LONGEST) -> str:
    """`text` of a sentence of ours with names from outside in it: a name that runs from right to left would draw the numbers and the
    punctuation that follow it to its other side."""
    return RIGHT_TO_LEFT.sub(r"\g<0>&lrm;", text(value, longest))


def number(value: float | None, digits: int = 1) -> str:
    """A number with one digit, a dash where there is none; what rounds to nothing has no sign.

    >>> number(29.545), number(None), number(1e308), number(-0.04), number(-12.0)
    ('29.5', '–', '1e+308', '0.0', '−12.0')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if round(value, digits) == 0:
        value = 0.0
    shown = f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.3g}"
    return shown.replace("-", "\N{MINUS SIGN}", 1) if shown.startswith("-") else shown


def score_text(value: float | None, unit: str = "percent") -> str:
    """A score as its unit is shown, rounded as on the command line (`formatting.format_score`); a dash where there is none.

    >>> score_text(99.97), score_text(12.0, "count"), score_text(None)
    ('>99.9', '12', '–')
    """
    said = format_score(value, unit)
    return "–" if said == "-" else said.replace("-", "\N{MINUS SIGN}")


def interval(score: Score) -> str:
    """The 95 % interval of a score; a dash where there is none."""
    return formatting.format_interval(score).replace(" - ", "–") or "–"


def count(value: int) -> str:
    """A whole number with thin groups of three: 26,000."""
    return f"{value:,}"


def plural(value: int, one: str) -> str:
    """`1 model`, `2 models`."""
    return f"{count(value)} {one if value == 1 else one + 's'}"


WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def in_words(value: int) -> str:
    """Whole numbers up to twelve in words, as in running text."""
    return WORDS[value] if 0 <= value < len(WORDS) else count(value)


def options(pairs: list[tuple[str, str]], chosen: str | None) -> str:
    """`<option>` elements from (value, label) pairs."""
    return "".join(
        f'<option value="{text(value, 200)}"{" selected" if value == chosen else ""}>{text(label)}</option>'
        for value, label in pairs
    )
