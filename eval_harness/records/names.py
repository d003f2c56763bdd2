"""Validate and normalize the names of models, benchmarks and runs, and print untrusted text
safely.
"""

from __future__ import annotations

import re
import unicodedata

from dataset_builders.errors import clip


def model_slug(name: str) -> str:
    """Return a folder name for a model's display name: ASCII letters, digits, `.`, `_`, `-`.

    >>> model_slug("org/Model 7B (v1.6)")
    'org-Model-7B-v1.6'
    """
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", ascii_name).strip("-.")[:80].rstrip("-.") or "model"
    return f"model-{slug}" if WINDOWS_DEVICES.fullmatch(slug) else slug


WINDOWS_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that a folder cannot have on Windows."""
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
"""Valid names of benchmarks and results, which become folders of a store."""
MAX_NAME_LENGTH = 200
"""Characters of a display name."""


JOINERS = "\u200c\u200d\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""Joiners and variation selectors: part of several scripts and emoji, invisible after other
characters.
"""
_UNFIT = re.compile(
    "[<>\u115f\u1160\u3164\uffa0\u17b4\u17b5\u2800\u034f]"  # markup, and signs that look like nothing or a space
    "|[\u2460-\u24ff\u2776-\u2793\u3200-\u32ff\U0001f100-\U0001f1ff\u20dd-\u20e4]"  # enclosed letters and digits
    "|[\U0001d400-\U0001d7ff]"  # letters and digits of formulas, which spell a name that is not that name
    rf"|(?:^|[\x00-\u058f])[{JOINERS}]"  # a joiner in Latin, Greek or Cyrillic
)
EAST_ASIAN_SCRIPTS = frozenset(
    {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"}
)
"""Scripts (first words of Unicode letter names) that are mixed with each other and with Latin
without a space.
"""


def normalize_name(name: str) -> str:
    r"""Normalize a display name: composed characters (Unicode NFC), single spaces, none at the
    ends.

    >>> normalize_name("  Me\u0301dical\u00a0VLM ")
    'M\u00e9dical VLM'
    """
    return " ".join(unicodedata.normalize("NFC", name).split())


def model_name_problem(name: str) -> str | None:
    """Return what is wrong with a display name; None for normalized visible text, one script per
    word.

    Quotes, `=`, `%`, `&` and letters of any script are valid: code that prints a name escapes it.
    """
    quoted_name = clip(name)
    if not name or name != normalize_name(name):
        return (
            f"model name {quoted_name}: must be non-empty, in composed characters (NFC) and with "
            "single spaces. Give --name."
        )
    if len(name) > MAX_NAME_LENGTH:
        return (
            f"model name {quoted_name}: has {len(name)} characters, at most {MAX_NAME_LENGTH}. Give a shorter --name."
        )
    visible = re.sub(f"[{JOINERS}]", "", name)
    # Invisible or look-alike characters could imitate another model's name.
    bad_sign = _UNFIT.search(name) or next((sign for sign in visible if not sign.isprintable()), None)
    if bad_sign:
        sign = ascii(bad_sign if isinstance(bad_sign, str) else bad_sign[0][-1])
        return f"model name {quoted_name}: contains {sign}. Markup, enclosed and invisible characters are not allowed; give another --name."
    # Mixed scripts in a word ("GPT" with a Cyrillic letter) imitate another name.
    mixed_word = next(
        (word for word in re.findall(r"\w+", unicodedata.normalize("NFKC", visible)) if len(_scripts(word)) > 1), None
    )
    if mixed_word:
        scripts = " and ".join(sorted(script.capitalize() for script in _scripts(mixed_word)))
        return f"model name {quoted_name}: {mixed_word!a} mixes {scripts} letters in one word. Give another --name."
    return None


def _scripts(word: str) -> set[str]:
    """Return the scripts of a word's letters; East Asian ones do not count, as they mix with any
    other.
    """
    scripts = {unicodedata.name(letter, "").split(" ")[0] for letter in word if letter.isalpha()}
    return scripts - EAST_ASIAN_SCRIPTS - {"MODIFIER"}


MAX_TEXT_LENGTH = 2_000
"""Characters of a text that describes a run."""
_SPACES = "\n\r\t\u00a0\u2000-\u200a\u202f\u205f\u3000"


def text_problem(text: str, is_data: bool = False) -> str | None:
    """Return what is wrong with a text from a submission; None if it can be displayed.

    Args:
        text: a free field of a run.json.
        is_data: True for a setting, command or prompt: any length, line breaks allowed.
    """
    visible = re.sub(f"[{JOINERS}{_SPACES if is_data else ''}]", "", text)
    bad_sign = next((sign for sign in visible if not sign.isprintable()), None)
    if bad_sign is not None:
        return f"contains {bad_sign!a}: give printable text{'' if is_data else ', in one line'}"
    return (
        None
        if is_data or len(text) <= MAX_TEXT_LENGTH
        else f"has {len(text):,} characters, at most {MAX_TEXT_LENGTH:,}"
    )


def single_line(text: str) -> str:
    """Make text safe for a terminal or a table row: unprintable characters and line breaks become
    "?".
    """
    unprintable = {sign for sign in re.sub(f"[{JOINERS}]", "", text) if not sign.isprintable()}
    return text.translate({ord(sign): "?" for sign in unprintable})


def printable_line(text: str, max_length: int = 600) -> str:
    """Like `single_line`, with single spaces and at most `max_length` characters."""
    line = single_line(" ".join(text.split()))
    return line if len(line) <= max_length else line[: max_length - 4] + " ..."


def replace_surrogates(text: str) -> str:
    """Make text encodable as UTF-8: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode()
