"""Names of models, benchmarks and runs: what people read, and what becomes a folder."""

from __future__ import annotations

import re
import unicodedata

from dataset_builders.sources.problems import clip
from eval_harness.records.result import Result

AGAIN = "-reproduced"
"""What the id of a reproduced result ends with, and no other."""


def model_slug(name: str) -> str:
    """A folder name for a model's display name: ASCII letters, digits, `.`, `_`, `-`.

    >>> model_slug("org/Model 7B (v1.6)")
    'org-Model-7B-v1.6'
    """
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", ascii_name).strip("-.")[:80].rstrip("-.") or "model"
    return f"model-{slug}" if WINDOWS_DEVICES.fullmatch(slug) else slug


WINDOWS_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""What no folder can be called on Windows."""
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
"""What a benchmark and a result may be called, since they become folders of a store."""
LONGEST_NAME = 200
"""Characters of a display name."""


def normal_name(name: str) -> str:
    """A display name in its one form: composed characters (Unicode NFC), single spaces, none around it.

    >>> normal_name("  Me\u0301dical\u00a0VLM ")
    'M\u00e9dical VLM'
    """
    return " ".join(unicodedata.normalize("NFC", name).split())


def wrong_model_name(name: str) -> str | None:
    """What is wrong with a display name, in words; None for any text in its one form without control characters and markup.

    Whoever shows or exports a name escapes it: quotes, `=`, `%`, `&` and letters of every script may stand in it.
    """
    shown = clip(name)
    if not name or name != normal_name(name):
        return f"model name {shown}: must be text, in composed characters (NFC) and with single spaces. Give --name."
    if len(name) > LONGEST_NAME:
        return f"model name {shown}: has {len(name)} characters, at most {LONGEST_NAME}. Give a shorter --name."
    # Joiners (U+200C, U+200D) are part of how several scripts are written.
    odd = [c for c in name if c in "<>" or (unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\u200c\u200d")]
    if odd:
        return f"model name {shown}: holds {odd[0]!r}. Markup and control characters cannot stand in it; give another --name."
    return None


def wrong_names(result: Result, run_id: str) -> list[str]:
    """What is wrong with the names that become folders, and the one that people read."""
    said = wrong_model_name(result.model.name)
    wrong = [said] if said else []
    for what, name in (("run id", run_id), ("benchmark name", result.benchmark.name)):
        if not FOLDER_NAME.fullmatch(name):
            wrong.append(
                f"{what} {clip(name)}: must be letters, digits, dots and dashes, and start with a letter or digit"
            )
    if run_id.endswith(AGAIN) and result.provenance != "reproduced":
        wrong.append(f"run id {clip(run_id, 200)}: this ending is kept for what the store's owner runs again")
    return wrong
