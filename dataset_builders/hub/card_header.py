"""The YAML between two lines of --- at the top of a README.md on the Hub, and the limits that the Hub documents for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from dataset_builders.contents.card import SIZE_CATEGORIES
from dataset_builders.errors import BadInput

SHORT_DESCRIPTION = 60
"""Characters that the Hub takes as a Space's short description."""
COLOURS = ("red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray")
SDKS = ("gradio", "docker", "static")
LOADER = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # the same in C, where PyYAML was built with it: ten times as quick


def read_card_header(path: Path) -> tuple[dict[str, Any] | None, str]:
    """(metadata, the text below it) of a card; None where it does not begin with a mapping between two lines of ---.

    Raises yaml.YAMLError for a block that is no YAML, UnicodeDecodeError for a file that is not UTF-8.
    """
    text = path.read_text(encoding="utf-8-sig")
    found = re.match(r"---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", text, re.DOTALL | re.MULTILINE)
    header = yaml.load(found[1], Loader=LOADER) if found else None
    return (header, text[found.end() :]) if found and isinstance(header, dict) else (None, text)


def check_header(path: Path, header: dict[str, Any], kind: str) -> None:
    """Raise BadInput for metadata that the Hub would refuse, before anything is created there. `kind`: dataset or space.

    Source: the Hub's references of Spaces' configuration and of repository cards (licences, size categories).
    """
    rules = {
        "license_name": (r"[a-z0-9.-]+", "lower-case letters, digits, `-` and `.`"),
        "license_link": (r"LICENSE(\.md)?|https?://\S+", "`LICENSE`, `LICENSE.md` or a web address"),
    }
    if kind == "space":
        rules |= {
            "short_description": (rf".{{1,{SHORT_DESCRIPTION}}}", f"at most {SHORT_DESCRIPTION} characters"),
            "colorFrom": ("|".join(COLOURS), f"one of {', '.join(COLOURS)}"),
            "colorTo": ("|".join(COLOURS), f"one of {', '.join(COLOURS)}"),
            "sdk": ("|".join(SDKS), f"one of {', '.join(SDKS)}"),
        }
    for name, (pattern, takes) in rules.items():
        if name in header and not re.fullmatch(pattern, str(header[name])):
            raise BadInput(f"{path}: {name}: {str(header[name])[:80]!r}: the Hub takes {takes}.")
    sizes = header.get("size_categories", [])
    for value in sizes if isinstance(sizes, list) else [sizes]:
        if value not in SIZE_CATEGORIES:
            raise BadInput(f"{path}: size_categories: {value!r}: the Hub takes {', '.join(SIZE_CATEGORIES)}.")
