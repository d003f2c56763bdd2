"""Validate and normalize names of models, benchmarks and runs, and print untrusted text safely."""

import re
import unicodedata

from dataset_builders.errors import clip


def model_slug(name: str) -> str:
    """Return a folder name for a model's display name: ASCII letters, digits, `.`, `_`, `-`.

    >>> model_slug("org/Model 7B (v1.6)")
    'org-Model-7B-v1.6'
    """
    # NFKD separates letters from their accents, which the ASCII encoding then drops.
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", ascii_name).strip("-.")[:80].rstrip("-.") or "model"
    return f"model-{slug}" if WINDOWS_DEVICES.fullmatch(slug) else slug


WINDOWS_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that a folder cannot have on Windows."""
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
"""Valid names of benchmarks and results, which become folders of a store."""
MAX_NAME_LENGTH = 200
"""Maximum length of a display name, in characters."""

JOINERS = "\u200c\u200d\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""Joiners and variation selectors: needed by some scripts and emoji, invisible anywhere else."""
_UNFIT = re.compile(
    "[<>\u115f\u1160\u3164\uffa0\u17b4\u17b5\u2800\u034f]"  # markup, invisible characters and look-alike spaces
    "|[\u2460-\u24ff\u2776-\u2793\u3200-\u32ff\U0001f100-\U0001f1ff\u20dd-\u20e4]"  # enclosed letters and digits
    "|[\U0001d400-\U0001d7ff]"  # mathematical letters and digits, which imitate ordinary ones
    rf"|(?:^|[\x00-\u058f])[{JOINERS}]"  # a joiner in Latin, Greek or Cyrillic
)
EAST_ASIAN_SCRIPTS = frozenset(
    {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"}
)
"""Scripts that are written next to each other, and next to Latin, without a space.

Each is the first word of the Unicode names of its letters.
"""


def normalize_name(name: str) -> str:
    r"""Normalize a display name to composed characters (Unicode NFC) and single inner spaces.

    >>> normalize_name("  Me\u0301dical\u00a0VLM ")
    'M\u00e9dical VLM'
    """
    return " ".join(unicodedata.normalize("NFC", name).split())


def model_name_problem(name: str) -> str | None:
    """Return what is wrong with a display name, or None if it is valid.

    A valid name is normalized, visible text with one script per word. Quotes, `=`, `%`, `&` and
    letters of any script are valid: code that prints a name must escape it.
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
    # Joiners are not printable by Python's definition, but valid after most characters.
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
    """Return the scripts of a word's letters, except EAST_ASIAN_SCRIPTS."""
    scripts = {unicodedata.name(letter, "").split(" ")[0] for letter in word if letter.isalpha()}
    return scripts - EAST_ASIAN_SCRIPTS - {"MODIFIER"}


MAX_TEXT_LENGTH = 2_000
"""Maximum length of a free field that describes a run, in characters."""
_SPACES = "\n\r\t\u00a0\u2000-\u200a\u202f\u205f\u3000"


def text_problem(text: str, is_data: bool = False) -> str | None:
    """Return what is wrong with a text from a submission; None if it can be displayed.

    Args:
        text: a free field of a run.json.
        is_data: True for a setting, command or prompt, which may have any length and line breaks.
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
    """Make text safe for a terminal or a table row by replacing every unprintable character by "?".

    Line breaks are unprintable, too.
    """
    unprintable = {sign for sign in re.sub(f"[{JOINERS}]", "", text) if not sign.isprintable()}
    return text.translate({ord(sign): "?" for sign in unprintable})


def printable_line(text: str, max_length: int = 600) -> str:
    """Like `single_line`, with single spaces and at most `max_length` characters."""
    line = single_line(" ".join(text.split()))
    return line if len(line) <= max_length else line[: max_length - 4] + " ..."
