"""Names of models, benchmarks and runs, for display and as folder names; and texts from outside, made one printable line."""

from __future__ import annotations

import re
import unicodedata

from dataset_builders.errors import clip


def model_slug(name: str) -> str:
    """A folder name for a model's display name: ASCII letters, digits, `.`, `_`, `-`.

    >>> model_slug("org/Model 7B (v1.6)")
    'org-Model-7B-v1.6'
    """
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", ascii_name).strip("-.")[:80].rstrip("-.") or "model"
    return f"model-{slug}" if WINDOWS_DEVICES.fullmatch(slug) else slug


WINDOWS_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that no folder can have on Windows."""
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
"""Valid names of benchmarks and results, which become folders of a store."""
MAX_NAME_LENGTH = 200
"""Maximum characters of a display name."""


JOINERS = "\u200c\u200d\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""Joiners and variation selectors: part of how several scripts and emoji are written, invisible after any other sign."""
_UNFIT = re.compile(
    "[<>\u115f\u1160\u3164\uffa0\u17b4\u17b5\u2800\u034f]"  # markup, and signs that look like nothing or a space
    "|[\u2460-\u24ff\u2776-\u2793\u3200-\u32ff\U0001f100-\U0001f1ff\u20dd-\u20e4]"  # enclosed letters and digits
    "|[\U0001d400-\U0001d7ff]"  # letters and digits of formulas, which spell a name that is not that name
    rf"|(?:^|[\x00-\u058f])[{JOINERS}]"  # a joiner in Latin, Greek or Cyrillic
)
EAST_ASIAN_SCRIPTS = frozenset(
    {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"}
)
"""Scripts (as Unicode's names of letters begin) that are written together with each other and with Latin, without a space between."""


def normalize_name(name: str) -> str:
    """The normalized form of a display name: composed characters (Unicode NFC), single spaces, none around it.

    >>> normal_name("  Me\u0301dical\u00a0VLM ")
    'M\u00e9dical VLM'
    """
    return " ".join(unicodedata.normalize("NFC", name).split())


def model_name_problem(name: str) -> str | None:
    """The problem with a display name; None for any normalized text of visible signs, each word in one script.

    Code that shows or exports a name escapes it: quotes, `=`, `%`, `&` and letters of every script may stand in it.
    """
    shown = clip(name)
    if not name or name != normalize_name(name):
        return f"model name {shown}: must be text, in composed characters (NFC) and with single spaces. Give --name."
    if len(name) > MAX_NAME_LENGTH:
        return f"model name {shown}: has {len(name)} characters, at most {MAX_NAME_LENGTH}. Give a shorter --name."
    visible = re.sub(f"[{JOINERS}]", "", name)
    unfit = _UNFIT.search(name) or next((sign for sign in visible if not sign.isprintable()), None)
    if unfit:
        sign = ascii(unfit if isinstance(unfit, str) else unfit[0][-1])
        return f"model name {shown}: contains {sign}. Markup, enclosed and invisible signs are not allowed; give another --name."
    mixed = next(
        (word for word in re.findall(r"\w+", unicodedata.normalize("NFKC", visible)) if len(_scripts(word)) > 1), None
    )
    if mixed:
        scripts = " and ".join(sorted(script.capitalize() for script in _scripts(mixed)))
        return f"model name {shown}: {mixed!a} mixes {scripts} letters in one word. Give another --name."
    return None


def _scripts(word: str) -> set[str]:
    """Scripts of a word's letters; those of East Asia are written together with any other."""
    scripts = {unicodedata.name(letter, "").split(" ")[0] for letter in word if letter.isalpha()}
    return scripts - EAST_ASIAN_SCRIPTS - {"MODIFIER"}


MAX_TEXT_LENGTH = 2_000
"""Maximum characters of a text that describes a run."""
_SPACES = "\n\r\t\u00a0\u2000-\u200a\u202f\u205f\u3000"


def text_problem(text: str, is_data: bool = False) -> str | None:
    """The problem with a text that a run says of itself, which tables, pages and terminals show; None for one printable line.

    `is_data`: a setting, command or prompt, of any length and with line breaks, which is shown as data.
    """
    visible = re.sub(f"[{JOINERS}{_SPACES if is_data else ''}]", "", text)
    unfit = next((sign for sign in visible if not sign.isprintable()), None)
    if unfit is not None:
        return f"contains {unfit!a}: give printable text{'' if is_data else ', in one line'}"
    return (
        None
        if is_data or len(text) <= MAX_TEXT_LENGTH
        else f"has {len(text):,} characters, at most {MAX_TEXT_LENGTH:,}"
    )


def single_line(text: str) -> str:
    """Text for a terminal or a row of a table: what is not printable, line breaks included, becomes a question mark."""
    unfit = {sign for sign in re.sub(f"[{JOINERS}]", "", text) if not sign.isprintable()}
    return text.translate({ord(sign): "?" for sign in unfit})


def printable_line(text: str, most: int = 600) -> str:
    """`one_line` with single spaces and at most so many characters."""
    line = single_line(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 4] + " ..."


def replace_surrogates(text: str) -> str:
    """Text that UTF-8 can encode: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode()
