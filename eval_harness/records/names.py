"""Names of models, benchmarks and runs, for display and as folder names."""

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
LONGEST_NAME = 200
"""Maximum characters of a display name."""


def normal_name(name: str) -> str:
    """The normalized form of a display name: composed characters (Unicode NFC), single spaces, none around it.

    >>> normal_name("  Me\u0301dical\u00a0VLM ")
    'M\u00e9dical VLM'
    """
    return " ".join(unicodedata.normalize("NFC", name).split())


def wrong_model_name(name: str) -> str | None:
    """The problem with a display name; None for any normalized text without control characters and markup.

    Code that shows or exports a name escapes it: quotes, `=`, `%`, `&` and letters of every script may stand in it.
    """
    shown = clip(name)
    if not name or name != normal_name(name):
        return f"model name {shown}: must be text, in composed characters (NFC) and with single spaces. Give --name."
    if len(name) > LONGEST_NAME:
        return f"model name {shown}: has {len(name)} characters, at most {LONGEST_NAME}. Give a shorter --name."
    # Joiners (U+200C, U+200D) are part of how several scripts are written.
    odd = [c for c in name if c in "<>" or (unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\u200c\u200d")]
    if odd:
        return (
            f"model name {shown}: holds {odd[0]!r}. Markup and control characters are not allowed; give another --name."
        )
    return None


def storable(text: str) -> str:
    """Text that UTF-8 can encode: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode()
